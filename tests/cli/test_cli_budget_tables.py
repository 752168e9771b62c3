"""Commands ask what the budget asks that goes with their run file, as `check` does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RUN = (
    "dataset_size = 45\nbatch_size = 10\nepochs = 1\nnoise_multiplier = 2.0\nsampler = 'shuffle'\nlast_batch = 'drop'\n"
)
POISSON = "sample_rate = 0.1\nsteps = 3\n"
TABLE = "[calipers]\nepsilon = 3\ndelta = 1e-6\nadjacency = 'add-remove'\n"
FROM = "From [calipers] in run.toml: delta 1e-6 and adjacency add-remove."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(text: str) -> str:
    return " ".join(text.split())


def test_calibrated_noise_passes_the_gate_of_the_file(calipers, folder) -> None:
    """Target and neighbors are the budget's; the noise it finds, rounded up as it is printed, is within it."""
    full = "sample_rate = 1.0\nsteps = 1\nnoise_multiplier = 2.0\n"
    table = TABLE.replace("add-remove", "substitute")
    (folder / "run.toml").write_text(full + table)
    found = calipers("calibrate", "run.toml", "--tolerance", 0.01, "--json")
    record = json.loads(found.stdout)
    assert record["target"] == {"epsilon": 3.0, "delta": 1e-6}
    assert record["run"]["adjacency"] == "substitute"
    assert found.stderr == "From [calipers] in run.toml: epsilon 3, delta 1e-6 and adjacency substitute.\n"
    (folder / "run.toml").write_text(full.replace("2.0", f"{record['noise_multiplier'] * (1 + 1e-8)!r}") + table)
    assert calipers("check", "run.toml").exit_code == 0


def test_the_first_sentence_says_for_whom_and_what_is_released(calipers, calibrated_with, folder) -> None:
    """Neighbors and divisor, with the place of what nobody named on the command line."""
    (folder / "run.toml").write_text(POISSON + TABLE)
    result = calipers("calibrate", "run.toml", "--epsilon", 3)
    assert result.exit_code == 0, result.output
    said = words(result.stdout)
    sums = "enough for epsilon = 3, delta = 1e-6, for adding or removing one record and undivided noisy sums: at most"
    assert sums in said
    assert FROM in said
    assert "Nobody named the neighboring relation" not in said
    assert "adjacency" not in said.split("Assumed, because not given:")[1].split(".")[0]
    (folder / "run.toml").write_text(POISSON + "normalization = 'constant'\nview = 'isolated'\n")
    said = words(calipers("calibrate", "run.toml", "--mu", 1).stdout)
    divided = "noisy sums divided by a constant that neighboring datasets share in the isolated view: at most"
    assert divided in said
    assert "From" not in said


@pytest.mark.parametrize("kind", ["correlated", pytest.param("selection", marks=pytest.mark.slow), "joint"])
def test_what_is_more_than_a_run_is_said_too(kind, calipers, folder) -> None:
    """Correlated noise has no phases; what is selected, or released in addition, stands in the sentence."""
    more, said = {
        "correlated": ("noise_matrix = 'tree'\nsteps = 4\nmin_separation = 2\n", "correlated noise"),
        "selection": ("selected_mean = 2\n", "the best of several runs with undivided noisy sums"),
        "joint": ("additional_query = 9.0\n", "undivided noisy sums with what is released in addition"),
    }[kind]
    run = more if kind == "correlated" else f"sample_rate = 1.0\nsteps = 2\n{more}"
    (folder / "run.toml").write_text(run + "[calipers]\nepsilon = 3\ndelta = 1e-5\nadjacency = 'substitute'\n")
    found = words(calipers("calibrate", "run.toml", "--tolerance", 0.1).stdout)
    assert f"is enough for epsilon = 3, delta = 1e-5, for substituting one record and {said}: at most" in found
    assert "From [calipers] in run.toml: epsilon 3, delta 1e-5 and adjacency substitute." in found


def test_no_noise_is_enough_where_one_direction_is_infinite(refused, folder) -> None:
    """40 = 4 x 10: whoever counts the batches sees that a record is gone. The batch size that is named mends it."""
    (folder / "run.toml").write_text(RUN.replace("45", "40") + TABLE)
    said = refused("calibrate", "run.toml")
    assert "No noise is enough for adjacency 'add-remove': for removing one record no epsilon is finite" in said
    assert "What to change: Use batches of 9 records" in said
    (folder / "run.toml").write_text(RUN.replace("45", "40"))
    assert "No noise is enough" in refused("calibrate", "run.toml", "--adjacency", "add-remove", "--mu", 1)
    (folder / "run.toml").write_text(RUN.replace("45", "39"))
    assert "for adding one record" in refused("calibrate", "run.toml", "--adjacency", "add-remove", "--mu", 1)


