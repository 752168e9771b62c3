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
- Several processes do one training together (`calipers.training.distributed`), if PyTorch has joined them in a group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calipers.citations import implements
from calipers.domains import COUNT, Domain, choice
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.run import Run
from calipers.samplers.stream import BatchStream
from calipers.training.canaries import Canaries
from calipers.training.canary_pairs import CanaryPairs
from calipers.training.checkpoint import load_checkpoint, locked, save_checkpoint
from calipers.training.distributed import Ranks, refuse_wrapped, versions, weights_digest
from calipers.training.fingerprint import fingerprint
from calipers.training.gradients import GradientSum
from calipers.training.losses import Loss, cross_entropy
from calipers.training.noise import SecureNoise, SeededNoise, noise_source
from calipers.training.plan import Plan
from calipers.training.records import records_of
from calipers.training.torch_library import PRECISIONS, chosen_device, random_layers, torch_module
from calipers.training.updates import Updates

__all__ = ["Progress", "Trained", "Trainer", "train"]

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all) after every step, and first with the place where a run is taken up again.

Of several processes, rank 0's is called.
"""

Evaluation = tuple[int, Any]
"""(steps done, what the evaluation returned)."""

# Batches and noise (`calipers.training.noise`) of one seed must not share random numbers.
_BATCHES = 1
WORKERS = Domain(0, 1024, integer=True)


@dataclass(frozen=True)
class Trained:
    """A finished training: the model, and what was executed to get it."""

    model: Any
    plan: Plan
    dimension: int
    seconds: float
    resumed_at: int
    precision: str = ""
    evaluations: tuple[Evaluation, ...] = ()

    def run(self, *, adjacency: str = "add-remove", view: str = "worst-case") -> Run:
        """What was executed, made from the sampler that drew the batches; for `calipers.measure.measure`."""
        return self.plan.run(dimension=self.dimension, adjacency=adjacency, view=view)


class Trainer:
    """A plan applied to a model and records, step by step.

    `records` and `labels` are arrays with one row per record (several, or by name: `calipers.training.inputs`), and
    `prepare` turns rows on the device into the model's inputs; or `records` is a dataset or a loader of PyTorch
    (`calipers.training.records`), read by `workers` processes. `loss`: of one record (`calipers.training.losses`);
    `optimizer`, `schedule`: instead of the plan's (`calipers.training.updates`). `precision` "bf16": products of 8
    bits. `tf32`: whether CUDA may round factors of products to 11 bits, which the clipping accounts for. `identity` is
    written into checkpoints beside the plan. `ranks`: the processes that train together; left out, those of PyTorch's
    group. All of them make the trainer, step, save and resume. `canaries`: see `calipers.training.audited`.
    """

    def __init__(
        self,
        plan: Plan,
        model: Any,
        records: Any,
        labels: Any = None,
        *,
        prepare: Callable[[Any], Any] | None = None,
        loss: Loss = cross_entropy,
        optimizer: Any = None,
        schedule: Callable[[Any], Any] | None = None,
        precision: str = "full",
        workers: int = 0,
        device: str = "auto",
        tf32: bool = True,
        identity: Mapping[str, Any] | None = None,
        canaries: Canaries | CanaryPairs | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._torch, self.plan, self._canaries = torch_module(), plan, canaries
        self.ranks = Ranks.found() if ranks is None else ranks
        with self.ranks.together():
            # Check and keep everything; no rank waits for another here.
            refuse_wrapped(model)
            WORKERS.check_int("workers", workers)
            self.device = chosen_device(device)
            self.model = model.to(self.device)
            self._sum = GradientSum(
                self.model,
                max_grad_norm=plan.max_grad_norm,
                loss=loss,
                micro_batch=plan.micro_batch,
                tf32=tf32,
                precision=choice("precision", precision, PRECISIONS),
            )
            self._updates = Updates(plan, self._sum.parameters, optimizer, schedule)
            self._records = records_of(records, labels, prepare=prepare, workers=workers, loss=loss, device=self.device)
            self._check_size()
            if canaries is not None:
                canaries.begin(plan, self._sum.dimension)
            self._belongs_to = self._identity(identity, loss, prepare)
        self.dimension, self.evaluations = self._sum.dimension, list[Evaluation]()
        self._noise: SeededNoise | SecureNoise = SecureNoise() if plan.seed is None else SeededNoise(plan.seed)
        self._stream = BatchStream(plan.sampler, _batch_generator(plan.seed))
        self.ranks.agree({**self._belongs_to, "model": fingerprint(model), "tf32": tf32, **versions()})
        if self.ranks.size > 1:
            self._go_to(self.ranks.from_first(self._contents(), self.device) or {})
        else:
            self._begin_records()

    def _check_size(self) -> None:
        found = self._records.size + (0 if self._canaries is None else self._canaries.beside)
        if found != self.plan.sampler.dataset_size:
            raise InputError(
                f"The sampler draws from {self.plan.sampler.dataset_size} records, but there are {found} records; give "
                f"the sampler dataset_size={found}."
            )

    def _identity(self, given: Mapping[str, Any] | None, loss: Loss, prepare: Any) -> dict[str, Any]:
        """What a checkpoint belongs to."""
        shapes = str([(name, list(p.shape), p.requires_grad) for name, p in self.model.named_parameters()])
        return {
            **(given or {}),
            **{field.name: repr(getattr(self.plan, field.name)) for field in dataclasses.fields(self.plan)},
            "parameters": f"{self._sum.dimension}, {hashlib.sha256(shapes.encode()).hexdigest()[:16]}",
            "data": self._records.digest,
            "loss": fingerprint(loss),
            "prepare": fingerprint(prepare),
            "updates": self._updates.told,
            "precision": self._sum.precision,
            "canaries": "none" if self._canaries is None else str(self._canaries.count),
            "device": self.device.type,
        }

    def _begin_records(self) -> None:
        self._records.begin(self._stream, self._share, self._noise.layer_seed)

    def _share(self, batch: IntArray) -> IntArray:
        """This rank's records of the batch; of canaries, those that are records and in."""
        share = self.ranks.share(batch)
        return share if self._canaries is None else self._canaries.kept(share)

    @property
    def step(self) -> int:
        """Steps taken so far."""
        return self._stream.position

    @implements("ertan2026:algB")
    def take_step(self) -> None:
        """One step of Algorithm B. The noisy gradient is in the parameters' `grad` afterwards."""
        plan, number = self.plan, self.step
        batch = next(self._stream)
        seed, canaries = self._noise.layer_seed(number), self._canaries
        noise: list[Any] = []
        self._updates.forget()

        def draw() -> None:  # while a GPU is busy with the gradients
            if plan.noise_multiplier > 0 and self.ranks.leads:
                beside = 0 if canaries is None or canaries.examples else canaries.beside
                like = self._sum.parameters[0].detach().new_empty(1).expand(self.dimension + beside)
                noise.append(self._noise.standard_normal(number, like))

        with random_layers((seed + self.ranks.rank) % 2**64, self.device):
            update = self._sum(*self._records.take(number, self._share(batch), seed), draw)
        if canaries is not None:
            update = canaries.widened(update, batch if self.ranks.leads else batch[:0])
        if noise:
            assert plan.max_grad_norm is not None  # a plan with noise has a clipping norm
            update.add_(noise[0], alpha=plan.noise_multiplier * plan.max_grad_norm)
        update = self.ranks.add_up(update)
        update = update if canaries is None else canaries.seen(update, number)
        self._updates.apply(update, plan.divisor(len(batch)), number)

    def save(self, path: Path) -> None:
        """Write a checkpoint of the run as it stands."""
        self.check_ranks()
        with self.ranks.together():
            if self.ranks.leads:
                save_checkpoint(path, belongs_to=self._belongs_to, contents=self._contents())

    def resume(self, path: Path) -> bool:
        """Go to the place of the checkpoint at `path`; False if there is none."""
        contents = None
        with self.ranks.together():
            if self.ranks.leads:
                contents = load_checkpoint(path, belongs_to=self._belongs_to, device=self.device)
        contents = self.ranks.from_first(contents, self.device)
        if contents is None:
            return False
        self._go_to(contents)
        return True

    @property
    def precision(self) -> str:
        """What a record's gradient is computed with, in words."""
        return self._sum.described

    def evaluate(self, evaluation: Callable[[Any, int], Any]) -> None:
        """Let `evaluation(model, step)` see the model as it is used, on rank 0; what it returns is kept."""
        if self.ranks.leads:
            training = [layer for layer in self.model.modules() if layer.training]
            self.model.eval()
            try:
                with self._torch.no_grad(), random_layers(0, self.device):
                    self.evaluations.append((self.step, evaluation(self.model, self.step)))
            finally:
                for layer in training:
                    layer.training = True

    def check_ranks(self) -> None:
        """Refuse to go on if the ranks' weights or places in the sampler are not the same."""
        if self.ranks.size > 1:
            place = hashlib.sha256(json.dumps(self._stream.state()).encode()).hexdigest()[:16]
            self.ranks.agree({"steps": self.step, "batches": place, "weights": weights_digest(self.model)})

    def _contents(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            **self._updates.state(),
            "batches": json.dumps(self._stream.state()),
            "noise": json.dumps(self._noise.state()),
            "evaluations": json.dumps(self.evaluations),
            "canaries": "null" if self._canaries is None else json.dumps(self._canaries.state()),
        }

    def _go_to(self, contents: Mapping[str, Any]) -> None:
        self.model.load_state_dict(contents["model"])
        self._updates.go_to(contents)
        self._noise = noise_source(json.loads(contents["noise"]))
        self._stream = BatchStream.resumed(self.plan.sampler, json.loads(contents["batches"]))
        self.evaluations = [(step, value) for step, value in json.loads(contents["evaluations"])]
        if self._canaries is not None:
            self._canaries.go_to(json.loads(contents["canaries"]))
        self._begin_records()


