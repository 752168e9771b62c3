"""Calipers as Flower's accountant, held against Flower's own and against an oracle that knows neither."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calipers.adapters.flower_accountant import CalipersAccountant
from calipers.errors import InputError

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
serverapp = pytest.importorskip("flwr.serverapp")
strategies = pytest.importorskip("flwr.serverapp.strategy")
app = pytest.importorskip("flwr.app")
pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.flower

DELTA = 1e-5
TABLE = [
    # clients, per round, rounds, noise: Flower's own epsilon, and what is true
    (10, 9, 10, 2.0, 8.08, (16.516, 16.526)),
    (1000, 990, 100, 8.0, 6.12, (13.04, 13.049)),
    (1000, 10, 100, 1.0, 96.1, (6.4726, 6.4763)),
]


def configured(clients, relation="ADD_OR_REMOVE_ONE", method="NO_AMPLIFICATION", most=None):
    return serverapp.PrivacyConfig(
        DELTA, clients, serverapp.NeighboringRelation[relation], serverapp.SamplingMethod[method], most
    )


@pytest.mark.parametrize(("clients", "drawn", "rounds", "noise", "flowers", "ours"), TABLE)
def test_the_table(oracle, clients, drawn, rounds, noise, flowers, ours) -> None:
    """Flower's own accountant and this one, on the same events; the oracle is a mixture of Gaussians."""
    own, found = serverapp.RdpAccountant(configured(clients)), CalipersAccountant(configured(clients))
    for accountant in (own, found):
        accountant.compose(serverapp.GaussianPrivacyEvent(noise, drawn, clients), rounds)
    assert own.get_epsilon(DELTA) == pytest.approx(flowers, rel=2e-3)
    bracket = found.bracket(DELTA)
    assert ours[0] <= bracket.lower * (1 + 1e-4)
    assert bracket.upper <= ours[1]
    drawn_shift = noise, [0.0, 2.0], [1 - drawn / clients, drawn / clients], rounds, DELTA
    assert bracket.lower <= oracle(*drawn_shift, "above")
    assert bracket.upper >= oracle(*drawn_shift, "below")
    assert found.get_epsilon(DELTA) == bracket.upper


def test_it_is_one_of_flowers_accountants(grid) -> None:
    """A strategy of Flower composes its rounds, stops at the budget, and reports the certified upper bound."""
    accountant = CalipersAccountant(configured(12, most=4.0))
    inner = strategies.FedAvg(fraction_train=0.01, min_train_nodes=4, min_available_nodes=4)
    strategy = strategies.DifferentialPrivacyServerSideFixedClipping(inner, 2.0, 1.0, 4, accountant=accountant)
    assert strategy.privacy_spent().epsilon == 0.0
    with pytest.raises(serverapp.exception.PrivacyBudgetExhausted):
        strategy.start(grid(12), app.ArrayRecord([np.zeros(2)]), num_rounds=50)
    spent = strategy.privacy_spent()
    assert spent.num_releases >= 1
    assert spent.accounting_method == "calipers"
    assert spent.epsilon <= 4.0
    assert accountant.would_exceed(serverapp.GaussianPrivacyEvent(2.0, 4, 12))
    assert accountant.get_delta(4.0) <= DELTA


def test_every_relation_can_be_asked_for() -> None:
    """Flower accepts NO_AMPLIFICATION with add-or-remove-one alone; all clients in every round need another."""
    event = serverapp.GaussianPrivacyEvent(2.0, 10, 10)
    with pytest.raises(InputError, match="use adjacency 'zero-out' or 'substitute'"):
        CalipersAccountant(configured(10)).compose(event)
    found = {}
    for adjacency in ("zero-out", "substitute"):
        accountant = CalipersAccountant(configured(10), adjacency=adjacency)
        accountant.compose(event, 3)
        found[adjacency] = accountant.get_epsilon(DELTA)
    replaced = CalipersAccountant(configured(10, "REPLACE_ONE", "WITHOUT_REPLACEMENT"))
    replaced.compose(event, 3)
    assert replaced.get_epsilon(DELTA) == found["substitute"] > found["zero-out"]


def test_poisson_sampling_is_read_as_such() -> None:
    accountant = CalipersAccountant(configured(1000, method="POISSON"))
    accountant.compose(serverapp.GaussianPrivacyEvent(1.0, 10, 1000), 100)
    own = serverapp.RdpAccountant(configured(1000, method="POISSON"))
    own.compose(serverapp.GaussianPrivacyEvent(1.0, 10, 1000), 100)
    assert 0.7 < accountant.get_epsilon(DELTA) <= own.get_epsilon(DELTA)


def test_a_checkpoint_goes_on() -> None:
    event, other = serverapp.GaussianPrivacyEvent(2.0, 4, 12), serverapp.GaussianPrivacyEvent(1.5, 4, 12)
    first = CalipersAccountant(configured(12))
    for round_event in (event, event, other):
        first.compose(round_event)
    state = json.loads(json.dumps(first.state_dict()))
    second = CalipersAccountant(configured(12))
    second.load_state_dict(state)
    assert second.num_releases == 3
    assert second.runs() == first.runs()
    assert second.get_epsilon(DELTA) == first.get_epsilon(DELTA)
    with pytest.raises(InputError, match="another configuration"):
        CalipersAccountant(configured(12), adjacency="substitute").load_state_dict(state)
    with pytest.raises(InputError, match="another backend"):
        second.load_state_dict(serverapp.RdpAccountant(configured(12)).state_dict())


def test_mistakes_are_refused() -> None:
    accountant = CalipersAccountant(configured(12))
    with pytest.raises(InputError, match="population_size=12"):
        accountant.compose(serverapp.GaussianPrivacyEvent(2.0, 4, 13))
    with pytest.raises(InputError, match="needs a limit"):
        accountant.would_exceed(serverapp.GaussianPrivacyEvent(2.0, 4, 12))
    with pytest.raises(InputError, match="count"):
        accountant.compose(serverapp.GaussianPrivacyEvent(2.0, 4, 12), 0)
    assert accountant.num_releases == 0
