"""What nobody stated is named wherever the file is handed on to: the gate, exports, verify-receipt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.gate.receipt_shape import assumed_words
from calipers.provenance import digest
from calipers.run import Run

SILENT = "dataset_size = 1000\nbatch_size = 10\nsteps = 20\nnoise_multiplier = 2.0\n"
SAID = (
    "sampler = 'poisson'\nnormalization = 'none'\nderived_rate = 'public'\nadjacency = 'add-remove'\n"
    "view = 'worst-case'\nunit = 'user'\nrecords_per_unit = 1\n"
)
EPOCHS = "dataset_size = 15000\nbatch_size = 8000\nepochs = 40\nnoise_multiplier = 9.0\n"
UNDIVIDED = "normalization none (the noisy sum is not divided)"
RATE = "the rate (batch size / number of records) taken as the same for both neighbors"
RECEIPT = f"divisor none, adjacency add-remove, view worst-case, perhaps {RATE}, privacy unit one record"
MIXED = {"dataset_size": 1000, "batch_size": 10, "steps": 200, "noise_multiplier": 2.0, "adjacency": "zero-out"}
BUDGET = ("--epsilon", "9", "--delta", "1e-5")


def call(*arguments: str):
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("silent", SILENT), ("said", SILENT + SAID), ("epochs", EPOCHS), ("both", EPOCHS + SAID)):
        Path(f"{name}.toml").write_text(text)
        Path(f"{name}.json").write_text(CliRunner().invoke(main, ["measure", f"{name}.toml", "--json"]).stdout)
        assert call("receipt", f"{name}.toml", "-o", f"{name}.receipt.json")[0] == 0
    return tmp_path


def test_json_and_receipts_say_what_was_assumed(folder) -> None:
    """As the run file does; the file itself writes defaults down like anything else."""
    everything = (
        f"Assumed, because not given: sampler poisson, {UNDIVIDED}, adjacency add-remove, view worst-case, "
        f"{RATE}, privacy unit one record."
    )
    for name in ("silent.toml", "silent.json"):
        assert everything in call("check", name, *BUDGET)[1], name
    for name in ("said.toml", "said.json"):
        assert "Assumed" not in call("check", name, *BUDGET)[1], name
    said = f"Assumed in the receipt, because not given: sampler poisson, {RECEIPT}."
    assert said in call("check", "silent.receipt.json", *BUDGET)[1]
    for name in ("silent", "said"):
        assert "Assumed, because" not in call("check", f"{name}.receipt.json", *BUDGET)[1], name
    assert "Assumed in" not in call("check", "said.receipt.json", *BUDGET)[1]


@pytest.mark.parametrize("end", ["toml", "json", "receipt.json"])
def test_an_epoch_of_whole_batches_is_said_to_be_assumed(end, folder) -> None:
    """An ordinary loop takes two batches of 15,000 records in 8,000s; one epoch was counted as one step, unsaid."""
    counted = "steps 40" if end == "receipt.json" else "steps per epoch floor(15,000 / 8,000) = 1"
    assert f", {counted}, " in call("check", f"epochs.{end}", *BUDGET)[1]
    assert f"because not given: {counted}." in call("check", f"both.{end}", *BUDGET)[1]
    report = " ".join(CliRunner().invoke(main, ["measure", "epochs.toml"]).stdout.split())
    assert "steps per epoch floor(15,000 / 8,000) = 1, privacy unit one record" in report


def test_check_and_the_report_have_one_list(folder) -> None:
    """The report's had neighbors, adversary and unit as well."""
    start = "Assumed, because not given: "
    report = " ".join(CliRunner().invoke(main, ["measure", "silent.toml", "--delta", "1e-5"]).stdout.split())
    listed = report.partition(start)[2].partition(".")[0]
    assert listed.count(",") == 5
    assert f"{start}{listed}." in call("check", "silent.toml", *BUDGET)[1]


def test_who_names_the_neighbors_of_a_budget_assumes_none(folder) -> None:
    """Nor the adversary."""
    named = call("check", "silent.toml", *BUDGET, "--adjacency", "add-remove", "--view", "worst-case")[1]
    assert f"normalization none (the noisy sum is not divided), {RATE}, privacy unit one record." in named


def test_a_public_rate_that_was_stated_is_not_assumed_of_its_receipt(folder) -> None:
    """The receipt does not say so, and `check` said it of its own."""
    text = call("check", "said.receipt.json", *BUDGET)[1]
    assert "taken as the same for both neighbors" not in text


def test_verify_receipt_names_the_facts_that_nobody_declared(folder) -> None:
    """Nobody stated them, so nobody declared them."""
    silent, said = (call("verify-receipt", f"{name}.receipt.json")[1] for name in ("silent", "said"))
    assert (
        f"Nobody stated, so assumed: sampler poisson, {RECEIPT}. What else it states is "
        "declared by whoever wrote the receipt, not seen in a training. A measurement can verify neither."
    ) in silent
    assert (
        "That the training was this run is declared by whoever wrote the receipt, not seen in a training; a "
        "measurement cannot verify it."
    ) in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampler": "poisson"}, {"derived rate": RATE}),
        ({"sampler": "poisson", "adjacency": "zero-out"}, {"batches": "some detail of the batches"}),
        ({"sampler": "shuffle"}, {"reshuffle": "reshuffle every-epoch"}),
        (
            {"sampler": "shuffle", "adjacency": "add-remove"},
            {"batches": "at least one of last batch drop and reshuffle every-epoch"},
        ),
        ({"sampler": "shuffle", "dataset_size": 29, "steps": 3, "last_batch": "drop"},
         {"batches": "some detail of the batches"}),
    ],
)  # fmt: skip
def test_a_detail_of_the_batches_is_one_that_the_sampler_has(changes, said) -> None:
    """A Poisson run has no last batch, and without a shorter one nothing becomes of it."""
    run = Run(**{"dataset_size": 1000, "batch_size": 10, "steps": 200, "noise_multiplier": 2.0} | changes)
    assert assumed_words(["batches"], [run]) == said


