"""Numbers that follow from the dataset size: said to be public, or measured as they move."""

from __future__ import annotations

import pytest

from calipers.errors import InputError
from calipers.measure import measure
from calipers.run import Run

SIZES = {"dataset_size": 1000, "batch_size": 100, "noise_multiplier": 1.0}
RATE, STEPS, BATCHES = "rate", "number of steps 30", "number of batches, 10,"
DERIVED = [
    ("poisson", {"epochs": 3}, {RATE, STEPS}),
    ("poisson", {"steps": 30}, {RATE}),
    ("truncated-poisson", {"epochs": 3, "max_batch_size": 130}, {RATE, STEPS}),
    ("truncated-poisson", {"steps": 30, "max_batch_size": 130}, {RATE}),
    ("cyclic-poisson", {"epochs": 3, "cycle": 5}, {RATE, STEPS}),
    ("cyclic-poisson", {"steps": 30, "cycle": 5}, {RATE}),
    ("without-replacement", {"epochs": 3}, {STEPS}),
    ("without-replacement", {"steps": 30}, set()),
    ("with-replacement", {"epochs": 3}, {STEPS}),
    ("with-replacement", {"steps": 30}, set()),
    ("balls-and-bins", {"epochs": 3}, {BATCHES}),
    ("balls-and-bins", {"epochs": 3, "reshuffle": "once"}, {BATCHES}),
    ("random-allocation", {"steps": 30, "participations": 3}, set()),
]


@pytest.mark.parametrize(("sampler", "keys", "said"), DERIVED)
def test_what_follows_from_the_size_is_said_to_be_public(sampler, keys, said):
    """Under add-remove adjacency the dataset size is nobody's public number: the text names what is read as one."""
    notes = [
        note
        for note in measure(Run(sampler=sampler, **SIZES, **keys)).notes
        if "read as" in note or "taken to be" in note
    ]
    public = " ".join(note for note in notes if "the same for both neighbors" in note)
    assert {what for what in (RATE, STEPS, BATCHES) if f"The {what}" in public or f"and the {what}" in public} == said


@pytest.mark.parametrize(("sampler", "keys", "said"), DERIVED)
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_neighbors_of_one_size_need_no_such_note(sampler, keys, said, adjacency):
    """Zeroed out or replaced, a record leaves the dataset as large as it is."""
    notes = measure(Run(sampler=sampler, adjacency=adjacency, **SIZES, **keys)).notes
    assert not any("the same for both neighbors" in note for note in notes)


def test_a_rate_that_moves_is_measured_with_both():
    """The text says that it moves; epochs that are counted from the dataset show the record outright."""
    moving = Run(sampler="poisson", steps=30, derived_rate="moving", **SIZES)
    assert any("rate of either neighbor" in note for note in measure(moving).notes)
    with pytest.raises(InputError, match="no epsilon is finite"):
        measure(Run(sampler="poisson", epochs=3, derived_rate="moving", **SIZES))


@pytest.mark.parametrize("sampler", ["truncated-poisson", "cyclic-poisson", "without-replacement", "balls-and-bins"])
def test_no_other_rate_may_be_said_to_move(sampler):
    """Nothing is proven for them, and the refusal says what moving is about."""
    keys = next(keys for name, keys, _ in DERIVED if name == sampler)
    with pytest.raises(InputError, match="sampler 'poisson'"):
        Run(sampler=sampler, derived_rate="moving", **SIZES, **keys)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "substitute"])
def test_only_a_replaced_record_has_the_note_on_substitution(adjacency):
    """Elsewhere it reads as if the run had been measured for replaced records."""
    notes = measure(Run(sampler="poisson", adjacency=adjacency, epochs=3, **SIZES)).notes
    assert any("Substitution keeps" in note for note in notes) is (adjacency == "substitute")
