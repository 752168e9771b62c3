"""Auditing with one training run in its f-DP form: right guesses against a whole privacy profile at once.

A pair (epsilon, delta) is one point of what a mechanism promises. A mechanism that keeps delta(epsilon) for *every*
epsilon has fewer ways to help the guesser, so that as many right guesses contradict more of it (Mahloujifar, Melis,
Chaudhuri 2024). The question and the symmetry are those of `calipers.auditing.one_run`: after averaging, the mechanism
is g(c), c the number of right guesses out of r, and for every epsilon, with x(epsilon) = m delta(epsilon)/r,

    sum over c of C(r-1, c-1) (g(c) - e^epsilon g(c-1))_+  <=  x(epsilon).

**Bound.** Take epsilons e_1, ..., e_K and numbers 0 <= b_k(j) <= B_k, j = 1, ..., r. Multiplying the k-th constraint's
terms by b_k(j)/B_k, which only makes its left side smaller,

    sum over k, j of C(r-1, j-1) b_k(j) (g(j) - e^(e_k) g(j-1))  <=  sum over k of B_k x(e_k).

The left side is the sum over c of C(r, c) g(c) L(c) with L(c) = sum over k of (c b_k(c) - e^(e_k) (r - c) b_k(c+1))/r,
because c C(r, c) = r C(r-1, c-1). As C(r, c) g(c) is the distribution of W, with A = max over c of 1[c >= v] - L(c)

    P[W >= v]  <=  A + sum over k of B_k x(e_k),

whatever the b are. The best b solve a linear program, which a solver finds; A and B_k are then computed from what it
returned, so that nothing rests on the solver. The dual of the program is the search for the worst g: with enough
epsilons nothing better can be said of symmetric mechanisms, and with one it is the envelope of `one_run_p_value`.

**The epsilons are fixed** before anything is seen. The bound is then a minimum, over one set of b, of functions that
increase with every delta(e_k): a profile that promises less is never rejected where one that promises more is kept.
So for a family that is ordered, as the Gaussian ones are by mu, the largest member that is rejected bounds the
mechanism's from below, with the confidence of one test. **What it says**: the mechanism is not mu-GDP. It does not say
that delta is exceeded at a particular epsilon; the epsilons shown next to it are those of the Gaussian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers.auditing.one_run import one_run_p_value, right_guesses
from calipers.auditing.statistics import error_level
from calipers.bracket import Evidence, Kind
from calipers.citations import implements, statement
from calipers.display import as_record
from calipers.domains import PROBABILITY, Domain
from calipers.errors import InputError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_delta, gaussian_epsilon
from calipers.numerics.types import FloatArray

EPSILONS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0)
"""Where a profile is asked; fixed, whatever the guesses."""

MOST_IN_PROGRAM = 240
"""More guesses than that are judged by the best single epsilon: the program would take minutes."""

_LEAST_MU, _MOST_MU = 1e-4, 30.0
_ROUNDING = 1e-9


@implements("calipers:one-run-curve", "mahloujifar2024:guesses")
def one_run_curve_p_value(correct: int, guesses: int, canaries: int, profile: Callable[[float], float]) -> float:
    """At least P[`correct` or more right guesses] of any mechanism that keeps delta(epsilon) = `profile`, both ways."""
    deltas = _deltas(profile)
    single = _single(correct, guesses, canaries, deltas)
    if correct == 0 or guesses > MOST_IN_PROGRAM:
        return single
    return min(single, _program(correct, guesses, canaries, deltas))


def _deltas(profile: Callable[[float], float]) -> tuple[float, ...]:
    return tuple(PROBABILITY.check("delta", min(float(profile(epsilon)), 1.0)) for epsilon in EPSILONS)


def _single(correct: int, guesses: int, canaries: int, deltas: tuple[float, ...]) -> float:
    """The bound by the best single epsilon."""
    points = zip(EPSILONS, deltas, strict=True)
    return min(one_run_p_value(correct, guesses, canaries, epsilon, delta) for epsilon, delta in points)


@lru_cache(maxsize=4096)
def _program(correct: int, guesses: int, canaries: int, deltas: tuple[float, ...]) -> float:
    """The bound with the best weights that the solver finds; 1 if it finds none."""
    from scipy import optimize, sparse

    kinds, costs = len(deltas), np.array(deltas) * (canaries / guesses)
    growth, places = np.exp(np.array(EPSILONS)), np.arange(1, guesses + 1)
    # Variables: A, the B_k, then the b_k(j). Rows: c = 0, ..., r, then b_k(j) <= B_k.
    first = 1 + kinds + guesses * np.arange(kinds)[:, None] + places - 1
    limits = guesses + 1 + guesses * np.arange(kinds)[:, None] + places - 1
    own = np.broadcast_to(places, first.shape)
    entries = [
        (np.arange(guesses + 1), np.zeros(guesses + 1, dtype=np.int64), -np.ones(guesses + 1)),
        (own, first, -own / guesses),
        (own - 1, first, growth[:, None] * (guesses + 1 - own) / guesses),
        (limits, first, np.ones(first.shape)),
        (limits, np.broadcast_to(1 + np.arange(kinds)[:, None], first.shape), -np.ones(first.shape)),
    ]
    rows, columns, values = (np.concatenate([part[i].ravel() for part in entries]) for i in range(3))
    wanted = (np.arange(guesses + 1) >= correct).astype(np.float64)
    program: dict[str, Any] = {
        "c": np.concatenate([[1.0], costs, np.zeros(kinds * guesses)]),
        "A_ub": sparse.csr_matrix((values, (rows, columns))),
        "b_ub": np.concatenate([-wanted, np.zeros(kinds * guesses)]),
    }
    found = optimize.linprog(**program, method="highs")
    if found.x is None:
        return 1.0
    return _bound(np.maximum(found.x[1 + kinds :], 0.0).reshape(kinds, guesses), wanted, growth, costs)


def _bound(weights: FloatArray, wanted: FloatArray, growth: FloatArray, costs: FloatArray) -> float:
    """A + sum of B_k x(e_k) for the weights b_k(j), rounded up."""
    guesses = weights.shape[1]
    places = np.arange(1, guesses + 1)
    gained, lost = np.zeros(guesses + 1), np.zeros(guesses + 1)
    gained[1:] = (places * weights).sum(axis=0) / guesses
    lost[:-1] = (growth[:, None] * (guesses + 1 - places) * weights).sum(axis=0) / guesses
    highest = float(np.max(wanted - gained + lost))
    size = 1.0 + float(np.max(gained)) + float(np.max(lost))
    return min(highest + float(weights.max(axis=1) @ costs) + _ROUNDING * size, 1.0)


def one_run_mu(correct: int, guesses: int, canaries: int, error: float, *, program: bool = True) -> float:
    """The largest mu found whose Gaussian profile is rejected at this error; 0 if none is.

    What one epsilon rejects the program rejects too: it is begun there and the program is asked a few times only, or
    not at all.
    """

    def one(mu: float) -> bool:
        return _single(correct, guesses, canaries, _deltas(lambda at: gaussian_up(mu, at))) <= error

    def all_together(mu: float) -> bool:
        return one_run_curve_p_value(correct, guesses, canaries, lambda at: gaussian_up(mu, at)) <= error

    low, high = 0.0, 1.0
    while high < _MOST_MU and one(high):
        low, high = high, 2.0 * high
    low = bisect(low, high, one, 16)[0]
    low = 0.0 if low < _LEAST_MU else low
    if guesses > MOST_IN_PROGRAM or not program:
        return low
    high = max(1.25 * low, 0.125)
    while high < _MOST_MU and all_together(high):
        low, high = high, 1.25 * high
    return bisect(low, high, all_together, 5)[0]


def gaussian_up(mu: float, epsilon: float) -> float:
    """delta of N(mu, 1) against N(0, 1), rounded up; that of 1e-4 below it."""
    mu = max(mu, _LEAST_MU)
    return min(float(gaussian_delta(mu, epsilon)) * (1.0 + GAUSSIAN_RELATIVE_ERROR), 1.0)


@dataclass(frozen=True)
class CurveBound:
    """What one run proves of the whole profile: the mechanism is not mu-GDP for any mu up to `mu_lower`.

    `upper_p_value`: the same test of a profile that was certified, None if there was none.
    """

    mu_lower: float
    correct: int
    guesses: int
    canaries: int
    evidence: Evidence
    upper_p_value: float | None = None

    def gaussian_epsilon(self, delta: float) -> float:
        """epsilon(delta) of the Gaussian profile with `mu_lower`: a name for it, not a bound at this delta."""
        return float(gaussian_epsilon(self.mu_lower, delta)) if self.mu_lower > 0 else 0.0

    def to_dict(self, delta: float) -> dict[str, object]:
        """For JSON."""
        return as_record(self, evidence="lower_evidence") | {"gaussian_epsilon": self.gaussian_epsilon(delta)}


def one_run_curve_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    guesses: Sequence[tuple[int, int]],
    confidence: float = 0.95,
    upper: Callable[[float], float] | None = None,
) -> CurveBound:
    """`one_run_audit` in its f-DP form; `upper` is a certified delta(epsilon) to be tested as a whole.

    Post-condition: for a mu-GDP mechanism `mu_lower` exceeds mu with probability at most 1 - confidence; the p-value
    counts the choice among `guesses`, and is at most u with probability at most u if the profile holds.
    """
    if not guesses:
        raise InputError("Expected at least one pair (guess_in, guess_out), got none.")
    canaries, error = int(np.asarray(scores).size), error_level(confidence)
    Domain(1, 10**8, integer=True).check_int("canaries", canaries)
    seen = [(right_guesses(scores, included, *pair), sum(pair)) for pair in guesses]
    share = error / len(guesses)
    # The program is asked about one number of guesses, chosen by what was seen: each has its share of the error.
    _, correct, guessed = max((one_run_mu(c, r, canaries, share, program=False), c, r) for c, r in seen)
    best = (one_run_mu(correct, guessed, canaries, share), correct, guessed)
    tested = None
    if upper is not None:
        deltas = _deltas(upper)
        found = [_single(c, r, canaries, deltas) for c, r in seen]
        found.append(one_run_curve_p_value(correct, guessed, canaries, upper))
        tested = min(1.0, len(guesses) * min(found))
    text = (
        f"{best[1]} of {best[2]} guesses right about {canaries} canaries, each included by a fair coin, in one run, "
        f"against whole profiles; the best of {len(guesses)} numbers of guesses, the error shared among them."
    )
    source = f"{statement('mahloujifar2024:guesses')}; {statement('calipers:one-run-curve')}"
    return CurveBound(*best, canaries, Evidence(Kind.STATISTICAL, text, source, confidence), tested)
