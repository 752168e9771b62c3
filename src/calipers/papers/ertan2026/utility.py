"""Section 7: what is learnt at the noise that small separation forces. Tables 1 and 3, trained again.

Training takes GPU hours, so the rows are kept: `trained.csv` has one row for each run, with everything that names it.
The experiment itself is `benchmarks.protocol` in the repository, outside what is installed, and the rows are those that
it gathers; `experiments/protocol/README.md` has the command and what came out. Nothing is trained here.

**An accuracy is a measurement, not a bound.** It depends on the seed and on the device. Ours stand next to the
published ones to show whether the picture is the same; that they agree to a digit is not to be expected, because the
protocol differs:

- 25,799 of the 120,000 training texts of AG News. Fewer records mean fewer batches: M is smaller, and with it
  σ = 1/sqrt(2 ln M) is larger. CIFAR-10 is whole;
- three seeds; what a search for one and ten epochs chose serves for twenty-five as well.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from statistics import fmean
from typing import Any

from calipers.papers.ertan2026 import published
from calipers.papers.sheets import Computed, Sheet
from calipers.theorems.separation import noise_threshold

_NAMED = {"dataset": str, "model": str, "records": int, "epochs": int, "batch_size": int}
_NAMED |= {"sampler": str, "regime": str, "seed": int, "noise_multiplier": float}
"""The columns that name a run, and how each is read."""
_SETUPS = tuple(product(published.SAMPLERS, ("clean", "dp")))
_PANELS = "cifar10", "ag-news", "mnist"
_SHOWN = 512
"""Datasets and batches of which the picture shows accuracy against noise."""


def trained_runs() -> Iterator[dict[str, Any]]:
    """The kept rows: what names the run, its noise, its accuracy in percent, and epsilon where it was measured.

    Rows of the searches are judged on records that were held out, and are left out here.
    """
    text = files("calipers.papers.ertan2026").joinpath("trained.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["part"] not in ("table", "frontier"):
            continue
        run: dict[str, Any] = {name: read(row[name]) for name, read in _NAMED.items()}
        ends = {end: float(row[end]) if row[end] else "" for end in ("epsilon_lower", "epsilon_upper")}
        yield run | {"accuracy": 100.0 * float(row["accuracy"])} | ends


def utility() -> Computed:
    """Accuracies next to those of Tables 1 and 3, and the picture of accuracy against noise."""
    runs, table = Sheet("runs"), Sheet("beside", listed=False)
    lines, marks = Sheet("lines", listed=False), Sheet("thresholds", listed=False)
    runs.records = list(trained_runs())
    tables = ("CIFAR-10", "cifar10", published.TABLE_1_ACCURACIES), ("AG News", "ag-news", published.TABLE_3_ACCURACIES)
    for name, dataset, accuracies in tables:
        for (batch, epochs), texts in accuracies.items():
            for text, (sampler, regime) in zip(texts, _SETUPS, strict=True):
                run = {"dataset": dataset, "batch_size": batch, "epochs": epochs, "sampler": sampler}
                if found := runs.where(**run, regime=regime):
                    values = [entry["accuracy"] for entry in found]
                    table.add(**found[0] | {"accuracy": (min(values), max(values)), "trained": name, "text": text})
                    table.unlisted(count=f"{len(found)} training{'s' if len(found) > 1 else ''}")
    for dataset in _PANELS:
        shown = runs.where(dataset=dataset, batch_size=_SHOWN)
        marks.add(dataset=dataset, threshold=noise_threshold(shown[0]["records"] // _SHOWN))
        for epochs, sampler, sigma in sorted({(r["epochs"], r["sampler"], r["noise_multiplier"]) for r in shown}):
            point = {"dataset": dataset, "epochs": epochs, "sampler": sampler, "noise_multiplier": sigma}
            mean = fmean(entry["accuracy"] for entry in runs.where(**point, batch_size=_SHOWN))
            lines.add(**point, accuracy=mean).unlisted(name=f"{epochs} epoch{'s' if epochs > 1 else ''}, {sampler}")
    return Computed([runs, table, lines, marks])
