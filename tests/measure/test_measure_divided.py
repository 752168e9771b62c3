"""Runs that divide by a number that depends on the data: tables, limits, refusals and order of the bounds.

The tables were computed by contour integrals and two-dimensional quadrature independent of this package; N there is the
size of the smaller dataset. Limits are known exactly: no division as N grows, the isotropic pair at rate 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from oracles import contour, division

from calipers.bracket import Bracket, Side
from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.measure import Measurement, measure
from calipers.measure.divisors import moving_pairs
from calipers.run import Run
from calipers.run_fields import divisor_of

DIVIDED = ("expected", "floor", "realized")


def run(
    normalization: str,
    smaller: int,
    rate: float,
    sigma: float = 10.0,
    steps: int = 1,
    dimension: int | None = 1,
    **more: Any,
) -> Run:
    """A run on one record more than `smaller`."""
    return Run(
        dataset_size=smaller + 1,
        sample_rate=rate,
        noise_multiplier=sigma,
        steps=steps,
        normalization=normalization,
        dimension=dimension,
        **more,
    )


def holds(found: Bracket, value: float, digits: float = 0.0) -> None:
    """The value, known up to `digits`, lies inside."""
    assert found.lower <= value + digits
    assert value - digits <= found.upper


def test_expected_batch_size_in_26010_dimensions() -> None:
    """60,000 records, 200 steps: v = 0 shows 0.174972, v = -1/3 more, the proof 0.179771; the claim is 0.018726."""
    found = measure(run("expected", 59_999, 0.005, steps=200, dimension=26_010))
    bracket = found.epsilon(1e-5)
    assert 0.17497 < bracket.lower < 0.1755
    assert 0.174972 <= bracket.upper <= 0.1798
    assert abs(found.claim.epsilon(1e-5) - 0.018726) <= 3e-5


@pytest.mark.parametrize(
    ("steps", "smaller", "pair", "most"),
    [pytest.param(1, 59_999, 0.00933447, 0.0096, marks=pytest.mark.slow), (1, 999, 0.848059, 0.848846)],
)
def test_expected_batch_size_in_one_step(steps: int, smaller: int, pair: float, most: float) -> None:
    """The explicit pair, others at zero, is one of the attacks: others that oppose the record show a little more."""
    bracket = measure(run("expected", smaller, 0.005, steps=steps, dimension=26_010)).epsilon(1e-5)
    assert 0.999 * pair <= bracket.lower <= 1.005 * pair
    assert pair <= bracket.upper <= most


@pytest.mark.slow
def test_floor_of_the_expected_batch_size_where_it_jumps() -> None:
    """N = 140,199, q = 0.005, K = 700 against 701: the explicit pair has 29.8307, the published guarantee 31.5234."""
    found = measure(run("floor", 140_199, 0.005, steps=200, dimension=26_010))
    bracket = found.epsilon(1e-5)
    assert bracket.lower <= 29.83071
    assert bracket.lower >= 29.8
    assert 29.8307 <= bracket.upper <= 31.5235
    assert abs(found.claim.epsilon(1e-5) - 0.018726) <= 3e-5


@pytest.mark.slow
def test_realized_batch_size_in_26010_dimensions() -> None:
    """N = 999, q = 0.7, 200 steps: at most 10.7165 in every dimension; the explicit pair has 10.6823."""
    bracket = measure(run("realized", 999, 0.7, steps=200, dimension=26_010)).epsilon(1e-5)
    assert 10.67 <= bracket.lower <= 10.68231
    assert 10.6823 <= bracket.upper <= 10.7165


@pytest.mark.parametrize(
    ("smaller", "rate", "value"),
    [(4, 0.05, 0.884295), (2, 0.5, 0.995623), (3, 0.5, 0.957293), (4, 0.5, 0.884420), (5, 0.5, 0.801759)],
)
def test_total_variation_of_few_records(smaller: int, rate: float, value: float) -> None:
    """delta(0) in 100 dimensions, expected batch size: the exact value of the explicit pair lies inside."""
    bracket = measure(run("expected", smaller, rate, dimension=100)).delta(0.0)
    assert bracket.lower <= value + 5e-7
    assert bracket.lower >= 0.998 * value
    assert value - 5e-7 <= bracket.upper <= 1.002 * value


@pytest.mark.slow
def test_total_variation_of_four_records_and_the_realized_size() -> None:
    """q = 0.7, 100 dimensions: 0.284180 by the explicit pair, at most 0.288386 by size and sum."""
    bracket = measure(run("realized", 4, 0.7, dimension=100)).delta(0.0)
    assert 0.2838 <= bracket.lower <= 0.2841805
    assert 0.2841795 <= bracket.upper <= 0.288387


@pytest.mark.parametrize("normalization", ["expected", "floor"])
def test_one_dimension_is_the_mixture_on_the_line(normalization: str) -> None:
    """n = 1, four records or five: the lower bound is the best of three integrals, v = -1, 0, 1, of either neighbor."""
    rate, sigma, steps, eps = 0.9, 2.0, 1, 0.2
    bracket = measure(run(normalization, 4, rate, sigma, steps, 1)).delta(eps)
    truths = []
    for smaller in (4, 5):
        divisor = smaller if normalization == "expected" else math.floor(smaller * rate)
        if normalization == "floor" and math.floor((smaller + 1) * rate) == divisor:
            continue
        for direction in (-1.0, 0.0, 1.0):
            joined, absent = division.divided(*division.on_a_line(direction, smaller, 1), rate, sigma, divisor)
            truths += [division.profile(joined, absent, eps, order) for order in division.ORDERS]
    assert bracket.lower <= max(truths) + 1e-12
    assert bracket.lower >= 0.998 * max(truths)
    assert bracket.upper >= max(truths)


def test_large_datasets_in_one_dimension_recover_the_plain_attack() -> None:
    """n = 1, N = 10^8: the best attack is the plain one; the proof, which reveals the batch, adds a shift q/sigma."""
    rate, sigma, steps = 1e-3, 1.0, 100
    plain = measure(Run(sample_rate=rate, noise_multiplier=sigma, steps=steps)).epsilon(1e-5)
    found = measure(run("expected", 10**8, rate, sigma, steps, 1)).epsilon(1e-5)
    assert abs(found.lower / plain.lower - 1.0) <= 5e-3
    assert plain.lower <= found.upper <= 1.5 * plain.upper


@pytest.mark.slow
def test_large_datasets_cost_the_realized_size_a_factor_two_in_sensitivity() -> None:
    """N = 10^8: at most the plain run with half the noise, at least the plain run."""
    rate, sigma, steps = 1e-3, 1.0, 100
    plain, twice = (
        measure(Run(sample_rate=rate, noise_multiplier=s, steps=steps)).epsilon(1e-5) for s in (sigma, 0.5 * sigma)
    )
    found = measure(run("realized", 10**8, rate, sigma, steps, 1)).epsilon(1e-5)
    assert 0.99 * plain.lower <= found.lower <= found.upper <= 1.02 * twice.upper


def isotropic_delta(dimension: int, divisor: int, sigma: float, steps: int, eps: float) -> float:
    """The larger order of T rounds of N(m e, s^2 I) against N(0, I), m = 2K/((K+1) sigma)."""
    mean, share = 2.0 * divisor / ((divisor + 1.0) * sigma), divisor / (divisor + 1.0)
    if dimension == steps == 1:
        line = division.Mixture(np.ones(1), np.array([[mean]]), np.array([share]))
        return max(
            division.profile(line, division.Mixture(np.ones(1), np.zeros((1, 1)), np.ones(1)), eps, way)
            for way in division.ORDERS
        )
    pair = division.isotropic(dimension, divisor, mean)
    # The ratio has a largest value in one order, none in the other.
    largest = steps * (-dimension * math.log(share) + 0.5 * mean * mean / (1.0 - share * share))
    forward = contour.delta(pair, steps, eps, "PQ") if eps < 0.9 * largest else 0.0
    return max(forward, contour.delta(pair, steps, eps, "QP"))


@pytest.mark.parametrize(
    ("normalization", "smaller", "sigma", "steps", "dimension"),
    [
        ("expected", 2, 1.0, 1, 1),
        ("expected", 9, 3.0, 5, 4),
        ("realized", 20, 5.0, 3, 10),
        ("floor", 3, 0.7, 1, 1),
        ("expected", 10**5, 5.0, 1, 100),
    ],
)
def test_at_rate_one_the_bracket_closes(
    normalization: str, smaller: int, sigma: float, steps: int, dimension: int
) -> None:
    """q = 1: all three divide by N or N + 1, one isotropic pair is worst, and both bounds reach it."""
    bracket = measure(run(normalization, smaller, 1.0, sigma, steps, dimension)).epsilon(1e-5)
    assert bracket.relative_width <= 1e-3
    for value, side in ((bracket.lower, 1.0), (bracket.upper, -1.0)):
        delta = max(isotropic_delta(dimension, k, sigma, steps, value) for k in (smaller, smaller + 1))
        # At the lower bound delta is still at least 1e-5, at the upper one at most.
        assert side * (delta - 1e-5) >= -1e-12


@pytest.mark.parametrize("normalization", ["expected", "floor"])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_where_the_size_is_public_division_changes_nothing(normalization: str, adjacency: str) -> None:
    """Exactly the plain bracket, with a note that says why."""
    plain = measure(run("none", 999, 0.01, 1.0, 100, None, adjacency=adjacency))
    found = measure(run(normalization, 999, 0.01, 1.0, 100, None, adjacency=adjacency))
    assert (found.epsilon(1e-5).lower, found.epsilon(1e-5).upper) == (
        plain.epsilon(1e-5).lower,
        plain.epsilon(1e-5).upper,
    )
    assert any("post-processing" in note for note in found.notes)
    assert not any("post-processing" in note for note in plain.notes)


def test_equal_floors_change_nothing() -> None:
    """floor(N q) = 9 for 950, 949 and 951 records: the plain bracket, and a note that it is so only here."""
    plain = measure(Run(sample_rate=0.01, noise_multiplier=1.0, steps=100))
    found = measure(run("floor", 949, 0.01, 1.0, 100, None))
    assert moving_pairs(found.run) == ()
    assert (found.epsilon(1e-5).lower, found.epsilon(1e-5).upper) == (
        plain.epsilon(1e-5).lower,
        plain.epsilon(1e-5).upper,
    )
    assert any("not for every dataset size" in note for note in found.notes)


@pytest.mark.parametrize("sampler", ["shuffle", "deterministic"])
@pytest.mark.parametrize("normalization", DIVIDED)
def test_batches_of_one_size_change_nothing(sampler: str, normalization: str) -> None:
    """Every batch has the same public size: the plain bracket."""
    keys: dict[str, Any] = {
        "dataset_size": 100,
        "batch_size": 10,
        "epochs": 1,
        "noise_multiplier": 1.0,
        "sampler": sampler,
    }
    plain, found = measure(Run(**keys)), measure(Run(**keys, normalization=normalization))
    assert (found.epsilon(1e-5).lower, found.epsilon(1e-5).upper) == (
        plain.epsilon(1e-5).lower,
        plain.epsilon(1e-5).upper,
    )
    assert any("post-processing" in note for note in found.notes)


@pytest.mark.parametrize("normalization", DIVIDED)
def test_a_dimension_is_needed(normalization: str) -> None:
    """The message names the key and says what to add."""
    with pytest.raises(InputError, match=f"normalization='{normalization}'.*dimension.*add"):
        measure(run(normalization, 999, 0.5, dimension=None))


@pytest.mark.parametrize(
    ("normalization", "smaller", "rate"),
    [("expected", 0, 0.5), ("realized", 0, 0.5), ("floor", 1, 0.6), ("floor", 99, 0.01)],
)
def test_a_divisor_of_zero_is_refused(normalization: str, smaller: int, rate: float) -> None:
    """A neighbor that would divide by nothing: named with its value and a remedy."""
    with pytest.raises(InputError, match=r"dataset_size|sample_rate|sample rate"):
        measure(run(normalization, smaller, rate))


@pytest.mark.parametrize("normalization", DIVIDED)
def test_balls_and_bins_with_add_remove_is_refused(normalization: str) -> None:
    """Nothing is proven; the message says for what, and what to do instead."""
    refused = Run(
        dataset_size=100,
        batch_size=10,
        epochs=1,
        noise_multiplier=1.0,
        sampler="balls-and-bins",
        normalization=normalization,
        dimension=10,
    )
    with pytest.raises(UnsupportedError, match=r"has no bound.*balls-and-bins.*public constant"):
        measure(refused)


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_the_realized_size_is_refused_where_nothing_is_proven(adjacency: str) -> None:
    """Zeroing a record out changes the number drawn or not, depending on the code; no statement covers it."""
    with pytest.raises(UnsupportedError, match=rf"realized batch size.*{adjacency}.*public constant"):
        measure(run("realized", 99, 0.1, adjacency=adjacency))


def test_renyi_divergences_are_between_proof_and_attack() -> None:
    """Finite where the divisor is a function of N; the proof for the realized size reveals too much."""
    found = measure(run("expected", 9, 0.5)).rdp(2.0)
    assert 0.0 < found.lower <= found.upper < math.inf
    with pytest.raises(UnsupportedError, match="realized batch size"):
        measure(run("realized", 9, 0.5)).rdp(2.0)


@pytest.mark.parametrize(
    ("size", "rate", "floors"),
    [(140_200, 0.005, (140_199,)), (1000, 0.01, (999,)), (999, 0.01, (999,)), (950, 0.01, ()), (3, 0.999, (2, 3))],
)
def test_where_the_floor_moves(size: int, rate: float, floors: tuple[int, ...]) -> None:
    """Pairs (N, N + 1) with floor(N q) != floor((N + 1) q), of the two that hold the dataset."""
    moving = moving_pairs(
        Run(dataset_size=size, sample_rate=rate, noise_multiplier=1.0, steps=1, normalization="floor", dimension=1)
    )
    assert moving == floors


@pytest.mark.parametrize(
    ("size", "batch"), [(10**9, 10**9 - 1), (10**10, 10**10 - 1), (2**53, 2**53 - 1), (49, 1), (98, 2), (60_000, 300)]
)
def test_one_record_moves_the_divisor_by_at_most_one(size: int, batch: int) -> None:
    """The proofs are about K against K + 1; rounding must not make it more."""
    divided = Run(
        dataset_size=size, batch_size=batch, noise_multiplier=1.0, steps=1, normalization="floor", dimension=1
    )
    assert divisor_of(divided, size) == batch
    for smaller in moving_pairs(divided):
        assert divisor_of(divided, smaller + 1) - divisor_of(divided, smaller) == 1


@pytest.mark.slow
def test_phases_may_differ() -> None:
    """A divided and a plain phase: at least either of them, at most the sum by basic composition of the upper jaws."""
    first, second = run("expected", 9, 0.3, 4.0, 2, 20), run("none", 9, 0.2, 3.0, 5, None)
    both = measure([first, second]).epsilon(1e-5)
    alone = [measure(phase).epsilon(5e-6) for phase in (first, second)]
    assert both.lower <= both.upper
    assert both.upper >= max(measure(phase).epsilon(1e-5).lower for phase in (first, second))
    assert both.lower <= sum(bracket.upper for bracket in alone)
    assert both.upper <= 1.05 * sum(bracket.upper for bracket in alone)


def test_a_divided_phase_next_to_a_plain_one_adds() -> None:
    """Two records and full batches: more than the divided phase alone, less than both by basic composition."""
    first, second = run("expected", 2, 1.0, 4.0, 1, 1), run("none", 2, 1.0, 6.0, 1, None)
    both = measure([first, second]).epsilon(1e-4)
    assert measure(first).epsilon(1e-4).lower <= both.upper
    assert both.upper <= sum(measure(phase).epsilon(5e-5).upper for phase in (first, second))
    assert both.relative_width <= 5e-3


@pytest.mark.slow
def test_phases_of_equal_settings_add_up() -> None:
    """3 + 4 steps are 7 steps: both brackets hold the same truth, so they overlap, and they are about equal."""
    one = measure(run("expected", 4, 0.3, 5.0, 7, 5)).epsilon(1e-4)
    two = measure([run("expected", 4, 0.3, 5.0, 3, 5), run("expected", 4, 0.3, 5.0, 4, 5)]).epsilon(1e-4)
    assert max(one.lower, two.lower) <= min(one.upper, two.upper)
    assert abs(one.upper / two.upper - 1.0) <= 2e-3


def check_order(found: Measurement) -> None:
    for bracket in (found.epsilon(1e-5), found.delta(0.0), found.delta(0.7)):
        assert 0.0 <= bracket.lower <= bracket.upper


def drawn(rng: np.random.Generator, normalization: str) -> Run:
    smaller = int(10.0 ** rng.uniform(0.5, 4.5))
    rate = float(min(1.0, 10.0 ** rng.uniform(-2.0, 0.1)))
    if normalization == "floor":
        rate = max(rate, 1.5 / smaller)
    sigma, steps = float(10.0 ** rng.uniform(-0.2, 1.3)), int(10.0 ** rng.uniform(0.0, 2.0))
    # At most 30 deviations between the lengths, else there is nothing to measure.
    most = (30.0 * smaller * min(rate, 1.0)) ** 2 / (2.0 * steps)
    dimension = int(max(1.0, min(10.0 ** rng.uniform(0.0, 5.0), most)))
    return run(normalization, smaller, min(rate, 1.0), sigma, steps, dimension)


def check_drawn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    divided = drawn(rng, DIVIDED[seed % 3])
    try:
        check_order(measure(divided))
    except CalipersError as error:
        assert "distinguished" in str(error) or "divides by floor" in str(error), (divided, error)  # noqa: PT017


# Four that take little time; the slow version has hundreds.
@pytest.mark.parametrize("seed", [1, 3, 4, 8])
def test_the_jaws_are_in_order(seed: int) -> None:
    """lower <= upper for epsilon and delta over random sizes, rates, noise, steps and dimensions."""
    check_drawn(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, *range(5, 8), *range(100, 400)])
def test_the_jaws_are_in_order_for_many_runs(seed: int) -> None:
    """Three hundred more, realized sizes of few records among them."""
    check_drawn(seed)


@pytest.mark.parametrize(
    ("normalization", "rate", "smaller", "steps"),
    [
        ("expected", 1.0, 3, 1),
        pytest.param("expected", 0.3, 20, 2, marks=pytest.mark.slow),
        pytest.param("realized", 0.6, 20, 2, marks=pytest.mark.slow),
    ],
)
def test_readings_of_the_curves_are_in_order(normalization: str, rate: float, smaller: int, steps: int) -> None:
    """gdp, tpr, tradeoff, advantage, Bayes error: lower <= upper; the attack's curve lies above the guarantee's."""
    found = measure(run(normalization, smaller, rate, 3.0, steps, 10))
    guarantee, attack = found.curve(Side.UPPER), found.curve(Side.LOWER)
    for alpha in (0.0, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.9, 1.0):
        assert float(guarantee(alpha)) <= float(attack(alpha))
        bracket = found.tradeoff(alpha)
        assert 0.0 <= bracket.lower <= bracket.upper <= 1.0 - alpha + 1e-15
    for bracket in (found.tpr(0.01), found.tpr(1e-5), found.advantage(), found.bayes_error(0.3), found.gdp(1e-6).mu):
        assert bracket.lower <= bracket.upper
    # The curves know what epsilon and delta say: a point on the guarantee's profile is not below the lower bound.
    for eps in (0.0, 0.3, 1.0):
        assert float(guarantee.delta(eps)) >= found.delta(eps).lower
        assert float(attack.delta(eps)) <= found.delta(eps).upper


def test_the_curves_hold_the_truth_of_a_known_pair() -> None:
    """q = 1, n = 1: beta of the interval test of N(m, s^2) against N(0, 1) lies between both curves, either order."""
    smaller, sigma = 4, 2.0
    found = measure(run("expected", smaller, 1.0, sigma, 1, 1))
    for alpha in (0.01, 0.1, 0.4):
        truth = min(best_beta(k, sigma, alpha) for k in (smaller, smaller + 1))
        assert float(found.curve(Side.UPPER)(alpha)) <= truth
        assert float(found.curve(Side.LOWER)(alpha)) >= truth - 5e-3


def best_beta(k: int, sigma: float, alpha: float) -> float:
    share, mean = k / (k + 1.0), 2.0 * k / ((k + 1.0) * sigma)
    center = mp.mpf(mean) / (1 - share**2)

    def inside(half: Any, middle: Any, deviation: float) -> Any:
        return mp.ncdf((center + half - middle) / deviation) - mp.ncdf((center - half - middle) / deviation)

    half = mp.findroot(lambda w: inside(w, 0, 1.0) - alpha, center)
    accept = 1 - inside(half, mean, share)
    other = mp.findroot(lambda w: 1 - inside(w, mean, share) - alpha, center)
    return float(min(accept, inside(other, 0, 1.0)))


@pytest.mark.parametrize("normalization", DIVIDED)
def test_notes_say_that_the_usual_claim_fails(normalization: str) -> None:
    """Whoever divides by the data reads what to do instead, and the evidence names both neighbors."""
    found = measure(run(normalization, 99, 0.1, 2.0, 1, 10))
    assert any("divisor depends on the data" in note and "public constant" in note for note in found.notes)
    lower, upper = found.explain()
    decided = "of 99 and 100 records decide, since larger ones show less"
    assert f"datasets {decided if normalization == 'realized' else 'of 99 to 101'}" in upper.statement
    assert "v e" in lower.statement


@pytest.mark.slow
def test_more_coordinates_leak_more() -> None:
    """The upper bound grows with the dimension for a moving divisor, not for the realized size of many records."""
    expected = [measure(run("expected", 50, 0.2, 5.0, 4, n)).epsilon(1e-5) for n in (1, 1000)]
    assert expected[0].upper <= expected[1].lower
    realized = [measure(run("realized", 2000, 0.2, 5.0, 4, n)).epsilon(1e-5).upper for n in (1, 10**6)]
    assert abs(realized[0] / realized[1] - 1.0) <= 2e-3
