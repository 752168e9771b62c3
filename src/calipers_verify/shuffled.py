"""Shuffled batches: blocks of rounds where a record is dropped, and what covers the later batches where none is.

**Blocks.** Blocks of rounds whose adversary has one control for all thresholds: less than so many worst-case terms
show.

`displaced` is worse than every term an adversary can choose, because it lets him choose anew for every threshold. One
who has chosen lives with both halves of his term. Up to convex order there is one choice, a control from 0 to 2;
stop-loss transforms with thresholds above 0 grow with it, those with thresholds below 0 fall (proven in the
documentation, "one control for every threshold"). The ends of `displaced` are the controls 2 and 0; in the middle, at
1, the term is a product of independent factors, Y = e^(s y - s^2/2) and

    W = e^(r x - r^2/2) - k,                        s^2 = r^2,          or, if the record is replaced,
    W = e^(r x - r^2/2) - k e^(-r x - r^2/2),       s^2 = 3 r^2.

So the controls of either half, [0, 1] and [1, 2], lie below one variable X_half: at its upper end where it is positive,
at its lower end where it is negative, 0 else. For a convex payoff V that increases with slope at most 1,

    V_0(s) = s+,      V_n(s) = max over both halves of E[V_(n-1)(s + X_half)],

is at least what n rounds can be made to pay, and c -> V_m(-c) the stop-loss transform of a variable that is above m
rounds.

**No remainder.** In epochs that use every record, the one who makes room for another is seen in one of the first
l batches, the pool. The theorem (docs/mathematics, "no remainder"): with N records in batches of B, for k >= 1 in
either direction,

    D_k <= (B/N) E[J(low T + high T')] + exposed D_k(fixed batches) + (B/N) l alone,      J(s) >= E[(l X_u + h s)+],

T and T' sums of `many` and `few` worst-case terms, or blocks in place of the first, X_u the term of a batch of the
pool, h > 0 with E[h] = 1. All weights of later batches lie below `many` of low and `few` of high but for the shares
`exposed` and `alone`. c -> J(-c) falls and is convex with slope at most 1, as the stop-loss transform of a term is: so
J is one more term.

The file names the constants of the proof; any that pass are good.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from math import factorial
from typing import Any

from flint import arb, arb_poly, ctx, fmpz, fmpz_poly

from calipers_verify.reading import Refused, spend
from calipers_verify.rows import ONE, dense
from calipers_verify.stop_loss import (
    StopLossBall,
    ball,
    displaced,
    gaussian,
    is_positive,
    lognormal,
    masses_at,
    opposite,
    tail,
)
from calipers_verify.sums import UNIT, SumPlan, connected, connecting, stop_loss_of

ROUNDS = 16
"""Of a block."""
BLOCKS = {"unit": UNIT, "places": range(1, 4000)}
POINTS = [Fraction(i, 2) for i in range(-12, 21)]
"""Of y."""
SOME, COUNT = (UNIT[0], Fraction(10**6)), range(1, 1 << 53)
WEIGHTS: dict[str, Any] = {"pool": range(1, 1000)}
WEIGHTS |= dict.fromkeys(("depth", "exponent", "tilt", "level", "level_tilt", "power"), SOME)
WEIGHTS |= {"many": COUNT, "few": COUNT}
LEVELS = [Fraction(i, 4) for i in range(-8, 49)]
"""Of lognormals, in deviations of their logarithm."""
TANGENTS, ORDERS = 32, 16
"""To 1/g, and moments of the mean of several lognormals."""


def middle(r: arb, k: arb, replaced: bool) -> StopLossBall:
    """The term of the control 1, Y spread onto 0 and a few points; what is beyond these, times E[W+] < 1, is added."""
    s, once = r * arb(3).sqrt() if replaced else r, lognormal(r)
    along = opposite(r, k) if replaced else lambda c: once(c + k)
    points = [arb(0), *((s * ball(y) - s * s / 2).exp() for y in POINTS)]
    heights = [lognormal(s)(y) for y in points]
    zero, *masses = masses_at(points, heights)

    def stop_loss(c: arb) -> arb:
        parts = (mass * y * along(c / y) for y, mass in zip(points[1:], masses, strict=True))
        return sum(parts, zero * (-c).max(arb(0)) + heights[-1])

    return stop_loss


def halves(r: arb, k: arb, replaced: bool) -> list[StopLossBall]:
    """The stop-loss transforms of X_half of both halves."""
    ends, inner = displaced(r, k, replaced), middle(r, k, replaced)
    return [lambda c: (inner if is_positive(c) else ends)(c), lambda c: (ends if is_positive(c) else inner)(c)]


def block_stop_loss(stop_losses: list[StopLossBall], unit: Fraction, places: int) -> StopLossBall:
    """c -> V_m(-c) for m = ROUNDS, on the lattice of so many places on either side of 0."""
    size = 2 * places
    spend(20_000 + 2 * ROUNDS * 5 * size)
    with ctx.workprec(192):
        terms = [connected(stop_loss, SumPlan(unit, (0,), (0,), 40, 20, -size, size)) for stop_loss in stop_losses]
    moves = [_moved(dense({-size: 0, size: 0} | term.atoms()).masses, fmpz(term.lost)) for term in terms]
    heights = [fmpz(max(0, -place) * ONE) for place in range(-places, places + 1)]
    for _ in range(ROUNDS):
        heights = [max(found) for found in zip(*(move(heights) for move in moves), strict=True)]
    return stop_loss_of(connecting([(i - places, 0, int(height)) for i, height in enumerate(heights)]), unit)


def _moved(masses: list[fmpz], lost: fmpz) -> Callable[[list[fmpz]], list[fmpz]]:
    """Heights to E[V(s + X)], rounded up: a term of value v turns the threshold c into c - v.

    V goes on with slope 1 below the thresholds and is constant above them: there, sums of masses are enough.
    """
    size, one, move = len(masses) // 2, fmpz(ONE), fmpz_poly(masses)
    above = list(accumulate(reversed(masses[size + 1 :]), initial=fmpz(0)))  # of the largest values
    linear = [one * mass for mass in reversed(list(accumulate(above)))]
    above, below = above[::-1], list(accumulate(masses[:size], initial=fmpz(0)))

    def moved(heights: list[fmpz]) -> list[fmpz]:
        row, first, last = (fmpz_poly(heights) * move).coeffs(), heights[0], heights[-1]
        row += [fmpz(0)] * (3 * size + 1 - len(row))
        parts = zip(row[size : 2 * size + 1], above, linear, below, strict=True)
        return [(mass + first * high + slope + last * low) // one + 1 + lost for mass, high, slope, low in parts]

    return moved


def records(size: int, batch: int, shift: Fraction, pool: int, depth: Fraction) -> tuple[arb, arb, arb, arb]:
    """(ratio, loss, exposed, alone) of the weights of later records: but for losses they differ by this ratio at most.

    In words of the documentation: rho, l_0, E[h; F] and E[A_u; F], where e^-depth is what one event may have.
    """
    rare, square = ball(-depth).exp(), ball(shift)
    if pool == 1:
        if batch < 3:
            raise Refused("where no remainder is dropped a pool of one batch should have three records at least")
        rate, ratio = Fraction((batch - 2) * (size - batch), size - 2), (2 * square).exp()
        return ratio, ball((depth + 1) / rate), ball(Fraction(batch, batch - 1)) * ratio * rare, arb(0)
    r, others = square.sqrt(), pool - 1
    y = r * (2 * ball(depth) / others).sqrt()
    if not y * others >= square:
        raise Refused("the depth of a pool should be larger")
    levels = [(r * ball(each)).exp() for each in LEVELS]
    stop_losses = [lognormal(r)(each) for each in levels]
    most = reduce(arb.min, (c + stop_loss / rare for c, stop_loss in zip(levels, stop_losses, strict=True)))
    each = most * (square / 2 + y).exp() / (batch * others)  # of H_u or Ubar, over H_o
    towards = square.exp()
    ratio = (1 + towards * (batch - 1) * each) / (1 + (batch - 1) * each / towards)
    reach = most / towards
    beyond = reduce(
        arb.min,
        (stop_loss / (reach - c) for c, stop_loss in zip(levels, stop_losses, strict=True) if c < reach),
        arb(1),
    )
    exposed = 3 * ball(Fraction(pool, others)) * (square / 2 + y).exp() * rare
    return ratio, towards * each / (1 + towards * each), exposed, rare + 2 * beyond


def weights(size: int, batch: int, shift: Fraction, cover: tuple[Any, ...]) -> tuple[arb, arb, arb, arb]:
    """(low, high, exposed, alone), or `Refused` where the constants do not fit together."""
    pool, depth, exponent, tilt, level, level_tilt, y, many, few = cover
    later, batches = Fraction(size, batch) - pool, -(-size // batch) - pool
    if later < 1 or not y < 1 <= level:
        raise Refused("where no remainder is dropped there should be a batch at least besides the pool")
    spend(2_000)
    ratio, loss, exposed, alone = records(size, batch, shift, pool, depth)
    if not loss < 1:
        raise Refused("the weights of later records may be lost")
    largest = ratio / (1 - loss) - 1
    variance = (ratio + 1) ** 2 / (4 * ratio * (1 - loss)) - 1

    def log_moment(tilt: Fraction) -> arb:  # of the weight of a batch, less 1 (Bennett)
        scaled = ball(tilt) * largest
        return batch * variance / largest**2 * (scaled.exp() - 1 - scaled)

    high = 1 + (log_moment(tilt) + ball(exponent) + arb(batches).log()) / ball(tilt * batch)
    high, exposed = high.min(1 + largest), 2 * ball(-exponent).exp() + exposed
    even = ball(later / (many + few))
    if even >= high:  # no weight is larger
        return even, even, exposed, alone
    spread = (log_moment(level_tilt) - ball(level_tilt * batch * (level - 1))).exp()
    factor = ball(y) * (ball((1 - y) / y) * ball(1 - y).log()).exp()
    beyond = (ball(exponent) + batches * (1 + factor * spread).log()) / ball(y * level_tilt * batch)
    low, room = (ball(later) - few * high) / many, high - ball(level)
    if not (room > 0 and low >= ball(level) and few * room >= beyond):
        raise Refused("the weights of later batches are not covered")
    return low, high, exposed, alone


def excess(r: arb, pool: int, y: arb) -> arb:
    """At least E[G (G - y)+], G the mean of `pool` lognormals: of one of them, or by a moment of all."""
    z = y.log() / r
    found = (r * r).exp() * tail(z - 3 * r / 2) - y * tail(z - r / 2)
    for p, moment in enumerate(_moments(r, pool)[3:], 2):
        found = found.min(ball(Fraction((p - 1) ** (p - 1), p**p)) * moment * y ** (1 - p))
    return found


def _moments(r: arb, pool: int) -> list[arb]:
    """E[G^j], from power series of E[e^(t G)]."""
    one = arb_poly([(r * r * (j * (j - 1)) / 2).exp() / factorial(j) for j in range(ORDERS)])
    total = arb_poly([1])
    for digit in f"{pool:b}":
        total = arb_poly((total * total).coeffs()[:ORDERS])
        total = arb_poly((total * one).coeffs()[:ORDERS]) if digit == "1" else total
    return [each * factorial(j) / arb(pool) ** j for j, each in enumerate(total.coeffs())]


def first_calls(r: arb, k: arb, replaced: bool, back: bool) -> tuple[StopLossBall, StopLossBall]:
    """The stop-loss transforms of X = A - k B and of -X, for one release: c > 0."""
    if replaced:
        other = opposite(r, 1 / k)
        return opposite(r, k), lambda c: k * other(c / k)
    once = lognormal(r)

    def put(c: arb) -> arb:  # at most c, if that is positive
        return once(c) - 1 + c if c > 0 else c.max(arb(0))

    if back:
        return lambda c: k * put((1 - c) / k), lambda c: k * once((1 + c) / k)
    return lambda c: once(k + c), lambda c: put(k - c)


def first_batch_stop_loss(x: Fraction, r: arb, replaced: bool, back: bool, pool: int) -> StopLossBall:
    """c -> J(-c) at the log ratio x >= 0: l stop-loss transforms of one release, at the best of some tangents to
    1/g.
    """
    k, known = ball(x).exp(), pool * gaussian(2 * r if replaced else r, ball(x))
    losing, missing = first_calls(r, k, replaced, back)
    ys = [((6 * r + 2) * ball(Fraction(i, TANGENTS) ** 2 - Fraction(1, 10))).exp() for i in range(TANGENTS + 1)]
    tangents = [(y, excess(r, pool, y) / y**2) for y in ys]

    def least(one: StopLossBall, size: arb) -> arb:
        spend(5 * TANGENTS)
        return reduce(arb.min, (pool * one(size / (pool * y)) + size * more for y, more in tangents))

    def stop_loss(c: arb) -> arb:
        if c > 0:
            return known.min(least(losing, c))
        return known if c == 0 else known.min(pool * (1 - k) + least(missing, -c)) - c

    return stop_loss
