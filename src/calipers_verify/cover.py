"""Shuffled epochs that use every record: the one who makes room for another is seen in the first batch.

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

from flint import arb

from calipers_verify.calls import Call, ball, gaussian, tail
from calipers_verify.reading import Rational, Refused, Whole
from calipers_verify.sums import Plan

_SOME = Rational(10**6)
COVER = {
    "loss": Rational(Fraction(9, 10)),
    "exponent": _SOME,
    "tilt": _SOME,
    "level": Rational(10**6, 1),
    "level_tilt": _SOME,
    "power": Rational(Fraction(99, 100)),
    "many": Whole(1, 1 << 53),
    "few": Whole(1, 1 << 53),
}
GRID = [Fraction(i, 10) for i in range(-120, 121)]
"""Of the noise of the first batch."""


def weights(size: int, batch: int, shift: Fraction, cover: dict[str, Any]) -> tuple[arb, arb, arb]:
    """(low, high, exposed), or `Refused` where the constants do not fit together."""
    later, batches = Fraction(size, batch) - 1, -(-size // batch) - 1
    if batch < 3 or later < 1:
        raise Refused("where nothing is left over there should be two batches of three records at least")
    ratio, exponent = ball(2 * shift).exp(), ball(cover["exponent"])
    loss, rate = cover["loss"], Fraction((batch - 2) * (size - batch), size - 2)
    largest = ratio / ball(1 - loss) - 1
    variance = (ratio + 1) ** 2 / (4 * ratio * ball(1 - loss)) - 1

    def log_moment(tilt: Fraction) -> arb:  # of the weight of a batch, less 1 (Bennett)
        scaled = ball(tilt) * largest
        return batch * variance / largest**2 * (scaled.exp() - 1 - scaled)

    tilt, level_tilt, y = cover["tilt"], cover["level_tilt"], cover["power"]
    high = 1 + (log_moment(tilt) + exponent + arb(batches).log()) / ball(tilt * batch)
    spread = (log_moment(level_tilt) - ball(level_tilt * batch * (cover["level"] - 1))).exp()
    factor = ball(y) * (ball((1 - y) / y) * ball(1 - y).log()).exp()
    beyond = (exponent + batches * (1 + factor * spread).log()) / ball(y * level_tilt * batch)
    low = (ball(later) - cover["few"] * high) / cover["many"]
    level = ball(cover["level"])
    if not (rate * loss >= 1 and high > level and low >= level and cover["few"] * (high - level) >= beyond):
        raise Refused("the weights of later batches are not covered")
    unseen = ball(Fraction(batch, batch - 1)) * ratio * (1 - ball(rate * loss)).exp()
    return low, high, 2 * (-exponent).exp() + unseen


def rough(plan: Plan) -> Plan:
    """The plan of a single term that is flat and far: the first batch."""
    return plan._replace(centers=(0,), lowest=(plan.lowest[0] + 2,), reach=16, tail=8, high=plan.high << 10)


def seen(x: arb, mu: arb, far: arb) -> Call:
    """tau -> K, at least E[(rho - tau/y)+] of the first batch: rho and the mean of y at their largest in every cell."""
    floor = (1 - x.exp()).max(arb(0))
    cells = []
    for a, b in pairwise(GRID):
        rho = (1 - (x - mu * ball(b) - mu * mu / 2).exp()).max(floor)
        distance = ball(max(abs(a), abs(b)))
        slope = far.min(distance)
        y = (far * far + slope * distance - slope * slope / 2).exp()
        cells.append((rho * (tail(ball(a)) - tail(ball(b))), rho * y / 4))
    cells = [(mass, most) for mass, most in cells if not mass <= 0]
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
