"""Shuffled runs as people have them: records left over or not, kept last batches, one order, mixed phases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.measure import measure
from calipers.numerics.normal import gaussian_epsilon
from calipers.run import Run


def shuffled(size: int, batch: int, sigma: float, epochs: int, **more: object) -> Run:
    """With a record that is zeroed out; `test_add_remove_shuffled` adds and removes one."""
    more.setdefault("adjacency", "zero-out")
    return Run(
        dataset_size=size,
        batch_size=batch,
        noise_multiplier=sigma,
        epochs=epochs,
        sampler="shuffle",
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("size", "batch", "sigma", "epochs", "lower", "upper"),
    [
        (10_005, 100, 1.0, 10, 9.464, 9.70),
        pytest.param(60_000, 256, 1.1, 60, 11.45, 11.85, marks=pytest.mark.slow),
        pytest.param(50_000, 512, 0.9, 100, 46.33, 47.9, marks=pytest.mark.slow),
        pytest.param(60_000, 256, 2.0, 60, 1.70, 1.90, marks=pytest.mark.slow),
    ],
)
def test_many_epochs_nearly_close(size: int, batch: int, sigma: float, epochs: int, lower: float, upper: float) -> None:
    """Where a record is left over: at most four percent for little noise, around an independent prototype's values."""
    found = measure(shuffled(size, batch, sigma, epochs)).epsilon(1e-5)
    assert lower <= found.lower * 1.0005
    assert found.upper <= upper
    if sigma < 2.0:
        assert found.upper <= 1.04 * found.lower
    assert found.upper_evidence.source.startswith("Calipers")


@pytest.mark.slow
def test_nothing_left_over_is_below_its_targets() -> None:
    """N 60,000 in batches of 240: below 20, where fixed batches give 54; ten thousand records at sigma 2 below 1.4."""
    sixty = measure(shuffled(60_000, 240, 1.1, 60)).epsilon(1e-5)
    assert 11.0 < sixty.lower < sixty.upper < 20.0
    assert measure(shuffled(10_000, 100, 2.0, 1)).epsilon(1e-6).upper < 1.4


def test_a_kept_last_batch_can_be_described() -> None:
    """50,000 records in batches of 512 are 98 batches in PyTorch's default loader, and its 98 steps are accepted."""
    run = shuffled(50_000, 512, 4.0, 1, last_batch="keep")
    assert (run.steps_per_epoch, run.total_steps) == (98, 98)
    assert run.replace(steps=98) == run.replace(epochs=1).replace(steps=98)
    with pytest.raises(InputError, match="98 batches if the last, shorter batch is kept"):
        shuffled(50_000, 512, 4.0, 1).replace(steps=98)
    with pytest.raises(InputError, match="last_batch"):
        Run(dataset_size=50_000, batch_size=512, epochs=1, noise_multiplier=1.0, last_batch="keep")
    kept, dropped = measure(run).epsilon(1e-5), measure(run.replace(last_batch="drop")).epsilon(1e-5)
    assert dropped.lower <= kept.lower * (1.0 + 1e-9)
    assert dropped.upper < kept.upper < gaussian_epsilon(0.25, 1e-5)
    assert any("drop" in note for note in measure(run).notes)


def test_one_order_for_all_epochs_is_bounded_by_fixed_batches() -> None:
    """The attack repeats itself, at noise sigma / sqrt(E); more is not proven than for fixed batches."""
    once = measure(shuffled(10_005, 100, 3.0, 4, reshuffle="once")).epsilon(1e-5)
    single = measure(shuffled(10_005, 100, 1.5, 1)).epsilon(1e-5)
    assert once.upper == pytest.approx(gaussian_epsilon(2.0 / 3.0, 1e-5), rel=1e-9)
    assert 0.98 * single.lower <= once.lower < once.upper
    assert measure(shuffled(10_005, 100, 3.0, 4)).epsilon(1e-5).upper < once.lower
    with pytest.raises(InputError, match="reshuffle"):
        Run(sample_rate=0.01, steps=100, noise_multiplier=1.0, reshuffle="once")


def test_unknown_sizes_are_read_as_fixed_batches() -> None:
    """Without sizes nobody knows whether a record is left over, and the note says what to give."""
    found = measure(Run(sample_rate=0.01, steps=100, noise_multiplier=2.0, sampler="shuffle"))
    assert found.epsilon(1e-5).upper == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-9)
    assert any("dataset_size and batch_size" in note for note in found.notes)


