"""A ledger is gone on with by the code that began it, and by no other: the target's file, and every file behind it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from calipers.auditing.audit import audit
from calipers.auditing.distinguishers import Plain, ScoreFunction
from calipers.auditing.game import play
from calipers.auditing.ledger import LedgerError
from calipers.auditing.loading import as_target, load_function
from calipers.auditing.targets import FunctionTarget, TargetError
from calipers.user_code import changed_modules, user_modules

SOURCE = Path(__file__).parents[2] / "src"
MINE = "def target(present, rng):\n    return rng.normal(scale={noise}) + present\n"
BETTER = """\
from mine import target as unscored


def target(present, rng):
    return unscored(present, rng)


def scores(outputs):
    return outputs[:, 0]


target.scores = scores
"""
FILES = {
    "imported": {"better.py": BETTER, "mine.py": MINE},
    "imported by what is imported": {
        "better.py": "from between import target\n",
        "between.py": "import mine\n\n\ndef target(present, rng):\n    return mine.target(present, rng)\n",
        "mine.py": MINE,
    },
    "imported when it is called": {
        "better.py": "def target(present, rng):\n    import mine\n    return mine.target(present, rng)\n",
        "mine.py": MINE,
    },
    "in a package, by a relative name": {
        "better.py": "from parts.between import target\n",
        "parts/__init__.py": "",
        "parts/between.py": "from . import mine\n\n\ndef target(*both):\n    return mine.target(*both)\n",
        "parts/mine.py": MINE,
    },
    "in a folder without __init__": {"better.py": "from spaces.mine import target\n", "spaces/mine.py": MINE},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which every `begin` imports anew, as a new process does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    forget(tmp_path)


def forget(folder: Path) -> None:
    """Let the next import read the files again."""
    for name, module in list(sys.modules.items()):
        said = getattr(module, "__dict__", {})  # some modules answer to any name, others warn when they are asked
        places = [said.get("__file__"), *said.get("__path__", ())]
        if any(isinstance(place, str) and place.startswith(str(folder)) for place in places):
            del sys.modules[name]
    importlib.invalidate_caches()


def put(folder: Path, files: dict[str, str], noise: float) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("{noise}", repr(noise)))
    forget(folder)


def go(ledger: str = "it.ledger") -> float:
    """The game of better:target with a ledger, as a new process would play it; how far the scores lie apart."""
    found = play(as_target("better:target"), Plain(), trials=10, seed=0, chunk=10, ledger=ledger, resume=True)
    return float(found.present.mean() - found.absent.mean()) / float(found.absent.std())


@pytest.mark.parametrize(
    "case", [case if case == "imported" else pytest.param(case, marks=pytest.mark.slow) for case in FILES]
)
def test_a_ledger_of_other_code_is_refused(case: str, folder: Path) -> None:
    """The loop behind the target changes (from noise 4 to 0.1): its old verdict is not given; unchanged, it is."""
    put(folder, FILES[case], 4.0)
    first = go()
    put(folder, FILES[case], 4.0)
    assert go() == first
    put(folder, FILES[case], 0.1)
    with pytest.raises(LedgerError, match=r"begun with other code: \S*mine changed since\. Put back what was there"):
        go()
    assert go(ledger="other.ledger") > first


def test_a_comment_is_a_change(folder: Path) -> None:
    """Nobody says of a text whether it matters."""
    put(folder, FILES["imported"], 4.0)
    go()
    put(folder, FILES["imported"] | {"mine.py": MINE + "# better now\n"}, 4.0)
    with pytest.raises(LedgerError, match="mine changed"):
        go()


def test_modules_of_one_session_alone_do_not_matter(folder: Path) -> None:
    """Somebody who has imported something else meanwhile, or nothing of what was imported then, goes on."""
    put(folder, FILES["imported"] | {"plots.py": "x = 1\n", "tables.py": "x = 1\n"}, 4.0)
    importlib.import_module("plots")
    first = go()
    put(folder, {"plots.py": "x = 2\n"}, 4.0)
    importlib.import_module("tables")
    assert go() == first
    importlib.import_module("plots")
    with pytest.raises(LedgerError, match="plots changed"):
        go()


def test_a_score_s_helper_counts(folder: Path) -> None:
    """How runs are scored is part of the game, with everything behind it."""
    scored = "from helper import factor\n\n\ndef scores(outputs):\n    return factor * outputs[:, 0]\n"
    put(folder, {"scored.py": scored, "helper.py": "factor = 1.0\n", "better.py": BETTER, "mine.py": MINE}, 4.0)

    def begin() -> None:
        score = ScoreFunction(load_function("scored:scores"))
        play(as_target("better:target"), score, trials=10, seed=0, chunk=5, ledger="it.ledger", resume=True)

    begin()
    put(folder, {"helper.py": "factor = -1.0\n"}, 4.0)
    with pytest.raises(LedgerError, match="helper changed"):
        begin()


def shifted(shift: float) -> FunctionTarget:
    """A target whose text does not say what it does."""
    return FunctionTarget(lambda present, rng: rng.normal() + shift * present, name="shifted")


@pytest.mark.parametrize("kept", ["all", "the second chunk alone"])
def test_what_no_text_shows_is_found_by_playing_again(kept: str, folder: Path) -> None:
    """A variable of an enclosing function, or data: a chunk is played again, whichever the ledger holds."""
    import sqlite3
    from contextlib import closing

    settings = {"trials": 20, "seed": 1, "chunk": 5, "ledger": "it.ledger", "resume": True}
    whole = play(shifted(1.0), Plain(), **settings)
    if kept != "all":
        with closing(sqlite3.connect("it.ledger")) as connection, connection:
            connection.execute("DELETE FROM chunk WHERE number != 1")
    before = Path("it.ledger").read_bytes()
    with pytest.raises(TargetError, match="does not repeat what the ledger holds"):
        play(shifted(1.1), Plain(), **settings)
    assert Path("it.ledger").read_bytes() == before
    assert (play(shifted(1.0), Plain(), **settings).present == whole.present).all()


@pytest.mark.slow
def test_a_sequential_audit_plays_a_kept_chunk_again(folder: Path) -> None:
    """Also where its looks would all be answered from the ledger."""
    how = {"trials": 60, "seed": 1, "claim": (5.0, 1e-5), "sequential": True, "ledger": "it.ledger", "resume": True}
    audit(shifted(0.1), Plain(), **how)
    audit(shifted(0.1), Plain(), **how)
    with pytest.raises(TargetError, match="does not repeat what the ledger holds"):
        audit(shifted(9.0), Plain(), **how)


def test_user_modules_are_the_users(folder: Path) -> None:
    """Neither Python's, nor installed ones, nor Calipers', nor the script; numpy and click are none."""
    put(folder, {"alone.py": "import numpy\nimport late\nimport missing\n", "late.py": ""}, 1.0)
    before = user_modules()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("alone")
    importlib.import_module("late")
    found = user_modules()
    assert found.keys() - before.keys() == {"late"}
    assert not [name for name in found if name.split(".")[0] in ("calipers", "numpy", "pytest", "json", "__main__")]
    assert changed_modules(before, found) == []


def test_a_link_to_nothing_is_called_one(tmp_path: Path) -> None:
    """No other process has made it."""
    (tmp_path / "it.ledger").symlink_to(tmp_path / "gone.ledger")
    for resume in (False, True):
        with pytest.raises(LedgerError, match=r"is a link to .*gone\.ledger, which is not there; name another file"):
            play(shifted(1.0), Plain(), trials=4, seed=1, chunk=2, ledger=tmp_path / "it.ledger", resume=resume)


@pytest.mark.slow
def test_the_command_refuses_the_old_verdict(tmp_path: Path) -> None:
    """Two processes: the second has the mistake, and the ledger of the first. Status 2, nothing printed."""

    def command(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "calipers", "audit", "better:target", "--trials", "200"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        line += ["--claim", "0.5,1e-5", "--fail-on", "falsified", *more]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    for name, text in FILES["imported"].items():
        (tmp_path / name).write_text(text.replace("{noise}", "4.0"))
    ledger = ("--ledger", "it.ledger", "--resume")
    first = command(*ledger)
    assert first.returncode == 0, first.stderr
    assert command(*ledger).stdout == first.stdout
    (tmp_path / "mine.py").write_text(MINE.replace("{noise}", "0.1"))
    again = command(*ledger)
    assert (again.returncode, again.stdout) == (2, "")
    assert "begun with other code: mine changed since" in again.stderr
    assert command().returncode == 4


def test_scores_of_an_unchanged_target_come_out_again(folder: Path) -> None:
    """With the ledger and without it, bit for bit."""
    put(folder, FILES["imported"], 4.0)
    kept = play(FunctionTarget(load_function("better:target")), Plain(), trials=40, seed=3, ledger="it.ledger")
    put(folder, FILES["imported"], 4.0)
    target = FunctionTarget(load_function("better:target"))
    again = play(target, Plain(), trials=40, seed=3, ledger="it.ledger", resume=True)
    assert np.array_equal(kept.absent, again.absent)
    assert np.array_equal(kept.present, play(target, Plain(), trials=40, seed=3).present)
