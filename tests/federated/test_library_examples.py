"""Configurations from the documentation and examples of Flower and pfl: each measured, or refused with its reason.

docs/howto/federated-examples.md is the same list in words.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

from calipers.adapters.flower import read_local, read_strategy
from calipers.adapters.pfl import read_backend
from calipers.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
DELTA = 1e-5


def flower(name: str):
    """What the example hands to `read_strategy`: the strategy, and what its script says besides."""
    import flwr.server.strategy as legacy
    import flwr.serverapp.strategy as strategies
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp.mod import fixedclipping_mod
    from flwr.server.workflow import SecAggPlusWorkflow

    alike = {"clients": 10, "rounds": 3, "equal_weights": True}
    if name.startswith("fl-dp-sa"):
        inner = legacy.FedAvg(fraction_fit=0.2, fraction_evaluate=0.0, min_fit_clients=4)
        strategy = legacy.DifferentialPrivacyClientSideFixedClipping(inner, 0.2, 10.0, 20)
        used = {"mods": [secaggplus_mod, fixedclipping_mod], "secure_aggregation": SecAggPlusWorkflow(7, 4)}
        return strategy, alike | used | {"clients": 100, "examples_per_client": 480, "dimension": 61_610}
    made = {
        "server-side fixed": strategies.DifferentialPrivacyServerSideFixedClipping,
        "client-side fixed": strategies.DifferentialPrivacyClientSideFixedClipping,
        "server-side adaptive": strategies.DifferentialPrivacyServerSideAdaptiveClipping,
        "client-side adaptive": strategies.DifferentialPrivacyClientSideAdaptiveClipping,
    }
    if name == "opacus":
        return strategies.FedAvg(fraction_train=1.0), alike
    kind = made[name]
    if "adaptive" in name:
        return kind(strategies.FedAvg(), 0.5, 10), alike
    mods = {"mods": [fixedclipping_mod]} if "client" in name else {}
    return kind(strategies.FedAvg(), 1.0, 0.1, 10), alike | mods


def rounds_to(bracket, expected) -> bool:
    """Outward, to the last digit that the page shows; a lower end of 0 is not shown."""
    unit = 10.0 ** Decimal(str(expected[1])).as_tuple().exponent
    below, above = bracket.lower - expected[0], expected[1] - bracket.upper
    return 0.0 <= above < unit and below >= 0.0 and (below < unit or expected[0] == 0.0)


FLOWER = [
    ("server-side fixed", "add-remove", "10 of 10, 9 of 9"),
    ("server-side fixed", "substitute", (20.115, 20.126)),
    ("client-side fixed", "zero-out", (8.379, 8.386)),
    ("server-side adaptive", "substitute", (0.0, 64.374)),
    ("client-side adaptive", "substitute", "mean of these bits"),
    ("fl-dp-sa", "add-remove", "20 of 100, 19 of 99"),
    ("fl-dp-sa", "substitute", (0.0, 196.8)),
    ("opacus", "substitute", "none of Flower's"),
]


@pytest.mark.flower
@pytest.mark.parametrize(("name", "adjacency", "expected"), FLOWER)
def test_flower(grid, name, adjacency, expected) -> None:
    strategy, settings = flower(name)
    if isinstance(expected, str):
        with pytest.raises(UnsupportedError, match=expected):
            read_strategy(strategy, adjacency=adjacency, **settings)
        return
    assert rounds_to(read_strategy(strategy, adjacency=adjacency, **settings).epsilon(DELTA), expected)


@pytest.mark.flower
def test_flower_local() -> None:
    from flwr.clientapp.mod import LocalDpMod

    bracket = read_local(LocalDpMod(1.0, 1.0, 1.0, DELTA), rounds=3).epsilon(DELTA)
    assert 2.9 < bracket.lower <= bracket.upper < 3.1


def pfl(name: str):
    """The backend of a benchmark, with its number of users, cohort, rounds and noise."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import ArtificialFederatedDataset, FederatedDataset
    from pfl.data.sampling import get_data_sampler, get_user_sampler
    from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.laplace_mechanism import LaplaceMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism, NoPrivacy

    # 0.6161 is the noise that pfl's own search (minutes) finds for epsilon 2 at delta 1e-6, 1000 of a million users and
    # 1500 rounds; noise_cohort_size=1000 and cohort_size=50 make 0.05 of it.
    users, cohort, rounds, noise, scale = 1000, 50, 1500, 0.6161, 0.05 if name == "cifar10" else 1.0
    central = CentrallyAppliedPrivacyMechanism(GaussianMechanism(0.4, noise * scale))
    weighting = WeightByDatapoints() if name == "weight_by_samples" else WeightByUser()
    local = NoPrivacy()
    if name == "adaptive":
        central = AdaptiveClippingGaussianMechanism(lambda norm: GaussianMechanism(norm, noise), 0.4, 5.0, 0.5)
    if name == "laplace":
        central = CentrallyAppliedPrivacyMechanism(LaplaceMechanism(0.4, 2.0))
    if name == "flair_iid":
        data = ArtificialFederatedDataset.from_slices([np.zeros((50, 1))], get_data_sampler("random", 50), lambda: 5)
    else:
        kind = "minimize_reuse" if name == "in turn" else "random"
        sampler = get_user_sampler(kind, range(users))
        data = FederatedDataset(lambda user: Dataset((np.zeros((1, 1)),), user_id=user), sampler)
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[weighting, local, central])
    return backend, {"cohort_size": cohort, "rounds": rounds} | ({"users": users} if name == "in turn" else {})


PFL = [
    ("cifar10", "add-remove", 0.6161 * 0.05),
    ("whole cohort", "add-remove", (385.3, 385.6)),
    ("in turn", "zero-out", (157.87, 157.88)),
    ("adaptive", "add-remove", 0.6161),
    ("weight_by_samples", "add-remove", "WeightByDatapoints divides"),
    ("laplace", "add-remove", "not the Gaussian mechanism"),
    ("flair_iid", "add-remove", "no user whose data one could add or remove"),
]


@pytest.mark.pfl
@pytest.mark.parametrize(("name", "adjacency", "expected"), PFL)
def test_pfl(name, adjacency, expected) -> None:
    backend, settings = pfl(name)
    if isinstance(expected, str):
        with pytest.raises(UnsupportedError, match=expected):
            read_backend(backend, adjacency=adjacency, **settings)
        return
    found = read_backend(backend, adjacency=adjacency, **settings)
    if isinstance(expected, float):
        (run,) = found.runs
        assert (run.noise_multiplier, run.sampler) == (expected, "with-replacement")
        return
    assert rounds_to(found.epsilon(DELTA), expected)
