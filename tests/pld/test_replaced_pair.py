"""One record replaced by another in a random round: exact for one and two rounds, simulated for more."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from calipers.errors import InputError
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation import replaced
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.allocation.replaced import ReplacedPair
from calipers.pld.allocation.worst_case_sum import divergence
from calipers.pld.allocation.worst_case_term import opposite
from calipers.pld.composition.product import Product


def two_rounds(sigma: float, epsilon: float, share: float = 1.0, norms: tuple[float, float] = (1.0, 1.0)) -> float:
    """The exact divergence for two rounds and gradients norms[0], -norms[1]: given the first, the second is a tail.

    A - k B increases in x_2, so the best event is {x_2 > z}, z by bisection. 20,001 points of a smooth integrand.
    """
    a, b, k = norms[0] / sigma, norms[1] / sigma, math.exp(epsilon)
    x = np.linspace(-13.0, 13.0, 20_001)

    def score(y: np.ndarray) -> np.ndarray:
        return np.exp(a * y - 0.5 * a * a) - k * np.exp(-b * y - 0.5 * b * b)

    c = score(x) - 2.0 * (1.0 - share) * (k - 1.0) / share
    low, high = np.full_like(x, -60.0 - 30.0 * sigma), np.full_like(x, 60.0 + 30.0 * sigma)
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = c + score(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    gain = c * ndtr(-low) + ndtr(a - low) - k * ndtr(-b - low)
    return 0.5 * share * float(np.sum(gain * np.exp(-0.5 * x * x)) * (x[1] - x[0])) / math.sqrt(2.0 * math.pi)


def simulated(
    sigma: float, rounds: int, epsilon: float, share: float, second: tuple[float, float] = (-1.0, 0.0)
) -> tuple[float, float]:
    """(estimate, error) of D with gradients (1, 0) and `second`, from half a million draws of noise in the plane."""
    rng, k, draws = np.random.default_rng(5), math.exp(epsilon), 500_000
    gains = []
    for _ in range(10):
        x = rng.standard_normal((draws // 10, rounds, 2))
        present = np.exp(x[:, :, 0] / sigma - 0.5 / sigma**2).mean(axis=1)
        along = (x @ np.array(second)) / sigma
        absent = np.exp(along - 0.5 * np.dot(second, second) / sigma**2).mean(axis=1)
        gains.append(np.maximum((1 - share) * (1 - k) + share * (present - k * absent), 0.0))
    values = np.concatenate(gains)
    return float(values.mean()), float(values.std()) / math.sqrt(draws)


@pytest.mark.parametrize("share", [1.0, 0.7])
@pytest.mark.parametrize(("sigma", "epsilons"), [(0.5, (0.0, 1.0, 6.0)), (1.0, (0.0, 0.3, 3.0)), (4.0, (0.0, 0.5))])
def test_two_rounds_against_quadrature(sigma: float, epsilons: tuple[float, ...], share: float) -> None:
    """With two rounds the bracket holds the exact divergence and is a few thousandths wide."""
    for epsilon in epsilons:
        lower, upper = ReplacedPair(sigma, 2, share).delta(epsilon)
        assert lower <= two_rounds(sigma, epsilon, share) <= upper
        assert upper - lower <= 3e-3 * upper


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_one_round_is_the_gaussian_mechanism(sigma: float) -> None:
    """A record replaced at a known time is N(1/s, 1) against N(-1/s, 1): mu = 2/sigma."""
    for epsilon in (0.0, 1.0):
        lower, upper = ReplacedPair(sigma, 1).delta(epsilon)
        assert lower <= float(gaussian_delta(2.0 / sigma, epsilon)) * (1 + 1e-12)
        assert upper >= float(gaussian_delta(2.0 / sigma, epsilon)) * (1 - 1e-12)
        assert upper - lower <= 1e-3 * upper
    lower, upper = ReplacedPair(sigma, 1).epsilon(1e-6)
    assert lower <= gaussian_epsilon(2.0 / sigma, 1e-6) <= upper * (1 + 1e-12)


@pytest.mark.parametrize(("rounds", "share", "epsilon"), [(3, 1.0, 0.4), (5, 0.8, 0.1)])
def test_simulation_agrees_and_tells_it_from_its_neighbors(rounds: int, share: float, epsilon: float) -> None:
    """Half a million draws lie within 5 errors of the bracket, and far from a zeroed-out record at the same noise."""
    sigma = 1.2
    lower, upper = ReplacedPair(sigma, rounds, share).delta(epsilon)
    estimate, error = simulated(sigma, rounds, epsilon, share)
    assert lower - 5 * error <= estimate <= upper + 5 * error
    zeroed = AllocationPair(sigma, rounds, share).upper().delta(epsilon)
    assert abs(estimate - zeroed) > 20 * error


@pytest.mark.parametrize("second", [(0.0, 1.0), (-0.6, 0.8), (0.0, 0.0)])
def test_opposite_gradients_are_worst(second: tuple[float, float]) -> None:
    """Orthogonal, oblique, shorter or zero replacements leak less than the opposite one."""
    lower, _ = ReplacedPair(1.0, 4).delta(0.3)
    estimate, error = simulated(1.0, 4, 0.3, 1.0, second)
    assert estimate + 5 * error < lower


def test_shorter_gradients_leak_less() -> None:
    """Two rounds by quadrature: any norms below 1 stay below the lower bound of full norms."""
    lower, _ = ReplacedPair(0.8, 2).delta(0.5)
    for norms in ((0.9, 1.0), (1.0, 0.9), (0.5, 0.5)):
        assert two_rounds(0.8, 0.5, norms=norms) < lower


@pytest.mark.parametrize("share", [0.7])
def test_laws_enclose_the_profile(share: float) -> None:
    """The UPPER law lies above and the LOWER law below the exact profile of two rounds, within 10% of it: chords."""
    pair = ReplacedPair(1.0, 2, share)
    upper, lower = pair.upper(), pair.lower()
    for epsilon in (0.0, 0.5, 2.0):
        truth = two_rounds(1.0, epsilon, share)
        assert lower.delta(epsilon) <= truth <= upper.delta(epsilon)
        assert upper.delta(epsilon) - lower.delta(epsilon) <= 0.1 * truth


def test_composed_rounds_of_one() -> None:
    """Four epochs of one round are one Gaussian of mu = 4/sigma; the product of laws holds its epsilon."""
    bounds = Product([(ReplacedPair(2.0, 1), 4)]).epsilon(1e-5)
    exact = gaussian_epsilon(2.0, 1e-5)
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.upper - bounds.lower <= 0.03 * exact


def test_one_epoch_composed_is_one_epoch() -> None:
    """The product of one factor and the pair itself bracket the same epsilon."""
    lower, upper = ReplacedPair(2.0, 8).epsilon(1e-5)
    bounds = Product([(ReplacedPair(2.0, 8), 1)]).epsilon(1e-5)
    assert bounds.lower <= upper
    assert lower <= bounds.upper
    assert upper - lower <= 1e-3 * upper


@pytest.mark.parametrize(("sigma", "rounds"), [(1.0, 70), (0.6, 4)])
def test_two_steps_through_the_zeroed_out_record(sigma: float, rounds: int) -> None:
    """Group privacy allows delta(e1) + e^(e1) delta(e2) at e1 + e2; the pair keeps to it, and needs less."""
    pmf = AllocationPair(sigma, rounds).upper()
    removed, added = pmf, pmf.reverse()
    scale = 2.0 * pmf.delta(0.0)
    for total in (0.0, 3.0 * scale):
        splits = np.linspace(0.0, total, 21)
        for first, second in ((removed, added), (added, removed)):
            allowed = min(first.delta(e) + math.exp(e) * second.delta(total - e) for e in splits)
            lower, upper = ReplacedPair(sigma, rounds).delta(total)
            assert lower <= allowed
            assert upper < allowed


def test_more_rounds_and_more_noise_leak_less() -> None:
    """Epsilon falls with the number of rounds and with the noise, and stays below that of a known round."""
    epsilons = [ReplacedPair(1.0, rounds).epsilon(1e-5) for rounds in (1, 2, 8)]
    for fewer, more in itertools.pairwise(epsilons):
        assert more[1] < fewer[0]
    assert ReplacedPair(1.5, 8).epsilon(1e-5)[1] < epsilons[2][0]
    assert ReplacedPair(1.0, 8).epsilon(0.9) == (0.0, 0.0)


@pytest.mark.parametrize(("sigma", "rounds", "participation"), [(-1.0, 5, 1.0), (1.0, 0, 1.0), (1.0, 5, 1.5)])
def test_bad_input(sigma: float, rounds: int, participation: float) -> None:
    with pytest.raises(InputError):
        ReplacedPair(sigma, rounds, participation)
    with pytest.raises(InputError, match="resolution"):
        ReplacedPair(1.0, 5).upper(0.0)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("sigma", "rounds", "log_tail"), [(0.6, 2, -1.0), (0.6, 5, -2.0), (1.0, 20, 0.0)])
def test_what_a_shallow_tail_loses_is_charged(sigma: float, rounds: int, log_tail: float, epsilon: float) -> None:
    """Cut where much of the moments lies beyond, the bound is above an attack that goes deep, and not by an accident.

    Of two rounds the exact divergence is known as well.
    """
    node, bound = divergence(opposite(sigma, epsilon), rounds, 1.0, 0.02, log_tail)
    shown = ReplacedPair(sigma, rounds).delta(node)[0]
    assert shown <= bound
    if rounds == 2:
        assert two_rounds(sigma, node) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [10, 234])
def test_ten_epochs_lie_in_a_narrow_bracket(rounds: int) -> None:
    """Proof and attack on ten epochs are four thousandths apart: the nodes of one epoch's law are that dense."""
    bounds = Product([(ReplacedPair(1.0, rounds), 10)]).epsilon(1e-5)
    assert 0.0 < bounds.upper - bounds.lower <= 4e-3 * bounds.upper


