"""Commands that once took minutes, gigabytes or the wrong words: five seconds and 500 MB each, or one sentence.

Each is run as a user runs it, in a process of its own, imports included, by its processor time and its largest memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_SECONDS, MOST_MEGABYTES = 5.0, 500.0
BUSY = 3.0
"""How much longer a core takes that is shared with others; processor time counts what the others slow down."""

needs_wait4 = pytest.mark.skipif(not hasattr(os, "wait4"), reason="reads what one child used")


@dataclass(frozen=True)
class Spent:
    """What a command said and used."""

    status: int
    said: str
    seconds: float
    megabytes: float


_WATCH = """
import json, os, resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss], file)
"""


def spent(words: list[str]) -> Spent:
    """Run it to its end; one that runs away is stopped by the limit of its processor time.

    The largest memory of a process counts whoever started it, so that is a small one, not the one that runs all tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spent.json"
        watched = [sys.executable, "-c", _WATCH, str(file), *words]
        said = subprocess.run(watched, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
        status, seconds, largest = json.loads(file.read_text("utf-8"))
    return Spent(status, said.decode(), seconds, largest / (1024.0 if sys.platform == "linux" else 1024.0**2))


def divided(normalization: str, size: int, rate: float, steps: int, noise: float, dimension: int) -> str:
    return (
        f"measure --dataset-size {size} --sample-rate {rate!r} --steps {steps} --noise-multiplier {noise} "
        f"--normalization {normalization} --dimension {dimension}"
    )


def poisson(rate: float, noise: float, steps: int, delta: float) -> str:
    return f"measure --sample-rate {rate!r} --noise-multiplier {noise} --steps {steps} --delta {delta!r}"


def replaced(sampler: str, size: int, batch: int, epochs: int) -> str:
    return (
        f"measure --dataset-size {size} --batch-size {batch} --epochs {epochs} --noise-multiplier 1 "
        f"--sampler {sampler} --adjacency substitute"
    )


COMMANDS = [
    divided("floor", 60_100, 0.005, 10_000, 1.0, 10_000_000),
    divided("floor", 60_100, 0.005, 10_000, 1.0, 125_000_000),
    divided("floor", 60_100, 0.005, 10_000, 1.0, 1_000_000),
    divided("floor", 160, 0.02, 1000, 2.0, 1_000_000),
    divided("floor", 587, 0.0034079568690490837, 1611, 0.9949, 30_853),
    divided("expected", 60_000, 0.005, 200, 10.0, 26_010),
    divided("expected", 1000, 0.005, 200, 10.0, 26_010),
    divided("realized", 15, 0.69, 79, 1.0, 345),
    divided("expected", 4, 0.2, 441, 4.45, 64_456),
    divided("expected", 4, 0.05, 1, 0.5, 1),
    divided("realized", 5, 0.1, 10, 5.0, 10),
    divided("expected", 3, 4.18e-4, 2537, 40.0, 4508),
    divided("floor", 3, 0.862, 7567, 35.0, 339),
    divided("expected", 745_760, 0.1, 7, 10.0, 6),
    divided("expected", 36_429, 0.85, 3, 12.2, 165),
    divided("expected", 257, 0.032, 1, 42.0, 1),
    *(poisson(1e-5, 0.7, 100_000, delta) for delta in (1e-5, 1e-7, 1e-9)),
    *(poisson(1e-4, 1.0, 10_000, delta) for delta in (1e-12, 1e-15)),
    poisson(1e-5, 0.5, 100_000, 1e-5),
    poisson(1e-6, 0.7, 10_000, 1e-15),
    poisson(1e-6, 1.0, 100_000, 1e-15),
    poisson(0.03, 0.41, 40_000_000, 1e-5),
    poisson(1e-5, 0.7, 100_000, 1e-5) + " --tolerance 0.3",
    poisson(1e-5, 0.7, 100_000, 1e-5) + " --tolerance 0.001 --epsilon 0.0267",
    poisson(0.01, 1.0, 1000, 1e-5) + " --epsilon 200",
    "calibrate --sample-rate 1e-6 --steps 1000000 --epsilon 0.05 --delta 1e-5",
    replaced("balls-and-bins", 60_000, 256, 10),
    replaced("balls-and-bins", 1000, 100, 10),
    replaced("shuffle", 1000, 100, 10) + " --view isolated",
    replaced("shuffle", 60_000, 256, 10) + " --view isolated",
]


REPORTS = [
    f"measure --noise-multiplier {noise} --dataset-size {size} --batch-size {batch} --steps {steps} --sampler {sampler}"
    for size, batch, steps, noise, sampler in (
        (37_344_203, 199, 6914, 0.361, "with-replacement"),
        (100_000_000, 6, 15, 1.186, "with-replacement"),
        (60_000, 6000, 100_000, 0.3, "with-replacement"),
        (12_739_407, 778, 582, 4.82, "with-replacement --clip-count-noise 1"),
        (627_193, 6, 458, 0.563, "poisson"),
        (100_000_000, 4096, 100_000, 0.5, "poisson --adjacency zero-out"),
        (100_000_000, 4096, 100_000, 0.5, "truncated-poisson --max-batch-size 4352 --adjacency zero-out"),
    )
]
"""Steps that are rarely large, and steps that hide nothing: each took two to seven seconds."""


@needs_wait4
@pytest.mark.slow
@pytest.mark.parametrize("command", REPORTS)
def test_a_report_takes_two_seconds(command: str) -> None:
    """Beside the start of the program; on a core that is shared with others a few times as long."""
    found = spent([sys.executable, "-m", "calipers", *command.split()])
    start = spent([sys.executable, "-m", "calipers", "--help"])
    assert found.status == 0, found
    assert found.seconds - start.seconds <= BUSY * 2.0, found


@needs_wait4
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_it_answers_within_time_and_memory(command: str) -> None:
    """An answer; nothing above the limits."""
    found = spent([sys.executable, "-m", "calipers", *command.split()])
    assert found.status == 0, found
    assert "Traceback" not in found.said
    assert found.seconds <= BUSY * MOST_SECONDS, found
    assert found.megabytes <= MOST_MEGABYTES, found


@needs_wait4
@pytest.mark.slow
def test_more_steps_than_can_be_charged_are_refused_in_a_sentence() -> None:
    """2e13 steps: what is expected, what was given, and why."""
    found = spent([sys.executable, "-m", "calipers", *poisson(0.01, 1.0, 2 * 10**13, 1e-5).split()])
    assert found.status == 2
    assert found.said.count("\n") <= 3
    assert "got 2.000e+13" in found.said
    assert found.seconds <= BUSY * MOST_SECONDS


@needs_wait4
@pytest.mark.slow
def test_ten_discrete_gaussians_of_large_noise() -> None:
    """DiscreteGaussian(1e5) ten times, from Python."""
    code = (
        "from calipers import measure; from calipers.mechanisms import DiscreteGaussian;"
        "print(measure([(DiscreteGaussian(1e5), 10)]).epsilon(1e-5))"
    )
    found = spent([sys.executable, "-c", code])
    assert found.status == 0, found
    assert found.seconds <= BUSY * MOST_SECONDS, found
    assert found.megabytes <= MOST_MEGABYTES, found


@needs_wait4
def test_one_that_needs_too_much_is_noticed() -> None:
    """The measuring itself: 300 MB and a second of work are seen."""
    found = spent([sys.executable, "-c", "x = bytearray(300 << 20)\nfor i in range(10**7): pass\nprint('done')"])
    assert found.status == 0
    assert found.said == "done\n"
    assert found.megabytes > 300.0
    assert found.seconds > 0.1
