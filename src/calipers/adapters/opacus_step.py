"""One private step of the installed Opacus, set up once and taken many times.

See `calipers.adapters.opacus_target` for what is real about it and what is done once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.adapters.opacus_library import PrivateLoop, quiet_engine, torch_module
from calipers.adapters.opacus_probe import SEEDS
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.numerics.types import FloatArray

if TYPE_CHECKING:
    from calipers.adapters.opacus_target import OpacusTarget

PARAMETERS = 26_010
SIDE = 28
CLASSES = 10


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
