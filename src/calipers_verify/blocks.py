"""Blocks of rounds whose adversary has one control for all strikes: less than so many worst terms show.

`Displaced` is worse than every term an adversary can choose, because it lets him choose anew for every strike. One who
has chosen lives with both halves of his term. Up to convex order there is one choice, the control u in [0, 2]: with
d = 1 (zeroed out) or 2 (replaced) the term is a product of independent factors,

    X_u = Y W,    W = e^(p x - p^2/2) - k e^(q x - q^2/2),    Y = e^(s y - s^2/2),
    p = r u,      q = r (u - d),      s^2 = r^2 (2u - u^2)  or  r^2 (4 min(1, u) - u^2),

and calls with strikes above 0 grow with u, those with strikes below 0 fall (proven in the documentation, "one control
for every strike"). So the controls of a *cell* [u1, u2] lie below one variable: X_u2 where it is positive, X_u1 where
it is negative, 0 else. For a convex payoff V that increases with slope at most 1,

    V_0(s) = s+,      V_n(s) = max over cells of E[V_(n-1)(s + X_cell)],

is at least what n rounds can be made to pay, and c -> V_m(-c) the call of a variable that is above m rounds.

From above: each factor is split onto points, mean kept, on intervals where it is monotone; elsewhere it moves right.
Masses and values are rounded up; all of this only adds. What a term exceeds the lattice by is added to every payoff.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb, ctx, fmpz_poly

from calipers_verify.calls import ball, ceiling, tail
from calipers_verify.reading import Effort, Refused, fields, rational, whole
from calipers_verify.rows import divided

POINT, FINE = 1 << 64, 1 << 128
"""Values of atoms are whole numbers of 2^-64 lattice steps; masses and payoffs of 2^-128, less deep than elsewhere."""
PRECISION = 192
GRID = [Fraction(i, 8) for i in range(-80, 81)]
NARROW = Fraction(1, 1 << 80)
MOST_PLACES, MOST_DOUBLINGS, MOST_CELLS = 4000, 6, 8
Atoms = list[tuple[int, int]]
"""(value, mass)."""


class Blocks(NamedTuple):
    """A block has 2^doublings rounds; the number of cells, and the lattice -below, ..., above of running sums."""

    doublings: int
    cells: int
    unit: Fraction
    below: int
    above: int


def read_blocks(record: Any) -> Blocks:
    """The blocks in `record`. Any are safe; bad ones prove little."""
    record = fields(record, Blocks._fields, "blocks")
    return Blocks(
        whole(record["doublings"], 1, MOST_DOUBLINGS, "doublings"),
        whole(record["cells"], 1, MOST_CELLS, "cells"),
        rational(record["unit"], 0, 10**30, "unit"),
        whole(record["below"], 1, MOST_PLACES, "below"),
        whole(record["above"], 1, MOST_PLACES, "above"),
    )


class Payoff:
    """c -> V_m(-c) of a block."""

    def __init__(self, shift: Fraction, k: arb, replaced: bool, blocks: Blocks, effort: Effort) -> None:
        self.blocks, ends = blocks, [Fraction(2 * i, blocks.cells) for i in range(blocks.cells + 1)]
        self.size = blocks.below + blocks.above
        effort.spend(blocks.cells * (20_000 + 2 * self.size << blocks.doublings))
        with ctx.workprec(PRECISION):
            cells = [self._cell(shift, k, replaced, u1, u2) for u1, u2 in pairwise(ends)]
        self.heights = [max(0, place) * FINE for place in range(-blocks.below, blocks.above + 1)]
        for _ in range(1 << blocks.doublings):
            self.heights = self._before(cells)

    def __call__(self, c: arb) -> arb:
        """At least V_m(-c): convex, so below its chords; constant to the left of the lattice, of slope 1 beyond it."""
        unit = ball(self.blocks.unit)
        s = arb(self.blocks.below) - (c / unit).lower()  # an exact number of steps; V increases
        place = max(0, min(self.size - 1, int(s.floor().unique_fmpz())))
        first, second = self.heights[place], self.heights[place + 1]
        rise = (second - first) * (s - place).max(arb(0)).min(arb(1)) + FINE * (s - self.size).max(arb(0))
        return unit * (arb(first) + rise) / FINE

    def _before(self, cells: list[tuple[Any, int]]) -> list[int]:
        """The payoff one round earlier."""
        size, heights = self.size, self.heights
        row = [heights[0]] * size + heights + [heights[-1] + i * FINE for i in range(1, size + 1)]
        found, payoffs = [0] * (size + 1), fmpz_poly(row)
        for masses, beyond in cells:
            values = divided(payoffs * masses, FINE, 5 * size + 1, True)[2 * size : 3 * size + 1]
            found = [max(a, int(b) + beyond) for a, b in zip(found, values, strict=True)]
        return found

    def _cell(self, shift: Fraction, k: arb, replaced: bool, u1: Fraction, u2: Fraction) -> tuple[Any, int]:
        """Masses at size, size - 1, ..., -size steps, as a polynomial, and what exceeds them."""
        size, unit = self.size, ball(self.blocks.unit)
        masses, beyond, total = [0] * (2 * size + 1), 0, 0
        for u, sign in ((u1, -1), (u2, 1)):
            p, q, s = _shifts(shift, u, replaced)
            along, across = _along(p, q, k, unit, sign), _across(s)
            if sign > 0:  # E[A] beyond the last point of either factor; the other one's mean is below 2
                beyond += ceiling(2 * (tail(ball(GRID[-1]) - p) + tail(ball(GRID[-1]) - s)) / unit * FINE)
            for value, mass in along:
                total += mass
                for factor, share in across:
                    at = -(-value * factor // POINT)
                    weight = -(-mass * share // FINE)
                    place, part = divmod(max(at, -size * POINT), POINT)
                    if place >= size:
                        beyond += -(-weight * (at - size * POINT) // POINT)
                        place, part = size, 0
                    masses[size - place] += -(-weight * (POINT - part) // POINT)
                    if part:
                        masses[size - place - 1] += -(-weight * part // POINT)
        masses[size] += max(0, FINE - total)
        return fmpz_poly(masses), beyond


def _shifts(shift: Fraction, u: Fraction, replaced: bool) -> tuple[arb, arb, arb]:
    """(p, q, s) of the control u, for r^2 = shift."""
    r, across = ball(shift).sqrt(), 4 * min(Fraction(1), u) if replaced else 2 * u
    return r * ball(u), r * ball(u - (2 if replaced else 1)), ball(shift * (across - u * u)).sqrt()


def _along(p: arb, q: arb, k: arb, unit: arb, sign: int) -> Atoms:
    """W where it has this sign, in lattice steps; it changes its sign once, and grows from there on."""
    root = (k.log() + (p * p - q * q) / 2) / (p - q)
    near = Fraction(int((root * (1 << 80)).mid().floor().unique_fmpz()), 1 << 80)
    left, right = near - NARROW, near + 2 * NARROW
    if not (_ratio(p, q, k, left) < 1 < _ratio(p, q, k, right)):
        raise Refused("the precision does not tell where a term changes its sign")
    points = [left, right, *(x for x in GRID if x > right)] if sign > 0 else [*(x for x in GRID if x < left), left]
    found: dict[int, int] = {}
    values = [_density(p, x) - k * _density(q, x) for x in points]
    rises = [bool(q <= 0) or bool(p * _ratio(p, q, k, x) > q) for x in points]
    falls = [bool(p * _ratio(p, q, k, x) < q) for x in points]

    def add(value: arb, mass: arb) -> None:
        steps = ceiling(value / unit * POINT)
        found[steps] = found.get(steps, 0) + ceiling(mass * FINE)

    for i, (x, y) in enumerate(pairwise(points)):
        mass = _between(arb(0), x, y)
        if x == left or not ((rises[i] and rises[i + 1]) or (falls[i] and falls[i + 1])):
            add(values[i].max(values[i + 1]), mass)
            continue
        moment = _between(p, x, y) - k * _between(q, x, y)
        up = (moment - values[i] * mass) / (values[i + 1] - values[i])
        add(values[i + 1], up)
        add(values[i], mass - up)
    if sign > 0:
        add(values[-1], tail(ball(points[-1])))
    return list(found.items())


def _across(s: arb) -> Atoms:
    """Y, split onto 0 and a coarse grid."""
    if s == 0:
        return [(POINT, FINE)]
    found = {0: 0}
    points = GRID[::3]
    values = [arb(0), *(_density(s, y) for y in points)]
    masses = [tail(-ball(points[0])), *(_between(arb(0), x, y) for x, y in pairwise(points))]
    moments = [tail(s - ball(points[0])), *(_between(s, x, y) for x, y in pairwise(points))]
    for (low, high), mass, moment in zip(pairwise(values), masses, moments, strict=True):
        up = (moment - low * mass) / (high - low)
        for value, part in ((low, mass - up), (high, up)):
            place = ceiling(value * POINT)
            found[place] = found.get(place, 0) + ceiling(part * FINE)
    found[place] += ceiling(tail(ball(points[-1])) * FINE)
    return list(found.items())


def _density(p: arb, x: Fraction) -> arb:
    """Of N(p, 1) relative to N(0, 1)."""
    return (p * ball(x) - p * p / 2).exp()


def _ratio(p: arb, q: arb, k: arb, x: Fraction) -> arb:
    """A / (k B), which grows."""
    return _density(p, x) / (k * _density(q, x))


def _between(p: arb, x: Fraction, y: Fraction) -> arb:
    """The mass of N(p, 1) between two points."""
    return tail(ball(x) - p) - tail(ball(y) - p)
