"""Auditing with one training run: many canaries, each in or out by its own fair coin.

m canaries are included independently with probability 1/2 (S in {-1, 1}^m), the mechanism runs once, and a guesser who
sees the output names r of the m bits and abstains on the others. If the mechanism is epsilon-private, then given the
output and the bits before it, each guessed bit is right with probability at most p = e^epsilon/(1 + e^epsilon): the
number W of right guesses is stochastically at most Bin(r, p) (Steinke, Nasr, Jagielski 2023). Too many right guesses
contradict epsilon.

For (epsilon, delta) Steinke et al. add 2 m delta max_i (f(v - i) - f(v))/i to f(v) = P[Bin(r, p) >= v]. That is not
the worst case, and where f(v) is near 1 it is not even a bound (m = r = 2, v = 1, epsilon = 2, delta = 0.1: 0.9915,
while the mechanism below reaches 0.9991). It does no harm there, because no audit rejects at such a p-value. Here is
the worst case itself.

**Symmetry.** Averaging a mechanism over permutations and sign flips of the canaries keeps it private and leaves the
distribution of W alone; guessing the abstained bits at random up to r guesses only increases W. So M(t|s) = g(c)
depends on the number c of right guesses alone, with sum over c of C(r, c) g(c) = 1 (up to the choice of who is
guessed), and (epsilon, delta)-privacy between s and s with bit i flipped reads, with e = e^epsilon and x = m delta / r,

    sum over c of C(r-1, c-1) (g(c) - e g(c-1))_+ + C(r-1, c) (g(c) - e g(c+1))_+  <=  x.

**Worst case.** Let f(j) = P[Bin(r, p) >= j], b(j) = P[Bin(r, p) = j], and for j = 0, ..., v

    cost(j) = j b(j)/f(j),          reward(j) = f(v)/f(j).

Randomised response conditioned on at least j right guesses has P[W >= v] = reward(j) and uses r x = cost(j). Mixtures
of these reach every point under the concave envelope of the points (cost, reward). **Nothing does better**: take a
line reward(j) <= A + B cost(j)/r over all j (cost increases in j, as binomial hazards do, so j > v follows), with
f(v) <= A <= 1. With V_j = sum over c >= max(j, v) of C(r, c) e^(c-j) and N_j the same sum over c >= j, put y_j =
max(V_j - A N_j, 0). Then 0 <= y_j <= B C(r-1, j-1), and y_c - e y_(c+1) >= C(r, c) (1[c >= v] - A) for every c, as
V_c - e V_(c+1) = C(r, c) 1[c >= v] and V_j/N_j = reward(j) increases. Multiply by g(c) >= 0 and sum:

    P[W >= v] - A <= sum over j of y_j (g(j) - e g(j-1)) <= B sum over j of C(r-1, j-1) (g(j) - e g(j-1))_+ <= B x.

So the p-value is the envelope at m delta, exactly, and every line above the points is already a bound.

**Assumptions**: fair independent coins; guesses that depend on the output alone (canaries are ranked by score, ties by
position, never by inclusion); the numbers of guesses fixed before the scores are seen. Adding or removing one canary is
the neighboring relation, so the bound speaks about add-remove privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calipers.auditing.statistics import at_least, at_most, error_level
from calipers.bracket import Evidence, Kind
from calipers.citations import implements, statement
from calipers.display import as_record
from calipers.domains import PROBABILITY, Domain
from calipers.errors import ConditionError, InputError
from calipers.numerics.elementary import bisect
from calipers.numerics.types import FloatArray

LOG_TAIL_ERROR = 1e-7
"""Relative error of the binomial tails here, for up to MOST_GUESSES guesses (checked; typically 1e-11)."""

MOST_GUESSES = 100_000
_CANARIES = Domain(1, 100_000_000, integer=True)
_MOST_EPSILON = 200.0
_UNFAIR = 1e-9


def _checked_counts(correct: int, guesses: int, canaries: int) -> tuple[int, int, int]:
    canaries = _CANARIES.check_int("canaries", canaries)
    most = min(canaries, MOST_GUESSES)
    guesses = Domain(1, most, integer=True).check_int("guesses", guesses, "At most one guess per canary.")
    return Domain(0, guesses, integer=True).check_int("correct", correct), guesses, canaries


def _log_tails(guesses: int, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """log b(c) and log f(c) for c = 0, ..., guesses; sums of positive terms, smallest first, so no cancellation."""
    c = np.arange(guesses + 1, dtype=np.float64)
    log_p, log_miss = -math.log1p(math.exp(-epsilon)), -(epsilon + math.log1p(math.exp(-epsilon)))
    choose = special.gammaln(guesses + 1.0) - special.gammaln(c + 1.0) - special.gammaln(guesses - c + 1.0)
    log_mass = choose + c * log_p + (guesses - c) * log_miss
    return log_mass, np.logaddexp.accumulate(log_mass[::-1])[::-1]


@implements("calipers:one-run", "steinke2023:guesses")
def one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float = 0.0) -> float:
    """The largest P[at least `correct` right guesses] of any (epsilon, delta)-private mechanism, made no smaller.

    Post-condition: at least that probability, and at most (1 + 8 LOG_TAIL_ERROR) times it (never above 1).
    """
    correct, guesses, canaries = _checked_counts(correct, guesses, canaries)
    epsilon = Domain(0.0, _MOST_EPSILON).check("epsilon", epsilon)
    budget = canaries * PROBABILITY.check("delta", delta)
    if correct == 0:
        return 1.0
    log_mass, log_tail = (part[: correct + 1] for part in _log_tails(guesses, epsilon))
    reward = np.exp(log_tail[correct] - log_tail)
    cost = np.arange(correct + 1) * np.exp(log_mass - log_tail)
    if budget >= cost[correct]:
        return 1.0
    # Every slope gives a bound, max(reward - slope cost) + slope budget; walk the envelope to the best one.
    left, right = 0, correct
    while True:
        slope = (reward[right] - reward[left]) / (cost[right] - cost[left])
        heights = reward - slope * cost
        top = int(np.argmax(heights))
        if heights[top] <= max(heights[left], heights[right]) * (1.0 + 1e-14):
            return min(float(heights[top] + slope * budget) * (1.0 + 4.0 * LOG_TAIL_ERROR), 1.0)
        left, right = (top, right) if cost[top] <= budget else (left, top)


def rejected_epsilon(correct: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """The largest epsilon found whose p-value is at most `error`; 0 if none is.

    Post-condition: an (epsilon, delta)-private mechanism yields a number above epsilon with probability at most
    `error`, since the p-value increases with epsilon.
    """
    if one_run_p_value(correct, guesses, canaries, 0.0, delta) > error:
        return 0.0
    low, high = 0.0, 1.0
    while high < _MOST_EPSILON and one_run_p_value(correct, guesses, canaries, high, delta) <= error:
        low, high = high, min(2.0 * high, _MOST_EPSILON)
    return bisect(low, high, lambda at: one_run_p_value(correct, guesses, canaries, at, delta) <= error, 40)[0]


@dataclass(frozen=True)
class OneRunBound:
    """What one run proves: epsilon(delta) >= epsilon_lower, with the confidence of the evidence.

    `claim` and `upper` are the epsilons that are claimed and certified at the same delta, where any are.
    """

    delta: float
    epsilon_lower: float
    correct: int
    guesses: int
    canaries: int
    evidence: Evidence
    claim: float | None = None
    upper: float | None = None

    def to_dict(self) -> dict[str, object]:
        """The bound as a JSON object."""
        record = as_record(self, epsilon_lower="lower", evidence="lower_evidence")
        return {name: value for name, value in record.items() if value is not None}


def right_guesses(scores: ArrayLike, included: ArrayLike, guess_in: int, guess_out: int) -> int:
    """Right guesses when the `guess_in` largest scores are called included and the `guess_out` smallest excluded.

    Ties go to the earlier canary, which tells nothing about its coin.
    """
    values, coins = _checked_canaries(scores, included)
    for name, number in (("guess_in", guess_in), ("guess_out", guess_out)):
        Domain(0, values.size, integer=True).check_int(name, number)
    if not 1 <= guess_in + guess_out <= values.size:
        raise InputError(f"Expected guess_in + guess_out in [1, {values.size}], got {guess_in} + {guess_out}.")
    order = np.argsort(-values, kind="stable")
    called_in, called_out = order[:guess_in], order[values.size - guess_out :]
    return int(np.count_nonzero(coins[called_in])) + int(np.count_nonzero(~coins[called_out]))


def _checked_canaries(scores: ArrayLike, included: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    values, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if values.ndim != 1 or values.size == 0 or np.isnan(values).any():
        raise InputError(f"Expected scores as one row of numbers without NaN, got shape {values.shape}.")
    if coins.dtype != np.bool_ or coins.shape != values.shape:
        raise InputError(f"Expected included as one bool per score, got {coins.dtype} of shape {coins.shape}.")
    heads = int(np.count_nonzero(coins))
    if min(float(at_most(heads, coins.size, 0.5)), float(at_least(heads, coins.size, 0.5))) < _UNFAIR:
        raise ConditionError(
            f"Expected canaries included by fair independent coins, got {heads} of {coins.size}. "
            "Draw included = rng.random(canaries) < 0.5 before training."
        )
    return values, coins


def one_run_audit(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    guesses: Sequence[tuple[int, int]],
    delta: float,
    confidence: float = 0.95,
) -> OneRunBound:
    """Audit one training run from the canaries' scores (larger = more likely included) and their coins.

    `guesses` lists pairs (guess_in, guess_out), fixed before the scores are seen; the error is shared among them.
    Post-condition: for an (epsilon, delta)-private mechanism the bound exceeds epsilon with probability at most
    1 - confidence, the choice of the best pair included.
    """
    delta = PROBABILITY.check("delta", delta)
    if not guesses:
        raise InputError("Expected at least one pair (guess_in, guess_out), got none.")
    canaries = _checked_canaries(scores, included)[0].size
    each = error_level(confidence) / len(guesses)
    seen = [(right_guesses(scores, included, *pair), sum(pair)) for pair in guesses]
    best = max(((rejected_epsilon(*pair, canaries, delta, each), *pair) for pair in seen), key=lambda one: one[0])
    text = (
        f"{best[1]} of {best[2]} guesses right about {canaries} canaries, each included by a fair coin, in one run; "
        f"the best of {len(guesses)} numbers of guesses, the error shared among them."
    )
    source = f"{statement('steinke2023:guesses')}; {statement('calipers:one-run')}"
    return OneRunBound(delta, *best, canaries, Evidence(Kind.STATISTICAL, text, source, confidence))
