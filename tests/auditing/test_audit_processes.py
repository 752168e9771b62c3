"""Audits that are killed: nothing is left running, no pipe stays open, and the ledger goes on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import calipers

SOURCE = Path(calipers.__file__).parents[1]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and parents as POSIX has them")

TARGET = """
import os, pathlib, time

def slow(present, rng):
    pathlib.Path("pids", str(os.getpid())).touch()
    time.sleep(0.3)
    return rng.normal() + present

def busy(present, rng):
    pathlib.Path("pids", str(os.getpid())).touch()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pass

def quick(present, rng):
    return rng.normal() + present
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "to_kill.py").write_text(TARGET)
    (tmp_path / "pids").mkdir()
    return tmp_path


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "calipers", "audit", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers(folder: Path, but: int) -> list[int]:
    """Processes that have played a run, the one that asked for them excepted."""
    return [int(path.name) for path in (folder / "pids").iterdir() if int(path.name) != but]


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie that somebody else has to bury."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_for(condition, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("how", "target"),
    [
        (signal.SIGKILL, "busy"),
        pytest.param(signal.SIGTERM, "slow", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, "slow", marks=pytest.mark.slow),
    ],
)
def test_workers_die_with_the_audit_that_started_them(folder: Path, how: signal.Signals, target: str) -> None:
    """Killed in any way while two workers play: both end within seconds, and whoever reads the pipe sees its end."""
    options = ("--distinguisher", "plain", "--trials", "2000", "--jobs", "2")
    audit = started(folder, f"to_kill:{target}", *options, "--chunk", "5")
    try:
        assert wait_for(lambda: len(workers(folder, audit.pid)) == 2, 60)
        os.kill(audit.pid, how)
        out, _ = audit.communicate(timeout=20)  # until all who hold the pipe are gone
        assert audit.returncode == -how
        assert out == ""
        assert wait_for(lambda: not any(alive(pid) for pid in workers(folder, audit.pid)), 20)
    finally:
        for pid in [audit.pid, *workers(folder, audit.pid)]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def no_room() -> None:
    """Files of this process may not grow beyond 40 kB: what a full disk does, without filling one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))


def test_a_disk_without_room_is_one_sentence(folder: Path) -> None:
    """The ledger cannot grow: exit status 2, one line, no traceback; what was recorded stays readable."""
    command = [sys.executable, "-m", "calipers", "audit", "to_kill:quick", "--distinguisher", "plain", "--trials"]
    command += ["20000", "--chunk", "1000", "--ledger", "full.ledger"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, preexec_fn=no_room, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "full.ledger" in done.stderr


def test_output_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    """Standard output on a full device: no traceback, not even while the interpreter ends."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    command = [sys.executable, "-m", "calipers", "audit", "to_kill:quick", "--trials", "50"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    """A ledger below a file, and in a folder that is not there: refused before anything is played."""
    (folder / "file").write_text("")
    for place in ("file/x.ledger", "missing/x.ledger"):
        audit = started(folder, "to_kill:quick", "--trials", "50", "--ledger", place)
        out, said = audit.communicate(timeout=60)
        assert (audit.returncode, out, said.count("\n")) == (2, "", 1)
        assert place in said