def test_replaced_records_and_mixed_phases() -> None:
    """Both adjacencies, a shuffled phase beside a Poisson one: between attack and fixed batches, curves included."""
    replaced = measure(shuffled(1005, 10, 3.0, 1, adjacency="substitute"))
    assert replaced.epsilon(1e-5).lower < replaced.epsilon(1e-5).upper < gaussian_epsilon(2.0 / 3.0, 1e-5)
    poisson = Run(dataset_size=1005, batch_size=10, steps=100, noise_multiplier=3.0, adjacency="zero-out")
    phases = measure([shuffled(1005, 10, 3.0, 1, adjacency="zero-out"), poisson])
    alone = measure(shuffled(1005, 10, 3.0, 1, adjacency="zero-out"))
    assert alone.epsilon(1e-5).lower <= phases.epsilon(1e-5).upper
    assert phases.epsilon(1e-5).lower <= phases.epsilon(1e-5).upper
    tpr = phases.tpr(0.01)
    assert 0.01 <= tpr.lower <= tpr.upper < 0.2
    mu = alone.gdp().mu
    assert 0.0 < mu.lower <= mu.upper <= 1.0 / 3.0 * (1.0 + 1e-9)


def test_upper_jaws_fall_with_noise_and_grow_with_epochs() -> None:
    """Monotone where the truth is: noise and epochs."""
    noise = [measure(shuffled(2005, 20, sigma, 1)).epsilon(1e-5).upper for sigma in (0.8, 1.2, 2.0)]
    assert noise == sorted(noise, reverse=True)
    epochs = [measure(shuffled(205, 20, 1.5, count)).epsilon(1e-5).upper for count in (1, 2, 5)]
    assert epochs == sorted(epochs)


def random_run(rng: np.random.Generator) -> Run:
    """sigma 0.3 to 20, M 1 to 1e6, E 1 to 1000, all adjacencies, last batches kept or dropped, one order at times."""
    batches = int(10 ** rng.uniform(0.0, 6.0))
    batch = int(rng.integers(1, 400))
    rest = int(rng.integers(0, batch)) if batches > 1 else int(10 ** rng.uniform(0.0, 3.0) * batch) % batch
    keeps = bool(rng.random() < 0.3)
    return shuffled(
        batches * batch + rest,
        batch,
        float(np.exp(rng.uniform(math.log(0.3), math.log(20.0)))),
        int(10 ** rng.uniform(0.0, 3.0)),
        adjacency=str(rng.choice(["zero-out", "substitute", "add-remove"])),
        last_batch="keep" if keeps else "drop",
        reshuffle="once" if rng.random() < 0.1 else "every-epoch",
    )


def crossing(run: Run, delta: float) -> str | None:
    """Why a run's bracket is wrong, or None."""
    try:
        found = measure(run).epsilon(delta)
    except UnsupportedError:
        return None if run.adjacency == "add-remove" else f"{run}: refused"  # a record more or fewer is a batch more
    except CalipersError as error:
        return f"{run}: {error}"
    # In a known batch: a record that takes another one's place, and in a kept last batch one that joins.
    moved = {"zero-out": 1.0, "substitute": 2.0, "add-remove": math.sqrt(4.0 + (run.last_batch == "keep"))}
    shift = moved[run.adjacency] / run.noise_multiplier
    fixed = gaussian_epsilon(math.sqrt(run.total_epochs or 0) * shift, delta)
    if not 0.0 <= found.lower <= found.upper <= fixed * (1.0 + 1e-9) + 1e-12:
        return f"{run}: {found} beside fixed batches {fixed}"
    return None


@pytest.mark.parametrize(
    "seed", [0, 1, 3, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_random_runs_do_not_cross(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert crossing(random_run(rng), float(10 ** rng.uniform(-9.0, -2.0))) is None


def test_a_length_in_steps_is_the_length_in_epochs() -> None:
    """Where a short last batch is kept, an epoch has one step more; both ways to say the length give one bracket."""
    keys = {"dataset_size": 42, "batch_size": 10, "noise_multiplier": 4.0, "sampler": "shuffle", "last_batch": "keep"}
    by_epochs, by_steps = measure(Run(**keys, epochs=2)).epsilon(1e-5), measure(Run(**keys, steps=10)).epsilon(1e-5)
    assert (by_epochs.lower, by_epochs.upper) == (by_steps.lower, by_steps.upper)
