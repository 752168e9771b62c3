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

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import special

from calipers.auditing.builtin import NoisySums
from calipers.errors import UnsupportedError
from calipers.numerics.types import FloatArray

MOST_CONFIGURATIONS = 20_000
LEAST_LOG_WEIGHT = -45.0
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
    configurations = {
        "poisson": _poisson,
        "balls-and-bins": _balls_and_bins,
        "shuffle": _shuffle,
        "deterministic": _deterministic,
    }[target.sampler](target, target.is_member(present))
    log_weight, crowd, included = configurations
    sums = target.gradient * crowd + target.pull(present) * included
    return Mixture(log_weight, crowd, included, sums, target.divisor(present, crowd + included))


Configurations = tuple[FloatArray, FloatArray, FloatArray]


def _poisson(target: NoisySums, member: bool) -> Configurations:
    size, rate = target.others, target.sample_rate
    count = np.arange(size + 1.0) if target.crowd_matters else np.zeros(1)
    log_count = _log_binomial(size, rate) if target.crowd_matters else np.zeros(1)
    likely = log_count >= LEAST_LOG_WEIGHT
    count, log_count = count[likely], log_count[likely]
    with np.errstate(divide="ignore"):
        log_bit = np.log(np.array([1.0 - rate, rate])) if member else np.zeros(1)
    bits = np.arange(log_bit.size, dtype=np.float64)
    log_weight = (log_count[:, None] + log_bit).ravel()
    possible = np.isfinite(log_weight)
    crowd = np.repeat(count, bits.size)[possible, None]
    included = np.tile(bits, count.size)[possible, None]
    return log_weight[possible], crowd, included


def _log_binomial(size: int, rate: float) -> FloatArray:
    """log P(Binomial(size, rate) = k) for k = 0..size; -inf where it cannot be."""
    k = np.arange(size + 1.0)
    chosen = special.gammaln(size + 1.0) - special.gammaln(k + 1.0) - special.gammaln(size - k + 1.0)
    # xlogy and xlog1py make 0 log 0 = 0, so that a rate of 1 is no exception.
    return np.asarray(chosen + special.xlogy(k, rate) + special.xlog1py(size - k, -rate), dtype=np.float64)


def _balls_and_bins(target: NoisySums, member: bool) -> Configurations:
    rounds = target.rounds
    places = np.eye(rounds) if member else np.zeros((1, rounds))
    if target.crowd_matters:
        ways = math.comb(target.others + rounds - 1, rounds - 1)
        _refuse_many(ways * len(places), target)
        crowds = np.array(list(_fallen(target.others, rounds)), dtype=np.float64).reshape(ways, rounds)
        log_crowd = special.gammaln(target.others + 1.0) - special.gammaln(crowds + 1.0).sum(axis=1)
        log_crowd = log_crowd - target.others * math.log(rounds)
    else:
        crowds, log_crowd = np.zeros((1, rounds)), np.zeros(1)
    _refuse_many(len(crowds) * len(places), target)
    log_weight = np.repeat(log_crowd, len(places)) - math.log(len(places))
    return log_weight, np.repeat(crowds, len(places), axis=0), np.tile(places, (len(crowds), 1))


def _fallen(balls: int, bins: int) -> Iterator[list[int]]:
    """All ways to write `balls` as an ordered sum of `bins` counts: where the bins - 1 bars stand among the balls."""
    for bars in combinations(range(balls + bins - 1), bins - 1):
        edges = (-1, *bars, balls + bins - 1)
        yield [edges[i + 1] - edges[i] - 1 for i in range(bins)]


def _shuffle(target: NoisySums, member: bool) -> Configurations:
    rounds, size = target.rounds, target.others + 1
    left_out = size - rounds * target.batch_size
    _refuse_many(rounds + 1, target)
    included = np.eye(rounds)
    log_weight = np.full(rounds, math.log(target.batch_size / size))
    if left_out > 0:
        included = np.vstack([included, np.zeros(rounds)])
        log_weight = np.append(log_weight, math.log(left_out / size))
    return log_weight, target.batch_size - included, included


def _deterministic(target: NoisySums, member: bool) -> Configurations:
    included = np.zeros((1, target.rounds))
    included[0, 0] = 1.0
    return np.zeros(1), target.batch_size - included, included


def enumerable(target: NoisySums) -> bool:
    """Whether the configurations of an epoch can be listed."""
    try:
        mixture(target, present=True)
    except UnsupportedError:
        return False
    return True


def _refuse_many(count: int, target: NoisySums) -> None:
    if count > MOST_CONFIGURATIONS:
        raise UnsupportedError(
            f"The exact likelihood ratio would mix {count} configurations of the batches, more than "
            f"{MOST_CONFIGURATIONS}; use the matched filter, gradient=0, or a smaller dataset. ({target.name})"
        )


def _log_sum_exp(exponent: FloatArray) -> FloatArray:
    """log of the row sums of e^exponent; the argument is overwritten."""
    top = exponent.max(axis=1)
    exponent -= top[:, None]
    np.exp(exponent, out=exponent)
    return np.asarray(top + np.log(exponent.sum(axis=1)), dtype=np.float64)
