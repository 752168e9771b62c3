"""Pairs that other libraries have events for and DP-SGD does not need.

**Noise against an L1 norm.** A record contributes v with |v|_1 <= C, and every coordinate gets
Laplace noise of scale s. Walk from no contribution to v along the straight line, M(t) being the
output at t v. For t < t' the densities of M(t) and M(t') differ by at most e^((t' - t) C/s), so
the probability f(t) of any event under M(t) satisfies |f'| <= (C/s) min(f, 1 - f). The largest
f(1) that this allows from a given f(0) is the solution of f' = (C/s) min(f, 1 - f), and one
coordinate that moves by C attains it: P(Lap > x - t C) solves this very equation. Hence **the
one-dimensional shift by C dominates every v**, in any dimension, and likewise the shift by 2C
dominates every replacement of one record by another (|u - v|_1 <= 2C).

On the integers the walk takes unit steps, each a pair with ratio e^(+-a) at most, so that
f(t + 1) <= min(e^a f(t), 1 - e^-a (1 - f(t))). Discrete Laplace noise, P(k) proportional to
e^(-a |k|), attains it in every step with one and the same threshold test: where the walk has come to
t, the ratio of the next step is e^a above t and e^-a up to t, and a threshold test is
most powerful for such a pair wherever its threshold lies.

**Buckets.** Randomized response shows the true bucket of a record with probability 1 - p and one of
the k buckets at random otherwise. Two records differ in two buckets and agree on the others.
Against a record that is left out (its bucket drawn at random) the pair is not symmetric.

**Poisson sampling** with rate r maps L to 1 - r + r L (`PrivacyLossPmf.subsample`), for adding or removing a
record and for zeroing it out: given which other records were drawn, only this record's coin is left,
and the profile is convex in the pair.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from calipers.citations import implements
from calipers.domains import OPEN_UNIT, POSITIVE, Domain
from calipers.errors import InputError
from calipers.pld.core.pair import Pair
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

LARGEST_LOG_RATIO = 500.0
BUCKETS = Domain(2, 1_000_000, integer=True)
SENSITIVITY = Domain(1, 50_000, integer=True)
SUBSAMPLE_RATE = Domain(1e-9, 1.0)
_MOMENT_RESOLUTION = 0.02


def _log_rounding_charged(law: PrivacyLossPmf) -> PrivacyLossPmf:
    """The distribution with the rounding of its log masses charged: half a unit in the last place of x is 1.1e-16
    |x|.
    """
    deepest = float(max(-law.log_p.min(), -law.log_q.min()))
    return dataclasses.replace(law, mass_error=law.mass_error + 8e-16 * deepest)


@dataclass(frozen=True)
class AtomPair(Pair):
    """A pair of finitely many atoms whose masses, kept as logarithms, may be as small as e^-500."""

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The atoms, exact up to rounding."""
        return _log_rounding_charged(super().upper_for(resolution, log_tail, tilt))

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The atoms, exact up to rounding."""
        return _log_rounding_charged(super().lower_for(resolution, log_tail, tilt))


@implements("calipers:norm-path")
def discrete_laplace(parameter: float, sensitivity: int) -> Pair:
    """Integer noise with P(k) proportional to e^(-parameter |k|), shifted by `sensitivity`.

    The pair dominates every integer contribution of L1 norm at most `sensitivity`, and is attained.
    """
    parameter = POSITIVE.check("noise_parameter", parameter, "Without noise there is no privacy to measure.")
    shift = SENSITIVITY.check_int("sensitivity", sensitivity)
    if parameter * shift > LARGEST_LOG_RATIO:
        raise InputError(
            f"Expected noise_parameter * sensitivity in (0, {LARGEST_LOG_RATIO:g}], got {parameter * shift:g}: "
            "such a release protects nothing."
        )
    outer = -math.log1p(math.exp(-parameter))  # log P(K <= 0)
    point = math.log(math.tanh(0.5 * parameter))  # log P(K = 0)
    inner = [point - parameter * k for k in range(1, shift)]
    log_q = (outer, *inner, outer - parameter * shift)
    return AtomPair(
        f"discrete Laplace mechanism, a = {parameter:g}, sensitivity {shift}",
        atom_log_p=log_q[::-1],
        atom_log_q=log_q,
        symmetric=True,
        span=parameter if shift % 2 else 2.0 * parameter,  # every log ratio is (2k - shift) a
    )


def bucket_response(noise_parameter: float, buckets: int, adjacency: str) -> Pair:
    """Randomized response over `buckets`, for "substitute" and "zero-out": both are exact pairs.

    P is the response of the record; Q that of another record ("substitute") or a bucket drawn at
    random ("zero-out").
    """
    p = OPEN_UNIT.check("noise_parameter", noise_parameter)
    k = BUCKETS.check_int("num_buckets", buckets)
    hit, miss = math.log((1.0 - p) + p / k), math.log(p / k)
    if hit - miss > LARGEST_LOG_RATIO:
        raise InputError(
            f"Expected log(1 + (1/noise_parameter - 1) num_buckets) in (0, {LARGEST_LOG_RATIO:g}], got {hit - miss:g}; "
            "raise noise_parameter."
        )
    name = f"randomized response over {k} buckets, noise {p:g}, {adjacency}"
    if adjacency == "zero-out":
        others = (k - 1) / k
        return AtomPair(name, atom_log_p=(math.log(p * others), hit), atom_log_q=(math.log(others), -math.log(k)))
    rest = (math.log((k - 2) * (p / k)),) if k > 2 else ()
    return AtomPair(
        name,
        atom_log_p=(miss, *rest, hit),
        atom_log_q=(hit, *rest, miss),
        symmetric=True,
        span=hit - miss,
    )


@implements("zhu2022:thm11")
@dataclass(frozen=True)
class Subsampled(TwoSidedPair):
    """A pair without mass at infinity, Poisson-sampled with the given rate (add-remove, zero-out)."""

    inner: Pair
    rate: float
    symmetric: bool = False

    def __post_init__(self) -> None:
        SUBSAMPLE_RATE.check("sampling_probability", self.rate)

    @property
    def words(self) -> str:
        """The mechanism in words."""
        return f"Poisson-sampled (q = {self.rate:g}) {self.inner.words}"

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The distribution of 1 - rate + rate L from above."""
        return _log_rounding_charged(self.inner.upper(resolution, log_tail).subsample(self.rate))

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The distribution of 1 - rate + rate L from below."""
        return _log_rounding_charged(self.inner.lower(resolution, log_tail).subsample(self.rate))

    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^t] and log E_P[L^-t], the moments of both directions, for t >= 1."""
        law = self.upper(_MOMENT_RESOLUTION)
        if law.p_inf > 0 or law.q_zero > 0:
            raise InputError(f"{self.words}: mass where only one dataset can be leaves no finite moment.")
        value = max(law.cumulants(order)[0], law.reverse().cumulants(order)[0])
        return value + law.mass_error + order * law.shift_error + 1e-13 * (1.0 + abs(value))
