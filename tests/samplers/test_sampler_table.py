"""The table of samplers and what works with them, in the documentation, against what works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calipers.calibrate import calibrate
from calipers.certificates import certify
from calipers.errors import UnsupportedError
from calipers.explorer.form import form_record
from calipers.explorer.requests import read_asked
from calipers.measure import measure
from calipers.probing.probe import probe
from calipers.run import Run
from calipers.samplers import SAMPLERS, scheme_of

PAGE = Path(__file__).parents[2] / "docs/explanation/samplers.md"
SIZES = {"dataset_size": 120, "batch_size": 12}
KEYS = {
    "truncated-poisson": {"epochs": 2, "max_batch_size": 14},
    "cyclic-poisson": {"epochs": 2, "cycle": 2},
    "random-allocation": {"steps": 20, "participations": 2},
}


def table() -> dict[str, dict[str, bool]]:
    """By sampler and column, whether the page says yes."""
    lines = PAGE.read_text().split("## What works with which")[1].split("\n\n")[1].splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: {name: cell == "yes" for name, cell in zip(rows[0][1:], row[1:], strict=True)} for row in rows[2:]}


def run_of(name: str) -> Run:
    return Run(sampler=name, noise_multiplier=2.0, **SIZES, **KEYS.get(name, {"epochs": 2}))


def drawn(run: Run) -> list[np.ndarray]:
    return list(scheme_of(run).sampler(run).batches(np.random.default_rng(0)))


def test_every_sampler_has_its_row():
    """In the order of the registry, each cell yes or no."""
    assert list(table()) == list(SAMPLERS)
    assert len({tuple(row) for row in table().values()}) == 1


@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_said_to_be_drawn_and_explored(name):
    """Batches as many as steps, and a run read from the page's request."""
    run, said = run_of(name), table()[name]
    assert said["draws"] is (len(drawn(run)) == run.total_steps)
    asked = read_asked({"run": run.to_dict()})
    assert said["explorer"] is (asked.runs == (run,) and name in str(form_record()))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_said_to_be_calibrated(name):
    """Noise for a target, which the run then meets."""
    found = calibrate(run_of(name), epsilon=4.0, delta=1e-3)
    assert table()[name]["calibrate"] is (measure(found).epsilon(1e-3).upper <= 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_said_to_be_certified(name):
    """A certificate, or the reason why there is none."""
    pytest.importorskip("flint", reason="certificates come with the extra verify")
    if table()[name]["certify"]:
        assert certify(run_of(name), delta=1e-3)
    else:
        with pytest.raises(UnsupportedError, match="No certificate can be had yet for"):
            certify(run_of(name), delta=1e-3)


@pytest.mark.parametrize("name", SAMPLERS)
def test_what_a_probe_is_said_to_know(name):
    """A loop with the sampler's own batches is read as the sampler, or the report says that no run is told apart."""

    class Loop:
        dimension, noise_multiplier, max_grad_norm = 50, 2.0, 1.0

        def __init__(self, dataset_size, batch_size):
            self.size, self.batch = dataset_size, batch_size
            self.steps_per_epoch = dataset_size // batch_size

        def batches(self, epochs, rng):
            keys = {"dataset_size": self.size, **KEYS.get(name, {}), "epochs": epochs, "batch_size": self.batch}
            if name == "random-allocation":
                keys = {"dataset_size": self.size, "steps": epochs * self.steps_per_epoch, "participations": epochs}
            run = Run(sampler=name, noise_multiplier=2.0, **keys)
            return scheme_of(run).sampler(run).batches(rng)

        def update(self, gradients, rng):
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            total = (gradients / np.maximum(1.0, norms)).sum(axis=0)
            return (total + 2.0 * rng.normal(size=self.dimension)) / self.batch

    report = probe(Loop, **SIZES)
    if table()[name]["probe"]:
        assert report.run is not None
        assert report.run.sampler == name
    else:
        assert report.run is None
        assert report.reason == "No Run that a probe can tell apart describes this sampler."


@pytest.mark.torch
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_said_to_train(name):
    """The run of a training is that of its sampler."""
    torch = pytest.importorskip("torch")
    from calipers.training import Plan, train

    rng = np.random.default_rng(0)
    records = rng.normal(size=(120, 3)).astype(np.float32)
    plan = Plan(sampler=scheme_of(run_of(name)).sampler(run_of(name)), noise_multiplier=2.0, learning_rate=0.1)
    trained = train(plan, torch.nn.Linear(3, 2), records, (records[:, 0] > 0).astype(np.int64), device="cpu")
    assert table()[name]["train"] is (trained.run().sampler == name)


def test_what_is_said_to_be_attached():
    """Samplers that tie all of their steps together are those that cannot be watched (tests/adapters)."""
    for name, said in table().items():
        scheme = scheme_of(run_of(name))
        assert said["attach"] is (scheme.stepwise or scheme.whole_epochs)
