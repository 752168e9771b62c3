"""A bracket in a format string: both ends rounded outward, whatever the format."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers as cp
from calipers.bracket import Bracket, Evidence, Kind

WHY = Evidence(Kind.THEOREM, "A test.", "A test")
ends = st.floats(min_value=0, max_value=1e300, allow_nan=False)


def bracket(lower: float, upper: float) -> Bracket:
    return Bracket(lower, upper, WHY, WHY)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (".2f", "[0.71, 0.75]"),
        (".3e", "[7.187e-1, 7.500e-1]"),
        (".2g", "[0.71, 0.75]"),
        (".1%", "[71.8%, 75.0%]"),
        (".0f", "[0, 1]"),
        (">16.2f", "    [0.71, 0.75]"),
        ("", "[0.71875, 0.75]"),
        ("<20", "[0.71875, 0.75]".ljust(20)),
    ],
)
def test_formats(spec, text):
    assert format(bracket(0.71875, 0.75), spec) == text


@given(ends, ends, st.sampled_from("feg"), st.integers(0, 12))
def test_what_is_printed_holds(one, other, kind, digits):
    lower, upper = sorted((one, other))
    low, high = format(bracket(lower, upper), f".{digits}{kind}").strip("[]").split(", ")
    assert Decimal(low) <= Decimal(lower)
    assert Decimal(high) >= Decimal(upper)


@given(ends, ends, st.integers(0, 6))
def test_percents_hold(one, other, digits):
    lower, upper = sorted((one, other))
    low, high = (text.rstrip("%") for text in format(bracket(lower, upper), f".{digits}%").strip("[]").split(", "))
    assert Fraction(low) / 100 <= Fraction(lower)
    assert Fraction(high) / 100 >= Fraction(upper)


def test_an_infinite_end_is_inf():
    assert f"{bracket(1.234, math.inf):.1f}" == "[1.2, inf]"


@pytest.mark.parametrize("spec", ["x", ".2", "d", ".2n", "q.2f"])
def test_other_formats_are_refused(spec):
    with pytest.raises(ValueError, match=r"write '\.2f'"):
        format(bracket(0.5, 0.6), spec)


def test_names_of_a_measurement_are_names():
    """What was computed is kept in one private place, not under names that no attribute can have."""
    found = cp.measure(cp.Run(sample_rate=1.0, steps=4, noise_multiplier=2.0))
    found.tpr(0.1)
    assert all(name.isidentifier() for name in dir(found))
