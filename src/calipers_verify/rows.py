"""Rows of masses, in whole numbers only: products, sums, coarser lattices, and doubling.

A mass is a whole number of 2^-256. Upper bounds and false positives are rounded up, powers of tests down; every
function that rounds says which way with `up`. FLINT multiplies polynomials exactly, so nothing else is ever rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple, TypeVar

from flint import fmpz, fmpz_poly

from calipers_verify.reading import Refused, spend

ONE = 1 << 256
MOST_PLACES = 1 << 18
HALVES = (ONE // 2, ONE // 2)
Anything = TypeVar("Anything")


class Row(NamedTuple):
    """Masses at the places low, low + 1, ..."""

    low: int
    masses: list[Any]


EMPTY = Row(0, [])


def dense(found: dict[int, int]) -> Row:
    """The row with these masses at these places, and 0 between them."""
    return plus(*(Row(place, [fmpz(mass)]) for place, mass in found.items()))


def plus(*rows: Row) -> Row:
    """All of them together."""
    filled = [row for row in rows if row.masses]
    if len(filled) < 2:
        return filled[0] if filled else EMPTY
    low, end = min(row.low for row in filled), max(row.low + len(row.masses) for row in filled)
    if end - low > MOST_PLACES:
        raise Refused(f"places, or scores, spread over more than {MOST_PLACES} of them")
    spend((end - low) // 8)
    masses = [fmpz(0)] * (end - low)
    for row in filled:
        start, end = row.low - low, row.low - low + len(row.masses)
        masses[start:end] = map(add, masses[start:end], row.masses)
    return Row(low, masses)


def rounded(values: Any, count: int, up: bool) -> list[Any]:
    """The first `count` coefficients of a polynomial that has none below 0, divided by 2^256, each down or up."""
    found: list[Any] = (values // fmpz(ONE)).coeffs()
    found += [fmpz(0)] * (count - len(found))
    return [mass + 1 for mass in found] if up else found


def product(first: Row, second: Row, up: bool) -> Row:
    """Masses multiply, places add."""
    if not first.masses or not second.masses:
        return EMPTY
    count = len(first.masses) + len(second.masses) - 1
    if count > MOST_PLACES:
        raise Refused("a product has too many places")
    spend(count + 20)
    one = fmpz_poly(first.masses)
    other = one if second is first else fmpz_poly(second.masses)  # FLINT squares faster than it multiplies
    return Row(first.low + second.low, rounded(one * other, count, up))


def coarser(row: Row, up: bool, shares: tuple[int, int] = HALVES) -> Row:
    """The row on the lattice of twice the spacing; odd places give these shares (in 2^-256) to their neighbors."""
    first, (low, masses) = row.low % 2, row
    odd = masses[1 - first :: 2]
    if shares == HALVES:
        each = [[(mass + up) >> 1 for mass in odd]] * 2
    else:
        each = [rounded(fmpz_poly(odd) * fmpz(share), len(odd), up) for share in shares]
    parts = [Row(low // 2 + side, found) for side, found in enumerate(each)]
    return plus(Row((low + first) // 2, masses[first::2]), *parts)


def window(masses: list[Any], dust: int) -> tuple[int, int]:
    """(start, end) of the places that remain when at most `dust` is cut at each end."""
    last = len(masses) - 1  # no mass is below 0, so sums from an end never fall
    start, cut = (min(last, bisect_right(list(accumulate(row)), dust)) for row in (masses, masses[::-1]))
    return min(start, last - cut), len(masses) - cut


def composed(
    parts: list[tuple[Anything, int]],
    every: int,
    halve: Callable[[Anything], Anything],
    join: Callable[[Anything, Anything, int], Anything],
) -> Anything:
    """So many independent copies of each part, joined by doubling.

    All are halved before every so-many-th doubling (0: never), so that lattices get coarser as sums get wider. join is
    revealed about how often its result, and others like it, will be used: what it loses counts so many times.
    """
    results: list[Anything] = []
    doublings = max(count for _, count in parts).bit_length()
    for j in range(doublings):
        if every and j and j % every == 0:
            parts, results = [(halve(one), count) for one, count in parts], [halve(one) for one in results]
        uses = doublings << (doublings - 1 - j)
        for one, count in parts:
            if count >> j & 1:
                results = [join(results[0], one, uses) if results else one]
        parts = [(join(one, one, uses), count) for one, count in parts if count >> (j + 1)]
    return results[0]
