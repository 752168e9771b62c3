"""The game against Flower's own aggregation: its accountant's numbers are exceeded, and Calipers' are not."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.adapters.flower_target import FlowerTarget
from calipers.auditing.audit import audit
from calipers.errors import InputError
from calipers.measure import measure

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
serverapp = pytest.importorskip("flwr.serverapp")
pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.flower


def claimed(target):
    """delta(epsilon) as Flower's own accountant says it for these rounds."""
    config = serverapp.PrivacyConfig(
        1e-5, target.clients, serverapp.NeighboringRelation.ADD_OR_REMOVE_ONE, serverapp.SamplingMethod.NO_AMPLIFICATION
    )
    accountant = serverapp.RdpAccountant(config)
    event = serverapp.GaussianPrivacyEvent(target.noise_multiplier, target.drawn, target.clients)
    accountant.compose(event, target.rounds)
    return accountant.get_delta


@pytest.mark.parametrize("shape", [(10, 9, 2.0), (1000, 990, 8.0), (1000, 10, 1.0)])
def test_a_drawn_client_moves_the_sum_by_two_norms(shape) -> None:
    """Flower's own rounds of the table with hardly any noise: the sum is -B, or 2 - B with the client in it."""
    clients, drawn, _ = shape
    target = FlowerTarget(clients=clients, drawn=drawn, rounds=3 if clients < 100 else 1, noise_multiplier=1e-9)
    sums = {
        present: np.round(drawn * target.outputs(present, 1, np.random.default_rng(4))[..., 0], 6)
        for present in (False, True)
    }
    assert set(sums[False].ravel()) == {-float(drawn)}
    assert set(sums[True].ravel()) <= {-float(drawn), 2.0 - drawn}
    if drawn / clients > 0.5:
        assert 2.0 - drawn in sums[True]


def test_the_score_is_the_likelihood_ratio() -> None:
    """Of the mixture of Gaussians that the docstring states, evaluated by hand."""
    target = FlowerTarget(clients=10, drawn=9, rounds=2)
    seen = np.array([[[-1.0], [-0.9]]])
    sums = 9 * seen[0, :, 0]

    def density(center: float) -> np.ndarray:
        return np.exp(-((sums - center) ** 2) / (2 * 4.0))

    expected = np.log((0.1 * density(-9.0) + 0.9 * density(-7.0)) / density(-9.0)).sum()
    assert target.scores(seen)[0] == pytest.approx(expected)


@pytest.mark.parametrize("present", [False, True])
def test_memoized_rounds_release_what_whole_rounds_release(present) -> None:
    """The same generators, the same draws, the same noise: the means are the only thing that is not computed again."""
    shape = {"clients": 5, "drawn": 3, "rounds": 8, "noise_multiplier": 1.0}
    whole, memoized = (
        FlowerTarget(memoized=chosen, **shape).outputs(present, 2, np.random.default_rng(9)) for chosen in (False, True)
    )
    assert np.ptp(whole) > 0.1
    np.testing.assert_allclose(memoized, whole, rtol=1e-12)


def test_flowers_own_number_is_exceeded_with_confidence() -> None:
    """Three rounds of 9 of 10 clients, noise 1.1: the same codes as the table's first line, with fewer messages."""
    target = FlowerTarget(clients=10, drawn=9, rounds=3, noise_multiplier=1.1)
    own = claimed(target)
    found = audit(
        target, trials=260, seed=2, claim=own, upper=measure(target.run), epsilons=(1.0, 1.5, 2.0), confidence=0.95
    )
    assert found.verdict is not None
    assert found.verdict.outcome.value == "falsified"
    assert found.verdict.delta_lower > own(found.verdict.epsilon)
    assert found.as_described


@pytest.mark.slow
def test_the_tables_second_line_is_exceeded_with_confidence() -> None:
    """1000 clients, 990 of them in each of 100 rounds, noise 8: Flower's accountant says delta(2) = 0.157."""
    target = FlowerTarget(clients=1000, drawn=990, rounds=100, noise_multiplier=8.0, memoized=True)
    own = claimed(target)
    found = audit(
        target, trials=100, seed=1, claim=own, upper=measure(target.run), epsilons=(1.0, 2.0), confidence=0.95
    )
    assert found.verdict is not None
    assert found.verdict.outcome.value == "falsified"
    assert found.as_described


def test_the_generators_are_left_as_they_were() -> None:
    np.random.seed(11)
    before = np.random.get_state()[1].tolist()
    FlowerTarget(rounds=1).outputs(True, 1, np.random.default_rng(0))
    assert np.random.get_state()[1].tolist() == before
    with pytest.raises(InputError, match="drawn < clients"):
        FlowerTarget(clients=4, drawn=4)
