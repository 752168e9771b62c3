"""The lower bound: a test that anybody could run, its power rounded down and its false positives up.

What is seen of a round is cut into cells, and every cell has a whole number, its score. The scores of the rounds of an
epoch (Poisson sampling: of a step, which is one round) are added, and the sum may be scored anew by the bin it falls
into; these are added over all epochs, and the test says "P" where the total reaches a threshold. Any cells, bins and
scores make a valid test, so there is nothing to check but arithmetic: p holds probabilities under P from below, q
those under Q from above, and

    D_k(P||Q) >= p(test) - k q(test).

Coarsening tosses a coin where a sum of scores is odd. Sums outside the window count as "do not say P", under both.

The run that attains it: the record's clipped gradient is one unit vector u in every step, its replacement's is -u; all
others are zero, or -u where batches of fixed size are shuffled and the adversary may choose them (`shifts`).
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from flint import arb

from calipers_verify.reading import Refused, effort_left, spend
from calipers_verify.rows import ONE, Row, coarser, composed, dense, plus, product, window
from calipers_verify.steps import Phase
from calipers_verify.stop_loss import ball, rounded_down, rounded_up, tail

MOST_CELLS, SCORE = 20_000, range(-(10**5), 10**5 + 1)
FACTOR = {
    "cuts": [(Fraction(-1000), Fraction(1000)), 0, MOST_CELLS],
    "scores": [SCORE, 1, MOST_CELLS],
    "bins": [range(-(10**9), 10**9), 0, MOST_CELLS],
    "bin_scores": [SCORE, 0, MOST_CELLS],
}
ATTACK = {"factors": [FACTOR, 1, 64], "threshold": range(-(10**12), 10**12)}
Rows = list[Row]
"""Rows of the same places; those with an even index are rounded down, the others up."""


def shifts(phase: Phase, back: bool) -> tuple[arb, arb]:
    """What the record adds to the noise of its round under P and under Q."""
    present, absent = (2, 0 if phase.replaced else 1) if phase.opposed else (1, -1 if phase.replaced else 0)
    return (absent * phase.r, present * phase.r) if back else (present * phase.r, absent * phase.r)


def tested(factors: Any, phases: list[Phase], back: bool, dust: int) -> Rows:
    """[p, q] of the score of the whole run."""
    if any(phase.kind in ("realized", "size") for phase in phases):
        raise Refused("no attack on a phase like this can be checked here")
    if len(factors) != len(phases):
        raise Refused(f"factors of an attack should be {len(phases)}, one for each part of the run")
    parts = []
    for (cuts, scores, bins, bin_scores), phase in zip(factors, phases, strict=True):
        rows = epoch(cuts, scores, phase, back, dust // phase.repeats)
        parts.append((binned(rows, bins, bin_scores), phase.repeats))
    return total(parts, dust)


def binned(rows: Rows, bins: Any, scores: Any) -> Rows:
    """The rows of the scores of bins, if there are any: scores[i] from bins[i - 1] on and below bins[i]."""
    if not bins:
        return rows
    in_order(bins, scores)
    return [scored(row.low, row.masses, bins, scores) for row in rows]


def total(parts: list[tuple[Rows, int]], dust: int) -> Rows:
    """[p, q] of the score of so many independent epochs of each part; cutting tails costs about `dust`."""
    return _sum(parts, 3, dust)


def in_order(ends: Any, scores: Any) -> None:
    """`Refused` unless the ends of cells increase, and every cell has a score."""
    if len(scores) != len(ends) + 1 or any(a >= b for a, b in pairwise(ends)):
        raise Refused("cuts and bins should increase, and every cell have a score")


def scored(low: int, masses: list[Any], bins: Any, scores: Any) -> Row:
    """Masses from the place `low` on, by score of the bin they are in."""
    found = dict.fromkeys(scores, 0)
    for place, mass in enumerate(masses, low):
        found[scores[bisect_right(bins, place)]] += mass
    return dense(found)


def epoch(cuts: Any, scores: Any, phase: Phase, back: bool, dust: int) -> Rows:
    """[p, q] of the sum of the scores of one epoch's rounds.

    Four rows are carried along: noise alone, from below and above, and, summed over the rounds the record may be in,
    under P and under Q. Coins treat rounds differently, so that it would not do to put it into the last one.
    """
    left = effort_left()
    rows, effort = _epoch(tuple(cuts), tuple(scores), phase, back, dust)
    spend(effort - (left - effort_left()))  # the same, whether it was known or not
    return rows


@lru_cache(maxsize=4)
def _epoch(cuts: Any, scores: Any, phase: Phase, back: bool, dust: int) -> tuple[Rows, int]:
    """The rows, and the effort spent on them."""
    left = effort_left()
    in_order(cuts, scores)
    spend(400 * len(cuts))
    rows = []
    for mean, toward in zip((arb(0), arb(0), *shifts(phase, back)), (rounded_down, rounded_up) * 2, strict=True):
        above = [arb(1), *(tail(ball(cut) - mean) for cut in cuts), arb(0)]
        cells = [max(0, toward(left - right)) for left, right in pairwise(above)]
        rows.append(scored(0, cells, range(1, len(cells)), scores))
    noise_down, noise_up, p, q = _sum([(rows, phase.rounds)], 2, dust)
    top, bottom = phase.share.numerator, phase.share.denominator * phase.rounds
    rest, low = bottom - top * phase.rounds, p.low
    found = [
        Row(low, [(a * top + b * rest) // bottom for a, b in zip(p.masses, noise_down.masses, strict=True)]),
        Row(low, [-(-(a * top + b * rest) // bottom) for a, b in zip(q.masses, noise_up.masses, strict=True)]),
    ]
    return found, left - effort_left()


def _sum(parts: list[tuple[Rows, int]], every: int, dust: int) -> Rows:
    """The rows of so many independent scores of each part; cutting tails costs about `dust`."""
    return composed(parts, every, _halved, lambda a, b, uses: _cut(_added(a, b), dust // uses))


def _added(first: Rows, second: Rows) -> Rows:
    """The rows of the sum of two independent scores; with four rows the record is in one of the two."""
    rows = [product(first[i], second[i], i == 1) for i in (0, 1)]
    for noise, marked in zip((0, 1), range(2, len(first)), strict=False):
        once = product(first[marked], second[noise], noise == 1)
        rows.append(plus(once, once if first is second else product(first[noise], second[marked], noise == 1)))
    return rows


def _cut(rows: Rows, dust: int) -> Rows:
    """Without the places at both ends that hold little under P: there the test does not say P."""
    start, end = window([a + b for a, b in zip(rows[0].masses, rows[-2].masses, strict=True)], dust)
    return [Row(row.low + start, row.masses[start:end]) for row in rows]


def _halved(rows: Rows) -> Rows:
    """Half of every score; a coin decides between the neighbors of an odd one."""
    return [coarser(row, bool(i % 2)) for i, row in enumerate(rows)]


def delta_shown(rows: Rows, threshold: int, epsilon: Fraction) -> arb:
    """p(test) - e^epsilon q(test), which the divergence is no smaller than."""
    p, q = (int(sum(row.masses[max(0, threshold - row.low) :])) for row in rows)
    return (arb(p) - ball(epsilon).exp() * q) / ONE
