"""Calipers beside other accountants, in one process: ``python -m benchmarks.bench [--quick] [--only SECTION ...]``.

Sections: verdict (whole commands, from the shell to the last line), settings (five reference runs), steps (a thousand
steps against a million), calibration, deltas (1e-15 and 1e-18), gdp (mu beside gdpnum), memory, auditing (trials per
second), allocation (balls-and-bins and shuffling), samplers (every sampler, unit and noise), training (records per
second). "true" is the value of an oracle that shares no code with Calipers (tests/oracles/reference.json). An answer
below it understates the privacy loss and is printed in red.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import allocation, auditing, peers, samplers, training, verdict
from .clock import Timed, best_of, peak_memory
from .peers import Answer, Peer, Setting

REFERENCE = Path(__file__).resolve().parent.parent / "tests" / "oracles" / "reference.json"
FIVE = [
    (Setting(0.01, 1.0, 1000), 1e-5),
    (Setting(256 / 60000, 1.1, 14040), 1e-5),
    (Setting(1e-4, 0.5, 10000), 1e-6),
    (Setting(16384 / 50000, 9.4, 2000), 1e-5),
    (Setting(1e-3, 0.8, 10**6), 1e-6),
]
MEMORY_CAP_GIB = 16


def truth(setting: Setting, delta: float) -> float | None:
    """The oracle's epsilon, where the table has it."""
    wanted = (setting.sample_rate, setting.noise_multiplier, setting.steps, delta)
    if REFERENCE.exists():
        for row in json.loads(REFERENCE.read_text())["entries"]:
            if (row["sample_rate"], row["noise_multiplier"], row["steps"], row["delta"]) == wanted:
                return row["epsilon"]
    return None


def shown(value: float | None, digits: int = 6) -> str:
    """A number for a cell."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)


def answer_cell(answer: Answer, true: float | None) -> Text:
    """The answer; red where it is below the truth, or where a bracket misses it."""
    wrong = true is not None and (answer.value < true * (1 - 1e-9) or (answer.lower or 0) > true * (1 + 1e-9))
    return Text(shown(answer.value), style="bold red" if wrong else "")


def width_cell(answer: Answer, peer: Peer) -> str:
    """Width of the bracket where there is one, and what the accountant says of its number."""
    if answer.lower is None:
        return peer.says
    return f"{answer.value - answer.lower:.2e} ({peer.says})"


def seconds_cell(seconds: float) -> str:
    """CPU time for a cell."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


LEFT = ("accountant", "run", "width / what it claims")


