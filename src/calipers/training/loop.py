"""Algorithm B: draw a batch, clip and sum, add noise, divide, step; as often as the sampler says.

One step on the records S that the sampler drew:

    w <- optimizer(w, (sum over i in S of clipped g_i  +  C sigma z) / divisor),     z standard normal.

- The sampler that draws the batches is the one in the plan, and the run that is measured is made from it.
- An empty batch is a step like any other: its sum is 0 and the noise is added. Skipping it would show that it was
  empty.
- Whatever the optimizer does with the noisy gradient (momentum, Adam, a schedule) is post-processing.
- Nothing computed from the records without noise is reported: no training loss, no batch sizes. `progress` hears the
  number of the step only. Accuracy is for held-out records, which are not protected.
- With the same seed and the same kind of device the weights come out the same, killed and resumed or not, also where
  layers draw random numbers; on CUDA up to the order in which the device adds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.run import Run
from calipers.samplers.stream import BatchStream
from calipers.training.checkpoint import data_digest, load_checkpoint, locked, save_checkpoint
from calipers.training.fingerprint import fingerprint
from calipers.training.gradients import GradientSum, cross_entropy
from calipers.training.noise import SecureNoise, SeededNoise, noise_source
from calipers.training.plan import Plan
from calipers.training.torch_library import chosen_device, random_layers, torch_module

__all__ = ["Progress", "Trained", "Trainer", "train"]

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all) after every step, and first with the place where a run is taken up again."""

# Batches and noise (`calipers.training.noise`) of one seed must not share random numbers.
_BATCHES = 1


@dataclass(frozen=True)
class Trained:
    """A finished training: the model, and what was executed to get it."""

    model: Any
    plan: Plan
    dimension: int
    seconds: float
    resumed_at: int

    def run(self, *, adjacency: str = "add-remove", view: str = "worst-case") -> Run:
        """What was executed, made from the sampler that drew the batches; for `calipers.measure.measure`."""
        return self.plan.run(dimension=self.dimension, adjacency=adjacency, view=view)


