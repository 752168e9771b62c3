"""Canaries in a training: records of the auditor's, each in or out by a fair coin, and what the training tells of them.

Canary i is the record number N + i of the dataset, N the number of real ones. The sampler draws it as any other; if its
coin says out, it adds nothing when it is drawn. For samplers that draw every record alone (Poisson) that is the
training without the record; for the others it is the neighbor of the zero-out relation. Two kinds:

- **Gradients** (white-box). The gradient of canary i is C times the unit vector of a coordinate of its own. The noisy
  sum gets these coordinates next to those of the model: the same clipping norm, noise, sampler and step, in directions
  where no other record adds anything. An adversary who sees every noisy sum, as the accounting assumes, sees
  X_t = 1[drawn] + sigma Z for each canary; the score is the log likelihood ratio that he would compute.
- **Examples** (black-box): records with labels that are trained on as others are; the score is minus the loss of the
  finished model.

From scores and coins `calipers.auditing.one_run_game` bounds epsilon from below, with a confidence. Coins and scores
are kept in the checkpoint: killed and resumed, it is the same audit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from calipers.auditing.one_run_game import CANARIES, CanaryScores
from calipers.auditing.pairs import Pairs
from calipers.errors import InputError
from calipers.measure import measure
from calipers.numerics.types import FloatArray, IntArray
from calipers.samplers import scheme_named
from calipers.training.plan import Plan
from calipers.training.torch_library import torch_module

# The first key of the coins' generator; batches, noise and layers have others (`calipers.training.noise`).
COINS = 3


def adjacency_of(plan: Plan) -> str:
    """The neighboring relation of a canary's coin: out is absent for Poisson batches, zero for all others."""
    return "add-remove" if scheme_named(plan.sampler.law().sampler).independent else "zero-out"


