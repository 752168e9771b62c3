"""A receipt can be measured again by somebody else, and lies in one are found out."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from oracles.json_schema import complaints

from calipers.bracket import Bracket, Evidence, Kind
from calipers.cli import main
from calipers.errors import InputError
from calipers.gate import Budget, read_described
from calipers.measure import measure
from calipers.provenance import digest, is_intact
from calipers.receipts import Confirmation, receipt, verify_receipt, write_receipt
from calipers.reports.answers import Questions, answer
from calipers.reports.schema import schema_of
from calipers.run import Run

RUN = Run(sample_rate=0.1, steps=20, noise_multiplier=2.0)


def resealed(record: dict) -> dict:
    """What a liar does after changing a receipt: compute all hashes anew."""
    about = {key: value for key, value in record["provenance"].items() if key != "sha256"}
    about["run_sha256"] = digest(record["run"])
    content = {**record, "provenance": about}
    return {**content, "provenance": {**about, "sha256": digest(content)}}


@pytest.fixture(scope="module")
def honest() -> dict:
    return json.loads(json.dumps(receipt(RUN, max_grad_norm=1.0, libraries={"opacus": "1.6.0"})))


def test_an_honest_receipt_is_confirmed(honest) -> None:
    """Read back from JSON, its hash fits and its numbers come out again."""
    assert is_intact(honest)
    found = verify_receipt(honest)
    assert found.standing is Confirmation.CONFIRMED
    assert Run.from_dict(honest["run"]) == RUN


def test_it_says_where_it_comes_from(honest) -> None:
    """Version, date, command, both hashes; libraries; every fact with how it was found out, gaps included."""
    assert set(honest["provenance"]) == {"calipers", "date", "command", "run_sha256", "sha256"}
    assert honest["libraries"]["training"] == {"opacus": "1.6.0"}
    assert {"python", "numpy", "scipy"} <= set(honest["libraries"]["measuring"])
    facts = {one["fact"]: (one["value"], one["how"]) for one in honest["executed"]["facts"]}
    assert facts["sampler"] == ("poisson", "assumed")
    assert facts["noise multiplier"] == (RUN.noise_multiplier, "declared")
    assert facts["clipping norm"] == (1.0, "declared")
    assert facts["noise source"] == (None, "not stated")


def test_what_somebody_named_is_declared_and_a_default_is_assumed() -> None:
    """Fact by fact, with the sentences that follow from the keys."""
    named = Run(**RUN.to_dict(), unit="user", records_per_unit=1)
    for run, how in ((RUN, "assumed"), (named, "declared")):
        facts = {one["fact"]: one["how"] for one in receipt(run)["executed"]["facts"]}
        defaults = ("sampler", "divisor", "adjacency", "view", "batches", "neighbors", "unit")
        assert {facts[fact] for fact in defaults} == {how}
        assert {facts[fact] for fact in ("sample rate", "steps", "noise multiplier")} == {"declared"}


def test_a_rate_that_was_computed_from_the_sizes_is_derived() -> None:
    """B/N is not what anybody declared; a receipt that calls it declared, as earlier ones do, is confirmed."""
    run = Run(dataset_size=1000, batch_size=100, steps=3, noise_multiplier=4.0)
    record = json.loads(json.dumps(receipt(run)))
    rate = next(one for one in record["executed"]["facts"] if one["fact"] == "sample rate")
    assert (rate["value"], rate["how"]) == (0.1, "derived")
    assert complaints(record, schema_of("receipt"), schema_of("receipt")) == []
    assert verify_receipt(record).standing is Confirmation.CONFIRMED
    rate["how"] = "declared"
    assert verify_receipt(resealed(record)).standing is Confirmation.CONFIRMED
    named = json.loads(json.dumps(receipt(run.replace(sample_rate=0.1))))
    rate = next(one for one in named["executed"]["facts"] if one["fact"] == "sample rate")
    assert rate["how"] == "declared"
    rate["how"] = "derived"
    assert verify_receipt(resealed(named)).standing is Confirmation.CONTRADICTED


EPOCHS = {"dataset_size": 1050, "batch_size": 100, "epochs": 2, "noise_multiplier": 4.0}


@pytest.mark.parametrize(
    ("changes", "steps", "batches"),
    [
        ({}, "assumed", "assumed"),
        ({"dataset_size": 1000}, "declared", "assumed"),
        ({"epochs": None, "steps": 20}, "declared", "assumed"),
        ({"sampler": "shuffle"}, "assumed", "assumed"),
        ({"sampler": "shuffle", "last_batch": "drop"}, "declared", "assumed"),
        ({"sampler": "shuffle", "last_batch": "keep", "reshuffle": "every-epoch"}, "declared", "declared"),
        ({"sampler": "poisson"}, "assumed", "assumed"),
        ({"sampler": "poisson", "derived_rate": "public"}, "assumed", "declared"),
    ],
)
def test_steps_that_follow_from_epochs_are_assumed_where_records_are_left_over(changes, steps, batches) -> None:
    """1,050 / 100: an epoch may have 10 steps or 11. What nobody said about order and rate is assumed of the batches.

    The run that is read back from a receipt names all its keys, and confirms it.
    """
    adjacency = "zero-out" if "last_batch" in changes else None
    record = receipt(Run.from_dict({**EPOCHS, "adjacency": adjacency} | changes), tolerance=0.1)
    facts = {one["fact"]: one["how"] for one in record["executed"]["facts"]}
    assert (facts["steps"], facts["batches"]) == (steps, batches)
    assert verify_receipt(json.loads(json.dumps(record))).standing is Confirmation.CONFIRMED


@pytest.mark.parametrize("sampler", ["poisson", "shuffle"])
def test_a_receipt_has_the_notes_of_the_report(sampler) -> None:
    """How many steps an epoch has, what a kept last batch is, that a delta is large: all but verdicts."""
    run = Run(**EPOCHS, sampler=sampler)
    notes = receipt(run, deltas=(5e-4,), tolerance=0.05)["measurement"]["notes"]
    reported = answer(measure(run, tolerance=0.05), Questions(deltas=(5e-4,))).notes
    assert notes == [note for note in reported if "an explicit attack shows an epsilon" not in note]
    said = {"poisson": "An epoch is counted as floor(1,050/100)", "shuffle": "describe that with last_batch = 'keep'"}[
        sampler
    ]
    assert any(said in note for note in notes)
    assert any("delta = 5e-4 is not far below 1/N" in note for note in notes)


def test_a_receipt_that_calls_its_defaults_declared_is_confirmed(honest) -> None:
    """As earlier versions wrote them; what no default says is not assumed."""
    earlier = copy.deepcopy(honest)
    for one in earlier["executed"]["facts"]:
        one["how"] = one["how"].replace("assumed", "declared")
    assert verify_receipt(resealed(earlier)).standing is Confirmation.CONFIRMED
    next(one for one in earlier["executed"]["facts"] if one["fact"] == "steps")["how"] = "assumed"
    assert verify_receipt(resealed(earlier)).standing is Confirmation.CONTRADICTED


@pytest.mark.parametrize("training", ["declared", "phases", "nothing probed"])
def test_a_receipt_keeps_to_its_schema(honest, training) -> None:
    """Whatever was found out; a key that is missing, unknown or of another kind is none of it."""
    nothing = {"findings": [{"subject": "noise", "verdict": "none", "alarm": True}], "run": None, "reason": "no noise."}
    schema = schema_of("receipt")
    record = {
        "declared": lambda: honest,
        "phases": lambda: receipt([RUN, RUN.replace(noise_multiplier=3.0)], deltas=(1e-5, 1e-6)),
        "nothing probed": lambda: receipt(nothing),
    }[training]()
    assert complaints(record, schema, schema) == []
    wrong = copy.deepcopy(record)
    del wrong["provenance"]["date"]
    wrong["executed"]["how"] = "guessed"
    wrong["measurement"]["epsilon"][0]["upper"] = "much"
    wrong["signature"] = "me"
    assert len(complaints(wrong, schema, schema)) == 4


def change_upper(record):
    record["measurement"]["epsilon"][0]["upper"] *= 0.5


def change_lower(record):
    record["measurement"]["epsilon"][0]["lower"] *= 2.0


def change_noise(record):
    record["run"]["noise_multiplier"] = 4.0


def change_fact(record):
    record["executed"]["facts"][0]["value"] = "balls-and-bins"


@pytest.mark.parametrize("change", [change_upper, change_lower, change_noise, change_fact])
def test_a_lie_with_fresh_hashes_is_contradicted(change, honest) -> None:
    """Half the epsilon, twice the attack, another noise, another sampler."""
    record = copy.deepcopy(honest)
    change(record)
    with pytest.raises(InputError, match="hash"):
        verify_receipt(record)
    assert verify_receipt(resealed(record)).standing is Confirmation.CONTRADICTED


def test_what_a_narrower_proof_carries_is_confirmed_and_no_more(honest) -> None:
    """An upper value inside the receipt's own bracket stands only where a narrower computation proves it."""
    record = copy.deepcopy(honest)
    record["measurement"]["epsilon"][0]["upper"] = record["measurement"]["epsilon"][0]["lower"]
    assert verify_receipt(resealed(record)).standing is Confirmation.CONTRADICTED


