"""Lines 5 to 7 of Algorithm B: a gradient for every record, each clipped, then the sum.

    G = sum over i in the batch of g_i * min(1, C / ||g_i||),     g_i = gradient of the loss of record i.

**Per-record gradients** come from a model that is run for one record and mapped over the batch (one by one where
`vmap` cannot), and one backward pass. Linear layers, convolutions and embeddings need no gradient per record: what they
read and what comes back is enough (`calipers.training.bookkeeping`), and where writing the gradient out is cheaper, it
is a product of the two. Where no layer has such a rule, the gradient itself is mapped (`calipers.training.inputs`).

**Clipping holds for the numbers in memory.** A norm that comes out too small lets a record through that is too long.
PyTorch's `vector_norm` in single precision adds the squares one after the other on CPUs: over 2.4 million entries it
was seen to be 1e-4 too small, over 7.7 million 7e-4. On a CPU squares are therefore added in double precision. On CUDA
that would write every gradient out once more in double precision; there squares are added in single precision 64 at a
time and the roots of these sums in double precision. Whatever the order of addition, with u the unit of rounding,

- 64 squares are off by a relative 64 u at most, their root by half of that and its own rounding, and squares too small
  for the format lose less than its smallest normal number each;
- in double precision the norm of n numbers is off by a relative n 2^-53 at most.

The factor is made smaller by all that and by 4 roundings of its own format, so that factor * ||g_i|| <= C is true of
the stored numbers and not merely intended.

**A record whose gradient has no finite norm contributes nothing.** Zero is a vector of norm at most C like
any other; a NaN that spreads to the weights would tell the world that this record was there. If a batch has such
records, it is summed again without them. Nothing comes from a record either whose factor is too small to be rounded
well, and, on CUDA, from one with an entry beyond 1e18, whose square single precision does not hold.

**Micro-batches** only bound memory: clipped gradients are added up piece by piece, and noise is
added once, to the whole sum, elsewhere. If a GPU runs out of memory, the batch is begun again with half as many records
at a time. An empty batch has the sum 0.

**On CUDA a piece is played from a recording** (`calipers.training.replay`), which is made for every size. Poisson
batches of mean n vary by sqrt(n): sizes are therefore rounded up to multiples of a unit near 3/4 sqrt(n), so that about
a dozen recordings serve a whole training, and the piece is filled up with copies of a record whose factor is 0, 1 to 3
percent of it. The size is a function of the number of records alone: a resumed training plays the same recordings.
The host does not wait for the GPU before it has given it everything that can be done meanwhile: the noise, and the
records of the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calipers.citations import implements
from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.training.bookkeeping import BookKeeping
from calipers.training.inputs import OverRecords, called, count, form, gathered, leaves, like, mapped
from calipers.training.layer_products import Accuracy, norms_of
from calipers.training.layer_rules import refuse_mixing
from calipers.training.layer_taps import Entries
from calipers.training.losses import Loss, cross_entropy
from calipers.training.replay import Replay
from calipers.training.torch_library import low_precision, refuse_rounding, tensor_cores, torch_module

_ROUNDINGS = 4
_SMALL = 8192


def suitable_micro_batch(dimension: int, device: Any, share: int = 16) -> int:
    """Records at a time whose gradients fill 1/`share` of the GPU's memory, or half a GiB on a CPU; a power of two.

    Mapping the backward pass over records was seen to hold four times the gradients that come out of it.
    """
    cuda = device.type == "cuda"
    memory = torch_module("torch.cuda").get_device_properties(device).total_memory // share if cuda else 2**29
    records = max(1, int(memory) // (4 * dimension))
    return min(4096 if cuda else 512, 1 << (records.bit_length() - 1))


def bucket(count: int) -> int:
    """`count`, rounded up to a multiple of the power of two at or below 3/4 sqrt(count)."""
    unit = 1 << max(0, math.isqrt(9 * count // 16).bit_length() - 1)
    return count + -count % unit


@dataclass(frozen=True)
class LaidOut:
    """Records as a sum reads them: in pieces of `size`, of which the first `number` count."""

    records: Any
    labels: Any
    number: int
    size: int
    counted: Any
    tensors: list[Any]
    form: Any


@dataclass(frozen=True)
class Begun:
    """A sum that a GPU was asked for: where it will be, for which records it stands, whether for all of them (on the
    device, and for those who wait)."""

    laid: LaidOut
    total: Any
    sound: Any
    finite: Any
    known: Callable[[], bool]


class GradientSum:
    """The sum of the clipped gradients of a batch's records, as one flat vector.

    `max_grad_norm` None means no clipping: the sum is then one ordinary backward pass, and nothing bounds
    what one record adds to it. Records and labels are tensors, or nested as `calipers.training.inputs` says;
    `loss(outputs, labels)` is called with one record at a time. `micro_batch` None chooses by the memory of the model's
    device. `precision` "bf16" computes what enters the clipping with 8 bits (`calipers.training.torch_library`).
    """

    def __init__(
        self,
        model: Any,
        *,
        max_grad_norm: float | None,
        loss: Loss = cross_entropy,
        micro_batch: int | None = None,
        tf32: bool = True,
        precision: str = "full",
    ) -> None:
        refuse_mixing(model)
        self._torch = torch_module()
        self._model, self._loss, self._tf32, self.precision = model, loss, tf32, precision
        self.max_grad_norm = None if max_grad_norm is None else POSITIVE.check("max_grad_norm", max_grad_norm)
        self._named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self._named:
            raise InputError("The model has no parameter that requires a gradient; there is nothing to train.")
        self._frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
        self._frozen |= dict(model.named_buffers())
        self.dimension = sum(p.numel() for p in self._named.values())
        self._device = self.parameters[0].device
        if max_grad_norm is not None:
            refuse_rounding(self._device)
        self._suits = micro_batch is None
        chosen = suitable_micro_batch(self.dimension, self._device) if micro_batch is None else micro_batch
        self.micro_batch = COUNT.check_int("micro_batch", chosen)
        func = torch_module("torch.func")
        self._each, losses = OverRecords(func.grad(self._record_loss), 1), OverRecords(self._record_loss, 1)
        self._together = func.grad(lambda now, rows, labels, counted: (losses(now, rows, labels) * counted).sum())
        self._books = BookKeeping(model, self._named, self._record_loss, exact=precision == "full")
        self._form: Any = None
        self._sum = self._zeros() if self._device.type == "cuda" else None
        self._piece = Replay(self._work, self._state) if self._device.type == "cuda" else self._work

    @property
    def parameters(self) -> list[Any]:
        """The trained parameters, in the order of the flat vector."""
        return list(self._named.values())

    @property
    def described(self) -> str:
        """What a record's gradient is computed with, in words."""
        if self.precision == "bf16":
            return "bfloat16 products (autocast), weights and sums in " + str(self.parameters[0].dtype)[6:]
        cores = self._tf32 and self._device.type == "cuda"
        return str(self.parameters[0].dtype)[6:] + (", TF32 products" if cores else "")

    def _record_loss(self, parameters: dict[str, Any], record: Any, label: Any) -> Any:
        record, label = mapped(lambda tensor: tensor.unsqueeze(0), (record, label))
        with low_precision(self.precision, self._device):
            found = self._loss(self._outputs(parameters, record), label)
        if found.numel() != 1:
            raise InputError(f"Expected the loss of a record to be one number, got {tuple(found.shape)}.")
        return found.reshape(())

    def _outputs(self, parameters: dict[str, Any], records: Any) -> Any:
        call, tensors = torch_module("torch.func").functional_call, (parameters, self._frozen)
        with low_precision(self.precision, self._device):
            return called(lambda *inputs, **named: call(self._model, tensors, inputs, named), records)

    @implements("ertan2026:def3.3")
    def __call__(self, records: Any, labels: Any) -> Any:
        """The sum over the records; every summand has norm at most `max_grad_norm`. 0 for no records."""
        return self.of(self.laid_out(records, labels))

    def of(self, laid: LaidOut) -> Any:
        """The same of records that are laid out; overwritten by the next call."""
        return self.finished(self.begun(laid))

    def begun(self, laid: LaidOut) -> Begun:
        """Give a GPU its work without waiting for it; with smaller pieces where its memory does not suffice."""
        while True:
            try:
                total, sound = self._explained(lambda laid=laid: self._added(laid))  # type: ignore[misc]
                finite = sound.all()
                return Begun(laid, total, sound, finite, self._when_known(finite))
            except self._torch.cuda.OutOfMemoryError:
                if self.micro_batch == 1:
                    raise
                self.micro_batch = -(-self.micro_batch // 2)
                self._torch.cuda.empty_cache()
                laid = self.laid_out(laid.records, laid.labels)

    def finished(self, begun: Begun) -> Any:
        """Wait; if some record has no finite norm, the sum is computed again without it."""
        while not begun.known():
            records, labels = begun.laid.records, begun.laid.labels
            rest = gathered((records, labels), begun.sound.to(leaves(records)[0].device))
            begun = self.begun(self.laid_out(*rest))
        return begun.total

    def _when_known(self, answer: Any) -> Callable[[], bool]:
        """Wait for an answer of the device, but not for what it is given after it."""
        if self._device.type != "cuda":
            return lambda: bool(answer)
        place = self._torch.empty((), dtype=self._torch.bool, pin_memory=True)
        known = self._torch.cuda.Event()
        place.copy_(answer, non_blocking=True)
        known.record()

        def wait() -> bool:
            known.synchronize()
            return bool(place)

        return wait

    def _explained(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except self._torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError) as problem:  # a model that returns a tuple is a TypeError of the loss
            text = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise InputError(f"PyTorch cannot compute the gradient of one record by itself: {text}") from problem

    def laid_out(self, records: Any, labels: Any) -> LaidOut:
        """The records in pieces of one size, filled up; a model that sees such records for the first time is tried."""
        torch, number = self._torch, count((records, labels))
        if number and self.max_grad_norm is not None:
            self._explained(lambda: self._try_rules(records, labels))
        size = self._piece_size(number) if number else 1
        missing = -number % size if self._device.type == "cuda" else 0
        tensors = leaves((records, labels))
        if missing:
            tensors = [torch.cat((rows, rows[:1].expand(missing, *rows.shape[1:]))) for rows in tensors]
        counted = torch.arange(number + missing, device=self._device) < number
        return LaidOut(records, labels, number, size, counted, tensors, form((records, labels)))

    def _try_rules(self, records: Any, labels: Any) -> None:
        """Let a made-up record decide which layers have a rule, and refuse models that remember."""
        before = self._changes()
        with tensor_cores(False):
            held = self._books.prepare(records, labels, self._each, self._current())
        self._refuse_memory(before)
        if self._books.remembers:
            raise InputError(
                "The model, or its loss, remembers what it has read (in an attribute, a list): the gradient of a "
                "record is another one after another record. Such records are in gradients that are not theirs. "
                "Begin every call anew."
            )
        if held and self._suits:
            # What is held is known: the rest of the memory is for what the model itself holds.
            self._suits, self.micro_batch = False, suitable_micro_batch(held, self._device, share=4)

    def _added(self, laid: LaidOut) -> tuple[Any, Any]:
        """(the sum of the gradients, for which records it stands)."""
        torch, number, size, self._form = self._torch, laid.number, laid.size, laid.form
        if 0 < number <= size:
            part, usable = self._piece(laid.counted, *(rows.to(self._device) for rows in laid.tensors))
            return part, usable[:number]
        total, sound = self._zeros(), torch.ones(number, dtype=torch.bool, device=self._device)
        for start in range(0, number, size):
            piece = slice(start, start + size)
            part, usable = self._piece(laid.counted[piece], *(rows[piece].to(self._device) for rows in laid.tensors))
            total += part
            sound[piece] = usable[: number - start]
        return total, sound

    def _changes(self) -> list[int]:
        """How often each buffer and weight was written to."""
        return [tensor._version for tensor in (*self._frozen.values(), *self._named.values())]

    def _refuse_memory(self, before: list[int]) -> None:
        """Refuse buffers that the model writes to: they carry a record into the gradients of those after it, and out
        into the world, without noise. Weights are no better."""
        names = (*self._frozen, *self._named)
        moved = [name for name, was, now in zip(names, before, self._changes(), strict=True) if was != now]
        if moved and self.max_grad_norm is not None:
            kind = "buffers" if moved[0] in self._frozen else "weights"
            raise InputError(
                f"The model writes to its {kind} while it runs ({', '.join(moved[:3])}): a record's gradient then "
                "depends on the records before it, and no noise is added to what is kept. Use layers that keep no "
                "statistics (track_running_stats=False), or put them into eval mode."
            )

    def _work(self, counted: Any, *tensors: Any) -> tuple[Any, Any]:
        (records, labels), before = like(self._form, tensors), self._changes()
        found = (self._plain if self.max_grad_norm is None else self._clipped)(records, labels, counted)
        self._refuse_memory(before)
        return found

    def _piece_size(self, count: int) -> int:
        """Pieces of equal size, as few as fit into `micro_batch`."""
        size = -(-count // -(-count // self.micro_batch))
        return size if self._device.type != "cuda" else min(bucket(size), self.micro_batch)

    def _clipped(self, records: Any, labels: Any, counted: Any) -> tuple[Any, Any]:
        """(the sum over the records that count, NaN if one of them has no finite norm; which records have one)."""
        torch = self._torch
        assert self.max_grad_norm is not None
        cores = self._tf32 and self._device.type == "cuda" and self.parameters[0].dtype == torch.float32
        accuracy = Accuracy.of(self.parameters[0].dtype, cores)
        with tensor_cores(self._tf32):
            found = self._layers(records, labels, accuracy)
            flat = _gathered(torch, found.written)
            squares = lost = torch.zeros(len(counted), dtype=torch.float64, device=self._device)
            if flat:
                norms, error = norms_of(list(flat.values()), blocks=self._device.type == "cuda")
                squares = squares + (norms * (1.0 + 2.0 * error)) ** 2
            for norm, small in found.bounds:
                squares, lost = squares + norm**2, lost + small
        factors = self._factors(squares.sqrt(), lost)
        finite = torch.isfinite(squares)
        # Below its smallest normal number the format rounds coarsely, and upwards too: such a record adds nothing.
        dtype = self.parameters[0].dtype
        factors = torch.where(finite & counted & (factors >= torch.finfo(dtype).tiny), factors, 0.0).to(dtype)
        return self._weighted(found, flat, factors), finite

    def _weighted(self, found: Entries, flat: dict[tuple[str, ...], Any], factors: Any) -> Any:
        """The sum of the gradients times their factors, as a flat vector; all recordings write it to one place."""
        total = self._zeros() if self._sum is None else self._sum.zero_()
        places = dict(zip(self._named, total.split([p.numel() for p in self._named.values()]), strict=True))
        with tensor_cores(False):
            for names, gradient in flat.items():
                sums = (factors @ gradient).split([self._named[name].numel() for name in names])
                for name, own in zip(names, sums, strict=True):
                    places[name].copy_(found.in_order(name, own))
        with tensor_cores(self._tf32):
            for name in found.products:
                places[name].copy_(found.total(name, factors))
        return total

    def _factors(self, norms: Any, lost: Any) -> Any:
        """min(1, C / norm), made smaller by everything that rounding may add to the summand of a record."""
        assert self.max_grad_norm is not None
        margin = 1.0 - _ROUNDINGS * self._torch.finfo(self.parameters[0].dtype).eps
        return ((self.max_grad_norm * margin - lost) / norms).clamp(max=1.0)

    def _layers(self, records: Any, labels: Any, accuracy: Accuracy) -> Entries:
        """Gradients per record where they are written out, and what the others are products of."""
        if not self._books:
            return Entries(dict(self._each(self._current(), records, labels)))
        return self._books.gradients(records, labels, self._current(), accuracy)

    def _plain(self, records: Any, labels: Any, counted: Any) -> tuple[Any, Any]:
        """(the sum over the records that count, unclipped; all of them are in it)."""
        with tensor_cores(self._tf32):
            gradients = self._together(self._current(), records, labels, counted)
        return self._torch.cat([g.reshape(-1) for g in gradients.values()]), self._torch.ones_like(counted)

    def _current(self) -> dict[str, Any]:
        return {name: p.detach() for name, p in self._named.items()}

    def _state(self) -> object:
        """Where the weights are, and which layers behave as in training."""
        tensors = (*self._named.values(), *self._frozen.values())
        return [t.data_ptr() for t in tensors], [layer.training for layer in self._model.modules()], self._form

    def _zeros(self) -> Any:
        return self._torch.zeros(self.dimension, dtype=self.parameters[0].dtype, device=self._device)


def _gathered(torch: Any, loose: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    """Gradients per record as matrices (records, entries): all small ones as one, since every kernel takes time."""
    small = tuple(name for name, gradient in loose.items() if gradient[0].numel() <= _SMALL)
    found: dict[tuple[str, ...], Any] = {
        (name,): gradient.flatten(1) for name, gradient in loose.items() if name not in small
    }
    if small:
        found[small] = torch.cat([loose[name].flatten(1) for name in small], dim=1)
    return found
