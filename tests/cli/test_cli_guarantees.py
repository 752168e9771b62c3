"""`calipers measure` of what is no run: guarantees, correlated noise, selection, joint releases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calipers.cli import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def measured(*arguments: str) -> dict[str, object]:
    result = run("measure", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


@pytest.mark.parametrize(
    ("arguments", "table", "epsilon"),
    [
        (("--guarantee", "8,1e-5"), "guarantee", 8.0),
        (("--mu", "1", "--adjacency", "substitute"), "guarantee", 4.37718),
        (("--zcdp", "0.5"), "guarantee", 4.7284),
        (("--mu", "0.5", "--selected-mean", "10", "--trials", "logarithmic"), "selection", 2.8662),
    ],
)
def test_json_has_the_keys_of_a_run(arguments: tuple[str, ...], table: str, epsilon: float) -> None:
    """The run key names what is stated; the upper bound is the known one."""
    record = measured(*arguments)
    assert table in record["run"]  # type: ignore[operator]
    (row,) = record["epsilon"]  # type: ignore[misc]
    assert row["lower"] <= row["upper"] == pytest.approx(epsilon, rel=1e-3)


def test_correlated_noise_and_joint_releases(tmp_path: Path) -> None:
    """A file, the tree, a count beside the gradient."""
    np.save(tmp_path / "c.npy", 1.0 / np.sqrt(np.arange(1, 9)))
    banded = measured(
        *("--noise-matrix", str(tmp_path / "c.npy"), "--steps", "2000", "--noise-multiplier", "2"),
        *("--min-separation", "8", "--sample-rate", "0.05"),
    )
    assert banded["epsilon"][0]["upper"] == pytest.approx(3.705, rel=1e-3)  # type: ignore[index]
    tree = measured("--noise-matrix", "tree", "--steps", "256", "--noise-multiplier", "5", "--min-separation", "64")
    assert tree["epsilon"][0]["upper"] == pytest.approx(6.7283, rel=1e-3)  # type: ignore[index]
    joint = measured(
        "--sample-rate",
        "0.01",
        "--steps",
        "100",
        "--noise-multiplier",
        "1",
        "--clip-count-noise",
        "10",
        "--additional-query",
        "9",
    )
    assert joint["run"]["noise_multiplier"] < 1.0  # type: ignore[index]


def test_files_state_guarantees_and_compare(tmp_path: Path) -> None:
    """A [guarantee] file is measured, compared, drawn and reported."""
    strong, weak = tmp_path / "strong.toml", tmp_path / "weak.toml"
    strong.write_text("[guarantee]\nmu = 0.5\n")
    weak.write_text("[guarantee]\nmu = 1.0\n")
    report = tmp_path / "out.md"
    assert run("measure", "--run", str(strong), "--report", str(report)).exit_code == 0
    assert "0.5-GDP" in report.read_text()
    compared = run("compare", str(strong), str(weak), "--json")
    assert json.loads(compared.output)["verdicts"][0]["order"] == "first is more private"
    curve = run("curve", "--guarantee", "1,1e-5", "--profile", "--epsilon", "0.5")
    assert curve.exit_code == 0
    assert curve.output.count("\n") == 3


@pytest.mark.dp_accounting
def test_an_event_file(tmp_path: Path) -> None:
    """A JSON event is measured and compared."""
    pytest.importorskip("dp_accounting")
    path = tmp_path / "event.json"
    path.write_text('{"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}')
    assert measured("--event", str(path))["epsilon"][0]["upper"] == pytest.approx(4.37718, rel=1e-5)  # type: ignore[index]
    (tmp_path / "mu.toml").write_text("[guarantee]\nmu = 1.0\n")
    assert run("compare", str(path), str(tmp_path / "mu.toml")).exit_code == 0


A_RUN = ("--sample-rate", "0.01", "--steps", "10", "--noise-multiplier", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--guarantee", "8,1e-5", "--steps", "3"), "contradict"),
        (("--guarantee", "8;1e-5"), "EPS,DELTA"),
        (("--guarantee", "8,1e-5,3"), "EPS,DELTA"),
        (("--mu", "1", "--zcdp", "1"), "contradict"),
        (("--mu", "-1"), "mu"),
        (("--mu", "1", "--certificate", "x.json"), "certifies a run"),
        (("--mu", "1", "--dataset-size-range", "1", "2"), "leave it out"),
        (("--min-separation", "3"), "--noise-matrix"),
        (("--noise-matrix", "none.npy", "--noise-multiplier", "1", "--min-separation", "2"), "Cannot read"),
        (("--noise-matrix", "tree", "--mu", "1"), "--mu"),
        (("--noise-matrix", "tree", "--epochs", "3", "--sampler", "shuffle"), "Leave out --epochs, --sampler: --noise"),
        (("--guarantee", "8,2"), "EPS,DELTA, an epsilon from 0 on and a delta up to 1"),
        (("--trials", "poisson", "--mu", "1"), "--selected-mean"),
        (("--additional-query", "3", "--mu", "1"), "leave the other options out"),
        (
            (*A_RUN, "--clip-count-noise", "1e-300"),
            "Expected --clip-count-noise in [0.01, inf), got --clip-count-noise 1e-300",
        ),
        ((*A_RUN, "--clip-count-noise", "0"), "got --clip-count-noise 0.0"),
        ((*A_RUN, "--additional-query", "0"), "got --additional-query 0.0"),
        (
            (*A_RUN, "--additional-query", "5", "--additional-query", "1e-300"),
            "got --additional-query 1e-300: with the gradient's 1 it is 1e-300",
        ),
        (
            (*A_RUN, "--additional-query", "0.02", "--additional-query", "0.02"),
            "got --additional-query 0.02: with the gradient's 1 it is 0.0141",
        ),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str) -> None:
    """Exit status 2, the reason on standard error, nothing on standard output."""
    result = run("measure", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_run_files_say_the_same_as_options(tmp_path: Path) -> None:
    """Correlated noise (its matrix beside the file), selection and what is beside; options replace what a file says."""
    np.savetxt(tmp_path / "c.txt", [1.0, 0.5])
    run_keys = "sample_rate = 0.05\nsteps = 10\nnoise_multiplier = 2.0\n"
    files = {
        "correlated": 'noise_matrix = "c.txt"\nsteps = 20\nnoise_multiplier = 2.0\nmin_separation = 4\n',
        "selection": run_keys + 'selected_mean = 3\ntrials = "logarithmic"\n',
        "beside": run_keys + "additional_query = [4.0, 5.0]\nclip_count_noise = 3.0\n",
    }
    shared = ("--sample-rate", "0.05", "--steps", "10", "--noise-multiplier", "2")
    matrix = ("--noise-matrix", str(tmp_path / "c.txt"), "--steps", "20", "--min-separation", "4")
    options = {
        "correlated": (*matrix, "--noise-multiplier", "2"),
        "selection": (*shared, "--selected-mean", "3", "--trials", "logarithmic"),
        "beside": (*shared, "--additional-query", "4", "--additional-query", "5", "--clip-count-noise", "3"),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
        written, said = measured("--run", str(tmp_path / f"{name}.toml")), measured(*options[name])
        assert written["epsilon"] == said["epsilon"]
    quieter = measured("--run", str(tmp_path / "correlated.toml"), "--noise-multiplier", "4")
    assert quieter["epsilon"] == measured(*matrix, "--noise-multiplier", "4")["epsilon"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('noise_matrix = "tree"\nsteps = 8\nnoise_multiplier = "two"\nmin_separation = 4\n', "noise_multiplier"),
        ('noise_matrix = "tree"\nsteps = 8\nnoise_multiplier = 2\nmin_separation = 2.5\n', "separation"),
        ('noise_matrix = "tree"\nsteps = 8\nnoise_multiplier = 2\nmin_separation = 4\nepochs = 1\n', "epochs"),
        ("sample_rate = 0.1\nsteps = 8\nnoise_multiplier = 2\nselected_mean = 0.5\n", "mean"),
        ('sample_rate = 0.1\nsteps = 8\nnoise_multiplier = 2\nbeside = "x"\n', "beside"),
        ("sample_rate = 0.1\nsteps = 8\nnoise_multiplier = 2\ntrials_shape = 2\n", "--selected-mean"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    """An error with the key, no traceback."""
    (tmp_path / "run.toml").write_text(text)
    result = run("measure", "--run", str(tmp_path / "run.toml"))
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
