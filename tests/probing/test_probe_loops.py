"""Probing loops written in a few lines of numpy: every sampler and every divisor is recognized, and no other.

The loops are the oracle: what they do stands in their own lines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.probing.batches import BatchCounts, rates_left
from calipers.probing.probe import ProbeReport, probe


class Loop:
    """DP-SGD in numpy, with a choice of mistakes."""

    dimension, noise_multiplier, max_grad_norm = 500, 2.0, 0.5

    def __init__(self, size: int, batch: int, **choices: Any) -> None:
        self.size, self.batch = size, batch
        self.choices = {"sampler": "poisson", "divisor": "constant", "noise": "Gaussian", "clip": "record"} | choices
        self.steps_per_epoch = math.ceil(size / batch)
        self.rate = 1 / self.steps_per_epoch

    def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[Any]:
        name, steps = self.choices["sampler"], self.steps_per_epoch
        order = rng.permutation(self.size)
        bins = rng.integers(steps, size=self.size)
        weights = np.where(np.arange(self.size) % 2, 1.2, 0.8)
        before = np.zeros(self.size, dtype=bool)
        for _ in range(epochs):
            if name == "shuffle":
                order = rng.permutation(self.size)
            if name == "balls-and-bins":
                bins = rng.integers(steps, size=self.size)
            if name == "deterministic":
                order = np.arange(self.size)
            for step in range(steps):
                if name == "poisson":
                    yield np.flatnonzero(rng.random(self.size) < self.choices.get("rate", self.rate))
                elif name == "uneven":  # some records more often than others
                    yield np.flatnonzero(rng.random(self.size) < weights * self.rate)
                elif name == "twins":  # each record comes with its neighbor
                    yield np.flatnonzero(np.repeat(rng.random(self.size // 2) < self.rate, 2))
                elif name == "rested":  # nobody twice in a row
                    before = (rng.random(self.size) < self.rate / (1 - self.rate)) & ~before
                    yield np.flatnonzero(before)
                elif name in ("balls-and-bins", "bins kept"):
                    yield np.flatnonzero(bins == step)
                elif name == "fresh":
                    yield rng.choice(self.size, self.batch, replace=False)
                elif name == "fresh, uneven":
                    yield rng.choice(self.size, self.batch, replace=False, p=weights / weights.sum())
                elif name == "fresh, twins":
                    yield np.add.outer([0, 1], 2 * rng.choice(self.size // 2, self.batch // 2, replace=False)).ravel()
                elif name == "fresh, rested":  # nobody twice in a row
                    drawn = rng.choice(np.flatnonzero(~before), self.batch, replace=False)
                    before = np.isin(np.arange(self.size), drawn)
                    yield drawn
                elif name == "replacement":
                    yield rng.integers(self.size, size=self.batch)
                elif name == "halves":  # either all of one half or nothing: the rate is right, the law is not
                    half = rng.integers(2)
                    yield np.arange(self.size)[half::2] if rng.random() < 2 * self.rate else np.arange(0)
                else:
                    yield order[step * self.batch : (step + 1) * self.batch]

    def update(self, gradients: Any, rng: np.random.Generator) -> Any:
        bound = self.max_grad_norm
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        if self.choices["clip"] == "record":
            gradients = gradients / np.maximum(1.0, norms / bound)
        elif self.choices["clip"] == "coordinate":
            gradients = np.clip(gradients, -bound, bound)
        total = gradients.sum(axis=0)
        if self.choices["clip"] == "batch":
            total = total / max(1.0, float(np.linalg.norm(total)) / bound)
        noise = rng.normal(size=self.dimension)
        if self.choices["noise"] == "Laplace":
            noise = rng.laplace(scale=math.sqrt(0.5), size=self.dimension)
        if self.choices["noise"] == "small":
            noise = 0.985 * noise
        divisor = {
            "none": 1.0,
            "constant": float(self.batch),
            "expected": self.size * self.rate,
            "floor": math.floor(self.size * self.rate),
            "realized": float(len(gradients)),
            "root": math.sqrt(self.size),
            "shifted": 10.0 + len(gradients),
        }[self.choices["divisor"]]
        with np.errstate(all="ignore"):
            return (total + self.noise_multiplier * bound * noise) / np.float64(divisor)

    def accounted(self) -> tuple[float, float]:
        return self.rate, self.noise_multiplier


def probed(size: int = 130, batch: int = 20, **choices: Any) -> ProbeReport:
    return probe(lambda n, b: Loop(n, b, **choices), dataset_size=size, batch_size=batch, name="loop")


@pytest.mark.parametrize(
    ("sampler", "size", "verdict", "word"),
    [
        ("poisson", 130, "not distinguished from Poisson by batch sizes", "poisson"),
        ("shuffle", 120, "shuffle", "shuffle"),
        ("shuffle", 130, "shuffle", "shuffle"),
        ("deterministic", 120, "the same batches in every run", "deterministic"),
        ("shuffled once", 120, "one random order for the whole run", "deterministic"),
        ("balls-and-bins", 130, "balls-and-bins: every record", "balls-and-bins"),
        ("bins kept", 130, "thrown once and reused", None),
        ("fresh", 130, "a fresh uniform batch of exactly 20", "without-replacement"),
        ("fresh, uneven", 130, "exactly 20 records in every step, not uniform", None),
        ("fresh, twins", 130, "exactly 20 records in every step, not uniform", None),
        ("fresh, rested", 130, "exactly 20 records in every step, not uniform", None),
        ("replacement", 130, "with replacement", None),
        ("halves", 130, "not Poisson", None),
        ("uneven", 130, "not Poisson", None),
        ("rested", 130, "not Poisson", None),
        ("twins", 130, "not Poisson", None),
    ],
)
def test_each_sampler_is_recognized(sampler: str, size: int, verdict: str, word: str | None) -> None:
    """By its batches alone; a sampler that a Run has no word for leads to no run."""
    report = probed(size, sampler=sampler)
    assert verdict in report.finding("sampler").verdict
    assert (None if report.run is None else report.run.sampler) == word
    if sampler == "fresh":
        assert report.run is not None
        assert (report.run.batch_size, report.run.steps) == (20, 7)
    if sampler == "shuffle" and report.run is not None:  # 130 records do not fill batches of 12: the last is kept
        assert report.run.last_batch == ("keep" if size % report.run.batch_size else "drop")
        assert report.run.steps_per_epoch == report.run.total_steps
    assert report.finding("sampler").alarm == (sampler not in ("poisson", "balls-and-bins"))


@pytest.mark.parametrize(
    ("divisor", "verdict", "alarm"),
    [
        ("none", "nothing", False),
        ("constant", "a constant, 20", False),
        ("expected", "N q, the expected batch size, 18.57", True),
        ("floor", "floor(N q), 18", True),
        ("realized", "|B|", True),
        ("root", "no rule known here", True),
        ("shifted", "follows the batch that came out, by no rule known here", True),
    ],
)
def test_each_divisor_is_recognized(divisor: str, verdict: str, alarm: bool) -> None:
    """130 records in batches of 20: q = 1/7, so N q = 18.57."""
    report = probed(divisor=divisor)
    found = report.finding("divisor")
    assert found.verdict.startswith(verdict)
    assert found.alarm == alarm
    assert found.error_probability == 0.0
    assert (None if report.run is None else report.run.normalization) == (
        None if divisor in ("root", "shifted") else divisor
    )


def test_what_moves_with_one_record_is_seen() -> None:
    """At a multiple of the batch size the rate, the steps and floor(N q) move; three records below nothing does."""
    loud = probed(120, divisor="floor")
    assert loud.finding("neighbors").alarm
    assert "121: 7 steps, accounted rate 1/7, divisor 17" in loud.finding("neighbors").evidence
    assert "public constants" in loud.caveats[0]
    quiet = probed(110, divisor="floor")
    assert not quiet.finding("neighbors").alarm


def test_a_divisor_of_zero_is_called_by_its_name() -> None:
    """floor(19 / 20) = 0 once the rate is one twentieth."""

    def configure(size: int, batch: int) -> Loop:
        loop = Loop(size, batch, divisor="floor")
        loop.rate = 1 / 200
        return loop

    report = probe(configure, dataset_size=130, batch_size=20, epochs=2)
    assert report.finding("divisor").verdict.startswith("ZERO")
    assert report.run is None


@pytest.mark.parametrize("rate", [1 / 7, 1 / 8, 1 / 6])
def test_the_sampled_rate_is_told_from_its_neighbors(rate: float) -> None:
    """The loop accounts for 1/7; sampling at 1/6 or 1/8 is found out."""
    report = probed(rate=rate)
    assert report.finding("sample rate").verdict == f"samples at 1/{round(1 / rate)}"
    assert report.finding("accounting").alarm == (rate != 1 / 7)
    assert report.run is not None
    assert report.run.sample_rate == rate


def test_the_interval_of_the_rate_covers_the_truth() -> None:
    """At error 0.2, in at least 80 of 100 runs (Chernoff is wider than it need be, so in nearly all)."""
    loop = Loop(50, 10)
    intervals = [rates_left(BatchCounts(loop, 50, 4, seed), 0.2) for seed in range(100)]
    assert sum(low <= 0.2 <= high for low, high in intervals) >= 80
    assert max(high - low for low, high in intervals) < 0.15


@pytest.mark.parametrize(("noise", "alarm"), [("Gaussian", False), ("Laplace", True), ("small", True)])
def test_the_noise_is_judged_by_law_and_size(noise: str, alarm: bool) -> None:
    """Laplace noise of the right variance fails, and so do one and a half percent too little."""
    report = probed(noise=noise)
    assert report.finding("noise").alarm == alarm
    if noise == "Laplace":
        assert report.run is None
        assert report.reason == "No Run describes this noise."
        return
    assert report.run is not None
    if noise == "Gaussian":
        assert report.run.noise_multiplier == 2.0
    else:
        assert 1.93 < report.run.noise_multiplier < 1.97


@pytest.mark.parametrize(
    ("clip", "verdict"),
    [
        ("record", "each record's gradient to norm 0.5"),
        ("none", "does not clip"),
        ("batch", "clips the sum"),
        ("coordinate", "clips parts"),
    ],
)
def test_the_clipping_is_judged(clip: str, verdict: str) -> None:
    """Per record and of the whole norm is right; everything else raises an alarm."""
    report = probed(clip=clip)
    found = report.finding("clipping")
    assert verdict in found.verdict
    assert found.alarm == (report.run is None) == (clip != "record")


def test_an_empty_batch_must_be_noisy_as_usual() -> None:
    """Dividing by the batch that came out fails there; a constant does not."""
    assert probed().finding("empty batch").verdict == "noise as usual"
    assert probed(divisor="realized").finding("empty batch").alarm


def test_a_loop_that_ignores_the_generator_is_refused() -> None:
    """Differences of steps mean something only if equal seeds give equal noise."""

    class Unseeded(Loop):
        def update(self, gradients: Any, rng: np.random.Generator) -> Any:
            return super().update(gradients, np.random.default_rng())

    with pytest.raises(InputError, match="same seed"):
        probe(Unseeded, dataset_size=130, batch_size=20)


def test_the_report_is_json() -> None:
    """Findings, sizes, run and caveats, in plain types."""
    report = probed()
    record = json.loads(json.dumps(report.to_dict()))
    assert record["run"]["sample_rate"] == 1 / 7
    assert {finding["subject"] for finding in record["findings"]} == {
        "sampler", "sample rate", "accounting", "divisor", "neighbors", "noise", "noise correlation",
        "noise and batch size", "clipping", "empty batch", "gradients that are no numbers",
    }  # fmt: skip
    # The rate and what is said of the accounting rest on one interval.
    chances = [f["error_probability"] for f in record["findings"] if f["subject"] != "accounting"]
    assert sum(chances) <= 1e-3 + 1e-12
    assert record["unseen"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset_size": 1, "batch_size": 1}, "dataset_size"),
        ({"dataset_size": 10, "batch_size": 11}, "batch_size"),
        ({"dataset_size": 10, "batch_size": 2, "error_probability": 0.0}, "error_probability"),
        ({"dataset_size": 10, "batch_size": 2, "epochs": 1}, "epochs"),
        ({"dataset_size": 10, "batch_size": 2, "seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    """Before anything is run."""
    with pytest.raises(InputError, match=message):
        probe(Loop, **settings)


def test_pairs_that_keep_the_spread_of_batch_sizes_are_found_out() -> None:
    """A tenth of the pairs always together, the others never, at rate 1/10: three moments look like Poisson."""

    class Pairs(Loop):
        def batches(self, epochs: int, rng: np.random.Generator) -> Iterator[Any]:
            half = self.size // 2
            for _ in range(epochs * self.steps_per_epoch):
                first = rng.random(half)
                one = first < self.rate
                never = (first >= self.rate) & (first < 2 * self.rate)
                yield np.flatnonzero(
                    np.stack([one, np.where(np.arange(half) < half // 10, one, never)], axis=1).ravel()
                )

    report = probe(Pairs, dataset_size=200, batch_size=20)
    sampler = report.finding("sampler")
    assert sampler.verdict == "not Poisson: records come together or avoid each other"
    assert sampler.alarm
    assert report.run is None
    assert probe(Loop, dataset_size=200, batch_size=20).run is not None


def test_a_loop_without_noise_gets_an_answer() -> None:
    """No division by zero, no overflow: the finding says that there is none, and there is no run."""

    class Silent(Loop):
        noise_multiplier = 0.0

    report = probe(Silent, dataset_size=130, batch_size=20)
    assert report.finding("noise").verdict.startswith("none")
    assert report.run is None
