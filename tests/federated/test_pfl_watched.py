"""A simulated training with pfl that is watched: what was executed, not what was configured."""

from __future__ import annotations

import contextlib
import json
from collections import Counter

import numpy as np
import pytest

from calipers.adapters.pfl import read_backend
from calipers.adapters.pfl_watch import watch
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.receipts import receipt, verify_receipt
from calipers.run import Run

pytest.importorskip("pfl", reason="pfl comes with the extra of that name; run with `make test-federated`")
simulate = pytest.importorskip("pfl.aggregate.simulate")
weighting = pytest.importorskip("pfl.aggregate.weighting")
common = pytest.importorskip("pfl.common_types")
contexts = pytest.importorskip("pfl.context")
users = pytest.importorskip("pfl.data.dataset")
datasets = pytest.importorskip("pfl.data.federated_dataset")
sampling = pytest.importorskip("pfl.data.sampling")
hyperparam = pytest.importorskip("pfl.hyperparam")
metrics = pytest.importorskip("pfl.metrics")
adaptive = pytest.importorskip("pfl.privacy.adaptive_clipping")
gaussian = pytest.importorskip("pfl.privacy.gaussian_mechanism")
ftrl = pytest.importorskip("pfl.privacy.ftrl_mechanism")
mechanisms = pytest.importorskip("pfl.privacy.privacy_mechanism")
statistics = pytest.importorskip("pfl.stats")
pytestmark = pytest.mark.pfl

DELTA = 1e-5
DRAWN = {
    "sampler": "with-replacement",
    "dataset_size": 12,
    "batch_size": 4,
    "noise_multiplier": 2.0,
    "unit": "client",
    "records_per_unit": 1,
}


@pytest.fixture(autouse=True)
def with_numpy(monkeypatch) -> None:
    """pfl needs a framework to be chosen; NumPy is one."""
    selector = pytest.importorskip("pfl.internal.ops.selector")
    monkeypatch.setattr(selector, "_framework_module", selector.numpy_ops)
    np.random.seed(8)


def central(noise=2.0, norm=0.5):
    return mechanisms.CentrallyAppliedPrivacyMechanism(gaussian.GaussianMechanism(norm, noise))


def backend(*postprocessors, sampler="random", count=12):
    data = datasets.FederatedDataset(
        lambda user: users.Dataset((np.zeros((1, 1)),), user_id=user),
        sampling.get_user_sampler(sampler, list(range(count))),
    )
    return simulate.SimulatedBackend(data, data, list(postprocessors) or [weighting.WeightByUser(), central()])


class Algorithm:
    """What pfl asks of a training algorithm; who is absent, what a user sends and with which weight can be chosen."""

    def __init__(self, absent=lambda user: False, value=lambda user: 3.0, weight=lambda user: 1) -> None:
        self.absent, self.value, self.weight, self.drawn = absent, value, weight, []

    def simulate_one_user(self, model, user, context):
        self.drawn.append(user.user_id)
        if self.absent(user.user_id):
            return None, metrics.Metrics()
        made = statistics.MappedVectorStatistics({"model": np.full(3, self.value(user.user_id))})
        made.weight = self.weight(user.user_id)
        return made, metrics.Metrics()


def train(made, rounds=5, cohorts=lambda number: 4, algorithm=None, population=common.Population.TRAIN):
    """Rounds by pfl's own `gather_results`."""
    for number in range(rounds):
        context = contexts.CentralContext(
            current_central_iteration=number, do_evaluation=False, cohort_size=cohorts(number), population=population,
            algorithm_params=None, model_train_params=None, model_eval_params=None, seed=number,
        )  # fmt: skip
        # pfl fails where only some of a cohort return statistics; this script goes on with the next round.
        with contextlib.suppress(ValueError):
            made.gather_results(None, algorithm or Algorithm(), central_context=context)


def trained(made=None, rounds=5, algorithm=None, cohorts=lambda number: 4, **reading):
    made = made or backend()
    record = watch(made, **reading)
    train(made, rounds, cohorts, algorithm)
    return record


