"""Reports small enough to make once per session, and hand-made answers to put words to the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from calipers.bracket import Bracket, Evidence, Kind
from calipers.measure import measure
from calipers.reports.answers import Answers, Questions
from calipers.reports.compared import report_comparison
from calipers.reports.comparison import compare_measurements
from calipers.reports.readings import Reading, claimed
from calipers.reports.report import report_calibration, report_measurement, report_training
from calipers.run import Run

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the oracles

PROOF = Evidence(Kind.THEOREM, "Gaussian mechanisms compose.", "Dong, Roth, Su 2022, Corollary 3.3")
ATTACK = Evidence(Kind.TEST, "Threshold on the noisy sum.", "Calipers 2026, a test")

FIXED = Run(dataset_size=1000, batch_size=100, epochs=5, noise_multiplier=2.0, sampler="deterministic")
SHUFFLED = Run(dataset_size=100, batch_size=25, epochs=1, noise_multiplier=1.0, sampler="shuffle")
POISSON = Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)


@pytest.fixture(scope="session")
def fixed_measurement():
    """Five Gaussian releases with noise 2: exactly mu-GDP with mu = sqrt(5)/2."""
    return measure(FIXED)


@pytest.fixture(scope="session")
def reports(fixed_measurement):
    """A report of every kind but audits, by kind; "open" is a measurement whose bracket does not close."""
    from types import SimpleNamespace

    questions = Questions(deltas=(1e-5, 1e-8), epsilons=(1.0,))
    two = [fixed_measurement, measure(POISSON)]
    achieved = fixed_measurement.epsilon(1e-5)
    calibration = SimpleNamespace(
        release_keys={},
        run=FIXED,
        phases=(FIXED,),
        noise_multiplier=2.0,
        noise_multipliers=(2.0,),
        target={"epsilon": 5.0, "delta": 1e-5},
        achieved=achieved,
    )
    compared = compare_measurements(["fixed.toml", "<b>&.toml"], two, questions)
    return {
        "measure": report_measurement(fixed_measurement, questions),
        "open": report_measurement(measure(SHUFFLED), questions),
        "train": report_training(fixed_measurement, questions, [("accuracy", "0.97"), ("model", "cnn <5 layers>")]),
        "calibrate": report_calibration(calibration, fixed_measurement),
        "compare": report_comparison(compared, two, questions),
    }


@pytest.fixture
def answers():
    """Answers with one epsilon of choice: answers(lower, upper, claim, run=...)."""

    def make(lower, upper, claim, *, run=SHUFFLED, regret=0.001, mu=None, notes=()):
        bracket = Bracket(lower, upper, ATTACK, PROOF)
        plain = Bracket(0.25, 0.5, ATTACK, PROOF)
        readings = (
            claimed("epsilon", 1e-5, bracket, claim, (run,)),
            Reading("tpr", 0.1, plain),
            Reading("tpr", 1e-5, plain),
            Reading("advantage", None, plain),
            Reading("separation", None, plain),
            Reading("mu", 1e-10, mu or plain),
        )
        return Answers((run,), readings, 1e-10, regret, tuple(notes))

    return make
