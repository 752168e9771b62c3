"""Renyi divergences of products, from both sides, without any convolution.

E_Q[L^t] multiplies under composition, so D_t(P||Q) = log E_Q[L^t] / (t - 1) adds. For t > 1 the
function L^t is convex: a pessimistic PLD gives at least the truth and an optimistic PLD at most. What lies
beyond the last atom of a pessimistic PLD is not infinite here:

- **Pairs.** With `slope` a bound on d log L / dz, L(z)^t <= L(end)^t e^(t slope (z - end)), whose expectation is
  known in closed form.
- **PLDs with a known release.** Where the PLD hides when, or whether, the record shows, telling it gives moments in
  closed form that are far too large but finite (`known_moment`). Cut L^t at some K: up to K as it is and beyond on its
  tangent, a convex function of slope t K^(t-1), for which the PLD is a bound, its mass at infinity included; what the
  tangent misses is at most E[L^t; L > K] <= K^(t-s) E[L^s] for every s > t. The best K and s of some are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from calipers.domains import Domain
from calipers.errors import UnsupportedError
from calipers.numerics.elementary import row_logsumexp
from calipers.numerics.fourier import UNIT_ROUNDOFF
from calipers.numerics.types import BoolArray, FloatArray, IntArray
from calipers.pld.composition.direction import BoundsWithTest, counted
from calipers.pld.composition.product import Product
from calipers.pld.composition.tails import LowerTail
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AnyPair, AttainedPair, DominatingPair

ORDER = Domain(1.0, 1000.0, low_open=True)
"""Renyi orders."""
_RESOLUTION, _FINEST, _CELL = 0.02, 5e-4, 0.04
"""Cells: the usual width, the least, and what order times slope times width may be: a share of its square is lost."""
_CUTS, _FARTHEST, _PIECE = 64, 300.0, 128
"""Thresholds at which the tail beyond a PLD is cut, how far they reach, and atoms that are added up together."""
_FAR, _STEEP = 20.0, 20.0
"""Logs beyond which phi is L^t in every digit, and slopes from which on cells are placed where L^t Q is."""
_NOTHING = -1e30
"""The log of a sum over nothing."""
_BEYOND = np.geomspace(0.02, 50.0, 40)
"""How much larger s is than t, in units of t - 1 and of 1."""


def _log_sum(values: FloatArray) -> float:
    return float(np.logaddexp.reduce(np.sort(values)))


def _excess(x: FloatArray, order: float) -> tuple[FloatArray, FloatArray]:
    """phi(e^x) = e^(t x) - 1 - t (e^x - 1), and a bound of its rounding error. It is convex and not negative.

    Near x = 0 it is t (t - 1) x^2 / 2 and a small part of its terms, so there its series is summed: the coefficients
    t^n - t = t expm1((n - 1) log t) have all their digits.
    """
    tilted, plain = np.expm1(order * x), order * np.expm1(x)
    value, rounding = tilted - plain, 4.0 * UNIT_ROUNDOFF * (np.abs(tilted) + np.abs(plain))
    near = np.abs(order * x) < 0.1
    series = np.zeros(int(near.sum()))
    for n in range(14, 1, -1):
        series += order * math.expm1((n - 1) * math.log(order)) * x[near] ** n / math.factorial(n)
    value[near], rounding[near] = series, 64.0 * UNIT_ROUNDOFF * np.abs(series)
    return np.maximum(value, 0.0), rounding


def _log_one_plus(pmf: PrivacyLossPmf, order: float, error: float, up: float) -> float | None:
    """log(1 + E_Q[phi(L)]) over the atoms, log ratios being known to within `error`; None where it overflows.

    E_Q[1 + t (L - 1)] is 1 for every pair, so nothing but phi is summed: high-noise steps keep their digits.
    """
    x = pmf.log_ratio if up > 0.0 else pmf.log_p - pmf.log_q
    high = pmf.log_q + order * x  # log of q L^t
    if float(np.max(high)) > 600.0:
        return None
    far = order * x > _FAR
    near = np.where(far, 0.0, x)
    value, rounding = _excess(near, order)
    moved = order * np.abs(np.exp(order * near) - np.exp(near)) + 0.5 * error * order**2 * np.exp(
        np.maximum(order * near, near)
    )
    with_error = value * (1.0 + up * (pmf.rounding + 1e-13)) + up * (rounding + 1.01 * error * moved)
    terms = np.where(far, 0.0, np.exp(pmf.log_q) * np.maximum(with_error, 0.0))
    # Far out nothing cancels: phi is L^t but for a share of e^-x t e^-(t-1)x and less.
    share = 1.0 if up > 0.0 else 1.0 - (1.0 + order) * np.exp(-(order - 1.0) * x[far])
    spread = math.exp(up * (pmf.rounding + 1.01 * error * order + 1e-13 + 4e-16 * float(np.max(np.abs(high)))))
    terms[far] = np.maximum(np.exp(high[far]) * spread * share, 0.0)
    return math.log1p(float(np.sum(terms)) * (1.0 + up * 1e-13))


def _lower(pmf: PrivacyLossPmf, order: float) -> float:
    """At most log E_Q[L^t] of the truth, by data processing."""
    exact = _log_one_plus(pmf, order, 2.0 * pmf.rounding + 1e-15, -1.0)
    if exact is not None:
        # What only one of the two can show is left out: P-mass at infinity would add, Q-mass at 0 adds t - 1 of it.
        return exact
    value = _log_sum(order * pmf.log_p + (1.0 - order) * pmf.log_q)
    return value - (2.0 * order * pmf.mass_error + 1e-13 * (1.0 + abs(value)))


def _upper(source: DominatingPair, order: float, reverse: bool, pmfs: dict[int, PrivacyLossPmf]) -> float:
    """At least log E_Q[L^t] of the truth; `pmfs` are those of this order, which serve both directions."""
    bound = source.log_moment_bound(order, reverse)
    if bound is not None:
        return float(bound) * (1.0 + 1e-14)
    log_tail = _log_tail(source, order)
    known, beyond = source.known_moment(order, reverse), source.log_beyond(order, log_tail, reverse)
    if known is None and beyond is None:
        raise UnsupportedError(
            "No finite Renyi divergence is proven for this factor; ask for epsilon at delta instead."
        )
    if order * source.cell_slope > _STEEP:  # then most of the range is empty: cells are placed where L^t Q is
        pmf = source.upper_for(_resolution(source, order), log_tail, 1.0 - order if reverse else order)
    else:
        if id(source) not in pmfs:
            pmfs[id(source)] = source.upper(_resolution(source, order), log_tail)
        pmf = pmfs[id(source)]
    pmf = pmf.reverse() if reverse else pmf
    with_error = pmf.mass_error + order * pmf.shift_error
    if beyond is None:
        assert known is not None
        return min(known, _cut(pmf, order, lambda s: source.known_moment(s, reverse)) + with_error)
    whole = _log_sum(np.array([_log_sum(pmf.log_q + order * pmf.log_ratio), *beyond]))
    whole += with_error + 1e-13 * (1.0 + abs(whole))
    high_noise = _log_one_plus(pmf, order, pmf.shift_error, 1.0)
    if high_noise is None:
        return whole
    # Beyond the ends phi is at most L^t above 1 and t - 1 below.
    rest = math.fsum(math.exp(value) for value in beyond) + (order - 1.0) * pmf.q_zero
    return min(whole, math.log1p(math.expm1(high_noise) + rest * (1.0 + 1e-12)) * (1.0 + 1e-14))


def _cut(pmf: PrivacyLossPmf, order: float, revealed: Callable[[float], float | None]) -> float:
    """The least over some K of the moment up to K, of its tangent beyond, and of what the tangent misses.

    K^t + t K^(t-1) (e^x - K) = K^(t-1) (t e^x - (t - 1) K), so the sums of q e^(t x), q e^x and q between neighboring
    cuts are enough for all of them. Beyond K the difference of t P and (t - 1) K Q is at least P, so its relative error
    is at most 2 t times that of the sums.
    """
    x, log_q = pmf.log_ratio, pmf.log_q
    larger = np.unique(np.concatenate((order + _BEYOND, order + (order - 1.0) * _BEYOND)))
    moments = np.array([revealed(float(s)) for s in larger], dtype=np.float64)
    # Beyond the last atom only the mass at infinity grows with K.
    rest = -math.log(pmf.p_inf) / (order - 1.0) if pmf.p_inf > 0.0 else _FARTHEST
    cuts = np.linspace(0.0, max(float(x[-1]), 1e-3) + min(rest, _FARTHEST), _CUTS)[1:]
    bins = np.searchsorted(cuts, x)
    # Pieces of at most so many atoms between the same cuts.
    starts = np.flatnonzero((np.diff(bins, prepend=-1) > 0) | (np.arange(len(x)) % _PIECE == 0))
    until = bins[starts] <= np.arange(len(cuts))[:, None]
    below = _log_sums(log_q + order * x, starts, until)
    log_p, log_rest = (_log_sums(logs, starts, ~until) for logs in (log_q + x, log_q))
    some = log_p > 0.5 * _NOTHING
    steep = np.log(order - (order - 1.0) * np.exp(np.minimum(cuts[some] + log_rest[some] - log_p[some], 0.0)))
    tangent = np.full(len(cuts), _NOTHING)
    tangent[some] = (order - 1.0) * cuts[some] + log_p[some] + steep
    # Atoms of a piece and pieces are added up one after the other, and terms and logs are rounded a few times.
    lost = UNIT_ROUNDOFF * (_PIECE + len(starts) + 64.0 + 8.0 * float(np.max(np.abs(log_q) + order * np.abs(x))))
    missed = np.min(moments[:, None] + np.outer(order - larger, cuts), axis=0)
    pieces = [below + lost, tangent + 2.0 * order * lost, missed]
    if pmf.p_inf > 0.0:
        pieces.append(math.log(order) + (order - 1.0) * cuts + math.log(pmf.p_inf))
    best = float(np.min(np.logaddexp.reduce(pieces)))
    return best + 1e-13 * (1.0 + abs(best))


def _log_sums(logs: FloatArray, starts: IntArray, wanted: BoolArray) -> FloatArray:
    """Logs of the sums of e^logs over the pieces that every row wants."""
    peaks = np.maximum.reduceat(logs, starts)
    shares = np.exp(logs - np.repeat(peaks, np.diff(starts, append=len(logs))))
    return row_logsumexp(np.where(wanted, peaks + np.log(np.add.reduceat(shares, starts)), _NOTHING))


def _resolution(source: AnyPair, order: float) -> float:
    """Cells of width w in an observation with d log L / dz = a add a share of (t a w)^2 / 6 to what is summed."""
    return min(_RESOLUTION, max(_FINEST, _CELL / (order * max(source.cell_slope, 1e-9))))


def _log_tail(source: AnyPair, order: float) -> float:
    """The PLD tilted by t sits up to t slopes to the side; cover it and ten deviations more.

    PLDs that hide something cost more than their moments: neighboring orders share one, of the next of a few depths.
    """
    needed = max(-0.5 * (order * source.slope + 10.0) ** 2, source.moment_depth)
    if not isinstance(source, DominatingPair) or source.known_moment(order, False) is None:
        return needed
    return math.ldexp(source.moment_depth, math.ceil(math.log2(needed / source.moment_depth)))


def renyi_below(
    factors: Sequence[tuple[AttainedPair, int]], order: float, orientations: Sequence[bool] | None = None
) -> float:
    """At most D_t of the truth, t = order > 1, the larger over both directions (or these): what the optimistic PLDs
    show.
    """
    order = ORDER.check("order", order)
    pmfs = [(source.lower(_resolution(source, order), _log_tail(source, order)), count) for source, count in factors]
    totals = [
        math.fsum(count * _lower(pmf.reverse() if reverse else pmf, order) for pmf, count in pmfs)
        for reverse in orientations or counted(factors)[1]
    ]
    return max(0.0, max(totals) / (order - 1.0))


def renyi_of_tests(tests: Sequence[LowerTail], order: float) -> float:
    """At most D_t of the truth, t = order > 1: what any single test of a sum shows, by data processing.

    With false positive rate a and power b > a it is log(b^t a^(1-t) + (1 - b)^t (1 - a)^(1-t)) / (t - 1), which grows
    with b and falls with a, so rates that are bounded on the unfavorable side serve.
    """
    order = ORDER.check("order", order)
    best = 0.0
    for tail in tests:
        a, b = tail.log_alpha, np.minimum(tail.log_power, -1e-15)
        useful = (a < b) & (a < -1e-9)
        a, b = a[useful], b[useful]
        rest_a, rest_b = np.log(-np.expm1(a)), np.log(-np.expm1(b))
        found = np.logaddexp(order * b + (1.0 - order) * a, order * rest_b + (1.0 - order) * rest_a)
        slack = 1e-13 + 1e-15 * order * (1.0 + np.abs(a) + np.abs(rest_b))
        best = max(best, float(np.max(found - slack, initial=0.0)))
    return best / (order - 1.0)


def renyi_above(
    factors: Sequence[tuple[DominatingPair, int]], order: float, orientations: Sequence[bool] | None = None
) -> float:
    """At least D_t of the truth, t = order > 1, in both directions (or these)."""
    order = ORDER.check("order", order)
    pmfs: dict[int, PrivacyLossPmf] = {}
    totals = [
        math.fsum(count * _upper(source, order, orientation, pmfs) for source, count in factors)
        for orientation in orientations or counted(factors)[1]
    ]
    return max(totals) * (1.0 + 1e-14) / (order - 1.0)


def renyi(product: Product, order: float) -> BoundsWithTest:
    """Bounds of max(D_t(P||Q), D_t(Q||P)) at t = order > 1."""
    return BoundsWithTest(renyi_below(product.factors, order), renyi_above(product.factors, order))
