"""What a Flower strategy executes is read from its own objects; Flower's own code is the oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.adapters.flower import FAILURE, FINITE, least_noise, read_local, read_strategy, wrapper_of
from calipers.errors import InputError, UnsupportedError
from calipers.run import Run

pytest.importorskip("flwr", reason="Flower comes with the extra flower; run with `make test-federated`")
legacy = pytest.importorskip("flwr.server.strategy")
strategies = pytest.importorskip("flwr.serverapp.strategy")
client_mods = pytest.importorskip("flwr.clientapp.mod")
legacy_mods = pytest.importorskip("flwr.client.mod")
app = pytest.importorskip("flwr.app")
privacy = pytest.importorskip("flwr.supercore.differential_privacy")
pytestmark = pytest.mark.flower

PARAMETERS = 40_000
"""Enough that the deviation of as many coordinates is known to 2 % (more than five of its own deviations)."""


def wrapped(inner=None, noise=2.0, norm=1.0, sampled=4, side="Server", **settings):
    if inner is None:
        settings = {"fraction_train": 0.01, "min_train_nodes": 4, "min_available_nodes": 4} | settings
        inner = strategies.FedAvg(fraction_evaluate=0.5, **settings)
    return getattr(strategies, f"DifferentialPrivacy{side}SideFixedClipping")(inner, noise, norm, sampled)


@pytest.mark.parametrize(
    "settings", [{}, {"fraction_train": 0.5}, {"fraction_train": 0.99, "min_train_nodes": 2}, {"min_train_nodes": 7}]
)
@pytest.mark.parametrize("clients", [7, 10, 12])
def test_as_many_clients_as_flower_draws(grid, settings, clients) -> None:
    strategy = wrapped(**settings)
    arrays, config = app.ArrayRecord([np.zeros(1)]), app.ConfigRecord()
    drawn = [message.metadata.dst_node_id for message in strategy.configure_train(1, arrays, config, grid(clients))]
    assert wrapper_of(strategy).drawn_of(clients) == len(drawn) == len(set(drawn))


@pytest.mark.parametrize("side", ["Server", "Client"])
@pytest.mark.parametrize(("sampled", "averaged"), [(4, 4), (8, 4), (2, 4)])
def test_the_noise_is_that_of_the_released_sum(grid, one_round, side, sampled, averaged) -> None:
    """Flower's noise is calibrated for num_sampled_clients, whatever number it averages."""
    strategy = wrapped(sampled=sampled, side=side)
    np.random.seed(7)
    released = one_round(strategy, grid(12, update=lambda node: 1e-9), PARAMETERS)
    assert np.std(released) * averaged == pytest.approx(wrapper_of(strategy).noise_of(averaged), rel=0.02)


def test_a_strategy_is_its_run() -> None:
    found = read_strategy(wrapped(), clients=12, rounds=5, equal_weights=True)
    expected = Run(
        sampler="without-replacement",
        dataset_size=12,
        batch_size=4,
        steps=5,
        noise_multiplier=2.0,
        unit="client",
        records_per_unit=1,
    )
    assert found.runs == (expected,)
    assert found.attained
    assert FINITE in found.conditions


def test_less_noise_where_fewer_clients_are_averaged_than_sampled_clients_says() -> None:
    (run,) = read_strategy(wrapped(sampled=20), clients=12, rounds=5, equal_weights=True).runs
    assert run.noise_multiplier <= 2.0 * 4 / 20
    assert run.noise_multiplier == pytest.approx(2.0 * 4 / 20)


def refused(strategy, match, **settings):
    settings = {"clients": 12, "rounds": 5, "equal_weights": True} | settings
    with pytest.raises((UnsupportedError, InputError), match=match):
        read_strategy(strategy, **settings)


def test_a_number_of_drawn_clients_that_tells_the_number_of_clients_is_refused() -> None:
    strategy = wrapped(fraction_train=0.5, min_train_nodes=2)
    refused(strategy, "6 of 12, 5 of 11.*min_train_nodes=6")
    assert read_strategy(strategy, clients=12, rounds=5, equal_weights=True, adjacency="substitute").runs


def test_a_round_that_would_wait_without_the_client_is_refused() -> None:
    refused(wrapped(min_available_nodes=12), "Flower waits for 12")
    refused(wrapped(), "Flower waits for 4", clients=4)
    refused(wrapped(), "no round begins", clients=3, adjacency="substitute")


@pytest.mark.parametrize("inner", ["FedAdam", "FedAdagrad", "FedYogi", "FedAvgM", "FedMedian", "FedTrimmedAvg", "Krum"])
def test_other_aggregates_than_the_mean_are_refused(inner) -> None:
    refused(wrapped(getattr(strategies, inner)()), f"{inner} does not release the mean")


