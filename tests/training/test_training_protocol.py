"""The protocol's driver: what is trained and in which order, lines that survive, brackets that belong to their run."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import protocol, protocol_jobs, protocol_views  # noqa: E402

from calipers.errors import InputError  # noqa: E402
from calipers.measure import measure  # noqa: E402
from calipers.papers.ertan2026 import utility  # noqa: E402
from calipers.run import Run  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(80, 28, 28), dtype=np.uint8), rng.integers(10, size=80)
    np.savez(tmp_path / "mnist.npz", x_train=images[:64], y_train=labels[:64], x_test=images[64:], y_test=labels[64:])
    for name, value in {"HELD_OUT": 16, "SEARCH_BATCH": 8, "EPOCHS": (1,), "FRONTIER_BATCH": 8}.items():
        monkeypatch.setattr(protocol_jobs, name, value)
    monkeypatch.setitem(protocol_jobs.BATCHES, "mnist", (8,))
    protocol_jobs.loaded.cache_clear()
    protocol_jobs.sizes.cache_clear()
    yield str(tmp_path)
    protocol_jobs.loaded.cache_clear()
    protocol_jobs.sizes.cache_clear()


def test_the_table_has_the_papers_noise_and_the_searched_settings(folder) -> None:
    sizes = protocol_jobs.available(folder, None)
    assert sizes == {"mnist": 64}
    chosen = {("mnist", 1): {"rate": 0.123, "norm": 0.456}}
    jobs = list(protocol_jobs.table_jobs(sizes, chosen, epochs=1, seed=2))
    assert {(job.sampler, job.regime) for job in jobs} == {
        (sampler, regime) for sampler in ("shuffle", "poisson") for regime in ("clean", "dp")
    }
    for job in jobs:
        assert (job.seed, job.learning_rate) == (2, 0.123)
        noise = 1 / math.sqrt(2 * math.log(8)) if job.regime == "dp" else 0.0
        assert job.noise_multiplier == pytest.approx(noise, rel=1e-12)
        assert job.max_grad_norm == (0.456 if job.regime == "dp" else None)
    frontier = list(protocol_jobs.frontier_jobs(sizes, chosen, seed=0))
    assert {job.sampler for job in frontier} == {"shuffle", "poisson", "balls-and-bins"}
    assert len({(job.cost, job.sampler_object().law().steps) for job in frontier}) == 1
    assert len({job.key for job in (*jobs, *frontier)}) == len(jobs) + len(frontier)


def test_a_search_does_not_train_on_what_it_is_judged_by(folder, monkeypatch) -> None:
    (job, *_) = protocol_jobs.searched("rate", {"mnist": 64}, {}, 1)
    assert job.records == 64 - 16
    judged = []
    monkeypatch.setattr("calipers.training.accuracy", lambda model, records, *rest, **_: judged.append(records) or 0.5)
    row = protocol_jobs.train_job(job, folder, "cpu", time.time() + 100)
    assert np.array_equal(judged[0], protocol_jobs.loaded("mnist", folder).records[-16:])
    assert row["judged_on"] == "held-out training records"
    assert protocol_jobs.train_job(job, folder, "cpu", time.time() - 1) is None


@pytest.fixture
def _here(monkeypatch):
    """No processes: what is submitted is done at once."""

    class Here:
        """A pool of this process."""

        def __init__(self, *_, **__) -> None:
            self._processes = {}

        def submit(self, function, *arguments):
            task = protocol.Future()
            task.set_result(function(*arguments))
            return task

        def shutdown(self, **_) -> None:
            pass

    monkeypatch.setattr(protocol, "ProcessPoolExecutor", Here)


@pytest.mark.usefixtures("_here")
def test_lines_end_in_time_have_their_bracket_and_are_not_made_twice(folder, tmp_path, monkeypatch) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text('{"key": "cut o')
    monkeypatch.setitem(protocol_jobs.SEARCHED, "mnist", (1,))
    monkeypatch.setitem(protocol_jobs.FRONTIER, "mnist", (1.0,))
    monkeypatch.setattr(protocol_jobs, "FRONTIER_EPOCHS", 1)
    words = {"data_dir": folder, "device": "cpu", "workers": 2, "measurers": 1, "seeds": 1, "datasets": None}
    words["chosen"] = False
    options = argparse.Namespace(**words, time_limit=300.0)
    protocol.protocol(options, protocol.Lines(out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["part"] for row in rows} == {"rate", "norm", "table", "frontier"}
    rates = {row["learning_rate"]: row["accuracy"] for row in rows if row["part"] == "rate"}
    (chosen,) = {row["learning_rate"] for row in rows if row["part"] != "rate"}
    assert rates[chosen] == max(rates.values())
    for row in rows:
        assert "error" not in row
        if row["part"] in ("table", "frontier") and row["regime"] == "dp":
            length = {"steps": 8} if row["sampler"] == "poisson" else {"epochs": 1}
            sizes = {"dataset_size": 64, "batch_size": 8, "normalization": "constant", "sampler": row["sampler"]}
            run = Run(noise_multiplier=row["noise_multiplier"], **sizes, **length)
            expected = measure(run, tolerance=1e-2).epsilon(delta=1e-5)
            assert (row["epsilon"]["lower"], row["epsilon"]["upper"]) == (expected.lower, expected.upper)
            low, high = row["epsilon"]["separation"]
            assert 0 < low <= high <= math.sqrt(0.5)
        else:
            assert "epsilon" not in row
    protocol.protocol(options, protocol.Lines(out))
    assert len(out.read_text().splitlines()) == len(rows)
    # What time left without a bracket is measured afterwards.
    lines = protocol.Lines(out)
    kept = [row.get("epsilon") for row in lines.rows]
    for row in lines.rows:
        if "epsilon" in row:
            row["epsilon"] = None
    protocol.fill(lines)
    assert [row.get("epsilon") for row in protocol.Lines(out).rows] == kept
    # No time, no line.
    late = tmp_path / "late.jsonl"
    protocol.protocol(argparse.Namespace(**words, time_limit=0.0), protocol.Lines(late))
    assert not late.exists()


def test_rows_that_are_kept_are_not_made_again(tmp_path) -> None:
    """A row goes into the kept file and comes back as the job it was, with its bracket."""
    sizes, chosen = {"mnist": 60_000}, {("mnist", 1): {"rate": 0.1, "norm": 1.0}}
    jobs = list(protocol_jobs.table_jobs(sizes, chosen, epochs=1, seed=0))
    found = {"accuracy": 0.5, "judged_on": "test records", "steps": 7, "seconds": 1.25, "device": "cpu", "torch": "2"}
    rows = [{"key": job.key, **job.asdict(), **found, "date": "2026-11-16"} for job in jobs]
    rows[1]["epsilon"] = {"delta": 1e-5, "lower": 1.25, "upper": 1.5, "separation": [0.25, 0.5]}
    made, again = tmp_path / "rows.jsonl", tmp_path / "again.csv"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    for sources in ([made], [again]):
        gathered = protocol_views.gathered(sources)
        with again.open("w", newline="") as file:
            writer = csv.DictWriter(file, protocol_views.COLUMNS)
            writer.writeheader()
            writer.writerows(gathered)
    lines = protocol.Lines(tmp_path / "new.jsonl")
    lines.know(protocol_views.kept(again))
    assert lines.done == {job.key for job in jobs[:3]}
    assert [row["epsilon"] for row in lines.rows if "epsilon" in row] == [rows[1]["epsilon"]]


def played(monkeypatch, folder, *words):
    """The lines that the command writes for chosen trainings in batches of 16."""
    out = Path(folder) / "rows.jsonl"
    fixed = ("--data-dir", folder, "--out", out, "--device", "cpu", "--chosen", "--batch-size", 16)
    monkeypatch.setattr(sys, "argv", [str(word) for word in ("protocol", *fixed, *words)])
    protocol.main()
    return sorted((json.loads(line) for line in out.read_text().splitlines()), key=lambda row: row["key"])


@pytest.mark.usefixtures("_here")
def test_chosen_trainings_are_made_once_measured_and_made_again_after_a_crash(folder, monkeypatch) -> None:
    """Clean and private, shuffled and Poisson; `--fill` measures what `--measurers 0` left."""
    rows = played(monkeypatch, folder, "--measurers", 0)
    cases = [(sampler, regime) for sampler in ("poisson", "shuffle") for regime in ("clean", "dp")]
    assert sorted((row["sampler"], row["regime"]) for row in rows) == cases
    for row in rows:
        assert 0 <= row["accuracy"] <= 1
        assert (row["steps"], row["dimension"], row["judged_on"]) == (4, 26_010, "test records")
        assert row.get("epsilon", "no noise") == (None if row["regime"] == "dp" else "no noise")
    measured = played(monkeypatch, folder, "--fill")
    for row in measured:
        if row["regime"] == "dp":
            assert 0 < row["epsilon"]["lower"] <= row["epsilon"]["upper"]
    assert played(monkeypatch, folder) == measured
    out = Path(folder) / "rows.jsonl"
    out.write_bytes(out.read_bytes()[:-10])
    again = played(monkeypatch, folder)
    assert [{**row, "seconds": 0} for row in again] == [{**row, "seconds": 0} for row in measured]


def test_chosen_noise_is_in_units_of_the_threshold_and_unused_choices_make_no_line() -> None:
    """M = 4 batches an epoch: factors of 1/sqrt(2 ln 4); without noise, or without clipping, one training each."""
    chosen = protocol_jobs.SEVERAL | {"records": 64, "batch_size": (16,), "epochs": (2,), "sampler": ("poisson",)}
    chosen |= {"regime": protocol_jobs.REGIMES, "noise_factor": (0.5, 2.0), "max_grad_norm": (1.0, 3.0)}
    jobs = list(protocol_jobs.chosen_jobs({"mnist": 60_000}, chosen))
    assert {job.records for job in jobs} == {64}
    assert {(job.sampler_object().rate, job.sampler_object().law().steps) for job in jobs} == {(16 / 64, 8)}
    threshold = 1 / math.sqrt(2 * math.log(4))
    noisy = [("dp", norm, pytest.approx(factor * threshold)) for norm in (1.0, 3.0) for factor in (0.5, 2.0)]
    plain = [("clean", None, 0.0), ("clip", 1.0, 0.0), ("clip", 3.0, 0.0)]
    assert [(job.regime, job.max_grad_norm, job.noise_multiplier) for job in jobs] == plain + noisy
    assert [job.measured for job in jobs] == [False] * 3 + [True] * 4
    # ln 1 = 0: of one batch an epoch the theorem says nothing.
    with pytest.raises(InputError, match="batch_size"):
        list(protocol_jobs.chosen_jobs({"mnist": 64}, chosen | {"records": None, "batch_size": (40,)}))


def test_files_of_something_else_are_not_appended_to(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    for text in ("a,b\n1,2\n", '{"other": 1}\n', "[1]\n"):
        path.write_text(text)
        with pytest.raises(SystemExit, match="other lines"):
            protocol.Lines(path)
        assert path.read_text() == text


def test_gathered_rows_are_what_the_papers_item_reads(tmp_path, monkeypatch) -> None:
    """`calipers reproduce ertan2026-utility` reads kept rows by the names that `--gather` writes, less the searches."""
    rows = protocol_views.gathered([ROOT / "src/calipers/papers/ertan2026/trained.csv"])
    with (tmp_path / "trained.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, protocol_views.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(utility, "files", lambda package: tmp_path)
    runs = list(utility.trained_runs())
    shown = [row for row in rows if row["part"] in ("table", "frontier")]
    assert len(rows) > len(runs) == len(shown) > 500
    assert [run["accuracy"] for run in runs] == [100 * row["accuracy"] for row in shown]
    assert {run["epsilon_upper"] == "" for run in runs if run["regime"] == "clean"} == {True}


def test_longer_searches_try_what_is_next_to_the_choice_of_a_shorter_one() -> None:
    chosen = {("cifar10", 1): {"rate": 0.01, "norm": 20.0}, ("cifar10", 10): {"rate": 0.03}}
    rates = [job.learning_rate for job in protocol_jobs.searched("rate", {"cifar10": 50_000}, chosen, 10)]
    norms = [job.max_grad_norm for job in protocol_jobs.searched("norm", {"cifar10": 50_000}, chosen, 10)]
    assert (rates, norms) == ([0.003, 0.01, 0.03], [5.0, 20.0])
    assert {job.learning_rate for job in protocol_jobs.searched("norm", {"cifar10": 50_000}, chosen, 10)} == {0.03}
    assert len(list(protocol_jobs.searched("rate", {"cifar10": 50_000}, chosen, 1))) == 5


def test_of_equals_the_middle_is_chosen_in_whatever_order_they_come() -> None:
    """Adam does not see the length of a step: all clipping norms are the same to it."""
    norms = protocol_jobs.NORMS["ag-news"]
    row = {"part": "norm", "dataset": "ag-news", "epochs": 1, "learning_rate": 0.0002, "accuracy": 0.4238}
    for order in (norms, norms[::-1], norms[1:] + norms[:1]):
        chosen = {("ag-news", 1): {"rate": 0.0002}}
        protocol._choose("norm", [{**row, "max_grad_norm": norm} for norm in order], chosen)
        assert chosen["ag-news", 1]["norm"] == 1.0
