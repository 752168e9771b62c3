"""The same on a GPU: sums, norms, recordings, resumption. Skipped where there is none."""

from __future__ import annotations

import gc
import math
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # one order of addition, where it is asked for

from calipers.samplers import BallsAndBins, Poisson, Shuffle  # noqa: E402
from calipers.training import Dataset, Plan, Trainer, build_model, train  # noqa: E402
from calipers.training.gradients import GradientSum, suitable_micro_batch  # noqa: E402
from calipers.training.replay import Replay  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def digits(count=200):
    rng = np.random.default_rng(3)
    images = rng.integers(256, size=(count, 1, 28, 28), dtype=np.uint8)
    return Dataset("random", "images", images, np.arange(count) % 10, images, np.arange(count) % 10)


def text(count=60):
    rng = np.random.default_rng(5)
    tokens = rng.integers(3, 500, size=(count, 128))
    return Dataset("text", "text", tokens, np.arange(count) % 4, tokens, np.arange(count) % 4, vocabulary_size=500)


def on(device, data):
    return data.prepare(torch.as_tensor(data.records).to(device)), torch.as_tensor(data.labels).to(device)


@pytest.mark.parametrize(("name", "data"), [("cnn", digits()), ("transformer-tiny", text())])
@pytest.mark.parametrize("max_grad_norm", [0.5, None])
def test_the_sum_is_that_of_the_cpu(name, data, max_grad_norm) -> None:
    """Called four times, for other batches, by one recording."""
    model = build_model(name, data, seed=1)
    expected = GradientSum(model, max_grad_norm=max_grad_norm)
    found = GradientSum(build_model(name, data, seed=1).cuda(), max_grad_norm=max_grad_norm, tf32=False)
    records, labels = on("cpu", data)
    for start in range(4):
        rows = slice(start, start + 50)
        there = expected(records[rows], labels[rows])
        here = found(records[rows].cuda(), labels[rows].cuda()).cpu()
        assert float((here - there).norm() / there.norm()) < 2e-5
    assert found._piece.refused is None
    assert found._piece.recordings == 1


def test_every_summand_is_within_the_clipping_norm() -> None:
    """Summed in extended precision, no tolerance: what one record of 3 million entries adds has norm at most 1."""
    linear = torch.nn.Linear(3_000_000, 1, bias=False).cuda()
    total = GradientSum(linear, max_grad_norm=1.0, loss=lambda outputs, _: outputs.sum())
    rng = torch.Generator("cuda").manual_seed(0)
    for scale in (1e-3, 1.0, 1e6, 1.0):
        added = total(scale * torch.randn(1, 3_000_000, generator=rng, device="cuda"), torch.zeros(1, device="cuda"))
        square = float((added.cpu().numpy().astype(np.longdouble) ** 2).sum())
        assert 1 - 2e-5 < square <= 1.0


def test_broken_records_and_empty_batches() -> None:
    linear = torch.nn.Linear(4, 1, bias=False).cuda()
    total = GradientSum(linear, max_grad_norm=1.0, loss=lambda outputs, _: (outputs**2).sum() / 2)
    records = torch.randn(40, 4, device="cuda")
    expected = total(records[1:], torch.zeros(39, device="cuda"))
    records[0, 0] = math.nan  # the record whose copies fill the piece
    for _ in range(3):
        found = total(records, torch.zeros(40, device="cuda"))
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not total(records[:0], torch.zeros(0, device="cuda")).any()


