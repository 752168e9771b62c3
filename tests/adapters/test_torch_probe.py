"""probe.torch on real steps of PyTorch: a right loop of one's own, Opacus, and mistakes in each of their places."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from calipers.adapters import probe
from calipers.errors import InputError
from calipers.probing.probe import ProbeReport
from calipers.probing.probe import probe as probe_sizes

torch = pytest.importorskip("torch", reason="PyTorch comes with the extra torch")
pytestmark = pytest.mark.torch

NOISE, NORM, SIZE, BATCH = 1.5, 0.7, 120, 20


class Coins:
    """A batch sampler: every record by its own coin."""

    generator = None

    def __len__(self) -> int:
        return SIZE // BATCH

    def __iter__(self) -> Any:
        for _ in range(len(self)):
            yield np.flatnonzero((torch.rand(SIZE) < BATCH / SIZE).numpy()).tolist()


def parts(*, normalized: bool = False) -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(5)
    data = torch.utils.data.TensorDataset(torch.randn(SIZE, 1, 8), torch.randint(0, 3, (SIZE,)))
    layers = [torch.nn.Conv1d(1, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(24, 40)]
    if normalized:
        layers.insert(1, torch.nn.BatchNorm1d(4))
    model = torch.nn.Sequential(*layers)
    loader = torch.utils.data.DataLoader(data, batch_sampler=Coins())
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader, torch.nn.CrossEntropyLoss()


class Loop:
    """DP-SGD by hand: one backward pass a record; mistakes override a method."""

    def __init__(self, **settings: Any) -> None:
        self.model, self.optimizer, self.loader, self.loss = parts(**settings)
        self.parameters = list(self.model.parameters())

    def step(self, inputs: Any, targets: Any) -> None:
        sums = [torch.zeros_like(p) for p in self.parameters]
        for x, y in zip(inputs, targets, strict=True):
            self.model.zero_grad()
            self.loss(self.model(x[None]), y[None]).backward()
            for total, gradient in zip(sums, self.clipped([p.grad for p in self.parameters]), strict=True):
                total += gradient
        for number, (p, total) in enumerate(zip(self.parameters, sums, strict=True)):
            p.grad = self.noisy(number, total, len(inputs))
        self.optimizer.step()

    def clipped(self, gradients: list[Any]) -> list[Any]:
        norm = torch.stack([g.norm() for g in gradients]).norm()
        return [g * min(1.0, NORM / float(norm + 1e-12)) for g in gradients]

    def noise(self, number: int, total: Any) -> Any:
        return torch.randn_like(total)

    def noisy(self, number: int, total: Any, records: int) -> Any:
        return (total + NOISE * NORM * self.noise(number, total)) / BATCH


class ClipsMean(Loop):
    def step(self, inputs: Any, targets: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(self.model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, NORM)
        for p in self.parameters:
            p.grad += NOISE * NORM / BATCH * torch.randn_like(p)
        self.optimizer.step()


class ForgetsBias(Loop):
    def clipped(self, gradients: list[Any]) -> list[Any]:
        return [*super().clipped(gradients[:-1]), gradients[-1]]


class SilentBias(Loop):
    def noise(self, number: int, total: Any) -> Any:
        return torch.zeros_like(total) if number == 1 else torch.randn_like(total)


class Reseeds(Loop):
    def noise(self, number: int, total: Any) -> Any:
        if number == 0:
            self.seed = int(torch.randint(2**31, ()))
        return torch.randn(total.shape, generator=torch.Generator().manual_seed(self.seed))


class Halves(Loop):
    def noise(self, number: int, total: Any) -> Any:
        return torch.randn_like(total).half().float()


class ByRealized(Loop):
    def noisy(self, number: int, total: Any, records: int) -> Any:
        return total / BATCH + NOISE * NORM * self.noise(number, total) / max(1, records)


class Skips(Loop):
    def step(self, inputs: Any, targets: Any) -> None:
        if len(inputs):
            super().step(inputs, targets)


class NoNoise(Loop):
    def noise(self, number: int, total: Any) -> Any:
        return torch.zeros_like(total)


def probed(loop: Loop) -> ProbeReport:
    return probe.torch(
        loop.model, loop.optimizer, loop.loader, loop.loss, noise_multiplier=NOISE, max_grad_norm=NORM, step=loop.step
    )


def test_a_right_loop_is_left_alone_and_left_as_it_was() -> None:
    """No alarm; weights and generators are where they were; the unknown (another N) is said, not guessed."""
    loop = Loop()
    before = [p.detach().clone() for p in loop.parameters]
    state = torch.get_rng_state()
    report = probed(loop)
    assert report.alarms == ()
    assert report.finding("clipping").verdict == "each record's gradient to norm 0.7"
    assert report.finding("divisor").verdict.startswith("20 at this N")
    assert report.run is not None
    assert (report.run.sampler, report.run.adjacency) == ("poisson", "zero-out")
    assert (report.run.sample_rate, report.run.noise_multiplier) == (BATCH / SIZE, NOISE)
    assert "one dataset size" in report.caveats[0]
    assert any("one size only" in blind for blind in report.unseen)
    assert all(torch.equal(a, b) for a, b in zip(before, loop.parameters, strict=True))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("drop", "steps"), [(False, 9), (True, 8)])
def test_an_honest_loop_with_a_shuffled_loader_is_described(drop: bool, steps: int) -> None:
    """By a run for zero-out neighbors: 120 records in batches of 14, the last one (8 records) kept or dropped."""
    loop = Loop()
    loop.loader = torch.utils.data.DataLoader(loop.loader.dataset, batch_size=14, shuffle=True, drop_last=drop)
    report = probed(loop)
    assert [finding.subject for finding in report.alarms] == ["sampler"]
    run = report.run
    assert run is not None
    assert (run.sampler, run.adjacency, run.normalization) == ("shuffle", "zero-out", "constant")
    assert (run.batch_size, run.last_batch, run.steps) == (14, "drop" if drop else "keep", steps)


@pytest.mark.parametrize(
    ("loop", "subject", "says"),
    [
        (ClipsMean, "clipping", "clips the averaged gradient of the batch"),
        (ForgetsBias, "clipping", "layer 4 is not clipped"),
        (SilentBias, "noise", "layer 2 gets no noise"),
        (Reseeds, "noise correlation", "receive the same noise"),
        (Halves, "noise", "few different values"),
        (ByRealized, "noise and batch size", "divided by its size"),
        (Skips, "empty batch", "no noise: the step is skipped"),
        (NoNoise, "noise", "none"),
    ],
)
def test_mistakes_are_named(loop: type[Loop], subject: str, says: str) -> None:
    """Through a real model, a real loss and a real optimizer."""
    report = probed(loop())
    assert says in report.finding(subject).verdict
    assert report.finding(subject).alarm
    assert report.run is None


def test_normalization_over_the_batch_is_found() -> None:
    """The gradient of a record depends on the others: no rule of clipping describes that."""

    class Mixes(Loop):
        def step(self, inputs: Any, targets: Any) -> None:
            outputs = self.model(inputs)
            sums = [torch.zeros_like(p) for p in self.parameters]
            for number in range(len(inputs)):
                loss = self.loss(outputs[number : number + 1], targets[number : number + 1])
                gradients = self.clipped(list(torch.autograd.grad(loss, self.parameters, retain_graph=True)))
                for total, gradient in zip(sums, gradients, strict=True):
                    total += gradient
            for number, (p, total) in enumerate(zip(self.parameters, sums, strict=True)):
                p.grad = self.noisy(number, total, len(inputs))
            self.optimizer.step()

    assert probed(Mixes()).alarms == ()
    report = probed(Mixes(normalized=True))
    assert report.finding("clipping").alarm
    assert report.run is None


def test_a_model_that_needs_company_is_refused() -> None:
    """Batch normalization of single numbers cannot take one record."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 3), torch.nn.BatchNorm1d(3))
    _, _, loader, loss = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match="cannot take one record by itself"):
        probe.torch(model, optimizer, loader, loss, noise_multiplier=1.0, max_grad_norm=1.0)


