"""Words, text and files of a report."""

from __future__ import annotations

import csv
import io
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.bracket import Bracket, Evidence, Kind, Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError, InputError
from calipers.reports.answers import Answers, Claimed, Questions
from calipers.reports.points import Points, to_csv, tradeoff_points
from calipers.reports.records import measurement_record, run_record, to_json
from calipers.reports.table import measurement_report, to_text
from calipers.reports.words import describe, describe_phases
from calipers.run import ADJACENCIES, NORMALIZATIONS, SAMPLERS, VIEWS, Run

BASE = Run(dataset_size=60_000, batch_size=256, epochs=60, noise_multiplier=1.1)


def test_every_choice_changes_the_sentence():
    changes = {"sampler": SAMPLERS, "normalization": NORMALIZATIONS, "adjacency": ADJACENCIES, "view": VIEWS}
    variants = [BASE.replace(**{name: value}) for name, values in changes.items() for value in values]
    variants += [BASE.replace(dimension=7), BASE.replace(steps=7), BASE.replace(noise_multiplier=1.10001)]
    assert len({describe(run) for run in variants}) == len(set(variants))


def test_one_of_something_is_singular():
    assert describe(BASE.replace(steps=1)).startswith("1 step of")
    assert "1 epoch)" in describe(BASE.replace(epochs=1))


def test_phases_are_numbered():
    lines = describe_phases((BASE, BASE.replace(noise_multiplier=2.0))).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Phase 1", "Phase 2"]
    assert describe_phases((BASE,)) == describe(BASE)


def test_json_is_strict():
    """Infinity becomes null, NaN is refused, doubles survive."""
    assert json.loads(to_json({"a": math.inf, "b": [0.1, -math.inf], "c": ({"d": 1},)})) == {
        "a": None,
        "b": [0.1, None],
        "c": [{"d": 1}],
    }
    with pytest.raises(CertificationError):
        to_json([{"x": math.nan}])


def test_the_run_in_json_is_a_run_file_in_json():
    assert Run.from_dict(run_record((BASE,))) == BASE
    assert [Run.from_dict(phase) for phase in run_record((BASE, BASE))["phase"]] == [BASE, BASE]


@given(values=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_csv_reads_back_as_the_same_doubles(values):
    points = Points(Side.UPPER, tuple(x for x, _ in values), tuple(y for _, y in values))
    header, *rows = csv.reader(io.StringIO(to_csv([points], "alpha", "beta")))
    assert header == ["side", "alpha", "beta"]
    assert [(float(x), float(y)) for _, x, y in rows] == values


@pytest.mark.parametrize(
    "bad",
    [
        {"deltas": (0.0,)},
        {"deltas": (1e-5, math.nan)},
        {"epsilons": (-1.0,)},
        {"epsilons": (math.inf,)},
        {"fprs": (0.0,)},
        {"fprs": (1.0,)},
        {"delta0": 1.0},
        {"delta0": math.nan},
    ],
)
def test_questions_lie_in_their_domains(bad):
    with pytest.raises(InputError, match="Expected " + next(iter(bad)).rstrip("s")):
        Questions(**bad)


def test_a_conjectured_value_is_shown_as_one_and_never_as_a_bound():
    proof, attack = (Evidence(kind, "x", "y") for kind in (Kind.THEOREM, Kind.TEST))
    open_one = Evidence(Kind.CONJECTURE, "The pair dominates.", "Chua et al. 2024, Conjecture 3.2")
    bracket, plain = Bracket(1.0, 3.0, attack, proof, (1.5, open_one)), Bracket(0.1, 0.2, attack, proof)
    answers = Answers(
        runs=(BASE,),
        epsilon=(Claimed(1e-5, bracket, 2.0),),
        delta=(),
        tpr=(),
        mu=plain,
        delta0=1e-10,
        regret=0.01,
        advantage=plain,
        separation=plain,
        notes=(),
    )
    (row,) = measurement_record(answers)["epsilon"]
    assert (row["lower"], row["upper"], row["conjectured"]["value"]) == (1.0, 3.0, 1.5)
    text = to_text(measurement_report(answers))
    assert "conjectured value (Chua et al. 2024, Conjecture 3.2)" in text
    assert "refuted" not in text


def test_a_curve_that_reaches_zero_early_is_written_up_to_one():
    """f(alpha) = max(0, 1 - 2 alpha): beta is 0 from alpha = 1/2 on."""
    curve = TradeoffCurve(np.array([0.0, 0.5]), np.array([1.0, 0.0]), None, None, Side.UPPER)
    measurement = SimpleNamespace(curve=lambda side: curve)
    assert tradeoff_points(measurement, [Side.UPPER]) == [Points(Side.UPPER, (0.0, 0.5, 1.0), (1.0, 0.0, 0.0))]
