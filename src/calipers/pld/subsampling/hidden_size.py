"""Truncated batches, one record: a proof that does not reveal whether a batch is two records short.

As in `calipers.pld.subsampling.truncated`, m of the others join and of more than B that have joined B are kept. Let
the others stand in a random order, which is revealed: those that join are the first m, those that are kept the first B
of them, and S_i is the sum of the first i gradients, in units of the noise. With w_m the probability of m, w_full that
of m >= B, x the gradient of the record, q the rate and s the mean of B/(m+1) where m >= B, a record added or removed is

    Q = sum over m < B of w_m N(S_m) + w_full N(S_B),
    P = (1 - q) sum over m < B of w_m N(S_m) + (1 - q s) w_full N(S_B)
        + q sum over m < B of w_m N(S_m + x) + q s w_full N(S_(B-1) + x).

For k >= 1 split P - k Q into the terms with N(S_(B-1) + x) and those with other m: for every share lambda in [0, 1]

    D_k(P||Q) <= D(A N(S_(B-1) + x) || b_1 N(S_(B-1)) + b_2 N(S_(B-2)) + b_0 N(S_B))
                 + D(q w_(B-2) N(x) || (1 - lambda) (k - 1 + q) w_(B-2) N(0))
                 + sum over m < B - 2 of w_m D(q N(x) || (k - 1 + q) N(0)),

D(P||Q) the integral of (P - Q)+, A = q (w_(B-1) + s w_full), b_1 = (k - 1 + q) w_(B-1), b_2 = lambda (k - 1 + q)
w_(B-2), b_0 = (k - 1 + q s) w_full.

**Worst gradients.** Relative to N(S_(B-1) + x) the three others have densities e^(G - Var G/2), G = <a, z>, with a =
-x, -(g + x) and h - x, g and h the gradients of the (B-1)-th and the B-th other. With r = 1/sigma and c = <g, x>/r^2,
c' = <h, x>/r^2 their lengths are at most r, r sqrt(2 + 2c) and r sqrt(2 - 2c'), and by Kahane's inequality the first
divergence is largest where they all point the same way: f(c, c'), a divergence of Gaussians on one line, which grows
with c and falls with c'. An h opposite to x is far from it, but a g opposite to x takes it back to where a batch that
is two records short is. And g and h change places in half of all orders: so the mean over orders is at most

    the largest (f(c, c') + f(c', c))/2 over -1 <= c, c' <= 1.

Cells of angles cover that square; each counts with its largest c in the one place and its least in the other.

**Zeroed out or replaced.** The other dataset has N(S_m + x') in place of N(S_m + x), x' = 0 or any other gradient. So P
- k Q has k A N(S_(B-1) + x') to subtract next to A N(S_(B-1) + x), with every m < B - 1 the same, and the batches that
the record did not join count (k - 1)(1 - q) or, full ones, (k - 1)(1 - q s). The vector x' - x is another one on the
line, of length r (zeroed out, where it is that of N(S_(B-1))) or 2r. Replaced, both orders are the same.

The other direction, and what is smaller there, is that of `calipers.pld.subsampling.truncated`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from calipers.citations import implements
from calipers.numerics.binomial import binomial_window
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.profile_pmf import pmf_of_profile
from calipers.pld.core.source import DominatingPair
from calipers.pld.subsampling.truncated import hidden_place_proof
from calipers.pld.subsampling.truncation import DEEPEST, Truncation

_CELLS, _STEP, _FAR, _WIDE, _MOST = 48, 0.1, 8.0, 0.3, 400
"""Of angles, and the distance of nodes in log ratios of a step that the record joins: up to some ratio, and beyond,
where there are so many at most."""
_SHARES = np.array([0.0, 0.3, 0.5, 0.7, 0.85, 0.95])
"""Values of lambda that are tried."""
_ROUNDS, _SETTLED, _ROOT = 12, 1e-7, 1e-9
"""Of Newton's method, what was left before its last round, and what it may leave of the equation, which is charged."""
_BACK, _DEPTH, _LAST = 60, 40.0, 690.0
"""Nodes of the other direction, log tails that are told apart, and the largest log ratio: a number as a ratio too."""


class _Weights(NamedTuple):
    """A, and what is taken away from it, in a column for each k: `near` at S_(B-1), `shorter` at S_(B-2) before it is
    shared, `full` and `replaced`; `each`: (k - 1 + q) or, where the record is replaced, (k - 1)(1 - q)."""

    above: float
    near: FloatArray
    shorter: FloatArray
    full: FloatArray
    replaced: FloatArray
    each: FloatArray


