"""Releases of Opacus as runs: the divisors of Table 2, the arithmetic of the loader, and what no run can say."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import CalipersWarning, ConditionError, InputError, UnsupportedError
from calipers.opacus_releases import RELEASES, VERSIONS, neighbors, opacus_numbers, quiet_size, release_of, run_keys
from calipers.run import Run

NEWEST = "1.6.0"


@pytest.mark.parametrize(
    ("version", "normalization", "mechanism"),
    [
        ("0.9.1", "realized", "not supported"),
        ("0.13.0", "realized", "ASGM"),
        ("0.14.0", "expected", "EASGM"),
        ("0.15.0", "expected", "EASGM"),
        ("1.0.0", "floor", "FEASGM"),
        ("1.4.1", "floor", "FEASGM"),
        ("1.5.4", "floor", "FEASGM"),
        ("1.6.0", "floor", "FEASGM"),
    ],
)
def test_table_2(version: str, normalization: str, mechanism: str) -> None:
    """The classification printed by Wang et al., and the release after their last."""
    release = release_of(version)
    assert (release.normalization, release.mechanism) == (normalization, mechanism)


def test_every_release_appears_once_and_says_how_it_was_checked() -> None:
    """26 releases; no version in two entries."""
    assert len(VERSIONS) == len(set(VERSIONS)) == 26
    assert {release.verified for release in RELEASES} == {"read", "read and run"}


def test_the_two_ways_to_write_1_5_mean_the_same() -> None:
    """PyPI calls it 1.5."""
    assert release_of("1.5.0") is release_of("1.5")


@pytest.mark.parametrize("version", ["1.7", "2.0.0", "", None, 1.6])
def test_an_unknown_release_is_refused_with_the_known_ones(version: object) -> None:
    """Nobody has looked at it, so nothing is said about it."""
    with pytest.raises(InputError, match=r"1\.6\.0.*calipers probe opacus"):
        release_of(version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dataset_size", "batch_size", "sampled", "accounted", "steps", "divisor"),
    [
        (1000, 100, 10, 10, 10, 100),
        (1001, 100, 11, 11, 11, 91),
        (60_000, 600, 100, 100, 100, 600),
        (60_001, 600, 101, 101, 101, 594),
        # 1/(1/391) falls short of 391.
        (50_000, 128, 391, 390, 390, 128),
        # 98 * (1/49) falls short of 2, 49 * (1/49) of 1.
        (98, 2, 49, 49, 49, 1),
        (49, 1, 49, 49, 49, 0),
        (3, 2, 2, 2, 2, 1),
        (4, 2, 2, 2, 2, 2),
    ],
)
def test_the_arithmetic_of_releases_from_1_0_on(
    dataset_size: int, batch_size: int, sampled: int, accounted: int, steps: int, divisor: int
) -> None:
    """Values read off the library itself."""
    found = opacus_numbers(NEWEST, dataset_size=dataset_size, batch_size=batch_size)
    assert found.sampled_rate == 1 / sampled
    assert found.accounted_rate == 1 / accounted
    assert (found.steps_per_epoch, found.divisor) == (steps, divisor)


def test_a_loader_that_drops_its_last_batch_has_another_rate() -> None:
    """floor(N/B) batches: 10 of 1050 records, and from 1399 to 1400 records 13 become 14. Fewer than B make none."""
    assert opacus_numbers(NEWEST, dataset_size=1050, batch_size=100, drop_last=True).sampled_rate == 1 / 10
    run = Run.from_opacus(
        NEWEST, dataset_size=1050, batch_size=100, drop_last=True, epochs=2, noise_multiplier=1.0, loss_reduction="sum"
    )
    assert (run.sample_rate, run.total_steps) == (1 / 10, 20)
    settings = {"batch_size": 100, "drop_last": True, "epochs": 1, "noise_multiplier": 1.0}
    with pytest.raises(UnsupportedError, match=r"N = 1399: rate 1/13.*N = 1400: rate 1/14"):
        Run.from_opacus(NEWEST, dataset_size=1399, **settings)
    with pytest.raises(InputError, match="is empty"):
        Run.from_opacus(NEWEST, dataset_size=99, **settings)


@given(st.integers(2, 10**6), st.integers(1, 10**4))
def test_rounding_loses_at_most_one(dataset_size: int, batch_size: int) -> None:
    """Against exact rationals: L' is L or L - 1, and the divisor is floor(N/L') or one less."""
    found = opacus_numbers(NEWEST, dataset_size=dataset_size, batch_size=batch_size)
    batches = math.ceil(Fraction(dataset_size, batch_size))
    assert found.steps_per_epoch in (batches, batches - 1)
    assert found.divisor in (dataset_size // found.steps_per_epoch, dataset_size // found.steps_per_epoch - 1)


@given(st.integers(10, 10**5), st.integers(4, 500))
def test_a_run_has_the_divisors_that_opacus_computes(dataset_size: int, batch_size: int) -> None:
    """Whatever is not refused: the rate is the sampled one, and "floor" and "constant" are true at all three sizes."""
    try:
        run = Run.from_opacus(NEWEST, dataset_size=dataset_size, batch_size=batch_size, epochs=1, noise_multiplier=1.0)
    except (UnsupportedError, ConditionError):
        return
    around = neighbors(NEWEST, dataset_size, batch_size=batch_size)
    assert {entry.sampled_rate for entry in around} == {run.rate}
    assert {entry.steps_per_epoch for entry in around} == {run.total_steps}
    if run.normalization == "floor":
        assert [entry.divisor for entry in around] == [int(entry.dataset_size * run.rate) for entry in around]
    else:
        assert run.normalization == "constant"
        assert len({entry.divisor for entry in around}) == 1


def test_a_rate_that_moves_is_refused_with_numbers_and_a_remedy() -> None:
    """60,000 records in batches of 600: one more record changes rate, steps and divisor; 59,998 is quiet."""
    with pytest.raises(UnsupportedError, match=r"rate 1/100, 100 steps, divisor 600.*rate 1/101.*594.*59998 records"):
        Run.from_opacus(NEWEST, dataset_size=60_000, batch_size=600, epochs=1, noise_multiplier=1.0)
    assert quiet_size(NEWEST, 60_000, batch_size=600) == 59_998
    quiet = neighbors(NEWEST, 59_998, batch_size=600)
    assert len({(entry.sampled_rate, entry.steps_per_epoch, entry.divisor) for entry in quiet}) == 1


def test_a_public_rate_must_be_said_aloud() -> None:
    """Then the run is described as if rate and steps were constants."""
    run = Run.from_opacus(
        NEWEST, dataset_size=60_000, batch_size=600, epochs=2, noise_multiplier=1.5, dimension=7, public_rate=True
    )
    assert run == Run(
        dataset_size=60_000, sample_rate=0.01, steps=200, noise_multiplier=1.5, normalization="floor", dimension=7
    )


def test_steps_that_are_given_are_kept() -> None:
    """50,000 records in batches of 128 are sampled at 1/391."""
    with pytest.warns(CalipersWarning, match=r"divides by 128, .* for N = 50,000 only"):
        keys = run_keys(NEWEST, dataset_size=50_000, batch_size=128, steps=10)
    assert keys["steps"] == 10
    assert keys["sample_rate"] == 1 / 391


def test_a_divisor_that_is_not_the_floor_of_the_sampled_rate_is_not_called_so() -> None:
    """128 = int(50,000/390) is not floor(50,000/391) = 127; it is the same for both neighbors: a constant."""
    with pytest.warns(CalipersWarning, match="divides by 128"):
        assert run_keys(NEWEST, dataset_size=50_000, batch_size=128, steps=1)["normalization"] == "constant"
    assert run_keys(NEWEST, dataset_size=59_999, batch_size=600, steps=1)["normalization"] == "floor"


def test_a_divisor_of_zero_is_refused() -> None:
    """49 records in batches of one: NaN gradients."""
    with pytest.raises(ConditionError, match=r"divides by int\(49 \* 0\.0204\d+\) = 0"):
        Run.from_opacus(NEWEST, dataset_size=49, batch_size=1, epochs=1, noise_multiplier=1.0, public_rate=True)


def test_sums_are_not_divided() -> None:
    """loss_reduction="sum" leaves only the rate to move."""
    run = Run.from_opacus(
        NEWEST, dataset_size=59_999, batch_size=600, epochs=1, noise_multiplier=1.0, loss_reduction="sum"
    )
    assert run.normalization == "none"


def test_before_1_0_a_sample_rate_divides_by_n_q_and_a_batch_size_by_a_constant() -> None:
    """0.15 divides by q N: q fixed makes it move, q = B/N makes it B. 0.13 divides by what came out."""
    fixed = {"dataset_size": 1000, "noise_multiplier": 1.0, "steps": 5}
    assert Run.from_opacus("0.15.0", sample_rate=0.01, **fixed).normalization == "expected"
    assert Run.from_opacus("0.15.0", batch_size=10, public_rate=True, **fixed).normalization == "constant"
    assert Run.from_opacus("0.13.0", sample_rate=0.01, **fixed).normalization == "realized"
    with pytest.raises(UnsupportedError, match=r"rate 1/99\.9"):
        Run.from_opacus("0.15.0", batch_size=10, **fixed)


@pytest.mark.parametrize(
    ("version", "settings", "message"),
    [
        ("0.11.0", {"batch_size": 10, "steps": 1}, "cannot sample by Poisson"),
        (NEWEST, {"sample_rate": 0.1, "steps": 1}, "give batch_size"),
        (NEWEST, {"steps": 1}, "exactly one of batch_size and sample_rate"),
        (NEWEST, {"batch_size": 10, "sample_rate": 0.1, "steps": 1}, "exactly one of batch_size and sample_rate"),
        (NEWEST, {"batch_size": 10}, "how long the run is"),
        (NEWEST, {"batch_size": 10, "steps": 1, "epochs": 1}, "how long the run is"),
        (NEWEST, {"batch_size": 0, "steps": 1}, "batch_size"),
        (NEWEST, {"batch_size": True, "steps": 1}, "batch_size"),
        (NEWEST, {"batch_size": 10, "epochs": 0}, "epochs"),
        (NEWEST, {"batch_size": 10, "steps": 1, "loss_reduction": "median"}, "loss_reduction"),
        ("0.15.0", {"sample_rate": math.nan, "steps": 1}, "sample_rate"),
        ("0.15.0", {"batch_size": 2000, "steps": 1}, "batch_size"),
    ],
)
def test_bad_settings_are_named(version: str, settings: dict[str, object], message: str) -> None:
    """Each with the word to look for."""
    with pytest.raises((InputError, UnsupportedError), match=message):
        Run.from_opacus(version, dataset_size=1005, noise_multiplier=1.0, **settings)


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        ({"poisson_sampling": False}, r"takes no poisson_sampling.*Run\(sampler='shuffle', last_batch='keep', norm"),
        ({"sampler": "shuffle"}, r"takes no sampler.*Run\(sampler='shuffle'"),
        ({"adjacency": "zero-out"}, r"Run.from_opacus\(...\)\.replace\(adjacency='zero-out'\)"),
        ({"max_grad_norm": 1.0}, r"'max_grad_norm'\. The clipping norm is no part of a run"),
        ({"sigma": 1.0}, "did you mean 'noise_multiplier'"),
        ({"lossreduction": "sum"}, "did you mean 'loss_reduction'"),
        ({"anything": 1}, "the keys are dataset_size, noise_multiplier, .*public_rate"),
        ({"noise_multiplier": None}, "needs noise_multiplier: add it"),
        ({"noise_multiplier": None, "dataset_size": None}, "needs dataset_size and noise_multiplier: add them"),
    ],
)
def test_a_setting_that_is_not_taken_is_refused_with_what_to_write(setting: dict[str, object], written: str) -> None:
    """As `Run` itself does, and never by a TypeError about a function that the caller does not know."""
    usual = {"dataset_size": 1050, "batch_size": 100, "epochs": 2, "noise_multiplier": 1.0}
    with pytest.raises(InputError, match=written):
        Run.from_opacus(NEWEST, **usual | setting)


def test_what_the_refusal_of_a_sampler_says_to_write_is_a_run() -> None:
    """1,050 records in batches of 100, the last of 50, twice."""
    run = Run(
        dataset_size=1050, batch_size=100, epochs=2, noise_multiplier=1.0, dimension=10,
        sampler="shuffle", last_batch="keep", normalization="floor",
    )  # fmt: skip
    assert run.total_steps == 22
