"""Built-in targets: noisy sums of worst-case gradients, divided as real training loops divide them.

**The dataset.** N other records, all with the clipped gradient v e (v = -1, 0 or +1, e a fixed unit vector of R^n), and
the differing record with gradient e. A round releases

    y = (s e + sigma Z) / d,      s = v k + g b,      Z standard normal in R^n,

where k others and (b = 1) or not (b = 0) the differing record are in the batch. What "absent" means is the adjacency:

| adjacency | absent | members of the absent dataset |
|---|---|---|
| add-remove | there is no such record: b = 0 | N |
| zero-out | the record is a member with gradient 0 (g = 0) | N + 1 |
| substitute | the record is a member with gradient -e (g = -1) | N + 1 |

and present is always g = 1 among N + 1 members.

**The divisor d** is 1 ("none"), a public number ("constant"), q times the number of members ("expected"), the floor of
that ("floor"), or the size of the batch that came out ("realized"). A divisor of 0 (no members, a floor of 0, an empty
batch) is replaced by 1, as in Section 3 of Wang et al. (2026), who say so for "expected" and "realized" only; for
"floor" it is our convention. The floor is taken of the exact product; a loop that rounds q first can lose one
(49 * (1/49) < 1 in double precision): audit such a loop itself.

**Two forms of output.** With isotropic noise and all gradients along e, the pair (<y, e>, |y - <y,e> e|^2) is a
sufficient statistic: given s and d both hypotheses have the density phi((d y - s e)/sigma) (d/sigma)^n, which depends
on y through |d y - s e|^2 = (d <y,e> - s)^2 + d^2 |y_perp|^2 only. Its distribution is that of ((s + sigma z)/d,
sigma^2 X/d^2) with z standard normal and X chi-square with n - 1 degrees, so any number of dimensions costs two draws.
`vectors=True` returns the vectors themselves (e is the first axis; the distribution has no other preferred direction),
for tests that look at coordinates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, COUNT_FROM_ZERO, POSITIVE, POSITIVE_PROBABILITY, choice
from calipers.errors import InputError, UnsupportedError
from calipers.numerics.types import FloatArray
from calipers.run import ADJACENCIES, NORMALIZATIONS, Run
from calipers.samplers import SAMPLERS, scheme_named, scheme_of
from calipers.samplers.analysis import AuditedSums, Scheme

# Doubles that one chunk of outputs may hold (32 MiB), and runs that are plenty for a chunk.
CHUNK_NUMBERS = 2**22
CHUNK_RUNS = 1000
# A product within this relative distance of a whole number is one: q was rounded before it got here.
WHOLE = 1e-9
_MULTIPLES = {-1: "-1 times the record's gradient", 0: "gradient zero", 1: "the record's gradient"}
"""The gradient of the other records, as names say it."""
SIMULATIONS = ("noisy-sums", "torch-sums")
"""Targets that are Calipers' own simulation of a run, by the name in their identity: on the processor, on a GPU."""


