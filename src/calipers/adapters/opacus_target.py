"""The installed Opacus as an audit target: one step of a small network, with and without a fourth record.

Wang et al. (2026), Appendix A.3, audit one step of Opacus at |D| = 3, |D'| = 4, q = 1/2, noise multiplier 10 and
clipping norm 0.1. With a batch size of 2 Opacus itself chooses these numbers: ceil(3/2) = ceil(4/2) = 2
batches, q = 1/2 for both datasets, and it divides by int(3 q) = 1 without the fourth record, by int(4 q) = 2 with
it. The noise that an adversary sees in each of n coordinates then has standard deviation sigma C or
sigma C / 2, and with n = 26,010 one look is enough; `loss_reduction="sum"` divides by nothing and keeps the claim.

**What is real.** `PrivacyEngine.make_private`, its Poisson loader, the forward and backward pass of the
network with Opacus's per-record gradients (hooks, functorch, ew or ghost clipping), and the optimizer's own
clipping, noise and division. The records are images; without `images` they are drawn once from a seed, which
changes nothing: all their gradients exceed the clipping norm and arrive with norm C (if one does not, the
target refuses). The learning rate is 0, so that every run starts from the same weights; the adversary sees
the gradient handed to the optimizer, as anyone can who sees the weights before and after a step.

**What is done once.** The weights never change, so a record's gradient is the same in every run. Except for
ghost clipping, which never holds per-record gradients, they are computed once by Opacus (a step on all records),
and every run hands the rows of its batch to the optimizer as the backward pass would. That this changes
nothing is checked when the target is set up: a full step and a replayed one with equal noise must agree. So is
that the mode survives an empty batch, which Poisson sampling draws sooner or later.

**What the adversary keeps.** Given the batch, the output is an isotropic Gaussian around a point of the
span of the clipped gradients. The coordinates in an orthonormal basis of that span, and the squared norm
of the rest, are therefore sufficient: a test based on them loses nothing, and 5 numbers per run replace
26,010. `scores` is the exact likelihood ratio: at most 16 batches, each with its own center and divisor.
"""

from __future__ import annotations

import functools
import hashlib
import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, xlogy

from calipers.adapters.opacus_library import one_thread, opacus_module, quiet_engine, torch_module
from calipers.adapters.opacus_probe import GRAD_SAMPLE_MODES
from calipers.adapters.opacus_step import CLASSES, PARAMETERS, SIDE, StepEngine
from calipers.domains import COUNT, POSITIVE, Domain, choice
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.opacus_releases import LOSS_REDUCTIONS

__all__ = ["OpacusTarget"]

# Vectors of 26,010 numbers held at a time.
BLOCK = 50
Images = NDArray[np.floating[Any]] | NDArray[np.uint8]


