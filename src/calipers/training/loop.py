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
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from calipers.citations import implements
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.run import Run
from calipers.samplers.stream import BatchStream
from calipers.training.canaries import Planted
from calipers.training.checkpoint import MODULES, check_like, fitting, load_checkpoint, locked, save_checkpoint
from calipers.training.distributed import Ranks, refuse_wrapped, versions, weights_digest
from calipers.training.fingerprint import fingerprint, model_fingerprint
from calipers.training.gradients import Begun, GradientSum, LaidOut
from calipers.training.handling import Along, Handling, HowToTrain, TrainingOptions
from calipers.training.noise import SecureNoise, SeededNoise, noise_source
from calipers.training.plan import Plan
from calipers.training.records import records_of
from calipers.training.sampled import refuse_other_gradients, sampled_gradients
from calipers.training.torch_library import as_used, chosen_device, random_layers, torch_module
from calipers.training.updates import Updates
from calipers.user_code import user_modules

Evaluation = tuple[int, Any]
"""(steps done, what the evaluation returned)."""

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
    precision: str = ""
    evaluations: tuple[Evaluation, ...] = ()

    def run(self, *, adjacency: str = "", view: str = "worst-case") -> Run:
        """What was executed, made from the sampler that drew the batches; for `calipers.measure.measure`.

        Without an adjacency it has the one that a run has which names none.
        """
        return self.plan.run(dimension=self.dimension, adjacency=adjacency, view=view)


@dataclass(frozen=True)
class _Pending:
    """A step that was given to the device and is not known to be sound."""

    begun: Begun
    number: int
    size: int
    seed: int


