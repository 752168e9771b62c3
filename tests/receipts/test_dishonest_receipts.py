"""Receipts that contradict themselves, say more than was compared, or are no receipts: all with fitting hashes."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from oracles.json_schema import complaints

from calipers.cli import main
from calipers.errors import InputError
from calipers.gate.receipt_shape import checked_receipt
from calipers.provenance import digest
from calipers.receipts import Confirmation, receipt, verify_receipt
from calipers.reports.schema import schema_of
from calipers.run import Run

RUN = Run(sample_rate=1.0, steps=1, noise_multiplier=2.0)
BUDGET = ("--epsilon", "9", "--delta", "1e-5")
COMMANDS = (("verify-receipt", "r.json"), ("check", "r.json", *BUDGET), ("export", "r.json"))
PRAISE = "verified by NIST"


def resealed(record: dict) -> dict:
    """What a liar does after changing a receipt: compute all hashes anew, as far as there is something to hash."""
    about = {key: value for key, value in record["provenance"].items() if key != "sha256"}
    about["run_sha256"] = digest(record.get("run"))
    content = {**record, "provenance": about}
    return {**content, "provenance": {**about, "sha256": digest(content)}}


@pytest.fixture(scope="module")
def original() -> dict:
    return json.loads(json.dumps(receipt(RUN, max_grad_norm=1.0, libraries={"opacus": "1.6.0"})))


@pytest.fixture
def honest(original: dict) -> dict:
    return copy.deepcopy(original)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_key_that_stands_twice_is_refused(command, honest) -> None:
    """Who takes the first key reads another noise than who takes the last; the seal fits for one of them."""
    text = json.dumps(honest).replace('"noise_multiplier": 2.0', '"noise_multiplier": 20.0, "noise_multiplier": 2.0', 1)
    assert json.loads(text) == honest
    Path("r.json").write_text(text)
    result = call(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'noise_multiplier' twice" in result.stderr


def facts_of(record: dict) -> list[dict]:
    return record["executed"]["facts"]


def another_noise_first(record):
    facts_of(record).insert(0, {"fact": "noise multiplier", "value": 20.0, "how": "declared"})


def the_same_fact_again(record):
    facts_of(record).append(facts_of(record)[0])


def a_fact_of_its_own(record):
    facts_of(record).append({"fact": PRAISE, "value": True, "how": "declared"})


def free_text_as_how(record):
    record["executed"]["how"] = PRAISE


def free_text_as_how_of_a_fact(record):
    facts_of(record)[0]["how"] = PRAISE


def at_least_more_than_at_most(record):
    row = record["measurement"]["epsilon"][0]
    row["lower"], row["upper"] = row["upper"], row["lower"] / 2


@pytest.mark.parametrize(
    "change",
    [
        another_noise_first,
        the_same_fact_again,
        a_fact_of_its_own,
        free_text_as_how,
        free_text_as_how_of_a_fact,
    ],
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_what_contradicts_itself_is_no_receipt(change, command, honest) -> None:
    """Refused by all commands that read receipts, in one sentence, and never repeated on standard output."""
    change(honest)
    Path("r.json").write_text(json.dumps(resealed(honest)))
    result = call(*command)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert "r.json: it" in result.stderr


def another_claim(record):
    record["measurement"]["epsilon"][0]["claim"] *= 1.01


def no_claim(record):
    record["measurement"]["epsilon"][0]["claim"] = None


def not_refuted_or_refuted(record):
    record["measurement"]["refuted"] = not record["measurement"]["refuted"]


def another_way(record):
    facts_of(record)[0]["how"] = "attached"


def true_for_one(record):
    next(one for one in facts_of(record) if one["fact"] == "steps")["value"] = True


def stated_by_nobody(record):
    next(one for one in facts_of(record) if one["fact"] == "noise source")["value"] = "a certified generator"


def notes_of_its_own(record):
    record["measurement"]["notes"].append(PRAISE)


def evidence_of_its_own(record):
    record["measurement"]["epsilon"][0]["upper_evidence"]["source"] = PRAISE


CONTRADICTED = [
    another_claim,
    no_claim,
    not_refuted_or_refuted,
    another_way,
    true_for_one,
    stated_by_nobody,
    at_least_more_than_at_most,
]


@pytest.mark.parametrize("change", [*CONTRADICTED, notes_of_its_own, evidence_of_its_own])
def test_everything_that_follows_from_the_run_is_compared(change, honest) -> None:
    """Claim, verdict, ways, notes and evidence of its own keep a receipt from being confirmed."""
    assert verify_receipt(honest).standing is Confirmation.CONFIRMED
    change(honest)
    found = verify_receipt(resealed(honest))
    expected = Confirmation.CONTRADICTED if change in CONTRADICTED else Confirmation.UNCONFIRMED
    assert found.standing is expected, found.sentences


@pytest.mark.slow
def test_a_run_that_does_not_close_is_not_said_to() -> None:
    """A receipt that calls the two sides of a shuffled run one pair is not confirmed."""
    record = receipt(Run(dataset_size=20, batch_size=10, epochs=1, noise_multiplier=2.0, sampler="shuffle"))
    record = json.loads(json.dumps(record))
    assert not record["measurement"]["closes"]
    assert verify_receipt(record).standing is Confirmation.CONFIRMED
    record["measurement"]["closes"] = True
    assert verify_receipt(resealed(record)).standing is Confirmation.UNCONFIRMED


def test_confirmed_says_what_was_compared(honest) -> None:
    """What nobody can compare is named as the words of the writer; notes too, where another version wrote them."""
    assert verify_receipt(honest).sentences[-1] == (
        "Compared with the run that it states: its facts about the run, epsilon, the claim, whether it is refuted, "
        "whether the bounds agree, notes, "
        "evidence. Not compared, the words of whoever wrote it: clipping norm, conditions, libraries, date, command."
    )
    honest["executed"] |= {"reasons": [PRAISE], "conditions": [PRAISE], "observations": {"by": PRAISE}}
    honest["provenance"]["calipers"] = "0.0.1"
    honest["measurement"]["notes"] = [PRAISE]
    *_, scope = verify_receipt(resealed(honest)).sentences
    assert scope == (
        "Compared with the run that it states: its facts about the run, epsilon, the claim, whether it is refuted, "
        "whether the bounds agree. Not "
        "compared, the words of whoever wrote "
        "it: clipping norm, reasons, conditions, observations, libraries, date, command, notes and evidence, worded by "
        "another version."
    )


@pytest.mark.parametrize("form", ["short", "model-card", "checklist"])
def test_exports_mark_the_words_of_a_receipt(form, honest) -> None:
    """A sentence among the conditions is printed as what the receipt says, and nothing of it as a fact."""
    honest["executed"]["conditions"] = [f"{PRAISE}\n\nand \x1b[31m others"]
    Path("r.json").write_text(json.dumps(resealed(honest)))
    result = call("export", "r.json", "--form", form)
    assert result.exit_code == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if PRAISE in line]
    assert "The receipt says, unverified: " in line[: line.index(PRAISE)]
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("form", ["short", "model-card", "checklist"])
def test_exports_say_the_usual_condition_once(form, honest) -> None:
    """It is Calipers' own, and no hearsay where a receipt repeats it."""
    Path("r.json").write_text(json.dumps(honest))
    result = call("export", "r.json", "--form", form)
    assert result.stdout.count("The numbers hold only if the noise") == 1
    assert "unverified" not in result.stdout


