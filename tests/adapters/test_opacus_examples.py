"""Loops of the shape of Opacus's own example scripts, with the two lines: each right, or refused with its reason.

The scripts themselves (mnist.py, cifar10.py, imdb.py, char-lstm-classification.py) differ in how they draw, clip and
divide; their sizes are kept where they decide something, their data and models are small. What their distributed
options do (both wrappers of cifar10.py) is in `test_opacus_distributed`; docs/howto/opacus-examples.md tells of the
scripts as they are.
"""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from calipers.adapters.opacus import attach
from calipers.errors import UnsupportedError

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]


def test_mnist(script) -> None:
    """60,000 records in batches of 64, divided by the mean; every epoch 938 batches, here a few of them."""
    loop = script(60_000, 64, loader={"shuffle": False}, loss_reduction="mean")
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(stop=5)
    (run,) = record.runs()
    assert (run.sampler, round(1 / run.sample_rate), run.total_steps) == ("poisson", 938, 5)
    assert (run.normalization, record.why_not()) == ("floor", ())


def test_mnist_in_batches_of_600(script) -> None:
    """60,000 is a multiple of 600: refused, with both readings that have an answer."""
    loop = script(60_000, 600, loader={"shuffle": False}, loss_reduction="mean")
    with pytest.raises(UnsupportedError, match=r"rate 1/100.*rate 1/101.*public_rate=True"):
        attach(loop.engine, loop.optimizer, loop.loader, adjacency="add-remove")
    assert attach(loop.engine, loop.optimizer, loop.loader, adjacency="zero-out").steps == 0


@pytest.mark.filterwarnings("ignore:Opacus divides by 64")
def test_mnist_run_twice(script) -> None:
    """Option -r 2 hands the private loader of the first model to the second engine: two runs, a record for each."""
    first = script(60_050, 64, loader={"shuffle": False}, loss_reduction="mean")
    record = attach(first.engine, first.optimizer, first.loader, loss=first.criterion)
    first.train(stop=3)
    network, engine = torch.nn.Linear(6, 3), opacus.PrivacyEngine()
    first.model, first.optimizer, first.loader = engine.make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.1), data_loader=first.loader,
        noise_multiplier=1.0, max_grad_norm=1.0,
    )  # fmt: skip
    again = attach(engine, first.optimizer, first.loader)
    first.train(stop=5)
    assert (record.steps, again.steps, record.why_not(), again.why_not()) == (3, 5, (), ())
    # Opacus derives the second rate from int(1 / (1 / 939)), which is 938 in double precision.
    assert [run.sample_rate for run in (*record.runs(), *again.runs())] == [1 / 939, 1 / 938]


def test_cifar10(script) -> None:
    """50,000 records in batches of 2000, 25 of them: the rate moves with one record more, and that is said at once."""
    norms = [1.0 / 2**0.5] * 2
    loop = script(50_000, 2000, clipping="per_layer", max_grad_norm=norms, loader={"num_workers": 2})
    with pytest.raises(UnsupportedError, match=r"rate 1/25.*rate 1/26.*public_rate=True"):
        attach(loop.engine, loop.optimizer, loop.loader, batch_size=2000, adjacency="add-remove")
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, batch_size=2000, public_rate=True)
    for records, labels in loop.loader:
        loop.criterion(loop.model(records), labels).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        if record.steps == 3:
            break
    (run,) = record.runs()
    assert (run.sample_rate, run.total_steps) == (1 / 25, 3)
    # Opacus adds up per-layer norms in single precision; the noise is that of its sum.
    assert run.noise_multiplier == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("mode", ["no_op", "functorch", "ew"])
def test_cifar10_other_ways_to_per_sample_gradients(script, mode) -> None:
    """Option --grad_sample_mode; with no_op the script computes the gradients itself and hands them over."""
    loop = script(2050, 100, grad_sample_mode=mode, loss_reduction="mean", noise_multiplier=1.5, max_grad_norm=10.0)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    parameters = list(loop.network.parameters())

    def loss_of_one(values, one, label):
        output = torch.func.functional_call(loop.network, dict(zip(("weight", "bias"), values, strict=True)), one[None])
        return torch.nn.functional.cross_entropy(output, label[None])

    each = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))
    for _ in range(3):
        records, labels = next(iter(loop.loader))
        output = loop.model(records)
        if mode == "no_op":
            for parameter, found in zip(parameters, each(tuple(parameters), records, labels), strict=True):
                parameter.grad_sample = found.detach()
        else:
            loop.criterion(output, labels).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    (run,) = record.runs()
    assert (run.noise_multiplier, run.sample_rate, run.total_steps, record.why_not()) == (1.5, 1 / 21, 3, ())
    assert record.facts["clipping norms realized"] == [10.0]


