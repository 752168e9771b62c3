"""Every sampler, unit and noise: how long one typical question takes.

Seconds of one core for epsilon at delta = 1e-5, from a description to the bracket, nothing kept from before. The runs
are MNIST-like (60,000 records, batches of 256, 60 epochs, noise 1.1) or have 100,000 steps.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from calipers.guarantee import Guarantee
from calipers.measure import CorrelatedNoise, JointRelease, Measurement, Selection, measure
from calipers.mechanisms import NoiseMatrix, Patterns, TreeNoise
from calipers.run import Run

from .clock import best_of

DELTA = 1e-5
ASKED_SECONDS = 2.0
"""What no question about at most 100,000 steps should exceed."""


def _mnist(**keys: object) -> Run:
    settings = {"dataset_size": 60_000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1} | keys
    return Run(**settings)  # type: ignore[arg-type]


def _long(**keys: object) -> Run:
    settings = {"dataset_size": 10**6, "batch_size": 1000, "steps": 10**5, "noise_multiplier": 1.0} | keys
    return Run(**settings)  # type: ignore[arg-type]


def _spread(**keys: object) -> Run:
    return Run(sampler="random-allocation", dataset_size=50_000, **keys)  # type: ignore[arg-type]


def _user(records: int, **keys: object) -> Run:
    return _mnist(unit="user", records_per_unit=records, **keys)


TYPICAL: dict[str, Callable[[], object]] = {
    "without replacement": lambda: _mnist(sampler="without-replacement"),
    "without replacement, 1e5 steps": lambda: _long(sampler="without-replacement"),
    "with replacement, replaced": lambda: _mnist(sampler="with-replacement", adjacency="substitute"),
    "with replacement, 1e5 steps": lambda: _long(sampler="with-replacement"),
    "truncated Poisson": lambda: _mnist(sampler="truncated-poisson", max_batch_size=300),
    "truncated Poisson, 1e5 steps": lambda: _long(sampler="truncated-poisson", max_batch_size=1100),
    "cyclic Poisson, 1e5 steps": lambda: _long(sampler="cyclic-poisson", cycle=10),
    "bins kept": lambda: _mnist(sampler="balls-and-bins", reshuffle="once", adjacency="zero-out"),
    "bins kept, replaced": lambda: _mnist(sampler="balls-and-bins", reshuffle="once", adjacency="substitute"),
    "bins, replaced": lambda: _mnist(sampler="balls-and-bins", adjacency="substitute"),
    "order kept": lambda: _mnist(sampler="shuffle", reshuffle="once"),
    "5 of 391": lambda: _spread(steps=391, participations=5, noise_multiplier=0.55),
    "5 of 391, replaced": lambda: _spread(steps=391, participations=5, noise_multiplier=0.55, adjacency="substitute"),
    "100 of 1e5": lambda: _spread(steps=10**5, participations=100, noise_multiplier=1.0),
    "units of 20, Poisson": lambda: _user(20),
    "units of 3, truncated Poisson": lambda: _user(3, sampler="truncated-poisson", max_batch_size=300),
    "units of 3, bins": lambda: _user(3, sampler="balls-and-bins", adjacency="zero-out"),
    "banded noise, groups": lambda: CorrelatedNoise(
        NoiseMatrix.of_toeplitz([1, 0.5, 0.25, 0.1], 2000), 1.0, Patterns(4), 0.01
    ),
    "tree, 2048 steps": lambda: CorrelatedNoise(TreeNoise(2048), 10.0, Patterns(200)),
    "adaptive clipping": lambda: JointRelease(_mnist(), (12.8,)),
    "best of 10, geometric": lambda: Selection(_mnist(), 10.0),
    "best of 10, Poisson": lambda: Selection(_mnist(), 10.0, "poisson"),
    "a guarantee": lambda: Guarantee(epsilon=8.0, delta=1e-5),
}


def answered(name: str) -> Measurement:
    """The typical question of a name, asked."""
    found = measure(TYPICAL[name]())  # type: ignore[call-overload]
    assert isinstance(found, Measurement)
    found.epsilon(DELTA)
    return found


def compare(console: Console, repeats: int, limit: int) -> None:
    """One row for each: seconds of the processor, and the bracket."""
    table = Table(title=f"Every sampler, unit and noise: epsilon at delta = {DELTA:g}", title_justify="left")
    for heading in ("what", "CPU time", "epsilon, lower to upper"):
        table.add_column(heading, justify="right" if heading == "CPU time" else "left")
    for name in TYPICAL:
        timed = best_of(lambda name=name: answered(name), repeats, limit)  # type: ignore[misc]
        if timed.value is None:
            table.add_row(name, "-", str(timed.problem))
            continue
        slow = "bold red" if timed.seconds > ASKED_SECONDS else ""
        table.add_row(name, f"{timed.seconds:.2f} s", str(timed.value.epsilon(DELTA)), style=slow)
    console.print(table)