def test_vmap_is_refused_with_the_reason() -> None:
    """All records in one call of the model: nothing to plant through."""
    loop = Loop()

    def step(inputs: Any, targets: Any) -> None:
        names = dict(loop.model.named_parameters())

        def one(values: Any, x: Any, y: Any) -> Any:
            return loop.loss(torch.func.functional_call(loop.model, values, (x[None],)), y[None])

        torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))(names, inputs, targets)

    with pytest.raises(InputError, match="no gradients can be planted"):
        probe.torch(
            loop.model, loop.optimizer, loop.loader, loop.loss, noise_multiplier=1.0, max_grad_norm=1.0, step=step
        )


@pytest.mark.parametrize(
    ("records", "settings", "message"),
    [
        (None, {}, "noise_multiplier"),
        (None, {"noise_multiplier": 1.0}, "max_grad_norm"),
        ([1.0, 2.0, 3.0], {"noise_multiplier": 1.0, "max_grad_norm": 1.0}, "not pairs"),
    ],
)
def test_what_is_missing_is_named(records: Any, settings: dict[str, float], message: str) -> None:
    """Numbers that nothing says, batches that are no pairs."""
    model, optimizer, loader, loss = parts()
    if records is not None:
        loader = torch.utils.data.DataLoader(records)
    with pytest.raises(InputError, match=message):
        probe.torch(model, optimizer, loader, loss, **settings)


@pytest.mark.opacus
@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_opacus_is_probed_through_its_own_objects(mode: str) -> None:
    """What make_private returns, with its accountant left alone; several sizes show that the rate moves."""
    opacus = pytest.importorskip("opacus")
    if mode == "ghost" and "criterion" not in inspect.signature(opacus.PrivacyEngine.make_private).parameters:
        pytest.skip("Ghost clipping by make_private comes with Opacus 1.5.3.")

    def loop(size: int, batch: int) -> Any:
        torch.manual_seed(1)
        model = torch.nn.Linear(30, 40)
        data = torch.utils.data.TensorDataset(torch.randn(size, 30), torch.randint(0, 40, (size,)))
        loss = torch.nn.CrossEntropyLoss()
        extra = {} if mode == "hooks" else {"grad_sample_mode": "ghost", "criterion": loss}
        engine = opacus.PrivacyEngine()
        model, optimizer, *criterion, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.Adam(model.parameters()),
            data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            **extra,
        )
        found = probe.TorchLoop(model, optimizer, loader, criterion[0] if criterion else loss)
        found.engine = engine  # type: ignore[attr-defined]
        return found

    one = loop(105, 10)
    before = list(one.engine.accountant.history)
    report = probe_sizes(loop, dataset_size=105, batch_size=10, epochs=100)
    assert one.engine.accountant.history == before
    assert report.finding("clipping").verdict == "each record's gradient to norm 1"
    assert report.finding("divisor").verdict == "floor(N q), 9"
    assert [finding.subject for finding in report.alarms] == ["divisor"]
    assert report.run is not None
    assert report.run.normalization == "floor"
