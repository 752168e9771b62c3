"""A ledger keeps every finished chunk, belongs to one game, and never destroys anything."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from calipers.auditing.distinguishers import Plain
from calipers.auditing.game import play
from calipers.auditing.ledger import LedgerError, PlayedChunk, fingerprint, open_ledger
from calipers.auditing.targets import FunctionTarget, TargetError
from calipers.errors import InputError

SOURCE = Path(__file__).parents[2] / "src"
DESCRIPTION: dict[str, object] = {"target": {"name": "a", "noise": 1.5}, "seed": "3", "trials": 10}


def chunk(number: int, seed: int = 0) -> PlayedChunk:
    rng = np.random.default_rng(seed + number)
    return PlayedChunk(number, rng.normal(size=4), np.array([1.0, -np.inf, np.inf, 2.0**-1074]), (3, 2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "game.ledger"


def filled(path: Path, count: int = 3) -> None:
    with open_ledger(path, DESCRIPTION, resume=False) as ledger:
        for number in range(count):
            ledger.record(chunk(number))


def refused_untouched(path: Path, message: str, description: dict[str, object] = DESCRIPTION) -> None:
    """Resuming is refused with this message, and not a byte of the file changes."""
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=message):
        open_ledger(path, description, resume=True)
    assert path.read_bytes() == before


def test_chunks_come_back_bit_for_bit(path: Path) -> None:
    """Scores, infinities and the smallest double included, and the shape of the outputs."""
    filled(path)
    with open_ledger(path, DESCRIPTION, resume=True) as ledger:
        found = ledger.chunks()
    assert sorted(found) == [0, 1, 2]
    for number, kept in found.items():
        assert (kept.absent == chunk(number).absent).all()
        assert (kept.present == chunk(number).present).all()
        assert kept.shape == (3, 2)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_existing_ledger_is_opened_only_to_resume(path: Path) -> None:
    """Without resume the file is left alone, with it a missing one is started."""
    filled(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="resume"):
        open_ledger(path, DESCRIPTION, resume=False)
    assert path.read_bytes() == before
    with open_ledger(path.with_name("new.ledger"), DESCRIPTION, resume=True) as ledger:
        assert ledger.chunks() == {}


def test_a_ledger_of_another_game_is_refused_with_the_difference(path: Path) -> None:
    """The message names the key and both values."""
    filled(path)
    other = {**DESCRIPTION, "target": {"name": "a", "noise": 2.5}}
    refused_untouched(path, "target.noise is 1.5 there and 2.5 here", other)
    assert fingerprint(other) != fingerprint(DESCRIPTION)


@pytest.mark.parametrize(
    "content", [b"", b"not a database", b"SQLite format 3\x00", b"x" * 5000], ids=["empty", "text", "stub", "long"]
)
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    """Whatever it is, it stays."""
    path.write_bytes(content)
    refused_untouched(path, "not a ledger")


def test_somebody_elses_database_is_refused(path: Path) -> None:
    """An SQLite database without our mark is not opened; its journal mode stays what it was."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE chunk (number INTEGER)")
    connection.commit()
    connection.close()
    refused_untouched(path, "no ledger of Calipers")
    assert not list(path.parent.glob("*-wal"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    """A ledger is a file."""
    with pytest.raises(LedgerError, match="not a file"):
        open_ledger(tmp_path, DESCRIPTION, resume=True)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE chunk SET absent = present WHERE number = 1", "chunk 1 does not match"),
        ("UPDATE chunk SET number = 7 WHERE number = 1", "chunk 7 does not match"),
        ("UPDATE game SET description = '{}'", "which game"),
        ("DELETE FROM game", "which game"),
        ("PRAGMA user_version = 99", "format 99"),
    ],
)
def test_altered_contents_are_noticed(path: Path, statement: str, message: str) -> None:
    """Numbers, chunk numbers, the description and the format are all checked."""
    filled(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match=message), open_ledger(path, DESCRIPTION, resume=True) as ledger:
        ledger.chunks()


def test_a_truncated_ledger_is_refused(path: Path) -> None:
    """The second half is gone: nothing is read, and the rest stays."""
    filled(path, 40)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused_untouched(path, "damaged|cannot be used")


def test_a_flipped_bit_in_the_scores_is_noticed(path: Path) -> None:
    """One bit of one score, deep in the file."""
    filled(path)
    content = bytearray(path.read_bytes())
    place = content.find(chunk(1).absent.astype("<f8").tobytes())
    assert place > 0
    content[place + 3] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="chunk 1"), open_ledger(path, DESCRIPTION, resume=True) as ledger:
        ledger.chunks()


def test_two_games_cannot_share_a_ledger(path: Path) -> None:
    """While one process has it, another is refused; afterwards it may have it."""
    program = f"""
    import sys
    from pathlib import Path
    from calipers.auditing.ledger import LedgerError, open_ledger
    try:
        with open_ledger(Path(sys.argv[1]), {DESCRIPTION!r}, resume=True):
            pass
    except LedgerError as error:
        print(error)
    """

    def other() -> str:
        command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    with open_ledger(path, DESCRIPTION, resume=False) as ledger:
        ledger.record(chunk(0))
        assert "in use by another game" in other()
    assert other() == ""


