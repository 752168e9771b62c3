"""What a chain over the records of a unit cannot get below, without the chain.

Group privacy composes the proof of one record with itself (`calipers.measure.grouped`): 1 - f = H becomes H o ... o H.
H is increasing, and every proof lies above every attack on the same record. So whatever has at most the power of H,
composed as often, has at most that of the chain; and where that is already more than another proof allows, the chain
says nothing new and need not be computed. Leaving a proof out is always true, so what is estimated here to a few digits
(interpolation between points) may cost width, never truth.

Two attacks on one record are in closed form. Look at k of the epochs, and for one batch of each at the normalized sum
of what they show: some choice of M^k batches passes c with probability at most M^k Q(c) (Q: the normal tail) where the
record shows nothing, at least Q(c - sqrt(k) b) where its own batches are moved by b. Where all other gradients oppose a
record that is zeroed out, its own batch is moved on both datasets, by a and by b = 2a; then

    alpha = sum over j of binomial(k, j) (M - 1)^(k - j) Q(c - j a / sqrt(k)),      power = r^k Q(c - sqrt(k) b),

r the chance that an epoch keeps the record. Far out that is all that one record can show; nearer, an attack that has
been computed says more. And the curve of a proof ends somewhere: with Gaussian noise some power is charged there that
is left at every rate, which a chain multiplies like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr

from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.numerics.normal import log_normal_tail_quantile
from calipers.numerics.types import FloatArray

_NODES, _TESTS, _MOST_EPOCHS = 3000, 500, 128
DEEPEST = 1e12
"""-log of the least rate that is followed."""
_FEW = 10.0
_CURVE = 60.0
"""-log of the least rate at which the tests of a curve are looked at."""
_BEYOND, _DEVIATIONS = 20.0, 8.0
"""How much farther rates are followed than what is asked about: in logs, and in deviations of a normal."""


class Powers(NamedTuple):
    """Logs of false positive rates, increasing, and of true positive rates that a test attains there."""

    log_alpha: FloatArray
    log_power: FloatArray


def crossing_tests(unit: DealtUnit, epochs: int, first: float, second: float, deepest: float) -> list[Powers]:
    """The tests above for k = 1, 2, 4, ... epochs: own batches move by `first` and `second`, down to e^-deepest."""
    batches = unit.places if unit.batch_size is None else unit.places // unit.batch_size
    share = 1.0 if unit.batch_size is None else batches * unit.batch_size / unit.places
    found = []
    for k in (2**i for i in range(min(epochs, _MOST_EPOCHS).bit_length())):
        far = math.sqrt(2.0 * (deepest + k * math.log(batches) + 1.0)) + math.sqrt(k) * first
        c = _deviations(far, _TESTS)
        own = np.arange(k + 1.0 if first > 0.0 else 1.0)
        ways = gammaln(k + 1.0) - gammaln(own + 1.0) - gammaln(k - own + 1.0)
        ways += (k - own) * math.log(max(batches - (first > 0.0), 1))
        log_alpha = np.logaddexp.reduce(ways[:, None] + log_ndtr(np.outer(own, first / math.sqrt(k)) - c), axis=0)
        log_power = k * math.log(share) + log_ndtr(math.sqrt(k) * second - c)
        found.append(Powers(np.minimum(log_alpha, 0.0), log_power))
    return found


def of_value(epsilon: float, delta: float) -> Powers:
    """delta is shown at epsilon, hence at all that are smaller: alpha + (1 - alpha) delta, or e^epsilon alpha."""
    crossing = math.log(delta) - math.log(math.expm1(min(max(epsilon, 1e-300), 700.0)))
    log_alpha = np.concatenate(([-DEEPEST], np.linspace(min(crossing, 0.0), 0.0, _TESTS)))
    mixed = np.logaddexp(log_alpha + math.log1p(-delta), math.log(delta))
    return Powers(log_alpha, np.minimum(mixed, epsilon + log_alpha))


def of_curve(curve: TradeoffCurve) -> Powers:
    """The tests of a curve, and those between two of them."""
    log_alpha = rates(_CURVE)
    return Powers(log_alpha, np.log(np.maximum(curve.rates(np.exp(log_alpha))[1], 1e-300)))


def rates(deepest: float) -> FloatArray:
    """Logs of rates from e^-deepest to 1."""
    return np.asarray(-0.5 * np.square(_deviations(math.sqrt(2.0 * deepest), _NODES)))


def _deviations(largest: float, count: int) -> FloatArray:
    """From the largest down to 0: equally far apart as long as they are few, in logs beyond."""
    return np.asarray(_FEW * np.sinh(np.linspace(math.asinh(largest / _FEW), 0.0, count)))


def chained(known: Sequence[Powers], records: int, deepest: float, log_least: float) -> Powers:
    """The most that is known of one record, and e^log_least at every rate, composed so many times."""
    log_alpha = rates(deepest)
    single = np.maximum(log_alpha, log_least)
    for part in known:
        single = np.maximum(single, np.interp(log_alpha, *part, left=-np.inf))
    whole = single = np.maximum.accumulate(np.minimum(single, 0.0))
    for digit in f"{records:b}"[1:]:
        whole = np.interp(whole, log_alpha, whole)
        whole = np.interp(whole, log_alpha, single) if digit == "1" else whole
    return Powers(log_alpha, whole)


def covers(powers: Powers, other: Envelope, slack: float) -> bool:
    """Whether no rate is more than `slack` below what the other allows."""
    allowed = other.rates(np.exp(powers.log_alpha))[1]
    return bool(np.all(np.exp(powers.log_power) >= allowed - slack))


def deep_for_epsilon(epsilon: float, delta: float) -> float:
    """How deep rates have to go that show more than epsilon at delta, or than delta at epsilon."""
    return epsilon - math.log(max(delta, 1e-300)) + _BEYOND


def deep_for_mu(mu: float) -> float:
    """How deep rates have to go that show more than mu."""
    return 0.5 * (mu + _DEVIATIONS) ** 2


def epsilon_shown(powers: Powers, delta: float) -> float:
    """The largest log((power - delta) / alpha)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = powers.log_power + np.log1p(-np.exp(math.log(delta) - powers.log_power)) - powers.log_alpha
    return float(np.nanmax(found, initial=0.0))


def delta_shown(powers: Powers, epsilon: float) -> float:
    """The largest power - e^epsilon alpha."""
    return float(np.max(np.exp(powers.log_power) - np.exp(np.minimum(epsilon + powers.log_alpha, 1.0)), initial=0.0))


def mu_shown(powers: Powers, delta0: float) -> float:
    """The largest mu that some rates need: alpha and power - delta0 are those of N(0, 1) and N(mu, 1)."""
    # The curve is symmetric: what rates above 1/2 need, smaller ones need too.
    some = (powers.log_power > math.log(2.0 * delta0)) & (powers.log_alpha < math.log(0.5))
    log_alpha, log_power = powers.log_alpha[some], np.minimum(powers.log_power[some], -1e-9)
    log_power = log_power + np.log1p(-delta0 * np.exp(-log_power)) - math.log1p(-delta0)
    log_alpha = log_alpha - math.log1p(-delta0)
    shown = log_normal_tail_quantile(log_alpha) - log_normal_tail_quantile(log_power)
    return float(np.max(shown, initial=0.0))
