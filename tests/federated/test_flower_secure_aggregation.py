"""Flower's secure aggregation, watched: its own workflow and mods, from the shared keys to the noisy mean."""

from __future__ import annotations

import copy
import functools
import importlib
import logging

import numpy as np
import pytest

from calipers.adapters.flower import read_strategy
from calipers.adapters.flower_watch import watch
from calipers.errors import InputError, UnsupportedError
from calipers.receipts import receipt, verify_receipt

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
legacy = pytest.importorskip("flwr.server.strategy")
strategies = pytest.importorskip("flwr.serverapp.strategy")
workflows = pytest.importorskip("flwr.server.workflow")
legacy_mods = pytest.importorskip("flwr.client.mod")
client_mods = pytest.importorskip("flwr.clientapp.mod")
common = pytest.importorskip("flwr.common")
app = pytest.importorskip("flwr.app")
compat = pytest.importorskip("flwr.compat.common.recorddict_compat")
pytestmark = pytest.mark.flower

DELTA = 1e-5
PARAMETERS = 50
MODS = [legacy_mods.secaggplus_mod, legacy_mods.fixedclipping_mod]


class Clients:
    """A grid of clients that run their mods: each moves the model by 1 in all parameters, or leaves after the keys."""

    def __init__(self, count, examples=lambda node: 10, leaves=lambda number, node: False) -> None:
        self.examples, self.leaves, self.number = examples, leaves, 0
        self.contexts = {
            node: app.Context(run_id=1, node_id=node, node_config={}, state=app.RecordDict(), run_config={})
            for node in range(1, count + 1)
        }

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            # On a wire every client would have a copy of its own.
            message.content = copy.deepcopy(message.content)
            stage = message.content.config_records["secaggplus_configs"]["stage"]
            if stage != "collect_masked_vectors" or not self.leaves(self.number, node):
                replies.append(self.answer(message, self.contexts[node]))
        return replies

    def answer(self, message, context):
        call = self.train
        for mod in reversed(MODS):
            call = functools.partial(lambda mod, call, message, context: mod(message, context, call), mod, call)
        return call(message, context)

    def train(self, message, context):
        given = compat.recorddict_to_fitins(message.content, keep_input=True)
        arrays = [array + 1.0 for array in common.parameters_to_ndarrays(given.parameters)]
        result = common.FitRes(
            common.Status(common.Code.OK, ""),
            common.ndarrays_to_parameters(arrays),
            self.examples(message.metadata.dst_node_id),
            {},
        )
        return app.Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


@pytest.fixture
def securely():
    """Rounds of `SecAggPlusWorkflow` over a strategy, as the default workflow of Flower calls it."""
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    proxies = importlib.import_module("flwr.server.compat.grid_client_proxy").GridClientProxy
    manager = importlib.import_module("flwr.server.client_manager").SimpleClientManager
    contexts = importlib.import_module("flwr.server.compat.legacy_context").LegacyContext
    constant = importlib.import_module("flwr.server.workflow.constant")

    def rounds(strategy, workflow, clients, count=3):
        known = manager()
        for node in clients.contexts:
            known.register(proxies(node, clients, 1))
        context = app.Context(run_id=1, node_id=0, node_config={}, state=app.RecordDict(), run_config={})
        held = contexts(context, strategy=strategy, client_manager=known)
        start = compat.parameters_to_arrayrecord(common.ndarrays_to_parameters([np.zeros(PARAMETERS)]), True)
        held.state.array_records[constant.MAIN_PARAMS_RECORD] = start
        released = []
        for number in range(1, count + 1):
            clients.number = number
            held.state.config_records[constant.MAIN_CONFIGS_RECORD] = app.ConfigRecord(
                {constant.Key.CURRENT_ROUND: number}
            )
            workflow(clients, held)
            kept = compat.arrayrecord_to_parameters(held.state.array_records[constant.MAIN_PARAMS_RECORD], True)
            released.append(common.parameters_to_ndarrays(kept)[0])
        return released

    yield rounds
    logger.setLevel(level)


def strategy(side="Client", noise=2.0, norm=0.5):
    inner = legacy.FedAvg(fraction_fit=0.01, min_fit_clients=4, min_available_clients=4, fraction_evaluate=0.0)
    return getattr(legacy, f"DifferentialPrivacy{side}SideFixedClipping")(inner, noise, norm, 4)


def test_the_rounding_of_the_rounds_that_were_made_is_counted(securely) -> None:
    """The mean that Flower releases differs from that of the updates by less than is counted for one client."""
    workflow = workflows.SecAggPlusWorkflow(4, 3)
    chosen = strategy(noise=1e-9)
    record = watch(chosen, mods=MODS, secure_aggregation=workflow)
    np.random.seed(1)
    released = securely(chosen, workflow, Clients(12))
    # Every client moves by the clipping norm, so the model does too, up to the rounding.
    error = np.linalg.norm(released[0] - 0.5 / np.sqrt(PARAMETERS))
    (run,) = record.runs()
    counted = 0.5 * (1e-9 / run.noise_multiplier - 1.0)  # of two roundings of one client, on the sum
    assert 0 < 4 * error < 4 * counted
    assert (run.dataset_size, run.batch_size, run.total_steps) == (12, 4, 3)
    assert record.facts["rounds released"] == 3


