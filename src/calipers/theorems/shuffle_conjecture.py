"""Conjecture 3.2 of Chua et al. (2024) is false when gradients may depend on what was seen: two batches are enough.

The conjecture: one epoch of shuffled batches leaks most when every other record pulls by -1 and the record by +1, in
every step. With r = 1/sigma and x_t = (sum of batch t + B)/sigma, the record sits in one of T = 2 batches, each with
probability 1/2, and against pure noise its batch has the likelihood ratio

    A = exp(2 r x - 2 r^2)  when it is there,       B = exp(r x - r^2/2)  when it is zeroed out,

so the pair's divergence at k = e^eps is E[(S_1 + S_2)+]/2 with S = A - k B.

The counterexample: the others always pull by -1; the record pulls by +1 in the first batch, and in the second by +1 if
S_1 <= 0, but by -1, like everybody else, if S_1 > 0. In the latter case its batch shows noise when it is there and has
mean 1/sigma when it is zeroed out, so S_2 = 1 - k B. The gradient is a function of what was seen, and nothing else
changes, so the divergence is E[C(S_1)]/2 with C(s) = E[(s + A - k B)+] for s <= 0, C(s) = E[(s + 1 - k B)+] for s > 0.
Why it helps: for s > 0 both expectations are s + 1 - k plus what is lost beyond s, E[(k B - A - s)+], and a record that
agrees (A = 1) loses where only B is large (the lemma of docs/theory/shuffling.md, section 7; the numbers below do not
need it). At sigma = 2, eps = 1/2 the attack shows 0.03529, the pair 0.03333.

How the numbers are certified. Both C are closed forms (the event is an interval of x_2 or its complement), they
increase in s, and S_1 as a function of x_1 falls to its only minimum and rises from there. So on a cell of x_1 between
two nodes, with the minimum among the nodes, C lies between its values at the ends: sums of the smaller (larger) value
times the probability of the cell bound the expectation from below (above), without quadrature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.numerics.types import FloatArray
from calipers.theorems.registry import theorem

_CELLS = 200_000
_REACH = 10.0
_ROUNDING = 1e-9
"""Relative error of a cell's probability: a difference of two values that agree in about six digits."""
_CANCELLATION = 1e-13
"""Error of a call in units of the terms it is a sum of."""


class Counterexample(NamedTuple):
    """The attack shows `delta` at least; the conjectured worst case leaks `conjectured` at most, in both directions."""

    delta: float
    conjectured: float


def _opposing(s: FloatArray, r: float, k: float, put: bool = False) -> FloatArray:
    """E[(s + A - k B)+], or E[(k B - A - s)+] for a put.

    With B = v, A = v^2 e^(-r^2): the call is paid below the smaller root and above the larger one, the put between.
    """
    square = k * k - 4.0 * s * math.exp(-r * r)
    root = np.sqrt(np.maximum(square, 0.0))
    high = 0.5 * math.exp(r * r) * (k + root)
    low = 2.0 * s / (k + root)
    with np.errstate(divide="ignore"):
        above = (np.log(high) + 0.5 * r * r) / r
        below = (np.log(np.maximum(low, 0.0)) + 0.5 * r * r) / r
    if put:
        noise, absent, present = (ndtr(above - m * r) - ndtr(below - m * r) for m in (0.0, 1.0, 2.0))
        return np.asarray(np.where(square <= 0.0, 0.0, k * absent - present - s * noise))
    noise, absent, present = (ndtr(below - m * r) + ndtr(m * r - above) for m in (0.0, 1.0, 2.0))
    return np.asarray(np.where(square <= 0.0, s + 1.0 - k, s * noise + present - k * absent))


def _agreeing(s: FloatArray, r: float, k: float) -> FloatArray:
    """E[(s + 1 - k B)+] for s > -1: a put on B."""
    end = (np.log((s + 1.0) / k) + 0.5 * r * r) / r
    return np.asarray((s + 1.0) * ndtr(end) - k * ndtr(end - r))


def _first_batch(r: float, k: float) -> tuple[FloatArray, FloatArray]:
    """S_1 at nodes of x_1 that include its minimum, and the probabilities of the cells between them."""
    lowest = (math.log(0.5 * k) + 1.5 * r * r) / r
    edge = _REACH + 2.0 * r
    nodes = np.linspace(-edge, edge, _CELLS + 1)
    if abs(lowest) < edge:
        nodes = np.sort(np.append(nodes, lowest))
    b = np.exp(r * nodes - 0.5 * r * r)
    low, high = nodes[:-1], nodes[1:]
    cells = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return b * (b * math.exp(-r * r) - k), np.asarray(cells)


def _pair_at_most(r: float, k: float, put: bool = False) -> float:
    """At least E[(S_1 + S_2)+], or E[(-S_1 - S_2)+], when the record opposes the others in both batches; k > 0."""
    s, cells = _first_batch(r, k)
    value = _opposing(s, r, k, put) + _CANCELLATION * (np.abs(s) + 1.0 + k)
    inside = float(np.sum(cells * np.maximum(value[1:], value[:-1]))) * (1.0 + _ROUNDING)
    # Beyond the nodes a call is at most A_1 + 1 and a put at most k (B_1 + 1), and the shares of x_1 beyond them, plain
    # and weighted by A_1 or B_1, are Gaussian tails beyond 10.
    return inside + 4.0 * max(1.0, k) * float(ndtr(-_REACH))


def _attack_at_least(r: float, k: float) -> float:
    """At most E[(S_1 + S_2)+] of the attack that agrees in the second batch once S_1 is positive; k >= 1."""
    s, cells = _first_batch(r, k)
    value = np.where(s > 0.0, _agreeing(np.maximum(s, 0.0), r, k), _opposing(np.minimum(s, 0.0), r, k))
    value = np.maximum(value - _CANCELLATION * (np.abs(s) + 1.0 + k), 0.0)
    return float(np.sum(cells * np.minimum(value[1:], value[:-1]))) * (1.0 - _ROUNDING)


@theorem("chua-conj-3.2-counterexample")
def two_batches(epsilon: float, noise_multiplier: float) -> Counterexample:
    """What the attack shows and what the conjectured worst case leaks at most, both certified.

    Post-condition: delta_S(epsilon) >= `delta` for T = 2 batches of at least two records, and the pair of Equations
    (1) and (2) has divergence at most `conjectured` in both directions. Conjecture 3.2 fails where delta is larger.
    """
    k, r = math.exp(epsilon), 1.0 / noise_multiplier
    # D_k(Q||P) = E[(B - k A)+] is k times a put on A - B/k.
    reverse = 0.5 * k * _pair_at_most(r, 1.0 / k, put=True) * (1.0 + _ROUNDING)
    return Counterexample(0.5 * _attack_at_least(r, k), max(0.5 * _pair_at_most(r, k), reverse))
