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
nothing is checked when the target is set up: a full step and a replayed one with equal noise must agree.

**Empty batches.** Poisson sampling draws them sooner or later, and with functorch and ew Opacus then fails (1.6.0
beside PyTorch 2.13: a convolution of no records has no per-record gradients there). Whoever watches a training sees
that it failed, so a failure is an output like any other: a row of infinities, whose likelihood ratio is that of
the empty batch, 1 - q. This alone leaks: at |D| = 3 and q = 1/2 a failure has probability 1/8 without the fourth
record and 1/16 with it, an advantage of 1/16 that the claim (0.02) does not allow. `notes` says so. Whether the
mode fails is found out when the target is set up; a batch that is known to fail is not tried again.

**What the adversary keeps.** Given the batch, the output is an isotropic Gaussian around a point of the
span of the clipped gradients. The coordinates in an orthonormal basis of that span, and the squared norm
of the rest, are therefore sufficient: a test based on them loses nothing, and 5 numbers per run replace
26,010. `scores` is the exact likelihood ratio: at most 16 batches, each with its own center and divisor.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, xlogy

from calipers.adapters.opacus_library import check_device, one_thread, opacus_module, quiet_engine, torch_module
from calipers.adapters.opacus_probe import GRAD_SAMPLE_MODES
from calipers.adapters.opacus_step import CLASSES, PARAMETERS, SIDE, StepEngine
from calipers.domains import COUNT, POSITIVE, Domain, choice
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.opacus_releases import LOSS_REDUCTIONS

# Vectors of 26,010 numbers held at a time.
BLOCK = 50
Images = NDArray[np.floating[Any]] | NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class OpacusTarget:
    """One private step of Opacus on `dataset_size` records (absent) or one more (present).

    `images` has shape (dataset_size + 1, 28, 28), the differing record last, with `labels` 0..9. `device` may be
    "cuda"; the loader's batches are drawn on the CPU in any case, as Opacus does.
    """

    chunk: ClassVar[int] = 500
    dataset_size: int = 3
    batch_size: int = 2
    noise_multiplier: float = 10.0
    max_grad_norm: float = 0.1
    loss_reduction: str = "mean"
    grad_sample_mode: str = "hooks"
    device: str = "cpu"
    images: Any = None
    labels: Any = None
    weights_seed: int = 0

    def __post_init__(self) -> None:
        listed = Domain(1, 9, integer=True)
        listed.check_int("dataset_size", self.dataset_size, "The exact likelihood ratio lists all batches.")
        for name, domain in (("batch_size", COUNT), ("noise_multiplier", POSITIVE), ("max_grad_norm", POSITIVE)):
            object.__setattr__(self, name, domain.check(name, getattr(self, name)))
        choice("loss_reduction", self.loss_reduction, LOSS_REDUCTIONS)
        choice("grad_sample_mode", self.grad_sample_mode, GRAD_SAMPLE_MODES)
        if self.device != "cpu":
            check_device(self.device)
        images, labels = _records(self.dataset_size + 1, self.images, self.labels)
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "labels", labels)

    @property
    def name(self) -> str:
        """What is audited."""
        mode = "" if self.grad_sample_mode == "hooks" else f", grad_sample_mode={self.grad_sample_mode!r}"
        return f"Opacus {opacus_module().__version__}, one step, loss_reduction={self.loss_reduction!r}{mode}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the audit has to know: that the mode fails on empty batches, if it does."""
        engines = [_engine(self, present) for present in (False, True)]
        reason = engines[0].empty_failure
        if reason is None:
            return ()
        chances = [(1 - engine.sample_rate) ** (self.dataset_size + i) for i, engine in enumerate(engines)]
        return (
            f"With grad_sample_mode={self.grad_sample_mode!r} Opacus fails on an empty batch ({reason}). The failure "
            f"is counted as an output that the adversary sees: probability {chances[0]:g} without the record, "
            f"{chances[1]:g} with it. It leaks whatever the divisor is.",
        )

    def identity(self) -> dict[str, object]:
        """Everything that changes the law of the outputs."""
        return {
            "target": "opacus",
            "opacus": str(opacus_module().__version__),
            "torch": str(torch_module().__version__),
            **asdict(self),
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
        # A row of infinities is a run that failed.
        found = np.full((count, basis.shape[1] + 1), np.inf)
        held: dict[int, Any] = {}
        with one_thread(), quiet_engine():
            for run, released in enumerate(engine.steps(count)):
                if released is not None:
                    held[run] = released
                if held and (len(held) == BLOCK or run == count - 1):
                    found[list(held)] = _statistic(list(held.values()), basis)
                    held.clear()
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
        weights = xlogy(drawn, rate) + xlogy(size - drawn, 1 - rate)  # 0 where nothing is counted
        failed = np.isinf(outputs[:, -1])
        if engine.empty_failure is not None:
            weights = np.where(drawn == 0, -np.inf, weights)
        centers = batches @ coordinates[:size] / engine.divisor
        scale = self.noise_multiplier * self.max_grad_norm / engine.divisor
        seen = np.where(failed[:, None], 0.0, outputs)
        squares = ((seen[:, None, :-1] - centers) ** 2).sum(axis=2) + seen[:, None, -1]
        density: FloatArray = logsumexp(weights - squares / (2 * scale * scale), axis=1)
        density = density - PARAMETERS * math.log(scale)
        return np.where(failed, xlogy(float(size), 1 - rate), density)


def _statistic(released: list[Any], basis: FloatArray) -> FloatArray:
    """Coordinates in the basis and the squared length of the rest, one row for each released vector."""
    torch = torch_module()
    # By PyTorch, because it has been told to use one thread.
    vectors = torch.stack(released).double()
    along = vectors @ torch.from_numpy(basis).to(vectors.device)
    residual = vectors.square_().sum(dim=1) - along.square().sum(dim=1)
    found: FloatArray = torch.column_stack([along, residual.clamp(min=0.0)]).cpu().numpy()
    return found


# Setting Opacus up takes longer than a hundred steps. A target that arrives in another process, chunk after chunk,
# finds there what an equal one has set up.
@functools.lru_cache(maxsize=8)
def _engine(target: OpacusTarget, present: bool) -> StepEngine:
    return StepEngine(target, target.dataset_size + present)


@functools.lru_cache(maxsize=4)
def _span(target: OpacusTarget) -> tuple[FloatArray, FloatArray]:
    """(orthonormal basis of the span of the clipped gradients, their coordinates in it)."""
    gradients = _engine(target, True).clipped_gradients
    orthonormal, triangular = np.linalg.qr(gradients.T)
    return np.ascontiguousarray(orthonormal), np.ascontiguousarray(triangular.T)


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