@implements("calipers:truncated", "kahane1985:convexity")
@dataclass(frozen=True)
class HiddenSize(DominatingPair):
    """What dominates one step for one record; UPPER only. `truncation`: of batches of two at least; `shift`:
    1/sigma."""

    truncation: Truncation
    shift: float
    adjacency: str = "add-remove"

    @property
    def symmetric(self) -> bool:
        """Replacing is the same in both orders."""
        return self.adjacency == "substitute"

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.UPPER; there is one fineness, and a few depths."""
        return _pmf(self, _DEPTH * math.floor(log_tail / _DEPTH))

    def forward(self, epsilon: FloatArray) -> FloatArray:
        """At least D of the step with the record against that without it, at every epsilon >= 0."""
        cut, r, odds = self.truncation, self.shift, np.expm1(epsilon)[:, None]
        window = binomial_window(cut.others, cut.rate, DEEPEST)
        one, two = (float(np.sum(window.weights[window.values == cut.largest - short])) for short in (1, 2))
        rest = float(np.sum(window.weights[window.values < cut.largest - 2])) + window.outside
        at = self._weights(odds, one, two)
        ghost = (1.0 + odds) * cut.rate * (self.adjacency == "substitute")
        own = self._among(cut.rate * two, (at.shorter * (1.0 - _SHARES), r), (ghost * two, 2.0 * r))
        own += self._among(cut.rate * rest, (at.each * rest, r), (ghost * rest, 2.0 * r))
        # The share is chosen where all others are at one angle; then all cells are looked at.
        ends = np.linspace(0.0, math.pi, _CELLS + 1)
        farther, opposite = 2.0 * r * np.cos(0.5 * ends[:-1]), 2.0 * r * np.sin(0.5 * ends[1:])
        at = _Weights(at.above, *(each[:, None] for each in at[1:]))
        alike = self._record(at, at.shorter * _SHARES[:, None], farther, opposite)
        best = np.argmin(np.max(alike, axis=2) + own, axis=1)
        cells = self._record(at, at.shorter * _SHARES[best][:, None, None], farther[:, None], opposite)
        both = 0.5 * np.max(cells + np.swapaxes(cells, 1, 2), axis=(1, 2))
        return np.asarray(both + own[np.arange(len(best)), best])

    def _weights(self, odds: FloatArray, one: float, two: float) -> _Weights:
        """Of P - k Q, k = 1 + odds."""
        cut, kept = self.truncation, self.truncation.kept
        above, each, none = cut.rate * one + kept * cut.truncated, odds + cut.rate, np.zeros_like(odds)
        if self.adjacency == "add-remove":
            return _Weights(above, each * one, each * two, (odds + kept) * cut.truncated, none, each)
        full = odds * (1.0 - kept) * cut.truncated
        if self.adjacency == "zero-out":
            return _Weights(above, odds * (1.0 - cut.rate) * one + (1.0 + odds) * above, each * two, full, none, each)
        each = odds * (1.0 - cut.rate)
        return _Weights(above, each * one, each * two, full, (1.0 + odds) * above, each)

    def _record(self, at: _Weights, shorter: FloatArray, farther: FloatArray, opposite: FloatArray) -> FloatArray:
        """f: the divergence of the term with N(S_(B-1) + x), the other vectors on one line."""
        r = self.shift
        return self._among(at.above, (at.near, r), (shorter, farther), (at.full, opposite), (at.replaced, 2.0 * r))

    def _among(self, above: float, *parts: tuple[FloatArray, FloatArray | float]) -> FloatArray:
        """At least D(above N(0) || sum of weight N(-distance)) over the parts."""
        some = [(weight, np.asarray(d)) for weight, d in parts if np.any(weight)]
        if above == 0.0 or not some:
            return np.full(np.broadcast_shapes(*(weight.shape for weight, _ in parts)), above)
        with np.errstate(divide="ignore"):
            terms = [(np.log(weight) - math.log(above), d) for weight, d in some]
        # The log of their ratio is convex and falls: from the left, Newton's method does not pass its root.
        z = np.max(np.stack(np.broadcast_arrays(*((log - 0.5 * d * d) / d for log, d in terms))), axis=0)
        for _ in range(_ROUNDS):
            each = [np.exp(log - d * (z + 0.5 * d)) for log, d in terms]
            total = np.asarray(sum(each))
            log_total = np.log(total)
            z = z + log_total * total / sum(d * part for (_, d), part in zip(terms, each, strict=True))
            if float(np.max(np.abs(log_total))) < _SETTLED:
                break
        left = np.abs(np.log(sum(np.exp(log - d * (z + 0.5 * d)) for log, d in terms)))
        gained = above * ndtr(-z)
        lost = sum(above * np.exp(log + log_ndtr(-(z + d))) for log, d in terms)
        # Between z and the root the integrand is at most so much of the first density; where that is much, all counts.
        found = np.maximum(gained - lost, 0.0) + (4.0 * left + self._rounding) * gained
        return np.asarray(np.where(left < _ROOT, found, above))

    @property
    def _rounding(self) -> float:
        """Of all weights, and of a difference of terms that are no larger than the first: as a share of that."""
        return 8.0 * self.truncation.rounding + 1e-12


@lru_cache(maxsize=16)
def _pmf(proof: HiddenSize, log_tail: float) -> PrivacyLossPmf:
    rate, far = proof.truncation.rate, 2.0 * proof.shift
    known = hidden_place_proof(proof.truncation, proof.shift, proof.adjacency).upper(0.02, log_tail)
    last = min(_LAST, far * (math.sqrt(-2.0 * log_tail) + 0.5 * far))
    wide = max(_WIDE, (last - _FAR) / _MOST)
    ratios = np.append(np.arange(0.0, min(_FAR, last), _STEP), np.arange(min(_FAR, last), last + wide, wide))
    epsilons = np.log1p(rate * np.expm1(ratios))
    found = np.minimum(proof.forward(epsilons), [known.delta(e) for e in epsilons.tolist()])
    # The divergence falls as epsilon grows, so a value holds at a node that is rounded up.
    forward = list(zip((epsilons * (1.0 + 1e-14)).tolist(), np.minimum(found, 1.0).tolist(), strict=True))
    if proof.symmetric:
        return pmf_of_profile(forward)
    back = epsilons
    if proof.adjacency == "add-remove":
        back = np.linspace(0.0, -math.log1p(-rate) * (1.0 + 1e-12), _BACK)
    return pmf_of_profile(forward, [(e, known.reverse().delta(e)) for e in back.tolist()])
