"""`calipers probe` on a loop of one's own: the address, the table, the JSON, the refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calipers.cli.probe import probe_command
from calipers.errors import InputError

# The example of calipers.probing.protocol, with Poisson sampling.
MINE = """
import numpy

class Loop:
    dimension, noise_multiplier, max_grad_norm = 1000, 1.0, 1.0

    def __init__(self, dataset_size, batch_size):
        self.size, self.batch = dataset_size, batch_size
        self.steps_per_epoch = dataset_size // batch_size

    def batches(self, epochs, rng):
        for _ in range(epochs * self.steps_per_epoch):
            yield numpy.flatnonzero(rng.random(self.size) < 1 / self.steps_per_epoch)

    def update(self, gradients, rng):
        norms = numpy.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients / numpy.maximum(1.0, norms)
        return (clipped.sum(axis=0) + rng.normal(size=1000)) / self.batch

def half(dataset_size, batch_size):
    return object()

def alone():
    return Loop(90, 10)

class Broken(Loop):
    def update(self, gradients, rng):
        return self.missing
"""


def called(*arguments: str) -> Result:
    return CliRunner().invoke(probe_command, [*arguments, "--dataset-size", "90", "--batch-size", "10"])


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probed_here.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_json_names_the_run() -> None:
    """A loop that says nothing about accounting is described by what it does; 90 records fill 9 batches, 89 only 8."""
    result = called("probed_here:Loop", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.output)
    assert record["run"]["normalization"] == "constant"
    assert record["run"]["sample_rate"] == pytest.approx(1 / 9, abs=0)
    assert [finding["subject"] for finding in record["findings"] if finding["alarm"]] == ["neighbors"]


def test_the_table_shows_findings_and_the_run() -> None:
    """The run is printed the way a run file is written."""
    result = called("probed_here:Loop")
    assert result.exit_code == 0, result.output
    assert "Poisson" in result.output
    assert 'normalization = "constant"' in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["probed_here:half"], "lacks dimension, noise_multiplier"),
        (["probed_here:Nothing"], "has no 'Nothing'"),
        (["probed_here:alone"], "cannot be called as function(dataset_size, batch_size)"),
        (["probed_here:Broken"], "raised AttributeError: 'Broken' object has no attribute 'missing' (line 28 of"),
        (["no address"], "module:function"),
        (["probed_here:Loop", "--loss-reduction", "sum"], "an option of Opacus"),
        (["probed_here:Loop", "--noise-multiplier", "2"], "chooses its own noise"),
    ],
)
def test_refusals_say_what_is_wrong(arguments: list[str], message: str) -> None:
    """An incomplete object, a wrong address, a mistake of its own with its line, an option of another target."""
    result = called(*arguments)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
