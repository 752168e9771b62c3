"""How fast private training is with the batches that people draw: Calipers beside Opacus and plain SGD, in one run.

Everybody trains the same model on the same number of records, which lie on the device; drawing the batch, reading its
records, gradients, clipping, noise and the step of SGD are all in the time. What is measured is a stretch of hundreds
of steps after a warm-up, the device finished at both ends, three stretches for each: the median, and beside it how far
the others were from it. No step is left out, so that recordings that are made on the way count. (Opacus, which makes
none and is slow, gets a quarter of the steps.)

- **Calipers** draws Poisson batches, balls-and-bins, shuffled ones and truncated Poisson ones of one mean size.
- **Opacus**, if it is installed, gets Poisson batches of the same sampler, in its default mode (hooks) and in its ghost
  mode.
- **Plain SGD** takes random batches of exactly the mean size, as it is and compiled (`torch.compile`).

On a GPU all round the factors of products to TF32 (`--precise`: none does). `--profile` says where the time of a step
of Poisson batches goes.

    python -m benchmarks.training --device cuda --save training.json
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.training_steps import CASES, CUDA_CASES, Case, Step, calipers_step, dataset, makers, plain_step

WARM_UP, STRETCHES = 150, 3


@dataclasses.dataclass(frozen=True)
class Speed:
    """Records per second of every stretch, seconds of the warm-up, and the peak of memory; or why there is none."""

    stretches: tuple[float, ...] = ()
    warm_up: float = 0.0
    memory: int = 0
    problem: str = ""

    @property
    def median(self) -> float:
        """Of the stretches."""
        return statistics.median(self.stretches) if self.stretches else float("nan")


def sustained(maker: Callable[[], Step], steps: int, warm_up: int, device: str) -> Speed:
    """How fast a step is over three stretches; on a CPU, by the process's own seconds."""
    import torch

    gc.collect()
    cuda = device != "cpu"
    clock = time.perf_counter if cuda else time.process_time
    finish = torch.cuda.synchronize if cuda else (lambda: None)
    before = 0
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = int(torch.cuda.memory_allocated())  # what those before have not let go of
    try:
        began = clock()
        step = maker()
        for _ in range(warm_up):
            step()
        finish()
        warmed, found = clock() - began, []
        for _ in range(STRETCHES):
            began = clock()
            records = sum(step() for _ in range(steps))
            finish()
            found.append(records / (clock() - began))
    except Exception as problem:  # a peer that cannot train a model is a finding, not the end of the table
        return Speed(problem=f"{type(problem).__name__}: {problem}"[:160])
    return Speed(tuple(found), warmed, int(torch.cuda.max_memory_allocated()) - before if cuda else 0)


