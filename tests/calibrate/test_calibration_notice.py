"""Noise for shuffled batches: what was taken for granted about the last one stands next to the noise."""

from __future__ import annotations

from typing import Any

import pytest

import calipers as cp
from calipers.reports.relations import noise_notice

KEYS: dict[str, Any] = {"dataset_size": 1000, "epochs": 1, "noise_multiplier": 2.0}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sampler": "shuffle", "batch_size": 90}, True),
        ({"sampler": "shuffle", "batch_size": 90, "last_batch": "drop"}, False),
        ({"sampler": "shuffle", "batch_size": 90, "last_batch": "keep"}, False),
        ({"sampler": "shuffle", "batch_size": 100}, False),
        ({"sampler": "poisson", "batch_size": 90}, False),
    ],
)
def test_a_last_batch_that_nobody_named_is_named(more: dict[str, Any], said: bool) -> None:
    """1,000 records leave 10 over in batches of 90; nothing is said where somebody did, or nothing is left."""
    text = noise_notice((cp.Run(**KEYS, **more),))
    assert ("the 10 records that do not fill a batch" in text) == said
    assert bool(text) == said