def test_an_identity_that_is_no_json_is_refused(path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(InputError, match="JSON"):
        open_ledger(path, {"target": object()}, resume=False)
    assert not path.exists()


# A game in a process of its own: slow enough to be killed in the middle, three features so that all is exercised.
SLOW = """
import sys, time
import numpy as np
from calipers.auditing.distinguishers import MatchedFilter
from calipers.auditing.game import play
from calipers.auditing.targets import FunctionTarget

def target(present, rng):
    time.sleep(float(sys.argv[2]))
    return rng.normal(size=3) + present

if __name__ == "__main__":
    scores = play(
        FunctionTarget(target, name="slow"), MatchedFilter(), trials=60, seed=8, chunk=5, jobs=int(sys.argv[3]),
        ledger=sys.argv[1], resume=True, progress=lambda done, total: print(done, flush=True),
    )
    np.save(sys.argv[4], np.stack([scores.absent, scores.present]))
"""


def played_chunks(path: Path) -> set[int]:
    """The chunks in a ledger that nobody has open."""
    connection = sqlite3.connect(path)
    try:
        return {number for (number,) in connection.execute("SELECT number FROM chunk")}
    finally:
        connection.close()


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_game_resumes_to_the_same_result(tmp_path: Path, jobs: int) -> None:
    """SIGKILL in the middle, twice: every chunk that was reported is kept, and the end is the uninterrupted one."""
    script, ledger, result = tmp_path / "slow.py", tmp_path / "slow.ledger", tmp_path / "result.npy"
    script.write_text(SLOW)

    def start(pause: float) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(ledger), str(pause), str(jobs), str(result)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)

    seen: set[int] = set()
    for trials in (15, 35):
        with start(0.02) as process:
            assert process.stdout is not None
            done = next(int(line) for line in process.stdout if int(line) >= trials)
            os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        now = played_chunks(ledger)
        assert seen <= now
        assert done // 5 <= len(now) < 12
        seen = now
    with start(0.0) as finishing:
        assert finishing.stdout is not None
        first, *_, last = (int(line) for line in finishing.stdout)
    assert finishing.returncode == 0
    assert (first, last) == (5 * len(seen), 60)
    found = np.load(result)

    def target(present, rng):
        return rng.normal(size=3) + present

    whole = play(FunctionTarget(target, name="slow"), Sum(), trials=60, seed=8, chunk=5)
    assert (found[0] == whole.absent).all()
    assert (found[1] == whole.present).all()


class Sum:
    """An independent matched filter on the first feature."""

    name = "first feature"

    def identity(self) -> dict[str, object]:
        return {}

    def scores(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[:, 0].copy()


def counting(calls: list[int]) -> FunctionTarget:
    def target(present, rng):
        calls.append(1)
        return rng.normal() + present

    return FunctionTarget(target, name="counting")


def test_what_the_ledger_holds_is_not_played_again(path: Path) -> None:
    """Of a ledger one chunk is played again as a check, whether it is complete or not, and what is missing."""
    calls: list[int] = []
    first = play(counting(calls), Plain(), trials=20, seed=1, chunk=5, ledger=path)
    assert len(calls) == 2 * (20 + 5)
    again = play(counting(calls), Plain(), trials=20, seed=1, chunk=5, ledger=path, resume=True)
    assert len(calls) == 2 * (20 + 5 + 5)
    assert (again.absent == first.absent).all()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM chunk WHERE number = 2")
    connection.commit()
    connection.close()
    last = play(counting(calls), Plain(), trials=20, seed=1, chunk=5, ledger=path, resume=True)
    assert len(calls) == 2 * (20 + 5 + 5) + 2 * (5 + 5)
    assert (last.present == first.present).all()


def test_a_target_that_changed_behind_its_name_is_noticed(path: Path) -> None:
    """Resuming repeats a chunk that the ledger holds; other scores mean another target."""

    class Versioned:
        name = "versioned"

        def __init__(self, shift: float) -> None:
            self.shift = shift

        def identity(self) -> dict[str, object]:
            return {"target": "versioned"}

        def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
            return rng.normal(size=(count, 1)) + self.shift * present

    def stop(done: int, total: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(Versioned(1.0), Plain(), trials=20, seed=1, chunk=5, ledger=path, progress=stop)
    with pytest.raises(TargetError, match="does not repeat what the ledger holds"):
        play(Versioned(1.1), Plain(), trials=20, seed=1, chunk=5, ledger=path, resume=True)
    play(Versioned(1.0), Plain(), trials=20, seed=1, chunk=5, ledger=path, resume=True)


@pytest.mark.parametrize("change", [{"trials": 30}, {"seed": 2}, {"chunk": 4}])
def test_other_trials_seed_or_chunk_are_another_game(path: Path, change: dict) -> None:
    """More trials after a look would be optional stopping, so they need a new game too."""
    settings = {"trials": 20, "seed": 1, "chunk": 5}
    play(counting([]), Plain(), **settings, ledger=path)
    with pytest.raises(LedgerError, match=f"{next(iter(change))} is"):
        play(counting([]), Plain(), **{**settings, **change}, ledger=path, resume=True)
