"""Numbers for people: how many digits, and both ends of a bracket rounded outward."""

from __future__ import annotations

from calipers.bracket import Bracket
from calipers.numerics.decimals import DIGITS, ceil_digits, claim_digits, floor_digits, nearest_digits, setting

__all__ = ["DIGITS", "ceil_digits", "claim_digits", "floor_digits", "jaws", "nearest_digits", "setting"]


def jaws(bracket: Bracket, digits: int = DIGITS) -> tuple[str, str]:
    """Both ends, the lower one rounded down and the upper one rounded up."""
    return floor_digits(bracket.lower, digits), ceil_digits(bracket.upper, digits)