class Planted:
    """What a training asks of canaries. By itself it stands for none of them.

    count: how many there are. examples: they are records of the data, not gradients. next to: how many records the
    sampler draws from that are no rows of the data.
    """

    count, examples, extra_records = 0, True, 0
    _records: Any = None
    _labels: Any = None

    def added_to(self, records: Any, labels: Any) -> tuple[Any, Any]:
        """The records with examples after them."""
        if self._records is None:
            return records, labels
        return np.concatenate([records, self._records]), np.concatenate([labels, self._labels])

    def begin(self, plan: Plan, dimension: int) -> None:
        """The training begins."""

    def kept(self, rows: IntArray) -> IntArray:
        """The records of a batch that are summed."""
        return rows

    def widened(self, update: Any, batch: IntArray) -> Any:
        """The sum, and what stands next to the model's coordinates."""
        return update

    def seen(self, noisy: Any, step: int) -> Any:
        """Look at the noisy sum of a step; the model's part of it is returned."""
        return noisy

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {}

    def go_to(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""


class Canaries(Planted):
    """`count` gradients, or so many examples with labels; coins from the plan's seed, or from the system's entropy."""

    def __init__(self, count: int, *, records: Any = None, labels: Any = None) -> None:
        self.count = CANARIES.check_int("canaries", count, "Fewer say nothing.")
        self.examples = records is not None
        if self.examples and (labels is None or not len(records) == len(labels) == count):
            raise InputError(f"Expected {count} canaries with a label each, got {len(records)}.")
        self._records, self._labels = records, labels
        self.extra_records = 0 if self.examples else self.count
        self.included = np.zeros(0, dtype=np.bool_)
        self._real = self._dimension = 0

    def adjacency(self, plan: Plan) -> str:
        """What turning a coin around does."""
        return adjacency_of(plan)

    def begin(self, plan: Plan, dimension: int) -> None:
        """Toss the coins of this training."""
        if plan.normalization not in ("constant", "none") or plan.noise_multiplier == 0:
            raise InputError(
                "Canaries need noise and a public divisor: a realized one counts canaries that are out; take "
                "normalization='constant'."
            )
        measure(plan.run(dimension=dimension, adjacency=adjacency_of(plan)))  # refused now, not after hours
        seed = np.random.SeedSequence(plan.seed, spawn_key=(COINS,))
        self.included = np.random.default_rng(seed).random(self.count) < 0.5
        self._plan, self._dimension = plan, dimension
        self._real = plan.sampler.dataset_size - self.count
        self._rounds = plan.sampler.law().rounds
        self._evidence = np.zeros(self.count)
        self._epoch = np.full(self.count, -np.inf)

    def kept(self, rows: IntArray) -> IntArray:
        """The records of a batch that are summed: all real ones, and examples that are in."""
        numbers = rows - self._real
        if not self.examples:
            return rows[numbers < 0]
        out = np.zeros(len(rows), dtype=np.bool_)
        out[numbers >= 0] = ~self.included[numbers[numbers >= 0]]
        return rows[~out]

    def widened(self, update: Any, batch: IntArray) -> Any:
        """The sum with the coordinates of gradients after it, those that are drawn and in at C."""
        if self.examples:
            return update
        drawn = batch[batch >= self._real] - self._real
        torch = torch_module()
        extra_records = torch.zeros(self.count, dtype=update.dtype)
        extra_records[torch.from_numpy(drawn[self.included[drawn]])] = self._plan.max_grad_norm
        return torch.cat((update, extra_records.to(update.device)))

    def seen(self, noisy: Any, step: int) -> Any:
        """Look at the noisy sum of a step; the model's part of it is returned."""
        if self.examples:
            return noisy
        assert self._plan.max_grad_norm is not None
        shifts = noisy[self._dimension :].detach().double().cpu().numpy() / self._plan.max_grad_norm
        self._learn((shifts - 0.5) / self._plan.noise_multiplier**2, step)
        return noisy[: self._dimension]

    def _learn(self, ratios: FloatArray, step: int) -> None:
        """Add the log likelihood ratio of a step (Poisson), or of an epoch in which a record is in one batch."""
        law = self._plan.sampler.law()
        if scheme_named(law.sampler).independent:
            rate = law.mean_batch_size / self._plan.sampler.dataset_size
            self._evidence += np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + ratios)
            return
        self._epoch = np.logaddexp(self._epoch, ratios - math.log(self._rounds))
        if (step + 1) % self._rounds == 0:
            self._evidence += self._epoch
            self._epoch = np.full(self.count, -np.inf)

    def scores(self, losses: Any = None) -> CanaryScores:
        """What is known of every canary, larger where it seems to be in; `losses(records, labels)` for examples."""
        if self.examples:
            return CanaryScores(-np.asarray(losses(self._records, self._labels)), self.included, "examples, black-box")
        return CanaryScores(self._evidence.copy(), self.included, "gradients, white-box")

    def state(self) -> dict[str, Any]:
        """Coins and evidence, for a checkpoint."""
        return {
            "included": self.included.tolist(),
            "evidence": self._evidence.tolist(),
            "epoch": [None if value == -math.inf else value for value in self._epoch],
        }

    def go_to(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""
        self.included = np.array(state["included"], dtype=np.bool_)
        self._evidence = np.array(state["evidence"])
        self._epoch = np.array([-math.inf if value is None else value for value in state["epoch"]])


class CanaryPairs(Planted):
    """Examples 0 to m - 1 and m to 2 m - 1; the sampler draws from the real records and m of them.

    Of two examples a fair coin lets one in, and the dataset keeps its size. The rules of the game are those of
    `calipers.auditing.pairs`: turning a coin around substitutes one record, and the run is measured for that. Here the
    coins are the training's own, kept in its checkpoint.
    """

    def __init__(self, records: Any, labels: Any) -> None:
        if len(records) % 2 or len(records) != len(labels):
            raise InputError(f"Expected pairs of examples with a label each, got {len(records)} and {len(labels)}.")
        self.count = len(records) // 2
        self._records, self._labels = records, labels
        self._pairs = Pairs(self.count)
        self._real = 0
        self.extra_records = -self.count  # the data have a row more for every pair than the sampler draws from

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
