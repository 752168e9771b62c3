"""Guarantees for a noisy sum that is divided by a number that depends on the data (Wang et al. 2026).

D has N records and D' one more. Reveal the batch B of D and the bit that says whether the new record joined it; both
only help the adversary (Lemma 2.10). What is left depends on B through its size k ~ Bin(N, q) once the gradients are
as bad as they can be, namely all opposed to the new one:

    divided by N q ("EASGM") or floor(N q) ("FEASGM", K = floor(N q)); K = N in the first case:
        joined:      shift (K + k)/((K + 1) sigma),      not joined:  shift k/((K + 1) sigma),      scale K/(K + 1);
    divided by |B| ("ASGM"):
        joined:      shift 2k/((k + 1) sigma), scale k/(k + 1);  G_(1/sigma) at k = 0;     not joined: nothing.

Theorems 3.6, 3.7 and A.3 are the mixtures of these components. Equations (4), (7) and (16) say the same for given
gradients; here for the family in which every other gradient is `alignment` times the new one (-1 gives the theorems).

Differences from the paper, all checked numerically:

- *One order.* The paper treats (D, D'); its curve for (D', D) is the inverse function. The `fnr` functions here give
  the curve of (D, D'), the `delta` functions cover both orders.
- *Not the leakage.* Revealing the bit gives up amplification by subsampling: at N = 59,999, q = 0.005, n = 26,010,
  sigma = 10, delta = 1e-5 the theorem gives epsilon 0.171; the worst explicit datasets known leak 0.0093.
- *Floor.* floor(N q) is formed from the rounded product, as implementations do. The paper's convention for a divisor of
  0 (divide by 1) is not adopted; such a run is refused.

**From (epsilon, delta) to error rates and back** (Equations 1 to 3). (epsilon, delta)-DP in both orders means beta >=
1 - delta - e^epsilon alpha and alpha >= 1 - delta - e^epsilon beta for every test; solved for beta this is the curve
f_(epsilon, delta). An audit runs it backwards: one test whose rates are known to be at most (fpr, fnr) refutes every
(epsilon, delta) that would forbid it."""

from __future__ import annotations

import math

import numpy as np

from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window
from calipers.numerics.normal import gaussian_delta, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.theorems.division_pairs import ROUNDED, Balls, Revealed, curve_from_below, delta_from_above
from calipers.theorems.registry import theorem, unmet

_LOG_OUTSIDE = math.log(1e-18)


def _batches(dataset_size: int, sample_rate: float) -> tuple[FloatArray, FloatArray]:
    """Batch sizes k and their probabilities, rounded down; sizes left out only lower a sum of positive terms."""
    window = binomial_window(dataset_size, sample_rate, _LOG_OUTSIDE)
    return window.values, window.weights * (1.0 - BINOMIAL_RELATIVE_ERROR)


def _fixed(divisor: int, alignment: float, dimension: int, size: int, rate: float, sigma: float) -> Revealed:
    """The mixture of Equations (4) and (16): divisor K against K + 1, whatever the batch."""
    k, weights = _batches(size, rate)
    unit = (divisor + 1.0) * sigma
    idle, joined = np.abs(alignment) * k / unit, np.abs(divisor - alignment * k) / unit
    both, shifts = np.concatenate([(1.0 - rate) * weights, rate * weights]), np.concatenate([idle, joined])
    return Revealed(Balls(both, dimension, np.full(2 * k.size, float(divisor)), shifts), 0.0, 1.0, 0.0)


def _batch(alignment: float, dimension: int, size: int, rate: float, sigma: float) -> Revealed:
    """The mixture of Equation (7): divisor |B|, or |B| + 1 when the record joined."""
    k, weights = _batches(size, rate)
    empty, k, weights = float(weights[k == 0.0].sum()), k[k > 0.0], weights[k > 0.0]
    balls = Balls(rate * weights, dimension, k, np.abs(1.0 - alignment) * k / ((k + 1.0) * sigma))
    return Revealed(balls, rate * empty, 1.0 / sigma, 1.0 - rate)


def floor_divisors(dataset_size: int, sample_rate: float) -> tuple[int, int]:
    """floor(N q) and floor((N + 1) q), from the rounded products as an implementation computes them."""
    before, after = math.floor(dataset_size * sample_rate), math.floor((dataset_size + 1) * sample_rate)
    if before < 1:
        raise unmet("divisor-positive", before=before)
    return before, after


def uneven_floor(dataset_size: int, sample_rate: float) -> int:
    """K = floor(N q) if floor((N + 1) q) = K + 1, else `ConditionError`."""
    before, after = floor_divisors(dataset_size, sample_rate)
    if after == before:
        raise unmet("floor-moves", before=before)
    return before


@theorem("wang-thm-3.6")
@theorem("wang-eq-4")
def expected_pair_fnr(
    fpr: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float, alignment: float
) -> float:
    """The guarantee f of Equation (4) for aligned gradients, from below; Theorem 3.6 is alignment -1.

    Post-condition: value <= f(fpr) <= T(M(D), M(D'))(fpr), and value >= f(fpr) - 1e-9.
    """
    return curve_from_below(
        _fixed(dataset_size, alignment, dimension, dataset_size, sample_rate, noise_multiplier), fpr
    )


