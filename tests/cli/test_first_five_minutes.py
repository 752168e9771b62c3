"""A person's first five minutes: every command of README.md, and of nothing else, typed as it is printed.

`make first-five-minutes` clones the repository, sets up a fresh environment by what README says and runs this file
there. Each command is a process of its own in a folder that holds what a clone holds, and may take three seconds of CPU
time; a shuffled run may take longer.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A machine that does other things at the same time counts more; whoever measures says so.
ALLOWED = float(os.environ.get("CALIPERS_CPU_SECONDS", "3"))
LONGER = {"measure --dataset-size 60000": 8.0}
"""A shuffled run is measured for all neighboring relations, and replaced records take longest."""
SERVES = ("explore",)


def typed() -> list[str]:
    """The commands of README.md in order, comments left out, without those that set up or build the repository."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = []
    for language, block in re.findall(r"^```(bash|console)\n(.*?)^```", text, flags=re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ") if language == "console" and line.startswith("$ ") else line
            if line.startswith(("calipers ", "python -m calipers_verify ")):
                found.append(re.sub(r"\s+#.*$", "", line))
    return found


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands find in a clone, and a shell that knows `calipers` and `python`."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", folder / "examples")
    tools = folder / "bin"
    tools.mkdir()
    for name, words in (("python", ""), ("calipers", " -m calipers")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (tools / name).chmod(0o755)
    return folder


def environment(clone: Path) -> dict[str, str]:
    # One thread: idle ones of a linear algebra library would be counted as work.
    return {**os.environ, "PATH": f"{clone / 'bin'}:{os.environ['PATH']}", "OPENBLAS_NUM_THREADS": "1"}


def test_readme_is_where_people_begin() -> None:
    """The commands are found: the first one measures, and every kind of command is among them."""
    commands = typed()
    assert commands[0].startswith("calipers measure --dataset-size 60000")
    assert {line.split()[1] for line in commands} == {"measure", "calibrate", "compare", "check"}


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in typed() if line.split()[1] not in SERVES])
def test_a_command_works_as_printed(line: str, clone: Path) -> None:
    """Exit status 0, something to read, nothing on standard error but what was written, and soon."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        ["/bin/sh", "-c", line], cwd=clone, env=environment(clone), capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0, result.stderr
    assert result.stdout or "wrote " in result.stderr
    assert [told for told in result.stderr.splitlines() if not told.startswith("wrote ")] == []
    seconds = after.ru_utime - before.ru_utime  # what the system adds while it loads libraries is not ours
    allowed = max(ALLOWED, next((LONGER[word] for word in LONGER if f"calipers {word} " in line), 0.0))
    assert seconds <= allowed, f"{seconds:.1f} s of CPU time, {allowed:g} allowed"
