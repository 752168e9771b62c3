"""`AdaptiveRun`: measured from both sides, for every sampler that has pairs, and refused where it has none."""

from __future__ import annotations

import math

import pytest

import calipers as cp
from calipers.adaptive import load_adaptive
from calipers.disclosure import disclose

RATE = 0.05
EXAMPLE = {
    "start": cp.Run(sample_rate=RATE, steps=20, noise_multiplier=1.0),
    "many": cp.Run(sample_rate=RATE, steps=400, noise_multiplier=2.0),
    "one": cp.Run(sample_rate=RATE, steps=1, noise_multiplier=0.699),
}


@pytest.mark.slow
def test_choosing_by_the_released_likelihood_ratio_exceeds_the_number_of_every_path() -> None:
    """20 steps, then 400 quiet or one sharp: an attack shows 3.007 where each path is proven to have 2.855."""
    found = cp.measure(cp.AdaptiveRun(EXAMPLE, {"start": 1, "many": 2, "one": 2}, 3)).epsilon(1e-5)
    assert 3.007 <= found.lower <= found.upper <= 1.01 * found.lower
    for path in (("start", "many"), ("start", "one")):
        assert cp.measure([EXAMPLE[name] for name in path]).epsilon(1e-5).upper < 2.856 < found.lower


SINGLE = {
    "poisson": cp.Run(sample_rate=0.1, steps=1, noise_multiplier=1.0),
    "fixed batches": cp.Run(
        dataset_size=1000, batch_size=100, steps=1, noise_multiplier=2.0, sampler="without-replacement"
    ),
    "bins": cp.Run(dataset_size=1000, batch_size=100, epochs=1, noise_multiplier=2.0, sampler="balls-and-bins"),
    "fixed order": cp.Run(dataset_size=1000, batch_size=100, epochs=1, noise_multiplier=4.0, sampler="deterministic"),
    "substitute": cp.Run(sample_rate=0.1, steps=1, noise_multiplier=2.0, adjacency="substitute"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_one_kind_of_step_loses_nothing(name: str) -> None:
    """Ten steps of one kind are the fixed run of ten: both brackets hold the same truth, and are narrow."""
    step = SINGLE[name]
    adaptive = cp.measure(cp.AdaptiveRun([step], [1], 10)).epsilon(1e-5)
    fixed = cp.measure(step.replace(steps=10 * step.total_steps)).epsilon(1e-5)
    assert adaptive.lower <= fixed.upper
    assert fixed.lower <= adaptive.upper
    assert adaptive.relative_width <= 0.01


@pytest.mark.slow
def test_a_shuffled_epoch_is_a_step() -> None:
    """The proof about a shuffled epoch and the attack on it go into the recursion as they are."""
    step = cp.Run(dataset_size=1001, batch_size=100, epochs=1, noise_multiplier=2.0, sampler="shuffle")
    adaptive = cp.measure(cp.AdaptiveRun([step], [1], 5)).epsilon(1e-5)
    fixed = cp.measure(step.replace(epochs=5)).epsilon(1e-5)
    assert adaptive.lower <= fixed.upper
    assert fixed.lower <= adaptive.upper
    assert adaptive.upper <= 1.01 * fixed.upper


def test_gaussian_releases_of_one_kind_are_one_gaussian() -> None:
    """Closed form: n releases of mu are sqrt(n) mu."""
    run = cp.AdaptiveRun({"release": cp.Guarantee(mu=0.2)}, {"release": 2}, 9)
    assert cp.measure(run).epsilon(1e-5).upper == pytest.approx(
        cp.measure(cp.Guarantee(mu=0.4)).epsilon(1e-5).upper, rel=1e-12
    )


def test_a_larger_budget_never_shows_less() -> None:
    """The upper bound at budget 3 is at least the attack at budget 2."""
    menu = {"a": cp.Guarantee(epsilon=0.3, delta=0.0), "b": cp.Guarantee(epsilon=0.7, delta=0.0)}
    small, large = (cp.measure(cp.AdaptiveRun(menu, {"a": 1, "b": 2}, c)).delta(0.4) for c in (2, 3))
    assert small.lower <= large.upper
    assert small.lower < large.lower


def test_renyi_divergences_gain_nothing_from_choosing() -> None:
    """The largest sum of divergences within the budget: two cheap steps exceed one of the other kind."""
    cheap, dear = (cp.Run(sample_rate=0.2, steps=1, noise_multiplier=sigma) for sigma in (1.0, 0.95))
    found = cp.measure(cp.AdaptiveRun([cheap, dear], [1, 2], 3)).rdp(3.0)
    three = cp.measure(cheap.replace(steps=3)).rdp(3.0)
    assert found.lower <= three.upper
    assert three.lower <= found.upper
    assert found.relative_width < 1e-3


def test_gaussian_releases_chosen_adaptively_lose_nothing() -> None:
    """Sums of mu^2: two of 0.2 exceed one of 0.25, and no choice between them shows more."""
    menu = {"a": cp.Guarantee(mu=0.2), "b": cp.Guarantee(mu=0.25)}
    found = cp.measure(cp.AdaptiveRun(menu, {"a": 1, "b": 2}, 2)).epsilon(1e-5)
    alone = cp.measure(cp.Guarantee(mu=0.2, times=2)).epsilon(1e-5)
    assert found.lower <= alone.upper
    assert alone.lower <= found.upper
    assert found.relative_width < 1e-9


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (cp.Run(dataset_size=100, batch_size=10, epochs=1, noise_multiplier=1.0, sampler="shuffle", reshuffle="once"),
         "fresh"),
        (cp.Run(dataset_size=100, batch_size=10, steps=1, noise_multiplier=1.0, normalization="realized"), "divisor"),
    ],
)  # fmt: skip
def test_steps_without_a_pair_after_every_past_are_refused(step: cp.Run, said: str) -> None:
    """An order that persists, a divisor that moves: no pair dominates the next step whatever was released."""
    with pytest.raises(cp.UnsupportedError, match=said):
        cp.measure(cp.AdaptiveRun([step], [1], 2)).epsilon(1e-5)


