"""What a chain over a unit's records cannot get below: against simulated tests, Gaussians, and the chain itself."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

import calipers as cp
from calipers.bracket import Side
from calipers.curves.gdp import gaussian_curve
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.measure.chain_floor import (
    Powers,
    chained,
    covers,
    crossing_tests,
    deep_for_epsilon,
    deep_for_mu,
    delta_shown,
    epsilon_shown,
    mu_shown,
    of_curve,
    of_value,
    rates,
)
from calipers.measure.choice import Least
from calipers.measure.dealt_proof import DealtUnitProof
from calipers.measure.grouped import GroupedProof
from calipers.measure.told import DealtProof
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon

NOTHING = -690.0


@pytest.mark.parametrize(("first", "second"), [(0.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("batch_size", [None, 5])
def test_crossings_are_no_better_than_the_test_that_is_played(
    first: float, second: float, batch_size: int | None
) -> None:
    """The sum of every epoch's largest batch, played: at no false positive rate does it do worse than is said."""
    unit, epochs, rounds = DealtUnit(3, 1.6, 4 if batch_size is None else 22, batch_size), 4, 4
    rng = np.random.default_rng(7)
    noise = rng.standard_normal((2, 30_000, epochs, rounds))
    kept = rng.random((2, 30_000, epochs)) < (1.0 if batch_size is None else 20.0 / 22.0)
    played = []
    for at, move in enumerate((first, second)):
        noise[at, ..., 0] += np.where(kept[at], move * unit.shift, 0.0)
        played.append(noise[at].max(axis=-1))
    tests = crossing_tests(unit, epochs, first * unit.shift, second * unit.shift, 20.0)
    assert len(tests) == 3
    for k, (log_alpha, log_power) in zip((1, 2, 4), tests, strict=True):
        absent, present = (one[:, :k].sum(axis=1) for one in played)
        some = (log_alpha > math.log(3e-3)) & (log_alpha < math.log(0.5))
        assert np.any(some)
        for alpha, power in np.exp(np.column_stack((log_alpha[some], log_power[some]))):
            assert np.mean(present > np.quantile(absent, 1.0 - alpha)) >= power - 0.015


@pytest.mark.parametrize("records", [1, 2, 7, 20])
@pytest.mark.parametrize("mu", [0.03, 0.8])
def test_gaussians_in_a_chain_are_one_gaussian(records: int, mu: float) -> None:
    """mu of a chain is the sum of theirs: every number is at most that of the sum, and hardly less."""
    total, delta, epsilon = records * mu, 1e-5, 0.5 * mu
    most = gaussian_epsilon(total, delta)
    log_alpha = rates(900.0)
    exact = Powers(log_alpha, log_ndtr(mu + ndtri_exp(np.minimum(log_alpha, -1e-12))))
    for known in (exact, *([of_curve(gaussian_curve(mu, Side.LOWER))] if total < 2.0 else [])):
        shown = epsilon_shown(chained([known], records, deep_for_epsilon(most, delta), NOTHING), delta)
        assert 0.97 * most <= shown <= most * (1.0 + 1e-6) + 1e-9
        shown = delta_shown(chained([known], records, 40.0, NOTHING), epsilon)
        assert shown == pytest.approx(float(gaussian_delta(total, epsilon)), rel=2e-3)
        shown = mu_shown(chained([known], records, deep_for_mu(total), NOTHING), 1e-10)
        assert 0.97 * total <= shown <= total * (1.0 + 1e-4)


def test_what_is_charged_at_every_rate_grows_along_a_chain() -> None:
    """e^-20 at every rate, and odds of e: after twenty records nothing is finite at 1e-5, after one all is."""
    known, delta = [of_value(1.0, 0.5)], 1e-5
    for log_least, finite in ((-690.0, True), (-25.0, False)):
        shown = epsilon_shown(chained(known, 20, 500.0, log_least), delta)
        assert (shown < 20.0 + 1e-6) == finite
    assert epsilon_shown(chained(known, 1, 500.0, -25.0), delta) <= 1.0 + 1e-9


