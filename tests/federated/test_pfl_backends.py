"""What a pfl backend executes is read from its own objects; its samplers and mechanisms themselves are the oracle."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from calipers.adapters.pfl import read_backend
from calipers.errors import InputError, UnsupportedError
from calipers.measure import CorrelatedNoise
from calipers.run import Run

pytest.importorskip("pfl", reason="pfl comes with the extra of that name; run with `make test-federated`")
simulate = pytest.importorskip("pfl.aggregate.simulate")
weighting = pytest.importorskip("pfl.aggregate.weighting")
datasets = pytest.importorskip("pfl.data.federated_dataset")
sampling = pytest.importorskip("pfl.data.sampling")
adaptive = pytest.importorskip("pfl.privacy.adaptive_clipping")
gaussian = pytest.importorskip("pfl.privacy.gaussian_mechanism")
laplace = pytest.importorskip("pfl.privacy.laplace_mechanism")
ftrl = pytest.importorskip("pfl.privacy.ftrl_mechanism")
mechanisms = pytest.importorskip("pfl.privacy.privacy_mechanism")
accountants = pytest.importorskip("pfl.privacy.privacy_accountant")
statistics = pytest.importorskip("pfl.stats")
pytestmark = pytest.mark.pfl

DELTA = 1e-5


@pytest.fixture(autouse=True)
def with_numpy(monkeypatch) -> None:
    """pfl needs a framework to be chosen; NumPy is one."""
    selector = pytest.importorskip("pfl.internal.ops.selector")
    monkeypatch.setattr(selector, "_framework_module", selector.numpy_ops)


def one_user(user):
    return pytest.importorskip("pfl.data.dataset").Dataset((np.zeros((1, 1)),), user_id=user)


def central(noise=1.0, norm=0.4):
    return mechanisms.CentrallyAppliedPrivacyMechanism(gaussian.GaussianMechanism(norm, noise))


def backend(*postprocessors, sampler="random", users=1000, dataset=None, **settings):
    data = dataset or datasets.FederatedDataset(one_user, sampling.get_user_sampler(sampler, list(range(users))))
    return simulate.SimulatedBackend(data, data, list(postprocessors) or [central()], **settings)


def refused(made, match, **settings):
    with pytest.raises((UnsupportedError, InputError), match=match):
        read_backend(made, **({"cohort_size": 10, "rounds": 100} | settings))


def test_random_cohorts_are_drawn_with_replacement(oracle) -> None:
    """pfl's own accountant assumes Poisson sampling and says 0.718; the oracle knows neither library."""
    found = read_backend(backend(), cohort_size=10, rounds=100)
    assert found.runs == (
        Run(
            sampler="with-replacement",
            dataset_size=1000,
            batch_size=10,
            steps=100,
            noise_multiplier=1.0,
            unit="client",
            records_per_unit=1,
        ),
    )
    bracket = found.epsilon(DELTA)
    assert 9.57 < bracket.lower <= bracket.upper < 9.581
    chances = [math.comb(10, j) * 0.001**j * 0.999 ** (10 - j) for j in range(11)]
    drawn_shift = 1.0, [2.0 * j for j in range(11)], chances, 100, DELTA
    assert bracket.lower <= oracle(*drawn_shift, "above")
    assert bracket.upper >= oracle(*drawn_shift, "below")
    claimed = accountants.PLDPrivacyAccountant(
        num_compositions=100, sampling_probability=0.01, mechanism="gaussian", delta=DELTA, noise_parameter=1.0
    )
    assert claimed.epsilon == pytest.approx(0.718, abs=1e-3)
    assert bracket.lower > 10 * claimed.epsilon


def test_pfl_fills_places_with_the_same_user_twice() -> None:
    """A cohort of pfl's own sampler, which no sampling without replacement and no Poisson sampling would draw."""
    np.random.seed(0)
    data = backend(users=20)._training_dataset
    cohorts = [[user.user_id for user, _ in data.get_cohort(10)] for _ in range(50)]
    assert all(len(cohort) == 10 for cohort in cohorts)
    assert any(max(Counter(cohort).values()) > 1 for cohort in cohorts)


def test_users_in_turn_have_no_amplification() -> None:
    made = backend(sampler="minimize_reuse")
    drawn = [user.user_id for _ in range(150) for user, _ in made._training_dataset.get_cohort(10)]
    (run,) = read_backend(made, cohort_size=10, rounds=150, users=1000, adjacency="substitute").runs
    assert run.total_steps == max(Counter(drawn).values()) == 2
    assert run.sampler == "deterministic"
    refused(made, "all later cohorts hold other users", users=1000)
    refused(made, "add users", adjacency="substitute")
    refused(made, "holds some of the 5 users twice", users=5, adjacency="zero-out")


