"""The lower jaw: a test that anybody could run, its power rounded down and its false positives up.

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

from fractions import Fraction
from typing import Any

from flint import arb, fmpz

from calipers_verify.calls import ball, rounded_down, rounded_up, tail
from calipers_verify.reading import Effort, Refused, fields, increasing, items, rational, whole, wholes
from calipers_verify.rows import HALVES, ONE, Row, dense, halved, plus, product, repeated, together, window
from calipers_verify.steps import Phase

MOST_CELLS = 20_000
MOST_SCORE = 10**5
Rows = list[Row]
"""Rows of the same places; those with an even index are rounded down, the others up."""


def shifts(phase: Phase, back: bool) -> tuple[arb, arb]:
    """What the record adds to the noise of its round under P and under Q."""
    present, absent = (2, 0 if phase.replaced else 1) if phase.opposed else (1, -1 if phase.replaced else 0)
    return (absent * phase.r, present * phase.r) if back else (present * phase.r, absent * phase.r)


def tested(attack: Any, phases: list[Phase], direction: str, effort: Effort) -> Rows:
    """[p, q] of the score of the whole run."""
    attack = fields(attack, ("dust", "factors", "threshold"), "an attack")
    dust = whole(attack["dust"], 0, ONE, "dust")
    found = []
    for factor, phase in zip(items(attack["factors"], len(phases), len(phases), "factors"), phases, strict=True):
        if phase.kind in ("realized", "size"):
            raise Refused("no attack on a phase like this can be checked here")
        factor = fields(factor, ("cuts", "scores", "coarsen", "bins", "bin_scores", "coarsen_epochs"), "a factor")
        total = binned(epoch(factor, phase, direction == "absent-present", dust, effort), factor)
        coarsen = read_coarsen(factor["coarsen_epochs"], phase.repeats)
        each = phase.repeats * phase.repeats.bit_length()
        found.append((sum(coarsen), _sum(total, phase.repeats, coarsen, dust, each, effort)))
    return together(found, _halved, lambda a, b: _cut(_added(a, b, effort), dust))


def epoch(factor: Any, phase: Phase, back: bool, dust: int, effort: Effort) -> Rows:
    """[p, q] of the sum of the scores of one epoch's rounds.

    Four rows are carried along: noise alone, from below and above, and, summed over the rounds the record may be in,
    under P and under Q. Coins treat rounds differently, so that it would not do to put it into the last one.
    """
    values = [rational(cut, -1000, 1000, "a cut") for cut in items(factor["cuts"], 1, MOST_CELLS, "cuts")]
    cuts = [ball(cut) for cut in increasing(values, "cuts")]
    scores = wholes(factor["scores"], len(cuts) + 1, -MOST_SCORE, MOST_SCORE, "scores")
    effort.spend(400 * len(cuts))
    rows = []
    for mean, rounded in zip((arb(0), arb(0), *shifts(phase, back)), (rounded_down, rounded_up) * 2, strict=True):
        above = [arb(1), *(tail(cut - mean) for cut in cuts), arb(0)]
        masses = dict.fromkeys(scores, 0)
        for score, left, right in zip(scores, above[:-1], above[1:], strict=True):
            masses[score] += max(0, rounded(left - right))
        rows.append(dense(masses))
    coarsen = read_coarsen(factor["coarsen"], phase.rounds)
    rows = _sum(rows, phase.rounds, coarsen, dust, phase.rounds.bit_length(), effort)
    top, bottom = phase.share.numerator, phase.share.denominator * phase.rounds
    rest = bottom - top * phase.rounds
    low, noise_down, noise_up, p, q = rows[0].low, *(row.masses for row in rows)
    return [
        Row(low, [(a * top + b * rest) // bottom for a, b in zip(p, noise_down, strict=True)]),
        Row(low, [-(-(a * top + b * rest) // bottom) for a, b in zip(q, noise_up, strict=True)]),
    ]


def _sum(rows: Rows, count: int, coarsen: list[int], dust: int, parts: int, effort: Effort) -> Rows:
    """The rows of `count` independent scores; n of them may lose a share of n in `parts` of `dust`."""
    return repeated(rows, count, coarsen, _halved, lambda a, b, n: _cut(_added(a, b, effort), dust * n // parts))


def _added(first: Rows, second: Rows, effort: Effort) -> Rows:
    """The rows of the sum of two independent scores; with four rows the record is in one of the two."""

    def times(i: int, j: int) -> Row:
        return product(first[i], second[j], bool(i % 2), effort)

    rows = [times(0, 0), times(1, 1)]
    for noise, marked in ((0, 2), (1, 3)) if len(first) == 4 else ():
        both = plus(times(marked, noise), times(noise, marked))
        assert both is not None
        rows.append(both)
    return rows


def _cut(rows: Rows, dust: int) -> Rows:
    """Without the places at both ends that hold little under P: there the test does not say P."""
    start, end = window([a + b for a, b in zip(rows[0].masses, rows[-2].masses, strict=True)], dust)
    return [Row(row.low + start, row.masses[start:end]) for row in rows]


def _halved(rows: Rows) -> Rows:
    """Half of every score; a coin decides between the neighbors of an odd one."""
    return [halved(row, HALVES, bool(i % 2)) for i, row in enumerate(rows)]


def binned(rows: Rows, factor: Any) -> Rows:
    """The score of an epoch: bin_scores[i] where the sum is at least bins[i - 1] and below bins[i]; null: the sum."""
    if factor["bins"] is None and factor["bin_scores"] is None:
        return rows
    values = [whole(edge, -(10**9), 10**9, "a bin") for edge in items(factor["bins"], 1, MOST_CELLS, "bins")]
    bins = increasing(values, "bins")
    scores = wholes(factor["bin_scores"], len(bins) + 1, -MOST_SCORE, MOST_SCORE, "bin_scores")
    found = []
    for row in rows:
        masses, at = dict.fromkeys(scores, fmpz(0)), 0
        for place, mass in enumerate(row.masses, row.low):
            while at < len(bins) and place >= bins[at]:
                at += 1
            masses[scores[at]] += mass
        found.append(dense(masses))
    return found


def read_coarsen(value: Any, count: int) -> list[int]:
    """How often to coarsen before each doubling on the way to `count`."""
    return wholes(value, count.bit_length(), 0, 40, "coarsen")


def delta_shown(rows: Rows, threshold: int, epsilon: Fraction) -> arb:
    """p(test) - e^epsilon q(test), which the divergence is no smaller than."""
    p, q = (int(sum(row.masses[max(0, threshold - row.low) :])) for row in rows)
    return (arb(p) - ball(epsilon).exp() * q) / ONE
