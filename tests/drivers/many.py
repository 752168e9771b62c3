"""What drivers share: parts of a list, a process of its own for each question, and a log with one JSON line a run.

A question is asked in a forked process whose processor time and memory are limited and then read, so that one that runs
away, dies or raises is a line of the log and not the end of all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from pathlib import Path
from typing import Any

FRESH_MEGABYTES = 120.0
"""What a process of its own would hold before the question; a forked one starts with all that was loaded before."""
_LIMITS = [120, 3 << 30]
"""Seconds of a core and bytes that a question may take."""
_PATIENCE = 10
"""A question that waits for something takes no time of a core; after so many times its limit nobody waits for it."""
_NOTHING = object()

Record = dict[str, Any]


def megabytes() -> float:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024.0 if sys.platform == "linux" else 1024.0**2)


def limit(seconds: int, most_bytes: int) -> None:
    """Other limits from now on."""
    _LIMITS[:] = [seconds, most_bytes]


def _alone(question: Callable[[Any], Record], about: Any, pipe: Any) -> None:
    seconds, most_bytes = _LIMITS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
    start, before = time.process_time(), megabytes()
    try:
        found = question(about)
    except Exception as error:  # whatever comes out is the finding
        found = {"outcome": type(error).__name__, "said": traceback.format_exc()[-800:]}
    spent = {"seconds": time.process_time() - start, "megabytes": megabytes() - before + FRESH_MEGABYTES}
    pipe.send(json.dumps(found | spent))


class _Started:
    """A question in a process of its own."""

    def __init__(self, question: Callable[[Any], Record], about: Any) -> None:
        self.about = about
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(target=_alone, args=(question, about, theirs))
        self.process.start()
        theirs.close()
        self.ends = time.monotonic() + _PATIENCE * _LIMITS[0]

    def answer(self) -> Record:
        """What it sent, waited for; a process that sends nothing was killed, by its limits or by nobody's patience."""
        waited = self.pipe.poll(max(0.0, self.ends - time.monotonic()))
        if not waited:
            self.process.kill()
        try:
            found: Record = json.loads(self.pipe.recv())
        except EOFError:
            ended = "killed" if waited else "hung"
            found = {"outcome": ended, "said": "", "seconds": float(_LIMITS[0]), "megabytes": 0.0}
        self.pipe.close()
        self.process.join()
        return found


def alone(question: Callable[[Any], Record], about: Any) -> Record:
    """The answer to `question(about)` from a process of its own, with its `seconds` and `megabytes`."""
    return _Started(question, about).answer()


def at_once(question: Callable[[Any], Record], listed: Iterable[Any], jobs: int) -> Iterator[tuple[Any, Record]]:
    """What is asked about and its answer, from so many processes at a time, in the order in which they end."""
    waiting, running = iter(listed), list[_Started]()
    while True:
        while len(running) < jobs and (about := next(waiting, _NOTHING)) is not _NOTHING:
            running.append(_Started(question, about))
        if not running:
            return
        first = min(one.ends for one in running)
        ready = connection.wait([one.pipe for one in running], max(0.0, first - time.monotonic()))
        for one in [one for one in running if one.pipe in ready or one.ends <= time.monotonic()]:
            running.remove(one)
            yield one.about, one.answer()


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options of every driver."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=0, help="of the order, or of the first random run")
    made.add_argument("--count", type=int, help="as many, instead of all")
    made.add_argument("--part", default="1/1", help="i/n: every n-th, from the i-th on")
    made.add_argument("--log", type=Path, required=True, help="JSON lines, appended")
    return made


def part_of(listed: list[Any], part: str) -> list[Any]:
    """Every n-th of the list, from the i-th on, for the part "i/n"."""
    first, every = (int(number) for number in part.split("/"))
    if not 1 <= first <= every:
        raise SystemExit(f"--part {part}: i/n with 1 <= i <= n")
    return listed[first - 1 :: every]


def drive(
    question: Callable[[Any], Record],
    listed: Iterable[Any],
    log: Path,
    why_bad: Callable[[Record], str],
    jobs: int = 1,
) -> int:
    """Ask about each; print and count what is bad, and say last, as one line of JSON, what became of all."""
    all_found: list[Record] = []
    with log.open("a") as lines:
        for about, answer in at_once(question, listed, jobs):
            found = {"about": about} | answer
            found["bad"] = why_bad(found)
            print(json.dumps(found), file=lines, flush=True)
            all_found.append(found)
            if found["bad"]:
                print(json.dumps(found), flush=True)
    print(json.dumps(summary(all_found)), flush=True)
    return int(any(found["bad"] for found in all_found))


def summary(all_found: list[Record]) -> Record:
    """How many, of which kinds, with which outcomes, how many bad; the longest and the largest."""

    def counted(key: str) -> dict[str, int]:
        return dict(sorted(Counter(str(found.get(key, "")) for found in all_found if found.get(key, "") != "").items()))

    def most(key: str) -> Record | None:
        return max(all_found, key=lambda found: found[key], default=None)

    return {
        "runs": len(all_found),
        "bad": sum(bool(found["bad"]) for found in all_found),
        "skipped": counted("skipped"),
        "kinds": counted("kind"),
        "outcomes": counted("outcome"),
        "slowest": most("seconds"),
        "largest": most("megabytes"),
    }
