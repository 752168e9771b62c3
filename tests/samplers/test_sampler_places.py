"""Places in a generator's words that a stream goes on from."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.samplers import Shuffle
from calipers.samplers.stream import BatchStream


def test_a_generator_reads_no_words_beyond_its_own() -> None:
    """numpy takes any place, and reads beyond its 624 words."""
    sampler = Shuffle(dataset_size=20, batch_size=5, epochs=2)
    state = BatchStream(sampler, np.random.Generator(np.random.MT19937(1))).state()
    assert BatchStream.resumed(sampler, state).position == 0
    for place in (625, 10**9, -1):
        state["generator"]["state"]["pos"] = place
        with pytest.raises(InputError, match="its place lies outside of its words"):
            BatchStream.resumed(sampler, state)
