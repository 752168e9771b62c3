"""Where a budget is written, and who may loosen it: a change that somebody proposes cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.gate import Budget, check
from calipers.run import Run

PRIVATE = "sample_rate = 0.01\nsteps = 100\nnoise_multiplier = 2.0\n"
PROJECT = "[tool.calipers]\nepsilon = 1\ndelta = 1e-5\n"
BUDGET = ("--epsilon", "1", "--delta", "1e-5")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(PRIVATE)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, ["check", *arguments])


def refused(result, *said: str) -> None:
    """Status 2, nothing decided, one sentence with these words."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    for word in said:
        assert word in " ".join(result.stderr.split())


@pytest.mark.parametrize("content", [b"[tool.calipers", b"name = '\xff'\n"], ids=["no TOML", "no UTF-8"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_project_file_that_cannot_be_read_is_refused_by_name(content, inside, folder, monkeypatch) -> None:
    """Its rule about the neighbors was gone: zero-out passed where add-remove was asked for."""
    (folder / "zo.toml").write_text(PRIVATE + "adjacency = 'zero-out'\n")
    (folder / "pyproject.toml").write_text(PROJECT + "adjacency = 'add-remove'\n")
    refused(run("zo.toml"), "adjacency='add-remove'")
    broken = folder / "inner" if inside else folder
    broken.mkdir(exist_ok=True)
    monkeypatch.chdir(broken)
    with (broken / "pyproject.toml").open("ab") as file:
        file.write(content)
    refused(run(str(folder / "zo.toml"), *BUDGET), str(broken / "pyproject.toml"))


@pytest.mark.parametrize(("key", "value"), [("epsilon", "1000"), ("delta", "0.5")])
def test_a_run_file_cannot_loosen_the_budget_of_its_project(key, value, folder) -> None:
    """epsilon = 1000 in the run file passed; a stricter one counts, and so does what whoever checks says."""
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "run.toml").write_text(f"{PRIVATE}[calipers]\n{key} = {value}\n")
    refused(run("run.toml"), "run.toml: [calipers] allows", "A run file may only be stricter")
    assert "0.001" in run("run.toml", f"--{key}", "0.001").stdout
    (folder / "run.toml").write_text(f"{PRIVATE}[calipers]\nepsilon = 0.001\n")
    assert run("run.toml").exit_code == 4


@pytest.mark.parametrize(
    ("option", "value", "own"), [("--adjacency", "add-remove", "zero-out"), ("--view", "worst-case", "isolated")]
)
def test_neighbors_and_view_of_the_options_win(option, value, own, folder) -> None:
    """Over pyproject.toml and over the run file."""
    weaker = f"{option[2:]} = '{own}'\n"
    (folder / "pyproject.toml").write_text(PROJECT + weaker)
    (folder / "run.toml").write_text(PRIVATE + weaker)
    assert run("run.toml").exit_code == 0
    refused(run("run.toml", option, value), "run.toml: The budget is about")
    (folder / "run.toml").write_text(f"{PRIVATE}{weaker}[calipers]\n{weaker}")
    refused(run("run.toml", option, value), "run.toml: [calipers] says")


def test_one_relation_by_two_names_is_one(folder) -> None:
    (folder / "run.toml").write_text(f"{PRIVATE}adjacency = 'substitute'\n[calipers]\nadjacency = 'replace-one'\n")
    assert run("run.toml", *BUDGET, "--adjacency", "substitute").exit_code == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("epsilon = -1\ndelta = 1e-5\n", "Expected the budget's epsilon in [0, inf), got -1."),
        ("epsilon = '1'\ndelta = 1e-5\n", "Expected the budget's epsilon to be a number (without quotes), got '1'."),
        ("epsilon = 1\ndelta = 2\n", "Expected the budget's delta in (0, 1), got 2."),
    ],
)
def test_a_value_of_a_file_is_refused_with_the_file(table, said, folder) -> None:
    """No option is named where none was given."""
    (folder / "pyproject.toml").write_text(f"[tool.calipers]\n{table}")
    refused(run("run.toml"), f"pyproject.toml: [tool.calipers]: {said}")
    (folder / "pyproject.toml").write_text("[tool]\ncalipers = 3\n")
    refused(run("run.toml"), "expected [tool.calipers] to be a table, got 3.")