def test_several_deltas_and_phases(tmp_path) -> None:
    """Phases keep their order; every delta is verified."""
    place = write_receipt([RUN, RUN.replace(noise_multiplier=3.0)], tmp_path / "r.json", deltas=[1e-5, 1e-7])
    record = json.loads(place.read_text())
    found = verify_receipt(record)
    assert found.standing is Confirmation.CONFIRMED
    assert [delta for delta, _ in found.epsilon] == [1e-5, 1e-7]
    assert len(read_described(str(place)).runs) == 2


class Record:
    """A record of `attach` whose loop broke off: the run bounds it, no attack is claimed."""

    def __init__(self, runs, attained=False, reasons=("The loop broke off.",)):
        self.facts = {"clipping norms realized": [1.0], "noise source": "a generator", "steps": 3}
        self._runs, self._attained, self._reasons = runs, attained, reasons

    def measure(self):
        return SimpleNamespace(conditions=("a condition",))

    def runs(self):
        return self._runs

    def attained(self):
        return self._attained

    def why_not(self):
        return self._reasons


def test_a_run_that_only_bounds_the_training_claims_no_attack() -> None:
    """Lower values are 0 and are not asked for again; the gate does not call the budget exceeded."""
    record = receipt(Record((RUN,)))
    assert record["measurement"]["epsilon"][0]["lower"] == 0.0
    assert record["executed"]["reasons"] == ["The loop broke off."]
    found = verify_receipt(record)
    assert found.standing is Confirmation.CONFIRMED
    attained = receipt(Record((RUN,), attained=True, reasons=()))
    assert attained["measurement"]["epsilon"][0]["lower"] > 0.0


