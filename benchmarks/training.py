"""How fast private training is: Calipers beside Opacus, same model, same batch, one step after the other.

A step is: gradients of every record, clipping, sum, noise, division, a step of SGD. Opacus runs its optimizer behind
`GradSampleModule` in its default mode (hooks); the batch is already in memory for both, and the sampler is left out for
both. On a GPU Calipers rounds the factors of all products to TF32, Opacus follows PyTorch's defaults (TF32 in
convolutions only). CPU time of the process, one thread, the best of several steps; on a GPU wall time, all work done.

    python -m benchmarks.training --device cuda
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

# Model, shape of the records, records in a batch.
CASES = (("cnn", (1, 28, 28), 256), ("wideresnet-16-4", (3, 32, 32), 16), ("vit-tiny", (3, 32, 32), 16))
CUDA_CASES = (
    ("cnn", (1, 28, 28), 2048),
    ("resnet18", (3, 32, 32), 256),
    ("vit-tiny", (3, 32, 32), 256),
    ("transformer-tiny", (128,), 256),
)
VOCABULARY = 30_003
NOISE, NORM, RATE = 1.0, 1.0, 0.1


def dataset(shape: tuple[int, ...], records: int) -> Any:
    """Random pictures or texts of ten classes."""
    from calipers.training import Dataset

    rng = np.random.default_rng(0)
    labels = np.arange(records) % 10
    if len(shape) == 1:
        tokens = rng.integers(3, VOCABULARY, size=(records, *shape))
        return Dataset("random", "text", tokens, labels, tokens, labels, vocabulary_size=VOCABULARY)
    images = rng.integers(256, size=(records, *shape), dtype=np.uint8)
    return Dataset("random", "images", images, labels, images, labels)


def calipers_step(name: str, data: Any, device: str) -> Callable[[], None]:
    """`Trainer.take_step` on batches of all records."""
    from calipers.samplers import Deterministic
    from calipers.training import Plan, Trainer, build_model

    sampler = Deterministic(dataset_size=data.size, batch_size=data.size, epochs=10**6)
    plan = Plan(sampler=sampler, noise_multiplier=NOISE, max_grad_norm=NORM, learning_rate=RATE, seed=0)
    model = build_model(name, data, seed=0)
    return Trainer(plan, model, data.records, data.labels, prepare=data.prepare, device=device).take_step


def opacus_step(name: str, data: Any, device: str) -> Callable[[], None]:
    """Forward, backward and `DPOptimizer.step`."""
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    from calipers.adapters.opacus_library import quiet_engine
    from calipers.training import build_model

    model = GradSampleModule(build_model(name, data, seed=0).to(device))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE),
        noise_multiplier=NOISE,
        max_grad_norm=NORM,
        expected_batch_size=data.size,
    )
    records, labels = torch.from_numpy(data.records).to(device), torch.from_numpy(data.labels).to(device)

    def step() -> None:
        with quiet_engine():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data.prepare(records)), labels).backward()
            optimizer.step()

    return step


def examples_per_second(step: Callable[[], None], records: int, repeats: int, device: str) -> float:
    """Records per CPU second, or per second of a GPU, the best step of several."""
    import torch

    clock = time.process_time if device == "cpu" else time.perf_counter
    finish = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    for _ in range(3):  # the first steps choose kernels and record them
        step()
    best = 0.0
    for _ in range(repeats):
        finish()
        began = clock()
        step()
        finish()
        best = max(best, records / (clock() - began))
    return best


def compare(console: Console, repeats: int, device: str = "cpu") -> None:
    """One table: records per second of both, side by side."""
    try:
        import opacus
        import torch
    except ImportError as problem:
        console.print(f"training: {problem}", style="yellow", markup=False)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    table = Table(
        title=f"Private training on {device}, PyTorch {torch.__version__}, one thread: records per second",
        title_justify="left",
    )
    for heading in ("model", "parameters", "batch", "Calipers", f"Opacus {opacus.__version__}", "x Opacus"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    try:
        for name, shape, records in CASES if device == "cpu" else CUDA_CASES:
            data = dataset(shape, records)
            table.add_row(name, *_row(name, data, repeats, device))
    finally:
        torch.set_num_threads(threads)
    console.print(table)


def _row(name: str, data: Any, repeats: int, device: str) -> list[str]:
    from calipers.training import build_model
    from calipers.training.models import parameter_count

    cells = [f"{parameter_count(build_model(name, data, seed=0)):,}", str(data.size)]
    ours = examples_per_second(calipers_step(name, data, device), data.size, repeats, device)
    try:
        theirs = examples_per_second(opacus_step(name, data, device), data.size, repeats, device)
    except Exception as problem:
        return [*cells, f"{ours:,.1f}", f"{type(problem).__name__}: {problem}"[:40], "-"]
    return [*cells, f"{ours:,.1f}", f"{theirs:,.1f}", f"{ours / theirs:.2f}"]


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Private training beside Opacus.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    compare(Console(width=120), options.repeats, options.device)
