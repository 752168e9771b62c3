"""Built-in audit targets whose noise a PyTorch device draws, in all coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import distinguisher_for
from calipers.auditing.distinguishers import LikelihoodRatio
from calipers.errors import InputError

pytestmark = pytest.mark.torch


def sums(**changes: object) -> NoisySums:
    fields: dict[str, object] = {
        "others": 4,
        "sample_rate": 0.5,
        "noise_multiplier": 2.0,
        "dimension": 50,
        "normalization": "expected",
        "gradient": -1,
    }
    return NoisySums(**(fields | changes))  # type: ignore[arg-type]


def on_cpu(target: NoisySums, **changes: object) -> object:
    from calipers.adapters.torch_sums import TorchSums

    return TorchSums(target, "cpu", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("normalization", ["none", "expected", "floor", "realized"])
@pytest.mark.parametrize("present", [False, True])
def test_whole_vectors_have_the_law_of_the_sufficient_statistic(normalization: str, present: bool) -> None:
    """Means and variances of projection and rest agree within five standard errors; those of a wrong sigma do not."""
    target = sums(normalization=normalization)
    ours = on_cpu(target).outputs(present, 20_000, np.random.default_rng(0)).reshape(-1, 2)  # type: ignore[attr-defined]
    exact = target.outputs(present, 20_000, np.random.default_rng(1)).reshape(-1, 2)
    wrong = sums(normalization=normalization, noise_multiplier=2.1)
    other = wrong.outputs(present, 20_000, np.random.default_rng(2)).reshape(-1, 2)

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        spread = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second))
        means = np.abs(first.mean(axis=0) - second.mean(axis=0)) / spread
        return float(means.max())

    assert distance(ours, exact) < 5.0
    assert distance(other, exact) > 5.0


def test_small_blocks_change_nothing_but_the_stream() -> None:
    """The block only says how much is held at a time: shapes and finiteness stay."""
    found = on_cpu(sums(epochs=3), block=60).outputs(True, 7, np.random.default_rng(0))  # type: ignore[attr-defined]
    assert found.shape == (7, 3, 2)
    assert np.isfinite(found).all()
    assert (found[..., 1] > 0).all()


def test_the_same_generator_gives_the_same_outputs() -> None:
    target = on_cpu(sums())
    first, second = (target.outputs(True, 5, np.random.default_rng(3)) for _ in range(2))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(first, second)
    third = target.outputs(True, 5, np.random.default_rng(4))  # type: ignore[attr-defined]
    assert not np.array_equal(first, third)


def test_it_is_scored_by_the_likelihood_ratio_of_its_law() -> None:
    target = on_cpu(sums())
    assert isinstance(distinguisher_for(target), LikelihoodRatio)  # type: ignore[arg-type]
    assert target.identity()["target"] == "torch-sums"  # type: ignore[attr-defined]


def test_an_unknown_device_is_refused() -> None:
    from calipers.adapters.torch_sums import TorchSums

    with pytest.raises(InputError, match="device"):
        TorchSums(sums(), "cuda:99")
