"""Units so large that every batch of fixed size holds some of their records: there is no part without the unit."""

from __future__ import annotations

from math import comb

import pytest
from scipy.special import ndtr

from calipers.measure import measure
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
