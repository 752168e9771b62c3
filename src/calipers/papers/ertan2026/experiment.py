"""Utility at the noise that Ertan and van Dijk (2026) prove necessary: their Section 7, as rows of a CSV file.

For one epoch of M shuffled batches they show: noise below sigma = 1/sqrt(2 ln M), or a separation of at least
(1 - 1/sqrt(4 pi ln M))/sqrt(8). The experiment asks what a model still learns at that sigma:

- "clean": sigma = 0, no clipping;
- "clip": sigma = 0, with clipping;
- "dp": clipping and noise at sigma = 1/sqrt(2 ln M), M = floor(N/B) batches an epoch, or at multiples of it
  (`--noise-factor`).

Batches are shuffled or Poisson; the sum is divided by the batch size B, a public constant. Every combination of the
options given several times is one run from a fresh initialization with a seed of its own, and one row:
what was asked for, the test accuracy, the speed, and (for "dp") the bracket of epsilon at delta = 1e-5 and of the
separation, measured on the run that was executed.

Rows are appended and forced to the disk one by one. Started again with the same file, the experiment leaves out the
rows that are there; a row cut off by a crash is removed and computed again.

    python -m calipers.papers.ertan2026.experiment --dataset cifar10 --data-dir data --model resnet18 \\
        --epochs 1 --batch-size 128 --batch-size 512 --out rows.csv --device cuda
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from calipers.domains import Domain
from calipers.errors import CalipersError, InputError
from calipers.papers.ertan2026 import published
from calipers.theorems.separation import noise_threshold
from calipers.training.datasets import DATASETS, Dataset, load_dataset
from calipers.training.evaluation import accuracy
from calipers.training.gradients import suitable_micro_batch
from calipers.training.handling import Progress
from calipers.training.loop import Trained, train
from calipers.training.models import MODELS, build_model, parameter_count
from calipers.training.plan import OPTIMIZERS, SCHEDULES, Plan, sampler_of
from calipers.training.torch_library import chosen_device, torch_module

__all__ = ["REGIMES", "Setting", "append_row", "finished_rows"]

REGIMES = ("clean", "clip", "dp")
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that names a row; two rows with equal settings are the same run."""

    dataset: str
    records: int
    model: str
    epochs: int
    batch_size: int
    sampler: str
    regime: str
    learning_rate: float
    max_grad_norm: float
    noise_factor: float
    optimizer: str
    momentum: float
    weight_decay: float
    schedule: str
    vocabulary: str
    seed: int

    def plan(self, micro_batch: int) -> Plan:
        """The training this setting stands for."""
        rounds = self.records // self.batch_size
        same = ("learning_rate", "optimizer", "momentum", "weight_decay", "schedule", "seed")
        return Plan(
            sampler=sampler_of(self.sampler, dataset_size=self.records, batch_size=self.batch_size, epochs=self.epochs),
            noise_multiplier=self.noise_factor * noise_threshold(rounds) if self.regime == "dp" else 0.0,
            max_grad_norm=None if self.regime == "clean" else self.max_grad_norm,
            micro_batch=micro_batch,
            **{name: getattr(self, name) for name in same},
        )


KEY = tuple(field.name for field in dataclasses.fields(Setting))
RESULTS = (
    *("steps", "dimension", "noise_multiplier", "accuracy", "seconds", "examples_per_second", "micro_batch"),
    *("epsilon_lower", "epsilon_upper", "separation_lower", "separation_upper", "device", "torch", "note"),
)
COLUMNS = (*KEY, *RESULTS)


def finished_rows(path: Path) -> set[tuple[str, ...]]:
    """The settings of the rows in the file, as text; a last line without its end is removed first."""
    if not path.exists():
        return set()
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    reader = csv.DictReader(io.StringIO(whole.decode()))
    if whole and tuple(reader.fieldnames or ()) != COLUMNS:
        raise InputError(f"{path} has other columns than this experiment writes; name another file.")
    return {tuple(row[name] for name in KEY) for row in reader}


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add one row in one piece and wait until it is on the disk; the header comes with the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    with path.open("ab") as file:
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())


def run_setting(
    setting: Setting, data: Dataset, device: str, micro_batch: int, progress: Progress | None
) -> tuple[dict[str, Any], Trained]:
    """Train and evaluate: one row without its bracket, and what was executed."""
    model = build_model(setting.model, data, seed=setting.seed)
    plan = setting.plan(micro_batch)
    trained = train(plan, model, data.records, data.labels, prepare=data.prepare, device=device, progress=progress)
    place = chosen_device(device)
    found = accuracy(model, data.test_records, data.test_labels, prepare=data.prepare, device=place)
    row: dict[str, Any] = {name: "" for name in RESULTS} | dataclasses.asdict(setting)
    row |= {
        "steps": plan.steps,
        "dimension": trained.dimension,
        "noise_multiplier": plan.noise_multiplier,
        "accuracy": round(found, 5),
        "seconds": round(trained.seconds, 3),
        "examples_per_second": round(plan.steps * setting.batch_size / trained.seconds, 1),
        "micro_batch": micro_batch,
        "device": place.type,
        "torch": torch_module().__version__,
    }
    return row, trained