def test_recordings_follow_the_weights() -> None:
    """Written in place or put somewhere else: the sum is that of the weights as they are now."""
    data = digits(64)
    model = build_model("cnn", data, seed=1).cuda()
    total = GradientSum(model, max_grad_norm=0.5, tf32=False)
    batch = on("cuda", data)
    for _ in range(3):
        total(*batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after = total(*batch).clone()  # the next call writes to the same place
    fresh = GradientSum(model, max_grad_norm=0.5, tf32=False)(*batch)
    assert torch.allclose(after, fresh, rtol=1e-4, atol=1e-6)
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.5
    moved = total(*batch)
    fresh = GradientSum(model, max_grad_norm=0.5, tf32=False)(*batch)
    assert torch.allclose(moved, fresh, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(moved, after, rtol=1e-2)


def test_what_cannot_be_recorded_is_computed() -> None:
    """A function that looks at its values runs as it is; so does what comes after."""
    replay = Replay(lambda x: (x * 2 if float(x.sum()) > 0 else x,), lambda: None)
    for value in (1.0, 2.0, -1.0, 3.0):
        tensor = torch.full((3,), value, device="cuda")
        assert torch.equal(replay(tensor)[0], tensor * (2 if value > 0 else 1))
    assert replay.refused is not None
    assert float(torch.ones(5, device="cuda").sum()) == 5


def test_state_that_changes_is_recorded_anew() -> None:
    factor = 2.0
    replay = Replay(lambda x: (x * factor,), lambda: factor)
    ones = torch.ones(3, device="cuda")
    for factor in (2.0, 2.0, 2.0, 5.0, 5.0):
        assert torch.equal(replay(ones)[0], ones * factor)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    ("sampler", "name", "data"),
    [(Shuffle, "cnn", digits()), (Poisson, "cnn", digits()), (BallsAndBins, "transformer-tiny", text(200))],
)
def test_a_killed_and_resumed_run_has_the_weights_of_an_uninterrupted_one(
    tmp_path, sampler, name, data, deterministic
) -> None:
    """To the last bit, though the recordings are made at other steps: a size is always played from the same one.

    PyTorch is asked for kernels that add in one order; with others two uninterrupted runs differ too.
    """
    lasting = {"steps": 18} if sampler is Poisson else {"epochs": 3}
    drawn = sampler(dataset_size=200, batch_size=32, **lasting)
    plan = Plan(sampler=drawn, noise_multiplier=0.5, learning_rate=0.2, seed=7)
    whole = train(plan, build_model(name, data, seed=1), data.records, data.labels, prepare=data.prepare).model
    place = tmp_path / "run.checkpoint"
    for steps in (7, 4):
        first = Trainer(plan, build_model(name, data, seed=2), data.records, data.labels, prepare=data.prepare)
        if steps == 7:
            first = Trainer(plan, build_model(name, data, seed=1), data.records, data.labels, prepare=data.prepare)
        else:
            first.resume(place)
        for _ in range(steps):
            first.take_step(wait=False)
        first.save(place)
    second = build_model(name, data, seed=2)
    train(plan, second, data.records, data.labels, prepare=data.prepare, checkpoint=place)
    assert torch.equal(weights(whole), weights(second))


@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.9}, {"optimizer": "adam"}])
def test_a_record_without_a_gradient_is_left_out_of_a_pipelined_run(optimizer) -> None:
    """The device leaves out the step and what was begun after it; they are done again, as if one had waited."""
    rng = np.random.default_rng(0)
    records, labels = rng.standard_normal((60, 5)).astype(np.float32), np.arange(60) % 3
    records[[3, 17]] = np.nan
    plan = Plan(
        sampler=Poisson(dataset_size=60, batch_size=8, steps=40),
        noise_multiplier=0.5,
        learning_rate=0.1,
        seed=3,
        **optimizer,
    )

    def trained(pipelined):
        torch.manual_seed(0)
        trainer = Trainer(plan, torch.nn.Linear(5, 3), records, labels, device="cuda")
        assert trainer._pipelined
        trainer._pipelined = pipelined
        for _ in range(plan.steps):
            trainer.take_step(wait=False)
        trainer.settle()
        return weights(trainer.model)

    waited = trained(False)
    assert bool(torch.isfinite(waited).all())
    assert torch.equal(trained(True), waited)


def test_poisson_batches_need_few_recordings() -> None:
    """300 batches of about 40 sizes: a dozen recordings, all into one place, and sums that filling up does not move."""
    data = digits(4000)
    model = build_model("cnn", data, seed=1).cuda()
    total = GradientSum(model, max_grad_norm=0.5, tf32=False)
    records, labels = on("cuda", data)
    rng = np.random.default_rng(0)
    for step in range(300):
        rows = torch.from_numpy(np.flatnonzero(rng.random(4000) < 256 / 4000)).cuda()
        found = total(records[rows], labels[rows])
        if step % 60 == 0:
            exact = GradientSum(model, max_grad_norm=0.5, tf32=False)
            exact._piece_size = lambda count: count
            there = exact(records[rows], labels[rows])
            assert float((found - there).norm() / there.norm()) < 1e-5
    assert total._piece.refused is None
    assert 5 <= total._piece.recordings <= 18
    assert len({recording._outputs[0].data_ptr() for recording in total._piece._recordings.values()}) == 1


def test_micro_batches_fit_the_memory() -> None:
    device = torch.device("cuda")
    memory = torch.cuda.get_device_properties(device).total_memory
    for dimension in (10_000, 11_173_962, 85_000_000):
        chosen = suitable_micro_batch(dimension, device)
        assert chosen == 4096 or memory / 32 < 4 * dimension * chosen <= memory / 16


def test_too_large_pieces_are_made_smaller(monkeypatch) -> None:
    """Where 50 records at a time are too many for the memory, 25 are taken; the sum is the same."""
    data = digits(100)
    batch = on("cuda", data)
    model = build_model("cnn", data, seed=1).cuda()
    expected = GradientSum(model, max_grad_norm=0.5, tf32=False)(*batch)
    total = GradientSum(model, max_grad_norm=0.5, tf32=False, micro_batch=50)
    compute = total._piece

    def short_of_memory(records, labels, counted):
        if len(labels) > 30:
            return torch.empty(2**50, device="cuda")
        return compute(records, labels, counted)

    monkeypatch.setattr(total, "_piece", short_of_memory)
    found = total(*batch)
    assert total.micro_batch == 25
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(total, "_piece", lambda *_: torch.empty(2**50, device="cuda"))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        total(*batch)


def test_recordings_that_are_thrown_away_do_not_spoil_others() -> None:
    """Sums of another model are left to the garbage collector, which may run at any moment: also during a recording."""
    data = digits(64)
    batch = on("cuda", data)
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(4):
            total = GradientSum(build_model("cnn", data, seed=1).cuda(), max_grad_norm=0.5)
            for _ in range(3):
                total(*batch)
            assert total._piece.refused is None
    finally:
        gc.set_threshold(*before)


def test_weights_with_channels_last_are_trained() -> None:
    """Their gradients lie otherwise, which PyTorch's fused optimizers refuse."""
    data = digits()
    plan = Plan(sampler=Shuffle(dataset_size=200, batch_size=32, epochs=1), noise_multiplier=0.5, seed=7)
    models = [build_model("cnn", data, seed=1), build_model("cnn", data, seed=1).to(memory_format=torch.channels_last)]
    for model in models:
        train(plan, model, data.records, data.labels, prepare=data.prepare)
    here, there = (torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models)
    assert float((here - there).norm() / here.norm()) < 1e-3