class Trainer:
    """A plan applied to a model and records, step by step.

    `records` and `labels` are arrays with one row per record (several, or by name: `calipers.training.inputs`); or
    `records` is a dataset or a loader of PyTorch (`calipers.training.records`). `how`: the fields of
    `calipers.training.handling.Handling`. `identity` is written into checkpoints next to the plan. `ranks`: the
    processes that train together; left out, those of PyTorch's group. All of them make the trainer, step, save and
    resume. `canaries`: see `calipers.training.audited`.
    """

    def __init__(
        self,
        plan: Plan,
        model: Any,
        records: Any,
        labels: Any = None,
        *,
        identity: Mapping[str, Any] | None = None,
        canaries: Planted | None = None,
        ranks: Ranks | None = None,
        **how: Unpack[HowToTrain],
    ) -> None:
        self._torch, self.plan, self._canaries = torch_module(), plan, canaries or Planted()
        self._how = handling = Handling(**how)
        self.ranks = Ranks.found() if ranks is None else ranks
        with self.ranks.together():
            # Check and keep everything; no rank waits for another here.
            refuse_wrapped(model)
            handling.check()
            self.device = chosen_device(handling.device)
            self.model = model.to(self.device)
            self._sum = GradientSum(
                self.model,
                max_grad_norm=plan.max_grad_norm,
                loss=handling.loss,
                micro_batch=plan.micro_batch,
                tf32=handling.tf32,
                precision=handling.precision,
            )
            self._updates = Updates(plan, self._sum.parameters, handling.optimizer, handling.schedule)
            self._records = records_of(records, labels, handling, self.device)
            self._check_size()
            self._canaries.begin(plan, self._sum.dimension)
            self._belongs_to = self._identity(identity or {})
        self.dimension, self.evaluations = self._sum.dimension, list[Evaluation]()
        self._noise: SeededNoise | SecureNoise = SecureNoise() if plan.seed is None else SeededNoise(plan.seed)
        drawing = np.random.SeedSequence(plan.seed, spawn_key=(_BATCHES,))  # of the system's entropy, without a seed
        self._stream = BatchStream(plan.sampler, np.random.default_rng(drawing))
        self._begin_pipeline()
        compared = {key: value for key, value in self._belongs_to.items() if key != MODULES}  # each loads its own
        self.ranks.agree({**compared, "model": fingerprint(model), "tf32": handling.tf32, **versions()})
        if self.ranks.size > 1:
            self._go_to(self.ranks.from_first(self._contents(), self.device) or {})
        else:
            self._begin_records()

    def _begin_pipeline(self) -> None:
        """On a GPU the next step is begun before the last one is known to be sound, if the device can leave one out."""
        alone = self.ranks.size == 1 and not self._canaries.count
        self._pipelined = alone and self.device.type == "cuda" and self._updates.can_be_held_back
        self._pending: list[_Pending] = []
        self._unsound = self._torch.zeros((), device=self.device)
        if self._pipelined:
            self._updates.hold_back(self._unsound)

    def _check_size(self) -> None:
        found = self._records.size + self._canaries.extra_records
        if found != self.plan.sampler.dataset_size:
            raise InputError(
                f"The sampler draws from {self.plan.sampler.dataset_size} records, but there are {found} records; give "
                f"the sampler dataset_size={found}."
            )

    def _identity(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a checkpoint belongs to."""
        shapes = str([(name, list(p.shape), p.requires_grad) for name, p in self.model.named_parameters()])
        return {
            **given,
            **{field.name: repr(getattr(self.plan, field.name)) for field in dataclasses.fields(self.plan)},
            "parameters": f"{self._sum.dimension}, {hashlib.sha256(shapes.encode()).hexdigest()[:16]}",
            "data": self._records.digest,
            "model's code": model_fingerprint(self.model),
            "loss": fingerprint(self._how.loss),
            "prepare": fingerprint(self._how.prepare),
            "updates": self._updates.reported,
            "precision": self._sum.precision,
            "canaries": str(self._canaries.count or "none"),
            "device": self.device.type,
            MODULES: user_modules(),
        }

    def _begin_records(self) -> None:
        self._ahead: tuple[int, LaidOut] | None = None
        self._records.begin(self._stream, self._share, self._noise.layer_seed)

    def _share(self, batch: IntArray) -> IntArray:
        """This rank's records of the batch; of canaries, those that are records and in."""
        return self._canaries.kept(self.ranks.share(batch))

    @property
    def step(self) -> int:
        """Steps taken so far."""
        return self._stream.position

    @implements("ertan2026:algB")
    def take_step(self, *, wait: bool = True) -> None:
        """One step of Algorithm B. The noisy gradient is in the parameters' `grad` afterwards.

        `wait=False`: a GPU may still be at it; `settle` before anything is done with the model. A step whose batch has
        a record without a finite gradient is done again without it, and in the meantime the device leaves out that
        step and those after it by itself.
        """
        number, size = self.step, len(batch := next(self._stream))
        seed, laid = self._taken(number, batch)
        self._updates.forget()
        with self._layers(seed):
            begun = self._sum.begun(laid)
        noise = self._drawn(number)
        if not self._pipelined:
            self._read_ahead()
            with self._layers(seed):
                total = self._sum.finished(begun)
            self._apply(total, noise, batch, number)
            return
        self._unsound.masked_fill_(~begun.finite, 1.0)
        self._apply(begun.total, noise, batch, number)
        before, self._pending = self._pending, [_Pending(begun, number, size, seed)]
        self._read_ahead()
        if not all(one.begun.known() for one in before):
            self._do_again(before + self._pending)
        if wait:
            self.settle()

    def settle(self) -> None:
        """Wait for the device, and do again what it left out."""
        pending, self._pending = self._pending, []
        if not all(one.begun.known() for one in pending):
            self._do_again(pending)

    def _do_again(self, left_out: list[_Pending]) -> None:
        """Steps that the device left out, one after the other."""
        self._pending = []
        self._unsound.zero_()
        for step in left_out:
            with self._layers(step.seed):
                total = self._sum.of(step.begun.laid)
            self._apply(total, self._drawn(step.number), np.empty(step.size, np.int64), step.number)

    def _layers(self, seed: int) -> AbstractContextManager[None]:
        return random_layers((seed + self.ranks.rank) % 2**64, self.device)

    def _drawn(self, number: int) -> Any:
        """The noise of a step; None where there is none to add."""
        if self.plan.noise_multiplier == 0 or not self.ranks.leads:
            return None
        extra_records = 0 if self._canaries.examples else self._canaries.extra_records
        like = self._sum.parameters[0].detach().new_empty(1).expand(self.dimension + extra_records)
        return self._noise.standard_normal(number, like)

    def _apply(self, update: Any, noise: Any, batch: IntArray, number: int) -> None:
        """Add the noise to the sum, divide, and take the optimizer's step."""
        plan, canaries = self.plan, self._canaries
        update = canaries.widened(update, batch if self.ranks.leads else batch[:0])
        if noise is not None:
            assert plan.max_grad_norm is not None  # a plan with noise has a clipping norm
            update.add_(noise, alpha=plan.noise_multiplier * plan.max_grad_norm)
        update = canaries.seen(self.ranks.add_up(update), number)
        self._updates.apply(update, plan.divisor(len(batch)), number)

    def _taken(self, number: int, batch: IntArray) -> tuple[int, LaidOut]:
        """The seed and the records of a step, read now unless they were read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead
        seed = self._noise.layer_seed(number)
        return seed, self._sum.laid_out(*self._records.take(number, self._share(batch), seed))

    def _read_ahead(self) -> None:
        """Read the records of the next step, while a GPU computes."""
        coming = self._stream.ahead() if self.device.type == "cuda" else None
        if coming is not None:
            with suppress(self._torch.cuda.OutOfMemoryError):  # they are read when they are needed
                self._ahead = self._taken(self.step, coming)

    def save(self, path: Path) -> None:
        """Write a checkpoint of the run as it stands."""
        self.settle()
        self.check_ranks()
        with self.ranks.together():
            if self.ranks.leads:
                sample = sampled_gradients(self._sum, self._records, self.device)
                save_checkpoint(path, belongs_to=self._belongs_to, contents=self._contents() | {"sample": sample})

    def resume(self, path: Path) -> bool:
        """Go to the place of the checkpoint at `path`; False if there is none."""
        contents = None
        with self.ranks.together():
            if self.ranks.leads:
                contents = load_checkpoint(path, belongs_to=self._belongs_to, device=self.device)
        contents = self.ranks.from_first(contents, self.device)
        if contents is None:
            return False
        with fitting(path):
            self._check(contents)
            self._go_to(contents)
        with self.ranks.together():
            if self.ranks.leads:
                sample = sampled_gradients(self._sum, self._records, self.device)
                refuse_other_gradients(path, contents.get("sample", ""), sample, self._sum.precision)
        return True

    def _check(self, contents: Mapping[str, Any]) -> None:
        """Refuse contents that are not of the form of this training's own, or would draw the noise elsewhere."""
        check_like(contents["model"], self.model.state_dict(), "model")
        self._updates.check(contents)
        noise, own = noise_source(json.loads(contents["noise"])), self._noise
        if type(noise) is not type(own) or (isinstance(own, SeededNoise) and noise.state() != own.state()):
            raise InputError("its noise is not that of the plan")
        check_like(json.loads(contents["canaries"]), self._canaries.state(), "canaries")

    @property
    def precision(self) -> str:
        """What a record's gradient is computed with, in words."""
        return self._sum.described

    def evaluate(self, evaluation: Callable[[Any, int], Any]) -> None:
        """Let `evaluation(model, step)` see the model as it is used, on rank 0; what it returns is kept."""
        self.settle()
        if self.ranks.leads:
            with as_used(self.model), random_layers(0, self.device):
                self.evaluations.append((self.step, evaluation(self.model, self.step)))

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
            "canaries": json.dumps(self._canaries.state()),
        }

    def _go_to(self, contents: Mapping[str, Any]) -> None:
        self.settle()
        self.model.load_state_dict(contents["model"])
        self._updates.go_to(contents)
        self._noise = noise_source(json.loads(contents["noise"]))
        self._stream = BatchStream.resumed(self.plan.sampler, json.loads(contents["batches"]))
        self.evaluations = [(step, value) for step, value in json.loads(contents["evaluations"])]
        self._canaries.go_to(json.loads(contents["canaries"]))
        self._begin_records()


