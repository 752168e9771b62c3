"""The utility experiments of Ertan and van Dijk (2026), Section 7, by one command within a given time.

    python -m benchmarks.protocol --data-dir DATA --out rows.jsonl --device cuda --workers 6 --time-limit 450

The paper's protocol, for every dataset whose files are in DATA, in this order:

1. `rate`: for every number of epochs the learning rate is searched *without noise*;
2. `norm`: the clipping norm is searched at the noise 1/sqrt(2 ln M) of the paper's bound;
3. `table`: no noise and no clipping, against that noise; shuffled and Poisson batches, batch sizes and epochs of the
   tables, three seeds;
4. `frontier`: the same training with other noise, for shuffled and Poisson batches and balls-and-bins at equal cost
   (batch size, steps): accuracy against the epsilon that is *certified*.

With `--chosen`, instead: every combination of `--epochs`, `--batch-size`, `--sampler`, `--regime`, `--learning-rate`,
`--max-grad-norm`, `--noise-factor` (in units of that noise) and `--seed`, each with one value or several, on the first
`--records` of the datasets that are named.

Searches are judged on 5,000 training records that they do not train on; no bracket covers what is chosen by them, as in
the paper. Every line is one training: what was asked for, the accuracy on the test records (a measurement, no bound),
and the brackets of epsilon at delta = 1e-5 and of the separation of the run that was executed. Started again with the
same file, lines that are there are not made again, nor those of `--kept trained.csv` (the kept ones are in
`src/calipers/papers/ertan2026`); lines without a bracket, left where time was up, get theirs from

    python -m benchmarks.protocol --out rows.jsonl --fill

Needs numpy, scipy and PyTorch. `benchmarks.protocol_jobs` says what is trained.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks import protocol_jobs
from benchmarks.protocol_jobs import Job, bracket, chosen_jobs, frontier_jobs, searched, table_jobs, train_job
from benchmarks.protocol_views import kept

FEW_SECONDS = 5.0


class Lines:
    """The file: one JSON object a line, on the disk before the next is begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a crash has cut the last line off
            path.write_bytes(whole)
        try:
            self.rows = [json.loads(line) for line in whole.splitlines()]
            self.done = {row["key"] for row in self.rows if "error" not in row}
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path} has other lines than this command writes; name another file.") from error

    def know(self, rows: list[dict[str, Any]]) -> None:
        """Rows from elsewhere, which are not made again; those of searches count."""
        keys = {row["key"] for row in self.rows}
        for row in rows:
            row["key"] = Job.of(row).key
            self.done.add(row["key"])
            if row["key"] not in keys:
                self.rows.append(row)

    def add(self, row: dict[str, Any]) -> None:
        """Append a line."""
        self.rows.append(row)
        self.done.add(row["key"])
        with self._path.open("ab") as file:
            file.write((json.dumps(row) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def replace(self) -> None:
        """Write all lines anew, whole or not at all."""
        beside = self._path.with_name(self._path.name + ".partial")
        beside.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        os.replace(beside, self._path)


class Workers:
    """Processes that train and processes that measure, with one end for all of them."""

    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._trainers = ProcessPoolExecutor(options.workers, mp_context=spawn)
        self._measurers = ProcessPoolExecutor(max(1, options.measurers), mp_context=spawn)
        self._options, self._lines = options, lines
        self._end = time.time() + options.time_limit
        self._brackets: dict[str, Future[Any]] = {}
        self._waiting: list[tuple[dict[str, Any], str]] = []
        self._speed: dict[str, float] = {}

    def play(self, jobs: Iterator[Job]) -> None:
        """Train jobs in order, as many at once as there are workers; begin none that would not end in time."""
        running: dict[Future[Any], Job] = {}
        for job in jobs:
            if job.key in self._lines.done or not self._fits(job):
                continue
            if job.measured and self._options.measurers and job.run_key not in self._brackets:
                self._brackets[job.run_key] = self._measurers.submit(bracket, job)
            task = self._trainers.submit(train_job, job, self._options.data_dir, self._options.device, self._end)
            running[task] = job
            while sum(each.weight for each in running.values()) >= self._options.workers:
                self._collect(running)
        while running:
            self._collect(running)

    def _fits(self, job: Job) -> bool:
        left = self._end - time.time()
        known = self._speed.get(job.speed_key)
        return left > FEW_SECONDS if known is None else left > job.cost / known

    def _collect(self, running: dict[Future[Any], Job]) -> None:
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for task in finished:
            job = running.pop(task)
            try:
                row = task.result()
            except Exception as problem:  # one training that fails is a finding, not the end of the table
                row = {"key": job.key, **job.asdict(), "error": f"{type(problem).__name__}: {problem}"[:500]}
            if row is None:
                continue  # time was up
            if "seconds" in row:
                self._speed[job.speed_key] = job.cost / row["seconds"]
            if job.measured:
                row["epsilon"] = None
            self._waiting.append((row, job.run_key))
        self._write(everything=False)

    def _write(self, *, everything: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for row, key in waiting:
            task = self._brackets.get(key)
            if task is not None and not task.done() and not everything:
                self._waiting.append((row, key))
                continue
            if task is not None and task.done() and not task.cancelled():
                row["epsilon"] = task.result()
            self._lines.add(row)
            print(_told(row), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the brackets that are there in time; write the rest without."""
        pending = [self._brackets[key] for _, key in self._waiting if key in self._brackets]
        wait(pending, timeout=max(0.0, self._end - time.time()))
        self._write(everything=True)
        self._trainers.shutdown(wait=False, cancel_futures=True)
        for process in list((self._measurers._processes or {}).values()):
            process.terminate()
        self._measurers.shutdown(wait=False, cancel_futures=True)


def _told(row: dict[str, Any]) -> str:
    what = " ".join(str(row[name]) for name in ("part", "dataset", "sampler", "regime", "batch_size", "epochs", "seed"))
    return (
        f"{what} sigma={row['noise_multiplier']:.3g}: {row.get('accuracy', row.get('error'))} {row.get('epsilon', '')}"
    )


def _choose(part: str, rows: list[dict[str, Any]], chosen: dict[tuple[str, int], dict[str, float]]) -> None:
    """Take the best of the rows of a search; of norms, of those at the rate that was chosen.

    Of equals the one in the middle of the grid: rows come in any order, and those that are kept in another.
    """
    grids = protocol_jobs.RATES if part == "rate" else protocol_jobs.NORMS
    for row in rows:
        best = chosen[row["dataset"], row["epochs"]]
        if row["part"] != part or "accuracy" not in row:
            continue
        if part == "norm" and row["learning_rate"] != best.get("rate"):
            continue
        value, grid = row["learning_rate" if part == "rate" else "max_grad_norm"], grids[row["dataset"]]
        far = float(abs(grid.index(value) - len(grid) // 2) if value in grid else len(grid))
        if (row["accuracy"], -far) > (best.get(f"{part} accuracy", -1.0), -best.get(f"{part} far", 0.0)):
            best |= {f"{part} accuracy": row["accuracy"], f"{part} far": far, part: value}


def protocol(options: argparse.Namespace, lines: Lines) -> None:
    """All parts in order, each with what was found by the one before."""
    from benchmarks.protocol_jobs import available

    datasets = available(options.data_dir, options.datasets)
    print(f"datasets: {datasets}; {len(lines.rows)} lines are there", file=sys.stderr, flush=True)
    workers = Workers(options, lines)
    try:
        if options.chosen:
            workers.play(chosen_jobs(datasets, vars(options)))
            return
        chosen: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
        for epochs in protocol_jobs.EPOCHS:
            for part in ("rate", "norm"):
                workers.play(searched(part, datasets, chosen, epochs))
                _choose(part, lines.rows, chosen)
        for seed in range(options.seeds):
            workers.play(frontier_jobs(datasets, chosen, seed))
        for epochs, seed in itertools.product(protocol_jobs.EPOCHS, range(options.seeds)):
            workers.play(table_jobs(datasets, chosen, epochs, seed))
    finally:
        workers.close()


def fill(lines: Lines) -> None:
    """Measure the lines that were written without their bracket; each run once."""
    found: dict[str, Any] = {}
    for row in lines.rows:
        if "epsilon" in row and row["epsilon"] is None:
            job = Job.of(row)
            if job.run_key not in found:
                found[job.run_key] = bracket(job)
            row["epsilon"] = found[job.run_key]
    lines.replace()


def main() -> None:
    """Read the options and begin."""
    parser = argparse.ArgumentParser(description="Utility at the noise that small separation forces, and beyond.")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=6, help="Trainings at once on the one device.")
    parser.add_argument("--measurers", type=int, default=6, help="Processes that measure; 0: --fill does, later.")
    parser.add_argument("--time-limit", type=float, default=450.0, metavar="SECONDS")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--datasets", nargs="*", help="mnist, fashion-mnist, ag-news, cifar10; those that are there.")
    parser.add_argument("--kept", type=Path, metavar="ROWS.csv", help="Rows that are not made again.")
    parser.add_argument("--fill", action="store_true", help="Only measure lines without a bracket.")
    parser.add_argument("--chosen", action="store_true", help="Train every combination of the following instead.")
    parser.add_argument("--records", type=int, help="Only the first so many training records.")
    choices = {"sampler": protocol_jobs.SEVERAL["sampler"], "regime": protocol_jobs.REGIMES}
    for name, values in protocol_jobs.SEVERAL.items():
        option = {"type": type(values[0]), "default": values, "choices": choices.get(name)}
        parser.add_argument(f"--{name.replace('_', '-')}", nargs="+", **option)
    options = parser.parse_args()
    lines = Lines(options.out)
    if options.fill:
        fill(lines)
    elif options.data_dir is None:
        parser.error("--data-dir is needed to train")
    else:
        if options.kept is not None:
            lines.know(kept(options.kept))
        protocol(options, lines)


if __name__ == "__main__":
    main()
