"""What the protocol's rows show: a table for every dataset, and accuracy against the epsilon that is certified.

    KEPT=src/calipers/papers/ertan2026/trained.csv
    python -m benchmarks.protocol_views $KEPT --picture experiments/protocol/accuracy.png

`--gather ROWS ...` makes the kept rows from files of `benchmarks.protocol`, and from rows that were kept (.csv). An
accuracy is a measurement, with the smallest and the largest of the seeds; an epsilon is a bracket, and the upper
bound is what may be claimed.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

COLUMNS = (
    "part",
    "dataset",
    "model",
    "records",
    "sampler",
    "regime",
    "batch_size",
    "epochs",
    "steps",
    "noise_multiplier",
)
COLUMNS += ("learning_rate", "max_grad_norm", "optimizer", "seed", "accuracy", "judged_on", "epsilon_lower")
COLUMNS += ("epsilon_upper", "separation_lower", "separation_upper", "seconds", "device", "torch", "date")
SAMPLERS = {"shuffle": "shuffled batches", "poisson": "Poisson", "balls-and-bins": "balls-and-bins"}

Row = dict[str, Any]


def gathered(paths: list[Path]) -> list[Row]:
    """Rows of `benchmarks.protocol`, flat and in order."""
    found = []
    for path in paths:
        lines = kept(path) if path.suffix == ".csv" else map(json.loads, path.read_text("utf-8").splitlines())
        for row in lines:
            bracket = row.get("epsilon") or {}
            row |= {"epsilon_lower": bracket.get("lower", ""), "epsilon_upper": bracket.get("upper", "")}
            row |= dict(zip(("separation_lower", "separation_upper"), bracket.get("separation", ("", "")), strict=True))
            row["seconds"] = round(row["seconds"], 2)
            found.append({name: "" if row.get(name) is None else row[name] for name in COLUMNS})
    return sorted(found, key=lambda row: [str(row[name]).zfill(12) for name in COLUMNS])


WHOLE, REAL = ("records", "batch_size", "epochs", "steps", "seed"), ("noise_multiplier", "learning_rate", "accuracy")


def kept(path: Path) -> list[Row]:
    """The rows of a file that `--gather` has made, as `benchmarks.protocol` writes them."""
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        norm, lower, upper = (row[name] for name in ("max_grad_norm", "epsilon_lower", "epsilon_upper"))
        row |= {name: int(row[name]) for name in WHOLE} | {name: float(row[name]) for name in (*REAL, "seconds")}
        row["max_grad_norm"] = float(norm) if norm else None
        if upper:
            row["epsilon"] = {"delta": 1e-5, "lower": float(lower), "upper": float(upper)}
        if row.get("separation_upper"):
            row["epsilon"]["separation"] = [float(row[f"separation_{end}"]) for end in ("lower", "upper")]
    return rows


def table(rows: list[Row]) -> list[str]:
    """Accuracies in percent without noise and with that of the paper's bound, and the bracket of the latter."""
    runs: dict[tuple[Any, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["part"] == "table":
            names = ("dataset", "records", "batch_size", "epochs", "sampler")
            runs[tuple(row[name] for name in names)][row["regime"]].append(row)
    lines = [
        "| dataset | N | B | epochs | sampler | no noise | with noise | published | σ | epsilon at δ = 1e-5 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(runs, key=lambda key: (key[0], int(key[3]), int(key[2]), key[4])):
        both = runs[key]
        noisy = next((row for row in both["dp"] if row["epsilon_upper"] != ""), None)
        noise = f"{float(noisy['noise_multiplier']):.3f}" if noisy else ""
        bracket = f"[{float(noisy['epsilon_lower']):.5g}, {float(noisy['epsilon_upper']):.5g}]" if noisy else ""
        dataset, records, batch, epochs, sampler = key
        cells = [
            dataset,
            f"{int(records):,}",
            batch,
            epochs,
            SAMPLERS[sampler],
            *map(_percent, (both["clean"], both["dp"])),
            _published(dataset, batch, epochs, sampler),
        ]
        lines.append("| " + " | ".join(map(str, [*cells, noise, bracket])) + " |")
    return lines


def _published(dataset: str, batch: str, epochs: str, sampler: str) -> str:
    """Without noise and with it, in the paper's Table 1 or 3."""
    from calipers.papers.ertan2026 import published

    tables = {"cifar10": published.TABLE_1_ACCURACIES, "ag-news": published.TABLE_3_ACCURACIES}
    found = tables.get(dataset, {}).get((int(batch), int(epochs)))
    return "" if found is None else " and ".join(found[2 * (sampler == "poisson") :][:2])


def _percent(rows: list[Row]) -> str:
    values = sorted(100.0 * float(row["accuracy"]) for row in rows)
    if not values:
        return ""
    return f"{fmean(values):.1f} ({values[0]:.1f} to {values[-1]:.1f}; {len(values)})"


def draw(rows: list[Row], path: Path) -> None:
    """Accuracy against the upper bound at equal cost, a panel for every dataset."""
    from matplotlib.figure import Figure

    points: dict[str, dict[str, dict[float, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row["part"] == "frontier" and row["epsilon_upper"] != "":
            points[row["dataset"]][row["sampler"]][float(row["epsilon_upper"])].append(100.0 * float(row["accuracy"]))
    figure = Figure(figsize=(5.2 * len(points), 4.0), layout="constrained")
    for panel, (dataset, samplers) in zip(
        figure.subplots(1, len(points), squeeze=False)[0], sorted(points.items()), strict=True
    ):
        for (sampler, words), marker in zip(SAMPLERS.items(), "os^", strict=True):
            line = sorted((epsilon, found) for epsilon, found in samplers[sampler].items())
            places = [epsilon for epsilon, _ in line]
            panel.plot(places, [fmean(found) for _, found in line], marker=marker, label=words)
            panel.fill_between(places, [min(f) for _, f in line], [max(f) for _, f in line], alpha=0.15)
        panel.set_xscale("log")
        panel.set(title=dataset, xlabel="epsilon that is certified, delta = 1e-5", ylabel="test accuracy, %")
        panel.grid(alpha=0.3)
        panel.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def main() -> int:
    """Write the rows, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--gather", type=Path, nargs="+")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.gather:
        with options.rows.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(gathered(options.gather))
    with options.rows.open(newline="", encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    print("\n".join(table(rows)))
    if options.picture:
        draw(rows, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
