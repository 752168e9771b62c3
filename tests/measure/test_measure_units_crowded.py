"""Units so large that every batch of fixed size holds some of their records: there is no part without the unit."""

from __future__ import annotations

import math
from math import comb
from typing import NoReturn

import pytest
from scipy.special import ndtr

from calipers.errors import CertificationError, InputError
from calipers.measure import measure
from calipers.measure.competing import MaximumBound, MinimumBound
from calipers.measure.units import RevealedAllocationProof
from calipers.numerics.normal import gaussian_epsilon
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.run import Run


@pytest.mark.parametrize(
    ("size", "batch", "records", "noise"), [(12, 9, 4, 2.0), (12, 9, 4, 4.0), (10, 7, 4, 2.0), (12, 8, 5, 8.0)]
)
def test_opposite_records_among_zeros_are_covered(size: int, batch: int, records: int, noise: float) -> None:
    """All other gradients zero, the unit's u and -u once replaced: how many are drawn shows, the sum tells which."""
    drawn = range(max(0, batch - size + records), records + 1)
    ways = [comb(records, j) * comb(size - records, batch - j) for j in drawn]
    attack = sum(way * (2.0 * float(ndtr(j / noise)) - 1.0) for way, j in zip(ways, drawn, strict=True)) / sum(ways)
    run = Run(
        sampler="without-replacement", dataset_size=size, batch_size=batch, steps=1, noise_multiplier=noise,
        adjacency="substitute", unit="user", records_per_unit=records,
    )  # fmt: skip
    found = measure(run).delta(0.0)
    assert found.lower <= attack <= found.upper <= attack + 1e-6


@pytest.mark.parametrize("sampler", ["without-replacement", "with-replacement"])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
@pytest.mark.parametrize(("size", "batch", "records"), [(4, 4, 2), (3, 2, 3), (5, 4, 2)])
def test_whole_datasets_and_whole_batches_are_measured(
    sampler: str, adjacency: str, size: int, batch: int, records: int
) -> None:
    """A batch of everything, a unit that owns everything: numbers in order, no traceback."""
    run = Run(
        sampler=sampler, dataset_size=size, batch_size=batch, steps=2, noise_multiplier=3.0, adjacency=adjacency,
        unit="user", records_per_unit=records,
    )  # fmt: skip
    found = measure(run).epsilon(1e-5)
    assert 0.0 < found.lower <= found.upper


def test_the_attack_on_a_unit_does_not_need_what_the_unit_does_not_do() -> None:
    """Zeroed out: all records with equal gradients show more than their sum, and than one record that is opposed."""
    keys: dict[str, object] = {"dataset_size": 100, "batch_size": 10, "noise_multiplier": 2.0, "sampler": "shuffle"}
    one, alone = (
        Run(**keys, epochs=1, adjacency="zero-out", view=view)  # type: ignore[arg-type]
        for view in ("worst-case", "isolated")
    )
    unit = measure(one.replace(unit="user", records_per_unit=3)).epsilon(1e-3)
    among_zeros, opposed = measure(alone).epsilon(1e-3), measure(one).epsilon(1e-3)
    summed = float(gaussian_epsilon(3 / (2.0 * math.sqrt(10.0)), 1e-3))
    assert among_zeros.lower < opposed.lower < summed < unit.lower <= unit.upper
    assert unit.upper > opposed.upper
    assert "All 3 records" in unit.lower_evidence.statement
    replaced = one.replace(adjacency="substitute")
    found = measure(replaced.replace(unit="user", records_per_unit=3)).epsilon(1e-3)
    assert found.lower >= measure(replaced).epsilon(1e-3).lower


@pytest.mark.parametrize("sampler", ["without-replacement", "with-replacement"])
def test_displaced_records_are_not_isolated(sampler: str) -> None:
    """An adversary who sees the record's own contribution only does not see whom it displaces."""
    with pytest.raises(InputError, match="displaces"):
        Run(dataset_size=100, batch_size=10, steps=3, noise_multiplier=2.0, sampler=sampler, view="isolated")


def test_a_window_that_bounds_nothing_is_no_error() -> None:
    """Rare steps with little noise: Chernoff's bound at one end of the window is larger than any float."""
    run = Run(
        sampler="with-replacement", dataset_size=1_000_000, batch_size=1024, steps=100_000, noise_multiplier=0.7,
        adjacency="substitute",
    )  # fmt: skip
    mu = measure(run).gdp().mu
    assert 9.0 < mu.lower <= mu.upper < 12.0


class Refusing(RevealedAllocationProof):
    """Answers nothing."""

    def epsilon(self, delta: float, tolerance: float) -> NoReturn:
        """Refuses."""
        raise CertificationError("Too far.")


def test_who_cannot_answer_leaves_it_to_the_others_but_not_the_neighbors() -> None:
    """Proofs compete, so one that refuses is no loss; a neighbor that is not proven is no guarantee."""
    epochs = ((AllocatedUnit(3, 0.7, 10, 3), 1),)
    proof, refusing = RevealedAllocationProof(epochs), Refusing(epochs)
    assert MinimumBound((proof, refusing)).epsilon(1e-5, 1e-3) == proof.epsilon(1e-5, 1e-3)
    for none in (MinimumBound((refusing, refusing)), MaximumBound((proof, refusing)), MaximumBound((refusing, proof))):
        with pytest.raises(CertificationError):
            none.epsilon(1e-5, 1e-3)


def test_next_to_no_noise_is_bracketed_or_open_above() -> None:
    """Steps whose log ratios no distribution holds: the attack stands, and no finite proof is claimed below it."""
    run = Run(
        sampler="without-replacement", dataset_size=6_000, batch_size=600, steps=100, noise_multiplier=0.3,
        adjacency="substitute", unit="user", records_per_unit=200,
    )  # fmt: skip
    found = measure(run).epsilon(1e-5)
    assert 500_000.0 < found.lower < found.upper
