"""The attack that the evidence names is the one that shows the number: its own curve reaches what is printed."""

import pytest

import calipers as cp
from calipers.measure.competing import MaximumBound, MinimumBound
from calipers.measure.measurement import Measurement

ALONE = "All gradients but those of one record of the patient are zero."
UNITS = {"dataset_size": 200, "batch_size": 20, "noise_multiplier": 1.3, "unit": "patient", "records_per_unit": 3}


def attacks_of(found: Measurement) -> list[tuple[str, Measurement]]:
    """Each of the attacks that compete: what is said of it, and a measurement with it alone."""
    lower = found.evaluation.lower
    assert isinstance(lower, MaximumBound)
    alone = [(one, cp.measure(found.runs)) for one in lower.parts]
    for one, other in alone:
        other.evaluation = type(found.evaluation)(found.evaluation.upper, one)
    return [(one.evidence().statement, other) for one, other in alone]


@pytest.mark.parametrize(
    ("sampler", "adjacency", "epochs"),
    [
        ("balls-and-bins", "zero-out", 4),
        ("balls-and-bins", "substitute", 2),
        pytest.param("shuffle", "zero-out", 2, marks=pytest.mark.slow),
        pytest.param("shuffle", "substitute", 2, marks=pytest.mark.slow),
    ],
)
def test_of_units_the_named_attack_reaches_every_value_read_off_curves(sampler, adjacency, epochs) -> None:
    """TPR and mu: the attack that is named reaches the number, and no other one shows more."""
    found = cp.measure(cp.Run(sampler=sampler, adjacency=adjacency, epochs=epochs, **UNITS))
    attacks = attacks_of(found)
    assert len({text for text, _ in attacks}) == len(attacks) > 1
    for read in (lambda one: one.tpr(0.1), lambda one: one.tpr(0.001), lambda one: one.gdp().mu):
        bracket = read(found)
        named = [read(alone).lower for text, alone in attacks if bracket.lower_evidence.statement.startswith(text)]
        assert named == [bracket.lower]
        assert bracket.lower == max(read(alone).lower for _, alone in attacks)


def test_more_than_is_proven_for_one_record_is_not_shown_on_one_record() -> None:
    """Three records in balls-and-bins batches: no attack in which two of them do nothing reaches the printed rate."""
    run = cp.Run(sampler="balls-and-bins", adjacency="zero-out", epochs=4, **UNITS)
    found, one = cp.measure(run).tpr(0.1), cp.measure(run.replace(unit=None, records_per_unit=None)).tpr(0.1)
    assert found.lower > one.upper
    assert not found.lower_evidence.statement.startswith(ALONE)


@pytest.mark.parametrize(
    ("adjacency", "last_batch", "said"),
    [
        (
            "add-remove",
            "drop",
            "The patient has one record. The record's clipped gradient is u, a unit vector, and all ",
        ),
        (
            "add-remove",
            "keep",
            "The patient has one record. The record's clipped gradient is u, a unit vector, and all ",
        ),
        ("substitute", "keep", "The patient has one record. All other clipped gradients are -u, a unit vector, and "),
        ("zero-out", "keep", f"{ALONE} The record's clipped gradient is u, a unit vector, or zero once it is "),
    ],
)
def test_others_that_oppose_the_record_leave_its_unit_no_other(adjacency, last_batch, said) -> None:
    """A record of gradient zero takes the place of one that opposes; where others are zero, those of the unit are."""
    sizes = UNITS | {"dataset_size": 206, "epochs": 2}
    lower = cp.measure(cp.Run(sampler="shuffle", adjacency=adjacency, last_batch=last_batch, **sizes)).evaluation.lower
    attacks = lower.parts if type(lower) is MaximumBound else [lower]
    texts = [one.evidence().statement for one in attacks]
    assert sum(said in text for text in texts) == 1
    assert not any("but one have gradient zero" in text for text in texts)


def test_what_is_shown_of_a_patient_with_one_record_is_shown_of_patients() -> None:
    """The lower bound for up to three records is that for one, and the upper one names what it starts from."""
    run = cp.Run(sampler="shuffle", adjacency="add-remove", epochs=1, **UNITS | {"dataset_size": 206})
    one = cp.measure(run.replace(unit=None, records_per_unit=None)).epsilon(1e-5)
    found = cp.measure(run)
    assert found.epsilon(1e-5).lower == one.lower
    chain = "Dong, Roth, Su 2022, Theorem 2.14, applied to Calipers 2026, docs/theory/shuffling.md, Theorem 5.1"
    proofs = found.evaluation.upper
    assert isinstance(proofs, MinimumBound)
    assert any(proof.evidence().source.startswith(chain) for proof in proofs.parts)


def test_an_error_of_the_attacker_is_proven_from_below_and_shown_from_above() -> None:
    """The false negative rate and the Bayes error have the proof below, the attack above."""
    found = cp.measure(cp.Run(sampler="balls-and-bins", adjacency="zero-out", epochs=2, **UNITS))
    for bracket in (found.tradeoff(0.1), found.bayes_error(0.5)):
        assert bracket.lower_evidence.kind.value in ("numerical", "theorem")
        assert bracket.upper_evidence.kind.value == "test"