def test_the_gate_says_what_became_of_a_receipt(honest) -> None:
    """One that contradicts its run is within no budget; what this computation words otherwise is said too."""
    Path("honest.json").write_text(json.dumps(honest))
    assert call("check", "honest.json", *BUDGET).exit_code == 0
    halved, noted = copy.deepcopy(honest), copy.deepcopy(honest)
    halved["measurement"]["epsilon"][0] |= {"upper": 0.1, "lower": 0.0}
    notes_of_its_own(noted)
    Path("halved.json").write_text(json.dumps(resealed(halved)))
    Path("noted.json").write_text(json.dumps(resealed(noted)))
    result = call("check", "halved.json", *BUDGET)
    assert result.exit_code == 1
    first = "halved.json: The receipt contradicts its own run: At delta = 1e-5 it states epsilon at most 0.1"
    assert result.stdout.startswith(first)
    assert "The run itself, measured again: within the budget of epsilon = " in result.stdout
    result = call("check", "noted.json", *BUDGET)
    assert result.exit_code == 0
    assert "Its receipt is unconfirmed" in result.stdout
    result = call("check", "halved.json", "--epsilon", "0.5", "--delta", "1e-5")
    assert result.exit_code == 4
    assert result.stdout.startswith(first)
    assert "The run itself, measured again: the budget of epsilon = 0.5 at delta = 1e-5 is exceeded" in result.stdout