def train(
    plan: Plan,
    model: Any,
    records: Any,
    labels: Any = None,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 100,
    progress: Progress | None = None,
    evaluation: Callable[[Any, int], Any] | None = None,
    evaluate_every: int | None = None,
    ranks: Ranks | None = None,
    **settings: Any,
) -> Trained:
    """Train `model` in place by the plan; go on from `checkpoint` if that file is there. `settings`: see `Trainer`.

    A checkpoint is written every `checkpoint_every` steps and at the end. Nobody else may use the file meanwhile.
    `evaluation(model, step)` is called every `evaluate_every` steps (None: once, at the end) and returns numbers.
    """
    ranks = Ranks.found() if ranks is None else ranks
    with ranks.together():
        COUNT.check_int("checkpoint_every", checkpoint_every)
        if evaluate_every is not None:
            COUNT.check_int("evaluate_every", evaluate_every)
    ranks.agree({"checkpoint": "none" if checkpoint is None else f"every {checkpoint_every} steps"})
    trainer = Trainer(plan, model, records, labels, ranks=ranks, **settings)
    path = None if checkpoint is None else Path(checkpoint)

    def after(done: int) -> None:
        if evaluation is not None and (done == plan.steps or (evaluate_every and done % evaluate_every == 0)):
            trainer.evaluate(evaluation)
        if path is not None and (done % checkpoint_every == 0 or done == plan.steps):
            trainer.save(path)
        if progress is not None and ranks.leads:
            progress(done, plan.steps)

    with ExitStack() as held:
        if path is not None:
            with ranks.together():
                if ranks.leads:
                    held.enter_context(locked(path))
            if trainer.resume(path) and progress is not None and ranks.leads and trainer.step:
                progress(trainer.step, plan.steps)
        return _trained(trainer, after, checked=path is not None)


def _trained(trainer: Trainer, after: Callable[[int], None], *, checked: bool) -> Trained:
    """Take the steps that are left."""
    begun, resumed_at = time.perf_counter(), trainer.step
    while trainer.step < trainer.plan.steps:
        trainer.take_step()
        after(trainer.step)
    if not checked:  # else the last checkpoint was
        trainer.check_ranks()
    seconds, seen = time.perf_counter() - begun, tuple(trainer.evaluations)
    return Trained(trainer.model, trainer.plan, trainer.dimension, seconds, resumed_at, trainer.precision, seen)


def _batch_generator(seed: int | None) -> np.random.Generator:
    """The generator of the batches; without a seed it starts from the operating system's entropy."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_BATCHES,))))
