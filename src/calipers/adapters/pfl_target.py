"""The installed pfl as an audit target: all rounds of a simulated training, with and without one user.

**What is real.** `SimulatedBackend` with `FederatedDataset`, `get_user_sampler("random", ids)` and a centrally applied
`GaussianMechanism`: the draw of every cohort, clipping, the sum and the noise are pfl's own (`gather_results`). Not
real is what users compute: each answers with statistics that were fixed beforehand.

**The pair.** The user in question contributes +5C along one coordinate, all others -5C, so that every contribution is
clipped to norm C. A cohort of B places with the user in j of them has the sum 2j - B in clipping norms. The adversary
sees the noisy sum of every round. The model does not change between the rounds, which leaves nothing to adapt to.

**The score** is the exact log likelihood ratio: with y the released sum in clipping norms and z = y + B, a round counts
log sum_j p_j exp((2 j z - 2 j^2) / sigma^2), p_j the binomial probabilities of j places out of B with rate 1/N.

**Memoized rounds.** What clipping and summing make of a cohort depends only on j. With `memoized=True` pfl computes
the sum once for each j; the cohort and the noise are pfl's own in every round.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from calipers.adapters.federated import UNIT
from calipers.adapters.flower_target import seeded_generators
from calipers.adapters.pfl import pfl_module, pfl_version
from calipers.domains import COUNT, POSITIVE
from calipers.numerics.types import FloatArray
from calipers.run import Run

_LONG = 5.0
"""How many clipping norms every contribution has before it is clipped."""
_NAME = "model"
_NOTHING = np.zeros(1)
"""The data of every user; what it computes from them is fixed."""


@dataclass(frozen=True, kw_only=True)
class PflTarget:
    """Rounds of pfl's simulation over `users` users (present) or one less (absent), cohorts drawn by "random"."""

    chunk: ClassVar[int] = 50
    users: int = 1000
    cohort_size: int = 10
    rounds: int = 100
    noise_multiplier: float = 1.0
    clipping_bound: float = 0.4
    memoized: bool = False

    def __post_init__(self) -> None:
        for name in ("users", "cohort_size", "rounds"):
            COUNT.check_int(name, getattr(self, name))
        for name in ("noise_multiplier", "clipping_bound"):
            POSITIVE.check(name, getattr(self, name))

    @property
    def name(self) -> str:
        """What is audited."""
        return (
            f"pfl {pfl_version()}, cohorts 'random' of {self.cohort_size} of {self.users} users in {self.rounds} "
            f"rounds, noise multiplier {self.noise_multiplier:g}"
        )

    @property
    def run(self) -> Run:
        """What Calipers says is executed."""
        return Run(
            sampler="with-replacement", dataset_size=self.users, batch_size=self.cohort_size, steps=self.rounds,
            noise_multiplier=self.noise_multiplier, unit=UNIT, records_per_unit=1,
        )  # fmt: skip

    def identity(self) -> dict[str, object]:
        """Everything that changes the distribution of the outputs."""
        return {"target": "pfl", "pfl": pfl_version(), **asdict(self)}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """The released sums of `count` independent trainings: shape (count, rounds, 1), in clipping norms."""
        found = np.empty((count, self.rounds, 1))
        sums: dict[int, float] = {}
        with seeded_generators(rng):
            for row in found:
                # A backend of its own for every training, as a script has.
                training = _CentralTraining(self, list(range(self.users - (not present))), sums)
                for number in range(self.rounds):
                    row[number] = training.round(number)
        return found / self.clipping_bound

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The exact log likelihood ratio of present against absent, up to floating-point rounding in pfl."""
        places, rate, variance = self.cohort_size, 1.0 / self.users, self.noise_multiplier**2
        moved = outputs[..., 0] + places
        terms = [
            math.log(math.comb(places, j)) + j * math.log(rate) + (places - j) * math.log1p(-rate)
            + (2.0 * j * moved - 2.0 * j * j) / variance
            for j in range(places + 1)
        ]  # fmt: skip
        return np.asarray(np.logaddexp.reduce(terms, axis=0).sum(axis=1), dtype=np.float64)


@dataclass
class _CentralTraining:
    """A backend of pfl over these users; as pfl's `training_algorithm` it answers for each of them."""

    target: PflTarget
    ids: list[int]
    sums: dict[int, float]

    def __post_init__(self) -> None:
        self.data = _dataset("random", self.ids)
        self.mechanism = self._mechanism(self.target.noise_multiplier)
        self.backend = _backend(self.data, self.mechanism)
        self.seeds = np.random.RandomState(np.random.randint(2**32, dtype=np.uint32))  # noqa: NPY002  # as pfl has it

    def round(self, number: int) -> float:
        """The noisy sum that this round releases."""
        context = pfl_module("pfl.context").CentralContext(
            current_central_iteration=number, do_evaluation=False, cohort_size=self.target.cohort_size,
            population=pfl_module("pfl.common_types").Population.TRAIN, algorithm_params=None, model_train_params=None,
            model_eval_params=None, seed=int(self.seeds.randint(2**32, dtype=np.uint32)),
        )  # fmt: skip
        if not self.target.memoized:
            return self._gathered(self.backend, context)
        drawn = [user.user_id for user, _ in self.data.get_cohort(self.target.cohort_size)]
        times = drawn.count(self.target.users - 1)
        if times not in self.sums:
            self.sums[times] = self._sum(times, context)
        noised, _ = self.mechanism.postprocess_server(
            stats=_statistics(self.sums[times]), central_context=context, aggregate_metrics=None
        )
        return float(noised[_NAME][0])

    def _sum(self, times: int, context: Any) -> float:
        """pfl's sum over a cohort in which the user in question fills so many places, without noise."""
        cohort = [self.target.users - 1] * times + [0] * (self.target.cohort_size - times)
        with seeded_generators(np.random.default_rng(0)):
            backend = _backend(_dataset("minimize_reuse", cohort), self._mechanism(0.0))
            return self._gathered(backend, context)

    def _mechanism(self, noise_multiplier: float) -> Any:
        gaussian = pfl_module("pfl.privacy.gaussian_mechanism").GaussianMechanism
        central = pfl_module("pfl.privacy.privacy_mechanism").CentrallyAppliedPrivacyMechanism
        return central(gaussian(self.target.clipping_bound, noise_multiplier))

    def _gathered(self, backend: Any, context: Any) -> float:
        statistics, _ = backend.gather_results(None, self, central_context=context)
        return float(statistics[_NAME][0])

    def simulate_one_user(self, model: Any, user: Any, context: Any) -> tuple[Any, Any]:
        """What pfl asks a training algorithm for: the statistics of one user, and metrics."""
        long = _LONG * self.target.clipping_bound
        value = long if user.user_id == self.target.users - 1 else -long
        return _statistics(value), pfl_module("pfl.metrics").Metrics()


def _statistics(value: float) -> Any:
    return pfl_module("pfl.stats").MappedVectorStatistics({_NAME: np.array([value])})


def _dataset(sampler: str, ids: list[int]) -> Any:
    made = pfl_module("pfl.data.federated_dataset").FederatedDataset
    one = pfl_module("pfl.data.dataset").Dataset
    drawn = pfl_module("pfl.data.sampling").get_user_sampler(sampler, ids)
    return made(lambda user: one((_NOTHING,), user_id=user), drawn)


def _backend(data: Any, mechanism: Any) -> Any:
    return pfl_module("pfl.aggregate.simulate").SimulatedBackend(data, data, [mechanism])
