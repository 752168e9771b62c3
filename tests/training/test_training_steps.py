"""A step of Algorithm B by hand, empty batches, the noise in the weights, and the batches that were drawn."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import chdtrc

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.measure import measure  # noqa: E402
from calipers.run import Run  # noqa: E402
from calipers.samplers import BallsAndBins, Deterministic, Poisson, Shuffle  # noqa: E402
from calipers.training import Plan, Trainer, accuracy, train  # noqa: E402
from calipers.training.noise import SeededNoise  # noqa: E402

pytestmark = pytest.mark.torch

N, WIDTH = 12, 6
RECORDS = np.random.default_rng(0).normal(size=(N, WIDTH))
LABELS = np.zeros(N)


def linear(width=WIDTH):
    """A model whose gradient at a record is the record, so that every sum can be written down."""
    model = torch.nn.Linear(width, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    return model


def output(outputs, _):
    return outputs.sum()


def trainer_of(plan, records=RECORDS):
    return Trainer(plan, linear(records.shape[1]), records, np.zeros(len(records)), loss=output, device="cpu")


def clipped(records, norm):
    lengths = np.linalg.norm(records, axis=1, keepdims=True)
    return records * np.minimum(1, norm / lengths)


@pytest.mark.parametrize("normalization", ["none", "constant", "expected", "floor", "realized"])
def test_a_step_is_the_noisy_clipped_sum_divided(normalization) -> None:
    """w = -rate (sum of the batch's clipped records + sigma C z)/divisor, the batch being the sampler's own."""
    sampler = Poisson(dataset_size=N, batch_size=5, steps=4)
    plan = Plan(
        sampler=sampler,
        noise_multiplier=0.7,
        max_grad_norm=2.0,
        normalization=normalization,
        learning_rate=0.3,
        seed=21,
    )
    trainer = trainer_of(plan)
    seeds = np.random.SeedSequence(21, spawn_key=(1,))
    batches = list(sampler.batches(np.random.Generator(np.random.PCG64(seeds))))
    expected = np.zeros(WIDTH)
    for step, batch in enumerate(batches):
        noise = SeededNoise(21).standard_normal(step, torch.empty(WIDTH, dtype=torch.float64)).numpy()
        divisor = {"none": 1, "constant": 5, "expected": 5, "floor": 5, "realized": max(1, len(batch))}[normalization]
        expected -= 0.3 * (clipped(RECORDS[batch], 2.0).sum(axis=0) + 1.4 * noise) / divisor
        trainer.take_step()
    assert trainer.model.weight.detach().numpy().ravel() == pytest.approx(expected, rel=1e-12)
    assert trainer.step == 4


def test_an_empty_batch_is_a_step_with_noise() -> None:
    """q = 1e-9: every batch is empty, and the weights still move by the noise."""
    plan = Plan(
        sampler=Poisson(dataset_size=N, sample_rate=1e-9, steps=3),
        noise_multiplier=1.0,
        normalization="none",
        learning_rate=1.0,
        seed=4,
    )
    trainer = trainer_of(plan)
    for step in range(3):
        before = trainer.model.weight.detach().clone()
        trainer.take_step()
        noise = SeededNoise(4).standard_normal(step, before)
        assert torch.allclose(before - trainer.model.weight, noise, rtol=1e-12)


def test_the_noise_in_the_weights_has_the_deviation_it_should_have() -> None:
    """10,000 weights, no records: (w_after - w_before)/rate is N(0, (sigma C / divisor)^2); 4 % off is rejected."""
    width, sigma, norm, divisor = 10_000, 1.3, 0.5, 8
    plan = Plan(
        sampler=Poisson(dataset_size=2, sample_rate=1e-9, steps=3),
        noise_multiplier=sigma,
        max_grad_norm=norm,
        constant=divisor,
        learning_rate=1.0,
        seed=8,
    )
    trainer = trainer_of(plan, np.ones((2, width)))
    moves = []
    for _ in range(3):
        before = trainer.model.weight.detach().clone()
        trainer.take_step()
        moves.append((trainer.model.weight.detach() - before).numpy().ravel())
    square = float((np.stack(moves) ** 2).sum())

    def p_value(deviation):
        upper = float(chdtrc(3 * width, square / deviation**2))
        return 2 * min(upper, 1 - upper)

    true = sigma * norm / divisor
    assert p_value(true) > 1e-6
    for wrong in (true * 0.96, true * 1.04, sigma / divisor, sigma * norm):
        assert p_value(wrong) < 1e-6


def recorded_batches(plan, size):
    """Which records a training really used: with one-hot records the gradient sum lists the batch."""
    trainer = Trainer(plan, linear(size), np.eye(size), np.zeros(size), loss=output, device="cpu")
    found = []
    for _ in range(plan.steps):
        before = trainer.model.weight.detach().clone()
        trainer.take_step()
        found.append(np.flatnonzero((before - trainer.model.weight.detach()).numpy().ravel() > 0.5))
    return found


def silent_plan(sampler):
    return Plan(sampler=sampler, noise_multiplier=0.0, normalization="none", learning_rate=1.0, seed=2)


def test_poisson_training_uses_batches_of_binomial_size() -> None:
    """600 steps on 20 records at q = 0.3: sizes Binomial(20, 0.3), by chi-square; q = 0.4 is rejected."""
    sizes = [
        len(batch) for batch in recorded_batches(silent_plan(Poisson(dataset_size=20, batch_size=6, steps=600)), 20)
    ]

    def p_value(rate):
        law = np.array([math.comb(20, k) * rate**k * (1 - rate) ** (20 - k) for k in range(21)])
        cells = [range(4), *([k] for k in range(4, 9)), range(9, 21)]
        expected = np.array([600 * law[list(cell)].sum() for cell in cells])
        observed = np.array([sum(size in cell for size in sizes) for cell in cells])
        return float(chdtrc(len(cells) - 1, float(((observed - expected) ** 2 / expected).sum())))

    assert p_value(0.3) > 1e-6
    assert p_value(0.4) < 1e-6


@pytest.mark.parametrize("kind", [Shuffle, Deterministic])
def test_shuffled_training_uses_every_kept_record_once_an_epoch(kind) -> None:
    """23 records in batches of 5: four batches, 20 different records an epoch, three left out."""
    batches = recorded_batches(silent_plan(kind(dataset_size=23, batch_size=5, epochs=3)), 23)
    assert len(batches) == 12
    epochs = [np.concatenate(batches[4 * e : 4 * e + 4]) for e in range(3)]
    assert all(len(batch) == 5 for batch in batches)
    assert all(len(np.unique(epoch)) == 20 for epoch in epochs)
    same = [np.array_equal(batches[t], batches[t + 4]) for t in range(4)]
    assert all(same) == (kind is Deterministic)


def test_balls_and_bins_training_uses_every_record_once_an_epoch() -> None:
    batches = recorded_batches(silent_plan(BallsAndBins(dataset_size=23, batch_size=5, epochs=2)), 23)
    for epoch in (batches[:4], batches[4:]):
        assert sorted(np.concatenate(epoch)) == list(range(23))


@pytest.mark.parametrize(
    "sampler",
    [
        Poisson(dataset_size=N, batch_size=4, steps=5),
        BallsAndBins(dataset_size=N, batch_size=4, epochs=2),
        Shuffle(dataset_size=N, batch_size=4, epochs=2),
    ],
)
def test_what_is_measured_is_what_was_executed(sampler) -> None:
    """The run written out by hand and the run of the training have the same bracket."""
    plan = Plan(sampler=sampler, noise_multiplier=2.0, seed=1)
    trained = train(plan, linear(), RECORDS, LABELS, loss=output, device="cpu")
    law = sampler.law()
    by_hand = Run(
        noise_multiplier=2.0,
        dataset_size=N,
        batch_size=4,
        sampler=law.sampler,
        normalization="constant",
        dimension=WIDTH,
        steps=law.steps,
    )
    found, expected = (measure(run).epsilon(delta=1e-5) for run in (trained.run(), by_hand))
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert measure(trained.run().replace(noise_multiplier=1.0)).epsilon(delta=1e-5).lower > found.upper


def test_progress_hears_every_step() -> None:
    heard = []
    plan = silent_plan(Poisson(dataset_size=N, batch_size=4, steps=3))
    train(plan, linear(), RECORDS, LABELS, loss=output, device="cpu", progress=lambda *step: heard.append(step))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_optimizers_see_the_noisy_gradient_only() -> None:
    """Adam's and momentum's weights are those of PyTorch's own optimizers fed with the noise, on empty batches."""
    for name, settings, make in (
        ("adam", {}, lambda p: torch.optim.Adam(p, lr=0.1)),
        ("sgd", {"momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ):
        plan = Plan(
            sampler=Poisson(dataset_size=N, sample_rate=1e-9, steps=5),
            noise_multiplier=1.0,
            normalization="none",
            learning_rate=0.1,
            optimizer=name,
            seed=6,
            **settings,
        )
        trainer = trainer_of(plan)
        reference = linear()
        optimizer = make(reference.parameters())
        for step in range(5):
            trainer.take_step()
            reference.weight.grad = SeededNoise(6).standard_normal(step, reference.weight)
            optimizer.step()
        assert torch.allclose(trainer.model.weight, reference.weight, rtol=1e-12)


def test_dropout_leaves_out_other_entries_for_every_record_and_in_every_step() -> None:
    """Each of the 4 x 2 masks of 200 entries keeps about half of them, and no two are alike."""
    model = torch.nn.Sequential(torch.nn.Dropout(0.5), linear(400))
    records = np.zeros((2, 400))
    records[0, :200] = records[1, 200:] = 1.0
    sampler = Deterministic(dataset_size=2, batch_size=2, epochs=4)
    plan = dataclasses.replace(silent_plan(sampler), max_grad_norm=1e9)
    trainer = Trainer(plan, model, records, np.zeros(2), loss=output, device="cpu")
    masks = set()
    for _ in range(4):
        before = model[1].weight.detach().clone()
        trainer.take_step()
        kept = ((before - model[1].weight.detach()) != 0).numpy().reshape(2, 200)
        assert (np.abs(kept.sum(axis=1) - 100) < 50).all()
        masks |= {tuple(mask) for mask in kept}
    assert len(masks) == 8


def test_records_and_sampler_must_agree() -> None:
    with pytest.raises(InputError, match="give the sampler dataset_size=11"):
        trainer_of(silent_plan(Poisson(dataset_size=N, batch_size=4, steps=3)), RECORDS[:11])


@pytest.mark.parametrize("device", ["cuda", "tpu", "cuda:99", "mps"])
def test_devices_that_are_not_there_are_refused(device) -> None:
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match="device"):
        Trainer(silent_plan(Poisson(dataset_size=N, batch_size=4, steps=3)), linear(), RECORDS, LABELS, device=device)


def test_accuracy_counts_the_highest_scores() -> None:
    """Scores are the record itself; three of four argmaxes are right."""
    records = np.eye(4, dtype=np.float32)
    assert accuracy(torch.nn.Identity(), records, np.array([0, 1, 2, 0]), device="cpu", chunk=3) == 0.75
    with pytest.raises(InputError, match="as many records as labels"):
        accuracy(torch.nn.Identity(), records, np.array([0]), device="cpu")