def test_a_training_is_its_run() -> None:
    made = backend()
    record = trained(made)
    assert record.why_not() == ()
    assert record.attained()
    assert record.runs() == (Run(steps=5, **DRAWN),)
    assert record.epsilon(DELTA) == measure(Run(steps=5, **DRAWN)).epsilon(DELTA)
    assert record.facts["calls of the mechanism"] == record.facts["rounds released"] == 5
    assert record.facts["clipping norms realized"] == [0.5]
    for adjacency in ("zero-out", "substitute"):
        assert record.runs(adjacency) == read_backend(backend(), cohort_size=4, rounds=5, adjacency=adjacency).runs


def test_watching_changes_nothing() -> None:
    """The same seed with and without: the same users, the same noisy sums."""
    seen = []
    for watched in (False, True):
        np.random.seed(3)
        made, algorithm = backend(), Algorithm()
        if watched:
            watch(made)
        context = contexts.CentralContext(
            current_central_iteration=0, do_evaluation=False, cohort_size=6, population=common.Population.TRAIN,
            algorithm_params=None, model_train_params=None, model_eval_params=None, seed=4,
        )  # fmt: skip
        found, _ = made.gather_results(None, algorithm, central_context=context)
        seen.append((algorithm.drawn, found["model"].tolist()))
    assert seen[0] == seen[1]


def test_what_was_executed_is_counted_not_what_was_configured() -> None:
    """Cohorts that grow, a training that ends early, and evaluations, which train nobody."""
    made = backend()
    record = trained(made, rounds=3, cohorts=lambda number: 4 + 2 * (number == 2))
    train(made, 4, population=common.Population.VAL)
    assert {(run.batch_size, run.total_steps) for run in record.runs()} == {(4, 2), (6, 1)}
    assert record.facts["rounds"] == 3


def test_absent_users_leave_nothing_proven_unless_they_fail_by_chance() -> None:
    """Users 0, 1 and 2 are always absent: in the rounds that are released the others are 4 of 9, not 4 of 12."""
    absent = Algorithm(absent=lambda user: user < 3)
    record = trained(rounds=12, algorithm=absent)
    assert 0 < record.facts["rounds released"] < record.facts["rounds"] == 12
    assert record.facts["rounds with absent users"] == 12 - record.facts["rounds released"]
    assert record.facts["different users that contributed"] <= 9
    assert "drawn users contributed nothing" in record.why_not()[0]
    assert record.runs() == ()
    assert record.epsilon(DELTA).upper == np.inf
    stated = trained(rounds=12, algorithm=absent, failures="by-chance")
    assert stated.runs() == (Run(steps=stated.facts["rounds released"], **DRAWN),)
    assert any("As stated" in sentence for sentence in stated.measure().conditions)


def test_why_absent_users_must_be_counted() -> None:
    """A bound that read the configuration (4 places of 12 users) is exceeded by what was executed (4 places of 9)."""
    configured = measure(Run(steps=50, **DRAWN)).epsilon(DELTA)
    truth = measure(Run(steps=50, **(DRAWN | {"dataset_size": 9}))).epsilon(DELTA)
    assert configured.upper < truth.lower


def test_users_in_turn_are_counted_by_their_contributions() -> None:
    algorithm = Algorithm(absent=lambda user: user == 5)
    record = trained(backend(sampler="minimize_reuse"), 8, algorithm, adjacency="zero-out")
    taken = Counter(user for user in algorithm.drawn if user != 5)
    (run,) = record.runs()
    assert run.sampler == "deterministic"
    assert len(record.rounds) == 8 > record.facts["rounds released"] > 0
    assert run.total_steps == record.facts["most contributions of one user"] <= max(taken.values())
    assert record.runs("add-remove") == ()
    assert "fixed order" in record.why_not("add-remove")[0]
    twice = trained(backend(sampler="minimize_reuse", count=3), 1, adjacency="zero-out")
    assert "twice to one round" in twice.why_not()[0]


def test_contributions_that_break_the_promise_are_seen() -> None:
    heavy = trained(backend(central()), algorithm=Algorithm(weight=lambda user: 2))
    assert "another weight than 1" in heavy.why_not()[0]
    assert trained(algorithm=Algorithm(weight=lambda user: 2)).attained()  # WeightByUser makes it 1
    assert "not finite" in trained(algorithm=Algorithm(value=lambda user: np.nan)).why_not()[0]


