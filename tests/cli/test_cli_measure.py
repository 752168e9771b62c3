"""`calipers measure`: the table, the JSON contract, and what it passes on."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from calipers.run import Run

RUN = ("--sample-rate", 0.01, "--steps", 1000, "--noise-multiplier", 1)


def test_json_has_exactly_the_keys_of_the_contract(calipers, measured_with):
    result = calipers("measure", *RUN, "--epsilon", 1, "--json")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    keys = ["run", "scope", "relations", "epsilon", "delta", "tpr", "gdp", "advantage", "separation"]
    assert list(record) == ["schema", *keys, "refuted", "closes", "notes", "provenance"]
    assert (record["refuted"], record["closes"]) == (True, True)
    assert set(record["provenance"]) == {"calipers", "date", "command", "run_sha256", "sha256"}
    (row,) = record["epsilon"]
    assert set(row) == {"delta", "lower", "upper", "claim", "lower_evidence", "upper_evidence"}
    assert row["upper_evidence"] == {
        "kind": "theorem",
        "statement": "Gaussian mechanisms compose.",
        "source": "Dong, Roth, Su 2022, Corollary 3.3",
    }
    assert set(record["delta"][0]) == {"epsilon", "lower", "upper", "claim"}
    assert set(record["tpr"][0]) == {"fpr", "lower", "upper"}
    assert [row["fpr"] for row in record["tpr"]] == [0.1, 0.01, 0.001]
    assert set(record["gdp"]) == {"mu_lower", "mu_upper", "delta0", "regret"}
    assert set(record["advantage"]) == set(record["separation"]) == {"lower", "upper"}
    assert record["notes"] == ["The bracket is one percent wide."]
    assert Run.from_dict(record["run"]) == Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0)


def test_a_sample_rate_may_be_a_fraction_on_the_command_line(calipers, measured_with):
    record = json.loads(calipers("measure", "--sample-rate", "1/235", *RUN[2:], "--json").stdout)
    assert record["run"]["sample_rate"] == 1 / 235


def test_json_numbers_are_the_doubles_of_the_measurement(calipers, measured_with):
    record = json.loads(calipers("measure", *RUN, "--json").stdout)
    assert (record["gdp"]["mu_lower"], record["gdp"]["mu_upper"]) == (0.99, 1.01)
    assert record["epsilon"][0]["delta"] == 1e-5


def test_a_bound_that_is_not_finite_is_null_and_noted(calipers, measured_with):
    result = calipers("measure", *RUN, "--delta", 1e-200, "--json")
    record = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert record["epsilon"][0]["upper"] is None
    assert "No finite upper bound on epsilon at delta = 1e-200 is proven." in record["notes"]


def test_questions_repeat_and_reach_the_measurement(calipers, measured_with):
    result = calipers(
        "measure", *RUN, *("--delta", 1e-6, "--delta", 1e-7, "--epsilon", 0, "--epsilon", 2, "--fpr", 0.2),
        *("--delta0", 1e-12, "--tolerance", 0.01, "--json"),
    )  # fmt: skip
    record = json.loads(result.stdout)
    assert [row["delta"] for row in record["epsilon"]] == [1e-6, 1e-7]
    assert [row["epsilon"] for row in record["delta"]] == [0.0, 2.0]
    assert [row["fpr"] for row in record["tpr"]] == [0.2]
    assert record["gdp"]["delta0"] == 1e-12
    assert measured_with[0][1] == 0.01


def test_options_describe_the_run_they_name(calipers, measured_with):
    calipers(
        "measure", *("--dataset-size", 1000, "--batch-size", 10, "--epochs", 3, "--noise-multiplier", 0.5),
        *("--sampler", "balls-and-bins", "--normalization", "constant", "--dimension", 7),
        *("--adjacency", "substitute", "--view", "isolated"),
    )  # fmt: skip
    assert measured_with[0][0] == Run(
        dataset_size=1000,
        batch_size=10,
        epochs=3,
        noise_multiplier=0.5,
        sampler="balls-and-bins",
        normalization="constant",
        dimension=7,
        adjacency="substitute",
        view="isolated",
    )


def test_the_table_names_the_run_and_never_rounds_a_bound_inwards(calipers, measured_with):
    result = calipers("measure", *RUN, "--epsilon", 1)
    assert result.exit_code == 0
    assert "1,000 steps of Poisson batches" in result.stdout
    assert "\x1b" not in result.stdout
    record = json.loads(calipers("measure", *RUN, "--epsilon", 1, "--json").stdout)
    exact = [*record["epsilon"], *record["delta"], *record["tpr"], record["advantage"], record["separation"]]
    headings = ("epsilon at", "delta at", "TPR at", "TPR at", "TPR at", "advantage,", "separation")
    _, _, table = result.stdout.partition(" quantity ")
    lines = [line for line in table.splitlines() if line.strip().startswith(headings)]
    for heading, line, row in zip(headings, lines, exact, strict=True):
        assert line.strip().startswith(heading)
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        assert Decimal(cells[1]) <= Decimal(row["lower"])
        assert Decimal(cells[2]) >= Decimal(row["upper"])
    assert Decimal(table.split("regret of that mu")[1].split()[0]) >= Decimal(record["gdp"]["regret"])
    assert "Corollary 3.3" not in result.stdout
    assert "Corollary 3.3" in calipers("measure", *RUN, "--explain").stdout
    assert "The bracket is one percent wide." in result.stdout


def test_a_claim_below_the_lower_jaw_is_called_refuted(calipers, measured_with):
    _, _, table = calipers("measure", *RUN).stdout.partition(" quantity ")
    (line,) = [line for line in table.splitlines() if "epsilon at" in line]
    assert line.endswith("refuted")


def test_a_run_file_and_its_phases_are_measured_together(calipers, measured_with, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("sample_rate = 0.1\nnoise_multiplier = 2\n[[phase]]\nsteps = 1\n[[phase]]\nsteps = 2\n")
    record = json.loads(calipers("measure", "--run", path, "--json").stdout)
    assert [phase["steps"] for phase in record["run"]["phase"]] == [1, 2]
    assert [phase.steps for phase in measured_with[0][0]] == [1, 2]
    assert "Phase 2: 2 steps" in calipers("measure", "--run", path).stdout


def test_the_note_of_a_dropped_remainder_reaches_the_reader(calipers, measured_with):
    result = calipers("measure", "--dataset-size", 10, "--batch-size", 3, "--epochs", 1, "--noise-multiplier", 1)
    assert "floor(10/3) = 3 steps" in " ".join(result.stdout.split())


@pytest.mark.slow
def test_ordinary_words_of_a_note_are_no_options(calipers):
    """A note about all noisy sums, where keys become options: '--steps' stood in it for a word."""
    words = "measure --dataset-size 49980 --sample-rate 1/98 --steps 2940 --noise-multiplier 1 --tolerance 0.05"
    result = calipers(*words.split(), "--normalization", "floor", "--dimension", 1_000_000)
    said = " ".join(result.stdout.split())
    assert "the length of the noise alone, in all coordinates of all noisy sums, tells beyond doubt" in said
    assert not re.search(r"\b(and|or|over|of|all) --", said)
