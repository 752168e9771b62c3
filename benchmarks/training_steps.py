"""Steps that `benchmarks.training` times: Calipers by sampler, Opacus in two modes, and plain SGD."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

VOCABULARY = 30_003
NOISE, NORM, RATE = 1.0, 1.0, 0.1


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, the shape of its records, the mean batch, and how many records and steps there are."""

    model: str
    shape: tuple[int, ...]
    batch: int
    records: int
    steps: int


CASES = (
    Case("cnn", (1, 28, 28), 256, 60_000, 60),
    Case("wideresnet-16-4", (3, 32, 32), 16, 2_000, 6),
    Case("vit-tiny", (3, 32, 32), 16, 2_000, 6),
)
CUDA_CASES = (
    Case("cnn", (1, 28, 28), 2048, 60_000, 600),
    Case("resnet18", (3, 32, 32), 256, 50_000, 200),
    Case("vit-tiny", (3, 32, 32), 256, 50_000, 200),
    Case("transformer-tiny", (128,), 256, 50_000, 200),
    Case("transformer-base", (128,), 64, 50_000, 200),
)
Step = Callable[[], int]
"""Take a step; how many records it had."""


def dataset(shape: tuple[int, ...], records: int) -> Any:
    """Random pictures or texts of ten classes."""
    from calipers.training import Dataset

    rng = np.random.default_rng(0)
    labels = np.arange(records) % 10
    if len(shape) == 1:
        tokens = rng.integers(3, VOCABULARY, size=(records, *shape))
        return Dataset("random", "text", tokens, labels, tokens[:10], labels[:10], vocabulary_size=VOCABULARY)
    images = rng.integers(256, size=(records, *shape), dtype=np.uint8)
    return Dataset("random", "images", images, labels, images[:10], labels[:10])


def sampler_of(case: Case, name: str) -> Any:
    """A sampler of this mean batch that does not come to an end."""
    from calipers import samplers

    sizes: dict[str, Any] = {"dataset_size": case.records, "batch_size": case.batch}
    if name == "poisson":
        return samplers.Poisson(**sizes, steps=10**6)
    if name == "truncated":
        return samplers.TruncatedPoisson(**sizes, steps=10**6, max_batch_size=case.batch + 4 * int(case.batch**0.5))
    if name == "balls-and-bins":
        return samplers.BallsAndBins(**sizes, epochs=10**4)
    return samplers.Shuffle(**sizes, epochs=10**4)


def calipers_step(
    case: Case,
    data: Any,
    device: str,
    precise: bool,
    sampler: str,
    seed: int | None = 0,
    micro_batch: int | None = None,
) -> Step:
    """`Trainer.take_step`, as `train` takes it; without a seed, with secure noise."""
    from calipers.training import Plan, Trainer, build_model

    drawn = sampler_of(case, sampler)
    plan = Plan(
        sampler=drawn,
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        learning_rate=RATE,
        seed=seed,
        micro_batch=micro_batch,
    )
    settings: dict[str, Any] = {"prepare": data.prepare, "device": device, "tf32": not precise}
    trainer = Trainer(plan, build_model(case.model, data, seed=0), data.records, data.labels, **settings)

    def step() -> int:
        trainer.take_step(wait=False)
        return case.batch

    return step


def plain_step(case: Case, data: Any, device: str, compiled: bool = False) -> Step:
    """One backward pass and a step of SGD on random records: no privacy."""
    import torch

    from calipers.training import build_model

    model = build_model(case.model, data, seed=0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    records, labels = torch.from_numpy(data.records).to(device), torch.from_numpy(data.labels).to(device)

    def loss_of(inputs: Any, answers: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(inputs), answers)

    loss = loss_of
    if compiled:  # recorded as a graph too, and for one size
        torch.compiler.reset()
        loss = torch.compile(loss_of, mode="reduce-overhead", dynamic=False)

    def step() -> int:
        rows = torch.randint(case.records, (case.batch,), device=device)
        optimizer.zero_grad()
        loss(data.prepare(records[rows]), labels[rows]).backward()
        optimizer.step()
        return case.batch

    return step


def opacus_step(case: Case, data: Any, device: str, ghost: bool = False) -> Step:
    """Forward, backward and `DPOptimizer.step` on Poisson batches, in Opacus's default mode or in ghost mode."""
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    from calipers.adapters.opacus_library import quiet_engine
    from calipers.samplers.stream import BatchStream
    from calipers.training import build_model

    inner = build_model(case.model, data, seed=0).to(device)
    ours = {"noise_multiplier": NOISE, "max_grad_norm": NORM, "expected_batch_size": case.batch}
    criterion: Any = torch.nn.CrossEntropyLoss()
    if ghost:
        model: Any = GradSampleModuleFastGradientClipping(inner, max_grad_norm=NORM, use_ghost_clipping=True)
        optimizer: Any = DPOptimizerFastGradientClipping(torch.optim.SGD(model.parameters(), lr=RATE), **ours)
        criterion = DPLossFastGradientClipping(model, optimizer, criterion)
    else:
        model = GradSampleModule(inner)
        optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=RATE), **ours)
    records, labels = torch.from_numpy(data.records).to(device), torch.from_numpy(data.labels).to(device)
    stream = BatchStream.seeded(sampler_of(case, "poisson"), 0)

    def step() -> int:
        rows = torch.from_numpy(next(stream)).to(device)
        with quiet_engine():
            optimizer.zero_grad()
            criterion(model(data.prepare(records[rows])), labels[rows]).backward()
            optimizer.step()
        return len(rows)

    return step


SAMPLERS = ("poisson", "balls-and-bins", "shuffle", "truncated")


def makers(case: Case, data: Any, device: str, precise: bool) -> dict[str, Callable[[], Step]]:
    """Who is compared."""
    found: dict[str, Callable[[], Step]] = {}
    for name in SAMPLERS if device != "cpu" else SAMPLERS[:1]:
        found[f"Calipers, {name}"] = lambda name=name: calipers_step(case, data, device, precise, name)  # type: ignore[misc]
    found["Calipers, poisson, secure noise"] = lambda: calipers_step(case, data, device, precise, "poisson", None)
    if device != "cpu":
        large = dataclasses.replace(case, batch=4 * case.batch)
        found["Calipers, poisson, 4 x the batch in pieces"] = lambda: calipers_step(
            large, data, device, precise, "poisson", micro_batch=case.batch * 5 // 4
        )
    found["Opacus, Poisson"] = lambda: opacus_step(case, data, device)
    found["Opacus ghost, Poisson"] = lambda: opacus_step(case, data, device, ghost=True)
    found["plain SGD"] = lambda: plain_step(case, data, device)
    if device != "cpu":
        found["compiled SGD"] = lambda: plain_step(case, data, device, compiled=True)
    return found
