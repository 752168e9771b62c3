"""Pairs of the adapters against direct sums and closed forms, jaws without tolerance."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest

from calipers.adapters.event_pairs import Subsampled, bucket_response, discrete_laplace
from calipers.bracket import Side
from calipers.errors import InputError
from calipers.measure.guarantees import no_release
from calipers.mechanisms.classic import laplace
from calipers.pld.composition.product import Product
from calipers.pld.composition.renyi import renyi
from calipers.pld.core.source import TwoSidedPair

TIGHT = 2e-3
"""Relative width that the bounds of these small products must not exceed (asked for: 1e-3)."""


def integer_masses(parameter: float, reach: int, shift: int) -> list[mpmath.mpf]:
    """P(K + shift = x) for x in [-reach, reach], K discrete Laplace, straight from its definition."""
    a = mpmath.mpf(parameter)
    return [mpmath.exp(-a * abs(x - shift)) * mpmath.tanh(a / 2) for x in range(-reach, reach + 1)]


def direct_delta(parameter: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """D of independent coordinates shifted by `shifts` against unshifted ones, summed outcome by outcome."""
    reach = int(40 / parameter)
    present = [integer_masses(parameter, reach, shift) for shift in shifts]
    absent = integer_masses(parameter, reach, 0)
    k = mpmath.exp(epsilon)
    total = mpmath.mpf(0)
    for outcome in itertools.product(range(2 * reach + 1), repeat=len(shifts)):
        p = mpmath.fprod(masses[x] for masses, x in zip(present, outcome, strict=True))
        q = mpmath.fprod(absent[x] for x in outcome)
        total += max(mpmath.mpf(0), p - k * q)
    return float(total)


def assert_holds(source: TwoSidedPair, count: int, epsilon: float, truth: float) -> None:
    jaws = Product([(source, count)]).delta(epsilon)
    assert jaws.lower <= truth <= jaws.upper
    assert jaws.upper - jaws.lower <= TIGHT * truth


@pytest.mark.parametrize(("parameter", "sensitivity"), [(0.5, 1), (0.4, 2), (0.3, 5)])
@pytest.mark.parametrize("epsilon", [0.0, 0.37])
def test_discrete_laplace_is_the_sum_over_all_integers(parameter: float, sensitivity: int, epsilon: float) -> None:
    """One release against the definition, two hundred integers wide."""
    assert_holds(discrete_laplace(parameter, sensitivity), 1, epsilon, direct_delta(parameter, (sensitivity,), epsilon))


def test_two_discrete_laplace_releases_are_the_double_sum() -> None:
    """Composition: independent coordinates, both shifted."""
    assert_holds(discrete_laplace(0.9, 2), 2, 0.8, direct_delta(0.9, (2, 2), 0.8))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.1, 2.2])
def test_one_coordinate_of_full_size_is_the_worst_integer_vector(epsilon: float) -> None:
    """(2, 1), (1, -2) and (-3, 0) have L1 norm 3: none leaks more than the shift by 3, and the last as much."""
    upper = Product([(discrete_laplace(0.9, 3), 1)]).delta(epsilon).upper
    for vector in ((2, 1), (1, -2), (-3, 0)):
        assert direct_delta(0.9, vector, epsilon) <= upper
    assert direct_delta(0.9, (-3, 0), epsilon) >= Product([(discrete_laplace(0.9, 3), 1)]).delta(epsilon).lower


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9])
def test_one_coordinate_of_full_size_is_the_worst_real_vector(epsilon: float) -> None:
    """Laplace noise on (1/2, 1/2) leaks less than 1 - exp((epsilon - 1)/2), the closed form of one shift by 1."""
    halves = Product([(laplace(2.0), 2)]).delta(epsilon)
    assert 0 < halves.upper < 1.0 - math.exp(0.5 * (epsilon - 1.0))


@pytest.mark.parametrize("adjacency", ["substitute", "zero-out"])
@pytest.mark.parametrize(("noise", "buckets"), [(0.5, 2), (0.3, 4), (0.999, 5)])
@pytest.mark.parametrize("count", [1, 3])
def test_buckets_are_the_sum_over_all_answers(adjacency: str, noise: float, buckets: int, count: int) -> None:
    """Every sequence of answers, both directions, from the definition of the mechanism."""

    def answers(bucket: int | None) -> list[mpmath.mpf]:
        chance = mpmath.mpf(noise) / buckets
        if bucket is None:
            return [mpmath.mpf(1) / buckets] * buckets
        return [(1 - mpmath.mpf(noise)) * (x == bucket) + chance for x in range(buckets)]

    first, second = answers(0), answers(1 if adjacency == "substitute" else None)
    epsilon = 0.4 * count * float(mpmath.log(max(first) / min(first)))
    epsilon = min(epsilon, 0.4 * count * float(mpmath.log(max(p / q for p, q in zip(first, second, strict=True)))))
    truth = 0.0
    for one, other in ((first, second), (second, first)):
        total = mpmath.mpf(0)
        for outcome in itertools.product(range(buckets), repeat=count):
            p = mpmath.fprod(one[x] for x in outcome)
            q = mpmath.fprod(other[x] for x in outcome)
            total += max(mpmath.mpf(0), p - mpmath.exp(epsilon) * q)
        truth = max(truth, float(total))
    assert_holds(bucket_response(noise, buckets, adjacency), count, epsilon, truth)


def sampled_laplace_directions(scale: float, rate: float, epsilon: float) -> tuple[float, float]:
    """D(P||Q) and D(Q||P), from D_k = 1 - sqrt(k) e^(-1/(2 scale)) of the unsampled pair.

    (1 - r + r L - k)+ = r (L - k')+ with k' = 1 + (k - 1)/r, and (1 - k (1 - r + r L))+ = c (1 - (k r/c) L)+
    with c = 1 - k (1 - r).
    """

    def plain(k: mpmath.mpf) -> mpmath.mpf:
        return max(mpmath.mpf(0), 1 - mpmath.sqrt(k) * mpmath.exp(-1 / (2 * mpmath.mpf(scale))))

    k, r = mpmath.exp(epsilon), mpmath.mpf(rate)
    c = 1 - k * (1 - r)
    backward = c * plain(k * r / c) if c > 0 else mpmath.mpf(0)
    return float(r * plain(1 + (k - 1) / r)), float(backward)


@pytest.mark.parametrize(
    ("scale", "rate", "share"), [(1.0, 0.3, 0.0), (1.0, 0.3, 0.5), (0.5, 0.01, 0.3), (3.0, 0.9, 0.7)]
)
def test_sampled_laplace_has_a_closed_form(scale: float, rate: float, share: float) -> None:
    """One Poisson-sampled release, epsilon at a share of the largest possible log ratio."""
    epsilon = share * math.log1p(rate * math.expm1(1.0 / scale))
    assert_holds(Subsampled(laplace(scale), rate), 1, epsilon, max(sampled_laplace_directions(scale, rate, epsilon)))


@pytest.mark.parametrize(("scale", "rate", "epsilon"), [(1.0, 0.3, 0.1), (0.5, 0.6, 0.3)])
def test_a_sampled_pair_has_two_directions(scale: float, rate: float, epsilon: float) -> None:
    """Removing a record leaks less than adding it at this epsilon; either direction is the closed form."""
    source = Subsampled(laplace(scale), rate)
    assert not source.symmetric
    forward, backward = sampled_laplace_directions(scale, rate, epsilon)
    assert backward < 0.95 * forward
    for truth, turned in ((forward, False), (backward, True)):
        laws = {Side.UPPER: source.upper(0.01), Side.LOWER: source.lower(0.01)}
        value = {side: (law.reverse() if turned else law).delta(epsilon) for side, law in laws.items()}
        assert value[Side.LOWER] <= truth <= value[Side.UPPER]
        assert value[Side.UPPER] - value[Side.LOWER] < 1e-3 * truth


def test_sampled_atoms_are_the_sum_over_all_integers() -> None:
    """Poisson-sampled discrete Laplace noise, two releases, both directions, from the definition."""
    parameter, rate, epsilon, reach = 0.9, 0.2, 0.3, 45
    absent = integer_masses(parameter, reach, 0)
    shifted = integer_masses(parameter, reach, 2)
    present = [(1 - mpmath.mpf(rate)) * q + mpmath.mpf(rate) * p for p, q in zip(shifted, absent, strict=True)]
    k = mpmath.exp(epsilon)
    truth = max(
        float(
            mpmath.fsum(
                max(mpmath.mpf(0), one[x] * one[y] - k * other[x] * other[y])
                for x, y in itertools.product(range(2 * reach + 1), repeat=2)
            )
        )
        for one, other in ((present, absent), (absent, present))
    )
    assert_holds(Subsampled(discrete_laplace(parameter, 2), rate), 2, epsilon, truth)


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_renyi_of_sampled_atoms_is_the_sum_over_all_integers(order: float) -> None:
    """Both directions of sum p^t q^(1 - t), the larger one, in the bounds."""
    parameter, rate, reach = 0.7, 0.1, 60
    absent = integer_masses(parameter, reach, 0)
    shifted = integer_masses(parameter, reach, 1)
    present = [(1 - mpmath.mpf(rate)) * q + mpmath.mpf(rate) * p for p, q in zip(shifted, absent, strict=True)]
    moments = [
        mpmath.fsum(p**order * q ** (1 - order) for p, q in zip(one, other, strict=True))
        for one, other in ((present, absent), (absent, present))
    ]
    truth = float(3 * mpmath.log(max(moments)) / (order - 1))
    jaws = renyi(Product([(Subsampled(discrete_laplace(parameter, 1), rate), 3)]), order)
    assert jaws.lower <= truth <= jaws.upper
    assert jaws.upper - jaws.lower <= 1e-6 * truth


def test_nothing_released_is_perfect_privacy() -> None:
    """Every reading is the one of guessing."""
    nothing = no_release()
    for bound in (nothing.upper, nothing.lower):
        for found in (bound.epsilon(1e-5, 1e-3), bound.delta(0.0, 1e-3), bound.renyi(2.0)):
            assert found.value == 0.0
    curves = {side: nothing.bound(side).curve(1e-12, 1e-3) for side in Side}
    for alpha in (0.0, 0.25, 1.0):
        assert float(curves[Side.UPPER](alpha)) <= 1.0 - alpha <= float(curves[Side.LOWER](alpha))
        assert float(curves[Side.LOWER](alpha)) - float(curves[Side.UPPER](alpha)) < 1e-14


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: discrete_laplace(0.0, 1), "noise_parameter"),
        (lambda: discrete_laplace(1.0, 0), "sensitivity"),
        (lambda: discrete_laplace(1.0, 1.5), "sensitivity"),  # type: ignore[arg-type]
        (lambda: discrete_laplace(20.0, 40), "noise_parameter \\* sensitivity"),
        (lambda: bucket_response(1.0, 3, "substitute"), "noise_parameter"),
        (lambda: bucket_response(0.5, 1, "substitute"), "num_buckets"),
        (lambda: bucket_response(1e-300, 2, "substitute"), "noise_parameter"),
        (lambda: Subsampled(laplace(1.0), 0.0), "sampling_probability"),
        (lambda: Subsampled(laplace(1.0), math.nan), "sampling_probability"),
    ],
)
def test_values_outside_their_domain_are_refused_by_name(build: object, named: str) -> None:
    """The message names what to change."""
    assert callable(build)
    with pytest.raises(InputError, match=named):
        build()
