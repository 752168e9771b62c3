"""The lower jaw: a test that anybody could run, its power rounded down and its false positives up.

What is seen of a step (or of a round) is cut into cells, and every cell has a whole number, its score. The scores of
all steps are added; the test says "P" where the sum reaches a threshold. Any cells and any scores make a valid test,
so there is nothing to check but arithmetic: p holds probabilities under P from below, q those under Q from above, and

    D_k(P||Q) >= p(test) - k q(test).

Coarsening tosses a coin where a sum of scores is odd. Sums outside the window count as "do not say P", under both.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb, fmpz, fmpz_poly

from calipers_verify.calls import ONE, ball, rounded_down, rounded_up, tail
from calipers_verify.lattice import MOST_PLACES, product_up
from calipers_verify.reading import Effort, Refused, each, increasing, items, rational, whole

MOST_CELLS = 20_000
MOST_SCORE = 10**5
Mixture = list[tuple[Fraction, arb]]
"""Weights and means of unit normals."""


class Scores(NamedTuple):
    """Masses (in 2^-256) of the scores low, low + 1, ...: under P from below, under Q from above."""

    low: int
    p: list[Any]
    q: list[Any]
    level: int = 0


def cells(cuts: list[Fraction], scores: list[int], present: Mixture, absent: Mixture, effort: Effort) -> Scores:
    """The score of one observation: scores[i] between cuts[i - 1] and cuts[i]."""
    effort.spend(200 * len(scores))
    low = min(scores)
    p, q = ([fmpz(0)] * (max(scores) - low + 1) for _ in range(2))
    for mixture, masses, rounded in ((present, p, rounded_down), (absent, q, rounded_up)):
        above = [arb(1), *(_above(ball(cut), mixture) for cut in cuts), arb(0)]
        for score, left, right in zip(scores, above[:-1], above[1:], strict=True):
            masses[score - low] += max(0, rounded(left - right))
    return Scores(low, p, q)


def _above(cut: arb, mixture: Mixture) -> arb:
    return sum((ball(weight) * tail(cut - mean) for weight, mean in mixture), arb(0))


def read_cells(record: Any) -> tuple[list[Fraction], list[int]]:
    """(cuts, scores) of an attack: cuts increase, and there is one score more than cuts."""
    cuts = [rational(cut, -1000, 1000, "a cut") for cut in items(record["cuts"], 1, MOST_CELLS, "cuts")]
    if any(a >= b for a, b in pairwise(cuts)):
        raise Refused("cuts should increase")
    limit = MOST_SCORE
    return cuts, each(record["scores"], len(cuts) + 1, lambda s: whole(s, -limit, limit, "a score"), "scores")


def multiplied(first: Scores, second: Scores, dust: int, effort: Effort) -> Scores:
    """The sum of two independent scores."""
    if first.level != second.level:
        raise Refused("two scores on different lattices cannot be added")
    if len(first.p) + len(second.p) > MOST_PLACES:
        raise Refused("a sum of scores has too many places")
    p = ((fmpz_poly(first.p) * fmpz_poly(second.p)) // fmpz(ONE)).coeffs()
    q = product_up(first.q, second.q, effort)
    p += [fmpz(0)] * (len(q) - len(p))
    return _windowed(first.low + second.low, p, q, dust, first.level)


def _windowed(low: int, p: list[Any], q: list[Any], dust: int, level: int) -> Scores:
    """Without the places at both ends that hold at most `dust` of p: there the test does not say P."""
    start, end = _window(p, dust)
    return Scores(low + start, p[start:end], q[start:end], level)


def _window(masses: list[Any], dust: int) -> tuple[int, int]:
    """(start, end) of the places that remain when at most `dust` is cut at both ends."""
    start, end, cut = 0, len(masses), 0
    while end > 1 and cut + masses[end - 1] <= dust:
        end -= 1
        cut += masses[end]
    cut = 0
    while start < end - 1 and cut + masses[start] <= dust:
        cut += masses[start]
        start += 1
    return start, end


def halved(scores: Scores) -> Scores:
    """Half of every score; a coin decides between the neighbors of an odd one."""
    low, p, q = scores.low, scores.p, scores.q
    if low % 2:
        low, p, q = low - 1, [fmpz(0), *p], [fmpz(0), *q]
    if len(p) % 2 == 0:
        p, q = [*p, fmpz(0)], [*q, fmpz(0)]
    even_p, even_q = p[0::2], q[0::2]
    for i, (mass_p, mass_q) in enumerate(zip(p[1::2], q[1::2], strict=True)):
        even_p[i] += mass_p >> 1
        even_p[i + 1] += mass_p >> 1
        even_q[i] += (mass_q + 1) >> 1
        even_q[i + 1] += (mass_q + 1) >> 1
    return Scores(low // 2, even_p, even_q, scores.level + 1)


def power(scores: Scores, count: int, coarsen: list[int], dust: int, effort: Effort) -> Scores:
    """The sum of `count` independent scores, by doubling; see `calipers_verify.lattice.power`."""
    base, result = scores, None
    bits = count.bit_length()
    for j in range(bits):
        for _ in range(coarsen[j]):
            base, result = halved(base), None if result is None else halved(result)
        if count >> j & 1:
            result = base if result is None else multiplied(result, base, dust // bits, effort)
        if j + 1 < bits:
            base = multiplied(base, base, (dust << (j + 1)) // (count * bits), effort)
    assert result is not None
    return result


def together(scores: list[Scores], dust: int, effort: Effort) -> Scores:
    """The sum of the scores of all phases."""
    level = max(found.level for found in scores)
    total = None
    for found in scores:
        while found.level < level:
            found = halved(found)
        total = found if total is None else multiplied(total, found, dust, effort)
    assert total is not None
    return total


class Rounds(NamedTuple):
    """The sum of the scores of `terms` rounds: under noise, from below and above, and with the record in a random
    round.

    All four rows are cut and coarsened alike. The record's round is uniformly random among the terms, so with m and n
    terms a marked row is m/(m + n) of (marked first, noise second) and n/(m + n) of (noise first, marked second).
    """

    low: int
    noise_down: list[Any]
    noise_up: list[Any]
    p: list[Any]
    q: list[Any]
    terms: int


def _rounds_added(first: Rounds, second: Rounds, dust: int, effort: Effort) -> Rounds:
    m, n = first.terms, second.terms
    count = len(first.p) + len(second.p) - 1
    if count > MOST_PLACES:
        raise Refused("a sum of scores has too many places")
    effort.spend(4 * count)

    def exact(a: list[Any], b: list[Any]) -> Any:
        return fmpz_poly(a) * fmpz_poly(b)

    def filled(row: Any, divisor: int, up: bool) -> list[Any]:
        found = ((row + fmpz_poly([divisor - 1] * count) if up else row) // fmpz(divisor)).coeffs()
        return list(found) + [fmpz(0)] * (count - len(found))

    p = m * exact(first.p, second.noise_down) + n * exact(first.noise_down, second.p)
    q = m * exact(first.q, second.noise_up) + n * exact(first.noise_up, second.q)
    rows = [
        filled(exact(first.noise_down, second.noise_down), ONE, False),
        filled(exact(first.noise_up, second.noise_up), ONE, True),
        filled(p, (m + n) * ONE, False),
        filled(q, (m + n) * ONE, True),
    ]
    noise, marked = rows[0], rows[2]
    start, end = _window([a + b for a, b in zip(noise, marked, strict=True)], dust)
    kept = [row[start:end] for row in rows]
    return Rounds(first.low + second.low + start, kept[0], kept[1], kept[2], kept[3], m + n)


def _rounds_halved(rounds: Rounds) -> Rounds:
    down = halved(Scores(rounds.low, rounds.noise_down, rounds.noise_up))
    marked = halved(Scores(rounds.low, rounds.p, rounds.q))
    return Rounds(down.low, down.p, down.q, marked.p, marked.q, rounds.terms)


def epoch(record: Any, shifts: tuple[arb, arb], share: Fraction, rounds: int, dust: int, effort: Effort) -> Scores:
    """The sum of the round scores of one epoch that shows the record in one of its rounds, if at all (chance `share`).

    Rounds show unit noise, but the record's, which is shifted by shifts[0] under P and by shifts[1] under Q.
    """
    cuts, scores = read_cells(record)
    coarsen, bits = read_coarsen(record["coarsen"], rounds), rounds.bit_length()
    noise: Mixture = [(Fraction(1), arb(0))]
    plain = cells(cuts, scores, noise, noise, effort)
    marked = cells(cuts, scores, [(Fraction(1), shifts[0])], [(Fraction(1), shifts[1])], effort)
    base, result = Rounds(plain.low, plain.p, plain.q, marked.p, marked.q, 1), None
    for j in range(bits):
        for _ in range(coarsen[j]):
            base, result = _rounds_halved(base), None if result is None else _rounds_halved(result)
        if rounds >> j & 1:
            result = base if result is None else _rounds_added(result, base, dust // bits, effort)
        if j + 1 < bits:
            base = _rounds_added(base, base, (dust << (j + 1)) // (rounds * bits), effort)
    assert result is not None
    top, bottom = share.numerator, share.denominator
    p = [(a * top + b * (bottom - top)) // bottom for a, b in zip(result.p, result.noise_down, strict=True)]
    q = [-(-(a * top + b * (bottom - top)) // bottom) for a, b in zip(result.q, result.noise_up, strict=True)]
    return Scores(result.low, p, q)


def binned(total: Scores, record: Any) -> Scores:
    """The score of an epoch: bin_scores[i] where the sum of its rounds is at least bins[i - 1] and below bins[i]."""
    bins = increasing(record["bins"], 1, MOST_CELLS, 10**9, "bins")
    limit = MOST_SCORE
    scores = each(record["bin_scores"], len(bins) + 1, lambda s: whole(s, -limit, limit, "a score"), "bin_scores")
    low, at = min(scores), 0
    p, q = ([fmpz(0)] * (max(scores) - low + 1) for _ in range(2))
    for place, (mass_p, mass_q) in enumerate(zip(total.p, total.q, strict=True), total.low):
        while at < len(bins) and place >= bins[at]:
            at += 1
        p[scores[at] - low] += mass_p
        q[scores[at] - low] += mass_q
    return Scores(low, p, q)


def read_coarsen(value: Any, count: int) -> list[int]:
    """How often to coarsen before each doubling on the way to `count`."""
    return each(value, count.bit_length(), lambda e: whole(e, 0, 40, "an entry of coarsen"), "coarsen")


def delta_shown(scores: Scores, threshold: int, epsilon: Fraction) -> arb:
    """p(test) - e^epsilon q(test), which the divergence is no smaller than."""
    start = max(0, threshold - scores.low)
    return (arb(int(sum(scores.p[start:]))) - ball(epsilon).exp() * int(sum(scores.q[start:]))) / ONE