def measured(trained: Trained) -> dict[str, Any]:
    """The bracket's columns, or the reason why it could not be certified."""
    from calipers.measure import measure

    try:
        measurement = measure(trained.run(), tolerance=1e-2)
        epsilon, separation = measurement.epsilon(delta=DELTA), measurement.separation()
    except CalipersError as error:
        return {"note": " ".join(str(error).split())}
    found = {"epsilon": epsilon, "separation": separation}
    return {f"{name}_{end}": getattr(jaws, end) for name, jaws in found.items() for end in ("lower", "upper")}


def settings_of(data: Dataset, chosen: dict[str, Any]) -> Iterator[Setting]:
    """Every combination of the options that were given several times."""
    several = ("epochs", "batch_size", "sampler", "regime", "learning_rate", "max_grad_norm", "noise_factor", "seed")
    for values in itertools.product(*(chosen[name] for name in several)):
        picked = dict(zip(several, values, strict=True))
        # What a regime does not use must not make another row.
        unused = {"clean": ("max_grad_norm", "noise_factor"), "clip": ("noise_factor",), "dp": ()}[picked["regime"]]
        if any(picked[name] != chosen[name][0] for name in unused):
            continue
        picked |= dict.fromkeys(unused, 0.0)
        Domain(1, data.size // 2, integer=True).check_int("batch_size", picked["batch_size"], "Two batches at least.")
        fixed = {name: chosen[name] for name in KEY if name in chosen and name not in several}
        yield Setting(**{**fixed, **picked, "records": data.size, "dataset": data.name})


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _reporter(place: str) -> Progress:
    """Every ten seconds, how far the run is, on standard error."""
    last = time.monotonic()

    def report(done: int, steps: int) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            _say(f"{place}: step {done} of {steps}")

    return report


@click.command("experiment")
@click.option("--dataset", type=click.Choice(DATASETS), required=True)
@click.option("--data-dir", metavar="DIR", help="Folder with the dataset's files.")
@click.option("--records", type=int, help="Use the first so many training records only.")
@click.option("--model", type=click.Choice(MODELS), required=True)
@click.option("--epochs", type=int, multiple=True, default=(1,), show_default=True)
@click.option("--batch-size", type=int, multiple=True, default=(512,), show_default=True)
@click.option("--sampler", type=click.Choice(published.SAMPLERS), multiple=True, default=published.SAMPLERS)
@click.option("--regime", type=click.Choice(REGIMES), multiple=True, default=("clean", "dp"))
@click.option("--learning-rate", type=float, multiple=True, default=(0.1,), show_default=True)
@click.option("--max-grad-norm", type=float, multiple=True, default=(1.0,), show_default=True)
@click.option("--noise-factor", type=float, multiple=True, default=(1.0,), help="dp: times 1/sqrt(2 ln M).")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="sgd", show_default=True)
@click.option("--momentum", type=float, default=0.9, show_default=True)
@click.option("--weight-decay", type=float, default=0.0, show_default=True)
@click.option("--schedule", type=click.Choice(SCHEDULES), default="cosine", show_default=True)
@click.option("--vocabulary", default="frequent", show_default=True, help="Text: frequent (as published) or hashed.")
@click.option("--seed", type=int, multiple=True, default=(0,), show_default=True)
@click.option("--micro-batch", type=int, default=0, help="Records at a time; 0 chooses.")
@click.option("--device", default="auto", show_default=True)
@click.option("--out", "output", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--time-limit", type=float, metavar="SECONDS", help="Begin no further run after this long.")
@click.option("--measure/--no-measure", "measuring", default=True, help="Fill the columns of the bracket.")
def main(
    output: Path,
    data_dir: str | None,
    records: int | None,
    device: str,
    micro_batch: int,
    time_limit: float | None,
    measuring: bool,
    **chosen: Any,
) -> None:
    """Train at the noise that is necessary, and without; one CSV row per run."""
    began = time.monotonic()
    place = chosen_device(device)
    data = load_dataset(chosen["dataset"], data_dir, vocabulary=chosen["vocabulary"])
    data = data if records is None else data.first(records)
    done = finished_rows(output)
    wanted = [s for s in settings_of(data, chosen) if tuple(str(getattr(s, name)) for name in KEY) not in done]
    _say(f"{len(wanted)} runs to do, {len(done)} rows in {output}")
    if wanted and not micro_batch:
        micro_batch = suitable_micro_batch(parameter_count(build_model(chosen["model"], data, seed=0)), place)
    for number, setting in enumerate(wanted, start=1):
        if time_limit is not None and time.monotonic() - began > time_limit:
            _say(f"Time is up; {len(wanted) - number + 1} runs are left.")
            return
        label = f"[{number}/{len(wanted)}] E={setting.epochs} B={setting.batch_size} {setting.sampler} {setting.regime}"
        row, trained = run_setting(setting, data, device, micro_batch, _reporter(label))
        if measuring and setting.regime == "dp":
            row |= measured(trained)
        append_row(output, row)
        _say(f"{label}: accuracy {row['accuracy']}, {row['seconds']} s, {row['examples_per_second']}/s")


if __name__ == "__main__":
    main()
