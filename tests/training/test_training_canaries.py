"""Canaries in a training: what they add, what they show, and that nothing is seen where nothing leaks."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import bdtrc

torch = pytest.importorskip("torch")

from calipers.auditing.one_run_game import CanaryScores, audit_one_run  # noqa: E402
from calipers.calibrate import solve  # noqa: E402
from calipers.errors import InputError  # noqa: E402
from calipers.run import Run  # noqa: E402
from calipers.samplers import BallsAndBins, Poisson, Shuffle  # noqa: E402
from calipers.training import (  # noqa: E402
    Canaries,
    CanaryPairs,
    Plan,
    Trainer,
    build_model,
    load_dataset,
    train_audited,
)

pytestmark = pytest.mark.torch

N, M = 20, 400
RNG = np.random.default_rng(0)
RECORDS, LABELS = RNG.normal(size=(N, 4)), np.arange(N) % 2
MNIST = Path(os.environ.get("CALIPERS_DATA", Path(__file__).parents[3] / "shared" / "data"))


def plan(sampler=None, **changes):
    drawn = sampler or Poisson(dataset_size=N + M, batch_size=210, steps=5)
    return Plan(**{"sampler": drawn, "noise_multiplier": 1.0, "max_grad_norm": 0.5, "seed": 1, **changes})


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).double()


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings with hardly any noise, which no measurement would answer for."""
    monkeypatch.setattr("calipers.training.canaries.measure", lambda run: None)


def test_a_gradient_adds_its_norm_to_its_coordinate_when_it_is_drawn_and_in(unmeasured: None) -> None:
    """With hardly any noise, what is released beside the model is C for canaries drawn and in, 0 for all others."""
    canaries = Canaries(M)
    trainer = Trainer(plan(noise_multiplier=1e-9), linear(), RECORDS, LABELS, device="cpu", canaries=canaries)
    seen, drawn = [], []
    look, widen = canaries.seen, canaries.widened
    canaries.seen = lambda update, step: seen.append(update[trainer.dimension :].clone()) or look(update, step)
    canaries.widened = lambda update, batch: drawn.append(batch) or widen(update, batch)
    for _ in range(5):
        trainer.take_step()
    assert 100 < canaries.included.sum() < 300
    for batch, extra_records in zip(drawn, seen, strict=True):
        expected = np.isin(np.arange(M), batch - N) & canaries.included
        assert np.allclose(extra_records.numpy(), 0.5 * expected, atol=1e-6)


def test_without_canaries_that_are_in_the_model_is_that_of_its_records(unmeasured: None) -> None:
    """Examples that are out add nothing: the sum is the sum over real records of the batch."""
    examples = Canaries(M, records=RNG.normal(size=(M, 4)), labels=np.arange(M) % 2)
    both = examples.added_to(RECORDS, LABELS)
    trainer = Trainer(plan(noise_multiplier=1e-12), linear(), *both, device="cpu", canaries=examples)
    examples.included[:] = False
    kept = examples.kept(np.array([3, N + 5, 7, N + 399]))
    assert kept.tolist() == [3, 7]
    examples.included[5] = True
    assert examples.kept(np.array([3, N + 5, 7, N + 399])).tolist() == [3, N + 5, 7]
    trainer.take_step()
    assert trainer.step == 1