def test_nothing_proven_is_written_as_nothing(tmp_path) -> None:
    """No run, no number: the receipt is honest, and the gate does not let it pass."""
    place = write_receipt(Record(()), tmp_path / "r.json")
    record = json.loads(place.read_text())
    assert record["measurement"]["epsilon"][0]["upper"] is None
    assert verify_receipt(record).standing is Confirmation.CONFIRMED
    result = CliRunner().invoke(main, ["check", str(place), "--epsilon", "9", "--delta", "1e-5"])
    assert result.exit_code == 1
    assert "broke off" in result.stdout
    record["measurement"]["epsilon"][0]["upper"] = 1.0
    assert verify_receipt(resealed(record)).standing is Confirmation.CONTRADICTED


PROBED = {
    "target": "mine",
    "findings": [{"subject": "sampler", "verdict": "poisson", "evidence": "counts", "alarm": False}],
    "run": Run(dataset_size=1000, batch_size=100, steps=10, noise_multiplier=2.0).to_dict(),
    "error_probability": 1e-3,
}


def test_a_probe_becomes_a_receipt_of_the_length_that_is_said(tmp_path, monkeypatch) -> None:
    """The probe finds one epoch; the receipt is about the training, and the probe's findings are in it."""
    monkeypatch.chdir(tmp_path)
    Path("probe.json").write_text(json.dumps(PROBED))
    result = CliRunner().invoke(main, ["receipt", "--probe", "probe.json", "--epochs", "3", "-o", "r.json"])
    assert result.exit_code == 0, result.output
    record = json.loads(Path("r.json").read_text())
    assert Run.from_dict(record["run"]).total_steps == 30
    assert record["executed"]["how"] == "probed"
    assert ("probe: sampler", "probed") in [(one["fact"], one["how"]) for one in record["executed"]["facts"]]
    assert CliRunner().invoke(main, ["verify-receipt", "r.json"]).exit_code == 0


def test_a_probe_does_not_vouch_for_what_it_cannot_see(tmp_path, monkeypatch) -> None:
    """Neighbors, adversary and unit are assumed, or declared by a run file; the length is declared; the rest probed."""
    monkeypatch.chdir(tmp_path)
    Path("probe.json").write_text(json.dumps(PROBED))
    alone = receipt(PROBED, epochs=3)
    Path("run.toml").write_text(
        "dataset_size = 1000\nbatch_size = 100\nsteps = 10\nnoise_multiplier = 2.0\nadjacency = 'substitute'\n"
    )
    assert CliRunner().invoke(main, ["receipt", "run.toml", "--probe", "probe.json", "-o", "r.json"]).exit_code == 0
    beside_a_file = json.loads(Path("r.json").read_text())
    for record, relation in ((alone, "assumed"), (beside_a_file, "declared")):
        how = {one["fact"]: one["how"] for one in record["executed"]["facts"]}
        assert (how["adjacency"], how["neighbors"], how["view"], how["unit"]) == (relation, relation, *("assumed",) * 2)
        assert how["steps"] == "declared"
        assert {how[fact] for fact in ("sampler", "sample rate", "noise multiplier", "divisor")} == {"probed"}
        assert verify_receipt(record).standing is Confirmation.CONFIRMED


