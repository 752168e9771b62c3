"""Printed numbers are intervals, and a comparison with a bracket has three outcomes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from calipers.errors import InputError
from calipers.papers.items import Agreement, Data, Published, Row, printed


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("1.57", "1.565", "1.575"), ("1.3", "1.25", "1.35"), ("0.50", "0.495", "0.505"), ("61", "60.5", "61.5")],
)
def test_a_printed_number_stands_for_what_rounds_to_it(text, low, high):
    """The interval is half a unit of the last printed digit each way, so "1.3" and "1.30" differ."""
    found = printed(text)
    assert (found.low, found.high) == (float(Fraction(low)), float(Fraction(high)))
    assert found.value == float(text)


@pytest.mark.parametrize(
    ("text", "low", "high"), [("< 0.01", -math.inf, 0.01), ("<= 1", -math.inf, 1), ("> 0", 0, math.inf)]
)
def test_a_relation_is_a_half_line_without_a_value(text, low, high):
    assert printed(text) == Published(text, low, high, None)


def test_printed_refuses_words():
    with pytest.raises((InputError, ArithmeticError)):
        printed("NaN")


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (1.566, 1.574, Agreement.AGREES),
        (1.565, 1.575, Agreement.AGREES),
        (1.56, 1.57, Agreement.UNDECIDED),
        (1.57, 1.58, Agreement.UNDECIDED),
        (1.4, 1.8, Agreement.UNDECIDED),
        (1.576, 1.58, Agreement.DIFFERS),
        (1.5, 1.5649, Agreement.DIFFERS),
    ],
)
def test_verdicts(lower, upper, verdict):
    """Inside: agrees. Disjoint: differs. Anything else decides nothing."""
    assert Row("x", printed("1.57"), lower, upper).verdict is verdict
    assert Row("x", None, lower, upper).verdict is Agreement.NOT_PRINTED


def test_the_difference_is_ours_less_theirs():
    assert Row("x", printed("2.0"), 2.25, 2.75).difference == 0.5
    assert Row("x", printed("< 2"), 1.0, 1.5).difference is None
    assert Row("x", printed("2.0"), 1.0, math.inf).difference is None


@pytest.mark.parametrize(("lower", "upper"), [(2.0, 1.0), (math.nan, 1.0), (0.0, math.nan)])
def test_a_row_needs_a_bracket(lower, upper):
    with pytest.raises(InputError):
        Row("x", None, lower, upper)


def test_columns_of_unequal_length_are_refused():
    assert list(Data.of_columns("d", {"a": [1, 2], "b": [3, 4]}).rows) == [(1, 3), (2, 4)]
    with pytest.raises(ValueError, match="argument 2"):
        Data.of_columns("d", {"a": [1, 2], "b": [3]})
