"""Lines that are broken on purpose, and the tests that must notice.

    python tests/drivers/mutations.py [--only N1 L5 ...] [--share COMMIT --of 8] [--log found.jsonl] [--seconds 120]

The table is `mutations.toml`. Every mutation is applied to a copy of `src` in a temporary folder, never to the working
tree. Only quick tests are asked, unless an entry names a mark of its own. A mutation is killed (a test failed),
survived, undecided (the time was up), not applied (the line has changed, and the table must follow) or not tested (its
tests fail without it, or are none). The exit status is 1 unless all are killed, but for those that the table says are
harmless.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = {0: "survived", 1: "killed", 5: "not tested"}


class Mutation(NamedTuple):
    """One place in one file, what it becomes, and where that should be noticed."""

    key: str
    words: str
    file: str
    old: str
    new: str
    tests: str
    harmless: str = ""
    """Why the numbers stay bounds, where no test can notice."""


def table() -> list[Mutation]:
    """All mutations, in the order of the file."""
    return [
        Mutation(**row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["mutation"]
    ]


def outcome(mutation: Mutation, source: Path, seconds: float) -> str:
    """What the tests say of the broken line, which is broken below `source` alone."""
    path = source / mutation.file
    whole = path.read_text("utf-8") if path.exists() else ""
    if whole.count(mutation.old) != 1:
        return "not applied"
    if said_of(mutation.tests, source, seconds) != "survived":  # as they are, all should pass
        return "not tested"
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return asked(mutation.tests, source, seconds)
    finally:
        path.write_text(whole, encoding="utf-8")


def asked(tests: str, source: Path, seconds: float) -> str:
    """What tests say of the code below `source`."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-n", "0", *tests.split()]
    # Without compiled files, whose age in seconds would hide a change that is quicker than that.
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "undecided"
    return OUTCOMES.get(done.returncode, f"exit {done.returncode}")


said_of = functools.cache(asked)
"""Of the code as it is: once for all mutations that name the same tests."""


def main() -> int:
    """Break, test, restore, say."""
    parser = argparse.ArgumentParser(description="Break lines on purpose and see which tests notice.")
    parser.add_argument("--only", nargs="*", default=[], help="keys of mutations, or their first letters")
    parser.add_argument("--share", default="0", help="a hexadecimal number, such as a commit: which share to try")
    parser.add_argument("--of", type=int, default=1, help="how many shares there are")
    parser.add_argument("--log", type=Path, help="one line of JSON for each")
    parser.add_argument("--seconds", type=float, default=120.0, help="after which one is undecided")
    chosen_by = parser.parse_args()
    chosen = [
        each for each in table() if not chosen_by.only or any(key in (each.key, each.key[0]) for key in chosen_by.only)
    ]
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)  # hints are those of a clone
        for mutation in chosen[int(chosen_by.share, 16) % chosen_by.of :: chosen_by.of]:
            began = time.monotonic()
            found = outcome(mutation, source, chosen_by.seconds)
            if found != "killed" and not (found == "survived" and mutation.harmless):
                missed.append(mutation.key)
            seconds = round(time.monotonic() - began, 1)
            print(f"{mutation.key:5} {found:12} {seconds:6.1f} s  {mutation.words}", flush=True)
            if chosen_by.log is not None:
                row = {"key": mutation.key, "what": mutation.words, "outcome": found, "seconds": seconds}
                with chosen_by.log.open("a", encoding="utf-8") as log:
                    log.write(json.dumps(row) + "\n")
    print(f"not killed: {' '.join(missed)}" if missed else "all killed, or harmless")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
