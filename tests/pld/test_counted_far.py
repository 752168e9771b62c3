"""Units in batches of fixed size with next to no noise: likelihood ratios beyond the largest double."""

import math

import pytest
from scipy.special import log_ndtr, ndtr

import calipers as cp
from calipers.pld.core.drawn_shift import Shifts
from calipers.pld.subsampling.counted import CountedPair


def test_a_node_beyond_the_largest_double_stays_where_it_is() -> None:
    """With (1-w) N(0) + w N(2s) against (1-w) N(0) + w N(s), z > 2s - 1 shows at least this much at every node.

    A node that is moved down to an epsilon that a double's exponential can hold would claim next to nothing there.
    """
    length, chance = 40.0, 0.5
    pair = CountedPair(Shifts.of([0.0, length], [1.0 - chance, chance], 1e-15), "zero-out")
    nodes = pair.nodes(False, -40.0)
    assert max(epsilon for epsilon, _ in nodes) > 750.0  # e^-750 is no number any more: laws end there
    for epsilon, delta in nodes:
        # What the test says of the other dataset, times e^epsilon: nobody there, or somebody there.
        nobody = epsilon + math.log(1.0 - chance) + float(log_ndtr(1.0 - 2.0 * length))
        somebody = epsilon + math.log(chance) + float(log_ndtr(1.0 - length))
        if max(nobody, somebody) < 0.0:
            assert delta >= chance * float(ndtr(1.0)) - math.exp(nobody) - math.exp(somebody)


@pytest.mark.parametrize("sampler", ["without-replacement", "with-replacement"])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_jaws_of_nearly_public_units_do_not_cross(sampler: str, adjacency: str) -> None:
    """Two hundred records of one person, some twenty of them in the batch."""
    run = cp.Run(
        dataset_size=60_000,
        batch_size=6_000,
        steps=1,
        noise_multiplier=1.0,
        sampler=sampler,
        adjacency=adjacency,
        unit="person",
        records_per_unit=200,
    )
    found = cp.measure(run).epsilon(delta=1e-5)
    assert 40.0 < found.lower <= found.upper
