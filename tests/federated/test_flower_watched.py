"""A training with Flower that is watched: what was executed, not what was configured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calipers.adapters.flower_watch import watch
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.receipts import receipt, verify_receipt
from calipers.run import Run

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
strategies = pytest.importorskip("flwr.serverapp.strategy")
client_mods = pytest.importorskip("flwr.clientapp.mod")
app = pytest.importorskip("flwr.app")
pytestmark = pytest.mark.flower

DELTA = 1e-5
DRAWN = {
    "sampler": "without-replacement",
    "dataset_size": 12,
    "batch_size": 4,
    "noise_multiplier": 2.0,
    "unit": "client",
    "records_per_unit": 1,
}


def strategy(side="Server", **settings):
    settings = {"fraction_train": 0.01, "min_train_nodes": 4, "min_available_nodes": 4} | settings
    inner = strategies.FedAvg(fraction_evaluate=0.1, **settings)
    return getattr(strategies, f"DifferentialPrivacy{side}SideFixedClipping")(inner, 2.0, 1.0, 4)


def trained(clients, rounds=5, settings=None, **reading):
    """The record of a whole training by Flower's own `start`."""
    chosen = strategy(**(settings or {}))
    record = watch(chosen, **reading)
    # An evaluation needs no clients here: what is released by training is what is measured.
    chosen.configure_evaluate = lambda *arguments: []
    chosen.start(clients, app.ArrayRecord([np.zeros(3)]), num_rounds=rounds)
    return record


def test_a_training_without_failures_is_its_run(grid) -> None:
    record = trained(grid(12))
    assert record.why_not() == ()
    assert record.attained()
    assert record.runs() == (Run(steps=5, **DRAWN),)
    assert record.epsilon(DELTA) == measure(Run(steps=5, **DRAWN)).epsilon(DELTA)
    assert record.facts["rounds released"] == 5
    for adjacency in ("zero-out", "substitute"):
        assert record.runs(adjacency) == (Run(steps=5, adjacency=adjacency, **DRAWN),)


def test_flower_goes_on_with_fewer_replies_and_the_same_noise(grid) -> None:
    """Two of four clients are silent in round 2: half the noise on the sum of the two that count."""
    partial = grid(12, silent=lambda number, node: number == 2 and half(node))
    half.seen = 0
    record = trained(partial, adjacency="substitute")
    assert [one.replied for one in record.rounds] == [4, 2, 4, 4, 4]
    assert all(one.released for one in record.rounds)
    assert not record.attained()
    less, full = sorted(record.runs(), key=lambda run: run.noise_multiplier)
    assert (full.noise_multiplier, full.total_steps, less.total_steps) == (2.0, 4, 1)
    assert 1.0 - 1e-12 < less.noise_multiplier <= 1.0
    assert {run.sampler for run in record.runs()} == {"deterministic"}
    # Not known who failed, so nothing is proven for a client more or less.
    assert record.runs("add-remove") == ()
    assert record.epsilon(DELTA, "add-remove").upper == np.inf


def half(node: int) -> bool:
    half.seen += 1
    return half.seen <= 2


def test_failures_by_chance_keep_the_amplification(grid) -> None:
    half.seen = 0
    record = trained(grid(12, silent=lambda number, node: number == 2 and half(node)), failures="by-chance")
    assert {(run.batch_size, run.total_steps) for run in record.runs()} == {(4, 4), (2, 1)}
    assert any("As stated" in sentence for sentence in record.measure().conditions)


def test_rounds_that_release_nothing_cost_nothing(grid) -> None:
    """Flower skips a round in which a client reports an error; three of five are released."""
    record = trained(grid(12, fails=lambda number, node: number in (2, 4)), adjacency="zero-out")
    assert [one.released for one in record.rounds] == [True, False, True, False, True]
    (run,) = record.runs()
    assert (run.total_steps, run.sampler) == (3, "deterministic")
    assert record.epsilon(DELTA).lower == 0.0


