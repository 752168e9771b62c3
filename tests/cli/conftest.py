"""A measurement simple enough to check by hand: one Gaussian mechanism, its mu known within 1 percent.

With mu = 1/noise_multiplier the closed forms (Dong, Roth and Su 2022) are
delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) and TPR(FPR) = Phi(Phi^-1(FPR) + mu).
"""

from __future__ import annotations

import math
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import ndtr, ndtri

from calipers.bracket import Bracket, Evidence, Kind, Side
from calipers.cli import main

PROOF = Evidence(Kind.THEOREM, "Gaussian mechanisms compose.", "Dong, Roth, Su 2022, Corollary 3.3")
ATTACK = Evidence(Kind.TEST, "Threshold on the noisy sum.", "Calipers 2026")


def delta_of(mu: float, epsilon: float) -> float:
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def epsilon_of(mu: float, delta: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(mu, middle) > delta else (low, middle)
    return high


class GaussianMeasurement:
    """What `calipers.measure.measure` returns, for a run that is one Gaussian mechanism."""

    def __init__(self, runs):
        self.runs = runs
        self.executed, self.watched = "", None
        self.mu = math.sqrt(sum(run.noise_multiplier**-2 for run in runs))
        self.notes = ("The bracket is one percent wide.",)
        self.tolerance = 0.05
        self.stated = None
        self.closes = True
        self.stated = None
        self.claim = SimpleNamespace(
            runs=runs,
            epsilon=lambda delta: epsilon_of(self.mu / 2, delta),
            delta=lambda e: delta_of(self.mu / 2, e),
        )

    def _bracket(self, quantity) -> Bracket:
        return Bracket(quantity(self.mu * 0.99), quantity(self.mu * 1.01), ATTACK, PROOF)

    dataset_sizes = None

    def epsilon(self, delta):
        if delta < 1e-100:
            return Bracket(1.0, math.inf, ATTACK, PROOF)
        return self._bracket(lambda mu: epsilon_of(mu, delta))

    def delta(self, epsilon):
        return self._bracket(lambda mu: delta_of(mu, epsilon))

    def tpr(self, fpr):
        return self._bracket(lambda mu: float(ndtr(ndtri(fpr) + mu)))

    def gdp(self, delta0=1e-10):
        return SimpleNamespace(mu=self._bracket(lambda mu: mu), delta0=delta0, regret=0.00123456)

    def advantage(self):
        return self._bracket(lambda mu: delta_of(mu, 0.0))

    def separation(self):
        return self._bracket(lambda mu: delta_of(mu, 0.0) / math.sqrt(2))

    def curve(self, side):
        mu = self.mu * (1.01 if side is Side.UPPER else 0.99)
        alpha = np.linspace(0, 1, 201)
        return SimpleNamespace(
            alpha=alpha,
            beta=ndtr(-ndtri(alpha) - mu),
            epsilon=lambda delta: epsilon_of(mu, delta),
            delta=lambda grid: np.array([delta_of(mu, float(epsilon)) for epsilon in grid]),
        )

    def envelope(self, side):
        curve = self.curve(side)
        return SimpleNamespace(breakpoints=lambda: (curve.alpha, curve.beta))


@pytest.fixture
def measured_with(monkeypatch):
    """What the fake `measure` was called with, once it stands in for the real one."""
    calls: list[tuple[object, float]] = []

    def measure(runs, tolerance=1e-3, dataset_sizes=None):
        calls.append((runs[0] if len(runs) == 1 else runs, tolerance))
        return GaussianMeasurement(runs)

    module = ModuleType("calipers.measure")
    module.measure = measure
    module.Measurement = GaussianMeasurement
    monkeypatch.setitem(sys.modules, "calipers.measure", module)
    return calls


@pytest.fixture
def calibrated_with(monkeypatch):
    """What the fake `solve` was called with, once it stands in for the real one."""
    calls: list[tuple[object, dict[str, float]]] = []

    def solve(run, *, tolerance=1e-4, progress=None, **target):
        calls.append((run, target))
        solved = tuple(phase.replace(noise_multiplier=0.123456789012) for phase in run)
        achieved = Bracket(0.98765432, 0.99876543, ATTACK, PROOF)
        return SimpleNamespace(
            run=solved[0],
            phases=solved,
            noise_multiplier=0.123456789012,
            noise_multipliers=(0.123456789012,) * len(solved),
            target=target,
            achieved=achieved,
            found=solved,
            release_keys={},
        )

    monkeypatch.setattr(import_module("calipers.calibrate"), "solve", solve)
    return calls


@pytest.fixture
def calipers():
    """Run `calipers` in this process; the result has exit_code, stdout and stderr."""

    def invoke(*arguments: object):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def refused(calipers):
    """Run `calipers`, insist on exit status 2, empty standard output and one line of standard error; return that."""

    def invoke(*arguments: object) -> str:
        result = calipers(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert "Traceback" not in result.stderr
        assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr.rstrip()

    return invoke