def test_fedprox_averages_as_fedavg_does() -> None:
    inner = strategies.FedProx(proximal_mu=0.1, fraction_train=0.01, min_train_nodes=4)
    assert read_strategy(wrapped(inner), clients=12, rounds=5, equal_weights=True).runs


def test_weights_that_may_differ_are_refused_unless_flower_enforces_them(grid, one_round) -> None:
    """A client with k times the mean weight moves the mean k times as far, and the noise stays the same."""
    refused(wrapped(), "calibrated for equal weights", equal_weights=False)
    heavy = grid(4, update=lambda node: 1.0 if node == 1 else -1.0, weight=lambda node: 9 if node == 1 else 1)
    assert one_round(wrapped(noise=1e-9), heavy)[0] == pytest.approx((9 - 3) / 12)


def adaptive(module=strategies, side="Server", noise=0.5, sampled=10, **settings):
    inner = module.FedAvg(fraction_evaluate=0.5, **settings)
    return getattr(module, f"DifferentialPrivacy{side}SideAdaptiveClipping")(inner, noise, sampled)


def test_adaptive_clipping_is_bounded_by_the_least_noise(oracle) -> None:
    """All clipped, count noise at its largest: the norm shrinks by exp(-lr (1 + z / 20 - 1/2)), and so does the noise.

    The oracle composes a Gaussian of that noise with the noisy count, which one client moves by 1.
    """
    strategy = adaptive(fraction_train=0.01, min_train_nodes=10, min_available_nodes=10)
    found = read_strategy(strategy, clients=100, rounds=20, equal_weights=True)
    (run,) = found.runs
    assert math.erfc(7.35 / math.sqrt(2)) / 2 > FAILURE / 20 > math.erfc(7.8 / math.sqrt(2)) / 2
    joint = [
        1 / math.hypot(1 / (strategy.noise_multiplier * math.exp(-0.2 * (0.5 + z / 20))), 1 / (2 * 10 / 20))
        for z in (7.35, 7.8)
    ]
    assert joint[1] < run.noise_multiplier < joint[0]
    bracket = found.epsilon(1e-5)
    assert bracket.lower == 0.0
    assert bracket.upper >= oracle(run.noise_multiplier, [0.0, 2.0], [0.9, 0.1], 20, 1e-5, "below")
    # Of what Andrew et al. account for, noise 0.5 in all, it is more.
    plain = read_strategy(
        wrapped(noise=0.5, sampled=10, min_train_nodes=10), clients=100, rounds=20, equal_weights=True
    )
    assert bracket.upper > plain.epsilon(1e-5).upper
    with pytest.raises(UnsupportedError, match="ask epsilon"):
        found.measure()
    with pytest.raises(InputError, match="delta above"):
        found.epsilon(1e-13)


def test_the_least_noise_is_below_what_flower_adds(grid, one_round) -> None:
    """Everybody is clipped, in Flower's own round, with the count noise as it comes: never less than the bound."""
    for seed in range(5):
        strategy = adaptive(fraction_train=1.0, min_train_nodes=10)
        least = least_noise(wrapper_of(strategy, adaptive=True), 10, 1)
        np.random.seed(seed)
        released = one_round(strategy, grid(10), PARAMETERS)
        realized = np.std(released) * 10 / 0.1  # the norm before its update
        assert least < realized < strategy.noise_multiplier * 1.02


@pytest.mark.parametrize(("module", "side"), [(strategies, "Client"), (legacy, "Client"), (legacy, "Server")])
def test_other_adaptive_clipping_is_refused(module, side) -> None:
    refused(adaptive(module, side), "without noise" if side == "Client" else "not counted after it")


def test_adaptive_clipping_by_clients_releases_their_bits(grid) -> None:
    """Flower's own round: three of ten say that they were clipped, and the metrics say 0.3."""
    strategy = adaptive(side="Client", fraction_train=1.0, min_train_nodes=10)
    clients = grid(10)
    messages = strategy.configure_train(1, app.ArrayRecord([np.zeros(2)]), app.ConfigRecord(), clients)
    replies = clients.send_and_receive(messages)
    for reply in replies:
        for record in reply.content.metric_records.values():
            record["norm_bit"] = int(reply.metadata.src_node_id <= 3)
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics["norm_bit"] == pytest.approx(0.3)


def test_adaptive_clipping_noises_by_the_norm_after_its_update(grid, one_round) -> None:
    """All updates are clipped to the old norm; the norm shrinks at once, and the noise with it."""
    strategy = strategies.DifferentialPrivacyServerSideAdaptiveClipping(
        strategies.FedAvg(fraction_train=1.0, min_train_nodes=10), 1e-3, 10, initial_clipping_norm=1.0, clip_norm_lr=1.0
    )
    strategy.clipped_count_stddev = 0.0
    np.random.seed(3)
    released = one_round(strategy, grid(10), PARAMETERS)
    after = math.exp(-0.5)  # exp(-lr (clipped fraction - target)): everybody was clipped
    assert strategy.clipping_norm == pytest.approx(after)
    assert np.linalg.norm(np.full(PARAMETERS, released.mean())) == pytest.approx(1.0, rel=1e-3)
    claimed = strategy.noise_multiplier / 10
    assert np.std(released) < 0.9 * claimed
    assert np.std(released) == pytest.approx(claimed * after, rel=0.02)