def test_clients_that_always_fail_take_the_amplification_away() -> None:
    """Eight of twelve always fail: the four others are drawn in every round that succeeds, not in a third of them.

    A bound that read the configuration (4 of 12) would be exceeded by the truth (4 of 4).
    """
    configured = measure(Run(steps=50, adjacency="zero-out", **DRAWN)).epsilon(DELTA)
    truth = measure(Run(steps=50, adjacency="zero-out", **(DRAWN | {"dataset_size": 4}))).epsilon(DELTA)
    bound = measure(Run(steps=50, adjacency="zero-out", **(DRAWN | {"sampler": "deterministic", "batch_size": 12})))
    assert configured.upper < truth.lower <= bound.epsilon(DELTA).upper


def test_rounds_are_counted_over_the_smallest_number_of_clients(grid) -> None:
    record = trained(grid(lambda number: 11 + number))
    assert record.facts["clients connected"] == [12, 13, 14, 15, 16]
    # 4 of 13, 14 and 15 are at most 4 of 12; 4 of 16 are 3 of 12.
    assert {(run.dataset_size, run.batch_size, run.total_steps) for run in record.runs()} == {(12, 4, 4), (12, 3, 1)}
    assert not record.attained()
    # A larger population with the same share drawn keeps its rate.
    shares = trained(
        grid(lambda number: 8 if number == 1 else 12), settings={"fraction_train": 0.5}, adjacency="zero-out"
    )
    assert {(run.dataset_size, run.batch_size) for run in shares.runs()} == {(8, 4)}


def test_weights_and_updates_that_break_the_promise_are_seen(grid) -> None:
    heavy = trained(grid(12, weight=lambda node: node))
    assert "different numbers of examples" in heavy.why_not()[0]
    assert heavy.runs() == ()
    broken = trained(grid(12, update=lambda node: np.nan if node < 12 else 1.0), rounds=1)
    assert "not finite" in broken.why_not()[0]


def test_clients_that_do_not_clip_are_seen(grid) -> None:
    """The wrapper trusts the clients; a grid of clients without the mod sends updates of norm sqrt(3)."""
    with pytest.raises(UnsupportedError, match="got none"):
        watch(strategy("Client"))
    mods = [client_mods.fixedclipping_mod]
    record = trained(grid(12), settings={"side": "Client"}, mods=mods)
    assert "longer than the clipping norm" in record.why_not()[0]
    assert trained(grid(12, update=lambda node: 0.5), settings={"side": "Client"}, mods=mods).attained()


def test_a_share_of_the_clients_tells_their_number(grid) -> None:
    record = trained(grid(12), settings={"fraction_train": 0.4})
    assert "4 of 12, 4 of 11" not in str(record.why_not())
    record = trained(grid(12), settings={"fraction_train": 0.5})
    assert "6 of 12, 5 of 11" in record.why_not()[0]
    assert record.runs("substitute")


def test_a_receipt_of_the_training_is_confirmed(grid) -> None:
    written = json.loads(json.dumps(receipt(trained(grid(12)))))
    assert written["run"]["unit"] == "client"
    assert written["executed"]["how"] == "attached"
    assert written["libraries"]["training"]["flwr"]
    assert verify_receipt(written).standing.value == "confirmed"
    half.seen = 0
    refused = receipt(trained(grid(12, silent=lambda number, node: number == 2 and half(node))))
    assert refused["run"] == {"phase": []}
    assert refused["measurement"]["epsilon"][0]["upper"] is None


def test_a_training_can_go_on_from_a_checkpoint(grid) -> None:
    first = trained(grid(12), rounds=2)
    state = json.loads(json.dumps(first.state_dict()))
    chosen = strategy()
    second = watch(chosen)
    second.load_state_dict(state)
    chosen.configure_evaluate = lambda *arguments: []
    chosen.start(grid(12), app.ArrayRecord([np.zeros(3)]), num_rounds=3)
    assert second.runs() == (Run(steps=5, **DRAWN),)
    with pytest.raises(InputError, match="too late"):
        second.load_state_dict(state)


def test_mistakes_are_refused() -> None:
    chosen = strategy()
    record = watch(chosen)
    with pytest.raises(InputError, match="watched already"):
        watch(chosen)
    with pytest.raises(InputError, match="No round has released"):
        record.epsilon(DELTA)
    with pytest.raises(InputError, match="failures"):
        watch(strategy(), failures="never")