def headed(title: str, *headings: str) -> Table:
    """An empty table: numbers to the right, words to the left."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in LEFT else "right")
    return table


class Bench:
    """The accountants at hand, and how patiently to measure them."""

    def __init__(self, console: Console, quick: bool) -> None:
        self.console = console
        self.repeats, self.limit = (1, 30) if quick else (5, 120)
        self.here: list[Peer] = []
        for peer in [peers.OURS, *peers.PEERS]:
            problem = peer.load()
            if problem:
                console.print(problem, style="yellow", markup=False)
            else:
                self.here.append(peer)

    def epsilons(self, setting: Setting, delta: float, title: str) -> dict[str, float]:
        """One table: every accountant on one run. CPU times as multiples of that of Calipers, by accountant."""
        ratios: dict[str, float] = {}
        true = truth(setting, delta)
        table = headed(
            f"{title}: {setting}, delta={delta:g}, true epsilon {shown(true, 10)}",
            "accountant",
            "CPU time",
            "x Calipers",
            "epsilon",
            "minus true",
            "width / what it claims",
        )
        ours: float | None = None
        for peer in self.here:
            timed = best_of(lambda peer=peer: peer.epsilon(setting, delta), self.repeats, self.limit)
            if timed.value is None:
                table.add_row(peer.label, "-", "-", "-", "-", Text(timed.problem or "", style="yellow"))
                continue
            if peer is peers.OURS:
                ours = timed.seconds
            ratio = f"{timed.seconds / ours:.1f}" if ours else "-"
            ratios |= {peer.label: timed.seconds / ours} if ours else {}
            off = "-" if true is None or not math.isfinite(timed.value.value) else f"{timed.value.value - true:+.2e}"
            cell = answer_cell(timed.value, true)
            table.add_row(peer.label, seconds_cell(timed.seconds), ratio, cell, off, width_cell(timed.value, peer))
        self.console.print(table)
        return ratios

    def settings(self) -> None:
        """Five reference runs, and the geometric means of the CPU times over them."""
        runs = [self.epsilons(setting, delta, f"Run {number}") for number, (setting, delta) in enumerate(FIVE, 1)]
        table = headed("CPU time over the five runs, geometric mean", "accountant", "x Calipers")
        for label in runs[0]:
            if all(label in run for run in runs):
                table.add_row(label, f"{math.prod(run[label] for run in runs) ** (1 / len(runs)):.1f}")
        self.console.print(table)

    def deltas(self) -> None:
        """Small deltas, where absolute accuracy is not enough."""
        for delta in (1e-15, 1e-18):
            self.epsilons(FIVE[0][0], delta, "Small delta")

    def steps(self) -> None:
        """A thousand steps against a million."""
        table = headed(
            "A thousand steps against a million: q=0.001, sigma=0.8, delta=1e-6",
            "accountant",
            "T=1,000",
            "T=1,000,000",
            "ratio",
        )
        for peer in self.here:
            few, many = (
                best_of(lambda peer=peer, t=t: peer.epsilon(Setting(1e-3, 0.8, t), 1e-6), self.repeats, self.limit)
                for t in (1000, 10**6)
            )
            cells = [seconds_cell(x.seconds) if x.value else str(x.problem) for x in (few, many)]
            table.add_row(peer.label, *cells, f"{many.seconds / few.seconds:.1f}" if few.value and many.value else "-")
        self.console.print(table)

    def calibration(self) -> None:
        """Smallest noise for epsilon 3 at delta 1e-5."""
        setting, delta, target = Setting(256 / 60000, 1.0, 14040), 1e-5, 3.0
        table = headed(
            f"Calibration to epsilon {target:g}, delta={delta:g}: {setting}",
            "accountant",
            "CPU time",
            "x Calipers",
            "noise multiplier",
            "epsilon there (Calipers)",
        )
        ours: float | None = None
        for peer in self.here:
            if peer.calibrate is None:
                continue
            solve: Callable[[Setting, float, float], float] = peer.calibrate
            timed: Timed[float] = best_of(lambda solve=solve: solve(setting, target, delta), self.repeats, self.limit)
            if timed.value is None:
                table.add_row(peer.label, "-", "-", Text(timed.problem or "", style="yellow"), "-")
                continue
            if peer is peers.OURS:
                ours = timed.seconds
            there = "-"
            if peers.OURS in self.here:
                bracket = peers.calipers_epsilon(Setting(setting.sample_rate, timed.value, setting.steps), delta)
                there = f"[{bracket.lower:.5f}, {bracket.value:.5f}]"
            ratio = f"{timed.seconds / ours:.1f}" if ours else "-"
            table.add_row(peer.label, seconds_cell(timed.seconds), ratio, f"{timed.value:.5f}", Text(there))
        self.console.print(table)

    def gdp(self) -> None:
        """mu of gdpnum beside ours, at several depths of the tail."""
        table = headed(
            "GDP: mu up to delta0 (Calipers), mu cut at alpha, beta > cut (gdpnum)",
            "run",
            "delta0 = cut",
            "Calipers lower",
            "Calipers upper",
            "CPU time",
            "gdpnum",
            "CPU time",
        )
        names = {peer.distribution for peer in self.here}
        for setting in (FIVE[3][0], FIVE[0][0]):
            for depth in (1e-5, 1e-10):
                row = [str(setting), f"{depth:g}"]
                if "calipers" in names:
                    ours = best_of(lambda s=setting, d=depth: peers.calipers_mu(s, d), self.repeats, self.limit)
                    value = ours.value
                    row += [shown(value.lower), shown(value.value)] if value else [str(ours.problem), "-"]
                    row.append(seconds_cell(ours.seconds))
                else:
                    row += ["-", "-", "-"]
                if "gdpnum" in names:
                    theirs = best_of(lambda s=setting, d=depth: peers.gdpnum_mu(s, d), self.repeats, self.limit)
                    row += [shown(theirs.value) if theirs.value else str(theirs.problem), seconds_cell(theirs.seconds)]
                else:
                    row += ["-", "-"]
                table.add_row(*row)
        self.console.print(table)

    def memory(self) -> None:
        """Peak memory of one call with little noise, each in a fresh process."""
        setting, delta = Setting(0.01, 0.1, 1000), 1e-5
        table = headed(
            f"Peak memory, each in its own process (at most {MEMORY_CAP_GIB} GiB): {setting}, delta={delta:g}",
            "accountant",
            "imports",
            "peak",
            "the call",
            "epsilon",
        )
        for peer in self.here:
            found = peak_memory(
                peer.name,
                (setting.sample_rate, setting.noise_multiplier, setting.steps),
                delta,
                MEMORY_CAP_GIB,
                self.limit,
            )
            if isinstance(found, str):
                table.add_row(peer.label, "-", "-", "-", Text(found, style="yellow"))
                continue
            before, after, lower, value = found
            answer = shown(value) if lower is None else f"{shown(lower)} to {shown(value)}"
            table.add_row(peer.label, f"{before:.0f} MiB", f"{after:.0f} MiB", f"{after - before:.0f} MiB", answer)
        self.console.print(table)

    def auditing(self) -> None:
        """Runs of an audit per second, beside a plain loop."""
        auditing.compare(self.console, self.repeats)

    def training(self) -> None:
        """Records per second of private training, beside Opacus."""
        training.compare(self.console)

    def verdict(self) -> None:
        """CPU seconds of whole commands, from the shell to the last line."""
        table = Table("command", "CPU s", "allowed", title="Time to the first verdict")
        for wait in verdict.WAITS:
            seconds = verdict.cpu_seconds(wait, self.repeats)
            style = "bold red" if seconds > wait.allowed else ""
            table.add_row(wait.name, Text(f"{seconds:.2f}", style), f"{wait.allowed:g}")
        self.console.print(table)

    def allocation(self) -> None:
        """Balls-and-bins and shuffling, beside what else there is."""
        allocation.compare(self.console, self.repeats, self.limit)

    def samplers(self) -> None:
        """One typical question each."""
        samplers.compare(self.console, self.repeats, self.limit)


SECTIONS = (
    "verdict",
    "settings",
    "steps",
    "calibration",
    "deltas",
    "gdp",
    "memory",
    "auditing",
    "allocation",
    "samplers",
    "training",
)


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench", description="Calipers beside other accountants."
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to run (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="one call each, 30 seconds at most, instead of five and 120"
    )
    arguments = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 160)
    console.print(
        f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}, {platform.machine()}; "
        "CPU time of the process, best of cold calls, imports excluded"
    )
    bench = Bench(console, arguments.quick)
    for section in SECTIONS:
        if section in arguments.only:
            getattr(bench, section)()


if __name__ == "__main__":
    main()
