"""What a worker process computes, and how it says that it could not.

A worker answers one job after another. It remembers the last few measurements, because the next job is often about the
same run: the page is looked at, then the report is asked for. Whatever goes wrong comes back as a `Refusal`; a worker
ends only when it is ended or when its memory is spent.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from calipers.bracket import Side
from calipers.calibrate import solve
from calipers.errors import CalipersError, CertificationError, InputError
from calipers.explorer.drawing import page_record
from calipers.explorer.requests import MOST_RUNS, Asked, AskedNoise, AskedTogether
from calipers.measure import Measurement, measure
from calipers.numerics.decimals import ceil_digits
from calipers.provenance import typed
from calipers.reports.answers import Answers, Questions, answer
from calipers.reports.compared import report_comparison
from calipers.reports.comparison import Judged, compare_judged
from calipers.reports.files import rendered
from calipers.reports.records import calibration_record, comparison_record, measurement_document, to_document, to_json
from calipers.reports.report import report_measurement
from calipers.run import Run

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

READY = "ready"
# As many as the page shows at a time, so that its reports find them measured.
MEASUREMENTS_KEPT = MOST_RUNS
LONGEST_REASON = 600
NOISE_DIGITS = 6


@dataclass(frozen=True)
class Written:
    """An answer, ready to be sent; a measured run also for the page, and for comparing it with others."""

    content: bytes
    page: bytes = b""
    judged: Judged | None = None


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer: one sentence for a person, one word for a program."""

    kind: str
    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Refusal:
        """What an exception says to the one who asked."""
        if isinstance(error, MemoryError):
            return cls("too large", "Measuring this run takes more memory than the explorer allows.")
        kind = next((word for one, word in _KINDS.items() if isinstance(error, one)), "defect")
        said = str(error) if kind != "defect" else f"Calipers failed: {type(error).__name__}: {error}"
        return cls(kind, shortened(said))


_KINDS = {InputError: "input", CertificationError: "not certified", CalipersError: "unsupported"}
Reply = Written | Refusal
Job = Callable[[], Written]
"""One of the functions below with what it is about (`functools.partial`), which travels to the process by its name."""


def shortened(reason: str) -> str:
    """One line of bounded length: a reason may quote what was sent."""
    line = " ".join(reason.split())
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 1] + "…"


def answered(job: Job) -> Reply:
    """The reply to one job. Never raises: a worker outlives what it is asked."""
    try:
        return job()
    except Exception as error:
        return Refusal.of(error)


def measured(asked: Asked) -> Written:
    """Measure a run and answer the questions."""
    measurement, answers = _measured(asked)
    page = to_json(page_record(measurement, answers)).encode()
    # The curves alone: a measurement holds its mechanism as well, which does not travel between processes.
    curves = {side: measurement.curve(side) for side in Side}
    return Written(measurement_document(answers).encode(), page, Judged(answers, curves.__getitem__))


def report(asked: Asked, form: str) -> Written:
    """Write the report of a run as "html", "md" or "json"."""
    return Written(rendered(report_measurement(_measured(asked)[0], asked.questions), f".{form}").encode())


def compared(names: Sequence[str], found: Sequence[Judged]) -> Written:
    """Say which of several measured runs is more private."""
    return Written(to_document(comparison_record(compare_judged(names, found))).encode())


def comparison_report(together: AskedTogether, form: str) -> Written:
    """Measure several runs and write the report of their comparison as "html", "md" or "json".

    A report says more than was asked (attacks at lower rates, what to change), so the runs are measured again by the
    worker that writes it; what it remembers it need not measure.
    """
    measured = [_measured(asked) for asked in together.each]
    comparison = compare_judged(together.names, [Judged(answers, one.curve) for one, answers in measured])
    report = report_comparison(comparison, [one for one, _ in measured], together.each[0].questions)
    return Written(rendered(report, f".{form}").encode())


def calibrated(asked: AskedNoise) -> Written:
    """What `calipers calibrate --json` prints, and the noise of every phase as a field takes it, rounded up."""
    target: dict[str, Any] = dict(asked.target)
    found = solve(asked.runs, tolerance=asked.tolerance, **target)
    shown = [ceil_digits(noise, NOISE_DIGITS) for noise in found.noise_multipliers]
    return Written(to_document({**calibration_record(found), "shown": shown}, found.phases[0].to_dict()).encode())


@lru_cache(maxsize=MEASUREMENTS_KEPT)
def _measured(asked: Asked) -> tuple[Measurement, Answers]:
    measurement = measure(asked.runs, tolerance=asked.tolerance)
    return measurement, answer(measurement, asked.questions)


def limit_memory(limit: int) -> None:
    """Let this process have at most so many bytes of address space, where the system knows such a limit."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def peak_memory() -> int:
    """The most memory this process has held, in bytes; 0 where the system does not say."""
    if resource is None:
        return 0
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def work(connection: Connection, memory_limit: int) -> None:
    """The life of a worker process: say READY, then answer jobs until the other end closes."""
    # Ctrl+C in the terminal reaches every process of the group; ending workers is the server's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(memory_limit)
    # The first measurement of a process loads what the others find loaded.
    first = Asked((Run(sample_rate=0.1, steps=2, noise_multiplier=1.0),), Questions(), 0.01)
    answered(partial(measured, first))
    with suppress(EOFError, BrokenPipeError):  # the server has gone
        connection.send(READY)
        while True:
            job = connection.recv()
            with typed(("explore",)):  # where the documents come from; this process has no command line of its own
                reply = answered(job)
            connection.send((reply, peak_memory()))
