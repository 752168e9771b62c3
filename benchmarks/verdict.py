"""Time to the first verdict: `calipers measure` from the shell to its last line, in CPU seconds of a fresh process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass

MNIST = ("--dataset-size", "60000", "--batch-size", "256", "--noise-multiplier", "1.1")
EVEN = ("--dataset-size", "60000", "--batch-size", "240", "--noise-multiplier", "1.1")


@dataclass(frozen=True)
class Wait:
    """What is typed, and the CPU seconds that are thought of as at once."""

    name: str
    arguments: tuple[str, ...]
    allowed: float


WAITS = (
    Wait("help", ("--help",), 0.3),
    Wait("Poisson run, 60 epochs", ("measure", *MNIST, "--epochs", "60"), 0.5),
    Wait("shuffled, one epoch", ("measure", *MNIST, "--epochs", "1", "--sampler", "shuffle"), 1.5),
    Wait("nothing left over", ("measure", *EVEN, "--epochs", "1", "--sampler", "shuffle"), 1.5),
    Wait("calibrate to epsilon 3", ("calibrate", *MNIST, "--epochs", "60", "--epsilon", "3", "--delta", "1e-5"), 1.5),
)


def cpu_seconds(wait: Wait, repeats: int) -> float:
    """The least CPU time of a few fresh processes: interpreter, imports, measurement and printing."""
    found = []
    # One thread: idle ones of a linear algebra library would be counted as work.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "calipers", *wait.arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)