def test_a_receipt_whose_probe_saw_its_neighbors_is_confirmed() -> None:
    """As earlier versions wrote them; that somebody declared the sampler of a probe is still a lie."""
    record = json.loads(json.dumps(receipt(PROBED, epochs=3)))
    facts = {one["fact"]: one for one in record["executed"]["facts"]}
    for fact in ("adjacency", "view", "neighbors", "unit", "steps"):
        facts[fact]["how"] = "probed"
    assert verify_receipt(resealed(record)).standing is Confirmation.CONFIRMED
    facts["sampler"]["how"] = "declared"
    assert verify_receipt(resealed(record)).standing is Confirmation.CONTRADICTED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a run file"),
        (("--probe", "probe.json"), "--epochs"),
        (("run.toml", "--probe", "probe.json"), "sampler='shuffle'"),
        (("run.toml", "--epochs", "3"), "leave --epochs"),
        (("run.toml", "--library", "opacus"), "NAME=VERSION"),
        (("run.toml", "-o", "nowhere/r.json"), "nowhere"),
        (("--probe", "run.toml", "--epochs", "1"), "not JSON"),
    ],
)
def test_receipts_refuse_what_contradicts_itself(arguments, said, tmp_path, monkeypatch) -> None:
    """One sentence, status 2, nothing on standard output."""
    monkeypatch.chdir(tmp_path)
    Path("probe.json").write_text(json.dumps(PROBED))
    Path("run.toml").write_text(
        "dataset_size = 1000\nbatch_size = 100\nepochs = 3\nnoise_multiplier = 2.0\nsampler = 'shuffle'\n"
    )
    result = CliRunner().invoke(main, ["receipt", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_verify_receipt_speaks_to_programs(honest, tmp_path, monkeypatch) -> None:
    """Exit statuses 0 and 4, JSON with every file, and no receipt is status 2."""
    monkeypatch.chdir(tmp_path)
    lie = copy.deepcopy(honest)
    change_upper(lie)
    Path("honest.json").write_text(json.dumps(honest))
    Path("lie.json").write_text(json.dumps(resealed(lie)))
    Path("other.json").write_text("{}")
    result = CliRunner().invoke(main, ["verify-receipt", "honest.json", "lie.json", "--json"])
    assert result.exit_code == 4
    assert [one["standing"] for one in json.loads(result.stdout)["receipts"]] == ["confirmed", "contradicted"]
    assert CliRunner().invoke(main, ["verify-receipt", "honest.json"]).exit_code == 0
    assert CliRunner().invoke(main, ["verify-receipt", "other.json"]).exit_code == 2


def test_infinite_bounds_are_no_numbers() -> None:
    """JSON knows no infinity: a receipt is strict JSON whatever was found."""
    text = json.dumps(receipt(Record(())), allow_nan=False)
    assert "Infinity" not in text
    assert math.isfinite(Budget(epsilon=1, delta=1e-5).epsilon)


def test_what_this_computation_cannot_prove_is_not_confirmed(honest, monkeypatch) -> None:
    """Compatible with what comes out, but no proof carries it: neither confirmed nor contradicted."""
    evidence = Evidence(Kind.THEOREM, "a statement", "a source")
    row = honest["measurement"]["epsilon"][0]
    wide = Bracket(row["lower"] / 2, row["upper"] * 2, evidence, evidence)
    claim = SimpleNamespace(epsilon=lambda delta: row["claim"])
    said = {"claim": claim, "closes": True, "notes": honest["measurement"]["notes"], "runs": (RUN,), "tolerance": 1e-3}
    found = SimpleNamespace(epsilon=lambda delta: wide, **said)
    monkeypatch.setattr("calipers.receipts.verify.measure", lambda runs, tolerance: found)
    assert verify_receipt(honest).standing is Confirmation.UNCONFIRMED


@pytest.mark.parametrize("training", ["declared", "probed"])
def test_every_receipt_names_the_condition_of_its_numbers(training) -> None:
    """A number after the fact holds if the schedule was fixed in advance, however that was found out."""
    run = Run(sample_rate=0.1, steps=10, noise_multiplier=2.0)
    report = {"findings": [], "run": run.to_dict()}
    made = receipt(run if training == "declared" else report)
    assert any("longest run that was possible" in sentence for sentence in made["executed"]["conditions"])
