"""A computation on CUDA, recorded once and played again: the work of the GPU without the work of Python.

Mapping a model's gradient over records takes thousands of small launches, and Python issues them more slowly than a GPU
finishes them: for the small networks of the experiments most of a step was waiting. A CUDA graph holds the launches
themselves. It is recorded for one shape of the inputs, reads from fixed places in memory and writes to fixed places;
the inputs are copied there, the graph is played, the outputs are read.

What makes a recording wrong, and what is done about it:

- **Something else changes.** A graph knows the addresses of the weights and not their names, and the branches that
  Python took. Before each playing `state()` is compared with what it was; if it is another, everything is recorded
  anew. (Optimizers and `load_state_dict` write in place and move nothing.)
- **The code cannot be recorded**, because it looks at values (`if loss > 1`). Then nothing is recorded any more and
  every call runs the function itself. The numbers are the same; only time is lost. (PyTorch's generator of the device
  believes that it is recorded still, and refuses dropout from then on: it is given the state of before.)
- **The memory does not suffice.** All recordings are given up and the error is raised; the caller may go on with
  smaller inputs.
- **The outputs are overwritten** by the next call: use them before.

A shape is run once, so that libraries choose their kernels, recorded, and played: every result comes from a recording.
A training that is killed and resumed, and makes its recordings in another order, therefore gives the same numbers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from calipers.training.torch_library import torch_module

# Recordings kept. They share one pool of memory, so that many cost little more than the largest.
_KEPT = 32


class Replay:
    """`function(*inputs)`, a tuple of tensors computed from tensors on one CUDA device, without Python's part.

    `state()` says what the recordings depend on besides the inputs: addresses of tensors that are read, switches.
    """

    def __init__(self, function: Callable[..., tuple[Any, ...]], state: Callable[[], object]) -> None:
        self._cuda = torch_module("torch.cuda")
        self._function, self._state = function, state
        self._recordings: dict[object, _Recording] = {}
        self._recorded_in: object = None
        self._pool: Any = None
        self.refused: str | None = None
        """Why nothing is recorded, if so."""

    @property
    def recordings(self) -> int:
        """How many shapes are recorded."""
        return len(self._recordings)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """What the function returns; overwritten by the next call."""
        if self.refused is not None:
            return self._function(*inputs)
        state = self._state()
        if state != self._recorded_in:
            self._recordings.clear()
            self._recorded_in = state
        shape = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        recording = self._recordings.get(shape)
        if recording is None:
            generator = self._cuda.default_generators[inputs[0].device.index]
            drawn = generator.get_state()
            self._function(*inputs)
            recording = self._record(shape, inputs)
            generator.set_state(drawn)  # what is played draws what a recording of before would have drawn
        return self._function(*inputs) if recording is None else recording.play(inputs)

    def _record(self, shape: object, inputs: tuple[Any, ...]) -> _Recording | None:
        if len(self._recordings) >= _KEPT:
            del self._recordings[next(iter(self._recordings))]
        self._pool = self._pool or self._cuda.graph_pool_handle()
        generator = self._cuda.default_generators[inputs[0].device.index]
        before = generator.clone_state()
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._recordings[shape] = self._recorded(inputs)
        except self._cuda.OutOfMemoryError:
            self._recordings.clear()
            raise
        except RuntimeError as problem:
            self.refused = str(problem).splitlines()[0]
            self._recordings.clear()
            generator.graphsafe_set_state(before)
            self._cuda.synchronize()
            self._cuda.empty_cache()
            return None
        finally:
            if collecting:
                gc.enable()
        return self._recordings[shape]

    def _recorded(self, inputs: tuple[Any, ...]) -> _Recording:
        """A recording; if the memory does not suffice, without what earlier calls left in PyTorch's cache, which is no
        use to the recordings' own pool."""
        try:
            return _Recording(self._cuda, self._function, inputs, self._pool)
        except self._cuda.OutOfMemoryError:
            self._cuda.empty_cache()
        return _Recording(self._cuda, self._function, inputs, self._pool)


class _Recording:
    """One graph with the places of its inputs and outputs."""

    def __init__(self, cuda: Any, function: Callable[..., tuple[Any, ...]], inputs: tuple[Any, ...], pool: Any) -> None:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._graph = cuda.CUDAGraph()
        cuda.synchronize()
        # Not `torch.cuda.graph`, which empties PyTorch's cache each time.
        with cuda.stream(cuda.Stream()):
            # thread_local: what other threads of the process do with the device meanwhile is not our concern.
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._outputs = function(*self._inputs)
            finally:
                self._graph.capture_end()

    def play(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        for place, tensor in zip(self._inputs, inputs, strict=True):
            place.copy_(tensor)
        self._graph.replay()
        return self._outputs
