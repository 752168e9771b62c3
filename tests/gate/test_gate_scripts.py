"""What other programs start: the pytest plugin, the pre-commit hook and the GitHub action, run as they are run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = "sample_rate = 0.01\nsteps = 100\nnoise_multiplier = 2.0\n"
LOUD = "sample_rate = 1.0\nsteps = 100\nnoise_multiplier = 1.0\n"
BUDGET = "[tool.calipers]\nepsilon = 1\ndelta = 1e-5\n"

SUITE = """
import pytest
from calipers.run import Run

POISSON = Run(sample_rate=0.01, steps=3, noise_multiplier=2.0)

@pytest.mark.calipers(epochs=1)
def test_within(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(steps=1_000_000)
def test_too_long(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(as_executed=True)
def test_as_executed(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(epochs=1, epsilon=1e-9)
def test_own_budget(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(epochs=1)
def test_two_within(calipers_gate):
    calipers_gate.declare(POISSON)
    calipers_gate.declare(POISSON.replace(noise_multiplier=3.0))

@pytest.mark.calipers(epochs=1)
def test_first_of_two(calipers_gate):
    calipers_gate.declare(POISSON.replace(noise_multiplier=0.3))
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(as_executed=True)
def test_schedule(calipers_gate):
    calipers_gate.declare([POISSON.replace(noise_multiplier=0.2), POISSON])

@pytest.mark.calipers(epochs=1)
def test_schedule_of_no_length(calipers_gate):
    calipers_gate.declare([POISSON, POISSON])

@pytest.mark.calipers(epochs=1)
def test_hands_nothing_over(calipers_gate):
    pass

@pytest.mark.calipers(epochs=1)
def test_takes_no_fixture():
    pass

@pytest.mark.calipers
def test_says_no_length(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(epochs=1, epsilom=3)
def test_mistyped(calipers_gate):
    calipers_gate.declare(POISSON)

def test_unmarked(calipers_gate):
    calipers_gate.declare(POISSON)

@pytest.mark.calipers(epochs=1)
def test_fails_by_itself(calipers_gate):
    calipers_gate.declare(POISSON)
    raise ValueError("its own mistake")

def test_of_something_else():
    pass
"""
OUTCOMES = {
    "test_within": "PASSED",
    "test_too_long": "FAILED",
    "test_as_executed": "PASSED",
    "test_own_budget": "FAILED",
    "test_two_within": "PASSED",
    "test_first_of_two": "FAILED",
    "test_schedule": "FAILED",
    "test_schedule_of_no_length": "FAILED",
    "test_hands_nothing_over": "FAILED",
    "test_takes_no_fixture": "FAILED",
    "test_says_no_length": "ERROR",
    "test_mistyped": "ERROR",
    "test_unmarked": "ERROR",
    "test_fails_by_itself": "FAILED",
    "test_of_something_else": "PASSED",
}


def environment(**more: str) -> dict[str, str]:
    here = {"PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    return {**os.environ, **here, **more}


def play(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, check=False)


def test_the_plugin_holds_a_test_suite_to_its_budget(tmp_path: Path) -> None:
    """Budget from pyproject.toml; too long a training, an own budget, and a test that protects nobody all fail."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "test_privacy.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "calipers.pytest_plugin", "-rA", "--strict-markers"]
    result = play([*command, "--junitxml=out.xml"], tmp_path)
    assert result.returncode == 1
    found = {name: word for word, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", result.stdout, flags=re.M)}
    assert found == OUTCOMES, result.stdout
    assert "The budget of epsilon = 1 at delta = 1e-5 is exceeded" in result.stdout
    assert "steps = 1000000" in result.stdout
    assert "its own mistake" in result.stdout
    assert "Training 1 of 2 (declared): The budget of epsilon = 1 at delta = 1e-5 is exceeded" in result.stdout
    assert "each is checked by itself" in result.stdout
    assert "give as_executed=True" in result.stdout
    assert "calipers_epsilon_at_most" in (tmp_path / "out.xml").read_text()


ATTACHED = """
import pytest, torch
from calipers.run import Run
from opacus import PrivacyEngine

def build(noise):
    data = torch.utils.data.TensorDataset(torch.randn(1050, 4), torch.randint(2, (1050,)))
    model = torch.nn.Linear(4, 2)
    engine = PrivacyEngine()
    return engine, *engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=noise, max_grad_norm=1.0,
        data_loader=torch.utils.data.DataLoader(data, batch_size=100), loss_reduction="sum",
    )

def train(model, optimizer, loader, steps=3):
    for _, (x, y) in zip(range(steps), loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
        optimizer.step()

def watched(gate, noise, steps=3, **options):
    engine, model, optimizer, loader = build(noise)
    record = gate.attach(engine, optimizer, loader, **options)
    train(model, optimizer, loader, steps)
    return engine, optimizer, loader, record

@pytest.mark.calipers(epochs=2)
def test_one(calipers_gate):
    engine, optimizer, loader, record = watched(calipers_gate, 1.0)
    assert calipers_gate.attach(engine, optimizer, loader) is record    # the same training

@pytest.mark.calipers(epochs=2)
def test_first_of_two(calipers_gate):
    watched(calipers_gate, 0.3)
    watched(calipers_gate, 1.0)

@pytest.mark.calipers(epochs=2)
def test_attached_and_declared(calipers_gate):
    watched(calipers_gate, 0.3)
    calipers_gate.declare(Run(dataset_size=1050, sample_rate=1/11, steps=22, noise_multiplier=1.0))

@pytest.mark.calipers(epochs=2)
def test_second_takes_no_step(calipers_gate):
    watched(calipers_gate, 1.0)
    watched(calipers_gate, 1.0, steps=0)

@pytest.mark.calipers(epochs=2)
def test_a_longer_plan_counts(calipers_gate):
    watched(calipers_gate, 1.0, planned_steps=23)

@pytest.mark.calipers(epochs=2.05)
def test_part_of_an_epoch_counts(calipers_gate):
    watched(calipers_gate, 1.0)

@pytest.mark.calipers(epochs=2)
def test_refused(calipers_gate):
    watched(calipers_gate, 1.0, adjacency="add-remove", batch_size=7)
"""


@pytest.mark.opacus
def test_every_attached_training_is_checked(tmp_path: Path) -> None:
    """Noise 1 at rate 1/11 has epsilon 3.42 after 22 steps and 3.47 after 23, which 2.05 epochs are; 0.3 far more."""
    (tmp_path / "pyproject.toml").write_text(BUDGET.replace("epsilon = 1", "epsilon = 3.45"))
    (tmp_path / "test_privacy.py").write_text(ATTACHED)
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-p", "calipers.pytest_plugin", "-rA"]
    result = play([*command, "--strict-markers"], tmp_path)
    found = {name: word for word, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", result.stdout, flags=re.M)}
    others = (
        "first_of_two",
        "attached_and_declared",
        "second_takes_no_step",
        "a_longer_plan_counts",
        "part_of_an_epoch_counts",
        "refused",
    )
    assert found == {"test_one": "PASSED"} | {f"test_{name}": "FAILED" for name in others}, result.stdout
    assert result.stdout.count("Training 1 of 2 (attached): The budget of epsilon = 3.45") >= 2
    assert "Training 2 of 2 (attached) took no step" in result.stdout
    assert "batch_size=7 makes 150 batches of 1050 records, the loader has 11." in result.stdout
    assert "opacus_loaders.py" not in result.stdout  # the sentence, without the calls that led to it


def test_the_plugin_is_registered_and_light() -> None:
    """pytest finds it by the project's metadata, and loading it imports neither numpy nor the rest of Calipers."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert metadata["project"]["entry-points"]["pytest11"] == {"calipers": "calipers.pytest_plugin"}
    program = "import sys, calipers.pytest_plugin; print('numpy' in sys.modules, 'calipers.measure' in sys.modules)"
    assert play([sys.executable, "-c", program], ROOT).stdout.split() == ["False", "False"]


def hook() -> dict[str, str]:
    """The one hook, read without a YAML library: `key: value` lines."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    return dict(re.findall(r"^[- ] (\w+): (.*)$", text, flags=re.M))


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("run.toml", True),
        ("runs/mnist-run.toml", True),
        ("runs/mnist.toml", True),
        ("configs/run/a/b.toml", True),
        ("mnist_run.toml", True),
        ("run-2.toml", True),
        ("mnist.run.toml", True),
        ("run7.toml", True),
        ("pyproject.toml", False),
        ("run.json", False),
        ("models/mnist.receipt.json", True),
        ("models/mnist.receipt.json.bak", False),
        ("prune.toml", False),
        ("truncation.toml", False),
        ("runner/a.toml", False),
        ("overrun.toml", False),
    ],
)
def test_the_hook_is_shown_run_files(name: str, taken: bool) -> None:
    """pre-commit searches its pattern in the path; a type would be required besides, also of one's own pattern."""
    assert bool(re.search(hook()["files"], name)) is taken
    assert not {"types", "types_or"} & set(hook())


def test_the_hook_stops_a_commit(tmp_path: Path) -> None:
    """Its entry with file names after it, as pre-commit calls it: 0 lets the commit pass, anything else does not."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "run.toml").write_text(PRIVATE)
    (tmp_path / "loud_run.toml").write_text(LOUD)
    program, *arguments = [*shlex.split(hook()["entry"]), *json.loads(hook()["args"])]
    assert program == "calipers"
    command = [sys.executable, "-m", program, *arguments]
    assert play([*command, "run.toml"], tmp_path).returncode == 0
    assert play([*command, "run.toml", "loud_run.toml"], tmp_path).returncode == 4
    hidden = tmp_path / "--junit=run.toml"
    hidden.write_text(LOUD)
    assert play([*command, "run.toml", hidden.name], tmp_path).returncode == 4


def action_environment() -> set[str]:
    """The variables that action.yml hands to its script."""
    return set(re.findall(r"^ +(CALIPERS_\w+): \$\{\{", (ROOT / "action.yml").read_text("utf-8"), flags=re.M))


def test_the_action_and_its_script_use_the_same_names() -> None:
    """Every variable that is set is read, and the other way around; no input stands inside a command line."""
    script = (ROOT / ".ci" / "action-check").read_text("utf-8")
    assert set(re.findall(r"CALIPERS_[A-Z]+", script)) == action_environment()
    (command,) = re.findall(r"^ +run: (.*)$", (ROOT / "action.yml").read_text("utf-8"), flags=re.M)
    assert "${{" not in command
    assert ".ci/action-check" in command


def act(folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """The action's script, with the inputs where GitHub puts them; and what it wrote as outputs."""
    output = folder / "output"
    output.unlink(missing_ok=True)
    more = {name: "" for name in action_environment()} | {
        "CALIPERS_PYTHON": sys.executable,
        "CALIPERS_INSTALL": "none",
        "CALIPERS_HERE": str(ROOT),
        "GITHUB_OUTPUT": str(output),
    }
    result = play(["bash", str(ROOT / ".ci" / "action-check")], folder, **more | inputs)
    return result, output.read_text() if output.exists() else ""


@pytest.mark.parametrize(
    ("inputs", "status", "said"),
    [
        ({"CALIPERS_RUNS": "run.toml"}, 0, "::notice file=run.toml"),
        ({"CALIPERS_RUNS": "run.toml loud.toml"}, 4, "::error file=loud.toml"),
        ({"CALIPERS_RUNS": "run.toml", "CALIPERS_EPSILON": "0.001"}, 4, "::error file=run.toml"),
        ({}, 2, ""),
        ({"CALIPERS_RUNS": "$(touch,hacked)"}, 2, ""),
    ],
)
def test_the_action_fails_the_workflow(inputs: dict[str, str], status: int, said: str, tmp_path: Path) -> None:
    """Its script, with the inputs where GitHub puts them: annotations, a status, and no input is ever executed."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "run.toml").write_text(PRIVATE)
    (tmp_path / "loud.toml").write_text(LOUD)
    result, output = act(tmp_path, **inputs)
    assert result.returncode == status, result.stderr
    assert said in result.stdout
    assert output == f"status={status}\n"
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize("python", ["bare", "absent"])
def test_where_calipers_does_not_run_no_status_is_claimed(python: str, tmp_path: Path) -> None:
    """A Python without Calipers ends with 1, which at the gate means something else; a missing one with 127."""
    (tmp_path / "bare").write_text('#!/bin/sh\necho "No module named calipers" >&2\nexit 1\n')
    (tmp_path / "bare").chmod(0o755)
    result, output = act(tmp_path, CALIPERS_RUNS="run.toml", CALIPERS_PYTHON=str(tmp_path / python))
    assert (result.returncode, output) == (1, "")
    assert result.stdout.startswith("::error title=Privacy budget not checked::")


def test_a_pull_request_cannot_choose_what_the_workflow_names(tmp_path: Path) -> None:
    """Neighbors and view are those of the inputs, whatever pyproject.toml says."""
    weaker = 'adjacency = "zero-out"\nview = "isolated"\n'
    (tmp_path / "pyproject.toml").write_text(BUDGET + weaker)
    (tmp_path / "run.toml").write_text(PRIVATE + weaker)
    assert act(tmp_path, CALIPERS_RUNS="run.toml")[1] == "status=0\n"
    result, output = act(tmp_path, CALIPERS_RUNS="run.toml", CALIPERS_ADJACENCY="add-remove", CALIPERS_VIEW="isolated")
    assert (result.returncode, output) == (2, "status=2\n")
    assert "adjacency='add-remove'" in result.stdout
    assert act(tmp_path, CALIPERS_RUNS="run.toml", CALIPERS_VIEW="worst-case")[1] == "status=2\n"


def test_the_action_is_not_passed_by_breaking_the_project_file(tmp_path: Path) -> None:
    """A syntax error took the rule about neighbors away."""
    (tmp_path / "run.toml").write_text(PRIVATE + 'adjacency = "zero-out"\n')
    budget = {"CALIPERS_EPSILON": "1", "CALIPERS_DELTA": "1e-5", "CALIPERS_RUNS": "run.toml"}
    (tmp_path / "pyproject.toml").write_text('[tool.calipers]\nadjacency = "add-remove"\n')
    assert act(tmp_path, **budget)[1] == "status=2\n"
    (tmp_path / "pyproject.toml").write_text('[tool.calipers]\nadjacency = "add-remove"\n[tool.calipers\n')
    result, output = act(tmp_path, **budget)
    assert (result.returncode, output) == (2, "status=2\n")
    assert "pyproject.toml" in result.stderr


def test_the_plugin_refuses_a_project_file_that_it_cannot_read(tmp_path: Path) -> None:
    """With the whole budget in the marker too: which neighbors it is about may stand there."""
    (tmp_path / "pyproject.toml").write_text("[tool.calipers\n")
    inner = tmp_path / "inner"  # pytest reads the one beside its own settings itself
    inner.mkdir()
    (inner / "pytest.ini").write_text("[pytest]\n")
    test = "@pytest.mark.calipers(epochs=1, epsilon=9, delta=1e-5)\ndef test_within(calipers_gate):\n"
    head = SUITE[: SUITE.index("@pytest")]
    (inner / "test_privacy.py").write_text(f"{head}{test}    calipers_gate.declare(POISSON)\n")
    result = play([sys.executable, "-m", "pytest", "-p", "calipers.pytest_plugin", "-rA"], inner)
    assert result.returncode == 1, result.stdout
    assert "pyproject.toml is not valid TOML" in result.stdout


HOSTILE = {
    "one file per line": ("run.toml\nloud.toml\n", 4),
    "lines of Windows, tabs, empty lines": ("\r\nrun.toml\r\n\r\n\tloud.toml\r\n", 4),
    "form feeds": ("run.toml\floud.toml\v", 4),
    "help": ("loud.toml --help", 2),
    "short help": ("loud.toml -h", 2),
    "another budget": ("loud.toml --epsilon 1000", 2),
    "another budget, joined": ("loud.toml --epsilon=1000", 2),
    "another delta, then dashes": ("loud.toml --delta=0.99 -- run.toml", 2),
    "a file for outcomes": ("run.toml --junit=hacked", 2),
    "a glob": ("*.toml", 2),
    "quotes": ("'run.toml' \"loud.toml\"", 2),
    "a forged output": ("loud.toml\nstatus=0", 2),
    "a forged command": ("loud.toml ::set-output::name=status::0", 2),
    "commands of a shell": ("run.toml; $(touch hacked) `touch hacked` | touch hacked", 2),
    "nothing but space": (" \n\t\n", 2),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_the_action_hands_over_all_names_behind_dashes(case: str, tmp_path: Path) -> None:
    """What Python is started with: our options, "--", and the words of `runs` as they are; the status is Python's."""
    python = tmp_path / "python"
    tried = 'if [ "$*" = "-P -m calipers --version" ]; then exit 0; fi'
    python.write_text(f"#!/bin/sh\n{tried}\nprintf '%s\\0' \"$@\" > started\nexit 7\n")
    python.chmod(0o755)
    (tmp_path / "run.toml").touch()
    runs, _ = HOSTILE[case]
    inputs = {"CALIPERS_EPSILON": "3 --help", "CALIPERS_DELTA": "--help", "CALIPERS_JUNIT": "-h"}
    inputs |= {"CALIPERS_ADJACENCY": "zero-out -h", "CALIPERS_VIEW": "--view"}
    result, output = act(tmp_path, CALIPERS_PYTHON=str(python), CALIPERS_RUNS=runs, **inputs)
    assert (result.returncode, output) == (7, "status=7\n")
    options = ["--github", "--epsilon=3 --help", "--delta=--help"]
    options += ["--adjacency=zero-out -h", "--view=--view", "--junit=-h"]
    started = (tmp_path / "started").read_text().split("\0")[:-1]
    assert started == ["-P", "-m", "calipers", "check", *options, "--", *runs.split()]
    assert not (tmp_path / "hacked").exists()


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_the_action_takes_all_its_files_and_nothing_else(case: str, tmp_path: Path) -> None:
    """Whatever `runs` holds is split at white space and read as names of files: no option, no glob, no command."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "run.toml").write_text(PRIVATE)
    (tmp_path / "loud.toml").write_text(LOUD)
    runs, status = HOSTILE[case]
    result, output = act(tmp_path, CALIPERS_RUNS=runs)
    assert result.returncode == status, result.stdout + result.stderr
    assert output == f"status={status}\n"
    assert not (tmp_path / "hacked").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["--help", "-h", "--epsilon=1000", "--version", "--"])
def test_the_action_checks_files_that_are_called_like_options(name: str, tmp_path: Path) -> None:
    """A pull request may bring files of any name; each is held against the budget as any other."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / name).write_text(LOUD)
    result, output = act(tmp_path, CALIPERS_RUNS=name)
    assert (result.returncode, output) == (4, "status=4\n"), result.stdout + result.stderr
    (tmp_path / name).write_text(PRIVATE)
    assert act(tmp_path, CALIPERS_RUNS=name)[0].returncode == 0


@pytest.mark.parametrize("value", ["--help", "1000 --help", "1\nstatus=0"])
@pytest.mark.parametrize("which", ["EPSILON", "DELTA"])
def test_a_budget_of_the_action_is_one_number(which: str, value: str, tmp_path: Path) -> None:
    """What is no number is refused, and ends as bad input."""
    (tmp_path / "run.toml").write_text(PRIVATE)
    given = {"CALIPERS_EPSILON": "1", "CALIPERS_DELTA": "1e-5"} | {f"CALIPERS_{which}": value}
    result, output = act(tmp_path, CALIPERS_RUNS="run.toml", **given)
    assert (result.returncode, output) == (2, "status=2\n"), result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calipers.py", "click.py", "tomllib.py"])
def test_the_action_runs_no_code_of_the_repository_it_checks(name: str, tmp_path: Path) -> None:
    """A module beside the run files that is called like one of Calipers, or of what it uses, is not imported."""
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "loud.toml").write_text(LOUD)
    (tmp_path / name).write_text("import os\nopen('hacked', 'w').close()\nos._exit(0)\n")
    result, output = act(tmp_path, CALIPERS_RUNS="loud.toml")
    assert (result.returncode, output) == (4, "status=4\n"), result.stdout + result.stderr
    assert not (tmp_path / "hacked").exists()


@pytest.mark.slow
def test_what_the_action_prints_commands_nothing_of_a_file_s(tmp_path: Path) -> None:
    """Names and keys in a file cannot begin a line of what is printed, where GitHub looks for commands."""
    (tmp_path / "pyproject.toml").write_text(
        BUDGET + 'runs = ["x\\n::set-output name=status::0\\n##[set-output name=status]0.toml"]\n'
    )
    (tmp_path / "run.toml").write_text('"a\\n::set-output name=status::0\\n##[set-output name=status]0" = 1\n')
    for inputs in ({}, {"CALIPERS_RUNS": "run.toml"}, {"CALIPERS_RUNS": "::set-output::x ##[error]x"}):
        result, output = act(tmp_path, **inputs)
        assert (result.returncode, output) == (2, "status=2\n")
        (own,) = result.stdout.splitlines()
        title, said = own[2:].split("::")
        assert title == "error title=Privacy budget not checked"
        lines = [said, *result.stderr.splitlines()]
        assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
