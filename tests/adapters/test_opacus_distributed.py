"""Two processes train together: each sees its own draws, and there is one bracket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calipers.measure import measure
from calipers.run import Run

pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = pytest.mark.opacus

PROGRAM = Path(__file__).with_name("two_processes.py")
SOURCE = Path(__file__).parents[2] / "src"
TOGETHER = Run(dataset_size=1050, sample_rate=1 / 11, steps=22, noise_multiplier=1.0)


def trained(situation: str, meeting: Path) -> list[dict]:
    """What each of the two processes said."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(meeting), situation],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    answers = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0, 0], answers
    return [json.loads(out) for out, _ in answers]


@pytest.mark.parametrize("situation", ["flat", pytest.param("ghost", marks=pytest.mark.slow)])
def test_two_processes_are_one_run(situation: str, tmp_path: Path) -> None:
    """Each record is drawn at the same rate on one of them, and the noise is added once; alone nobody knows that."""
    answers = trained(situation, tmp_path / "meeting")
    expected = measure(TOGETHER).epsilon(1e-5)
    for answer in answers:
        assert answer["alone"] == [0.0, float("inf")]
        assert answer["together"] == [expected.lower, expected.upper]
        assert (answer["steps"], answer["drawn here"], answer["why_not"]) == (22, 22, [])
        assert Run.from_dict(answer["runs"][0]).replace(dimension=None) == TOGETHER


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        ("twins", "from the same random numbers"),
        pytest.param("small", "skips a batch that is empty on one of them", marks=pytest.mark.slow),
        pytest.param("uneven", "different numbers of steps, or with different noise", marks=pytest.mark.slow),
    ],
)
def test_processes_that_do_not_fit_together(situation: str, reason: str, tmp_path: Path) -> None:
    """Nothing is proven, and both say why."""
    for answer in trained(situation, tmp_path / "meeting"):
        assert reason in answer["why_not"][0]
        assert answer["together"] == [0.0, float("inf")]


@pytest.mark.slow
@pytest.mark.parametrize("situation", ["per layer", "mean"])
def test_the_other_ways_to_clip_and_divide(situation: str, tmp_path: Path) -> None:
    """Per-layer norms add up to the one that the noise has; the mean divides by floor(N q), the same at all sizes."""
    expected = measure(TOGETHER).epsilon(1e-5)
    for answer in trained(situation, tmp_path / "meeting"):
        assert answer["together"] == [expected.lower, expected.upper]


def test_a_sharded_model_is_one_run(tmp_path: Path) -> None:
    """FSDP divides the sum of two processes by two; noise for a sum is then twice as large beside it as was asked for.

    What FSDP and Opacus released is compared with gradients that were clipped one by one.
    """
    pytest.importorskip("opacus.utils.fsdp_utils", reason="comes with Opacus 1.6")
    run = TOGETHER.replace(noise_multiplier=2.0)
    expected = measure(run).epsilon(1e-5)
    for answer in trained("sharded", tmp_path / "meeting"):
        assert (answer["why_not"], answer["alone"]) == ([], [0.0, float("inf")])
        assert Run.from_dict(answer["runs"][0]).replace(dimension=None) == run
        assert answer["together"] == [expected.lower, expected.upper]
        _check_release(answer["released"], share=0.5, deviation=1.0)


def _check_release(released: dict, *, share: float, deviation: float) -> None:
    """The share of the sum that arrived, and the noise of one coordinate within four standard errors."""
    assert released["sum"] == pytest.approx(share, rel=1e-5)
    assert abs(released["deviation"] / deviation - 1) < 4 / (2 * released["count"]) ** 0.5 < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("situation", "noise", "share", "deviation"),
    [("sharded mean", 1.0, 0.5, 0.5), ("sharded thirds", 3.0, 1 / 3, 1.0)],
)
def test_sharded_noise_is_read_as_it_was_added(
    situation: str, noise: float, share: float, deviation: float, tmp_path: Path
) -> None:
    """For the mean Opacus divides the noise by the processes too; whoever sets FSDP's divisor changes the noise."""
    pytest.importorskip("opacus.utils.fsdp_utils", reason="comes with Opacus 1.6")
    expected = measure(TOGETHER.replace(noise_multiplier=noise)).epsilon(1e-5)
    for answer in trained(situation, tmp_path / "meeting"):
        assert answer["together"] == [expected.lower, expected.upper]
        _check_release(answer["released"], share=share, deviation=deviation)


@pytest.mark.slow
def test_sharded_models_that_share_noise_or_leave_layers_out(tmp_path: Path) -> None:
    """One seed, one number apart: the same numbers are noise of different coordinates. A layer that is not sharded."""
    pytest.importorskip("opacus.utils.fsdp_utils", reason="comes with Opacus 1.6")
    for answer in trained("sharded shifted", tmp_path / "meeting"):
        assert any("noise of different coordinates" in reason for reason in answer["why_not"])
        assert answer["together"] == [0.0, float("inf")]
    for answer in trained("sharded in part", tmp_path / "another"):
        assert "not sharded once over all processes" in answer["refused"]