def test_imdb(script) -> None:
    """Shuffled batches of a loader that keeps its last one: not the Poisson sampling that Opacus accounts for."""
    loop = script(250, 64, poisson_sampling=False, loss_reduction="mean")
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(2)
    (run,) = record.runs()
    assert (run.sampler, run.last_batch, run.reshuffle, run.total_steps) == ("shuffle", "keep", "every-epoch", 8)
    assert (run.normalization, record.why_not()) == ("floor", ())


def test_char_lstm(script) -> None:
    """A worker that draws ahead, zero_grad after the step; 16,000 names of which one in five is held out."""
    loop = script(16_059, 800, loader={"shuffle": False, "num_workers": 1}, loss_reduction="mean")
    with pytest.raises(UnsupportedError, match=r"of 730 \(drop_last=True\).*say attach\(\.\.\., batch_size="):
        attach(loop.engine, loop.optimizer, loop.loader, adjacency="add-remove")
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, batch_size=800)
    for records, labels in loop.loader:
        loop.criterion(loop.model(records), labels).backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    (run,) = record.runs()
    assert (round(1 / run.sample_rate), run.total_steps, record.why_not()) == (21, 21, ())


def test_the_findings_are_there() -> None:
    """What the documentation says of the library, shown by the script that it names."""
    pytest.importorskip("opacus.utils.adaptive_clipping", reason="comes with Opacus 1.5.3")
    path = Path(__file__).parents[2] / "examples" / "opacus_findings.py"
    specification = importlib.util.spec_from_file_location("opacus_findings", path)
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    assert found.norms_of_ghost_clipping() == (0.5, 1.0)
    assert found.norms_of_per_layer_clipping() == pytest.approx((0.5, 1.0))
    noises = found.noise_of_adaptive_ghost_clipping()
    assert noises[0] != noises[1]
    for size, noise in noises:
        assert noise == pytest.approx((1 - (2 * size / 20) ** -2) ** -0.5)
    assert found.flags_left_by_a_break() == 1
    (first, second), length = found.batches_of_two_processes()
    assert first == second
    assert length < 10
    assert found.rates_of_loaders_that_drop() == [(1399, 13), (1400, 14)]


def small_network(watched: bool) -> Callable[[], float]:
    """A script with a small network, and the processor time of one of its epochs of ten steps."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 8, 2, padding=3), torch.nn.ReLU(), torch.nn.MaxPool2d(2, 1),
        torch.nn.Conv2d(16, 32, 4, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(2, 1), torch.nn.Flatten(),
        torch.nn.Linear(512, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10),
    )  # fmt: skip
    data = torch.utils.data.TensorDataset(torch.randn(640, 1, 28, 28), torch.randint(0, 10, (640,)))
    engine, sampling = opacus.PrivacyEngine(), torch.Generator()
    model, optimizer, loader = engine.make_private(
        module=network, optimizer=torch.optim.SGD(network.parameters(), lr=0.01), noise_multiplier=1.0,
        max_grad_norm=1.0, data_loader=torch.utils.data.DataLoader(data, batch_size=64, generator=sampling),
    )  # fmt: skip
    if watched:
        attach(engine, optimizer, loader, public_rate=True)
    numbers = itertools.count()

    def epoch() -> float:
        sampling.manual_seed(next(numbers))
        began = time.process_time()
        for records, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(records), labels).backward()
            optimizer.step()
        return time.process_time() - began

    epoch()
    return epoch


@pytest.mark.slow
def test_watching_costs_little() -> None:
    """Under 2 % of a step of a small network: processor time, the same batches with and without, in pairs.

    What else runs on the machine adds to both; the median of the pairs of one of a few rounds counts.
    """
    bare, watched = small_network(False), small_network(True)

    def share() -> float:
        pairs = [(bare(), watched()) if number % 2 else (watched(), bare())[::-1] for number in range(15)]
        return statistics.median(heard / alone - 1 for alone, heard in pairs)

    assert min(share() for _ in range(3)) < 0.02
