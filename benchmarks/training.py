"""How fast private training is: Calipers beside Opacus and beside plain SGD, same model, same batch.

A step is: gradients of every record, clipping, sum, noise, division, a step of SGD; plain SGD is one backward pass and
a step. Opacus, if it is installed, runs its optimizer behind `GradSampleModule` in its default mode (hooks) and in its
ghost mode; the batch is already in memory for all, and the sampler is left out. On a GPU all round the factors of
products to TF32 (`--precise`: none does). CPU time of the process, one thread, the best of ten steps; on a GPU wall
time, all work done, the best of thirty (plain SGD of a small network needs some to reach its speed), and the peak of
memory beside plain SGD's.

    python -m benchmarks.training --device cuda
"""

from __future__ import annotations

import datetime
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
    ("transformer-base", (128,), 64),
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


def calipers_step(name: str, data: Any, device: str, precise: bool = False) -> Callable[[], None]:
    """`Trainer.take_step` on batches of all records."""
    from calipers.samplers import Deterministic
    from calipers.training import Plan, Trainer, build_model

    sampler = Deterministic(dataset_size=data.size, batch_size=data.size, epochs=10**6)
    plan = Plan(sampler=sampler, noise_multiplier=NOISE, max_grad_norm=NORM, learning_rate=RATE, seed=0)
    model = build_model(name, data, seed=0)
    settings: dict[str, Any] = {"prepare": data.prepare, "device": device, "tf32": not precise}
    return Trainer(plan, model, data.records, data.labels, **settings).take_step


def plain_step(name: str, data: Any, device: str) -> Callable[[], None]:
    """One backward pass and a step of SGD: no privacy."""
    import torch

    from calipers.training import build_model

    model = build_model(name, data, seed=0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    records, labels = torch.from_numpy(data.records).to(device), torch.from_numpy(data.labels).to(device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.prepare(records)), labels).backward()
        optimizer.step()

    return step


def opacus_step(name: str, data: Any, device: str, ghost: bool = False) -> Callable[[], None]:
    """Forward, backward and `DPOptimizer.step`, in Opacus's default mode or in ghost mode."""
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    from calipers.adapters.opacus_library import quiet_engine
    from calipers.training import build_model

    inner = build_model(name, data, seed=0).to(device)
    ours = {"noise_multiplier": NOISE, "max_grad_norm": NORM, "expected_batch_size": data.size}
    criterion: Any = torch.nn.CrossEntropyLoss()
    if ghost:
        model: Any = GradSampleModuleFastGradientClipping(inner, max_grad_norm=NORM, use_ghost_clipping=True)
        optimizer: Any = DPOptimizerFastGradientClipping(torch.optim.SGD(model.parameters(), lr=RATE), **ours)
        criterion = DPLossFastGradientClipping(model, optimizer, criterion)
    else:
        model = GradSampleModule(inner)
        optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=RATE), **ours)
    records, labels = torch.from_numpy(data.records).to(device), torch.from_numpy(data.labels).to(device)

    def step() -> None:
        with quiet_engine():
            optimizer.zero_grad()
            criterion(model(data.prepare(records)), labels).backward()
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


def compare(console: Console, repeats: int, device: str = "cpu", precise: bool = False) -> None:
    """One table: records per second, side by side."""
    try:
        import torch
    except ImportError as problem:
        console.print(f"training: {problem}", style="yellow", markup=False)
        return
    try:
        from opacus import __version__ as opacus
    except ImportError:
        opacus = "is not installed"
    from calipers.training.torch_library import tensor_cores

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    where = device if device == "cpu" else torch.cuda.get_device_name()
    rounding = "one thread" if device == "cpu" else "no TF32" if precise else "TF32 for all"
    table = Table(
        title=f"Training on {where}, PyTorch {torch.__version__}, {rounding}, {datetime.date.today()}: "
        "records per second (share of plain)",
        title_justify="left",
    )
    peers = ("Calipers", f"Opacus {opacus}", "Opacus, ghost", "plain SGD")
    for heading in ("model", "parameters", "batch", *peers, "memory / plain"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    try:
        with tensor_cores(not precise):
            for name, shape, records in CASES if device == "cpu" else CUDA_CASES:
                table.add_row(name, *_row(name, dataset(shape, records), repeats, device, precise))
    finally:
        torch.set_num_threads(threads)
    console.print(table)


def _row(name: str, data: Any, repeats: int, device: str, precise: bool) -> list[str]:
    from calipers.training import build_model
    from calipers.training.models import parameter_count

    cells = [f"{parameter_count(build_model(name, data, seed=0)):,}", str(data.size)]
    makers: tuple[Callable[[], Callable[[], None]], ...] = (
        lambda: calipers_step(name, data, device, precise),
        lambda: opacus_step(name, data, device),
        lambda: opacus_step(name, data, device, ghost=True),
        lambda: plain_step(name, data, device),
    )
    found = [_measured(maker, data.size, repeats, device) for maker in makers]
    plain, most = found[-1]
    for speed, _ in found:
        cells.append("fails" if speed is None else f"{speed:,.0f} ({speed / (plain or 1.0):.2f})")
    memory = found[0][1]
    return [*cells, "-" if not memory or not most else f"{memory / most:.2f}"]


def _measured(
    maker: Callable[[], Callable[[], None]], records: int, repeats: int, device: str
) -> tuple[float | None, int]:
    """(records per second, peak of memory on the GPU), or None where the step fails."""
    import gc

    import torch

    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        speed = examples_per_second(maker(), records, repeats, device)
    except Exception as problem:  # a peer that cannot train a model is a finding, not the end of the table
        print(f"  {type(problem).__name__}: {problem}"[:160])
        return None, 0
    return speed, 0 if device == "cpu" else int(torch.cuda.max_memory_allocated())


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Private training beside Opacus.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, help="Steps that are timed: 10, or 30 on a GPU.")
    parser.add_argument("--precise", action="store_true", help="No TF32 for anybody.")
    options = parser.parse_args()
    repeats = options.repeats or (10 if options.device == "cpu" else 30)
    compare(Console(width=140), repeats, options.device, options.precise)
