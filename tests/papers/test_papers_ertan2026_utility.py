"""The kept trainings of Section 7: what they say of themselves is true, and they stand beside the right numbers."""

from __future__ import annotations

import csv
import math
from collections import Counter
from importlib.resources import files

import pytest

from calipers.measure import measure
from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.utility import trained_runs
from calipers.papers.registry import find_item
from calipers.papers.storage import rendered
from calipers.run import Run

TEST_RECORDS = {"cifar10": 10_000, "ag-news": 7_600, "mnist": 10_000, "fashion-mnist": 10_000}
TRAINING_RECORDS = {"cifar10": 50_000, "ag-news": 25_799, "mnist": 60_000, "fashion-mnist": 60_000}
HELD_OUT = 5_000


def kept_rows():
    text = files("calipers.papers.ertan2026").joinpath("trained.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_rows_are_those_of_the_experiment() -> None:
    """No run twice, every accuracy a number of test records, or of the records that a search holds out."""
    rows = kept_rows()
    names = list(rows[0])[: list(rows[0]).index("accuracy")]  # what was asked for comes first
    assert {"part", "dataset", "sampler", "regime", "noise_multiplier", "max_grad_norm", "seed"} < set(names)
    assert max(Counter(tuple(row[name] for name in names) for row in rows).values()) == 1
    for row in rows:
        search = row["part"] in ("rate", "norm")
        judged = HELD_OUT if search else TEST_RECORDS[row["dataset"]]
        hits = float(row["accuracy"]) * judged
        assert abs(hits - round(hits)) <= 0.5e-5 * judged + 1e-9
        assert int(row["records"]) == TRAINING_RECORDS[row["dataset"]] - (HELD_OUT if search else 0)


def test_noise_is_at_the_threshold() -> None:
    """In the tables σ = 1 / sqrt(2 ln M) with M = floor(N / B), and 0 without privacy; steps are M E."""
    for row in kept_rows():
        rounds = int(row["records"]) // int(row["batch_size"])
        noise = float(row["noise_multiplier"])
        assert (row["regime"] == "dp") == (noise > 0)
        if row["part"] == "table" and noise > 0:
            assert noise == pytest.approx(1 / math.sqrt(2 * math.log(rounds)), rel=1e-12)
        assert int(row["steps"]) == rounds * int(row["epochs"])


def test_private_rows_have_their_brackets() -> None:
    """Measured anew for the cheapest, the two contain a common value."""
    for row in kept_rows():
        if row["part"] in ("table", "frontier"):
            assert (row["regime"] == "dp") == (row["epsilon_lower"] != "")
        if row["epsilon_lower"]:
            assert 0 < float(row["epsilon_lower"]) <= float(row["epsilon_upper"])
    small = [
        row
        for row in kept_rows()
        if [row[name] for name in ("dataset", "part", "batch_size", "epochs", "regime", "seed")]
        == ["cifar10", "table", "4096", "1", "dp", "0"]
    ]
    assert {row["sampler"] for row in small} == {"poisson", "shuffle"}
    for row in small:
        run = Run(
            noise_multiplier=1 / math.sqrt(2 * math.log(12)),
            dataset_size=50_000,
            batch_size=4096,
            sampler=row["sampler"],
            adjacency="zero-out",
            **({"steps": 12} if row["sampler"] == "poisson" else {"epochs": 1}),
        )
        again = measure(run).epsilon(delta=1e-5)
        assert max(again.lower, float(row["epsilon_lower"])) <= min(again.upper, float(row["epsilon_upper"]))


def test_rows_stand_beside_the_published_ones() -> None:
    """Two entries of each table as printed, and our number for them from the file; no entry of either is missing."""
    outcome = find_item("ertan2026-utility").compute(lambda done, total: None)
    found = {row.quantity: row for row in outcome.rows}
    chosen = {
        "CIFAR-10, B = 512, E = 25, shuffle, σ = 0.33": "61.9",
        "CIFAR-10, B = 2048, E = 10, poisson, σ = 0": "55.3",
        "AG News, B = 128, E = 1, shuffle, σ = 0.31": "77.3",
        "AG News, B = 512, E = 25, poisson, σ = 0": "90.0",
    }
    for quantity, text in chosen.items():
        assert found[quantity].published.text == text
        assert found[quantity].basis == "estimate"
    accuracies = [
        run["accuracy"]
        for run in trained_runs()
        if [run[name] for name in ("dataset", "batch_size", "epochs", "sampler", "regime")]
        == ["cifar10", 512, 25, "shuffle", "dp"]
    ]
    row = found["CIFAR-10, B = 512, E = 25, shuffle, σ = 0.33"]
    assert (row.lower, row.upper) == (min(accuracies), max(accuracies)) == pytest.approx((66.24, 66.68))
    assert len(outcome.rows) == 4 * (len(published.TABLE_1_ACCURACIES) + len(published.TABLE_3_ACCURACIES))


def test_published_tables_are_whole() -> None:
    """Six and four batch sizes, three numbers of epochs, four accuracies each."""
    for table, accuracies in ((1, published.TABLE_1_ACCURACIES), (3, published.TABLE_3_ACCURACIES)):
        assert set(accuracies) == {(batch, e) for batch in published.TABLES[table].noise for e in published.EPOCHS}
        assert all(len(line) == 4 and all(0 < float(text) < 100 for text in line) for line in accuracies.values())


def test_the_picture_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    picture = find_item("ertan2026-utility").compute(lambda done, total: None).picture
    assert rendered(picture)["png"].startswith(b"\x89PNG")
