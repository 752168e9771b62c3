"""Writes ``reference.json``: epsilon of Poisson-subsampled Gaussian runs, from the oracles of this folder alone.

From the repository root::

    python -m tests.oracles.make_reference

One step is solved by bisection on the closed form (mpmath), more steps by contour integration. "remove" is
``D(P||Q)`` with P = (1-q) N(0, s^2) + q N(1, s^2) and Q = N(0, s^2), "add" is ``D(Q||P)``, "epsilon" the larger. A null
"epsilon" with "above_700" true exceeds 700; any other null means that the oracle did not settle in the time allowed.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import contour, enumeration, pairs

TARGET = Path(__file__).with_name("reference.json")
CPU_SECONDS_PER_VALUE = 120
LARGEST = 700.0
DIRECTIONS = {"remove": "PQ", "add": "QP"}

PUBLISHED = [
    (0.01, 1.0, 1000, 1e-5),
    (256 / 60000, 1.1, 14040, 1e-5),
    (1e-4, 0.5, 10000, 1e-6),
    (16384 / 50000, 9.4, 2000, 1e-5),
    (1e-3, 0.8, 10**6, 1e-6),
]


def settings() -> Iterator[tuple[float, float, int, float]]:
    """(sample_rate, noise_multiplier, steps, delta), most wanted first."""
    yield from PUBLISHED
    yield from ((0.01, 1.0, 1000, delta) for delta in (1e-10, 1e-15, 1e-18, 1e-30))
    rates, sigmas, steps = (1e-4, 1e-2, 0.3, 0.9), (0.2, 0.5, 1.0, 5.0, 100.0), (1, 100, 10**6)
    for t, sigma, q, delta in itertools.product(steps, sigmas, rates, (1e-5, 1e-12)):
        yield q, sigma, t, delta


def solve(q: float, sigma: float, steps: int, delta: float, direction: str) -> float:
    """Epsilon in one direction; ``inf`` beyond 700."""
    if steps == 1:
        return float(
            enumeration.epsilon(lambda e: enumeration.poisson_one_step(q, sigma, e, direction), delta, LARGEST)
        )
    return contour.epsilon(pairs.poisson_gaussian(q, sigma), steps, delta, direction, LARGEST)  # type: ignore[arg-type]


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def entry(q: float, sigma: float, steps: int, delta: float) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"sample_rate": q, "noise_multiplier": sigma, "steps": steps, "delta": delta}
    found = {}
    for name, direction in DIRECTIONS.items():
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_PER_VALUE)
        try:
            found[name] = solve(q, sigma, steps, delta, direction)
        except (ArithmeticError, TimeoutError) as problem:
            found[name] = None
            print("  not settled:", name, row, repr(problem)[:120], file=sys.stderr)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if found[name] == float("inf"):
            return row | {"remove": None, "add": None, "epsilon": None, "above_700": True}
    known = [value for value in found.values() if value is not None]
    row |= {name: None if value is None else float(f"{value:.12g}") for name, value in found.items()}
    row["epsilon"] = float(f"{max(known):.12g}") if len(known) == 2 else None
    return row


def main() -> None:
    """Compute every row; the file is rewritten after each one."""
    signal.signal(signal.SIGPROF, _out_of_time)
    rows = []
    for setting in settings():
        began = time.process_time()
        rows.append(entry(*setting))
        print(f"{time.process_time() - began:7.2f} s", rows[-1], flush=True)
        lines = ",\n".join("    " + json.dumps(row) for row in rows)
        TARGET.write_text(
            '{\n  "command": "python -m tests.oracles.make_reference",\n'
            '  "what": "Poisson-subsampled Gaussian, add/remove; remove = D(P||Q), P holds the record; add = D(Q||P); '
            'epsilon = the larger; null: not settled, or above 700 where above_700 is true",\n'
            f'  "accuracy": "relative 1e-10 in epsilon",\n  "entries": [\n{lines}\n  ]\n}}\n'
        )


if __name__ == "__main__":
    main()