def train(
    plan: Plan,
    model: Any,
    records: Any,
    labels: Any = None,
    *,
    canaries: Planted | None = None,
    ranks: Ranks | None = None,
    **settings: Unpack[TrainingOptions],
) -> Trained:
    """Train `model` in place by the plan; go on from `checkpoint` if that file is there.

    `settings`: those of `Trainer`, and what happens along the way (`calipers.training.handling.Along`).
    """
    given: dict[str, Any] = {**settings}
    along = Along(**{one.name: given.pop(one.name) for one in dataclasses.fields(Along) if one.name in given})
    ranks, path = Ranks.found() if ranks is None else ranks, along.path
    with ranks.together():
        along.check()
    ranks.agree({"checkpoint": "none" if path is None else f"every {along.checkpoint_every} steps"})
    trainer = Trainer(plan, model, records, labels, canaries=canaries, ranks=ranks, **given)
    with ExitStack() as held:
        if path is not None:
            with ranks.together():
                if ranks.leads:
                    held.enter_context(locked(path))
            if trainer.resume(path) and along.progress is not None and ranks.leads and trainer.step:
                along.progress(trainer.step, plan.steps)
        return _trained(trainer, along)


def _trained(trainer: Trainer, along: Along) -> Trained:
    """Take the steps that are left."""
    begun, resumed_at = time.perf_counter(), trainer.step
    steps, path = trainer.plan.steps, along.path
    while trainer.step < steps:
        trainer.take_step(wait=False)
        done = trainer.step
        evaluated = done == steps or (along.evaluate_every and done % along.evaluate_every == 0)
        if along.evaluation is not None and evaluated:
            trainer.evaluate(along.evaluation)
        if path is not None and (done % along.checkpoint_every == 0 or done == steps):
            trainer.save(path)
        if along.progress is not None and trainer.ranks.leads:
            along.progress(done, steps)
    trainer.settle()
    if path is None:  # else the last checkpoint was checked
        trainer.check_ranks()
    seconds, seen = time.perf_counter() - begun, tuple(trainer.evaluations)
    return Trained(trainer.model, trainer.plan, trainer.dimension, seconds, resumed_at, trainer.precision, seen)
