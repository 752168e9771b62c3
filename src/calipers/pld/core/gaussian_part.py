"""Mixtures of unit Gaussians as the smooth part of a pair.

Densities are taken relative to the standard normal, sum of w e^(m z - m^2/2), so that log L is a
difference of two log sums; near L = 1, where such a difference has no digits left, it is computed as
log1p of the summed differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from calipers.numerics.types import FloatArray
from calipers.pld.core.pair import Pair
from calipers.pld.core.smooth_part import Density, SmoothPart

MixtureTerms = tuple[Sequence[float], Sequence[float]]
"""Weights and means."""
_FEW = 3
"""Up to so many components are added one by one, and none of them is far from the others."""
_NEGLIGIBLE, _BLOCK = 45.0, 1024
"""Of sums of many terms: a thousand terms of e^-45 are no digit; and so many points are looked at together."""
_SMALL = 0.75
"""A larger log ratio is that of a change by a half or more."""


def gaussian_mixture_part(
    weights_p: Sequence[float], means_p: Sequence[float], weights_q: Sequence[float], means_q: Sequence[float]
) -> SmoothPart:
    """Two mixtures of unit-variance Gaussians whose likelihood ratio increases with z, as the caller guarantees.

    It does when every mean of P with another weight than under Q lies to the right of every such mean of Q.

    Args:
        weights_p: Probabilities of the components of P.
        means_p: Their means, in deviations of the noise.
        weights_q: Probabilities of the components of Q.
        means_q: Their means.

    Returns:
        Exact densities and tails, to be cut into cells by a `Pair`.
    """
    with np.errstate(divide="ignore"):  # a weight may be 0
        log_wp, log_wq = np.log(np.asarray(weights_p)), np.log(np.asarray(weights_q))
    mp, mq = np.asarray(means_p, dtype=float), np.asarray(means_q, dtype=float)
    p, q, both = (weights_p, means_p), (weights_q, means_q), ((log_wp, mp), (log_wq, mq))
    lowest, highest = (float(end(np.concatenate((mp, mq)))) for end in (np.min, np.max))

    def relative(log_w: FloatArray, means: FloatArray) -> Density:
        # log of the density relative to the standard normal: sum of w exp(m z - m^2/2).
        def log_sum(z: FloatArray) -> FloatArray:
            if len(means) > _FEW:
                return log_sum_exp(log_w, means, z)
            total = log_w[0] + means[0] * (z - 0.5 * means[0])
            for log_weight, mean in zip(log_w[1:], means[1:], strict=True):
                total = np.logaddexp(total, log_weight + mean * (z - 0.5 * mean))
            return np.asarray(total)

        return log_sum

    rel_p, rel_q = relative(log_wp, mp), relative(log_wq, mq)
    log_norm = -0.5 * math.log(2 * math.pi)

    def tails(z: float, sign: float) -> FloatArray:
        return np.array([np.logaddexp.reduce(log_w + log_ndtr(sign * (means - z))) for log_w, means in both])

    def range_for(log_tail: float) -> tuple[float, float]:
        if max(len(mp), len(mq)) <= _FEW:
            radius = math.sqrt(-2.0 * log_tail)  # Phi(-r) <= exp(-r^2/2)
            return lowest - radius, highest + radius
        return -_end(log_wq, -mq, log_tail), _end(log_wp, mp, log_tail)

    def growth(low: float, high: float, reach: FloatArray) -> FloatArray:
        return max(abs(high - lowest), abs(low - highest)) * reach + reach * reach

    def grown(log_w: FloatArray, ahead: FloatArray, rate: float) -> float:
        # E[e^(r X); X > 0] for X ~ N(a, 1) is e^(r a + r^2/2) Phi(a + r).
        return float(np.logaddexp.reduce(log_w + rate * ahead + 0.5 * rate * rate + log_ndtr(ahead + rate)))

    return SmoothPart(
        log_p=lambda z: rel_p(z) - 0.5 * z * z + log_norm,
        log_q=lambda z: rel_q(z) - 0.5 * z * z + log_norm,
        log_ratio=_accurate_log_ratio(p, q, rel_p, rel_q),
        range_for=range_for,
        log_above=lambda z: tails(z, 1.0),
        log_below=lambda z: tails(z, -1.0),
        growth=growth,
        # d log p / dz + z is a mean of the means of P, so d log L / dz is a difference of two such means.
        slope=float(mp.max() - mq.min()),
        log_growth_above=lambda rate, z: grown(log_wq, mq - z, rate),
        log_growth_below=lambda rate, z: grown(log_wp, z - mp, rate),
        ratio_error=_high_noise_ratio_error(p, q),
    )


def _end(log_w: FloatArray, means: FloatArray, log_tail: float) -> float:
    """A place beyond which a mixture has at most e^log_tail mass, an equal share of it for every component.

    Of a component with less weight than its share no more than that lies anywhere.
    """
    spare = log_w + math.log(len(log_w)) - log_tail
    some = spare > 0.0
    return float(np.max(means[some] + np.sqrt(2.0 * spare[some])))


def _accurate_log_ratio(p: MixtureTerms, q: MixtureTerms, rel_p: Density, rel_q: Density) -> Density:
    """log p/q without cancellation: for small differences log1p((p - q)/q), with p - q summed exactly.

    Components shared by P and Q (same mean) contribute their weight difference only; the ratio
    (p - q)/q is then a sum of few terms of known sign structure.
    """
    standard = list(q[1]) == [0.0]  # then q is the reference density itself

    weights: dict[float, float] = {}
    for sign, mixture in ((1.0, p), (-1.0, q)):
        for w, m in zip(*mixture, strict=True):
            weights[m] = weights.get(m, 0.0) + sign * w
    shifted = [(w, m) for m, w in weights.items() if w != 0.0 and m != 0.0]
    if standard:
        log_w, means = np.log([w for w, _ in shifted]), np.array([m for _, m in shifted])

    def change_of(flat: FloatArray) -> FloatArray:
        """(p - q)/q: sum w e^(m z - m^2/2) = sum over shifted of w (e^(...) - 1) because all weights sum to zero."""
        if standard and len(shifted) > _FEW:
            return np.asarray(np.exp(log_sum_exp(log_w, means, flat)) - math.fsum(w for w, _ in shifted))
        change = np.zeros_like(flat)
        for w, m in shifted:
            change += w * np.expm1(m * (flat - 0.5 * m))
        return np.asarray(change if standard else change * np.exp(-rel_q(flat)))

    def log_ratio(z: FloatArray) -> FloatArray:
        flat = z.ravel()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if standard:
                change = change_of(flat)
                ratio = np.log1p(change)
                far = np.flatnonzero(~((change > -0.5) & (change < 1e300)))
                ratio[far] = rel_p(flat[far]) - rel_q(flat[far])
            else:
                # The difference of two logs is as good, and quick, but where it is small.
                ratio = rel_p(flat) - rel_q(flat)
                near = np.flatnonzero(np.abs(ratio) < _SMALL)
                change = change_of(flat[near])
                small = np.abs(change) < 0.5
                ratio[near[small]] = np.log1p(change[small])
        return np.asarray(ratio.reshape(z.shape))

    return log_ratio


def _high_noise_ratio_error(p: MixtureTerms, q: MixtureTerms) -> Callable[[float, float], float]:
    """At least the error of `_accurate_log_ratio` between low and high: next to nothing for a small rate.

    Against the standard normal alone log L = log1p(change), change = sum of w (e^a - 1) with a = m (z - m/2). Two
    roundings of a move e^a - 1 by at most 2 u |a| e^a, and the rest is a few roundings of the change. Where |change| is
    at most 1/2, log1p doubles that at most. Of many terms the sum is the exponential of a log: exponents are rounded
    with the logs of the weights, and s u |log s| is largest where the sum s is.
    """
    shifted = [(w, m) for w, m in zip(*p, strict=True) if m != 0.0]
    standard = [list(part) for part in q] == [[1.0], [0.0]]

    def error(low: float, high: float) -> float:
        if not standard:
            return math.inf
        farthest = [(w, max(m * (low - 0.5 * m), m * (high - 0.5 * m), 0.0)) for w, m in shifted]
        change = math.fsum(w * math.exp(min(a, 600.0)) for w, a in farthest)
        # |a| e^a is at most 1 for a < 0.
        if change > 0.5:
            return math.inf
        logs = [abs(math.log(w)) for w, _ in shifted] if len(shifted) > _FEW else [0.0]
        summed = abs(math.log(change)) if len(shifted) > _FEW else 0.0
        return 1e-15 * (4.0 + max(a for _, a in farthest) + max(logs) + summed) * change

    return error


def log_sum_exp(log_w: FloatArray, means: FloatArray, z: FloatArray) -> FloatArray:
    """log of the sum of w e^(m z - m^2/2), many terms at once, at blocks of points.

    A term that is less than e^-45 of another one everywhere in a block is left out: it changes no digit.
    """
    flat = z.ravel()
    found = np.empty_like(flat)
    for some in (slice(i, i + _BLOCK) for i in range(0, len(flat), _BLOCK)):
        low, high = float(np.min(flat[some])), float(np.max(flat[some]))
        logs = log_w + means * (0.5 * (low + high) - 0.5 * means)
        largest = int(np.argmax(logs))
        # From the middle to an end no term grows by more than this against the one that was largest there.
        grown = logs - logs[largest] + np.abs(means - means[largest]) * 0.5 * (high - low)
        kept = grown > -_NEGLIGIBLE
        terms = log_w[kept, None] + means[kept, None] * (flat[some] - 0.5 * means[kept, None])
        peak = terms.max(axis=0)
        terms -= peak
        found[some] = peak + np.log(np.exp(terms, out=terms).sum(axis=0))
    return found.reshape(z.shape)


@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(mu, 1) against N(0, 1), which remembers mu: compositions of such are one Gaussian."""

    mu: float = 0.0


def gaussian_pair(mu: float) -> GaussianPair:
    """The Gaussian mechanism.

    Args:
        mu: Sensitivity over the deviation of the noise, above 0.

    Returns:
        N(mu, 1) against N(0, 1), exact on both sides.
    """
    part = gaussian_mixture_part((1.0,), (mu,), (1.0,), (0.0,))
    return GaussianPair(f"Gaussian mechanism, mu = {mu:g}", smooth=(part,), symmetric=True, mu=mu)