def test_strategies_without_noise_or_of_unknown_classes_are_refused() -> None:
    refused(wrapped(noise=0.0), "adds no noise")
    refused(strategies.FedAvg(), "none of Flower's")

    class Own(strategies.DifferentialPrivacyServerSideFixedClipping):
        pass

    refused(Own(strategies.FedAvg(), 1.0, 1.0, 4), "derived from one may")


def test_clients_have_to_clip_last_where_the_server_does_not() -> None:
    strategy = wrapped(side="Client")
    refused(strategy, "got none")
    refused(
        strategy, "got LocalDpMod", mods=[client_mods.LocalDpMod(1.0, 1.0, 1.0, 1e-5), client_mods.fixedclipping_mod]
    )
    mods = [legacy_mods.secaggplus_mod, client_mods.fixedclipping_mod]
    assert read_strategy(strategy, clients=12, rounds=5, equal_weights=True, mods=mods).runs


def test_flower_does_not_clip_a_nan_and_fails_on_zero() -> None:
    """Why `FINITE` is a condition: one NaN, and the other coordinates pass at any length."""
    update = [np.array([np.nan, 1e9])]
    privacy.clip_inputs_inplace(update, 1.0)
    assert update[0][1] == 1e9
    with pytest.raises(ZeroDivisionError):
        privacy.clip_inputs_inplace([np.zeros(2)], 1.0)


def test_secure_aggregation_rounds_by_less_than_is_counted() -> None:
    """Flower's own quantization, with the weight that its mod multiplies by."""
    quantization = pytest.importorskip("flwr.common.secure_aggregation.quantization")
    workflow = pytest.importorskip("flwr.server.workflow").SecAggPlusWorkflow(3, 2)
    inner = legacy.FedAvg(fraction_fit=0.01, min_fit_clients=4, min_available_clients=4)
    strategy = legacy.DifferentialPrivacyClientSideFixedClipping(inner, 2.0, 1.0, 4)
    settings = {"clients": 12, "rounds": 5, "equal_weights": True, "secure_aggregation": workflow}
    mods = [legacy_mods.secaggplus_mod, client_mods.fixedclipping_mod]
    found = read_strategy(strategy, mods=mods, examples_per_client=10, dimension=1000, **settings)
    (run,) = found.runs
    share = 10 / 1000
    update = np.random.default_rng(0).normal(size=1000)
    levels = quantization.quantize([update * share], workflow.clipping_range, workflow.quantization_range)
    (back,) = quantization.dequantize(levels, workflow.clipping_range, workflow.quantization_range)
    error = np.linalg.norm(back / share - update)
    assert 0 < 2 * error < 2.0 / run.noise_multiplier - 1.0
    assert not found.attained
    assert found.epsilon(1e-5).lower == 0.0
    refused(strategy, "examples_per_client and dimension", mods=mods, secure_aggregation=workflow)
    refused(
        strategy, "raise max_weight", mods=mods, secure_aggregation=workflow, examples_per_client=2000, dimension=10
    )


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_local_noise_is_measured_against_the_norm(grid, adjacency) -> None:
    """The mod's own noise on a message, and epsilon of as many Gaussian releases in closed form."""
    mod = client_mods.LocalDpMod(clipping_norm=2.0, sensitivity=1.0, epsilon=1.0, delta=1e-5)
    message = app.Message(
        app.RecordDict({"arrays": app.ArrayRecord([np.zeros(PARAMETERS)])}), dst_node_id=1, message_type="train"
    )
    np.random.seed(5)
    sent = mod(message, None, grid(1, update=lambda node: 1e-9).reply).content["arrays"].to_numpy_ndarrays()[0]
    (run,) = read_local(mod, rounds=3, adjacency=adjacency).runs
    assert np.std(sent) / 2.0 == pytest.approx(run.noise_multiplier, rel=0.02)
    assert run.total_steps == 3
    assert run.adjacency == adjacency
    with pytest.raises(UnsupportedError, match="sees that it is there"):
        read_local(mod, rounds=3, adjacency="add-remove")


def test_one_message_of_the_local_mod_exceeds_its_own_epsilon() -> None:
    """sensitivity = clipping norm, as in the documentation: two updates of norm C differ by 2C."""
    mod = client_mods.LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=1.0, delta=1e-5)
    assert read_local(mod, rounds=1).epsilon(1e-5).lower > 1.6
    assert read_local(mod, rounds=1, adjacency="zero-out").epsilon(1e-5).upper < 1.0
