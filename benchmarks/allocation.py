"""Samplers that deal a record out once per epoch: Calipers beside what else there is.

For balls-and-bins sampling (random allocation) the peers are PLD_accounting (Feldman and Shenfeld), which certifies
both sides, and the plain Monte Carlo estimate of Chua et al. (2025), delta = E_P[(1 - e^epsilon / L)+] with L the mean
of M lognormal ratios, which costs M normal draws a sample and comes with a statistical error. No accountant is known
for shuffled batches; those rows time Calipers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table

from .clock import best_of
from .peers import Answer


@dataclass(frozen=True)
class Dealt:
    """A run that deals every record out once per epoch."""

    sampler: str
    rounds: int
    noise_multiplier: float
    epochs: int
    delta: float

    def __str__(self) -> str:
        return f"{self.sampler}, M={self.rounds:,}, sigma={self.noise_multiplier:g}, E={self.epochs}"


RUNS = (
    Dealt("balls-and-bins", 100, 1.0, 1, 1e-5),
    Dealt("balls-and-bins", 10**4, 1.0, 1, 1e-6),
    Dealt("balls-and-bins", 10**4, 1.0, 100, 1e-6),
    Dealt("balls-and-bins", 10**9, 1.0, 1, 1e-9),
    Dealt("shuffle", 10**4, 1.0, 1, 1e-6),
    Dealt("shuffle", 10**4, 1.0, 100, 1e-6),
)
DRAWS = 20_000_000
"""Normal draws a Monte Carlo estimate may take: 20 million are about half a second."""


def calipers_bracket(run: Dealt, adjacency: str = "zero-out") -> Answer:
    """The certified bracket, at the default relative tolerance."""
    from calipers.measure import measure
    from calipers.run import Run

    described = Run(
        sample_rate=1 / run.rounds,
        epochs=run.epochs,
        noise_multiplier=run.noise_multiplier,
        sampler=run.sampler,
        adjacency=adjacency,
    )
    bracket = measure(described).epsilon(run.delta)
    return Answer(bracket.upper, bracket.lower)


def pld_accounting_bracket(run: Dealt) -> Answer:
    """Both sides of PLD_accounting, at its default relative accuracy."""
    from PLD_accounting import gaussian_allocation_epsilon_range

    upper, lower = gaussian_allocation_epsilon_range(
        delta=run.delta, sigma=run.noise_multiplier, num_steps=run.rounds, num_epochs=run.epochs
    )
    return Answer(float(upper), float(lower))


def monte_carlo_delta(run: Dealt, epsilon: float, draws: int = DRAWS) -> tuple[float, float, int]:
    """(estimate, standard error, samples) of delta at epsilon in the direction P against Q."""
    rng = np.random.default_rng(1)
    width = 1.0 / run.noise_multiplier
    samples = max(2, draws // (run.rounds * run.epochs))
    gains = np.empty(samples)
    for i in range(samples):
        log_ratio = 0.0
        for _ in range(run.epochs):
            x = rng.standard_normal(run.rounds)
            x[0] += width  # the place does not matter: the ratio is symmetric in the rounds
            log_ratio += math.log(float(np.mean(np.exp(width * x - 0.5 * width * width))))
        gains[i] = max(0.0, -math.expm1(epsilon - log_ratio))
    return float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(samples), samples


def _methods(run: Dealt) -> dict[str, Callable[[], Answer]]:
    """What can be asked about a run."""
    methods: dict[str, Callable[[], Answer]] = {"Calipers": lambda: calipers_bracket(run)}
    if run.rounds <= 10**6:
        methods["Calipers, record replaced"] = lambda: calipers_bracket(run, "substitute")
    if run.sampler == "balls-and-bins" and find_spec("PLD_accounting") is not None:
        methods["PLD_accounting"] = lambda: pld_accounting_bracket(run)
    return methods


def _simulated(run: Dealt, epsilon: float, limit: int) -> tuple[str, ...]:
    """The row of the Monte Carlo estimate: CPU time, and delta at the certified epsilon with its standard error."""
    timed = best_of(lambda: monte_carlo_delta(run, epsilon), 1, limit)
    if timed.value is None:
        return str(run), "Monte Carlo", "-", str(timed.problem), ""
    estimate, error, samples = timed.value
    says = f"delta there: {estimate:.2e} +- {error:.1e} ({samples:,} samples), asked {run.delta:g}"
    return str(run), "Monte Carlo", f"{timed.seconds:.2f} s", says, ""


def compare(console: Console, repeats: int, limit: int) -> None:
    """One table: every run, every method, CPU time, the bracket and its relative width."""
    table = Table(title="A record dealt out once per epoch: epsilon at delta", title_justify="left")
    for heading in ("run", "method", "CPU time", "epsilon, lower to upper", "relative width"):
        table.add_column(heading, justify="right" if heading in ("CPU time", "relative width") else "left")
    for run in RUNS:
        certified: Answer | None = None
        for name, call in _methods(run).items():
            timed = best_of(call, repeats, limit)
            if timed.value is None:
                table.add_row(str(run), name, "-", str(timed.problem), "")
                continue
            certified = timed.value if name == "Calipers" else certified
            lower, upper = timed.value.lower or 0.0, timed.value.value
            width = f"{(upper - lower) / upper:.1e}" if upper else "0"
            table.add_row(str(run), name, f"{timed.seconds:.2f} s", f"{lower:.6g} to {upper:.6g}", width)
        if certified is not None and run.sampler == "balls-and-bins" and run.rounds * run.epochs <= 10**6:
            table.add_row(*_simulated(run, certified.value, limit))
    console.print(table)
    if find_spec("PLD_accounting") is None:
        console.print("PLD_accounting: skipped, it is not installed", style="yellow")
