"""Canaries in a training loop of one's own with Opacus: pairs, their coins, and the three numbers at the end."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy.special import bdtrc

from calipers.auditing.one_run_game import audit_one_run
from calipers.auditing.pairs import Pairs
from calipers.errors import InputError

M = 300


def test_of_every_pair_one_is_in_and_the_coins_are_fair() -> None:
    """As many records as pairs, whatever the coins say; the same seed, the same coins; about half are heads."""
    pairs = Pairs(M, seed=3)
    rows = pairs.rows
    assert sorted(rows % M) == list(range(M))
    assert np.array_equal(rows < M, pairs.included)
    assert np.array_equal(Pairs(M, seed=3).included, pairs.included)
    assert not np.array_equal(Pairs(M).included, Pairs(M).included)
    assert 110 < pairs.included.sum() < 190
    assert pairs.chosen(list(range(2 * M))) == pairs.chosen(np.arange(2 * M)).tolist() == rows.tolist()


def test_evidence_is_kept_over_a_checkpoint_and_the_pairs_difference_counts() -> None:
    """What both of a pair have in common is gone from the score."""
    pairs = Pairs(M, seed=1)
    hardness = np.random.default_rng(0).normal(size=M)
    seen = np.tile(hardness, 2)
    seen[pairs.rows] += 1.0
    pairs.learn(seen / 2)
    other = Pairs(M)
    other.load_state_dict(pairs.state_dict())
    other.learn(seen / 2)
    for found in (other.scores(), pairs.scores(seen)):
        assert found.scores == pytest.approx(np.where(pairs.included, 1.0, -1.0))
    assert (other.scores().source, pairs.scores(seen).source) == (
        "pairs of examples, white-box",
        "pairs of examples, black-box",
    )


def test_what_is_no_pair_is_refused() -> None:
    """Too few, numbers that are not there, candidates of another number, a checkpoint of other pairs."""
    with pytest.raises(InputError, match="Fewer say nothing"):
        Pairs(3)
    with pytest.raises(InputError, match="Nothing is known"):
        Pairs(M).scores()
    with pytest.raises(InputError, match="finite number for each of 600"):
        Pairs(M).scores(np.full(2 * M, np.nan))
    with pytest.raises(InputError, match="Expected 600 candidates"):
        Pairs(M).chosen(np.zeros(M))
    with pytest.raises(InputError, match="20 pairs, and there are 300"):
        Pairs(M).load_state_dict(Pairs(20).state_dict())


def test_scores_that_know_nothing_are_wrong_as_seldom_as_they_say() -> None:
    """200 trainings that see none of their candidates: bounds above 0 are at most 5 % up to a binomial bound; scores
    that know the coins a little are found out."""

    def alarms(leak: float) -> int:
        rng, found = np.random.default_rng(8), 0
        for number in range(200):
            pairs = Pairs(M, seed=number)
            seen = rng.normal(size=2 * M)
            seen[pairs.rows] += leak
            found += audit_one_run(pairs.scores(seen), deltas=(0.0,)).epsilon[0].epsilon_lower > 0
        return found

    assert bdtrc(alarms(0.0) - 1, 200, 0.05) > 1e-3
    assert bdtrc(alarms(1.0) - 1, 200, 0.05) < 1e-3


def trained(noise, *, claimed=None, epochs=15, width=800):
    """A linear model that may learn its canaries by heart, trained with Opacus and watched."""
    torch, opacus = pytest.importorskip("torch"), pytest.importorskip("opacus")
    from calipers.adapters.opacus import attach
    from calipers.adapters.opacus_canaries import watch_gradients

    torch.manual_seed(0)
    pairs = Pairs(M, seed=2)
    candidates, labels = torch.randn(2 * M, width) / math.sqrt(width), torch.randint(0, 2, (2 * M,))
    real = torch.randn(750, width) / math.sqrt(width), torch.randint(0, 2, (750,))
    rows = torch.from_numpy(pairs.rows)
    data = torch.utils.data.TensorDataset(torch.cat((real[0], candidates[rows])), torch.cat((real[1], labels[rows])))
    model = torch.nn.Linear(width, 2)
    twin, engine = copy.deepcopy(model), opacus.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=100),
        noise_multiplier=noise if claimed is None else claimed,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    record = attach(engine, optimizer, loader)
    watch_gradients(pairs, optimizer, twin, candidates, labels)
    if claimed is not None:  # what is added is not what is said
        honest = torch.normal
        torch.normal = lambda **named: honest(**named | {"std": named["std"] * noise / claimed})
    try:
        for _ in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs), targets, reduction="sum").backward()
                optimizer.step()
    finally:
        if claimed is not None:
            torch.normal = honest
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model(candidates), labels, reduction="none")
    return record, pairs, -losses.numpy()


@pytest.mark.opacus
@pytest.mark.filterwarnings("ignore")
def test_an_own_loop_ends_with_three_numbers() -> None:
    """Little noise: white-box and black-box see something, less than is certified for substituted records."""
    record, pairs, seen = trained(0.5)
    for found in (record.audit(pairs, delta=1e-3), record.audit(pairs, seen, delta=1e-3)):
        observed = found.observed.epsilon[0].epsilon_lower
        assert 0.3 < observed <= found.certified.lower <= found.certified.upper
        assert "this run was seen to leak at least" in found.sentence()
        assert "substituted" in found.observed.notes[0]
    assert found.certified.upper > record.epsilon(delta=1e-3).upper


@pytest.mark.opacus
@pytest.mark.filterwarnings("ignore")
def test_a_loop_whose_noise_is_not_there_is_found_out() -> None:
    """Noise that Opacus is asked for and does not add: what is observed exceeds what is certified."""
    record, pairs, _ = trained(0.1, claimed=20.0, epochs=6)
    found = record.audit(pairs, delta=1e-3)
    assert found.observed.epsilon[0].epsilon_lower > found.certified.upper
    assert found.to_dict()["observed"]["upper_verdict"]["outcome"] == "falsified"
