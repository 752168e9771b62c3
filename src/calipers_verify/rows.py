"""Rows of masses, in whole numbers only: products, sums, coarser lattices, and doubling.

A mass is a whole number of 2^-256. Upper jaws and false positives are rounded up, powers of tests down; every function
that rounds says which way with `up`. FLINT multiplies polynomials exactly, so nothing else is ever rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from flint import fmpz, fmpz_poly

from calipers_verify.reading import Effort, Refused

BITS = 256
ONE = 1 << BITS
MOST_PLACES = 1 << 18
HALVES = (ONE // 2, ONE // 2)
Anything = TypeVar("Anything")


class Row(NamedTuple):
    """Masses at the places low, low + 1, ..."""

    low: int
    masses: list[Any]


def dense(found: dict[int, int]) -> Row:
    """The row with these masses at these places, and 0 between them."""
    low, high = min(found), max(found)
    if high - low >= MOST_PLACES:
        raise Refused("a row spreads over too many places")
    masses = [fmpz(0)] * (high - low + 1)
    for place, mass in found.items():
        masses[place - low] = fmpz(mass)
    return Row(low, masses)


def divided(values: Any, divisor: int, count: int, up: bool) -> list[Any]:
    """The `count` coefficients of a polynomial, each divided and rounded."""
    if up:
        values = values + fmpz_poly([divisor - 1] * count)
    found: list[Any] = (values // fmpz(divisor)).coeffs()
    return found + [fmpz(0)] * (count - len(found))


def product(first: Row, second: Row, up: bool, effort: Effort) -> Row:
    """Masses multiply, places add."""
    count = len(first.masses) + len(second.masses) - 1
    if count > MOST_PLACES:
        raise Refused("a product has too many places")
    effort.spend(count)
    exact = fmpz_poly(first.masses) * fmpz_poly(second.masses)
    return Row(first.low + second.low, divided(exact, ONE, count, up))


def plus(first: Row | None, second: Row | None) -> Row | None:
    """Both together."""
    if first is None or second is None:
        return second if first is None else first
    low = min(first.low, second.low)
    end = max(row.low + len(row.masses) for row in (first, second))
    if end - low > MOST_PLACES:
        raise Refused("a row spreads over too many places")
    masses = [fmpz(0)] * (end - low)
    for row in (first, second):
        for i, mass in enumerate(row.masses, row.low - low):
            masses[i] += mass
    return Row(low, masses)


def halved(row: Row, shares: tuple[int, int], up: bool) -> Row:
    """The row on the lattice of twice the spacing; odd places give these shares (in 2^-256) to their neighbors."""
    low, masses = row
    if low % 2:
        low, masses = low - 1, [fmpz(0), *masses]
    if len(masses) % 2 == 0:
        masses = [*masses, fmpz(0)]
    even, odd = masses[0::2], fmpz_poly(masses[1::2])
    for side, share in enumerate(shares):
        for i, mass in enumerate(divided(odd * fmpz(share), ONE, len(even) - 1, up), side):
            even[i] += mass
    return Row(low // 2, even)


def window(masses: list[Any], dust: int) -> tuple[int, int]:
    """(start, end) of the places that remain when at most `dust` is cut at each end."""
    start, end, cut = 0, len(masses), 0
    while end > 1 and cut + masses[end - 1] <= dust:
        end -= 1
        cut += masses[end]
    cut = 0
    while start < end - 1 and cut + masses[start] <= dust:
        cut += masses[start]
        start += 1
    return start, end


def composed(
    parts: list[tuple[Anything, int]],
    every: int,
    halve: Callable[[Anything], Anything],
    join: Callable[[Anything, Anything, int], Anything],
) -> Anything:
    """So many independent copies of each part, joined by doubling.

    All are halved before every so-many-th doubling (0: never), so that lattices get coarser as sums get wider. join is
    told about how often its result, and others like it, will be used: what it loses counts so many times.
    """
    result: Anything | None = None
    doublings = max(count for _, count in parts).bit_length()
    for j in range(doublings):
        if every and j and j % every == 0:
            parts = [(halve(one), count) for one, count in parts]
            result = None if result is None else halve(result)
        uses = doublings << (doublings - 1 - j)
        for one, count in parts:
            if count >> j & 1:
                result = one if result is None else join(result, one, uses)
        parts = [(join(one, one, uses), count) for one, count in parts if count >> (j + 1)]
    assert result is not None
    return result