def measured(case: Case, device: str, precise: bool, only: tuple[str, ...] = ()) -> dict[str, Speed]:
    """The speed for one model of everybody, or of those whose names hold one of the words."""
    data, warm_up = dataset(case.shape, case.records), WARM_UP if device != "cpu" else 2

    def share(who: str) -> int:  # Opacus records nothing on the way, and is slow; so are four times the batch
        return 4 if ("Opacus" in who or "4 x" in who) and device != "cpu" else 1

    return {
        who: sustained(maker, case.steps // share(who), warm_up // share(who), device)
        for who, maker in makers(case, data, device, precise).items()
        if not only or any(word in who for word in only)
    }


def compare(console: Console, device: str = "cpu", precise: bool = False, **chosen: Any) -> dict[str, Any]:
    """A table for every model; what was measured is returned."""
    try:
        import torch
    except ImportError as problem:
        console.print(f"training: {problem}", style="yellow", markup=False)
        return {}
    from calipers.training.torch_library import tensor_cores

    threads, where, found = torch.get_num_threads(), _where(torch, device, precise), []
    torch.set_num_threads(1 if device == "cpu" else threads)
    every = CASES if device == "cpu" else CUDA_CASES
    cases = [case for case in every if case.model in chosen.get("models", [case.model])]
    try:
        with tensor_cores(not precise):
            for case in cases:
                speeds = measured(case, device, precise, chosen.get("only", ()))
                console.print(_table(case, speeds, where))
                found.append(
                    {**dataclasses.asdict(case), "speeds": {w: dataclasses.asdict(s) for w, s in speeds.items()}}
                )
    finally:
        torch.set_num_threads(threads)
    return {"where": where, "cases": found}


def _where(torch: Any, device: str, precise: bool) -> str:
    try:
        from opacus import __version__ as opacus
    except ImportError:
        opacus = "is not installed"
    where = device if device == "cpu" else torch.cuda.get_device_name()
    rounding = "one thread" if device == "cpu" else "no TF32" if precise else "TF32 for all"
    return f"{where}, PyTorch {torch.__version__}, Opacus {opacus}, {rounding}, {datetime.date.today()}"


def _table(case: Case, speeds: dict[str, Speed], where: str) -> Table:
    """Records per second, seconds of an epoch, shares of plain SGD and of compiled plain SGD."""
    table = Table(title=f"{case.model}, mean batch {case.batch}, {where}", title_justify="left")
    headings = ("", "records / s", "s / epoch", "spread", "of plain", "of compiled", "memory / plain", "warm-up, s")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    plain, compiled = speeds.get("plain SGD", Speed()), speeds.get("compiled SGD", Speed())
    for who, speed in speeds.items():
        if speed.problem:
            table.add_row(who, "fails", "", speed.problem[:60])
            continue
        spread = (max(speed.stretches) - min(speed.stretches)) / speed.median
        memory = f"{speed.memory / plain.memory:.2f}" if plain.memory else "-"
        shares = [f"{speed.median / other.median:.2f}" if other.stretches else "-" for other in (plain, compiled)]
        pace = f"{speed.median:,.0f}", f"{case.records / speed.median:.3g}"
        table.add_row(who, *pace, f"{spread:.1%}", *shares, memory, f"{speed.warm_up:.1f}")
    return table


def markdown(saved: dict[str, Any]) -> str:
    """What was saved, as the table of the documentation: records per second, and the share of plain SGD."""
    names = list(dict.fromkeys(who for case in saved["cases"] for who in case["speeds"]))
    lines = [
        "| model, mean batch | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for case in saved["cases"]:
        found = {who: Speed(**values) for who, values in case["speeds"].items()}
        plain = found["plain SGD"]
        cells = [f"{case['model']}, {case['batch']:,}"]
        for who in names:
            speed = found.get(who, Speed(problem="not measured"))
            cells.append("fails" if speed.problem else f"{speed.median:,.0f} ({speed.median / plain.median:.2f})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


JOINED = dataclasses.replace(CASES[2], batch=CUDA_CASES[2].batch)
"""What processes share: a model and the batch of the table. Sum, noise and update have one size whatever the batch."""


def processes(console: Console, count: int, case: Case = JOINED, steps: int = 3) -> float:
    """How much of `count` times the speed of one process that many reach, joined by gloo, a thread each: the median.

    One process and many take turns, so that a machine that others use too slows both.
    """
    found = []
    for _ in range(STRETCHES):
        seconds = [_joined(case, number, steps) for number in (1, count)]
        found.append(seconds[0] / seconds[1] / count)
        console.print(
            f"{case.model}, batch {case.batch}, CPU: {seconds[0] / steps:.2f} s a step by 1 process, "
            f"{seconds[1] / steps:.2f} by {count}: {found[-1]:.2f} of ideal"
        )
    share = statistics.median(found)
    console.print(f"median of {len(found)}: {share:.2f} of ideal")
    return share


def _joined(case: Case, count: int, steps: int) -> float:
    """Wall seconds of the steps, of the slowest process."""
    from tempfile import TemporaryDirectory

    import torch.multiprocessing as mp

    with TemporaryDirectory() as folder:
        mp.spawn(_rank, (count, folder, case, steps), nprocs=count)
        return max(float(path.read_text()) for path in Path(folder).glob("rank*"))


def _rank(rank: int, count: int, folder: str, case: Case, steps: int) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    step = calipers_step(case, dataset(case.shape, case.records), "cpu", False, "shuffle")
    step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    Path(folder, f"rank{rank}").write_text(str(time.perf_counter() - began))
    torch.distributed.destroy_process_group()


def profile(console: Console, case: Case, device: str, precise: bool, steps: int = 20) -> None:
    """Where the time of a step goes: busy and idle time of the GPU, and the kernels that take most."""
    import torch
    from torch.profiler import ProfilerActivity

    data = dataset(case.shape, case.records)
    for who, maker in (
        ("Calipers, poisson", lambda: calipers_step(case, data, device, precise, "poisson")),
        ("plain SGD", lambda: plain_step(case, data, device)),
    ):
        step = maker()
        for _ in range(WARM_UP):
            step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
        took = (time.perf_counter() - began) / steps
        kernels = [event for event in seen.key_averages() if event.self_device_time_total]
        busy = sum(event.self_device_time_total for event in kernels) * 1e-6 / steps
        console.print(f"{case.model}, {who}: {took * 1e3:.2f} ms a step, {busy * 1e3:.2f} ms of it the GPU works")
        for event in sorted(kernels, key=lambda one: -one.self_device_time_total)[:14]:
            share = event.self_device_time_total * 1e-3 / steps
            console.print(f"  {share:8.3f} ms {event.count / steps:6.1f} x  {event.key[:105]}", markup=False)


if __name__ == "__main__":
    from calipers.training.torch_library import tensor_cores

    parser = argparse.ArgumentParser(description="Private training beside Opacus and plain SGD.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precise", action="store_true", help="No TF32 for anybody.")
    parser.add_argument("--models", nargs="*", help="Of these models only.")
    parser.add_argument("--only", nargs="*", default=[], help="Those whose names hold one of these words.")
    parser.add_argument("--save", type=Path, help="Write what was measured, as JSON.")
    parser.add_argument(
        "--processes", type=int, help="Compare one process with so many on a CPU, instead of the table."
    )
    parser.add_argument("--profile", action="store_true", help="Where the time of a step goes, instead of the table.")
    options = parser.parse_args()
    console = Console(width=140)
    models = options.models or [case.model for case in (*CASES, *CUDA_CASES)]
    if options.profile:
        with tensor_cores(not options.precise):
            for case in CUDA_CASES:
                if case.model in models:
                    profile(console, case, options.device, options.precise)
    elif options.processes:
        processes(console, options.processes)
    else:
        rows = compare(console, options.device, options.precise, models=models, only=tuple(options.only))
        if options.save is not None:
            options.save.write_text(json.dumps(rows, indent=1) + "\n")
            console.print(markdown(rows), markup=False, soft_wrap=True)
