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
next to PyTorch 2.13: a convolution of no records has no per-record gradients there). Whoever watches a training sees
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
import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, xlogy

from calipers.adapters.opacus_library import (
    PrivateLoop,
    check_device,
    one_thread,
    opacus_module,
    quiet_engine,
    torch_module,
)
from calipers.adapters.opacus_probe import GRAD_SAMPLE_MODES, SEEDS
from calipers.domains import COUNT, POSITIVE, Domain, choice
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.numerics.types import FloatArray
from calipers.opacus_releases import LOSS_REDUCTIONS

# Vectors of 26,010 numbers held at a time.
BLOCK = 50
PARAMETERS = 26_010
SIDE = 28
CLASSES = 10
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
        """Everything that changes the distribution of the outputs."""
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
        batches = np.array(list(itertools.product((0.0, 1.0), repeat=size)))
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


def network() -> Any:
    """A network for 28 x 28 images with 26,010 parameters: 1,040 + 8,224 + 16,416 + 330."""
    nn = torch_module("torch.nn")
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, CLASSES),
    )


class StepEngine(PrivateLoop):
    """Opacus on the first `size` records, set up once and stepped many times."""

    def __init__(self, target: OpacusTarget, size: int) -> None:
        torch = torch_module()
        self._torch, self._target = torch, target
        self._records = (
            torch.tensor(target.images[:size, None], dtype=torch.float32, device=target.device),
            torch.tensor(target.labels[:size], device=target.device),
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(target.weights_seed)
            model = network()
        records = torch.utils.data.TensorDataset(torch.arange(size))
        criterion = torch.nn.CrossEntropyLoss(reduction=target.loss_reduction)
        super().__init__(target, model, criterion, records, batch_size=target.batch_size)
        self.sample_rate = float(self.loader.batch_sampler.sample_rate)
        self.divisor = float(self.optimizer.expected_batch_size) if target.loss_reduction == "mean" else 1.0
        if self.divisor == 0:
            raise InputError("With these sizes Opacus divides by 0; change batch_size.")
        self._gradients: list[Any] | None = None
        self.empty_failure: str | None = None
        """Why a step on an empty batch fails in this mode; None if it does not."""
        with quiet_engine():
            self._prepare()

    def seed(self, rng: np.random.Generator) -> None:
        """Take all randomness from `rng`."""
        self.sampling.manual_seed(int(rng.integers(SEEDS)))
        self.noise.manual_seed(int(rng.integers(SEEDS)))

    def steps(self, count: int) -> Iterator[Any]:
        """What `count` steps release, each on a batch of its own: one tensor a step; None where Opacus fails."""
        batches = itertools.chain.from_iterable(itertools.repeat(self.loader))
        for (indices,) in itertools.islice(batches, count):
            yield self._one_step(indices)

    def _one_step(self, indices: Any) -> Any:
        if self.empty_failure is not None and len(indices) == 0:
            return None
        return self.full_step(indices) if self._gradients is None else self.replayed_step(indices)

    def full_step(self, indices: Any) -> Any:
        """Forward, backward and a step of the optimizer on the records with these indices."""
        images, labels = (values[indices.to(self._target.device)] for values in self._records)
        return self.step(images, labels)

    def replayed_step(self, indices: Any) -> Any:
        """The same, with the records' gradients as Opacus computed them once."""
        assert self._gradients is not None
        rows = indices.to(self._target.device)
        self.optimizer.zero_grad()
        for parameter, gradients in zip(self.optimizer.params, self._gradients, strict=True):
            parameter.grad_sample = gradients[rows]
        self.optimizer.step()
        return self.released()

    def _prepare(self) -> None:
        """Record the gradients where the mode has them and check their replay; then try an empty batch.

        The empty batch comes last: where it fails, it leaves the module's hooks in an unknown state, and from there on
        only gradients that were recorded before are used.
        """
        everyone = self._torch.arange(len(self._records[1]))
        self.noise.manual_seed(0)
        full = self.full_step(everyone)
        if self._target.grad_sample_mode != "ghost":
            self._gradients = [parameter.grad_sample.detach().clone() for parameter in self.optimizer.params]
            self.noise.manual_seed(0)
            difference = float((self.replayed_step(everyone) - full).abs().max() / full.abs().max())
            if difference > 1e-5:
                raise CertificationError(f"Replayed gradients change the step by a relative {difference:.2g}.")
        self.clipped_gradients = self._clipped_one_by_one(everyone)
        try:
            self.full_step(everyone[:0])
        except RuntimeError as error:
            if self._gradients is None:
                raise UnsupportedError(
                    f"Opacus fails on an empty batch with grad_sample_mode={self._target.grad_sample_mode!r} "
                    f"({error}), and this mode records no gradients to go on with; audit another mode."
                ) from error
            self.empty_failure = str(error).splitlines()[0]

    def _clipped_one_by_one(self, everyone: Any) -> FloatArray:
        """The records' clipped gradients, one row each, from steps of this engine whose noise is switched off."""
        noise, self.optimizer.noise_multiplier = self.optimizer.noise_multiplier, 0.0
        try:
            steps = [self.full_step(everyone[i : i + 1]) for i in range(len(everyone))]
        finally:
            self.optimizer.noise_multiplier = noise
        found: FloatArray = self._torch.stack(steps).cpu().double().numpy() * self.divisor
        norms = np.linalg.norm(found, axis=1)
        if not np.all(np.abs(norms / self._target.max_grad_norm - 1) < 1e-3):
            raise CertificationError(
                f"Some gradients are not clipped: norms {norms} against max_grad_norm={self._target.max_grad_norm}; "
                "lower max_grad_norm."
            )
        return found


def _statistic(released: list[Any], basis: FloatArray) -> FloatArray:
    """Coordinates in the basis and the squared length of the rest, one row for each released vector."""
    torch = torch_module()
    # By PyTorch, because it has been given to use one thread.
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
