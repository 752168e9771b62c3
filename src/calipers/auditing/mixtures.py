"""The likelihood of a divided noisy sum: a mixture over what the batches may have been.

Call a **configuration** everything random about an epoch except the noise, as far as the outputs depend on it: for each
of its M rounds the sum s_t along e and the divisor d_t. Given the configuration, the rounds are independent Gaussians,
and with p_t = <y_t, e> and r_t = |y_t|^2

    log density = sum_t [ n log d_t - (d_t^2 r_t - 2 d_t s_t p_t + s_t^2) / (2 sigma^2) ] + constant,

where the constant is the same under both hypotheses. So a table of configurations, each a row (log weight, s, d), gives
every density by two matrix products and one log-sum-exp; epochs are independent, so their logarithms add up.

How many configurations there are:

| sampler | configurations of an epoch |
|---|---|
| poisson (an epoch is one round) | sizes of the others' batch (0..N, binomial) x inclusion of the record |
| balls-and-bins | M places of the record, times the C(N+M-1, M-1) ways the others fall if these matter |
| shuffle | M places of the record, and one more where it can be left out |
| deterministic | one |

Poisson sizes of probability below e^-45 are left out. That changes the score by less than round-off and endangers
nothing: any score gives a valid test, and only the power of the test depends on how well it is computed.
"""

from __future__ import annotations

import numpy as np

from calipers.auditing.builtin import NoisySums
from calipers.errors import UnsupportedError
from calipers.numerics.elementary import row_logsumexp
from calipers.numerics.types import FloatArray

# Doubles in one block of the table (rows of outputs) x (configurations).
BLOCK_NUMBERS = 2**20


class Mixture:
    """The configurations of one epoch of `target` under one hypothesis; arrays have shape (configurations, M).

    `UnsupportedError` if there are too many to list.
    """

    def __init__(self, target: NoisySums, present: bool) -> None:
        try:
            self.log_weight, self.crowd, included = target.scheme.configurations(target, target.is_member(present))
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} ({target.name})") from error
        self.sums = target.gradient * self.crowd + target.pull(present) * included
        self.divisors = target.divisor(present, self.crowd + included)
        self._dimension, self._noise = target.dimension, target.noise_multiplier

    def log_density(self, projection: FloatArray, square: FloatArray) -> FloatArray:
        """The log density at outputs with these projections p and squared norms r, both of shape (outputs, M).

        Exact up to a constant that depends on dimension and noise only, and to round-off of about 1e-16 times the
        largest exponent.
        """
        precision = 1.0 / (self._noise * self._noise)
        scales = self._dimension * np.log(self.divisors)
        constant = self.log_weight + (scales - 0.5 * precision * self.sums**2).sum(axis=1)
        linear = precision * (self.divisors * self.sums).T
        quadratic = -0.5 * precision * np.square(self.divisors).T
        found = np.empty(projection.shape[0])
        block = max(1, BLOCK_NUMBERS // constant.size)
        for start in range(0, found.size, block):
            rows = slice(start, start + block)
            exponent = projection[rows] @ linear
            exponent += square[rows] @ quadratic
            exponent += constant
            found[rows] = row_logsumexp(exponent)
        return found


def enumerable(target: NoisySums) -> bool:
    """Whether the configurations of an epoch can be listed."""
    try:
        Mixture(target, present=True)
    except UnsupportedError:
        return False
    return True