def test_it_is_what_read_strategy_says(securely) -> None:
    workflow, chosen = workflows.SecAggPlusWorkflow(4, 3), strategy()
    record = watch(chosen, mods=MODS, secure_aggregation=workflow)
    securely(chosen, workflow, Clients(12), 2)
    read = read_strategy(
        strategy(), clients=12, rounds=2, equal_weights=True, mods=MODS, secure_aggregation=workflow,
        examples_per_client=10, dimension=PARAMETERS,
    )  # fmt: skip
    assert record.runs() == read.runs
    assert not record.attained()
    assert "rounds every client's parameters at random" in record.why_not()[0]
    assert record.epsilon(DELTA).lower == 0.0 < record.epsilon(DELTA).upper < np.inf
    assert verify_receipt(receipt(record)).standing.value == "confirmed"


def test_clients_that_leave_and_weights_that_differ_are_seen(securely) -> None:
    workflow, chosen = workflows.SecAggPlusWorkflow(4, 2), strategy()
    record = watch(chosen, mods=MODS, secure_aggregation=workflow, adjacency="zero-out")
    first: dict[int, int] = {}
    securely(
        chosen,
        workflow,
        Clients(12, leaves=lambda number, node: number == 2 and first.setdefault(number, node) == node),
    )
    assert [(one.drawn, one.replied) for one in record.rounds if one.released] == [(4, 4), (4, 3), (4, 4)]
    assert {run.sampler for run in record.runs()} == {"deterministic"}
    workflow, chosen = workflows.SecAggPlusWorkflow(4, 3), strategy()
    heavy = watch(chosen, mods=MODS, secure_aggregation=workflow)
    securely(chosen, workflow, Clients(12, examples=lambda node: 10 * node))
    assert "different numbers of examples" in heavy.why_not()[0]
    workflow, chosen = workflows.SecAggPlusWorkflow(4, 3), strategy()
    above = watch(chosen, mods=MODS, secure_aggregation=workflow)
    securely(chosen, workflow, Clients(12, examples=lambda node: 2000))
    assert "raise max_weight" in above.why_not()[0]


def test_the_server_cannot_clip_what_it_does_not_see(securely) -> None:
    """Clipping the mean leaves one client free to move it by far more than C / n."""
    workflow = workflows.SecAggPlusWorkflow(4, 3)
    with pytest.raises(UnsupportedError, match="the server sees the mean alone"):
        watch(strategy("Server"), secure_aggregation=workflow)
    with pytest.raises(UnsupportedError, match="the server sees the mean alone"):
        read_strategy(
            strategy("Server"), clients=12, rounds=2, equal_weights=True, secure_aggregation=workflow,
            examples_per_client=10, dimension=PARAMETERS,
        )  # fmt: skip


@pytest.mark.parametrize("side", ["Server", "Client"])
def test_a_legacy_strategy_without_secure_aggregation_is_watched(securely, side) -> None:
    """Its own `configure_fit` and `aggregate_fit`; the updates are seen, and one that was not clipped is noticed."""
    chosen = strategy(side)
    record = watch(chosen, mods=[legacy_mods.fixedclipping_mod])
    known = importlib.import_module("flwr.server.client_manager").SimpleClientManager()
    proxy = importlib.import_module("flwr.server.compat.grid_client_proxy").GridClientProxy
    for node in range(12):
        known.register(proxy(node, None, 1))

    def one_round(number, moved):
        model = common.ndarrays_to_parameters([np.zeros(PARAMETERS)])
        reply = common.FitRes(
            common.Status(common.Code.OK, ""), common.ndarrays_to_parameters([np.full(PARAMETERS, moved)]), 10, {}
        )
        drawn = chosen.configure_fit(number, model, known)
        chosen.aggregate_fit(number, [(one, copy.deepcopy(reply)) for one, _ in drawn], [])

    for number in (1, 2):
        one_round(number, 0.01)
    assert record.attained()
    (run,) = record.runs()
    assert (run.dataset_size, run.batch_size, run.total_steps, run.noise_multiplier) == (12, 4, 2, 2.0)
    one_round(3, 1.0)
    assert (record.why_not() == ()) == (side == "Server")
    one_round(4, np.nan)
    assert "not finite" in record.why_not()[-1]


def test_mistakes_are_refused() -> None:
    workflow, chosen = workflows.SecAggPlusWorkflow(4, 3), strategy()
    with pytest.raises(UnsupportedError, match="got none"):
        watch(chosen, secure_aggregation=workflow)
    watch(chosen, mods=MODS, secure_aggregation=workflow)
    with pytest.raises(InputError, match="configure_fit was replaced"):
        watch(chosen, mods=MODS)
    inner = strategies.FedAvg(fraction_train=0.01, min_train_nodes=4)
    messages = strategies.DifferentialPrivacyClientSideFixedClipping(inner, 2.0, 1.0, 4)
    with pytest.raises(UnsupportedError, match="aggregates securely with strategies of"):
        watch(messages, mods=[client_mods.fixedclipping_mod], secure_aggregation=workflow)
