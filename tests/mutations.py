"""Lines that are broken on purpose, and the tests that must notice.

    python tests/mutations.py --log found.jsonl [--only N1 L5 ...] [--seconds 600]

The table is `mutations.toml`. Run this in a copy of the repository: it edits files under src, one at a time, and puts
each back. One line of JSON per mutation: killed (a test failed), survived, timeout, or not applied (the line has
changed, and the table must follow).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    """One place in one file, what it becomes, and where that should be noticed."""

    key: str
    words: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = [Mutation(**row) for row in tomllib.loads((ROOT / "tests/mutations.toml").read_text("utf-8"))["mutation"]]


def outcome(mutation: Mutation, seconds: float) -> str:
    """What the tests say of the broken line."""
    path = ROOT / "src" / "calipers" / mutation.file
    whole = path.read_text("utf-8")
    if whole.count(mutation.old) != 1:
        return "not applied"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        path.write_text(whole, encoding="utf-8")
    meaning = {0: "survived", 1: "killed", 5: "no test was chosen"}
    return meaning.get(done.returncode, f"exit {done.returncode}")


def main() -> None:
    """Break, test, restore, write down."""
    parser = argparse.ArgumentParser(description="Break lines on purpose and see which tests notice.")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    for mutation in MUTATIONS:
        if asked.only and mutation.key not in asked.only:
            continue
        row = {"key": mutation.key, "what": mutation.words, "outcome": outcome(mutation, asked.seconds)}
        with asked.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
