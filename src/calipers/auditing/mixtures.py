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

from dataclasses import dataclass

import numpy as np

from calipers.auditing.builtin import NoisySums
from calipers.errors import UnsupportedError
from calipers.numerics.types import FloatArray

# Doubles in one block of the table (rows of outputs) x (configurations).
BLOCK_NUMBERS = 2**20


@dataclass(frozen=True)
class Mixture:
    """The configurations of one epoch under one hypothesis; `crowd` and `included` have shape (configurations, M)."""

    log_weight: FloatArray
    crowd: FloatArray
    included: FloatArray
    sums: FloatArray
    divisors: FloatArray

    def log_density(self, projection: FloatArray, square: FloatArray, dimension: int, noise: float) -> FloatArray:
        """The log density at outputs with these projections p and squared norms r, both of shape (outputs, M).

        Exact up to a constant that depends on `dimension` and `noise` only, and to round-off of about 1e-16 times
        the largest exponent.
        """
        precision = 1.0 / (noise * noise)
        constant = self.log_weight + (dimension * np.log(self.divisors) - 0.5 * precision * self.sums**2).sum(axis=1)
        linear = precision * (self.divisors * self.sums).T
        quadratic = -0.5 * precision * np.square(self.divisors).T
        found = np.empty(projection.shape[0])
        block = max(1, BLOCK_NUMBERS // constant.size)
        for start in range(0, found.size, block):
            rows = slice(start, start + block)
            exponent = projection[rows] @ linear
            exponent += square[rows] @ quadratic
            exponent += constant
            found[rows] = _log_sum_exp(exponent)
        return found


def mixture(target: NoisySums, present: bool) -> Mixture:
    """The configurations of one epoch of `target`, or `UnsupportedError` if there are too many to list."""
    try:
        log_weight, crowd, included = target.scheme.configurations(target, target.is_member(present))
    except UnsupportedError as error:
        raise UnsupportedError(f"{error} ({target.name})") from error
    sums = target.gradient * crowd + target.pull(present) * included
    return Mixture(log_weight, crowd, included, sums, target.divisor(present, crowd + included))


def enumerable(target: NoisySums) -> bool:
    """Whether the configurations of an epoch can be listed."""
    try:
        mixture(target, present=True)
    except UnsupportedError:
        return False
    return True


def _log_sum_exp(exponent: FloatArray) -> FloatArray:
    """log of the row sums of e^exponent; the argument is overwritten."""
    top = exponent.max(axis=1)
    exponent -= top[:, None]
    np.exp(exponent, out=exponent)
    return np.asarray(top + np.log(exponent.sum(axis=1)), dtype=np.float64)
