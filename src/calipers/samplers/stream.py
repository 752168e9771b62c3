"""A sampler's batches as a stream with a place that can be written down and found again.

A training run that is interrupted must go on with the batches it would have had. Drawing fresh ones
instead would let a shuffled record take part twice in an epoch, or never: another mechanism than the
one that is accounted.

The stream is an epoch at a time (a step at a time, for Poisson sampling). Its place is the state
of the generator at the start of the current epoch and the number of batches taken since; both are
small, and finding the place again draws at most one epoch of indices.

The state holds the generator's: whoever reads it knows all batches to come. Keep it as secret as the
data.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from calipers.domains import SEED, Domain
from calipers.errors import InputError
from calipers.numerics.types import IntArray
from calipers.samplers.law import Sampler, check_generator

_GENERATORS = ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")


_WORDS, _BUFFER = 624, 4
"""Of MT19937 and of Philox."""


class BatchStream:
    """The batches of `sampler.batches(rng)`, one after the other, with a place in them.

    Post-condition: the batches are those of `sampler.batches(rng)`, in order, whether the stream is
    read in one go or written down and resumed in between.

    >>> from calipers.samplers import Shuffle
    >>> sampler = Shuffle(dataset_size=100, batch_size=10, epochs=2)
    >>> stream = BatchStream(sampler, np.random.default_rng(0))
    >>> _ = next(stream)
    >>> again = BatchStream.resumed(sampler, stream.state())
    >>> again.position, bool(np.array_equal(next(stream), next(again)))
    (1, True)
    """

    def __init__(self, sampler: Sampler, rng: np.random.Generator) -> None:
        check_generator(rng)
        if not isinstance(sampler, Sampler):
            raise InputError(
                f"Expected a sampler of calipers.samplers, got {type(sampler).__name__}; its distribution would not "
                "be known."
            )
        law = sampler.law()
        self.sampler = sampler
        self.steps = law.steps
        self.rounds = law.rounds
        self.position = 0
        self._rng = rng
        self._epoch_state: dict[str, Any] = {}
        self._ahead: tuple[dict[str, Any], IntArray] | None = None
        self._begin_epoch()

    @classmethod
    def seeded(cls, sampler: Sampler, seed: int | None) -> BatchStream:
        """The stream of a generator with this seed; None is the operating system's entropy."""
        return cls(sampler, np.random.default_rng(seed if seed is None else SEED.check_int("seed", seed)))

    def _begin_epoch(self) -> None:
        if self.position and self.sampler.repeats:
            self._rng.bit_generator.state = copy.deepcopy(self._epoch_state)
        # The generator's own dictionary is reused by numpy: copy it before anything is drawn.
        self._epoch_state = copy.deepcopy(dict(self._rng.bit_generator.state))
        self._epoch = self.sampler.epoch(self._rng)

    def __iter__(self) -> Iterator[IntArray]:
        return self

    def __next__(self) -> IntArray:
        if self.position == self.steps:
            raise StopIteration
        batch, self._ahead = self._drawn() if self._ahead is None else self._ahead[1], None
        self.position += 1
        return batch

    def _drawn(self) -> IntArray:
        if self.position and self.position % self.rounds == 0:
            self._begin_epoch()
        return next(self._epoch)

    def ahead(self) -> IntArray | None:
        """The batch that `next` will return, while the place stays where it is; None at the end."""
        if self.position == self.steps:
            return None
        if self._ahead is None:
            state = self.state()
            self._ahead = state, self._drawn()
        return self._ahead[1]

    def state(self) -> dict[str, Any]:
        """Everything `resumed` needs, in plain numbers, strings and lists. Secret."""
        if self._ahead is not None:
            return self._ahead[0]
        at_boundary = self.position and self.position % self.rounds == 0
        # An epoch that is the first one again starts where the first one did.
        anew = at_boundary and not self.sampler.repeats
        generator = self._rng.bit_generator.state if anew else self._epoch_state
        return {
            "sampler": repr(self.sampler),
            "position": self.position,
            "taken": 0 if at_boundary else self.position % self.rounds,
            "generator": _plain(generator),
        }

    @classmethod
    def resumed(cls, sampler: Sampler, state: Mapping[str, Any]) -> BatchStream:
        """The stream at the place that `state` describes, or `InputError` if it is another sampler's."""
        missing = [key for key in ("sampler", "position", "taken", "generator") if key not in state]
        if missing:
            raise InputError(f"Expected the state of a batch stream, got one without {', '.join(missing)}.")
        if state["sampler"] != repr(sampler):
            raise InputError(
                f"The state belongs to another sampler: {state['sampler']}, not {sampler!r}. "
                "Resume with the sampler that began."
            )
        stream = cls(sampler, _generator(state["generator"]))
        position = Domain(0, stream.steps, integer=True).check_int("position", state["position"])
        taken = Domain(0, min(position, stream.rounds), integer=True).check_int("taken", state["taken"])
        stream.position = position - taken
        for _ in range(taken):
            next(stream)
        return stream


def _plain(value: Any) -> Any:
    """Nested numpy numbers and arrays as Python ones."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _generator(state: Mapping[str, Any]) -> np.random.Generator:
    name = state.get("bit_generator")
    if name not in _GENERATORS:
        raise InputError(f"Expected the state of one of numpy's generators ({', '.join(_GENERATORS)}), got {name!r}.")
    bits = getattr(np.random, name)()
    try:
        words = {k: np.asarray(v, dtype=np.uint64) if isinstance(v, list) else v for k, v in state["state"].items()}
        if not 0 <= words.get("pos", 0) <= _WORDS or not 0 <= state.get("buffer_pos", 0) <= _BUFFER:
            raise ValueError("its place lies outside of its words")  # numpy itself would read beyond them
        bits.state = {**state, "state": words}
        if "buffer" in state:  # Philox keeps unused words next to its counter
            bits.state = {**bits.state, "buffer": np.asarray(state["buffer"], dtype=np.uint64)}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"The generator's state is damaged: {error}.") from error
    return np.random.Generator(bits)