def test_a_refusal_names_the_file_of_several(folder) -> None:
    """A value that no run has, and a run of another adjacency."""
    (folder / "other.toml").write_text(PRIVATE.replace("2.0", "'2.0'"))
    refused(run("run.toml", "other.toml", *BUDGET), "other.toml: ", "Write a number, without quotes.")
    (folder / "other.toml").write_text(PRIVATE + "adjacency = 'zero-out'\n")
    refused(run("run.toml", "other.toml", *BUDGET, "--adjacency", "add-remove"), "other.toml: The budget is about")


def test_github_shows_a_refusal_too(folder) -> None:
    """One command, and no other one inside it."""
    result = run("a::b##[c.toml", *BUDGET, "--github")
    assert result.exit_code == 2
    (line,) = result.stdout.splitlines()
    assert line.startswith("::error title=Privacy budget not checked::")
    assert line.count("::") == 2
    assert "##[" not in line


@pytest.mark.parametrize("sizes", ["dataset_size = 10\nbatch_size = 1\n", "sample_rate = 0.1\n"])
def test_a_large_delta_comes_first_and_is_a_warning(sizes, folder) -> None:
    """0.9 was "Privacy budget kept", and its warning the last sentence of many, or none."""
    (folder / "run.toml").write_text(f"{sizes}steps = 1\nnoise_multiplier = 9.0\n")
    result = run("run.toml", "--epsilon", "1", "--delta", "0.9", "--github")
    assert result.exit_code == 0
    assert result.stdout.startswith("::warning file=run.toml,title=Privacy budget kept::Warning: the budget's delta")
    assert run("run.toml", "--epsilon", "9", "--delta", "1e-5", "--github").stdout.startswith("::notice ")


def test_nothing_is_proven_is_said_once() -> None:
    """Batches cut from an order, divided by their own size."""
    run = Run(
        dataset_size=105, batch_size=10, epochs=1, noise_multiplier=1.0, sampler="shuffle", last_batch="keep",
        normalization="realized", dimension=10,
    )  # fmt: skip
    found = check(run, Budget(epsilon=1, delta=1e-5))
    assert found.outcome.exit_status == 1
    assert found.sentence.count("Nothing is proven") == 1
    assert len(str(found.to_dict()["run_sha256"])) == 64


@pytest.fixture
def below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A subfolder of a project with a budget; its run file brings a budget that allows anything."""
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "sub").mkdir()
    (folder / "sub" / "run.toml").write_text("sample_rate = 1\nsteps = 9\nnoise_multiplier = 1.0\n[calipers]\n" + LOOSE)
    monkeypatch.chdir(folder / "sub")
    return folder / "sub"


LOOSE = "epsilon = 1000\ndelta = 1e-5\n"


@pytest.mark.parametrize("table", ["[tool.calipers]\n", "[calipers]\n", "[tool.calipers]\nruns = ['run.toml']\n"])
@pytest.mark.parametrize("named", [(), ("run.toml",)])
def test_a_table_without_a_budget_removes_none(table, named, below) -> None:
    """An empty table in a subfolder hid the project's epsilon of 1: a run file that allows itself 1000 passed."""
    (below / "pyproject.toml").write_text(table)
    said = "A run file may only be stricter" if "runs" in table or named else "Nothing to check"
    refused(run(*named), said)


def test_runs_of_the_nearest_table_and_the_budget_further_up(below) -> None:
    """The list in the subfolder is what is checked, with paths from there."""
    (below / "pyproject.toml").write_text("[tool.calipers]\nruns = ['run.toml']\n")
    (below / "run.toml").write_text(PRIVATE)
    assert run().exit_code == 0
    (below / "run.toml").write_text(PRIVATE.replace("2.0", "0.5"))
    assert run().exit_code == 4


@pytest.mark.parametrize("part", ["epsilon = 3", "delta = 0.1", "adjacency = 'zero-out'", "view = 'isolated'"])
def test_half_a_budget_below_another_is_refused(part, below) -> None:
    """It hid the other one, and the run file could fill in the rest."""
    (below / "pyproject.toml").write_text(f"[tool.calipers]\n{part}\n")
    (below / "run.toml").write_text(PRIVATE)
    refused(run("run.toml"), f"has {part.split()[0]} but not", "write the whole budget")
    refused(run("run.toml", *BUDGET), "write the whole budget")
    (below.parent / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert run("run.toml", *BUDGET).exit_code in (0, 2)
    (below / "pyproject.toml").write_text("[tool.calipers]\nepsilon = 3\ndelta = 1e-5\n")
    (below.parent / "pyproject.toml").write_text(PROJECT)
    assert run("run.toml").exit_code == 0  # a whole one is the nearest one's own business
