"""Canaries in pairs in a training by Calipers: of two examples a fair coin lets one in, and the dataset keeps its size.

The rules of the game are those of `calipers.auditing.pairs`: turning a coin around substitutes one record, and the run
is measured for that. Here the coins are the training's own, kept in its checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calipers.auditing.one_run_game import CanaryScores
from calipers.auditing.pairs import Pairs
from calipers.errors import InputError
from calipers.measure import measure
from calipers.numerics.types import IntArray
from calipers.training.canaries import COINS, Planted
from calipers.training.plan import Plan


class CanaryPairs(Planted):
    """Examples 0 to m - 1 and m to 2 m - 1; the sampler draws from the real records and m of them."""

    def __init__(self, records: Any, labels: Any) -> None:
        if len(records) % 2 or len(records) != len(labels):
            raise InputError(f"Expected pairs of examples with a label each, got {len(records)} and {len(labels)}.")
        self.count = len(records) // 2
        self._records, self._labels = records, labels
        self._pairs = Pairs(self.count)
        self._real = 0

    @property
    def beside(self) -> int:
        """The data have a row more for every pair than the sampler draws from."""
        return -self.count

    def adjacency(self, plan: Plan) -> str:
        """Another coin is another record in the same place."""
        return "substitute"

    def begin(self, plan: Plan, dimension: int) -> None:
        """Toss the coins of this training."""
        if plan.noise_multiplier == 0:
            raise InputError("Canaries need noise; without it there is nothing to audit.")
        measure(plan.run(dimension=dimension, adjacency="substitute"))  # refused now, not after hours
        words = np.random.SeedSequence(plan.seed, spawn_key=(COINS,)).generate_state(4)
        self._pairs = Pairs(self.count, seed=None if plan.seed is None else int.from_bytes(words.tobytes(), "little"))
        self._real = plan.sampler.dataset_size - self.count

    def added_to(self, records: Any, labels: Any) -> tuple[Any, Any]:
        """The records with both of every pair after them."""
        return np.concatenate([records, self._records]), np.concatenate([labels, self._labels])

    def kept(self, rows: IntArray) -> IntArray:
        """Of a pair that is drawn, the one that is in."""
        chosen = np.concatenate([np.arange(self._real), self._real + self._pairs.rows])
        return np.asarray(chosen[rows])

    def scores(self, losses: Any) -> CanaryScores:
        """By `losses(records, labels)` of the finished model."""
        return self._pairs.scores(-np.asarray(losses(self._records, self._labels)))

    def state(self) -> dict[str, Any]:
        """The coins, for a checkpoint."""
        return self._pairs.state_dict()

    def go_to(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self._pairs.load_state_dict(state)