@implements("wang2026:def2.7", "wang2026:def2.8", "wang2026:def2.9", "wang2026:defA.1")
@dataclass(frozen=True, kw_only=True)
class NoisySums(AuditedSums):
    """One or many rounds of a divided noisy sum on the dataset above.

    `others` is N and `gradient` v. An epoch has `rounds` rounds (1 under Poisson sampling, where `epochs` counts the
    steps); `sample_rate` is the probability q of the record being in a given round's batch. Outputs have shape
    (count, epochs * rounds, features), features 2 (projection, squared residual) or, with `vectors`, `dimension`.

    Post-condition: the outputs have exactly the distribution stated above, up to the floating-point error of the
    generator's variates; the batches are drawn record by record or in exact integer arithmetic, never from a table of
    this distribution.
    """

    noise_multiplier: float
    epochs: int = 1
    dimension: int = 1
    sampler: str = "poisson"
    normalization: str = "none"
    adjacency: str = "add-remove"
    gradient: int = 0
    vectors: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "epochs", "dimension"):
            object.__setattr__(self, name, COUNT.check_int(name, getattr(self, name)))
        object.__setattr__(self, "others", COUNT_FROM_ZERO.check_int("others", self.others))
        POSITIVE.check("noise_multiplier", self.noise_multiplier)
        POSITIVE_PROBABILITY.check("sample_rate", self.sample_rate)
        choice("sampler", self.sampler, SAMPLERS)
        choice("normalization", self.normalization, NORMALIZATIONS)
        choice("adjacency", self.adjacency, ADJACENCIES)
        if isinstance(self.gradient, bool) or self.gradient not in (-1, 0, 1):
            raise InputError(f"Expected gradient to be -1, 0 or 1, got gradient={self.gradient}.")
        if self.scheme.equal_batches:
            self._check_fixed_batches()

    def _check_fixed_batches(self) -> None:
        # Without the record its others alone fill the batches; in a fixed order they would all move up.
        if self.adjacency == "add-remove" and self.scheme.name == "deterministic":
            raise InputError(
                "Removing a record from batches in a fixed order moves all later ones; use adjacency='zero-out' or "
                "'substitute'."
            )
        fewest = self.others + (self.adjacency != "add-remove")
        if self.rounds * self.batch_size > fewest or self.batch_size < 1:
            raise InputError(
                f"{self.rounds} batches of {self.batch_size} records do not fit into {fewest}; lower rounds or "
                "sample_rate, or use adjacency='zero-out' or 'substitute'."
            )

    @classmethod
    def of_run(cls, run: Run, *, gradient: int | None = None, vectors: bool = False) -> NoisySums:
        """The target a run describes: its own dataset with the differing record, against the dataset without it.

        `gradient` None takes the direction of the other gradients that leaks most as far as we know: 0 where nothing
        that depends on the data is divided, since known zeros blur nothing; -1 with fixed batches (Chua et al.
        2024) and with data-dependent divisors. The isolated view is the dataset with v = 0.
        """
        if run.dataset_size is None:
            raise InputError(
                "The built-in target plays a concrete dataset: say how many records it has with dataset_size."
            )
        if run.records_per_unit > 1:
            raise UnsupportedError(
                f"A built-in target differs by one record, not by a {run.unit} of {run.records_per_unit}; leave "
                "records_per_unit out."
            )
        if run.view == "isolated" and gradient not in (None, 0):
            raise InputError(f"view='isolated' shows the differing record alone; leave out gradient={gradient}.")
        if gradient is None:
            public = run.normalization in ("none", "constant") or run.adjacency != "add-remove"
            tied = scheme_of(run).equal_batches
            gradient = 0 if run.view == "isolated" or (public and not tied) else -1
        rounds = scheme_of(run).rounds(run)
        thrown = not scheme_of(run).stepwise and not scheme_of(run).equal_batches
        rate = 1.0 / rounds if thrown else run.rate
        return cls(
            others=run.dataset_size - 1,
            sample_rate=rate,
            noise_multiplier=run.noise_multiplier,
            rounds=rounds,
            epochs=run.total_steps // rounds,
            dimension=run.dimension if run.dimension is not None else 1,
            sampler=run.sampler,
            normalization=run.normalization,
            adjacency=run.adjacency,
            gradient=gradient,
            vectors=vectors,
        )

    @property
    def name(self) -> str:
        """Sampler, divisor, sizes."""
        return (
            f"noisy sums (sampler {self.sampler}, normalization {self.normalization}), {self.others} other records "
            f"with {_MULTIPLES[self.gradient]}, sample rate {self.sample_rate:g}, noise multiplier "
            f"{self.noise_multiplier:g}, dimension {self.dimension}, steps {self.epochs * self.rounds}"
        )

    def identity(self) -> dict[str, object]:
        """All fields."""
        return {"target": "noisy-sums", **asdict(self)}

    @property
    def chunk(self) -> int:
        """Runs in a chunk: few enough that their outputs, and the drawing of their batches, fit into memory."""
        features = self.dimension if self.vectors else 2
        drawn = self.others * self.sample_rate if self.crowd_matters else 1
        return int(max(1, min(CHUNK_RUNS, CHUNK_NUMBERS // (self.epochs * self.rounds * max(features, drawn)))))

    @property
    def scheme(self) -> Scheme:
        """How batches are drawn."""
        return scheme_named(self.sampler)

    @property
    def crowd_matters(self) -> bool:
        """Whether the outputs depend on how many others are in a batch."""
        return self.gradient != 0 or self.normalization == "realized"

    def is_member(self, present: bool) -> bool:
        """Whether there is a differing record to be sampled."""
        return present or self.adjacency != "add-remove"

    def pull(self, present: bool) -> int:
        """g: what the differing record contributes along e to the batch it is in."""
        return 1 if present else {"add-remove": 0, "zero-out": 0, "substitute": -1}[self.adjacency]

    def divisor(self, present: bool, sizes: FloatArray) -> FloatArray:
        """d for batches of these sizes; 0 is replaced by 1."""
        if self.normalization == "none":
            return np.ones_like(sizes)
        if self.normalization == "realized":
            return np.where(sizes == 0, 1.0, sizes)
        members = self.others + (self.is_member(present) or self.normalization == "constant")
        product = members * self.sample_rate
        if self.normalization == "floor":
            nearest = round(product)
            near = abs(product - nearest) <= WHOLE * max(nearest, 1)
            product = float(nearest if near else int(product))
        return np.full_like(sizes, product if product > 0 else 1.0)

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """`count` runs, each of epochs * rounds noisy sums."""
        sums, divisors = self.releases(present, count, rng)
        noise = self.noise_multiplier
        if self.vectors:
            found = rng.standard_normal((*sums.shape, self.dimension))
            found *= noise
            found[..., 0] += sums
            found /= divisors[..., None]
            return found
        found = np.zeros((*sums.shape, 2))
        found[..., 0] = (sums + noise * rng.standard_normal(sums.shape)) / divisors
        if self.dimension > 1:
            found[..., 1] = rng.chisquare(self.dimension - 1, sums.shape) * np.square(noise / divisors)
        return found

    def releases(self, present: bool, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """For every run and round, before noise: the sum along e, and its divisor."""
        crowd, included = self._batches(present, count, rng)
        return self.gradient * crowd + self.pull(present) * included, self.divisor(present, crowd + included)

    def _batches(self, present: bool, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """For every run and round: how many others are in the batch, and whether the differing record is."""
        shape = (count, self.epochs, self.rounds)
        crowd = np.zeros(shape)
        included = np.zeros(shape)
        if self.is_member(present):
            included = self.scheme.draw(self, shape, rng)
        if self.scheme.equal_batches:
            crowd = self.batch_size - included
        elif self.crowd_matters and self.others > 0:
            crowd = self.scheme.crowd(self, count * self.epochs, rng).reshape(shape)
        flat = (count, self.epochs * self.rounds)
        return crowd.reshape(flat), included.reshape(flat)
