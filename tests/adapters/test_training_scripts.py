"""The scripts in examples/training run as they stand, and print what the documentation shows."""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "training"
PAGE = ROOT / "docs" / "howto" / "examples.md"

# What other libraries warn of is theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

NEEDED = {
    "mnist_opacus": ("opacus", pytest.mark.opacus),
    "own_loop_shuffled": ("torch", pytest.mark.torch),
    "lightning_opacus": ("lightning", pytest.mark.callbacks),
    "hugging_face_opacus": ("transformers", pytest.mark.callbacks),
    "accelerate_opacus": ("accelerate", pytest.mark.callbacks),
}


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Random numbers and log levels as they were, whatever a script does to them."""
    torch = importlib.import_module("torch")
    level = logging.getLogger().level
    with torch.random.fork_rng():
        yield
    logging.getLogger().setLevel(level)


def run_script(path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run it as `python path arguments`; the exit status."""
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    with put_back():
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def shown(name: str) -> str:
    """The text that the page shows after a script."""
    found = re.search(rf"{name}\.py\n:language: python\n```\n\n```text\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert found, f"{PAGE.name} shows no output of {name}"
    return found[1]


NUMBER = re.compile(r"\d+\.\d+")


def same(wanted: str, printed: str) -> bool:
    """Whether two lines are one, give or take one in the last digit of a decimal: processors round exp differently."""
    pairs = zip(NUMBER.findall(wanted), NUMBER.findall(printed), strict=False)
    near = all(abs(float(a) - float(b)) < 1.5 * 10.0 ** -len(a.partition(".")[2]) for a, b in pairs)
    return near and NUMBER.sub("#", wanted) == NUMBER.sub("#", printed)


def test_every_script_is_shown_and_run() -> None:
    """None is forgotten, neither by the page nor here."""
    scripts = {path.stem for path in SCRIPTS.glob("*.py")}
    assert scripts == set(NEEDED)
    assert all(shown(name) for name in scripts)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=mark) for name, (_, mark) in NEEDED.items()], ids=list(NEEDED)
)
def test_a_script_prints_what_is_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit: the numbers depend on what was executed, not on random numbers."""
    pytest.importorskip(NEEDED[name][0])
    if name != "own_loop_shuffled":
        pytest.importorskip("opacus")
    monkeypatch.chdir(tmp_path)
    assert run_script(SCRIPTS / f"{name}.py", monkeypatch) == 0
    wanted = shown(name).splitlines()
    printed = capsys.readouterr().out.splitlines()[-len(wanted) :]
    assert all(map(same, wanted, printed)), printed


@pytest.mark.opacus
def test_the_mnist_script_fails_the_build_where_the_budget_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One epoch more is at least 4.45 in epsilon, above the budget: status 4, on the records of a file."""
    pytest.importorskip("opacus")
    numpy = importlib.import_module("numpy")
    rng = numpy.random.default_rng(0)
    images, labels = rng.integers(0, 256, (1100, 28, 28)), rng.integers(0, 10, 1100)
    numpy.savez(tmp_path / "digits.npz", x_train=images.astype("uint8"), y_train=labels.astype("uint8"))
    longer = (SCRIPTS / "mnist_opacus.py").read_text("utf-8").replace("= 1050, 100, 3", "= 1050, 100, 4")
    (tmp_path / "longer.py").write_text(longer, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run_script(tmp_path / "longer.py", monkeypatch, "--data", "digits.npz") == 4
    assert capsys.readouterr().out.startswith("44 steps")


@pytest.mark.callbacks
def test_the_trainer_needs_its_gradients_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the callback that the example adds, Opacus refuses the second step: the comment in it is true."""
    for library in ("transformers", "opacus"):
        pytest.importorskip(library)
    text = (SCRIPTS / "hugging_face_opacus.py").read_text("utf-8")
    assert "callbacks=[ZeroGrad(), " in text
    (tmp_path / "without.py").write_text(text.replace("callbacks=[ZeroGrad(), ", "callbacks=["), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="haven't been cleared since the last optimizer step"):
        run_script(tmp_path / "without.py", monkeypatch)
