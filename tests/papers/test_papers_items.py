"""Printed numbers are intervals, and a comparison with a bracket has three outcomes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from calipers.errors import InputError
from calipers.papers.drawing import drawn
from calipers.papers.items import Agreement, Published, Row, printed
from calipers.papers.sheets import Computed, Sheet, rows_of


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
    assert Sheet.of_columns("d", {"a": [1, 2], "b": [3, 4]}).data.rows == [[1, 3], [2, 4]]
    with pytest.raises(ValueError, match="argument 2"):
        Sheet.of_columns("d", {"a": [1, 2], "b": [3]})


def test_a_table_lists_its_cells_and_both_sides_of_a_bracket():
    """What stands beside serves rows and pictures; a table without listed cells makes no file."""
    table = Sheet("runs").add(steps=3, delta=(0.1, 0.2)).unlisted(ratio=2.0)
    assert (table.data.header, table.data.rows) == (("steps", "delta_lower", "delta_upper"), [[3, 0.1, 0.2]])
    assert (table.column("delta_upper"), table.column("ratio"), table.where(steps=4)) == ([0.2], [2.0], [])
    assert Sheet("aside", listed=False).add(steps=3).data is None
    assert Sheet("claims").unlisted(mu=1.0).data is None


def test_rows_are_views_of_records():
    """Names in braces are cells, facts or printed numbers; a name alone is the thing itself; no cell, no row."""
    table = Sheet("runs").add(sigma=0.5, mu=(1.566, 1.57)).unlisted(said=printed("1.57"))
    table.add(sigma=1.0, mu=0.9).unlisted(said="", excess=3.0)
    each = [
        {"quantity": "σ = {sigma:g}: μ", "value": "mu", "printed": "{said}", "note": "T = {STEPS}"},
        {"quantity": "σ = {sigma:g}: excess", "value": "excess", "printed": "> {least:g}", "basis": "estimate"},
    ]
    found = Computed([Sheet("other"), table], {"least": 4})
    rows = list(rows_of([{"of": "runs", "each": each}], found, {"STEPS": 7, **found.facts}))
    assert rows == [
        Row("σ = 0.5: μ", printed("1.57"), 1.566, 1.57, "bracket", "T = 7"),
        Row("σ = 1: μ", None, 0.9, 0.9, "bracket", "T = 7"),
        Row("σ = 1: excess", printed("> 4"), 3.0, 3.0, "estimate"),
    ]
    assert [row.verdict for row in rows] == [Agreement.AGREES, Agreement.NOT_PRINTED, Agreement.DIFFERS]
    with pytest.raises(InputError, match="excesss"):
        list(rows_of([{"of": "runs", "each": [{"quantity": "x", "value": "excesss"}]}], found, {}))


def test_a_picture_draws_one_line_for_each_value_and_leaves_out_what_a_logarithm_cannot_show():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    table = Sheet("runs")
    for sigma in (0.5, 1.0):
        for steps in (1, 2, 3):
            table.add(sigma=sigma, steps=steps, delta=(0.1 * steps - 0.1, 0.1 * steps))
    draw = [
        {"by": ["sigma"], "x": "steps", "y": "delta_lower", "label": "σ = {sigma:g}", "look": {"ls": "--"}},
        {"x": "steps", "y": ["delta_lower", "delta_upper"], "where": {"sigma": 0.5}},
        {"across": "{edge}", "where": {"sigma": 0.5, "steps": 1}, "text": "edge {edge}"},
    ]
    panel = {"draw": draw, "legend": "best", "set": {"yscale": "log"}, "title": "{what}"}
    drawn({"size": [3, 2], "panels": [panel]}, Computed([table]), {"edge": 0.2, "what": "Both"}).draw(figure)
    (ax,) = figure.axes
    assert [line.get_label() for line in ax.lines[:2]] == ["σ = 0.5", "σ = 1"]
    assert list(ax.lines[0].get_ydata()) == pytest.approx([0.0, 0.1, 0.2])
    assert not math.isfinite(ax.transData.transform((1, 0.0))[1])
    assert (ax.get_title(), len(ax.collections), ax.texts[0].get_text()) == ("Both", 1, "edge 0.2")
