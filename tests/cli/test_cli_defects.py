"""Whatever is left becomes one sentence with a status of its own; what has become one is refused by name."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.errors import InputError
from calipers.reading import RUN_FILE_BYTES, read_bounded
from calipers.run_keys import read_toml
from calipers.theorems.registry import THEOREMS, evaluate

POISSON = ("--sample-rate", 0.01, "--steps", 100)


def _raising(error: Exception, monkeypatch: pytest.MonkeyPatch, *words: str, **env: str) -> Any:
    """What a command that raises this leads to."""

    @click.command("measure")
    def raises() -> None:
        raise error

    monkeypatch.setattr(main, "get_command", lambda ctx, name: raises)
    return CliRunner().invoke(main, [*words, "measure"], env=env)


def test_what_nobody_foresaw_is_a_sentence_with_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _raising(KeyError("lost\n key"), monkeypatch)
    assert (found.exit_code, found.stdout) == (70, "")
    assert found.stderr.startswith("Error: Calipers failed (KeyError: 'lost\\n key'). This is a defect of Calipers")
    assert "calipers --debug" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(("words", "env"), [(("--debug",), {}), ((), {"CALIPERS_DEBUG": "1"})])
@pytest.mark.parametrize(("error", "status"), [(KeyError("lost"), 70), (InputError("Wrong."), 2)])
def test_the_traceback_comes_when_it_is_asked_for(
    words: tuple[str, ...], env: dict[str, str], error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _raising(error, monkeypatch, *words, **env)
    assert found.exit_code == status
    assert found.stderr.startswith("Traceback (most recent call last)")
    assert found.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (MemoryError(), 1, "not enough memory"),
        (RecursionError("deep"), 70, "RecursionError: deep"),
        (FileNotFoundError(2, "No such file", "x.toml"), 2, "Cannot read or write x.toml: No such file."),
        (click.ClickException("as it is"), 1, "as it is"),
        (ZeroDivisionError("x" * 5000), 70, "…"),
    ],
)
def test_every_exception_has_its_status(
    error: Exception, status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _raising(error, monkeypatch)
    assert (found.exit_code, found.stdout) == (status, "")
    assert said in found.stderr
    assert len(found.stderr) < 700


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("measure", *POISSON, "--noise-multiplier", 1, "--delta", "5e-324"), "Expected --delta in [1e-300, 1)"),
        (("measure", *POISSON, "--noise-multiplier", 1, "--fpr", "1e-308"), "Expected --fpr in [1e-300, 1)"),
        (("calibrate", *POISSON, "--epsilon", 1, "--delta", "5e-324"), "Expected --delta in [1e-300, 0.99]"),
        (("calibrate", *POISSON, "--tpr", 0.9, "--fpr", "1e-308"), "Expected --fpr in [1e-300, 1)"),
        (("calibrate", *POISSON, "--mu", "1.7e308"), "Expected --mu in (0, 1,000,000,000,000]"),
        (
            ("measure", *POISSON, "--noise-multiplier", 1, "--clip-count-noise", "1e-300"),
            "Expected --clip-count-noise in",
        ),
        (("certify", *POISSON, "--noise-multiplier", "1e7", "--epsilon", 1), "noise multipliers from 0.001 to 1e+06"),
        (
            ("certify", *POISSON, "--noise-multiplier", 1, "--epsilon", "1e300"),
            "Expected --epsilon in [1e-60, 1,000,000]",
        ),
    ],
    ids=lambda one: "" if isinstance(one, str) else " ".join(map(str, one)),
)
def test_extremes_are_refused_by_name(words: tuple[object, ...], said: str) -> None:
    """Each of these divided by zero, overflowed or came through as a refusal of the checker's."""
    if words[0] == "certify":
        pytest.importorskip("flint")
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert (found.exit_code, found.stdout) == (2, "")
    assert said in found.stderr


USUAL = {"noise_multiplier": 1.0, "epsilon": 1.0, "rounds": 10, "steps": 10, "sample_rate": 0.1, "delta": 1e-5}
USUAL |= {"mu": 1.0, "fpr": 0.01, "dimension": 10, "dataset_size": 100, "separation": 0.1, "scale": 0.5}
EXTREMES = ({"noise_multiplier": 1e-300}, {"noise_multiplier": 1e300}, {"epsilon": 709.9}, {"epsilon": 1e300})


CASES = [
    pytest.param(
        name, extreme, marks=[pytest.mark.slow] if name.startswith("wang-thm-3") else [], id=f"{name} {extreme}"
    )
    for name in sorted(THEOREMS)
    for extreme in EXTREMES
    if extreme.keys() <= {one.name for one in THEOREMS[name].parameters}
]


@pytest.mark.parametrize(("name", "extreme"), CASES)
def test_theorems_at_the_ends_of_double_precision(name: str, extreme: dict[str, float]) -> None:
    """A finite number or a sentence: six raised at noise 1e300 or 1e-300, one printed an infinite threshold."""
    taken = {one.name for one in THEOREMS[name].parameters}
    given = {key: value for key, value in (USUAL | extreme).items() if key in taken}
    found = CliRunner().invoke(main, ["theorem", name, *(f"--{key}={value}" for key, value in given.items())])
    assert found.exit_code in (0, 1, 2), found.stderr
    assert (found.exit_code == 0) != (found.stdout == "")
    assert " = inf" not in found.stdout
    assert " = nan" not in found.stdout


def test_an_infinite_threshold_is_no_answer() -> None:
    with pytest.raises(ArithmeticError, match=r"chua-eq-3-reversed cannot be evaluated .* \(threshold would be inf\)"):
        evaluate("chua-eq-3-reversed", epsilon=709.9, noise_multiplier=1.0, rounds=10)


def test_pipes_devices_and_folders_are_not_read(tmp_path: Path) -> None:
    """A pipe waited forever, /dev/zero took all memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(OSError, match="a pipe or a device"):
            read_bounded(path, 100)
        with pytest.raises(InputError, match=r"Cannot read the run file .* Write - for its name"):
            read_toml(str(path))
        for command in ("verify", "verify-receipt", "check"):
            found = CliRunner().invoke(main, [command, str(path)])
            assert (found.exit_code, found.stdout) == (2, "")
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path, 100)


def test_files_are_read_as_far_as_they_may_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"#" * 10)
    assert read_bounded(path, 10) == b"#" * 10
    with pytest.raises(OSError, match="more than 9 bytes"):
        read_bounded(path, 9)
    path.write_bytes(b"#" * (RUN_FILE_BYTES + 1))
    with pytest.raises(InputError, match="it has more than 1,000,000 bytes"):
        read_toml(str(path))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#" * (RUN_FILE_BYTES + 1))))
    with pytest.raises(InputError, match="Standard input: it has more than 1,000,000 bytes"):
        read_toml("-")


def test_names_of_thousands_of_parts_are_refused_at_once(tmp_path: Path) -> None:
    """20,000 parts took 45 s and 1.6 GB; long arrays are none."""
    path = tmp_path / "run.toml"
    path.write_text(".".join("a" * 20_000) + " = 1\n")
    with pytest.raises(InputError, match="not valid TOML: its lines of more than 100 points"):
        read_toml(str(path))
    path.write_text(f"beside = [{', '.join(['0.5'] * 900)}]\n")
    assert read_toml(str(path)) == {"beside": [0.5] * 900}
