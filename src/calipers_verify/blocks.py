"""Blocks of rounds whose adversary has one control for all strikes: less than so many worst terms show.

`displaced` is worse than every term an adversary can choose, because it lets him choose anew for every strike. One who
has chosen lives with both halves of his term. Up to convex order there is one choice, a control from 0 to 2; calls with
strikes above 0 grow with it, those with strikes below 0 fall (proven in the documentation, "one control for every
strike"). The ends of `displaced` are the controls 2 and 0; in the middle, at 1, the term is a product of independent
factors, Y = e^(s y - s^2/2) and

    W = e^(r x - r^2/2) - k,                        s^2 = r^2,          or, if the record is replaced,
    W = e^(r x - r^2/2) - k e^(-r x - r^2/2),       s^2 = 3 r^2.

So the controls of either half, [0, 1] and [1, 2], lie below one variable X_half: at its upper end where it is positive,
at its lower end where it is negative, 0 else. For a convex payoff V that increases with slope at most 1,

    V_0(s) = s+,      V_n(s) = max over both halves of E[V_(n-1)(s + X_half)],

is at least what n rounds can be made to pay, and c -> V_m(-c) the call of a variable that is above m rounds.
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb, ctx, fmpz_poly

from calipers_verify.calls import Call, ball, displaced, is_positive, lognormal, masses_at, opposite
from calipers_verify.reading import Effort, Rational, Whole
from calipers_verify.rows import ONE, dense, divided
from calipers_verify.sums import Plan, connected

ROUNDS = 16
"""Of a block."""
BLOCKS = {"unit": Rational(10**30), "places": Whole(1, 4000)}
PRECISION = 192
POINTS = [Fraction(i, 2) for i in range(-12, 21)]
"""Of y."""
REACH, TAIL = 40, 20


def middle(r: arb, k: arb, replaced: bool) -> Call:
    """The term of the control 1, Y spread onto 0 and a few points; what is beyond these, times E[W+] < 1, is added."""
    s = r * arb(3).sqrt() if replaced else r
    once = lognormal(r)
    along = opposite(r, k) if replaced else lambda c: once(c + k)
    points = [arb(0), *((s * ball(y) - s * s / 2).exp() for y in POINTS)]
    heights = [lognormal(s)(y) for y in points]
    zero, *masses = masses_at(points, heights)

    def call(c: arb) -> arb:
        parts = (mass * y * along(c / y) for y, mass in zip(points[1:], masses, strict=True))
        return sum(parts, zero * (-c).max(arb(0)) + heights[-1])

    return call


def halves(r: arb, k: arb, replaced: bool) -> list[Call]:
    """The calls of X_half of both halves."""
    ends, inner = displaced(r, k, replaced), middle(r, k, replaced)
    return [lambda c: (inner if is_positive(c) else ends)(c), lambda c: (ends if is_positive(c) else inner)(c)]


def block_call(calls: list[Call], unit: Fraction, places: int, effort: Effort) -> Call:
    """c -> V_m(-c) for m = ROUNDS, on the lattice of so many places on either side of 0."""
    size = 2 * places
    effort.spend(20_000 + 2 * ROUNDS * 5 * size)
    with ctx.workprec(PRECISION):
        plan = Plan(unit, (0,), (0,), REACH, TAIL, -size, size)
        terms = [connected(call, plan, effort) for call in calls]
    moves = [(fmpz_poly(dense({-size: 0, size: 0} | term.atoms()).masses), term.lost) for term in terms]
    heights = [max(0, -place) * ONE for place in range(-places, places + 1)]
    for _ in range(ROUNDS):  # a term of value v turns the strike c into c - v
        row = fmpz_poly([heights[0] + i * ONE for i in range(size, 0, -1)] + heights + [heights[-1]] * size)
        each = [
            [int(value) + lost for value in divided(row * move, ONE, 5 * size + 1, True)[2 * size : 3 * size + 1]]
            for move, lost in moves
        ]
        heights = [max(values) for values in zip(*each, strict=True)]
    return chords(heights, unit)


def chords(heights: list[int], unit: Fraction) -> Call:
    """A convex function that falls with slope at most 1, from values in the middle of a lattice: below its chords."""
    last = len(heights) - 1

    def call(c: arb) -> arb:
        steps = (c / ball(unit)).lower()  # an exact number; the function falls
        place = max(0, min(last - 1, int(steps.floor().unique_fmpz()) + last // 2))
        first, second, s = heights[place], heights[place + 1], steps + last // 2
        fall = (first - second) * (s - place).max(arb(0)).min(arb(1)) + ONE * s.min(arb(0))
        return ball(unit) * (arb(first) - fall) / ONE

    return call
