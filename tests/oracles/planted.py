"""DP-SGD loops with one mistake each: what a probe or an audit must not bless.

`Right` is a loop without a mistake (Poisson batches, per-record clipping, Gaussian noise, a public divisor); every
entry of `PLANTED` changes one thing about it. The lines of a loop are the truth about it. An entry says under which
subject a probe must raise its alarm and what its verdict must contain; what an audit of whole runs says (see
`planted_audit`) stands at the end.

Loops follow `calipers.probing.protocol`: they are built with (dataset_size, batch_size), draw `batches(epochs, rng)`
and turn per-record gradients into a released vector by `update(gradients, rng)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Generator = np.random.Generator


class Right:
    """DP-SGD as it should be; each mistake overrides one method."""

    noise_multiplier, max_grad_norm = 2.0, 0.5
    layers = (100, 120, 80)
    dimension = 300

    def __init__(self, dataset_size: int, batch_size: int) -> None:
        self.size, self.batch = dataset_size, batch_size
        # Written down for the dataset at hand: neither moves when a record joins.
        self.steps_per_epoch = 6
        self.rate = 1 / 6

    # batches

    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        for _ in range(epochs * self.steps_per_epoch):
            yield self.drawn(rng)

    def drawn(self, rng: Generator) -> Any:
        return np.flatnonzero(rng.random(self.size) < self.rate)

    def accounted(self) -> tuple[float, float]:
        return self.rate, self.noise_multiplier

    # one step

    def update(self, gradients: Array, rng: Generator) -> Array:
        return (self.clipped_sum(gradients) + self.noise(gradients, rng)) / self.divisor(gradients)

    def clipped_sum(self, gradients: Array) -> Array:
        finite = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
        return clip(finite, self.max_grad_norm).sum(axis=0)

    def noise(self, gradients: Array, rng: Generator) -> Array:
        return self.noise_multiplier * self.max_grad_norm * self.standard(rng)

    def standard(self, rng: Generator) -> Array:
        return rng.normal(size=self.dimension)

    def divisor(self, gradients: Array) -> float:
        return float(self.batch)

    def parts(self) -> list[slice]:
        ends = np.cumsum(self.layers)
        return [slice(int(end) - size, int(end)) for end, size in zip(ends, self.layers, strict=True)]


def clip(rows: Array, bound: float) -> Array:
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(1.0, norms / bound)


@dataclass(frozen=True)
class Bug:
    """One mistake: the loop, and what a probe says about it."""

    name: str
    loop: type[Right]
    subject: str
    says: str


PLANTED: list[Bug] = []


def planted(name: str, subject: str, says: str) -> Any:
    def keep(loop: type[Right]) -> type[Right]:
        PLANTED.append(Bug(name, loop, subject, says))
        return loop

    return keep


# ---------------------------------------------------------------------------------------------------- clipping


@planted("the averaged gradient is clipped", "clipping", "clips the averaged gradient of the batch")
class ClipsMean(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        mean = gradients.sum(axis=0) / max(1, len(gradients))
        return clip(mean, self.max_grad_norm) + self.noise(gradients, rng) / self.batch


@planted(
    "the sum divided by a constant is clipped", "clipping", "clips the averaged gradient of the batch (divided by a"
)
class ClipsScaledSum(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return self.batch * clip(gradients.sum(axis=0) / self.batch, self.max_grad_norm)


@planted("the sum of the batch is clipped (one global norm)", "clipping", "clips the sum of the batch")
class ClipsSum(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return clip(gradients.sum(axis=0), self.max_grad_norm)


@planted("nothing is clipped", "clipping", "does not clip")
class ClipsNothing(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return gradients.sum(axis=0)


@planted("clipped to twice the norm", "clipping", "clips to 1, not 0.5")
class ClipsToTwice(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return clip(gradients, 2 * self.max_grad_norm).sum(axis=0)


@planted("each layer is clipped to the whole norm", "clipping", "each layer to 0.5")
class ClipsLayers(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return np.concatenate([clip(gradients[:, part], self.max_grad_norm).sum(axis=0) for part in self.parts()])


@planted("one layer is not clipped", "clipping", "layer 2 is not clipped")
class ForgetsLayer(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        clipped = clip(gradients, self.max_grad_norm)
        clipped[:, self.parts()[1]] = gradients[:, self.parts()[1]]
        return clipped.sum(axis=0)


@planted("the norm is taken over the first layer only", "clipping", "by the norm of layer 1 alone")
class ClipsByFirstLayer(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        norms = np.linalg.norm(gradients[:, self.parts()[0]], axis=1, keepdims=True)
        return (gradients / np.maximum(1.0, norms / self.max_grad_norm)).sum(axis=0)


@planted("each coordinate is clipped by itself", "clipping", "each coordinate by itself")
class ClipsCoordinates(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return np.clip(gradients, -self.max_grad_norm, self.max_grad_norm).sum(axis=0)


@planted("the largest coordinate stands for the norm", "clipping", "by the largest coordinate")
class ClipsByLargest(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        largest = np.abs(gradients).max(axis=1, keepdims=True, initial=0.0)
        return (gradients / np.maximum(1.0, largest / self.max_grad_norm)).sum(axis=0)


@planted("the square of the norm is compared with C", "clipping", "by the square of the norm")
class ClipsBySquare(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        square = np.square(gradients).sum(axis=1, keepdims=True)
        return (gradients / np.maximum(1.0, square / self.max_grad_norm)).sum(axis=0)


@planted("microbatches of two records are averaged, then clipped", "clipping", "averages of 2 records")
class ClipsPairs(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        pairs = [gradients[start : start + 2] for start in range(0, len(gradients), 2)]
        total = np.zeros(self.dimension)
        for pair in pairs:
            total += len(pair) * clip(pair.mean(axis=0), self.max_grad_norm)
        return total


@planted("clipped to the median norm of the batch, without noise", "clipping", "clips to the median norm")
class ClipsToMedian(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        if not len(gradients):
            return np.zeros(self.dimension)
        return clip(gradients, max(1e-300, float(np.median(np.linalg.norm(gradients, axis=1))))).sum(axis=0)


@planted("the clipping norm follows the norms of earlier steps, without noise", "memory", "gradients of earlier steps")
class ClipsByPast(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        bound = getattr(self, "bound", self.max_grad_norm)
        norms = np.linalg.norm(gradients, axis=1)
        if norms.size:
            self.bound = 0.9 * bound + 0.1 * float(np.median(norms))
        return clip(gradients, bound).sum(axis=0)


@planted("the batch's mean is subtracted from each gradient (normalization)", "clipping", "records act on each other")
class Centers(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        if not len(gradients):
            return np.zeros(self.dimension)
        return clip(gradients - 0.5 * gradients.mean(axis=0), self.max_grad_norm).sum(axis=0)


@planted("gradients of the mean loss are clipped", "clipping", "clips gradients of the mean loss")
class ClipsMeanLoss(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        return clip(gradients / max(1, len(gradients)), self.max_grad_norm).sum(axis=0) + self.noise(gradients, rng)


@planted(
    "a regularizer's gradient is added to each record after clipping", "noise and batch size", "no gradient and not"
)
class AddsRegularizer(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return super().clipped_sum(gradients) + len(gradients) * 0.1 * np.linspace(-1, 1, self.dimension)


@planted("a NaN passes through", "gradients that are no numbers", "pass into the step")
class PassesNaN(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        return clip(gradients, self.max_grad_norm).sum(axis=0)


# ----------------------------------------------------------------------------------------------- size of noise


@planted("a variance taken for a deviation", "noise", "(a variance taken for a deviation?)")
class NoiseRoot(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        return math.sqrt(self.noise_multiplier) * self.max_grad_norm * self.standard(rng)


@planted("a deviation squared", "noise", "a deviation squared")
class NoiseSquare(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        return self.noise_multiplier**2 * self.max_grad_norm * self.standard(rng)


@planted("noise not multiplied by the clipping norm", "noise", "not multiplied by the clipping norm")
class NoiseWithoutNorm(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        return self.noise_multiplier * self.standard(rng)


@planted("noise multiplied twice by the clipping norm", "noise", "multiplied twice by the clipping norm")
class NoiseTwiceNorm(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        return self.noise_multiplier * self.max_grad_norm**2 * self.standard(rng)


@planted("no noise", "noise", "none: steps on zero gradients return zeros")
class NoNoise(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        return np.zeros(self.dimension)


@planted(
    "noise divided by the batch that came out, the sum by a constant", "noise and batch size", "divided by its size"
)
class NoiseByRealized(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        return self.clipped_sum(gradients) / self.batch + self.noise(gradients, rng) / max(1, len(gradients))


@planted("noise once for each record", "noise and batch size", "grows like its root")
class NoisePerRecord(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        drawn = rng.normal(size=(max(1, len(gradients)), self.dimension)).sum(axis=0)
        return self.noise_multiplier * self.max_grad_norm * drawn


@planted("noise once for each microbatch of four", "noise and batch size", "follows the batch that came out")
class NoisePerMicrobatch(Right):
    def noise(self, gradients: Array, rng: Generator) -> Array:
        times = max(1, math.ceil(len(gradients) / 4))
        return self.noise_multiplier * self.max_grad_norm * rng.normal(size=(times, self.dimension)).sum(axis=0)


@planted("the sum is divided by B - 1, the noise by B", "noise", "Gaussian, but not of multiplier 2: estimated 1.89")
class OffByOne(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        return self.clipped_sum(gradients) / (self.batch - 1) + self.noise(gradients, rng) / self.batch


@planted("the noisy sum is clipped", "clipping", "no rule known here fits")
class ClipsNoisy(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        noisy = gradients.sum(axis=0) + self.noise(gradients, rng)
        return clip(noisy, self.max_grad_norm) / self.batch


# ------------------------------------------------------------------------------------------------ law of noise


@planted("Laplace noise of the right variance", "noise", "not Gaussian")
class LaplaceNoise(Right):
    def standard(self, rng: Generator) -> Array:
        return rng.laplace(scale=math.sqrt(0.5), size=self.dimension)


@planted("uniform noise of the right variance", "noise", "not Gaussian")
class UniformNoise(Right):
    def standard(self, rng: Generator) -> Array:
        return rng.uniform(-math.sqrt(3), math.sqrt(3), size=self.dimension)


@planted("noise cut off at two deviations", "noise", "not Gaussian")
class CutNoise(Right):
    def standard(self, rng: Generator) -> Array:
        return np.clip(super().standard(rng), -2, 2)


@planted("noise of half precision", "noise", "few different values: of low precision")
class HalfNoise(Right):
    def standard(self, rng: Generator) -> Array:
        return super().standard(rng).astype(np.float16).astype(np.float64)


@planted("noise only on the first layer", "noise", "missing: layer 2, 3 gets no noise")
class NoiseFirstLayer(Right):
    def standard(self, rng: Generator) -> Array:
        drawn = super().standard(rng)
        drawn[self.parts()[0].stop :] = 0.0
        return drawn


@planted("the last ten coordinates (a bias) get no noise", "noise", "10 of 300 coordinates get no noise")
class NoiseForgetsBias(Right):
    def standard(self, rng: Generator) -> Array:
        drawn = super().standard(rng)
        drawn[-10:] = 0.0
        return drawn


@planted("one layer gets half the noise", "noise", "differs between layers: least in layer 3")
class NoiseUneven(Right):
    def standard(self, rng: Generator) -> Array:
        drawn = super().standard(rng)
        drawn[self.parts()[2]] *= 0.5
        return drawn


# ------------------------------------------------------------------------------------------------ shared noise


@planted("noise re-seeded for each layer", "noise correlation", "receive the same noise")
class ReseedsLayers(Right):
    def standard(self, rng: Generator) -> Array:
        seed = int(rng.integers(2**31))
        return np.concatenate([np.random.default_rng(seed).normal(size=size) for size in self.layers])


@planted("noise re-seeded with one number in every step", "noise", "every step of every run adds the same vector")
class FixedSeed(Right):
    def standard(self, rng: Generator) -> Array:
        return np.random.default_rng(0).normal(size=self.dimension)


@planted(
    "noise re-seeded with the run's seed in every step", "noise correlation", "successive steps add the same noise"
)
class ReseedsSteps(Right):
    def standard(self, rng: Generator) -> Array:
        return np.random.default_rng(rng.bit_generator.seed_seq).normal(size=self.dimension)  # type: ignore[attr-defined]


@planted("one noise vector drawn at the start for all steps", "noise", "every step of every run adds the same vector")
class OneVector(Right):
    def standard(self, rng: Generator) -> Array:
        if not hasattr(self, "kept"):
            self.kept = np.random.default_rng(7).normal(size=self.dimension)
        return self.kept


@planted("two layers share their noise", "noise correlation", "receive the same noise")
class SharesLayers(Right):
    def standard(self, rng: Generator) -> Array:
        drawn = super().standard(rng)
        drawn[self.parts()[1]][:80] = drawn[self.parts()[2]]
        return drawn


@planted("one number of noise for all coordinates", "noise correlation", "receive the same noise")
class OneNumber(Right):
    def standard(self, rng: Generator) -> Array:
        return np.full(self.dimension, rng.normal())


@planted("each noise is used again with the opposite sign", "noise correlation", "steps share noise")
class Antithetic(Right):
    def standard(self, rng: Generator) -> Array:
        kept = getattr(self, "kept", None)
        self.kept = None if kept is not None else super().standard(rng)
        return -kept if kept is not None else self.kept  # type: ignore[return-value]


@planted("noise correlated with that of the step before, accounted as independent", "noise correlation", "steps share")
class Correlated(Right):
    def standard(self, rng: Generator) -> Array:
        before = getattr(self, "kept", np.zeros(self.dimension))
        self.kept = super().standard(rng)
        return (self.kept - 0.3 * before) / math.sqrt(1.09)


@planted("noise drawn once and shuffled anew in every step", "noise", "few different values")
class ShufflesNoise(Right):
    def standard(self, rng: Generator) -> Array:
        return rng.permutation(np.random.default_rng(3).normal(size=self.dimension))


# ----------------------------------------------------------------------------------------------------- batches


@planted("a step without records is skipped", "empty batch", "no noise: the step is skipped")
class SkipsEmpty(Right):
    def update(self, gradients: Array, rng: Generator) -> Array:
        return super().update(gradients, rng) if len(gradients) else np.zeros(self.dimension)


@planted("a step without records fails", "empty batch", "the step fails")
class FailsEmpty(Right):
    def clipped_sum(self, gradients: Array) -> Array:
        gradients[0]
        return super().clipped_sum(gradients)


@planted("empty batches are left out", "sampler", "empty batches are left out")
class DropsEmpty(Right):
    def drawn(self, rng: Generator) -> Any:
        return np.flatnonzero(rng.random(self.size) < self.rate / 10)

    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        return (batch for batch in super().batches(epochs, rng) if len(batch))


@planted("records are drawn with replacement", "sampler", "with replacement")
class Replaces(Right):
    def drawn(self, rng: Generator) -> Any:
        return rng.integers(self.size, size=self.batch)


@planted("batches of a fixed size, accounted as Poisson", "sampler", "a fresh uniform batch of exactly 20")
class FixedSize(Right):
    def drawn(self, rng: Generator) -> Any:
        return rng.choice(self.size, self.batch, replace=False)


class _Ordered(Right):
    def order(self, rng: Generator) -> Any:
        return rng.permutation(self.size)

    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        for _ in range(epochs):
            yield from np.array_split(self.order(rng), self.steps_per_epoch)


@planted("shuffled batches, accounted as Poisson", "sampler", "shuffle: fixed batch sizes")
class Shuffles(_Ordered):
    pass


@planted("a shuffled loader that drops the last batch", "sampler", "leaves 12 records out")
class DropsLast(_Ordered):
    def order(self, rng: Generator) -> Any:
        return rng.permutation(self.size)[: self.size - self.size // 10]


@planted("the same batches in every epoch", "sampler", "fixed batches")
class NeverShuffles(_Ordered):
    def order(self, rng: Generator) -> Any:
        return np.arange(self.size)


@planted("two steps on each batch", "sampler", "several steps in a row")
class TwoSteps(Right):
    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        for _ in range(epochs * self.steps_per_epoch // 2):
            batch = self.drawn(rng)
            yield batch
            yield batch


@planted("one step more than accounted for in every epoch", "sampler", "takes more steps than it says")
class OneStepMore(Right):
    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        for _ in range(epochs * (self.steps_per_epoch + 1)):
            yield self.drawn(rng)


@planted("records come in pairs", "sampler", "not Poisson")
class Twins(Right):
    def drawn(self, rng: Generator) -> Any:
        return np.flatnonzero(np.repeat(rng.random(self.size // 2) < self.rate, 2))


@planted("a sixth of the pairs always together, the others never", "sampler", "records come together or avoid")
class SomeTwins(Right):
    def drawn(self, rng: Generator) -> Any:
        pairs = self.size // 2
        twins = np.arange(pairs) < round(pairs * self.rate)
        first = rng.random(pairs)
        # Together: both or none. Never: one, the other, or none. Batch sizes have the spread of Poisson sampling.
        one = first < self.rate
        other = np.where(twins, one, (first >= self.rate) & (first < 2 * self.rate))
        return np.flatnonzero(np.stack([one, other], axis=1).ravel())


@planted("some records are drawn more often than others", "sampler", "not Poisson")
class Uneven(Right):
    def drawn(self, rng: Generator) -> Any:
        return np.flatnonzero(rng.random(self.size) < self.rate * np.where(np.arange(self.size) % 2, 1.2, 0.8))


@planted("nobody comes twice in a row", "sampler", "not Poisson")
class Rests(Right):
    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        before = np.zeros(self.size, dtype=bool)
        for _ in range(epochs * self.steps_per_epoch):
            before = (rng.random(self.size) < self.rate / (1 - self.rate)) & ~before
            yield np.flatnonzero(before)


@planted("bins thrown once and used in every epoch", "sampler", "thrown once and reused")
class KeepsBins(Right):
    def batches(self, epochs: int, rng: Generator) -> Iterator[Any]:
        bins = rng.integers(self.steps_per_epoch, size=self.size)
        for _ in range(epochs):
            yield from (np.flatnonzero(bins == step) for step in range(self.steps_per_epoch))


# ------------------------------------------------------------------------------------- divisors and accounting


@planted("divided by the batch that came out", "divisor", "|B|")
class DividesByRealized(Right):
    def divisor(self, gradients: Array) -> float:
        return float(max(1, len(gradients)))


@planted("divided by N q of the dataset at hand", "divisor", "N q, the expected batch size")
class DividesByExpected(Right):
    def divisor(self, gradients: Array) -> float:
        return self.size * self.rate


@planted("divided by floor(N q) of the dataset at hand", "divisor", "floor(N q)")
class DividesByFloor(Right):
    def divisor(self, gradients: Array) -> float:
        return float(math.floor(self.size * self.rate))


@planted("divided by the root of the batch that came out", "divisor", "follows the batch that came out")
class DividesByRoot(Right):
    def divisor(self, gradients: Array) -> float:
        return math.sqrt(max(1, len(gradients)))


@planted(
    "accounted at a smaller rate than batches are drawn with",
    "accounting",
    "accounts at 1/7, but samples at 1/6",
)
class AccountsLess(Right):
    def accounted(self) -> tuple[float, float]:
        return 1 / 7, self.noise_multiplier


@planted("accounted with more noise than is added", "accounted noise", "but adds 2")
class AccountsMoreNoise(Right):
    def accounted(self) -> tuple[float, float]:
        return self.rate, 2.5


@planted("the sample rate follows the size of the dataset", "neighbors", "the sample rate")
class RateMoves(Right):
    def __init__(self, dataset_size: int, batch_size: int) -> None:
        super().__init__(dataset_size, batch_size)
        self.rate = self.batch / self.size


# What an audit of two thousand runs on each side says (see `planted_audit`), loop by loop.
_FALSIFIED = [
    "ClipsMean",
    "ClipsScaledSum",
    "ClipsNothing",
    "ClipsToTwice",
    "ClipsLayers",
    "ForgetsLayer",
    "ClipsByFirstLayer",
    "ClipsCoordinates",
    "ClipsByLargest",
    "ClipsPairs",
    "ClipsToMedian",
    "ClipsByPast",
    "AddsRegularizer",
    "NoiseRoot",
    "NoiseTwiceNorm",
    "NoNoise",
    "OffByOne",
    "ClipsNoisy",
    "NoiseFirstLayer",
    "NoiseForgetsBias",
    "ReseedsLayers",
    "FixedSeed",
    "ReseedsSteps",
    "OneVector",
    "SharesLayers",
    "OneNumber",
    "Antithetic",
    "Correlated",
    "ShufflesNoise",
    "Shuffles",
    "NeverShuffles",
    "OneStepMore",
    "Uneven",
    "KeepsBins",
    "DividesByExpected",
    "DividesByFloor",
    "DividesByRoot",
    "AccountsLess",
    "AccountsMoreNoise",
]
_NOT_TOLD = [
    "ClipsSum",
    "ClipsBySquare",
    "Centers",
    "ClipsMeanLoss",
    "PassesNaN",
    "NoiseSquare",
    "NoiseWithoutNorm",
    "NoiseByRealized",
    "NoisePerRecord",
    "NoisePerMicrobatch",
    "LaplaceNoise",
    "UniformNoise",
    "CutNoise",
    "HalfNoise",
    "NoiseUneven",
    "SkipsEmpty",
    "Replaces",
    "FixedSize",
    "DropsLast",
    "TwoSteps",
    "Twins",
    "SomeTwins",
    "Rests",
    "DividesByRealized",
    "RateMoves",
]
AUDITED = dict.fromkeys(_FALSIFIED, True) | dict.fromkeys(_NOT_TOLD, False)
# Where there is no verdict: the audit ends with these words.
STOPPED = {"FailsEmpty": "raised IndexError", "DropsEmpty": "return arrays of one shape"}


def table() -> str:
    """The table of the documentation: every mistake, the words in which a probe names it, and an audit's verdict."""
    lines = ["| mistake | subject | the probe says | an audit |", "|---|---|---|---|"]
    words = {True: "falsifies the claim", False: "does not falsify it", None: "stops, and says why"}
    for bug in PLANTED:
        said = bug.says.replace("|", r"\|")
        lines.append(f"| {bug.name} | {bug.subject} | ... {said} ... | {words[AUDITED.get(bug.loop.__name__)]} |")
    return "\n".join(lines)
