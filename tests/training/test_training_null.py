"""Audits of real trainings that never use what they are asked about: wrong as seldom as they say, 200 times over."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import bdtrc

torch = pytest.importorskip("torch")

from calipers.samplers import BallsAndBins, Poisson  # noqa: E402
from calipers.training import Canaries, Plan, train_audited  # noqa: E402
from calipers.training.shadows import ShadowTraining, lira  # noqa: E402

pytestmark = pytest.mark.torch

N, M, REPEATS = 20, 100, 200
RNG = np.random.default_rng(0)
RECORDS, LABELS = RNG.normal(size=(N, 4)), np.arange(N) % 2


def linear(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 2).double()


def within(alarms: int, repeats: int) -> bool:
    """Whether so many bounds above 0 are what confidence 0.95 allows, at one in a thousand."""
    return bdtrc(alarms - 1, repeats, 0.05) > 1e-3


class Unused(Canaries):
    """Coins are tossed, canaries are drawn, and nothing of them reaches a sum."""

    def kept(self, rows):
        return rows[rows < self._real]

    def widened(self, update, batch):
        return super().widened(update, batch[batch < self._real])


def one_run(kind, examples: bool, seed: int) -> bool:
    """Whether a training with canaries of this kind is said to leak."""
    rng = np.random.default_rng([seed, 1])
    planted = {"records": 3.0 * rng.normal(size=(M, 4)), "labels": rng.integers(2, size=M)} if examples else {}
    sampler = Poisson(dataset_size=N + M, batch_size=60, steps=4)
    if examples:
        sampler = BallsAndBins(dataset_size=N + M, batch_size=60, epochs=2)
    plan = Plan(sampler=sampler, noise_multiplier=0.3, max_grad_norm=1.0, learning_rate=2.0, seed=seed)
    found = train_audited(plan, linear(seed), RECORDS, LABELS, canaries=kind(M, **planted), device="cpu")
    return bool(found.observed.epsilon[0].epsilon_lower > 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [False, True], ids=["gradients", "examples"])
def test_canaries_that_no_step_uses_are_seldom_seen(examples) -> None:
    """White-box gradients and black-box examples. The same gradients, used, are seen far more often."""
    assert within(sum(one_run(Unused, examples, seed) for seed in range(REPEATS)), REPEATS)
    if not examples:
        assert not within(sum(one_run(Canaries, examples, seed) for seed in range(10)), 10)


class Absent(ShadowTraining):
    """The record is out, whether it is said to be in or not."""

    def outputs(self, present, count, rng):
        return super().outputs(False, count, rng)


def shadowed(kind, white_box: bool, seed: int) -> bool:
    """Whether LiRA says that trainings leak the record."""
    plan = Plan(sampler=Poisson(dataset_size=N + 1, batch_size=21, steps=1), noise_multiplier=0.1, learning_rate=2.0)
    settings = {"record": np.full(4, 4.0), "label": 0, "white_box": white_box}
    target = kind(plan, lambda _: linear(), RECORDS, LABELS, **settings)
    return lira(target, shadows=10, trials=12, seed=seed, delta=1e-3).observed.epsilon[0].value > 0.0


@pytest.mark.heavy
@pytest.mark.parametrize("white_box", [False, True], ids=["black-box", "white-box"])
def test_shadow_models_without_the_record_seldom_show_it(white_box) -> None:
    """The same game with the record is won every time."""
    assert within(sum(shadowed(Absent, white_box, seed) for seed in range(REPEATS)), REPEATS)
    assert not within(sum(shadowed(ShadowTraining, white_box, seed) for seed in range(5)), 5)