def test_values_that_phases_do_not_share_are_left_out() -> None:
    """Which of two samplers was assumed, a receipt does not say."""
    runs = [Run(**MIXED, sampler=sampler) for sampler in ("poisson", "shuffle")]
    assert assumed_words(["sampler", "divisor"], runs) == {"sampler": "sampler", "divisor": "divisor none"}


OPEN = {
    "silent.toml": f"sampler poisson, {UNDIVIDED}, adjacency add-remove, view worst-case, {RATE}, "
    "privacy unit one record",
    "silent.receipt.json": f"sampler poisson, {RECEIPT}",
    "epochs.receipt.json": f"sampler poisson, steps 40, {RECEIPT}",
}
OPEN["silent.json"] = OPEN["silent.toml"]


@pytest.mark.parametrize("form", ["short", "model-card", "checklist"])
@pytest.mark.parametrize("name", OPEN)
def test_an_export_does_not_call_declared_what_was_assumed(name, form, folder) -> None:
    """It said: as declared by whoever trained, and called unit and neighbors declared in any case."""
    text = call("export", name, "--form", form)[1].replace("\\", "")
    assert f"as declared by whoever described it, not seen in a training (assumed, not stated: {OPEN[name]})" in text
    assert "this run, as described, meets." in text


def test_an_export_of_what_was_stated_calls_it_declared(folder) -> None:
    """A receipt's as well, and it adds nothing of its own."""
    for name in ("said.toml", "said.receipt.json"):
        text = call("export", name)[1]
        assert "as declared by whoever described it, not seen in a training; run SHA-256" in text, name
        assert "whose assumptions this run meets." in text, name


@pytest.mark.parametrize("end", ["toml", "receipt.json"])
def test_the_checklist_says_whether_unit_and_neighbors_were_assumed(end, folder) -> None:
    """Both rows were based on what whoever trained had declared."""
    for name, assumed in (("silent", True), ("said", False)):
        text = CliRunner().invoke(main, ["export", f"{name}.{end}", "--form", "checklist"]).stdout
        rows = [line for line in text.splitlines() if line.startswith(("| Unit of privacy", "| Neighboring datasets"))]
        assert len(rows) == 2
        for row in rows:
            assert row.endswith("| assumed: nobody stated it |") is assumed, row


def test_numbers_of_neighbors_that_nobody_named_are_not_those_of_the_budget(folder) -> None:
    """It said that the run is described with zero-out, and to change that; a run file is measured for the budget."""
    Path("cut.toml").write_text(SILENT.replace("= 20", "= 200") + "sampler = 'shuffle'\n")
    assert call("receipt", "cut.toml", "-o", "cut.json")[0] == 0
    status, text, refusal = call("check", "cut.json", *BUDGET, "--adjacency", "add-remove")
    assert (status, text) == (2, "")
    assert "the receipt states numbers for 'zero-out', which nobody named; write a receipt of a run" in refusal
    assert call("check", "cut.toml", *BUDGET, "--adjacency", "add-remove")[0] in (3, 4)
    assert call("check", "cut.json", *BUDGET, "--view", "isolated")[2].count("nobody named a view of the run") == 1
    said = call("verify-receipt", "cut.json")[1]
    assert "(attack), for zeroing out the gradients of one record; measured again, the same." in said
    Path("alone.toml").write_text(SILENT + "view = 'isolated'\n")
    assert call("receipt", "alone.toml", "-o", "alone.json")[0] == 0
    said = call("verify-receipt", "alone.json")[1]
    assert "for adding or removing one record, in the isolated view (not differential privacy: the adversary" in said


@pytest.mark.parametrize(("delta", "noted"), [("1e-3", True), ("1e-4", False)])
def test_a_delta_that_is_not_far_below_one_over_n_is_said(delta, noted, folder) -> None:
    """As `measure` says it: by the gate, whoever verifies a receipt, and exports; no status depends on it."""
    assert call("receipt", "said.toml", "--delta", delta, "-o", "at.json")[0] == 0
    for command in (
        ("check", "said.toml", "--epsilon", "9", "--delta", delta),
        ("verify-receipt", "at.json"),
        ("export", "said.toml", "--delta", delta),
    ):
        status, text, _ = call(*command)
        assert status == 0
        assert ("below 1/N = 1/1,000" in text) is noted, command


def test_a_rate_that_moves_with_the_data_is_said_to_be_another_one(folder) -> None:
    """Where nobody said that it is public."""
    moves = "if it computes them from its own data, the numbers are not proven."
    assert moves in call("check", "silent.toml", *BUDGET)[1]
    assert moves not in call("check", "said.toml", *BUDGET)[1]


def test_an_export_of_a_receipt_that_contradicts_its_run_is_refused(folder) -> None:
    """Its fact says shuffle, its run Poisson, and every hash fits."""
    record = json.loads(Path("silent.receipt.json").read_text())
    (fact,) = [one for one in record["executed"]["facts"] if one["fact"] == "sampler"]
    fact["value"] = "shuffle"
    about = {key: value for key, value in record["provenance"].items() if key != "sha256"}
    record["provenance"] = about | {"sha256": digest({**record, "provenance": about})}
    Path("lie.json").write_text(json.dumps(record))
    assert call("check", "lie.json", *BUDGET)[0] == 1
    status, text, refusal = call("export", "lie.json")
    assert (status, text) == (2, "")
    assert "lie.json: the receipt contradicts its own run: It states sampler = 'shuffle'" in refusal