@pytest.mark.parametrize(
    ("costs", "budget", "said"),
    [
        ({"start": 1, "many": 1}, 3, "one cost for each step"),
        ({"start": 0, "many": 1, "one": 1}, 3, "cost of 'start'"),
        ({"start": 1.5, "many": 1, "one": 1}, 3, "cost of 'start'"),
        ({"start": 5, "many": 4, "one": 4}, 3, "smallest cost 4"),
        ({"start": 1, "many": 1, "one": 1}, -1, "budget"),
    ],
)
def test_mistyped_costs_and_budgets_are_refused(costs: dict[str, int], budget: int, said: str) -> None:
    """Every refusal names what is wrong."""
    with pytest.raises(cp.InputError, match=said):
        cp.AdaptiveRun(EXAMPLE, costs, budget)


def test_a_menu_is_about_one_pair_of_datasets() -> None:
    """Runs with other neighbors are no steps of the same run."""
    other = EXAMPLE["one"].replace(adjacency="substitute")
    with pytest.raises(cp.InputError, match="adjacency"):
        cp.AdaptiveRun([EXAMPLE["one"], other], [1, 1], 2)


def test_its_file_says_the_same(tmp_path) -> None:
    """The file that reports show is read as an equal run, and a misspelt key is named."""
    run = cp.AdaptiveRun(EXAMPLE | {"stated": cp.Guarantee(epsilon=0.1, delta=1e-7)}, [1, 2, 2, 1], 3)
    path = tmp_path / "adaptive.toml"
    path.write_text(run.to_toml())
    assert load_adaptive(path) == run
    path.write_text(run.to_toml().replace("noise_multiplier", "noise_multiplyer"))
    with pytest.raises(cp.InputError, match="noise_multiplyer"):
        load_adaptive(path)


def test_small_deltas_are_answered() -> None:
    """Tilting keeps relative accuracy where untilted transforms err by more than delta."""
    step = cp.Run(sample_rate=0.1, steps=1, noise_multiplier=1.0)
    found = cp.measure(cp.AdaptiveRun([step], [1], 5)).epsilon(1e-11)
    fixed = cp.measure(step.replace(steps=5)).epsilon(1e-11)
    assert found.lower <= fixed.upper
    assert fixed.lower <= found.upper
    assert math.isfinite(found.upper)
    assert found.relative_width < 0.02


def test_forms_that_say_fixed_in_advance_are_refused() -> None:
    """Disclosure forms describe a training by a run that was fixed; an adaptive run is none."""
    with pytest.raises(cp.UnsupportedError, match="chosen while training"):
        disclose(cp.measure(cp.AdaptiveRun([cp.Guarantee(mu=0.2)], [1], 2)))
