"""Everything that docs/findings.md says about Flower, pfl and NVFlare, shown with the libraries' own objects.

    make test-federated                                                    # sets up .venv-federated
    .venv-federated/bin/python examples/federated/findings.py              # half an hour, most of it the games
    .venv-federated/bin/python examples/federated/findings.py --trials 0   # without the games

Seen with Flower 1.42.0, pfl 0.6.0, NVFlare 2.9.0 and dp-accounting 0.6.0.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from importlib.metadata import version
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp import strategy as strategies
from flwr.supercore.differential_privacy import clip_inputs_inplace
from flwr.supercore.task_identity import TaskIdentity

from calipers.adapters.flower import read_local
from calipers.adapters.flower_accountant import CalipersAccountant
from calipers.adapters.flower_target import FlowerTarget
from calipers.adapters.nvflare import read_filter
from calipers.adapters.pfl import read_backend
from calipers.adapters.pfl_target import PflTarget
from calipers.auditing.audit import audit
from calipers.measure import measure

DELTA = 1e-5
SMALL = PflTarget(users=16, cohort_size=4, rounds=5, memoized=True)
TABLE = ((10, 9, 10, 2.0), (1000, 990, 100, 8.0), (1000, 10, 100, 1.0))


class Clients:
    """So many connected clients, each of which moves the model by its update and reports its weight."""

    def __init__(self, count: int, update: Any, weight: Any = lambda node: 1) -> None:
        self.count, self.update, self.weight = count, update, weight

    def get_node_ids(self) -> list[int]:
        """Who is connected."""
        return list(range(1, self.count + 1))

    def released(self, strategy: Any, parameters: int = 1) -> np.ndarray:
        """What the strategy releases in one round over a model of zeros."""
        arrays = ArrayRecord([np.zeros(parameters)])
        replies = []
        for message in strategy.configure_train(1, arrays, ConfigRecord(), self):
            node = message.metadata.dst_node_id
            moved = ArrayRecord([np.zeros(parameters) + self.update(node)])
            metrics = MetricRecord({"num-examples": self.weight(node)})
            replies.append(Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message))
        found, _ = strategy.aggregate_train(1, replies)
        return found.to_numpy_ndarrays()[0]


def rounds(kind: type[Any], clients: int, drawn: int, count: int, noise: float) -> Any:
    """An accountant with so many rounds composed."""
    config = PrivacyConfig(DELTA, clients, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
    accountant = kind(config)
    accountant.compose(GaussianPrivacyEvent(noise, drawn, clients), count)
    return accountant


def displaced(trials: int) -> None:
    """B of N clients without replacement."""
    print("clients, per round, rounds, noise: Flower's accountant, and lower <= truth <= upper")
    for row in TABLE:
        own, ours = rounds(RdpAccountant, *row), rounds(CalipersAccountant, *row)
        print(f"  {row}: {own.get_epsilon(DELTA):.4g}, {ours.bracket(DELTA)}")
    for clients, drawn, _, _ in TABLE:
        target = FlowerTarget(clients=clients, drawn=drawn, rounds=1, noise_multiplier=1e-9)
        seen = {
            float(np.round(drawn * target.outputs(True, 1, np.random.default_rng(seed))[0, 0, 0], 6))
            for seed in range(3)
        }
        print(f"  sums of {drawn} of {clients} clients, the client in question opposite to the others: {sorted(seen)}")
    if trials:
        for row in TABLE[:2]:
            clients, drawn, count, noise = row
            target = FlowerTarget(clients=clients, drawn=drawn, rounds=count, noise_multiplier=noise, memoized=True)
            play(target, trials, rounds(RdpAccountant, *row).get_delta, (0.0, 1.0, 2.0, 3.0), 0.99)


def play(target: Any, trials: int, claim: Any, epsilons: tuple[float, ...], confidence: float) -> None:
    """The game against a library's own draws and noise, and what it says of the library's own accountant."""
    found = audit(
        target, trials=trials, seed=1, claim=claim, epsilons=epsilons, confidence=confidence, upper=measure(target.run)
    )
    verdict = found.verdict
    assert verdict is not None
    print(
        f"  game against {target.name}, {trials} + {trials} trainings: its accountant is {verdict.outcome.value} with"
    )
    print(
        f"    confidence {confidence:g}: delta({verdict.epsilon:g}) is at least {verdict.delta_lower:.4f}, it says "
        f"{verdict.delta_claimed:.4f}; Calipers' own bound is {'not ' if found.as_described else ''}exceeded"
    )


def weighted() -> None:
    """Weights by number of examples."""
    strategy = wrapped(4)
    heavy = Clients(4, lambda node: 5.0 if node == 1 else -5.0, lambda node: 97 if node == 1 else 1)
    print(
        f"mean of 4 clipped updates, one client with 97 of 100 examples: {heavy.released(strategy)[0]:+.2f}; with equal"
    )
    print(f"  weights: {Clients(4, heavy.update).released(strategy)[0]:+.2f}. The noise is the same: sigma C / 4")


def wrapped(drawn: int, inner: Any = None, noise: float = 1e-9) -> Any:
    """Server-side fixed clipping to norm 1."""
    inner = inner or strategies.FedAvg(fraction_train=1.0, min_train_nodes=drawn)
    return strategies.DifferentialPrivacyServerSideFixedClipping(inner, noise, 1.0, drawn)


def adaptive() -> None:
    """Adaptive clipping."""
    strategy = strategies.DifferentialPrivacyServerSideAdaptiveClipping(
        strategies.FedAvg(fraction_train=1.0, min_train_nodes=100), 1.0, 100, initial_clipping_norm=1.0
    )
    released = Clients(100, lambda node: 1.0).released(strategy, 10_000)
    print(
        f"adaptive clipping, all 100 updates clipped to norm 1: the norm becomes {strategy.clipping_norm:.3f} (it "
        f"shrinks, though everything is clipped), noise on the sum {100 * np.std(released):.3f}; for norm 1 it "
        f"should be {strategy.noise_multiplier:.3f}"
    )


def optimizers() -> None:
    """Noise after the optimizer of the server."""
    norm, drawn = 0.01, 10
    for name in ("FedAvg", "FedAdam", "FedYogi"):
        released = []
        for sign in (1.0, -1.0):
            inner = getattr(strategies, name)(fraction_train=1.0, min_train_nodes=drawn)
            strategy = strategies.DifferentialPrivacyServerSideFixedClipping(inner, 1e-9, norm, drawn)
            clients = Clients(drawn, lambda node, sign=sign: sign if node == 1 else (-1.0) ** node)
            released.append(clients.released(strategy)[0])
        moved = abs(released[0] - released[1]) / (2 * norm / drawn)
        print(f"{name}, C = {norm}: replacing one client moves the release by {moved:.3g} times 2C/B")


def unclipped() -> None:
    """NaN and zero."""
    update = [np.array([np.nan, 1e9])]
    clip_inputs_inplace(update, 1.0)
    print(f"an update (NaN, 1e9) clipped to norm 1: {update[0]}")
    try:
        clip_inputs_inplace([np.zeros(2)], 1.0)
    except ZeroDivisionError as error:
        print(f"an update of norm 0: {type(error).__name__}: {error}")


def local() -> None:
    """LocalDpMod."""
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=1.0, delta=DELTA)
    print(f"LocalDpMod(epsilon=1): one message {read_local(mod, rounds=1).epsilon(DELTA)}, ", end="")
    print(f"ten messages {read_local(mod, rounds=10).epsilon(DELTA)} (substituting the client's data)")


def cohorts(trials: int) -> None:
    """pfl's samplers and its banded matrix factorization."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.internal.ops import numpy_ops, selector
    from pfl.privacy import ftrl_mechanism
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_accountant import PLDPrivacyAccountant
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    selector.set_framework_module(numpy_ops)

    def backend(mechanism: Any, sampler: str, users: int) -> SimulatedBackend:
        ids = get_user_sampler(sampler, list(range(users)))
        data = FederatedDataset(lambda user: Dataset((np.zeros((1, 1)),), user_id=user), ids)
        return SimulatedBackend(data, data, [CentrallyAppliedPrivacyMechanism(mechanism)])

    settings = {"mechanism": "gaussian", "delta": DELTA, "noise_parameter": 1.0}
    claimed = PLDPrivacyAccountant(num_compositions=100, sampling_probability=0.01, **settings)
    print(f"pfl, 10 of 1000 users, 100 rounds, noise 1: its accountant {claimed.epsilon:.3f}")
    mechanism = GaussianMechanism(0.4, 1.0)
    for sampler, adjacency, users in (("random", "add-remove", None), ("minimize_reuse", "zero-out", 1000)):
        made = backend(mechanism, sampler, 1000)
        found = read_backend(made, cohort_size=10, rounds=100, users=users, adjacency=adjacency).epsilon(DELTA)
        print(f"  cohorts {sampler!r}, {adjacency}: {found}")
    if trials:
        # A user of a thousand is rarely drawn: the second game needs many trainings for little confidence.
        for game, trainings in ((SMALL, trials), (PflTarget(memoized=True), 4 * trials)):
            epsilon = 1.0 if game is SMALL else 0.3
            stated = PLDPrivacyAccountant(
                num_compositions=game.rounds, sampling_probability=game.cohort_size / game.users,
                mechanism="gaussian", noise_parameter=game.noise_multiplier, epsilon=epsilon,
            )  # fmt: skip
            play(game, trainings, (epsilon, stated.delta), (epsilon,), 0.99 if game is SMALL else 0.95)
    # The optimized Gram matrix takes minutes; any other with a diagonal of ones shows the same.
    gram = np.eye(20) + 0.5 * np.eye(20, k=1) + 0.5 * np.eye(20, k=-1)
    ftrl_mechanism.FTRLMatrixFactorizer.optimize = lambda self, iters=1000: gram
    claimed = PLDPrivacyAccountant(num_compositions=10, sampling_probability=1.0, **settings)
    banded = ftrl_mechanism.BandedMatrixFactorizationMechanism(0.4, 20, 2, lambda count: claimed)
    rows, columns = (np.linalg.norm(banded.query_matrix, axis=axis).max() for axis in (1, 0))
    made = backend(banded, "minimize_reuse", 20)
    found = read_backend(made, cohort_size=10, rounds=20, users=20, adjacency="zero-out").epsilon(DELTA)
    print(f"pfl, banded matrix factorization: longest row {rows:.3f}, longest column {columns:.3f};")
    print(f"  its accountant {claimed.epsilon:.3f}, measured {found}")


