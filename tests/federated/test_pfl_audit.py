"""The game against pfl's own simulation: its accountant's number is exceeded, and Calipers' is not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calipers.adapters.pfl_target import PflTarget
from calipers.auditing.audit import audit
from calipers.errors import InputError
from calipers.measure import measure

pytest.importorskip("pfl", reason="pfl comes with the extra of that name; run with `make test-federated`")
accountants = pytest.importorskip("pfl.privacy.privacy_accountant")
pytestmark = pytest.mark.pfl


@pytest.fixture(autouse=True)
def with_numpy(monkeypatch) -> None:
    """pfl needs a framework to be chosen; NumPy is one."""
    selector = pytest.importorskip("pfl.internal.ops.selector")
    monkeypatch.setattr(selector, "_framework_module", selector.numpy_ops)


def claimed(target, epsilon):
    """(epsilon, delta) as pfl's own accountant says it for these rounds."""
    accountant = accountants.PLDPrivacyAccountant(
        num_compositions=target.rounds, sampling_probability=target.cohort_size / target.users, mechanism="gaussian",
        epsilon=epsilon, noise_parameter=target.noise_multiplier,
    )  # fmt: skip
    return epsilon, float(accountant.delta)


def test_a_drawn_user_moves_the_sum_by_two_norms_for_each_place() -> None:
    """pfl's own rounds with hardly any noise; without the user all sums are -B."""
    target = PflTarget(users=5, cohort_size=4, rounds=30, noise_multiplier=1e-9)
    sums = {present: np.round(target.outputs(present, 1, np.random.default_rng(1)), 6) for present in (False, True)}
    assert set(sums[False].ravel()) == {-4.0}
    assert {-4.0, -2.0, 0.0} <= set(sums[True].ravel()) <= {-4.0, -2.0, 0.0, 2.0, 4.0}


@pytest.mark.parametrize("present", [False, True])
def test_memoized_rounds_release_what_whole_rounds_release(present) -> None:
    """The same generators, the same cohorts, the same noise: the sums are the only thing that is not computed again."""
    shape = {"users": 5, "cohort_size": 4, "rounds": 8}
    whole, memoized = (
        PflTarget(memoized=chosen, **shape).outputs(present, 2, np.random.default_rng(9)) for chosen in (False, True)
    )
    assert np.ptp(whole) > 0.1
    np.testing.assert_allclose(memoized, whole, rtol=1e-12)


def test_the_score_is_the_likelihood_ratio() -> None:
    """Of the mixture of Gaussians that the docstring states, evaluated by hand."""
    target = PflTarget(users=10, cohort_size=2, rounds=2, noise_multiplier=1.5)
    seen = np.array([[[-1.0], [0.7]]])

    def density(center: float) -> np.ndarray:
        return np.exp(-((seen[0, :, 0] - center) ** 2) / (2 * 1.5**2))

    mixture = 0.81 * density(-2.0) + 0.18 * density(0.0) + 0.01 * density(2.0)
    assert target.scores(seen)[0] == pytest.approx(float(np.log(mixture / density(-2.0)).sum()))


def test_pfls_own_number_is_exceeded_with_confidence() -> None:
    """Five rounds, cohorts of 4 of 16 users, noise 1: the same code as 10 of 1000, with fewer draws."""
    target = PflTarget(users=16, cohort_size=4, rounds=5, memoized=True)
    own = claimed(target, 1.0)
    found = audit(target, trials=200, seed=2, claim=own, upper=measure(target.run), epsilons=(1.0,), confidence=0.95)
    assert found.verdict is not None
    assert found.verdict.outcome.value == "falsified"
    assert found.verdict.delta_lower > own[1]
    assert found.as_described


def test_mistakes_are_refused() -> None:
    np.random.seed(11)
    before = np.random.get_state()[1].tolist()
    PflTarget(users=5, cohort_size=2, rounds=1).outputs(True, 1, np.random.default_rng(0))
    assert np.random.get_state()[1].tolist() == before
    assert math.isfinite(PflTarget(users=2).scores(np.zeros((1, 100, 1)))[0])
    with pytest.raises(InputError, match="users"):
        PflTarget(users=0)