def test_the_noise_is_what_was_added_not_what_was_asked_for() -> None:
    """noise_scale, for cohorts that were not simulated, has already reduced it."""
    accountant = accountants.PLDPrivacyAccountant(
        num_compositions=100, sampling_probability=0.01, mechanism="gaussian", delta=DELTA, noise_parameter=1.0,
        noise_scale=0.5,
    )  # fmt: skip
    mechanism = gaussian.GaussianMechanism.from_privacy_accountant(accountant, 0.4)
    zeros = statistics.MappedVectorStatistics({"model": np.zeros(40_000)})
    noised, _ = mechanism.add_noise(zeros, cohort_size=10, seed=1)
    found = read_backend(backend(mechanisms.CentrallyAppliedPrivacyMechanism(mechanism)), cohort_size=10, rounds=100)
    assert found.runs[0].noise_multiplier == 0.5
    assert np.std(noised["model"]) / 0.4 == pytest.approx(0.5, rel=0.02)
    assert any("0.5 of what pfl's accountant was asked for" in sentence for sentence in found.conditions)


def test_adaptive_clipping_is_one_vector_with_its_indicator() -> None:
    """The noise is relative to the norm of update and indicator together, so the multiplier is the configured one."""
    mechanism = adaptive.AdaptiveClippingGaussianMechanism(
        lambda norm: gaussian.GaussianMechanism(norm, 1.0), 0.4, clipping_indicator_noise_stddev=5.0,
        adaptive_clipping_norm_quantile=0.5,
    )  # fmt: skip
    found = read_backend(backend(weighting.WeightByUser(), mechanism), cohort_size=10, rounds=100)
    assert found.runs[0].noise_multiplier == 1.0
    both = math.hypot(0.4, mechanism._get_clipping_indicator_scale())
    assert mechanism._get_overall_clipping_bound() == pytest.approx(both)


def test_local_noise_counts_the_messages_of_a_user() -> None:
    local = gaussian.GaussianMechanism(0.4, 3.0)
    settings = {"cohort_size": 10, "rounds": 150, "users": 1000}
    made = backend(local, sampler="minimize_reuse")
    (run,) = read_backend(made, adjacency="substitute", **settings).runs
    assert (run.total_steps, run.noise_multiplier) == (2, 3.0)
    refused(backend(local), "nobody bounds how many messages")


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: backend(weighting.WeightByDatapoints(), central()), "WeightByDatapoints divides"),
        (
            lambda: backend(mechanisms.CentrallyAppliedPrivacyMechanism(laplace.LaplaceMechanism(0.4, 1.0))),
            "not the Ga",
        ),
        (lambda: backend(central(), max_overshoot_fraction=0.1), "max_overshoot_fraction"),
        (lambda: backend(central(), central()), "found 2"),
        (lambda: backend(mechanisms.CentrallyAppliedPrivacyMechanism(mechanisms.NoPrivacy())), "found 0"),
        (lambda: backend(central(noise=0.0)), "adds no noise"),
        (lambda: backend(dataset=artificial()), "no user whose data one could add or remove"),
        (lambda: backend(dataset=datasets.FederatedDataset(one_user, silos())), "without silos"),
    ],
)
def test_what_is_refused(made, match) -> None:
    refused(made(), match)


def artificial():
    return datasets.ArtificialFederatedDataset.from_slices(
        [np.zeros((50, 1))], sampling.get_data_sampler("random", 50), lambda: 5
    )


def silos():
    return sampling.CrossSiloUserSampler("random", silo_to_user_ids={0: [0, 1], 1: [2, 3]})


@pytest.fixture
def banded(monkeypatch, tmp_path):
    """pfl's mechanism with a Gram matrix of unit diagonal in place of the optimized one, which takes minutes."""
    monkeypatch.chdir(tmp_path)
    gram = np.eye(6) + 0.5 * np.eye(6, k=1) + 0.5 * np.eye(6, k=-1)
    monkeypatch.setattr(ftrl.FTRLMatrixFactorizer, "optimize", lambda self, iters=1000: gram)
    accountant = accountants.PLDPrivacyAccountant(
        num_compositions=3, sampling_probability=1.0, mechanism="gaussian", delta=DELTA, noise_parameter=1.0
    )
    return ftrl.BandedMatrixFactorizationMechanism(0.4, 6, 2, lambda count: accountant), accountant


def test_banded_noise_is_measured_with_the_columns_it_has(banded) -> None:
    """The Cholesky factor has rows of length 1; what a user moves is a column, and some are longer."""
    mechanism, accountant = banded
    matrix = mechanism.query_matrix
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(1.0)
    assert np.linalg.norm(matrix, axis=0).max() > 1.04
    made = backend(mechanisms.CentrallyAppliedPrivacyMechanism(mechanism), sampler="minimize_reuse", users=20)
    found = read_backend(made, cohort_size=10, rounds=6, users=20, adjacency="zero-out")
    assert isinstance(found.runs, CorrelatedNoise)
    # Three participations, two rounds apart: columns 0, 2, 4, which share rows with none of the others.
    sensitivity = np.linalg.norm(matrix[:, [0, 2, 4]].sum(axis=1))
    assert sensitivity**2 > 3.0
    assert found.epsilon(DELTA).lower > accountant.epsilon
    refused(
        backend(mechanisms.CentrallyAppliedPrivacyMechanism(mechanism)),
        "the sampler 'random' guarantees none",
        rounds=6,
    )