@theorem("wang-thm-3.6-delta")
def expected_delta(
    epsilon: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float
) -> float:
    """The profile of the guarantee of Theorem 3.6, from above, in both orders of the pair."""
    return delta_from_above(_fixed(dataset_size, -1.0, dimension, dataset_size, sample_rate, noise_multiplier), epsilon)


@theorem("wang-thm-3.7")
@theorem("wang-eq-7")
def batch_pair_fnr(
    fpr: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float, alignment: float
) -> float:
    """The guarantee f of Equation (7), Theorem 3.7 at alignment -1, from below; an empty batch is divided by 1.

    Post-condition: value <= f(fpr) <= T(M(D), M(D'))(fpr), and value >= f(fpr) - 1e-9.
    """
    return curve_from_below(_batch(alignment, dimension, dataset_size, sample_rate, noise_multiplier), fpr)


@theorem("wang-thm-3.7-delta")
def batch_delta(
    epsilon: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float
) -> float:
    """The profile of the guarantee of Theorem 3.7, from above, in both orders of the pair."""
    return delta_from_above(_batch(-1.0, dimension, dataset_size, sample_rate, noise_multiplier), epsilon)


@theorem("wang-thm-a.2")
def floor_pair_fnr(
    fpr: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float, alignment: float
) -> float:
    """The guarantee f of Equation (16) for aligned gradients, from below.

    Raises `ConditionError` unless floor((N + 1) q) = floor(N q) + 1, the case the theorem is about.
    """
    divisor = uneven_floor(dataset_size, sample_rate)
    return curve_from_below(_fixed(divisor, alignment, dimension, dataset_size, sample_rate, noise_multiplier), fpr)


@theorem("wang-thm-a.3")
def floor_fnr(fpr: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float) -> float:
    """The guarantee of Theorem A.3: that of the undivided sum where both divisors agree, else Equation (17)."""
    before, after = floor_divisors(dataset_size, sample_rate)
    if after == before:
        curve = sample_rate * float(gaussian_tradeoff(1.0 / noise_multiplier, fpr)) + (1.0 - sample_rate) * (1.0 - fpr)
        return curve * (1.0 - ROUNDED)
    return curve_from_below(_fixed(before, -1.0, dimension, dataset_size, sample_rate, noise_multiplier), fpr)


@theorem("wang-thm-a.3-delta")
def floor_delta(
    epsilon: float, dimension: int, dataset_size: int, sample_rate: float, noise_multiplier: float
) -> float:
    """The profile of the guarantee of Theorem A.3, from above, in both orders of the pair.

    Equal divisors: the curve q G_(1/sigma) + (1 - q) ID belongs to N(0, 1) against (1 - q) N(0, 1) + q N(1/sigma, 1).
    The order with the mixture first has the larger delta (Zhu et al. 2022), q delta_G(log(1 + (e^epsilon - 1)/q)).
    """
    before, after = floor_divisors(dataset_size, sample_rate)
    if after == before:
        inner = math.log1p(math.expm1(epsilon) / sample_rate)
        return min(sample_rate * float(gaussian_delta(1.0 / noise_multiplier, inner)) * (1.0 + ROUNDED), 1.0)
    return delta_from_above(_fixed(before, -1.0, dimension, dataset_size, sample_rate, noise_multiplier), epsilon)


_ROUNDOFF = 1e-15


@theorem("wang-eq-1")
def private_fnr(fpr: float, epsilon: float, delta: float) -> float:
    """max(0, 1 - delta - e^epsilon fpr, e^-epsilon (1 - delta - fpr)), rounded down."""
    room = 1.0 - delta
    cost = math.exp(min(epsilon, 700.0)) * fpr
    steep, flat = room - cost, math.exp(-epsilon) * (room - fpr)
    return max(0.0, steep - _ROUNDOFF * (1.0 + cost), flat - _ROUNDOFF)


@theorem("wang-eq-2")
def audited_epsilon(fpr: float, fnr: float, delta: float) -> float:
    """max(0, log((1 - delta - fpr)/fnr), log((1 - delta - fnr)/fpr)), rounded down."""
    room = 1.0 - delta
    best = 0.0
    for own, other in ((fpr, fnr), (fnr, fpr)):
        left = room - own - _ROUNDOFF
        if left > 0.0:
            value = math.log(left) - math.log(other)
            best = max(best, value - _ROUNDOFF * (1.0 + abs(math.log(left)) + abs(math.log(other))))
    return best


@theorem("wang-eq-3")
def audited_delta(fpr: float, fnr: float, epsilon: float) -> float:
    """max(0, 1 - fpr - e^epsilon fnr, 1 - fnr - e^epsilon fpr), rounded down."""
    odds = math.exp(min(epsilon, 700.0))
    values = (1.0 - own - odds * other - _ROUNDOFF * (1.0 + odds * other) for own, other in ((fpr, fnr), (fnr, fpr)))
    return max(0.0, *values)