@pytest.mark.parametrize("key", ["conditions", "reasons"])
def test_the_gate_repeats_what_a_receipt_says_against_itself(key, honest) -> None:
    """A probe's alarm stands among the conditions: within the budget, but not without a word of it."""
    Path("r.json").write_text(json.dumps(honest))
    assert "The receipt says" not in call("check", "r.json", *BUDGET).stdout
    honest["executed"][key].append("noise: missing in one layer")
    Path("r.json").write_text(json.dumps(resealed(honest)))
    result = call("check", "r.json", *BUDGET)
    assert result.exit_code == 0
    assert 'The receipt says, unverified: "noise: missing in one layer"' in result.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_receipt_of_thousands_of_deltas_is_not_measured(command, honest) -> None:
    """Every delta costs a measurement of whoever verifies it; Calipers writes none of that size."""
    (row,) = honest["measurement"]["epsilon"]
    honest["measurement"]["epsilon"] = [{**row, "delta": 1e-5 + number * 1e-12} for number in range(101)]
    Path("r.json").write_text(json.dumps(resealed(honest)))
    result = call(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "states epsilon at 101 deltas, and a receipt has at most 100" in result.stderr
    with pytest.raises(InputError, match="at 100 deltas at most, got 101"):
        receipt(RUN, deltas=[1e-5 + number * 1e-12 for number in range(101)])


def test_a_receipt_without_a_run_states_nothing() -> None:
    """No facts, no claim, no notes where nothing is proven; the reason is quoted at the gate."""
    nothing = {"findings": [], "run": None, "reason": PRAISE}
    record = json.loads(json.dumps(receipt(nothing)))
    assert verify_receipt(record).standing is Confirmation.CONFIRMED
    Path("r.json").write_text(json.dumps(record))
    result = call("check", "r.json", *BUDGET)
    assert result.exit_code == 1
    assert f'The receipt says, unverified: "{PRAISE}"' in result.stdout
    for change in (
        lambda it: it["measurement"].update(notes=[PRAISE]),
        lambda it: it["measurement"].update(closes=True),
        lambda it: it["measurement"]["epsilon"][0].update(claim=1.0),
        lambda it: facts_of(it).append({"fact": "noise multiplier", "value": 9.0, "how": "probed"}),
    ):
        wrong = copy.deepcopy(record)
        change(wrong)
        assert verify_receipt(resealed(wrong)).standing is Confirmation.CONTRADICTED


MISSING = object()
OTHERS = (None, True, -1, 0.5, 1e308, 10**400, "x", [], {}, [[]], [None], MISSING)


def places(value: object, here: tuple = ()):
    """Where something stands in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*here, key)
        yield from places(part, (*here, key))


def changed(record: dict, place: tuple, other: object) -> dict:
    """The receipt with something else, or nothing, in one place; hashes fit again."""
    found = copy.deepcopy(record)
    holder = found
    for key in place[:-1]:
        holder = holder[key]
    if other is MISSING:
        del holder[place[-1]]
    else:
        holder[place[-1]] = other
    return resealed(found) if isinstance(found.get("provenance"), dict) else found


def mutants(record: dict, one_in: int) -> list[dict]:
    """Every place, every other value, and of these one in so many."""
    where = [place for place in places(record) if place != ("provenance", "sha256")]
    pairs = itertools.islice(itertools.product(where, OTHERS), 0, None, one_in)
    return [changed(record, place, other) for place, other in pairs]


def test_the_shape_is_that_of_the_schema(original) -> None:
    """One in seven of 1,000 re-sealed receipts with something else in one place: what the schema forbids is refused."""
    schema = schema_of("receipt")
    refused = 0
    for record in mutants(original, 7):
        try:
            checked_receipt(record)
        except InputError:
            refused += 1
        else:
            assert complaints(record, schema, schema) == []
    assert refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_malformed_receipts_are_refused_in_a_sentence(command, original) -> None:
    """One in five of them: no traceback, no other exit status, and standard output empty where it is bad input."""
    for record in mutants(original, 5):
        Path("r.json").write_text(json.dumps(record))
        result = call(*command)
        assert result.exception is None or isinstance(result.exception, SystemExit), record
        assert result.exit_code in (0, 1, 2, 3, 4)
        assert result.exit_code != 2 or result.stdout == ""


@pytest.mark.parametrize(
    "text", ['{"a": ' * 900 + "1" + "}" * 900, '{"x": NaN}', "[" * 100_000, '{"x": ' + "9" * 5000 + "}"]
)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_json_that_is_hard_to_read_is_refused(text, command, original) -> None:
    """Deep nesting, numbers that are none, and numbers of 5000 digits, alone and inside a receipt."""
    inside = json.dumps(original).replace('"observations": {}', f'"observations": {text}')
    for content in (text, inside):
        Path("r.json").write_text(content)
        result = call(*command)
        assert (result.exit_code, result.stdout) == (2, ""), content[:50]
