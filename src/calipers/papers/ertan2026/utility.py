"""Section 7: what is learnt at the noise that small separation forces. Tables 1 and 3, trained again.

Training takes GPU hours, so the rows are kept: `trained.csv` has one row for each run of
`calipers.papers.ertan2026.experiment`, with everything that names the run; `experiments/separation/README.md` in the
repository has the commands. Nothing is trained here.

**An accuracy is a measurement, not a bound.** It depends on the seed and on the device. Ours stand beside the
published ones to show whether the picture is the same; that they agree to a digit is not to be expected, because the
protocol differs:

- 17,000 of the 50,000 training images of CIFAR-10, 25,799 of the 120,000 training texts of AG News. Fewer records mean
  fewer batches: M is smaller, and with it σ = 1/sqrt(2 ln M) is larger;
- one or two seeds; learning rates and clipping norms from short trials, one for all batch sizes and epochs, where the
  paper searches for each epoch budget;
- three batch sizes for CIFAR-10, two for AG News, and 25 epochs for one of them each.
"""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.drawing import draw_utility
from calipers.papers.items import Data, Outcome, Picture, Progress, Row

_COLUMNS = ("dataset", "model", "records", "epochs", "batch_size", "sampler", "regime", "seed")
_NUMBERS = ("noise_multiplier", "accuracy", "epsilon_lower", "epsilon_upper")
_SETUPS = tuple(itertools.product(published.SAMPLERS, ("clean", "dp")))


@dataclass(frozen=True)
class TrainedRun:
    """One run of the experiment; accuracy in percent."""

    dataset: str
    model: str
    records: int
    epochs: int
    batch_size: int
    sampler: str
    regime: str
    seed: int
    noise_multiplier: float
    accuracy: float
    epsilon: tuple[float, float] | None


def trained_runs() -> Iterator[TrainedRun]:
    """The kept rows."""
    text = files("calipers.papers.ertan2026").joinpath("trained.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        epsilon = (float(row["epsilon_lower"]), float(row["epsilon_upper"])) if row["epsilon_lower"] else None
        yield TrainedRun(
            dataset=row["dataset"],
            model=row["model"],
            records=int(row["records"]),
            epochs=int(row["epochs"]),
            batch_size=int(row["batch_size"]),
            sampler=row["sampler"],
            regime=row["regime"],
            seed=int(row["seed"]),
            noise_multiplier=float(row["noise_multiplier"]),
            accuracy=100.0 * float(row["accuracy"]),
            epsilon=epsilon,
        )


def utility(progress: Progress) -> Outcome:
    """Accuracies beside those of Tables 1 and 3, and the picture of accuracy against noise."""
    runs = list(trained_runs())
    rows = [
        *_rows("CIFAR-10", "cifar10", published.TABLE_1_ACCURACIES, runs),
        *_rows("AG News", "ag-news", published.TABLE_3_ACCURACIES, runs),
    ]
    cells = [
        [
            *(getattr(run, name) for name in (*_COLUMNS, *_NUMBERS[:2])),
            *(("", "") if run.epsilon is None else run.epsilon),
        ]
        for run in runs
    ]
    progress(1, 1)
    panels = {
        "CIFAR-10, ResNet-18, B = 512": [run for run in runs if (run.dataset, run.batch_size) == ("cifar10", 512)],
        "AG News, Transformer-Tiny, B = 512": [
            run for run in runs if (run.dataset, run.batch_size) == ("ag-news", 512)
        ],
        "MNIST, small CNN, B = 256": [run for run in runs if run.dataset == "mnist"],
    }
    lines = {title: _lines(members) for title, members in panels.items()}
    marks = {title: _threshold(members) for title, members in panels.items()}
    picture = Picture(lambda figure: draw_utility(figure, lines, marks), (11.0, 4.2))
    return Outcome(rows, data=(Data("runs", (*_COLUMNS, *_NUMBERS), cells),), picture=picture)


def _rows(
    name: str, dataset: str, accuracies: dict[tuple[int, int], tuple[str, str, str, str]], runs: list[TrainedRun]
) -> Iterator[Row]:
    for (batch, epochs), texts in accuracies.items():
        for text, (sampler, regime) in zip(texts, _SETUPS, strict=True):
            found = [
                run
                for run in runs
                if (run.dataset, run.batch_size, run.epochs, run.sampler, run.regime)
                == (dataset, batch, epochs, sampler, regime)
            ]
            if not found:
                continue
            values = [run.accuracy for run in found]
            noise = f"σ = {found[0].noise_multiplier:.2g}"
            label = f"{name}, B = {batch}, E = {epochs}, {sampler}, {noise}"
            note = f"{len(found)} training{'s' if len(found) > 1 else ''}, N = {found[0].records:,}"
            yield Row.of(label, text, (min(values), max(values)), "estimate", note)


def _lines(runs: list[TrainedRun]) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """By (epochs, sampler): (σ, mean accuracy), in the order of σ."""
    points: dict[tuple[int, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        points[run.epochs, run.sampler][run.noise_multiplier].append(run.accuracy)
    return {key: sorted((noise, fmean(found)) for noise, found in points[key].items()) for key in sorted(points)}


def _threshold(runs: list[TrainedRun]) -> float:
    from calipers.theorems.separation import noise_threshold

    return noise_threshold(runs[0].records // runs[0].batch_size)
