"""A rate computed from the dataset: the proof lies above, the attack on, what the two rates really show.

The truth is an integral over all batches of explicit gradients (`oracles.division`), drawn at rate B/N on one side and
at B/(N + 1) on the other.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import division
from oracles.pairs import Floats

from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.division.moving_rate import batch_pmf
from calipers.pld.division.pairs import MovingRatePair
from calipers.run import Run

EPSILONS = (0.0, 0.05, 0.4, 1.0, 2.5)
SETTINGS = [(2, 1, 1.0), (3, 2, 0.5), (4, 1, 3.0), (5, 4, 1.5), (6, 2, 0.8)]


def ordered(pmf: PrivacyLossPmf, order: str) -> PrivacyLossPmf:
    return pmf if order == "PQ" else pmf.reverse()


def sampled(gradients: Floats, rate: float, sigma: float) -> division.Mixture:
    parts = division.batches(gradients, rate)
    return division.Mixture(
        np.array([weight for weight, _, _ in parts]),
        np.array([total / sigma for _, _, total in parts]),
        np.ones(len(parts)),
    )


def truth(gradients: Floats, extra: Floats, batch: int, sigma: float) -> tuple[division.Mixture, division.Mixture]:
    """(with the record, without), each at its own rate."""
    others = len(gradients)
    joined = sampled(np.vstack((gradients, extra)), batch / (others + 1), sigma)
    return joined, sampled(gradients, batch / others, sigma)


@pytest.mark.parametrize(("others", "batch", "sigma"), SETTINGS)
def test_the_attack_is_exact(others: int, batch: int, sigma: float) -> None:
    """Others -e, the record e: at most the integral over all batches, in both orders, and within half a percent."""
    joined, absent = truth(*division.on_a_line(-1.0, others, 1), batch, sigma)
    pmf = MovingRatePair(sigma, others, batch).lower(0.03, -40.0)
    for eps in EPSILONS:
        for order in division.ORDERS:
            exact = division.profile(joined, absent, eps, order)
            found = ordered(pmf, order).delta(eps)
            assert found <= exact + 1e-12
            assert found >= 0.995 * exact - 5e-5


@pytest.mark.parametrize("seed", range(8))
def test_the_proof_dominates_all_gradients(seed: int) -> None:
    """Random clipped gradients in one or two dimensions, and the attack's own: never below, in either order."""
    rng = np.random.default_rng(seed)
    others, dimension = int(rng.integers(2, 5)), 2 if seed == 5 else 1
    batch, sigma = int(rng.integers(1, others)), float(rng.uniform(0.5, 3.0))
    gradients, extra = division.random_gradients(rng, others, dimension), division.random_gradients(rng, 1, dimension)
    if seed < 4:
        gradients, extra = division.on_a_line(-1.0, others, dimension)
    joined, absent = truth(gradients, extra, batch, sigma)
    pmf = MovingRatePair(sigma, others, batch).upper(0.05, -40.0)
    for eps in EPSILONS:
        for order in division.ORDERS:
            exact = division.profile(joined, absent, eps, order)
            assert ordered(pmf, order).delta(eps) >= exact - division.PLANE_ERROR


def test_the_batch_alone_is_the_binomial_pair() -> None:
    """delta of Bin(7, 3/8) against Bin(7, 3/7) by summation, in both orders: met to 1e-11."""
    others, batch = 7, 3
    p = np.array([math.comb(7, k) * (3 / 8) ** k * (5 / 8) ** (7 - k) for k in range(8)])
    q = np.array([math.comb(7, k) * (3 / 7) ** k * (4 / 7) ** (7 - k) for k in range(8)])
    pmf = batch_pmf(others, batch, -400.0)
    for eps in (0.0, 0.1, 0.3):
        for order, (first, second) in (("PQ", (p, q)), ("QP", (q, p))):
            exact = float(np.sum(np.maximum(first - math.exp(eps) * second, 0.0)))
            assert exact <= ordered(pmf, order).delta(eps) <= exact + 1e-11


def test_the_published_example() -> None:
    """N = 1000, B = 10, sigma 5, 10^5 steps: an attack shows 4.74 where a public rate has 2.63."""
    keys = {"dataset_size": 1000, "batch_size": 10, "noise_multiplier": 5.0, "steps": 100_000}
    public, moving = measure(Run(**keys)), measure(Run(**keys, derived_rate="moving"))
    assert public.epsilon(1e-5).upper < 2.63
    assert 4.74 <= moving.epsilon(1e-5).lower <= moving.epsilon(1e-5).upper <= 5.4
    assert any("read as a constant of the script" in note and "10/1,000" in note for note in public.notes)
    assert any("moves with the dataset" in note for note in moving.notes)


def test_a_moving_rate_makes_the_expected_divisor_public() -> None:
    """N q = B: dividing by it changes nothing, and the note says so; the realized size is refused."""
    keys = {"dataset_size": 50, "batch_size": 5, "noise_multiplier": 2.0, "steps": 10, "derived_rate": "moving"}
    plain, divided = measure(Run(**keys)), measure(Run(**keys, normalization="expected", dimension=1000))
    assert plain.epsilon(1e-5) == divided.epsilon(1e-5)
    assert any("post-processing" in note for note in divided.notes)
    with pytest.raises(UnsupportedError, match="rate moves"):
        measure(Run(**keys, normalization="realized", dimension=10))


def test_where_the_number_of_steps_tells_all() -> None:
    """Three epochs of floor(N/B) steps, N = 10, B = 2: one record fewer is one step per epoch fewer."""
    keys = {"dataset_size": 10, "batch_size": 2, "noise_multiplier": 3.0, "derived_rate": "moving"}
    with pytest.raises(InputError, match="4, 5 and 5"):
        measure(Run(**keys, epochs=3)).epsilon(1e-5)
    assert measure(Run(**keys, steps=15)).epsilon(1e-5).lower > 0.0


def test_batches_of_everybody_are_refused() -> None:
    """At B = N one neighbor is drawn whole: whoever stays away is proof."""
    with pytest.raises(InputError, match="nobody stays away"):
        measure(Run(dataset_size=10, batch_size=9, steps=2, noise_multiplier=3.0, derived_rate="moving")).epsilon(1e-5)


def test_where_the_size_is_public_the_rate_is_too() -> None:
    """Under substitution both neighbors have N records: the public bracket."""
    keys = {"dataset_size": 100, "batch_size": 10, "noise_multiplier": 1.0, "steps": 10, "adjacency": "substitute"}
    assert measure(Run(**keys)).epsilon(1e-5) == measure(Run(**keys, derived_rate="moving")).epsilon(1e-5)


@pytest.mark.parametrize(
    "keys", [{"sample_rate": 0.1}, {"dataset_size": 10, "batch_size": 2, "sampler": "balls-and-bins"}]
)
def test_only_a_derived_poisson_rate_can_move(keys: dict[str, object]) -> None:
    """A rate that is given is public; balls are not drawn at a rate."""
    with pytest.raises(InputError, match="derived_rate"):
        Run.from_dict({"noise_multiplier": 1.0, "epochs": 1, "derived_rate": "moving"} | keys)


def test_a_run_file_keeps_what_was_said_about_the_rate() -> None:
    """Written and read back; not written where it says nothing; dropped by a given rate."""
    run = Run(dataset_size=10, batch_size=2, noise_multiplier=1.0, steps=5, derived_rate="moving")
    assert Run.from_dict(run.to_dict()) == run
    assert "derived_rate" not in run.replace(sample_rate=0.2).to_dict()
