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
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import CertificationError, InputError
from calipers.measure import measure
from calipers.reports.answers import Answers, Questions
from calipers.reports.compared import brief_comparison
from calipers.reports.comparison import Comparison
from calipers.reports.points import PlottedSide, to_csv, tradeoff_points
from calipers.reports.readings import Reading, claimed
from calipers.reports.records import run_record, to_json
from calipers.reports.report import brief_measurement
from calipers.reports.terminal import to_text
from calipers.reports.words import describe, describe_phases
from calipers.run import ADJACENCIES, NORMALIZATIONS, SAMPLERS, VIEWS, Run
from calipers.samplers import scheme_named

BASE = Run(dataset_size=60_000, batch_size=256, epochs=60, noise_multiplier=1.1)


def test_every_choice_changes_the_sentence():
    changes = {"normalization": NORMALIZATIONS, "adjacency": ADJACENCIES, "view": VIEWS}
    variants = [BASE.replace(**{name: value}) for name, values in changes.items() for value in values]
    variants += [BASE.replace(**scheme_named(sampler).counterpart(BASE)) for sampler in SAMPLERS]
    variants += [BASE.replace(unit="user", records_per_unit=1), BASE.replace(unit="user", records_per_unit=20)]
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
    points = PlottedSide(Side.UPPER, tuple(x for x, _ in values), tuple(y for _, y in values))
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


def test_a_curve_that_reaches_zero_early_is_written_up_to_one():
    """f(alpha) = max(0, 1 - 2 alpha), or 1/2 - alpha/2 in the other order: beta is 0 from alpha = 1/2 on."""
    curve = TradeoffCurve(np.array([0.0, 0.5]), np.array([1.0, 0.0]), None, None, Side.UPPER)
    measurement = SimpleNamespace(envelope=lambda side: Envelope((curve,)))
    (points,) = tradeoff_points(measurement, [Side.UPPER])
    assert points.x == pytest.approx((0.0, 1 / 3, 0.5, 1.0), abs=1e-14)
    assert points.y == pytest.approx((0.5, 1 / 3, 0.0, 0.0), abs=1e-14)
    assert (points.x[-1], points.y[-1]) == (1.0, 0.0)


def test_a_written_curve_never_rises():
    """Rounding lets beta rise in its last digit; what is written falls, below the proof's and above the attack's."""
    measurement = measure(Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0))
    for side, sign in ((Side.UPPER, 1.0), (Side.LOWER, -1.0)):
        (points,), found = tradeoff_points(measurement, [side]), measurement.envelope(side).breakpoints()[1]
        assert np.any(np.diff(found) > 0.0)
        assert not np.any(np.diff(points.y) > 0.0)
        assert np.all(sign * (found - points.y[: len(found)]) >= 0.0)


def test_evidence_is_told_once_and_names_what_it_licenses():
    """Ends are named, all of one side in two words; sentences that an earlier piece began with are not repeated."""
    proof = Evidence(Kind.THEOREM, "Gaussians compose.", "A 2020")
    one, two = (Evidence(Kind.TEST, f"All gradients are zero. Reject above {t}.", "B 2021") for t in (1, 2))
    bracket, other = Bracket(0.25, 0.5, one, proof), Bracket(0.25, 0.5, two, proof)
    readings = (
        claimed("epsilon", 1e-5, bracket, 2.0, (BASE,)),
        Reading("tpr", 0.1, other),
        Reading("tpr", 0.01, other),
        Reading("advantage", None, bracket),
        Reading("separation", None, bracket),
        Reading("mu", 1e-10, other),
    )
    document = brief_measurement(Answers((BASE,), readings, 1e-10, 0.01), 1e-3)
    text = " ".join(to_text(document, explain=True).split())
    assert "every upper value: proof. Gaussians compose. [A 2020]" in text
    assert (
        "epsilon at delta = 1e-5 (lower); advantage, largest TPR - FPR (lower); separation (lower): attack. "
        "All gradients are zero. Reject above 1. [B 2021]" in text
    )
    assert (
        "TPR at FPR = 0.1, 0.01 (lower); mu up to delta0 = 1e-10 (lower): attack on the same data as for epsilon at "
        "delta = 1e-5. Reject above 2. [B" in text
    )
    assert text.count("All gradients are zero.") == 1
    assert "behind each number." in to_text(document)
    assert "Gaussians compose." not in to_text(document)


def test_runs_side_by_side_keep_both_ends_of_a_bracket_whole():
    """On one line where all of them fit, else one below the other in every row; a number is never cut."""
    evidence = Evidence(Kind.TEST, "x", "y")
    bracket, short = Bracket(0.00123451, 0.00678912, evidence, evidence), Bracket(1.0, 2.0, evidence, evidence)
    readings = (
        Reading("advantage", None, bracket),
        Reading("separation", None, bracket),
        Reading("mu", 1e-10, short),
    )
    answers = Answers((BASE,), readings, 1e-10, 0.01, ("ComparedRun once.",))
    for count, together in ((2, True), (4, False)):
        names = tuple(f"run-{number}.toml" for number in range(count))
        text = to_text(brief_comparison(Comparison(names, (answers,) * count, ())))
        rows = [line.split() for line in text.splitlines() if "0.0012345" in line]
        whole = ["0.0012345", "..", "0.0067892"] if together else ["0.0012345", ".."]
        assert [row[-len(whole) * count :] for row in rows] == [whole * count] * 2
        assert ("1 .. 2" in text) is together
        assert text.count("0.0067892") == 2 * count
        assert text.count("ComparedRun once.") == 1
        assert "All: ComparedRun once." in text
