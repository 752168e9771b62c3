"""Runs with correlated noise: one Gaussian where participation times are known, Poisson rounds where it is cyclic.

**Known times.** See `calipers.mechanisms.noise_matrix`: mu = s / sigma, with s from both sides.

**Cyclic Poisson.** Records are split into b groups beforehand; step t draws each record of group t mod b with
probability q. If columns b or more steps apart share no row, a record of group g is seen in separate blocks of rows,
one for each step t = g, g + b, ..., and in each of them with probability q, moved by c_t u: the blocks are a product of
Poisson-sampled Gaussians with noise sigma / |c_t| (Choquette-Choo et al. 2023, Theorem 4), and if the others contribute
nothing it is exactly that. The group is taken as known. Of several groups the one with the longest columns counts:
above, the k-th longest column of any group for each k; below, one group.

**Files.** A noise matrix is read from a file, an array, or an object of JAX-Privacy. A file holds numbers: .npy as
numpy writes it, .csv or .txt as text. Two dimensions are a lower triangular encoder matrix C; one dimension is the
first column of a Toeplitz one, padded with zeros to `steps`. The word "tree" stands for tree aggregation over `steps`
steps.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import implements
from calipers.domains import POSITIVE_PROBABILITY, choice
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import ADJACENCIES, GuaranteeSubject
from calipers.measure.bounds import Bounds, GaussianBound
from calipers.measure.composed import Composition, PairAttack, PairProof
from calipers.measure.guarantees import stated_measurement
from calipers.measure.measurement import Measurement
from calipers.mechanisms.gaussian import NOISE, poisson_gaussian
from calipers.mechanisms.noise_matrix import STEPS, NoiseMatrix, Patterns, Sensitivity
from calipers.mechanisms.tree_noise import TreeNoise
from calipers.numerics.types import FloatArray
from calipers.pld.composition.product import Product
from calipers.reading import read_bounded
from calipers.scope import ORIENTATIONS

_MOST_KINDS = 10
"""More different column lengths than this are rounded up (above) and down (below) to so many."""
_ATTACK = (
    "The record's clipped gradient is the same unit vector (with the signs that add up) in every step of its pattern, "
    "and all other gradients are zero."
)


@dataclass(frozen=True, eq=False)
class CorrelatedNoise:
    """A run whose noise is correlated between steps by an encoder matrix: `measure` takes it as it takes a run.

    noise_multiplier: deviation of the independent noise Z in C X + Z, in clipping norms. patterns: when a record may
    take part. sample_rate: with cyclic Poisson sampling, the probability of a record of the group whose turn it is;
    `patterns.min_separation` is then the number of groups.
    """

    matrix: NoiseMatrix
    noise_multiplier: float
    patterns: Patterns = field(default_factory=Patterns)
    sample_rate: float | None = None
    adjacency: str = "add-remove"

    def __post_init__(self) -> None:
        NOISE.check("noise_multiplier", self.noise_multiplier)
        choice("adjacency", self.adjacency, ADJACENCIES)
        if self.sample_rate is not None:
            POSITIVE_PROBABILITY.check("sample_rate", self.sample_rate)
            if self.patterns.fixed or self.patterns.max_participations is not None:
                raise InputError("Cyclic Poisson sampling says itself when a record may take part; leave the rest out.")

    @property
    def reach(self) -> float:
        """How far a record's gradient moves: 1, or 2 where it is replaced by another."""
        return 2.0 if self.adjacency == "substitute" else 1.0

    @property
    def stated(self) -> GuaranteeSubject:
        """What reports say about it."""
        drawn = (
            self.patterns.words
            if self.sample_rate is None
            else f"{self.patterns.min_separation} groups take turns, a record of the group is drawn with probability "
            f"{self.sample_rate:.12g}"
        )
        words = (
            f"{self.matrix.steps:,} steps with correlated noise ({self.matrix.name}, noise multiplier "
            f"{self.noise_multiplier:.12g}); {drawn}"
        )
        keys: dict[str, object] = {
            "noise_matrix": self.matrix.name,
            "steps": self.matrix.steps,
            "noise_multiplier": self.noise_multiplier,
            "min_separation": self.patterns.min_separation,
            "max_participations": self.patterns.max_participations,
            "fixed_order": self.patterns.fixed or None,
            "sample_rate": self.sample_rate,
        }
        given = tuple((name, value) for name, value in keys.items() if value is not None)
        return GuaranteeSubject(words, given, self.adjacency, "correlated")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""
        return (
            "The matrix is taken as it is given: noise that was really added with a rounded or truncated inverse of it "
            "is another mechanism.",
            "Participation is taken as stated: a loader that lets a record take part more often, or sooner again, leaks"
            " more.",
        )

    def replace(self, **changes: object) -> CorrelatedNoise:
        """The same with something changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def measured(self, tolerance: float) -> Measurement:
        """The bracket of this run."""
        evaluation = _known_times(self) if self.sample_rate is None else _cyclic(self)
        return stated_measurement(self.stated, evaluation, tolerance, self.notes)


@implements("denisov2022:thm2.1")
def _known_times(run: CorrelatedNoise) -> Bounds:
    found = run.matrix.sensitivity(run.patterns)
    scale = run.reach / run.noise_multiplier
    reason = (
        f"All releases together are one Gaussian whose sensitivity is at most {found.upper:.10g} ({found.reason}; "
        f"{run.patterns.words})."
    )
    attack = f"{_ATTACK} The record takes part {_places(found)}, which moves the release by {found.lower:.10g}."
    upper, lower = found.upper * scale, found.lower * scale
    proof = Evidence.of(Kind.THEOREM, "denisov2022:thm2.1", f"{reason} It is {upper:.12g}-GDP.")
    below = GaussianBound(Side.LOWER, lower, Evidence.of(Kind.TEST, "denisov2022:thm2.1", attack))
    return Bounds(GaussianBound(Side.UPPER, upper, proof), below, closes=found.exact)


def _places(found: Sensitivity) -> str:
    shown = ", ".join(str(place) for place in found.pattern[:5])
    return f"in steps {shown}{', ...' if len(found.pattern) > 5 else ''} ({len(found.pattern)} in all)"


@implements("choquette2023:thm4")
def _cyclic(run: CorrelatedNoise) -> Bounds:
    groups, bands = run.patterns.min_separation, run.matrix.bands()
    if bands > groups:
        raise UnsupportedError(
            f"{run.matrix.name} has {bands} bands and there are {groups} groups: what a record adds at one of its "
            "steps still shows at the next, so no product of Poisson rounds is proven. Use at least as many groups as "
            "bands, or measure it without the sampling (known times)."
        )
    norms = run.matrix.column_norms()
    turns = [np.sort(norms[group::groups])[::-1] for group in range(min(groups, len(norms)))]
    longest = max(len(turn) for turn in turns)
    padded = np.array([np.pad(turn, (0, longest - len(turn))) for turn in turns])
    every, one = padded.max(axis=0), turns[int(np.argmax((padded**2).sum(axis=1)))]
    reason = f"A record is seen in {longest} separate blocks of rows, in each with probability {run.sample_rate:.12g}."
    same = len(every) == len(one) and np.array_equal(every, one) and len(set(every)) <= _MOST_KINDS
    description = f"{_ATTACK} Each block of rows attains exactly its pair."
    above = PairProof(_rounds(run, every, True), reason, "choquette2023:thm4")
    attack = PairAttack(_rounds(run, one, False), description, "choquette2023:thm4", ORIENTATIONS[run.adjacency])
    return Bounds(above, attack, closes=same)


def _rounds(run: CorrelatedNoise, norms: FloatArray, up: bool) -> Composition:
    assert run.sample_rate is not None
    counts = Counter(_noises(run.noise_multiplier / norms, up))
    pairs = [(poisson_gaussian(run.sample_rate, noise, run.adjacency), count) for noise, count in counts.items()]
    return Composition(Product(pairs))


def _noises(noises: FloatArray, up: bool) -> Iterable[float]:
    """The noise multipliers of the rounds, at most a few different ones; more noise leaks less."""
    slack = 1.0 - 1e-12 if up else 1.0 + 1e-12
    if len(set(noises)) <= _MOST_KINDS:
        return (float(noise * slack) for noise in noises)
    low, high = float(noises.min()), float(noises.max())
    ends = np.geomspace(low, high, _MOST_KINDS) if high > low * (1.0 + 1e-12) else np.array([low, high])
    place = np.searchsorted(ends, noises, side="right" if up else "left") - (1 if up else 0)
    return (float(noise * slack) for noise in ends[np.clip(place, 0, len(ends) - 1)])


TREE = "tree"
_KEYS = (
    "noise_matrix",
    "noise_multiplier",
    "steps",
    "min_separation",
    "max_participations",
    "fixed_order",
    "sample_rate",
    "adjacency",
)


_MOST_BYTES = 1 << 28
"""Of a file with a noise matrix."""


def load_matrix(name: str, steps: int | None = None) -> NoiseMatrix:
    """The matrix of a file, or of tree aggregation.

    Args:
        name: a path (.npy, .csv, or text), or "tree".
        steps: how many; tree aggregation needs it.

    Returns:
        The encoder matrix.

    Raises:
        InputError: the file cannot be read or holds no such matrix.
    """
    if name == TREE:
        if steps is None:
            raise InputError(f"noise_matrix = {TREE!r} needs steps.")
        return TreeNoise(steps)
    path = Path(name)
    try:
        if path.suffix == ".npy":
            array = np.load(io.BytesIO(read_bounded(path, _MOST_BYTES)), allow_pickle=False)
        else:
            text = io.StringIO(read_bounded(path, _MOST_BYTES).decode("utf-8-sig"))
            array = np.loadtxt(text, delimiter="," if path.suffix == ".csv" else None, ndmin=1)
    except OSError as error:
        raise InputError(f"Cannot read the noise matrix {name}: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"{name} holds no matrix of numbers: {' '.join(str(error).split())}.") from error
    return matrix_of(array, steps, path.name)


def matrix_of(array: object, steps: int | None = None, name: str = "matrix") -> NoiseMatrix:
    """A noise matrix from numbers.

    Args:
        array: one dimension is the first column of a Toeplitz matrix, two are a dense one.
        steps: the number of columns; what the array says if it is left out.
        name: what reports call it.

    Returns:
        The encoder matrix C of C X + Z.

    Raises:
        InputError: the numbers are no such matrix, or have another number of columns.
    """
    numbers = np.asarray(array, dtype=np.float64)
    if numbers.ndim == 1:
        return NoiseMatrix.of_toeplitz(numbers, numbers.size if steps is None else steps, name)
    found = NoiseMatrix.of(numbers, name)
    if steps is not None and steps != found.steps:
        raise InputError(f"{name} has {found.steps} columns, and steps is {steps}; they are the same number.")
    return found


def correlated_of(keys: Mapping[str, object]) -> CorrelatedNoise:
    """The run with correlated noise that keys of a run file, or options, describe.

    Args:
        keys: `noise_matrix`, `noise_multiplier`, `min_separation` and what else goes with them.

    Returns:
        The run, to be measured.

    Raises:
        InputError: a key is missing, has no such value, or means nothing next to a noise matrix.
    """
    extra = [key for key in keys if key not in _KEYS]
    if extra:
        raise InputError(
            f"Leave out {', '.join(extra)}: noise_matrix goes with {', '.join(_KEYS[1:-1])} and adjacency."
        )
    if "noise_multiplier" not in keys:
        raise InputError("A run with correlated noise needs noise_multiplier: the deviation of the noise Z in C X + Z.")
    if "min_separation" not in keys:
        raise InputError(
            "A run with correlated noise needs min_separation: how many steps lie between two participations of a "
            "record (1 if it may take part in every step)."
        )
    steps, most = (
        None if keys.get(name) is None else STEPS.check_int(name, keys[name])
        for name in ("steps", "max_participations")
    )
    fixed, rate = keys.get("fixed_order", False), keys.get("sample_rate")
    if not isinstance(fixed, bool):
        raise InputError(f"Expected fixed_order to be true or false, got {fixed!r}.")
    return CorrelatedNoise(
        load_matrix(str(keys["noise_matrix"]), steps),
        NOISE.check("noise_multiplier", keys["noise_multiplier"]),
        Patterns(STEPS.check_int("min_separation", keys["min_separation"]), most, fixed),
        None if rate is None else POSITIVE_PROBABILITY.check("sample_rate", rate),
        str(keys.get("adjacency", "add-remove")),
    )
