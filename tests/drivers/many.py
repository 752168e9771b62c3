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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FRESH_MEGABYTES = 120.0
"""What a process of its own would hold before the question; a forked one starts with all that was loaded before."""
_LIMITS = [120, 3 << 30]
"""Seconds of a core and bytes that a question may take."""

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


def alone(question: Callable[[Any], Record], about: Any) -> Record:
    """The answer to `question(about)` from a process of its own, with its `seconds` and `megabytes`."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_alone, args=(question, about, theirs))
    process.start()
    theirs.close()
    try:
        found: Record = json.loads(ours.recv())
    except EOFError:
        found = {"outcome": "killed", "said": "", "seconds": float(_LIMITS[0]), "megabytes": 0.0}
    process.join()
    return found


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


def drive(question: Callable[[Any], Record], listed: Iterable[Any], log: Path, why_bad: Callable[[Record], str]) -> int:
    """Ask about each; print and count what is bad."""
    asked, bad = 0, 0
    with log.open("a") as lines:
        for about in listed:
            found = {"about": about} | alone(question, about)
            found["bad"] = why_bad(found)
            print(json.dumps(found), file=lines, flush=True)
            asked += 1
            if found["bad"]:
                bad += 1
                print(json.dumps(found), flush=True)
    print(f"{asked} runs, {bad} of them bad")
    return int(bad > 0)