def test_a_value_says_as_much_as_every_profile_through_it() -> None:
    """A Gaussian with this delta at this epsilon has at least the power that is read off the two numbers."""
    mu, epsilon = 0.7, 1.1
    log_alpha, log_power = of_value(epsilon, float(gaussian_delta(mu, epsilon)))
    curve = gaussian_curve(mu, Side.UPPER, 4000)
    near = log_alpha > -300.0
    assert np.all(np.exp(log_power[near]) <= curve.rates(np.exp(log_alpha[near]))[1] * (1.0 + 1e-9))
    assert covers(of_curve(curve), cp.measure(cp.Run(sampler="deterministic", dataset_size=9, batch_size=9, epochs=1,
                  noise_multiplier=2.0)).envelope(Side.UPPER), 1e-6)  # fmt: skip


UNIT: dict[str, object] = {"unit": "user", "adjacency": "zero-out"}
LOUD = [
    {"sampler": "shuffle", "dataset_size": 42_554, "batch_size": 42, "noise_multiplier": 0.34, "epochs": 1},
    {"sampler": "shuffle", "dataset_size": 1_742_296, "batch_size": 3643, "noise_multiplier": 0.7, "epochs": 97},
    {"sampler": "balls-and-bins", "dataset_size": 4886, "batch_size": 4, "noise_multiplier": 0.404, "epochs": 1},
]


@pytest.mark.parametrize("keys", LOUD)
def test_a_chain_that_gets_nowhere_is_not_computed(keys: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty records with little noise: what is told is all there is to say, and nobody asks the chain."""

    def refused(self: GroupedProof, smallest_delta: float, tolerance: float) -> NoReturn:
        raise AssertionError("the chain was asked")

    monkeypatch.setattr(GroupedProof, "curve", refused)
    above = cp.measure(cp.Run(**keys, **UNIT, records_per_unit=20)).evaluation.above  # type: ignore[arg-type]
    assert isinstance(above, DealtUnitProof)
    told = Least(above.parts[:-1])
    assert above.epsilon(1e-5, 1e-3) == told.epsilon(1e-5, 1e-3)
    with pytest.raises(AssertionError, match="asked"):
        above.parts[-1].epsilon(1e-5, 1e-3)


@pytest.mark.parametrize("sampler", ["shuffle", "balls-and-bins"])
@pytest.mark.parametrize(("noise", "records"), [(9.0, 3), (2.0, 2), (0.8, 2), (0.8, 12)])
def test_no_number_is_lost_to_what_is_not_asked(sampler: str, noise: float, records: int) -> None:
    """Every number is that of all proofs together, chain included; its floor is below what the chain says."""
    run = cp.Run(
        sampler=sampler, dataset_size=2007, batch_size=40, epochs=1, noise_multiplier=noise, **UNIT,  # type: ignore[arg-type]
        records_per_unit=records,
    )  # fmt: skip
    above = cp.measure(run).evaluation.above
    assert isinstance(above, DealtUnitProof)
    every = Least(above.parts)
    assert above.epsilon(1e-5, 1e-3).value <= every.epsilon(1e-5, 1e-3).value * (1.0 + 1.1e-4)
    assert above.delta(0.5, 1e-3).value <= every.delta(0.5, 1e-3).value * (1.0 + 1.1e-6)
    assert above.mu(1e-10, 1e-3) <= every.mu(1e-10, 1e-3) * (1.0 + 1.1e-4)
    alpha = np.geomspace(1e-6, 0.9, 20)
    chosen, all_of_them = (jaw.envelope(1e-12, 1e-3).rates(alpha)[1] for jaw in (above, every))
    assert np.all(chosen <= all_of_them + 1.1e-6)

    (deals,) = (part.steps for part in above.parts if isinstance(part, DealtProof))
    tests = [test for unit, times in deals for test in crossing_tests(unit, times, *(  # type: ignore[arg-type]
             share * unit.shift for share in above.moves), 60.0)]  # type: ignore[union-attr]  # fmt: skip
    known = [*tests, of_curve(above.shown.curve(1e-12, 1e-3))]
    floor, chain = chained(known, records, 60.0, above.chain.log_least(1e-12)), above.chain
    assert epsilon_shown(floor, 1e-5) <= chain.epsilon(1e-5, 1e-3).value * (1.0 + 1e-6)
    assert delta_shown(floor, 0.5) <= chain.delta(0.5, 1e-3).value * (1.0 + 1e-6)
    assert mu_shown(floor, 1e-10) <= chain.mu(1e-10, 1e-3) * (1.0 + 1e-6)