def test_a_few_laws_serve_all_questions() -> None:
    """Nearby resolutions and tails get one law, at least as fine and as deep as was asked for."""
    pair = ReplacedPair(1.0, 3)
    assert pair.upper(0.2, -30.0) is pair.upper(0.05, -27.0)
    assert pair.upper(0.05, -30.0).size > pair.upper(0.4, -30.0).size


@pytest.mark.parametrize(
    ("sigma", "rounds", "share"),
    [(0.19, 909, 1.0), (0.178, 8, 1.0), (0.64, 2905, 0.8), (6.4, 9000, 1.0), (30.0, 7, 1.0)],
)
def test_a_few_grids_give_an_epsilon(sigma: float, rounds: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most five rough multi-resolution grids and four fine ones, and the bounds agree to 3e-4."""
    asked: list[float] = []

    def counted(*given: object) -> tuple[float, float]:
        asked.append(given[3])  # type: ignore[arg-type]
        return divergence(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(replaced, "divergence", counted)
    lower, upper = ReplacedPair(sigma, rounds, share).epsilon(1.1e-5)
    assert upper - lower <= 3e-4 * upper
    assert asked.count(replaced._ROUGH) <= 5
    assert len(asked) - asked.count(replaced._ROUGH) <= 4


def test_divergences_go_on_falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little noise, few rounds: nothing is charged for a strike of 0 that would grow with e^epsilon, far out."""
    found: list[tuple[float, float]] = []

    def kept(*given: object) -> tuple[float, float]:
        found.append(divergence(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(replaced, "divergence", kept)
    ReplacedPair(0.1783, 8).upper(0.05, -42.0)
    values = [value for _, value in sorted(found)]
    assert values.index(min(values)) > 0.9 * len(values)


def test_deltas_next_to_nothing_are_resolved_too() -> None:
    """Each look is deeper than what the one before it could see, until both bounds are about what is there."""
    lower, upper = ReplacedPair(3.0, 60).delta(1.5)
    assert 1e-60 < upper < 1e-50
    assert upper - lower <= 0.01 * upper
