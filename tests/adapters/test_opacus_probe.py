"""The probe finds in the installed Opacus what its arithmetic says, with the real loader and the real step."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

from calipers.adapters.opacus_probe import OpacusConfiguration
from calipers.errors import UnsupportedError
from calipers.opacus_releases import opacus_numbers, release_of
from calipers.probing.lens import Lens
from calipers.probing.probe import probe
from calipers.probing.sizes import step_numbers

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = pytest.mark.opacus


def probed(size: int, batch: int, **settings: Any) -> Any:
    return probe(functools.partial(OpacusConfiguration, **settings), dataset_size=size, batch_size=batch)


def divisor_of(size: int, batch: int) -> float:
    lens = Lens(functools.partial(OpacusConfiguration, dimension=50), size, batch, 0)
    return step_numbers(lens, batch, (1, 2, 3)).divisor


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_the_default_divides_by_a_floor_that_moves_with_the_rate(mode: str) -> None:
    """From 1000 to 1001 records in batches of 100: rate 1/10 to 1/11, divisor 100 to 91."""
    if mode == "ghost" and "criterion" not in inspect.signature(opacus.PrivacyEngine.make_private).parameters:
        with pytest.raises(UnsupportedError, match=f"Opacus {opacus.__version__} has no grad_sample_mode='ghost'"):
            probed(1000, 100, grad_sample_mode=mode)
        return
    report = probed(1000, 100, grad_sample_mode=mode)
    assert report.finding("sampler").verdict.startswith("not distinguished from Poisson")
    assert report.finding("sample rate").verdict == "samples at 1/10"
    assert not report.finding("accounting").alarm
    assert report.finding("divisor").verdict == "floor(N q), 100"
    assert "N = 1001: 11 steps, accounted rate 1/11, divisor 91" in report.finding("neighbors").evidence
    assert report.run.normalization == "floor"
    assert "public constants" in report.caveats[0]
    for subject in ("noise", "noise correlation", "noise and batch size", "clipping", "empty batch"):
        assert not report.finding(subject).alarm


def test_sums_are_released_as_they_are() -> None:
    """loss_reduction="sum": nothing is divided, the rate still moves."""
    report = probed(1001, 100, loss_reduction="sum")
    assert report.finding("divisor").verdict.startswith("nothing")
    assert report.run.normalization == "none"


def test_without_poisson_sampling_the_loader_shuffles() -> None:
    """And the accountant is still told a Poisson rate."""
    report = probed(60, 10, poisson_sampling=False)
    assert report.run.sampler == "shuffle"
    assert report.finding("sample rate").alarm


@pytest.mark.parametrize(("size", "batch"), [(49, 1), (98, 2), (3, 2), (4, 2), (501, 100)])
def test_one_step_has_the_divisor_of_the_arithmetic(size: int, batch: int) -> None:
    """Zero at 49 records in batches of one: NaN."""
    configuration = OpacusConfiguration(size, batch, dimension=50)
    computed = opacus_numbers(opacus.__version__, dataset_size=size, batch_size=batch)
    assert divisor_of(size, batch) == pytest.approx(computed.divisor, rel=1e-5)
    assert configuration.steps_per_epoch == computed.steps_per_epoch
    assert configuration.accounted() == (computed.accounted_rate, 1.0)


def test_sampled_and_accounted_rates_differ_at_50000_records_in_batches_of_128() -> None:
    """The loader draws at 1/391, the accountant is told 1/390; nothing moves there and the divisor is 128."""
    configuration = OpacusConfiguration(50_000, 128, dimension=50)
    assert configuration._loop.loader.sample_rate == 1 / 391
    assert configuration.accounted()[0] == 1 / 390
    assert divisor_of(50_000, 128) == pytest.approx(128, rel=1e-5)


@pytest.mark.slow
def test_the_probe_sees_that_difference() -> None:
    """By counting some seven million inclusions."""
    report = probed(50_000, 128)
    assert report.finding("accounting").verdict == "accounts at 1/390, but samples at 1/391"
    assert report.finding("accounting").alarm
    assert report.run.sample_rate == 1 / 391
    assert report.run.normalization == "constant"


def test_expanded_weights_cannot_take_an_empty_batch() -> None:
    """grad_sample_mode="ew" fails on a batch that Poisson sampling draws sooner or later."""
    finding = probed(1000, 100, grad_sample_mode="ew").finding("empty batch")
    assert finding.alarm
    assert "raised" in finding.evidence


def test_the_installed_release_is_in_the_table() -> None:
    """Otherwise `Run.from_opacus` cannot speak about it."""
    assert release_of(opacus.__version__).normalization == "floor"


def test_the_loader_draws_what_the_generator_says() -> None:
    """Equal seeds, equal batches; other seeds, others."""
    configuration = OpacusConfiguration(100, 10)
    first, again, other = (
        np.concatenate(list(configuration.batches(1, np.random.default_rng(seed)))) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