def test_of_a_pair_the_one_that_is_in_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair has one place among the records: heads is its first example, tails its second. Real records stay."""
    monkeypatch.setattr("calipers.training.canaries.measure", lambda run: None)
    pairs = CanaryPairs(RNG.normal(size=(2 * M, 4)), np.arange(2 * M) % 2)
    pairs.begin(plan(), dimension=10)
    heads, places = np.array(pairs.state()["included"]), np.arange(N, N + M)
    assert 100 < heads.sum() < 300
    assert pairs.kept(np.array([7, 3])).tolist() == [7, 3]
    assert pairs.kept(places).tolist() == np.where(heads, places, places + M).tolist()
    records, labels = pairs.added_to(RECORDS, LABELS)
    assert len(records) == len(labels) == N + M - pairs.extra_records


@pytest.mark.parametrize(
    "sampler",
    [
        Poisson(dataset_size=N + M, batch_size=210, steps=6),
        Shuffle(dataset_size=N + M, batch_size=210, epochs=3),
        BallsAndBins(dataset_size=N + M, batch_size=210, epochs=3),
    ],
    ids=["poisson", "shuffle", "balls-and-bins"],
)
def test_an_audit_ends_with_three_numbers_and_resumes(sampler, tmp_path) -> None:
    """Little noise is seen: observed is above 1 and below what is certified; killed after 4 steps, it is the same."""
    settings = {"canaries": M, "delta": 1e-3, "device": "cpu"}
    whole = train_audited(plan(sampler, noise_multiplier=0.6), linear(), RECORDS, LABELS, **settings)
    seen = whole.observed.epsilon[0].epsilon_lower
    assert 1.0 < seen <= whole.certified.upper
    assert whole.certified.lower <= whole.certified.upper
    assert "this run was seen to leak at least" in whole.sentence()
    assert whole.to_dict()["certified"]["upper"] == whole.certified.upper
    path = tmp_path / "run.checkpoint"

    def dying(done, steps):
        if done == 4:
            raise KeyboardInterrupt

    again = (plan(sampler, noise_multiplier=0.6), linear(), RECORDS, LABELS)
    with pytest.raises(KeyboardInterrupt):
        train_audited(*again, **settings, checkpoint=path, checkpoint_every=3, progress=dying)
    resumed = train_audited(plan(sampler, noise_multiplier=0.6), linear(), RECORDS, LABELS, **settings, checkpoint=path)
    assert resumed.trained.resumed_at == 3
    assert resumed.observed.to_dict() == whole.observed.to_dict()


def test_much_noise_shows_nothing_and_a_broken_training_is_found(monkeypatch) -> None:
    """Noise that is only claimed: the observed bound exceeds the upper bound, and the verdict says so."""
    quiet = train_audited(plan(noise_multiplier=50.0), linear(), RECORDS, LABELS, canaries=M, device="cpu")
    assert quiet.observed.epsilon[0].epsilon_lower <= quiet.certified.upper < 1.0
    honest = Trainer.take_step

    def forgetful(self, **how):
        object.__setattr__(self.plan, "noise_multiplier", 0.3)
        honest(self, **how)
        object.__setattr__(self.plan, "noise_multiplier", 4.0)

    monkeypatch.setattr(Trainer, "take_step", forgetful)
    broken = train_audited(plan(noise_multiplier=4.0), linear(), RECORDS, LABELS, canaries=M, device="cpu")
    assert broken.observed.epsilon[0].epsilon_lower > broken.certified.upper
    assert broken.observed.to_dict()["upper_verdict"]["outcome"] == "falsified"


def test_examples_are_judged_by_the_models_losses() -> None:
    """A model that may learn them by heart shows examples that were in; the black-box bound stays below the bound."""
    wide = 3000
    torch.manual_seed(0)
    model = torch.nn.Linear(wide, 2).double()
    planted = RNG.normal(size=(M, wide)) / math.sqrt(wide)
    examples = Canaries(M, records=planted, labels=RNG.integers(2, size=M))
    real = RNG.normal(size=(N, wide)) / math.sqrt(wide)
    training = plan(
        BallsAndBins(dataset_size=N + M, batch_size=210, epochs=20), learning_rate=300.0, noise_multiplier=0.5
    )
    found = train_audited(training, model, real, LABELS, canaries=examples, device="cpu")
    assert found.observed.source == "examples, black-box"
    assert 0.3 < found.observed.epsilon[0].epsilon_lower <= found.certified.upper


def test_on_a_null_target_the_bound_is_wrong_as_seldom_as_it_says() -> None:
    """200 audits of scores that know nothing of the coins: bounds above 0 are at most 5 % up to a binomial bound.

    The same check rejects scores that look at one coin in five.
    """

    def alarms(leak: float) -> int:
        rng = np.random.default_rng(5)
        found = 0
        for _ in range(200):
            coins = rng.random(M) < 0.5
            scores = rng.normal(size=M) + leak * coins
            found += audit_one_run(CanaryScores(scores, coins, "null"), deltas=(0.0,)).epsilon[0].epsilon_lower > 0
        return found

    assert bdtrc(alarms(0.0) - 1, 200, 0.05) > 1e-3
    assert bdtrc(alarms(1.0) - 1, 200, 0.05) < 1e-3


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(InputError, match="public divisor"):
        train_audited(plan(normalization="realized"), linear(), RECORDS, LABELS, canaries=M, device="cpu")
    with pytest.raises(InputError, match="with 400 canaries there are 419"):
        train_audited(plan(), linear(), RECORDS[1:], LABELS[1:], canaries=M, device="cpu")
    with pytest.raises(InputError, match="canaries"):
        Canaries(3)
    with pytest.raises(InputError, match="a label each"):
        Canaries(M, records=RECORDS, labels=LABELS)


@pytest.mark.slow
@pytest.mark.skipif(not (MNIST / "mnist.npz").is_file(), reason="MNIST is not here")
def test_mnist_at_epsilon_8_is_seen_to_leak_more_than_1() -> None:
    """A small CNN on 4,000 digits and 4,000 gradients, Poisson; 95 % confidence at delta = 1e-5."""
    data = load_dataset("mnist", MNIST).first(4000)
    sampler = Poisson(dataset_size=8000, batch_size=800, steps=20)
    described = Run(noise_multiplier=1.0, dataset_size=8000, batch_size=800, steps=20, normalization="constant")
    noise = solve(described, epsilon=8.0, delta=1e-5).noise_multiplier
    training = Plan(sampler=sampler, noise_multiplier=noise, learning_rate=0.5, seed=11)
    model = build_model("cnn", data, seed=0)
    found = train_audited(training, model, data.records, data.labels, canaries=4000, prepare=data.prepare)
    print(found.sentence())
    assert 7.5 < found.certified.upper <= 8.0 + 1e-9
    assert 1.0 < found.observed.epsilon[0].epsilon_lower <= found.certified.upper


@pytest.mark.jax_privacy
def test_beside_the_auditor_of_jax_privacy_on_the_same_scores() -> None:
    """Theirs, with the same guesses and delta, is at most ours, and equal where delta does not count.

    Ours is the worst case itself, theirs (Steinke et al.) a bound on it; both cut at the k-th largest score.
    """
    auditing = pytest.importorskip("jax_privacy.auditing")
    from calipers.auditing.one_run import one_run_audit

    rng = np.random.default_rng(3)
    coins = rng.random(1000) < 0.5
    scores = rng.normal(size=1000) + 2.0 * coins
    ordered = np.sort(scores)[::-1]
    theirs = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
    for k in (50, 100, 200):
        cut = auditing.Explicit(threshold=float((ordered[k - 1] + ordered[k]) / 2))
        for delta, apart in ((1e-12, 1e-3), (1e-5, 0.2)):
            found = one_run_audit(scores, coins, guesses=((k, 0),), delta=delta).epsilon_lower
            other = theirs.epsilon_one_run(0.05, delta, threshold_strategy=cut)
            assert other - 1e-3 <= found <= other + apart
