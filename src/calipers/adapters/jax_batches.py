"""Batches of `calipers.samplers` in fixed shapes, with masks: what a compiled training step needs.

Compiled code wants one shape; Poisson and balls-and-bins batches have random sizes. They are padded *after* they are
drawn, so the distribution of the records is untouched, and the padding is marked so that its gradients can be zeroed.
Nothing is ever cut off: dropping records from a batch that is too large would be another sampler. A batch that does not
fit gets two, three, ... times the shape, which compiles once more.

The default shape is exceeded with probability at most 2^-40. By Bernstein's inequality a sum of independent indicators
with variance v exceeds its mean by t with probability at most exp(-t^2 / (2 v + 2 t/3)), which is e^-L at
t = L/3 + sqrt(L^2/9 + 2 L v).

In a script that trains with JAX-Privacy, two lines change the sampler (padding is -1, as in its `batch_selection`)::

    for batch in PaddedBatches(Poisson(dataset_size=60_000, batch_size=256, steps=14_040)):
        gradient = clipped_gradient(params, images[batch.indices], labels[batch.indices],
                                    is_padding_example=batch.is_padding)

where `clipped_gradient` is what `jax_privacy.clipped_grad` returned. Index -1 reads the last record, whose gradient the
mask then discards. The arrays are numpy's; JAX takes them as they are, and JAX need not be installed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.samplers import Sampler
from calipers.samplers.stream import BatchStream

PADDING = -1
# JAX computes with 32-bit integers unless given otherwise.
_LARGEST = 2**31 - 1
_EXPONENT = 40 * math.log(2)


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """Indices of records, filled up with -1, and which of them are filling."""

    indices: NDArray[np.int32]
    is_padding: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """How many records were drawn."""
        return int(np.count_nonzero(~self.is_padding))


def padded_size(sampler: Sampler) -> int:
    """A shape that a batch exceeds with probability at most 2^-40; the batch size itself if it is fixed."""
    law = sampler.law()
    if law.fixed_batch_size:
        assert sampler.batch_size is not None  # only a last batch that is kept is smaller
        return int(sampler.batch_size)
    variance = law.mean_batch_size * (1 - law.mean_batch_size / law.dataset_size)
    third = _EXPONENT / 3
    excess = third + math.sqrt(third**2 + 2 * _EXPONENT * variance)
    return min(law.dataset_size, math.ceil(law.mean_batch_size + excess))


class PaddedBatches:
    """The batches of a sampler, each padded to a multiple of `shape`; an iterator over the whole run.

    `seed` None starts from the operating system's entropy.
    """

    def __init__(self, sampler: Sampler, *, seed: int | None = None, shape: int | None = None) -> None:
        if sampler.dataset_size > _LARGEST:
            raise InputError(f"Expected at most {_LARGEST} records, which 32-bit indices can name.")
        self.shape = padded_size(sampler) if shape is None else COUNT.check_int("shape", shape)
        self._stream = BatchStream.seeded(sampler, seed)

    def __iter__(self) -> Iterator[PaddedBatch]:
        return self

    def __next__(self) -> PaddedBatch:
        drawn = next(self._stream)
        # An empty batch is padded to the full shape: the step is taken and noise is added.
        length = self.shape * max(1, -(-drawn.size // self.shape))
        indices = np.full(length, PADDING, dtype=np.int32)
        indices[: drawn.size] = drawn
        return PaddedBatch(indices, indices == PADDING)

    def __len__(self) -> int:
        return self._stream.steps - self._stream.position

    def state_dict(self) -> dict[str, Any]:
        """The place in the stream, for `load_state_dict`. Secret: it foretells all batches to come."""
        return self._stream.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a place."""
        self._stream = BatchStream.resumed(self._stream.sampler, state)
