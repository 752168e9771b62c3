"""What the page shows is what was certified: rounded outward, drawn through certified points, remembered as it was."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from functools import partial

import pytest
from scipy.special import ndtr, ndtri

from calipers.explorer import jobs
from calipers.explorer.drawing import page_record, rows
from calipers.explorer.jobs import Refusal, Written, answered
from calipers.explorer.requests import Asked, read_asked
from calipers.measure import measure
from calipers.phases import as_phases, load_runs
from calipers.reports.answers import Questions, answer
from calipers.reports.comparison import compare_judged, compare_measurements
from calipers.reports.sections import run_file
from calipers.run import Run

QUESTIONS = Questions(epsilons=(0.5,))
# Fixed batches of one epoch are one Gaussian mechanism: mu = 1/noise_multiplier, everything in closed form.
FIXED = Run(sample_rate=0.1, steps=10, noise_multiplier=2.0, sampler="deterministic", adjacency="zero-out")
POISSON = Run(sample_rate=0.1, steps=10, noise_multiplier=2.0, adjacency="zero-out")
# Its answers have a note that is not the measurement's own: what the divisor does to datasets of another size.
FLOORED = Run(sample_rate=0.5, steps=1, noise_multiplier=5.0, dataset_size=4, normalization="floor", dimension=2)
MU = 0.5


def gaussian_delta(epsilon: float) -> float:
    return float(ndtr(MU / 2 - epsilon / MU) - math.exp(epsilon) * ndtr(-MU / 2 - epsilon / MU))


@pytest.fixture(scope="module")
def fixed() -> dict[str, object]:
    measurement = measure(FIXED)
    return page_record(measurement, answer(measurement, QUESTIONS))


def test_shown_ends_are_rounded_outward(fixed) -> None:
    """Read as decimals, shown lower ends are at most and shown upper ends at least the exact doubles."""
    ends = [row for row in fixed["rows"] if "lower" in row]
    assert len(ends) == 8
    for row in ends:
        assert Decimal(row["lower"]["shown"]) <= Decimal(row["lower"]["exact"])
        assert Decimal(row["upper"]["shown"]) >= Decimal(row["upper"]["exact"])


def test_tooltips_are_rounded_outward(fixed) -> None:
    """What a tooltip prints lies on the safe side of the double that is drawn, on every curve."""
    for name, at_least in (("tradeoff", "upper"), ("profile", "lower"), ("low_rates", "lower")):
        curve = fixed["curves"][name]
        at_most = {"upper": "lower", "lower": "upper"}[at_least]
        assert all(Decimal(t) <= Decimal(v) for t, v in zip(curve["shown"][at_least], curve[at_least], strict=True))
        assert all(Decimal(t) >= Decimal(v) for t, v in zip(curve["shown"][at_most], curve[at_most], strict=True))


def test_drawn_low_rates_enclose_the_closed_form(fixed) -> None:
    """TPR(FPR) = Phi(Phi^-1(FPR) + mu) for one Gaussian mechanism."""
    curve = fixed["curves"]["low_rates"]
    for fpr, lower, upper in zip(curve["fpr"], curve["lower"], curve["upper"], strict=True):
        truth = float(ndtr(ndtri(fpr) + MU)) if fpr < 1 else 1.0
        assert lower <= truth * (1 + 1e-12)
        assert upper >= truth * (1 - 1e-12)


def test_drawn_profile_encloses_the_closed_form(fixed) -> None:
    """lower <= delta(epsilon) <= upper at every drawn point, up to the rounding of this test's own closed form."""
    curve = fixed["curves"]["profile"]
    assert len(curve["epsilon"]) > 100
    for epsilon, lower, upper in zip(curve["epsilon"], curve["lower"], curve["upper"], strict=True):
        truth = gaussian_delta(epsilon)
        assert lower <= truth + 1e-15
        assert upper >= truth - 1e-15


def test_drawn_tradeoff_encloses_the_closed_form(fixed) -> None:
    """The proof's curve is nowhere above, the attack's nowhere below beta = Phi(Phi^-1(1 - alpha) - mu)."""
    curve = fixed["curves"]["tradeoff"]
    for alpha, lower, upper in zip(curve["alpha"], curve["lower"], curve["upper"], strict=True):
        truth = float(ndtr(-ndtri(alpha) - MU))
        assert upper <= truth + 1e-15
        assert lower >= truth - 1e-15


def test_a_claim_about_other_neighbors_is_not_called_refuted() -> None:
    """Substitution leaks more than add-remove accounting claims, which refutes nothing."""
    for run, refuted in ((FIXED, True), (POISSON.replace(adjacency="substitute"), False), (POISSON, False)):
        first = rows(answer(measure(run), QUESTIONS))[0]
        assert first["refuted"] is refuted


@pytest.mark.parametrize("runs", [(FIXED,), (FIXED, POISSON)], ids=["one", "phases"])
def test_the_run_file_reads_back(runs: tuple[Run, ...], tmp_path) -> None:
    """The text offered as run.toml describes the runs it came from."""
    path = tmp_path / "run.toml"
    runs = as_phases(runs)
    path.write_text(run_file(runs), encoding="utf-8")
    assert load_runs(path) == runs


def test_remembered_measurements_get_the_verdicts_of_real_ones() -> None:
    """Comparing what was remembered gives word for word what comparing the measurements gives."""
    names, runs = ("fixed", "poisson", "noisy"), (FIXED, POISSON, FLOORED)
    measurements = [measure(run) for run in runs]
    real = compare_measurements(names, measurements, QUESTIONS)
    replies = [jobs.measured(Asked((run,), QUESTIONS, 1e-3)) for run in runs]
    found = compare_judged(names, [pickle.loads(pickle.dumps(reply.judged)) for reply in replies])
    assert found == real
    assert "poisson is certainly more private than fixed" in found.verdicts[0].sentence


def test_a_worker_answers_and_refuses_and_goes_on() -> None:
    """Measurements, reports and refusals, one after another, from one worker."""
    asked = read_asked(FIXED.to_dict())
    assert isinstance(answered(partial(jobs.measured, asked)), Written)
    hopeless = read_asked({**FIXED.to_dict(), "noise_multiplier": 1e-9})
    refusal = answered(partial(jobs.measured, hopeless))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "input"
    assert "noise_multiplier" in refusal.reason
    written = answered(partial(jobs.report, asked, "md"))
    assert isinstance(written, Written)
    assert b"Privacy of a DP-SGD run" in written.content


def test_a_worker_survives_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised inside comes back as a refusal; running out of memory says so."""
    for error, kind in ((KeyError("lost"), "defect"), (MemoryError(), "too large")):

        def broken(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("calipers.explorer.jobs.measure", broken)
        unseen = read_asked({**FIXED.to_dict(), "noise_multiplier": 1.2345})
        refusal = answered(partial(jobs.measured, unseen))
        assert isinstance(refusal, Refusal)
        assert refusal.kind == kind