def test_measure_reads_delta_and_neighbors(calipers, measured_with, folder) -> None:
    """What an option or the run names counts; a delta that nobody named stays assumed."""
    (folder / "run.toml").write_text(RUN + TABLE)
    found = calipers("measure", "run.toml", "--json")
    assert json.loads(found.stdout)["epsilon"][0]["delta"] == 1e-6
    assert measured_with[0][0].adjacency == "add-remove"
    assert found.stderr == f"{FROM}\n"
    assert FROM in words(calipers("measure", "run.toml").stdout)
    named = calipers("measure", "run.toml", "--delta", 1e-3, "--adjacency", "zero-out", "--json")
    assert json.loads(named.stdout)["epsilon"][0]["delta"] == 1e-3
    said = "adjacency zero-out is named for this run, and counts: not add-remove, from [calipers] in run.toml.\n"
    assert named.stderr == said
    (folder / "run.toml").write_text(RUN + "adjacency = 'zero-out'\n" + TABLE)
    own = calipers("measure", "run.toml", "--json")
    assert json.loads(own.stdout)["run"]["adjacency"] == "zero-out"
    assert own.stderr == f"From [calipers] in run.toml: delta 1e-6. {said}"
    (folder / "run.toml").write_text(RUN + "[calipers]\nadjacency = 'add-remove'\n")
    assert "delta 1e-5." in words(calipers("measure", "run.toml").stdout).split("Assumed, because not given:")[1]


def test_pyproject_is_read_as_check_reads_it(calipers, refused, measured_with, folder, monkeypatch) -> None:
    """The nearest one with a budget, behind the run file, which may not be looser; without a run file, none."""
    (folder / "pyproject.toml").write_text("[tool.calipers]\nepsilon = 3\ndelta = 1e-6\nadjacency = 'substitute'\n")
    (folder / "in").mkdir()
    monkeypatch.chdir(folder / "in")
    Path("run.toml").write_text(RUN + "[calipers]\ndelta = 1e-7\n")
    found = calipers("measure", "run.toml", "--json")
    place = str(Path("..") / "pyproject.toml")
    assert found.stderr == f"From [calipers] in run.toml: delta 1e-7; from {place}: adjacency substitute.\n"
    options = ("--sample-rate", 0.5, "--steps", 2, "--noise-multiplier", 2)
    assert calipers("measure", *options, "--json").stderr == ""
    for own, said in (
        ("delta = 1e-4", "allows delta up to"),
        ("adjacency = 'zero-out'", "says adjacency = 'zero-out'"),
    ):
        Path("run.toml").write_text(f"{RUN}[calipers]\n{own}\n")
        assert said in refused("measure", "run.toml")
        assert said in refused("check", "run.toml")


def test_the_weaker_adversary_is_not_taken_from_a_budget(calipers, refused, measured_with, folder) -> None:
    """Its numbers are smaller: the run has to say so itself, for `check` as well."""
    table = "[calipers]\nepsilon = 3\ndelta = 1e-6\nview = 'isolated'\n"
    (folder / "run.toml").write_text(RUN + table)
    for command in ("measure", "calibrate", "certify", "check"):
        assert "The budget is about view='isolated', and nobody named a view" in refused(command, "run.toml")
    (folder / "run.toml").write_text(RUN + "view = 'isolated'\n" + table)
    assert calipers("measure", "run.toml").exit_code == 0
    (folder / "run.toml").write_text(RUN + table.replace("isolated", "worst-case"))
    assert "view worst-case" in calipers("measure", "run.toml", "--json").stderr


def test_certify_states_epsilon_at_the_delta_of_the_file(calipers, folder, monkeypatch) -> None:
    """And for its neighbors; --epsilon leaves it out."""
    asked = []

    def certify(runs, **about):
        asked.append((runs[0].adjacency, about["epsilon"], about["delta"]))
        raise SystemExit(0)

    monkeypatch.setattr("calipers.certificates.certify", certify)
    (folder / "run.toml").write_text(RUN + TABLE)
    calipers("certify", "run.toml")
    calipers("certify", "run.toml", "--epsilon", 1)
    assert asked == [("add-remove", None, 1e-6), ("add-remove", 1.0, None)]


def test_compare_and_curve_ask_what_the_budget_asks(calipers, folder) -> None:
    """Neighbors of every file, a delta that is the same for all of them; what an option names counts."""
    table = TABLE.replace("add-remove", "substitute")
    (folder / "run.toml").write_text(POISSON + "noise_multiplier = 2.0\n" + table)
    result = calipers("compare", "run.toml", "--noise-multiplier", 3, "--json")
    record = json.loads(result.stdout)
    assert [one["adjacency"] for one in (run["run"] for run in record["runs"])] == ["substitute"] * 2
    assert [row["delta"] for row in record["runs"][0]["epsilon"]] == [1e-6]
    assert result.stderr == "From [calipers] in run.toml: delta 1e-6 and adjacency substitute.\n"
    named = calipers("compare", "run.toml", "--adjacency", "zero-out", "--adjacency", "substitute", "--delta", 1e-5)
    assert "not substitute, from [calipers] in run.toml" in words(named.stdout)
    (folder / "other.toml").write_text(POISSON + "noise_multiplier = 3.0\n" + table.replace("1e-6", "1e-7"))
    record = json.loads(calipers("compare", "run.toml", "other.toml", "--json").stdout)
    assert [row["delta"] for row in record["runs"][0]["epsilon"]] == [1e-5]
    result = calipers("curve", "run.toml", "--profile", "--epsilon", 1)
    assert result.stderr == "From [calipers] in run.toml: adjacency substitute.\n"
