"""Shuffled batches: blocks of rounds where a record is left over, and what covers the later batches where none is.

**Blocks.** Blocks of rounds whose adversary has one control for all strikes: less than so many worst terms show.

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

**Nothing left over.** In epochs that use every record, the one who makes room for another is seen in the first batch.

The theorem (docs/mathematics, "nothing left over"): with N records in batches of B, for k >= 1 in either direction,

    D_k <= (B/N) E[J(low T + high T')] + exposed D_k(fixed batches),      J(s) >= E[(X_1 + h s)+],

T and T' sums of `many` and `few` worst terms, X_1 the term of the first batch, h > 0 with E[h] = 1. All weights of
later batches lie below `many` of low and `few` of high but for a share `exposed`. c -> J(-c) falls and is convex with
slope at most 1, as the call of a term is: so J is one more term of the sum.

The file names the constants of the proof; any that pass are good.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from flint import arb, ctx, fmpz_poly

from calipers_verify.calls import Call, ball, displaced, gaussian, is_positive, lognormal, masses_at, opposite, tail
from calipers_verify.reading import Refused, spend
from calipers_verify.rows import ONE, dense, rounded
from calipers_verify.sums import UNIT, Plan, call_of, connected, connecting

ROUNDS = 16
"""Of a block."""
BLOCKS = {"unit": UNIT, "places": range(1, 4000)}
POINTS = [Fraction(i, 2) for i in range(-12, 21)]
"""Of y."""
SOME, COUNT = (UNIT[0], Fraction(10**6)), range(1, 1 << 53)
COVER: dict[str, Any] = dict.fromkeys(("loss", "exponent", "tilt", "level", "level_tilt", "power"), SOME)
COVER |= {"many": COUNT, "few": COUNT}
GRID = [Fraction(i, 10) for i in range(-120, 121)]
"""Of the noise of the first batch."""


def middle(r: arb, k: arb, replaced: bool) -> Call:
    """The term of the control 1, Y spread onto 0 and a few points; what is beyond these, times E[W+] < 1, is added."""
    s, once = r * arb(3).sqrt() if replaced else r, lognormal(r)
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


def block_call(calls: list[Call], unit: Fraction, places: int) -> Call:
    """c -> V_m(-c) for m = ROUNDS, on the lattice of so many places on either side of 0."""
    size = 2 * places
    spend(20_000 + 2 * ROUNDS * 5 * size)
    with ctx.workprec(192):
        terms = [connected(call, Plan(unit, (0,), (0,), 40, 20, -size, size)) for call in calls]
    moves = [(fmpz_poly(dense({-size: 0, size: 0} | term.atoms()).masses), term.lost) for term in terms]
    heights = [max(0, -place) * ONE for place in range(-places, places + 1)]
    for _ in range(ROUNDS):  # a term of value v turns the strike c into c - v
        row = fmpz_poly([heights[0] + i * ONE for i in range(size, 0, -1)] + heights + [heights[-1]] * size)
        sums = [(rounded(row * move, 3 * size + 1, True), lost) for move, lost in moves]
        each = [[mass + lost for mass in found[2 * size : 3 * size + 1]] for found, lost in sums]
        heights = [int(max(values)) for values in zip(*each, strict=True)]
    return call_of(connecting([(i - places, 0, height) for i, height in enumerate(heights)]), unit)


def weights(size: int, batch: int, shift: Fraction, cover: tuple[Any, ...]) -> tuple[arb, arb, arb]:
    """(low, high, exposed), or `Refused` where the constants do not fit together."""
    loss, exponent, tilt, level, level_tilt, y, many, few = cover
    later, batches = Fraction(size, batch) - 1, -(-size // batch) - 1
    if batch < 3 or later < 1 or not (loss < 1 and y < 1 <= level):
        raise Refused("where no remainder is dropped there should be two batches of three records at least")
    ratio, rate = ball(2 * shift).exp(), Fraction((batch - 2) * (size - batch), size - 2)
    largest = ratio / ball(1 - loss) - 1
    variance = (ratio + 1) ** 2 / (4 * ratio * ball(1 - loss)) - 1

    def log_moment(tilt: Fraction) -> arb:  # of the weight of a batch, less 1 (Bennett)
        scaled = ball(tilt) * largest
        return batch * variance / largest**2 * (scaled.exp() - 1 - scaled)

    high = 1 + (log_moment(tilt) + ball(exponent) + arb(batches).log()) / ball(tilt * batch)
    spread = (log_moment(level_tilt) - ball(level_tilt * batch * (level - 1))).exp()
    factor = ball(y) * (ball((1 - y) / y) * ball(1 - y).log()).exp()
    beyond = (ball(exponent) + batches * (1 + factor * spread).log()) / ball(y * level_tilt * batch)
    low, room = (ball(later) - few * high) / many, high - ball(level)
    if not (rate * loss >= 1 and room > 0 and low >= ball(level) and few * room >= beyond):
        raise Refused("the weights of later batches are not covered")
    unseen = ball(Fraction(batch, batch - 1)) * ratio * (1 - ball(rate * loss)).exp()
    return low, high, 2 * ball(-exponent).exp() + unseen


def seen(x: arb, mu: arb, far: arb) -> Call:
    """tau -> K, at least E[(rho - tau/y)+] of the first batch: rho and the mean of y at their largest in every cell."""
    floor, cells = (1 - x.exp()).max(arb(0)), []
    for a, b in pairwise(GRID):
        rho = (1 - (x - mu * ball(b) - mu * mu / 2).exp()).max(floor)
        mass, distance = rho * (tail(ball(a)) - tail(ball(b))), ball(max(abs(a), abs(b)))
        slope = far.min(distance)
        if not mass <= 0:
            cells.append((mass, rho * (far * far + slope * distance - slope * slope / 2).exp() / 4))
    outside = 2 * tail(ball(GRID[-1]))
    return lambda tau: sum((mass * (most / tau).min(arb(1)) for mass, most in cells), outside)


def first_batch(x: Fraction, mu: arb, far: tuple[arb, arb]) -> Call:
    """c -> J(-c) at the log ratio x >= 0; `far`: r plus the largest shift under P, and under Q."""
    k, known = ball(x).exp(), gaussian(mu, ball(x))
    losing, missing = seen(ball(x), mu, far[0]), seen(ball(-x), mu, far[1])

    def call(c: arb) -> arb:
        if c > 0:
            return known.min(losing(c))
        return known if c == 0 else known.min(1 - k + k * missing(-c / k)) - c

    return call