def filters() -> None:
    """NVFlare's filters."""
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters import PercentilePrivacy, SVTPrivacy

    def sent(one: Any, **arrays: Any) -> Any:
        update = DXO(DataKind.WEIGHT_DIFF, {name: np.asarray(value, dtype=float) for name, value in arrays.items()})
        return one.process_dxo(update, Shareable(), FLContext()).data

    for parameters in (1000, 1_000_000):
        svt = SVTPrivacy(replace=False)
        sent(svt, weights=np.ones(parameters))
        found = read_filter(svt, parameters=parameters, messages=1).epsilon(DELTA)
        print(
            f"NVFlare, SVTPrivacy(epsilon={svt.epsilon:g}), {parameters} parameters: its accountant states "
            f"{svt.get_privacy_spent():.6g} for a message, measured {found}"
        )
    svt = SVTPrivacy()
    print(f"  a scalar, 36.6, is sent as {sent(svt, weights=np.ones(100), scalar=36.6)['scalar']}; its ledger says so")
    print(f"  PercentilePrivacy sends (0.1, -0.2, 3) as {sent(PercentilePrivacy(50, 10.0), w=[0.1, -0.2, 3.0])['w']}")


def main() -> None:
    """All of them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300, help="trainings for each side of the game (0: no game)")
    trials = parser.parse_args().trials
    for library in ("flwr", "nvflare", "SVTPrivacy", "PercentilePrivacy"):
        logging.getLogger(library).setLevel(logging.ERROR)
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    names = ("flwr", "pfl", "nvflare", "dp-accounting")
    print(", ".join(f"{name} {version(name)}" for name in names))
    displaced(trials)
    for finding in (weighted, adaptive, optimizers, unclipped, local):
        finding()
    cohorts(trials)
    filters()


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # pfl writes its query matrix to the current folder
        main()
