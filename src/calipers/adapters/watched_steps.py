"""What each step of an Opacus optimizer really did: the rows it clipped, to which norm, and the noise it added.

The methods through which every step goes are overheard on the one optimizer, and the step hook is left to whoever
wants it: a hook that is attached later replaces the accountant's, not this.

- `clip_and_accumulate` (one call for each piece of a batch) tells the norm in force and the rows behind the gradients.
  With ghost clipping the optimizer knows neither: the module clips, inside `loss.backward()`, to a norm of its own.
- `add_noise` (one call for each release) tells the deviation of the noise. Their ratio is the realized noise
  multiplier. It is not `optimizer.noise_multiplier` where a scheduler moves one of the two norms and not the other.
- `scale_grad` tells what the noisy sum is divided by, when it is divided.
- the optimizer of PyTorch inside tells when parameters move, and at which learning rate; if they move without new
  noise, by another gradient than the one that was released, or between two steps, nothing is private.
- the random generator tells its state: the same state again is the same noise again, and so is a state whose next
  random numbers were seen before.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

from calipers.adapters.noise_stream import NoiseStream
from calipers.adapters.opacus_library import installed_opacus, opacus_module
from calipers.adapters.opacus_sharded import SHARDED, Shards
from calipers.adapters.watched_before import MOMENTUM, keeps_traces
from calipers.adapters.watched_queue import Draw
from calipers.adapters.watched_rates import FOLLOWS, LearningRates
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import WatchedRelease
from calipers.adapters.watched_tensors import Fingerprint, weights_digest
from calipers.errors import CalipersError, InputError, UnsupportedError

READ_OPTIMIZERS = (
    "DPOptimizer",
    "DPPerLayerOptimizer",
    "DPOptimizerFastGradientClipping",
    "DistributedDPOptimizer",
    "DistributedDPOptimizerFastGradientClipping",
    SHARDED,
    "SimpleDistributedPerLayerOptimizer",
)
UPDATED = (
    "The parameters were updated without new noise: somebody called the inner optimizer, or replaced add_noise. "
    "Nothing is proven about such a step. Call step() of the optimizer that make_private returned."
)
UNCLIPPED = (
    "A step was taken on gradients that nothing had clipped: ghost clipping happens in the backward pass of the "
    "criterion that make_private returned, and the loop used another one. Nothing is proven; call that criterion."
)
SWAPPED = (
    "The optimizer inside the private one was replaced after attach, so its updates were not seen and nothing is "
    "proven. Attach after the last change, before the first step."
)
REPLACED = (
    "The gradient that moved the parameters is not the noisy one that was released: a hook or the loop changed it "
    "after the noise was added, perhaps by what is in the records. Nothing is proven about such a step."
)
FOREIGN = (
    "The parameters changed between two steps, and not by the attached optimizer (another optimizer, load_state_dict, "
    "or by hand). What they were changed by is not known, and nothing is proven."
)
LOADED = (
    "The parameters were changed after attach and before the first step, by weights that were loaded for example. The "
    "number holds if these weights saw none of the records, or if every step on them is described "
    "(attach(..., state=...), attach(..., earlier=...))."
)
OTHER_WEIGHTS = (
    "The record's state belongs to other weights than those of the first step after it: it was saved at another time "
    "than they were, and how many steps lie in between nobody can tell. Save record.state_dict() whenever the model is "
    "saved, in the same file."
)
SINCE = (
    "Parameters have changed since the last noisy step. The number covers the noisy steps alone: it holds for what was "
    "computed from their results (an average of weights, earlier weights), and not for steps without noise on these "
    "records."
)
HALFWAY = (
    "The divisor or the reduction changed between adding the noise and dividing; nothing is proven about that step."
)
AGAIN = (
    "The random generator of the noise was set back: noise of an earlier step was added again, at the same place or "
    "shifted, and cancels in a difference. Do not seed the generator, or set it back, during training."
)
ROWS = (
    "A step clipped {rows} gradients for a batch of {records} records: the loop repeats, splits or drops records "
    "between the loader and the step, and nothing bounds what one record adds to it."
)
SEVERAL = (
    "One step was taken on several batches, in which a record may be more than once; no Run describes that. Split "
    "large batches with opacus.utils.batch_memory_manager instead."
)
NORMS = "The clipping norm changed inside a step; the noise is compared with the largest of its norms."
NO_NOISE = "A step was taken without noise."


def check_optimizer(engine: Any, optimizer: Any) -> None:
    """Refuse what is no private optimizer, or one whose steps no `Run` describes."""
    if not isinstance(optimizer, opacus_module("opacus.optimizers").DPOptimizer):
        raise InputError(
            f"Expected the optimizer that PrivacyEngine.make_private returned, got {type(optimizer).__name__}; write "
            "attach(engine, optimizer, data_loader)."
        )
    name = type(optimizer).__name__
    if (
        "AdaClip" in name
        or "AdaptiveClipping" in type(engine).__name__
        or hasattr(optimizer, "_adjusted_noise_multiplier")
    ):
        raise UnsupportedError(
            f"Adaptive clipping in {installed_opacus()} cannot be described as a Run: its clipping norm is "
            "learned from the data by a second noisy release in every step (with ghost clipping, its noise follows the "
            "realized batch size, which is not free). Use clipping='flat' with PrivacyEngine; a count with "
            "fixed noise and a public divisor is measured by calipers.measure.JointRelease."
        )
    if name not in READ_OPTIMIZERS or type(optimizer).__module__.partition(".")[0] != "opacus":
        raise UnsupportedError(
            f"{name} ({installed_opacus()}) clips or adds noise in a way that nobody has checked; Calipers reads "
            f"{', '.join(READ_OPTIMIZERS)}."
        )
    watched = {"add_noise", "clip_and_accumulate", "accumulate", "pre_step", "scale_grad"}
    replaced = sorted(watched & set(vars(optimizer)))
    if replaced:
        raise UnsupportedError(f"The optimizer's {replaced[0]} was replaced, so nothing is known about its steps.")


class Steps:
    """Overhears one optimizer and writes each release down.

    `described`: somebody described steps before the first one that is watched.
    """

    def __init__(self, optimizer: Any, seen: Seen, described: bool = False) -> None:
        self._optimizer, self._seen, self._complain = optimizer, seen, seen.complain
        self._pieces: list[tuple[Draw, int]] = []
        self._norms: set[float] = set()
        self._clipped: list[tuple[float, int]] = []
        self._noisy = self._scaled = False
        self._divisor = float(optimizer.expected_batch_size or 0)
        self._terms: tuple[str, float] = ("", 0.0)
        self._shards: Shards | None = None
        self.pay: Callable[[WatchedRelease, list[tuple[Draw, int]]], None] = lambda release, used: None
        """Called before the noise is added; what it raises refuses the step."""
        if hasattr(optimizer, "accumulate"):
            module = _clipping_module(optimizer)
            if type(optimizer).__name__ == SHARDED:
                self._shards = Shards(optimizer, module)
            _before(module, "get_clipping_coef", lambda: None, after=lambda factors: self._clip(module, factors))
            _before(optimizer, "accumulate", self._accumulate_ghost)
        else:
            _before(optimizer, "clip_and_accumulate", self._accumulate)
        _before(optimizer, "add_noise", self._release)
        _before(optimizer, "scale_grad", self._scale, after=lambda _: self._released())
        _before(optimizer, "signal_skip_step", lambda: None, after=lambda _: seen.draws.signal())
        self._inner = optimizer.original_optimizer
        self._hook = self._inner.register_step_pre_hook(self._update)
        self._inner.register_step_post_hook(self._updated)
        self._stream = NoiseStream(optimizer, seen.states)
        seen.draws.began = self._begin
        # Processes put their gradients together, and shards their parameters, after what is seen here.
        self._alone = int(getattr(optimizer, "world_size", 1)) == 1
        self._gradients = Fingerprint([])
        self._parameters = Fingerprint(optimizer.params if self._alone else [])
        self._described, self._begun = described, False
        self._rates = LearningRates(self._inner)
        self._batch: tuple[int | None, int] = (None, 0)
        self.resumed_from = ""
        """The digest of the weights that a loaded state belongs to."""

    @property
    def weights(self) -> str:
        """The digest of the weights after the last step; empty where this process does not hold all of them."""
        if not self._alone:
            return ""
        return weights_digest(self._inner) if self._begun else self.resumed_from

    @property
    def moved_since(self) -> bool:
        """Whether parameters changed after the last noisy step moved them."""
        return self._begun and self._parameters.changed()

    def _look_back(self) -> None:
        """Before the first step that is watched: what happened to the parameters until now."""
        self._begun = True
        if self.resumed_from and self._alone:
            if weights_digest(self._inner) != self.resumed_from:
                self._complain(OTHER_WEIGHTS, True)
        elif self._parameters.changed():
            self._seen.notes[LOADED] = None
        if not self._seen.steps and not self._described and keeps_traces(self._optimizer):
            self._complain(MOMENTUM, True)

    def _clip(self, module: Any, factors: Any) -> None:
        """Ghost clipping: the module computed one factor for each row. The last backward pass is the one that stays."""
        self._clipped = [(float(module.max_grad_norm), len(factors))]

    def _accumulate_ghost(self) -> None:
        if self._clipped:
            norm, rows = self._clipped.pop()
            self._take(norm, [rows])
        else:
            self._complain(UNCLIPPED, True)

    def _accumulate(self) -> None:
        norms = getattr(self._optimizer, "max_grad_norms", None)
        norm = float(self._optimizer.max_grad_norm) if norms is None else math.hypot(*map(float, norms))
        gradients = self._optimizer.params[0].grad_sample
        self._take(norm, [len(part) for part in (gradients if isinstance(gradients, list) else [gradients])])

    def _take(self, norm: float, rows: list[int]) -> None:
        self._norms.add(norm)
        self._pieces.extend(self._seen.draws.queue.taken(rows))

    def _begin(self) -> None:
        """A pass begins: where seeds are usually set."""
        if self._watches_noise() and self._stream.back_at_a_beginning(self._seen.steps):
            self._complain(AGAIN, True)

    def _release(self) -> None:
        """Noise is about to be added: everything clipped since the last time goes into this release."""
        pieces, norms = self._pieces, self._norms
        self._pieces, self._norms = [], set()
        if self._optimizer.original_optimizer is not self._inner:
            self._complain(SWAPPED, True)
        if not self._begun:
            self._look_back()
        elif self._parameters.changed():
            self._complain(FOREIGN, True)
        if not norms:
            self._complain(UNCLIPPED if hasattr(self._optimizer, "accumulate") else UPDATED, True)
        norm = max(norms, default=math.inf)
        if len(norms) > 1:
            self._complain(NORMS, False)
        noise = float(self._optimizer.noise_multiplier)
        if norms and norm != float(self._optimizer.max_grad_norm):
            noise *= float(self._optimizer.max_grad_norm) / norm
        try:
            noise = noise if self._shards is None else self._shards.noise(noise)
        except UnsupportedError as refusal:
            self._complain(str(refusal), True)
        if not noise > 0:
            self._complain(NO_NOISE, True)
        dimension = sum(parameter.numel() for parameter in self._optimizer.params)
        used = self._multiplicities(pieces)
        rows = sum(rows for _, rows in pieces)
        release = self._written(noise, rows)
        loaders = {draw.group.loader for draw, _ in pieces}
        self._batch = (loaders.pop() if len(loaders) == 1 else None, rows)
        try:
            self.pay(release, used)
        except CalipersError:
            self._optimizer.zero_grad()  # what was clipped for the refused step must not enter the next one
            raise
        self._noisy, self._scaled = True, False
        self._look_at_generator()
        self._seen.release(used, release, norm, dimension)

    def _written(self, noise: float, rows: int) -> WatchedRelease:
        """What acts in this release."""
        self._terms = self._dividing()
        reduction, divisor = self._terms
        if reduction == "sum":
            return WatchedRelease(noise)
        follows = divisor == max(rows, 1)
        return WatchedRelease(noise, reduction, 0.0 if follows and divisor != self._divisor else divisor, follows)

    def _dividing(self) -> tuple[str, float]:
        reduction = str(self._optimizer.loss_reduction)
        return reduction, float(self._optimizer.expected_batch_size or 0) if reduction == "mean" else 0.0

    def _scale(self) -> None:
        if self._dividing() != self._terms:
            self._complain(HALFWAY, True)

    def _released(self) -> None:
        """The noisy sum is divided: this is the gradient that may move the parameters, and no other."""
        self._scaled = True
        if self._alone:
            self._gradients = Fingerprint([parameter.grad for parameter in self._optimizer.params])
            # Whoever changes gradients in a hook of the inner optimizer does it before this looks.
            self._inner._optimizer_step_pre_hooks.move_to_end(self._hook.id)

    def _multiplicities(self, pieces: list[tuple[Draw, int]]) -> list[tuple[Draw, int]]:
        """How often each draw is in the sum: once in pieces, or as often as all of it was."""
        rows: dict[Draw, list[int]] = {}
        for draw, count in pieces:
            rows.setdefault(draw, []).append(count)
        found = []
        for draw, counts in rows.items():
            records = draw.indices.size
            if sum(counts) != records and set(counts) != {records}:
                self._complain(ROWS.format(rows=sum(counts), records=records), True)
            found.append((draw, 1 if sum(counts) == records else len(counts)))
        if len(found) > 1 or any(times > 1 for _, times in found):
            self._complain(SEVERAL, False)
        return found

    def _update(self, *_: Any) -> None:
        if not self._noisy:
            self._complain(UPDATED, True)
        elif self._alone:
            now = [parameter.grad for parameter in self._optimizer.params]
            if not self._scaled or self._gradients.changed(now):
                self._complain(REPLACED, True)
        if self._noisy and self._rates.follow(*self._batch):
            self._complain(FOLLOWS, True)
        self._noisy = False

    def _updated(self, *_: Any) -> None:
        if self._alone:
            self._parameters = Fingerprint(self._optimizer.params)

    def _watches_noise(self) -> bool:
        # Without shards the noise is drawn on the first process alone.
        return not self._optimizer.secure_mode and (self._shards is not None or not getattr(self._optimizer, "rank", 0))

    def _look_at_generator(self) -> None:
        """Remember the state that this step's noise comes from."""
        if not self._watches_noise():
            return
        if self._shards is not None:
            self._seen.seeds[self._shards.seed()] = None
        if self._stream.seen_before():
            self._complain(AGAIN, True)


def _before(thing: Any, name: str, first: Callable[[], None], after: Callable[[Any], None] | None = None) -> None:
    """Call `first` before a method of one object, and `after` with its result."""
    method = getattr(thing, name)

    def overheard(*arguments: Any, **named: Any) -> Any:
        first()
        result = method(*arguments, **named)
        if after is not None:
            after(result)
        return result

    setattr(thing, name, overheard)


def _clipping_module(optimizer: Any) -> Any:
    """The module of ghost clipping whose parameters the optimizer trains.

    Neither the optimizer nor the engine holds it, so it is looked for among the objects that are alive, once.
    """
    samples = opacus_module("opacus.grad_sample")
    kind = getattr(samples, "GradSampleHooksFastGradientClipping", samples.GradSampleModuleFastGradientClipping)
    wanted = {id(parameter) for parameter in optimizer.params}
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    found = [module for module in found if wanted <= {id(parameter) for parameter in module.trainable_parameters}]
    if len(found) != 1:
        raise UnsupportedError(
            f"Ghost clipping clips in the module, and {len(found)} modules of {installed_opacus()} hold the parameters "
            "of this optimizer; attach right after make_private, while its module is alive."
        )
    return found[0]