class OpacusTarget:
    """One private step of Opacus on `dataset_size` records (absent) or one more (present).

    `images` has shape (dataset_size + 1, 28, 28), the differing record last, with `labels` 0..9. `device` may be
    "cuda"; the loader's batches are drawn on the CPU in any case, as Opacus does.
    """

    chunk = 500

    def __init__(
        self,
        *,
        dataset_size: int = 3,
        batch_size: int = 2,
        noise_multiplier: float = 10.0,
        max_grad_norm: float = 0.1,
        loss_reduction: str = "mean",
        grad_sample_mode: str = "hooks",
        device: str = "cpu",
        images: Images | None = None,
        labels: NDArray[np.integer[Any]] | None = None,
        weights_seed: int = 0,
    ) -> None:
        self.dataset_size = Domain(1, 9, integer=True).check_int(
            "dataset_size", dataset_size, "The exact likelihood ratio lists all batches."
        )
        self.batch_size = COUNT.check_int("batch_size", batch_size)
        self.noise_multiplier = POSITIVE.check("noise_multiplier", noise_multiplier)
        self.max_grad_norm = POSITIVE.check("max_grad_norm", max_grad_norm)
        self.loss_reduction = choice("loss_reduction", loss_reduction, LOSS_REDUCTIONS)
        self.grad_sample_mode = choice("grad_sample_mode", grad_sample_mode, GRAD_SAMPLE_MODES)
        self.device = device
        self.weights_seed = weights_seed
        self.images, self.labels = _records(self.dataset_size + 1, images, labels)

    @property
    def name(self) -> str:
        """What is audited."""
        return f"Opacus {opacus_module().__version__}, one step, loss_reduction={self.loss_reduction!r}"

    def identity(self) -> dict[str, object]:
        """Everything that changes the law of the outputs."""
        return {
            "target": "opacus",
            "opacus": str(opacus_module().__version__),
            "torch": str(torch_module().__version__),
            "dataset_size": self.dataset_size,
            "batch_size": self.batch_size,
            "noise_multiplier": self.noise_multiplier,
            "max_grad_norm": self.max_grad_norm,
            "loss_reduction": self.loss_reduction,
            "grad_sample_mode": self.grad_sample_mode,
            "device": self.device,
            "weights_seed": self.weights_seed,
            "images": hashlib.sha256(self.images.tobytes()).hexdigest(),
            "labels": self.labels.tolist(),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpacusTarget) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash((self.dataset_size, self.loss_reduction, self.grad_sample_mode, self.weights_seed))

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """`count` independent steps: shape (count, dataset_size + 2), the coordinates and the squared residual."""
        basis, _ = _span(self)
        engine = _engine(self, bool(present))
        engine.seed(rng)
        found = np.empty((count, basis.shape[1] + 1))
        with one_thread(), quiet_engine():
            for start in range(0, count, BLOCK):
                released = np.stack(list(engine.steps(min(BLOCK, count - start))))
                along = released @ basis
                residual = np.einsum("ij,ij->i", released, released) - np.einsum("ij,ij->i", along, along)
                found[start : start + BLOCK] = np.column_stack([along, np.maximum(residual, 0.0)])
        return found

    def scores(self, outputs: FloatArray) -> FloatArray:
        """The exact log likelihood ratio of present against absent, up to the rounding of Opacus's own step."""
        return self._log_density(outputs, True) - self._log_density(outputs, False)

    def _log_density(self, outputs: FloatArray, present: bool) -> FloatArray:
        """log of the mixture over batches; constants that both hypotheses share are left out."""
        _, coordinates = _span(self)
        engine = _engine(self, present)
        size, rate = self.dataset_size + present, engine.sample_rate
        batches = np.array(list(product((0.0, 1.0), repeat=size)))
        drawn = batches.sum(axis=1)
        with np.errstate(divide="ignore"):
            weights = _weighted_log(drawn, rate) + _weighted_log(size - drawn, 1 - rate)
        centers = batches @ coordinates[:size] / engine.divisor
        scale = self.noise_multiplier * self.max_grad_norm / engine.divisor
        squares = ((outputs[:, None, :-1] - centers) ** 2).sum(axis=2) + outputs[:, None, -1]
        density: FloatArray = logsumexp(weights - squares / (2 * scale * scale), axis=1)
        return density - PARAMETERS * math.log(scale)


# Setting Opacus up takes longer than a hundred steps. A target that arrives in another process, chunk after chunk,
# finds there what an equal one has set up.
@functools.lru_cache(maxsize=8)
def _engine(target: OpacusTarget, present: bool) -> StepEngine:
    return StepEngine(target, target.dataset_size + present)


@functools.lru_cache(maxsize=4)
def _span(target: OpacusTarget) -> tuple[FloatArray, FloatArray]:
    """(orthonormal basis of the span of the clipped gradients, their coordinates in it)."""
    with quiet_engine():
        gradients = _engine(target, True).clipped_gradients()
    orthonormal, triangular = np.linalg.qr(gradients.T)
    return np.ascontiguousarray(orthonormal), np.ascontiguousarray(triangular.T)


def _weighted_log(count: FloatArray, probability: float) -> FloatArray:
    """count log(probability), 0 where nothing is counted."""
    return np.asarray(xlogy(count, probability), dtype=np.float64)


def _records(
    count: int, images: Images | None, labels: NDArray[np.integer[Any]] | None
) -> tuple[FloatArray, NDArray[np.int64]]:
    if images is None:
        fixed = np.random.default_rng(0)
        return fixed.random((count, SIDE, SIDE)), fixed.integers(CLASSES, size=count)
    pixels = np.asarray(images, dtype=np.float64)
    if pixels.shape != (count, SIDE, SIDE) or labels is None or np.shape(labels) != (count,):
        raise InputError(f"Expected images of shape ({count}, {SIDE}, {SIDE}) and {count} labels, got {pixels.shape}.")
    return pixels / (255.0 if np.asarray(images).dtype == np.uint8 else 1.0), np.asarray(labels, dtype=np.int64)
