"""Axes are round and honest, and drawings stay inside their frame."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from calipers.errors import InputError
from calipers.reports.chart import Axis, Chart, Interval, Intervals, Line, axis_for
from calipers.reports.svg import HEIGHT, LETTER, WIDTH, draw

sizes = st.floats(1e-12, 1e12)


@example(low=1.0, factor=200.0)  # 1, 2, 5, ..., 200 are eight
@given(low=sizes, factor=st.floats(1.5, 1e15))
def test_logarithmic_ticks_are_inside_and_few(low, factor):
    axis = Axis("x", low, low * factor, logarithmic=True)
    ticks = axis.ticks()
    assert len(ticks) <= 7
    places = [axis.place(value) for value, _ in ticks]
    assert places == sorted(places)
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)


@given(high=sizes)
def test_even_ticks_are_inside_and_labelled_by_their_value(high):
    ticks = Axis("x", 0.0, high).ticks()
    assert 2 <= len(ticks) <= 8
    assert all(float(label) == pytest.approx(value, rel=1e-5) for value, label in ticks)
    assert ticks[-1][0] <= high * (1 + 1e-8)


def test_powers_of_ten_are_spelled_as_everywhere():
    assert [label for _, label in Axis("x", 1e-5, 1.0, logarithmic=True).ticks()] == (
        ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]
    )


@pytest.mark.parametrize(
    ("low", "high", "logarithmic"), [(1.0, 1.0, False), (0.0, 1.0, True), (0.0, math.inf, False), (math.nan, 1, False)]
)
def test_an_impossible_axis_is_refused(low, high, logarithmic):
    with pytest.raises(InputError):
        Axis("x", low, high, logarithmic)


bounds = st.floats(0.0, 1e9)


@given(rows=st.lists(st.tuples(bounds, bounds, bounds), min_size=1, max_size=5), endless=st.booleans())
def test_intervals_keep_their_order_and_stay_in_the_picture(rows, endless):
    """Low jaw left of high jaw, whatever the values; an infinite end runs to the edge and has no jaw."""
    intervals = tuple(
        Interval("r", min(a, b), math.inf if endless else max(a, b), (("claim", "claim", c),)) for a, b, c in rows
    )
    text = draw(Intervals("n", "t", "d", axis_for("epsilon", intervals), intervals))
    beams = re.findall(r'class="beam" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"', text)
    assert len(beams) == len(rows)
    for left, right in beams:
        assert 0 <= float(left) <= float(right) <= WIDTH
    assert text.count('class="jaw attack"') == len(rows)
    assert text.count('class="jaw proof"') == (0 if endless else len(rows))


@given(label=st.text(min_size=1, max_size=200))
@example(label="long/" * 40)
def test_labels_do_not_leave_the_picture(label):
    """A long name is cut at its beginning, where paths differ least; markup in it is text."""
    text = draw(Intervals("n", "t", "d", Axis("x", 0.0, 1.0), (Interval(label, 0.1, 0.2), Interval("b", 0.1, 0.2))))
    shown, _ = re.findall(r'class="row"[^>]*>(.*?)</text>', text, flags=re.S)
    assert "<" not in shown
    assume(not re.search(r"[&<>\"']", label))
    assert len(shown) * LETTER <= WIDTH


def test_points_without_a_logarithm_are_left_out():
    """delta = 0 has no place on a logarithmic axis; the other points keep theirs."""
    chart = Chart(
        "c",
        "t",
        "d",
        Axis("x", 0.0, 1.0),
        Axis("y", 1e-3, 1.0, logarithmic=True),
        (Line("a", "proof", (0.0, 0.5, 1.0), (1.0, 0.0, 1e-3)),),
    )
    (points,) = re.findall(r'class="line proof" points="([^"]*)"', draw(chart))
    assert len(points.split()) == 2
    first, last = (tuple(map(float, p.split(","))) for p in points.split())
    assert first[0] < last[0] < WIDTH
    assert first[1] < last[1] < HEIGHT
