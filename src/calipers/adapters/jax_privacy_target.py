"""The installed JAX-Privacy as an audit target: an execution plan of DP-SGD, with and without one record.

What is played is the plan that `BandMFConfig` builds: its batch selection, its clipped sum, its noise, the
state of the noise carried from step to step. The loss of a record c is c w_1, so its gradient is c e with e the
first axis; c = 2 for the differing record and 2 v for the others, which the plan clips to norm 1. That is the
dataset of `calipers.auditing.builtin` (N others, v = -1, 0 or +1), so the distribution that the outputs should have is
a `NoisySums`, and its exact likelihood ratio, over all batches, reads the outputs.

**The divisor.** `normalize_by` is a number that the user writes down; the plan divides the clipped sum by it, and
scales the noise along. Which number the user writes for N records decides what leaks:

| normalization | normalize_by |
|---|---|
| none | 1 |
| constant | q times the size with the record, for both datasets |
| expected | N q, written anew for each dataset: q N without the record, q (N + 1) with it |
| floor | floor(N q), written anew as well |

"constant" keeps the claim. "expected" and "floor" are what a script does that computes the divisor from `len(dataset)`:
the noise then tells the size of the dataset. The size of the batch that came out cannot be written into a
configuration, so "realized" is refused; so are samplers other than the plan's and adjacencies other than add-remove.

**Processes.** JAX runs threads, which a forked process does not inherit. joblib's own backend ("loky") starts its
workers afresh, so `jobs=2` is safe; `joblib_backend="multiprocessing"` forks, and may hang.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from calipers.adapters.jax_privacy import SEEDS, compiled_steps, dp_sgd_plan, library_module, padded_rows
from calipers.auditing.builtin import NoisySums
from calipers.errors import InputError, UnsupportedError
from calipers.numerics.types import FloatArray
from calipers.run import Run

DEFAULT_RUN = Run(
    dataset_size=4, sample_rate=0.5, steps=1, noise_multiplier=2.0, normalization="constant", dimension=100
)
"""What is played when no run is described: small enough to list all batches."""

MOST_RUNS = 500


@dataclass(frozen=True)
class JaxPrivacyTarget:
    """Runs of an execution plan on the dataset of `sums` (absent) or with one record more (present).

    Outputs have the shape of `sums`: (count, steps, 2), projection on e and squared rest, or vectors.
    """

    sums: NoisySums

    def __post_init__(self) -> None:
        sums = self.sums
        if not sums.scheme.independent:
            raise UnsupportedError(
                f"JAX-Privacy's plan of DP-SGD draws Poisson batches, so sampler={sums.sampler!r} cannot be played; "
                "use sampler='poisson'."
            )
        if sums.adjacency != "add-remove":
            raise UnsupportedError(
                f"This target adds a record; adjacency={sums.adjacency!r} cannot be played, use 'add-remove'."
            )
        if sums.normalization == "realized":
            raise UnsupportedError(
                "normalize_by is a number in the configuration of JAX-Privacy and cannot be the size of the batch that "
                "came out; use normalization 'none', 'constant', 'expected' or 'floor'."
            )
        least = {"expected": 0.0, "floor": 1.0}.get(sums.normalization)
        if least is not None and (sums.others == 0 or sums.others * sums.sample_rate < least):
            raise InputError(
                f"With {sums.others} records and sample_rate={sums.sample_rate:g} normalize_by would be 0; raise "
                "one of them."
            )

    @classmethod
    def of_run(cls, run: Run, *, gradient: int | None = None, vectors: bool = False) -> JaxPrivacyTarget:
        """The run's own dataset against the one without the differing record (see `NoisySums.of_run`)."""
        return cls(NoisySums.of_run(run, gradient=gradient, vectors=vectors))

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return self.sums.epochs * self.sums.rounds

    def normalize_by(self, present: bool) -> float:
        """The number written into the configuration for this dataset."""
        return float(self.sums.divisor(present, np.zeros(1))[0])

    @property
    def name(self) -> str:
        """What is audited."""
        without, with_record = self.normalize_by(False), self.normalize_by(True)
        divisor = (
            f"{without:g}" if without == with_record else f"{without:g} without the record, {with_record:g} with it"
        )
        steps = "one step" if self.steps == 1 else f"{self.steps} steps"
        return f"JAX-Privacy {library_module().__version__}, {steps}, normalize_by={divisor}"

    @property
    def chunk(self) -> int:
        """Runs in a chunk."""
        return min(self.sums.chunk, MOST_RUNS)

    def identity(self) -> dict[str, object]:
        """Everything that changes the distribution of the outputs."""
        versions = {name: str(library_module(name).__version__) for name in ("jax_privacy", "jax")}
        return {**self.sums.identity(), "target": "jax-privacy", **versions}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """`count` independent runs of the plan."""
        engine = _engine(self, bool(present))
        features = self.sums.dimension if self.sums.vectors else 2
        found = np.empty((count, self.steps, features))
        for run in range(count):
            released = engine.run(rng)
            if self.sums.vectors:
                found[run] = released
            else:
                found[run, :, 0] = released[:, 0]
                found[run, :, 1] = np.square(released[:, 1:]).sum(axis=1)
        return found


class _Engine:
    """The plan for one dataset, compiled once and run many times."""

    def __init__(self, target: JaxPrivacyTarget, present: bool) -> None:
        sums = target.sums
        self._plan = dp_sgd_plan(
            iterations=target.steps,
            noise_multiplier=sums.noise_multiplier,
            sample_rate=sums.sample_rate,
            normalize_by=target.normalize_by(present),
        )
        self._records = np.array([2.0 * sums.gradient] * sums.others + [2.0] * present, dtype=np.float32)
        self._run = compiled_steps(self._plan, lambda weights, record: (record * weights[0]).sum(), sums.dimension)

    def run(self, rng: np.random.Generator) -> FloatArray:
        """The noisy quotients of one run: shape (steps, dimension)."""
        seed = int(rng.integers(SEEDS))
        batches = list(self._plan.batch_selection_strategy.batch_iterator(len(self._records), rng))
        length = padded_rows(max(map(len, batches)))
        records = np.zeros((len(batches), length), dtype=np.float32)
        padding = np.ones((len(batches), length), dtype=np.bool_)
        for row, batch in enumerate(batches):
            records[row, : len(batch)], padding[row, : len(batch)] = self._records[batch], False
        return np.asarray(self._run(seed, records, padding), dtype=np.float64)


# Compiled once in each process, for all targets that are equal.
@functools.lru_cache(maxsize=8)
def _engine(target: JaxPrivacyTarget, present: bool) -> _Engine:
    return _Engine(target, present)
