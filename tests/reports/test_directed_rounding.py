"""A printed bound is still a bound: rounding never flatters."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calipers.bracket import Bracket, Evidence, Kind
from calipers.errors import CertificationError
from calipers.numerics.decimals import ceil_digits, floor_digits, nearest_digits
from calipers.reports.document import ends

finite = st.floats(allow_nan=False, allow_infinity=False)
digits = st.integers(1, 17)


@given(value=finite, digits=digits)
@example(value=5e-324, digits=5)
@example(value=-5e-324, digits=5)
@example(value=math.nextafter(1, 0), digits=5)
@example(value=9.99999e6, digits=5)
@example(value=math.nextafter(1e-4, 0), digits=3)
@example(value=0.1, digits=17)
def test_printed_lower_and_upper_enclose_the_exact_double(value, digits):
    exact = Decimal(value)
    assert Decimal(floor_digits(value, digits)) <= exact <= Decimal(ceil_digits(value, digits))


@given(value=finite, digits=digits)
def test_printed_ends_are_as_close_as_the_digits_allow(value, digits):
    """They differ by at most one unit of the last printed digit of the larger of the two."""
    low, high = Decimal(floor_digits(value, digits)), Decimal(ceil_digits(value, digits))
    unit = Decimal((0, (1,), max(low.adjusted(), high.adjusted()) - digits + 1)) if value else Decimal(0)
    assert high - low <= unit
    assert Decimal(nearest_digits(value, digits)) in (low, high)


@given(value=finite, digits=digits)
def test_only_the_digits_asked_for_are_printed(value, digits):
    for text in (floor_digits(value, digits), ceil_digits(value, digits), nearest_digits(value, digits)):
        mantissa = text.split("e")[0].lstrip("-").replace(".", "").strip("0")
        assert len(mantissa) <= digits
        assert len(text) <= 25


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (1.828242, "1.8282", "1.8283"),
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (0.5, "0.5", "0.5"),
        (100.0, "100", "100"),
        (123456.0, "123450", "123460"),
        (3.00004e-7, "3e-7", "3.0001e-7"),
        (1e-5, "1e-5", "1.0001e-5"),
        (0.99999999, "0.99999", "1"),
        (-1.5, "-1.5", "-1.5"),
        (math.inf, "inf", "inf"),
        (-math.inf, "-inf", "-inf"),
    ],
)
def test_what_people_read(value, low, high):
    assert (floor_digits(value), ceil_digits(value)) == (low, high)


def test_nan_is_never_printed():
    for show in (floor_digits, ceil_digits, nearest_digits):
        with pytest.raises(CertificationError):
            show(math.nan)


@given(value=st.floats(0, 1e6), more=st.floats(0, 1e6))
@example(value=2.3796344858657865, more=0.0)
def test_a_bracket_prints_ends_that_hold(value, more):
    """str(bracket), which an interactive session and the documentation print, is rounded outward as well."""
    evidence = Evidence(Kind.TEST, "x", "y")
    bracket = Bracket(value, value + more, evidence, evidence)
    lower, upper = (Decimal(end) for end in str(bracket).strip("[]").split(", "))
    assert lower <= Decimal(bracket.lower)
    assert upper >= Decimal(bracket.upper)
    assert repr(bracket) == f"Bracket(lower={bracket.lower!r}, upper={bracket.upper!r})"


def test_jaws_open_outwards():
    evidence = Evidence(Kind.TEST, "x", "y")
    assert [number.text for number in ends(Bracket(1.00001, 1.99999, evidence, evidence))] == ["1", "2"]