class Trainer:
    """A plan applied to a model and records, step by step.

    `records` and `labels` are arrays with one row per record; `prepare` turns rows on the device into the
    model's inputs (conversion, scaling). `tf32`: whether CUDA may round factors of products to 11 bits, which the
    clipping accounts for. `identity` is written into checkpoints beside the plan.
    """

    def __init__(
        self,
        plan: Plan,
        model: Any,
        records: Any,
        labels: Any,
        *,
        prepare: Callable[[Any], Any] | None = None,
        loss: Callable[[Any, Any], Any] = cross_entropy,
        device: str = "auto",
        tf32: bool = True,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        torch = torch_module()
        # PyTorch wants arrays in order and, although nothing is written, writable.
        records, labels = (np.require(array, requirements=["C", "W"]) for array in (records, labels))
        if not len(records) == len(labels) == plan.sampler.dataset_size:
            raise InputError(
                f"The sampler draws from {plan.sampler.dataset_size} records, but there are {len(records)} records "
                f"and {len(labels)} labels; give the sampler dataset_size={len(records)}."
            )
        self._torch, self.plan = torch, plan
        self.device = chosen_device(device)
        self.model = model.to(self.device)
        self._records = torch.as_tensor(records).to(self.device)
        self._labels = torch.as_tensor(labels).to(self.device)
        self._prepare = prepare or (lambda rows: rows)
        self._sum = GradientSum(
            self.model, max_grad_norm=plan.max_grad_norm, loss=loss, micro_batch=plan.micro_batch, tf32=tf32
        )
        self.dimension = self._sum.dimension
        self._optimizer = _optimizer(plan, self._sum.parameters)
        self._noise: SeededNoise | SecureNoise = SecureNoise() if plan.seed is None else SeededNoise(plan.seed)
        self._stream = BatchStream(plan.sampler, _batch_generator(plan.seed))
        shapes = str([(name, list(p.shape)) for name, p in self.model.named_parameters()])
        self._belongs_to = {
            **(identity or {}),
            **{field.name: repr(getattr(plan, field.name)) for field in dataclasses.fields(plan)},
            "parameters": f"{self.dimension}, {hashlib.sha256(shapes.encode()).hexdigest()[:16]}",
            "data": data_digest(records, labels),
            "loss": fingerprint(loss),
            "prepare": fingerprint(prepare),
            "device": self.device.type,
        }

    @property
    def step(self) -> int:
        """Steps taken so far."""
        return self._stream.position

    @implements("ertan2026:algB")
    def take_step(self) -> None:
        """One step of Algorithm B. The noisy gradient is in the parameters' `grad` afterwards."""
        plan, torch = self.plan, self._torch
        number = self.step
        batch = next(self._stream)
        rows = torch.from_numpy(batch).to(self.device)
        with random_layers(self._noise.layer_seed(number), self.device):
            update = self._sum(self._prepare(self._records[rows]), self._labels[rows])
        if plan.noise_multiplier > 0:
            assert plan.max_grad_norm is not None  # a plan with noise has a clipping norm
            update.add_(self._noise.standard_normal(number, update), alpha=plan.noise_multiplier * plan.max_grad_norm)
        update.div_(plan.divisor(len(batch)))
        for group in self._optimizer.param_groups:
            group["lr"] = plan.rate_at(number)
        offset = 0
        for parameter in self._sum.parameters:
            parameter.grad = update[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        self._optimizer.step()

    def save(self, path: Path) -> None:
        """Write a checkpoint of the run as it stands."""
        contents = {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "batches": json.dumps(self._stream.state()),
            "noise": json.dumps(self._noise.state()),
        }
        save_checkpoint(path, belongs_to=self._belongs_to, contents=contents)

    def resume(self, path: Path) -> bool:
        """Go to the place of the checkpoint at `path`; False if there is none."""
        contents = load_checkpoint(path, belongs_to=self._belongs_to, device=self.device)
        if contents is None:
            return False
        self.model.load_state_dict(contents["model"])
        self._optimizer.load_state_dict(contents["optimizer"])
        self._noise = noise_source(json.loads(contents["noise"]))
        self._stream = BatchStream.resumed(self.plan.sampler, json.loads(contents["batches"]))
        return True


def train(
    plan: Plan,
    model: Any,
    records: Any,
    labels: Any,
    *,
    prepare: Callable[[Any], Any] | None = None,
    loss: Callable[[Any, Any], Any] = cross_entropy,
    device: str = "auto",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    identity: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train `model` in place by the plan; go on from `checkpoint` if that file is there.

    A checkpoint is written every `checkpoint_every` steps and at the end. Nobody else may use the file meanwhile.
    """
    COUNT.check_int("checkpoint_every", checkpoint_every)
    trainer = Trainer(plan, model, records, labels, prepare=prepare, loss=loss, device=device, identity=identity)
    if checkpoint is None:
        return _trained(trainer, None, checkpoint_every, progress)
    with locked(Path(checkpoint)):
        trainer.resume(Path(checkpoint))
        return _trained(trainer, Path(checkpoint), checkpoint_every, progress)


def _trained(trainer: Trainer, path: Path | None, checkpoint_every: int, progress: Progress | None) -> Trained:
    """Take the steps that are left."""
    plan = trainer.plan
    begun = time.perf_counter()
    resumed_at = trainer.step
    if progress is not None and resumed_at:
        progress(resumed_at, plan.steps)
    while trainer.step < plan.steps:
        trainer.take_step()
        done = trainer.step
        if path is not None and (done % checkpoint_every == 0 or done == plan.steps):
            trainer.save(path)
        if progress is not None:
            progress(done, plan.steps)
    return Trained(trainer.model, plan, trainer.dimension, time.perf_counter() - begun, resumed_at)


def _optimizer(plan: Plan, parameters: list[Any]) -> Any:
    optim = torch_module("torch.optim")
    settings: dict[str, Any] = {"lr": plan.learning_rate, "weight_decay": plan.weight_decay}
    if plan.optimizer == "adam":
        return optim.Adam(parameters, betas=(plan.momentum or 0.9, 0.999), **settings)
    return optim.SGD(parameters, momentum=plan.momentum, **settings)


def _batch_generator(seed: int | None) -> np.random.Generator:
    """The generator of the batches; without a seed it starts from the operating system's entropy."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_BATCHES,))))
