"""Numbers as decimal text, rounded in the direction that keeps them bounds.

A lower bound printed with fewer digits is still a lower bound only if it is rounded down, an upper
bound only if it is rounded up. A double is a finite binary fraction, so it has an exact decimal
expansion; rounding that expansion (never the double) makes the direction certain:

    Decimal(floor_digits(x)) <= x <= Decimal(ceil_digits(x))    for every finite double x.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

from calipers.errors import CertificationError

DIGITS = 5
# Fixed notation inside this range of decimal exponents (0.001 to 9999999), scientific outside (1e-4, 1e7).
FIXED_EXPONENTS = range(-3, 7)


def floor_digits(value: float, digits: int = DIGITS) -> str:
    """The largest decimal of that many significant digits with printed <= value."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def ceil_digits(value: float, digits: int = DIGITS) -> str:
    """The smallest decimal of that many significant digits with printed >= value."""
    return _rounded(value, digits, decimal.ROUND_CEILING)


def nearest_digits(value: float, digits: int = DIGITS) -> str:
    """The nearest decimal. For numbers that are no bounds: settings, estimates, claims somebody typed."""
    return _rounded(value, digits, decimal.ROUND_HALF_EVEN)


def claim_digits(value: float, digits: int = DIGITS) -> str:
    """A number as it was typed, where it was; what was computed (a claim, a noise) is rounded up, as everywhere."""
    typed = nearest_digits(value, digits)
    return typed if float(typed) == value else ceil_digits(value, digits)


def end_digits(lower: float, upper: float, stated: float | None = None) -> tuple[str, str]:
    """Both ends of a bracket, rounded outward; but an end that is the stated number, as it was stated.

    An upper end may lie above the stated number by rounding errors: what is stated is itself a bound.
    """
    if stated is None:
        return floor_digits(lower), ceil_digits(upper)
    return (
        setting(stated) if lower == stated else floor_digits(lower),
        setting(stated) if math.isclose(upper, stated, rel_tol=1e-9) else ceil_digits(upper),
    )


def setting(value: float) -> str:
    """A setting as people write it, and as every page of Calipers does: 1e-5, 0.01, 1234."""
    return nearest_digits(value, 12)


def directed(value: float, digits: int, kind: str, *, up: bool) -> str:
    """The value as format(value, f".{digits}{kind}") writes it (f, e, g or %), rounded up or down and never past it."""
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    if kind == "g" or not math.isfinite(value):
        return _rounded(value, max(digits, 1), rounding)
    exact = Decimal(value).scaleb(2, _EXACT) if kind == "%" else Decimal(value)
    if kind == "e":
        return f"{decimal.Context(prec=digits + 1, rounding=rounding).create_decimal(exact):.{digits}e}"
    fixed = exact.quantize(Decimal(1).scaleb(-digits), rounding, _EXACT)
    return f"{_EXACT.add(fixed, Decimal(0)):f}{'%' if kind == '%' else ''}"  # -0.00 is 0.00


_EXACT = decimal.Context(prec=2000)
"""Enough for all digits of every double: 309 before the point and 1,074 after it."""


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isnan(value):
        raise CertificationError("NaN is no bound and cannot be printed as one.")
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    context = decimal.Context(prec=digits, rounding=rounding)
    rounded = context.create_decimal(Decimal(value))
    return "0" if rounded == 0 else _written(rounded)


def _written(number: Decimal) -> str:
    """The decimal without loss: fixed notation for ordinary magnitudes, scientific for the others."""
    exponent = number.adjusted()
    if exponent in FIXED_EXPONENTS:
        fixed = f"{number:f}"
        return fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    sign, figures, _ = number.as_tuple()
    first, *rest = map(str, figures)
    fraction = "".join(rest).rstrip("0")
    return f"{'-' if sign else ''}{first}{'.' + fraction if fraction else ''}e{exponent}"