def test_a_mechanism_that_is_not_called_or_changes_is_seen() -> None:
    class Shrinking(hyperparam.HyperParam):
        current = 1.0

        def value(self):
            return self.current

    bound = Shrinking()
    made = backend(central(norm=bound))
    record = watch(made)

    def shrinks(user):
        bound.current *= 0.9
        return 3.0

    train(made, 1, algorithm=Algorithm(value=shrinks))
    assert "shrank between clipping and noise" in record.why_not()[0]
    silent = backend()
    record = watch(silent)
    silent._postprocessors.pop()  # somebody takes the mechanism out
    train(silent, 1)
    assert "4 users contributed to a round, and 0 were clipped" in record.why_not()[0]
    assert "added noise 0 times" in record.why_not()[1]


def test_adaptive_clipping_turns_the_indicator_of_a_zeroed_user() -> None:
    """A clipped update against none, as pfl sends them: squared, the sum moves by C^2 + 4 s^2."""

    def made():
        return adaptive.AdaptiveClippingGaussianMechanism(
            lambda norm: gaussian.GaussianMechanism(norm, 2.0), 0.5, 5.0, adaptive_clipping_norm_quantile=0.5
        )

    mechanism = made()
    sent = []
    for length in (9.0, 0.0):
        one, _ = mechanism.postprocess_one_user(
            stats=statistics.MappedVectorStatistics({"model": np.array([length, 0.0])}),
            user_context=contexts.UserContext(num_datapoints=1, seed=1),
        )
        sent.append(np.concatenate([np.ravel(value) for value in one.values()]))
    moved = np.linalg.norm(sent[0] - sent[1])
    expected = 2.0 * mechanism._get_overall_clipping_bound() / moved
    for found in (
        trained(backend(made())).runs("zero-out"),
        read_backend(backend(made()), cohort_size=4, rounds=5, adjacency="zero-out").runs,
    ):
        (run,) = found
        assert run.noise_multiplier == pytest.approx(expected, rel=1e-6)  # pfl clips in single precision
        assert run.noise_multiplier < 1.7
    assert trained(backend(made())).runs()[0].noise_multiplier == 2.0


def test_a_receipt_of_the_training_is_confirmed() -> None:
    written = json.loads(json.dumps(receipt(trained())))
    assert written["run"]["unit"] == "client"
    assert written["executed"]["how"] == "attached"
    assert written["libraries"]["training"]["pfl"]
    assert verify_receipt(written).standing.value == "confirmed"
    refused = receipt(trained(rounds=12, algorithm=Algorithm(absent=lambda user: user < 3)))
    assert refused["run"] == {"phase": []}
    assert refused["measurement"]["epsilon"][0]["upper"] is None


@pytest.mark.parametrize(
    ("sampler", "adjacency", "cohorts"),
    [("random", "add-remove", lambda number: 4), ("minimize_reuse", "zero-out", lambda number: 4)],
)
def test_a_training_can_go_on_from_a_checkpoint(sampler, adjacency, cohorts) -> None:
    first = trained(backend(sampler=sampler), rounds=3, adjacency=adjacency)
    state = json.loads(json.dumps(first.state_dict()))
    made = backend(sampler=sampler)
    second = watch(made, adjacency=adjacency)
    second.load_state_dict(state)
    train(made, 6, cohorts)
    whole = trained(backend(sampler=sampler), rounds=9, adjacency=adjacency)
    assert second.runs() == whole.runs()
    assert second.facts["rounds released"] == 9
    assert second.facts["clipping norms realized"] == [0.5]
    with pytest.raises(InputError, match="too late"):
        second.load_state_dict(state)


def test_mistakes_are_refused(monkeypatch, tmp_path) -> None:
    made = backend()
    record = watch(made)
    with pytest.raises(InputError, match="watched already"):
        watch(made)
    with pytest.raises(InputError, match="No round has released"):
        record.epsilon(DELTA)
    with pytest.raises(InputError, match="failures"):
        watch(backend(), failures="never")
    with pytest.raises(InputError, match="something else"):
        record.load_state_dict({})
    for postprocessors, match in (
        ([central(), weighting.WeightByUser()], "Put it before"),
        ([central(noise=0.0)], "adds no noise"),
        ([gaussian.GaussianMechanism(0.4, 1.0)], "nobody bounds how many messages"),
    ):
        with pytest.raises(UnsupportedError, match=match):
            watch(backend(*postprocessors))
