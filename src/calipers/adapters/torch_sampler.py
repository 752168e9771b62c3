"""Batches of `calipers.samplers` for PyTorch's `DataLoader`: drawn by the distribution that is accounted.

In a script that trains with Opacus, two lines change the sampler to one whose distribution is known::

    batches = TorchBatches(Poisson(dataset_size=len(dataset), batch_size=256, steps=14_040))
    loader = DataLoader(dataset, batch_sampler=batches, collate_fn=CollateWithEmpty(dataset))

Hand the loader to `PrivacyEngine.make_private(..., poisson_sampling=False)`, so that Opacus keeps it. Its accountant
knows nothing of the sampler; `calipers.adapters.opacus.attach(optimizer, loader)` does.

Opacus also divides by a number that it computes from the size of the dataset, which is not free; with
loss_reduction="sum", and a criterion that sums too, it divides by nothing (normalization="none"), and the learning rate
can do it. The same two lines serve any loop over a map-style dataset.

**Epochs.** Iterating the loader once takes the next epoch of the stream; iterating it after the last epoch raises,
because the distribution speaks of so many epochs and no more. A Poisson epoch is floor(1/q) steps unless
`steps_per_epoch` says otherwise; its last one may be shorter.

**Workers.** Indices are drawn in the main process and sent to the workers, so the batches do not depend on their
number. A loader with workers draws ahead of the training loop: tell `state_dict` how many batches the loop has taken.

**Empty batches** happen under Poisson sampling, and skipping them is another mechanism. `CollateWithEmpty` turns them
into tensors with no rows, which layers accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calipers.domains import COUNT, Domain
from calipers.errors import InputError
from calipers.extras import library
from calipers.samplers import Poisson, Sampler
from calipers.samplers.stream import BatchStream


class TorchBatches:
    """A batch sampler for `DataLoader(dataset, batch_sampler=...)`: lists of indices, an epoch at a time.

    `seed` None starts from the operating system's entropy. Needs no PyTorch itself.
    """

    def __init__(self, sampler: Sampler, *, seed: int | None = None, steps_per_epoch: int | None = None) -> None:
        self._stream = BatchStream.seeded(sampler, seed)
        self._beginning = self._stream.state()
        if not isinstance(sampler, Poisson):
            if steps_per_epoch is not None:
                raise InputError(f"{type(sampler).__name__} has epochs of its own; leave steps_per_epoch out.")
            self._per_epoch = self._stream.rounds
        elif steps_per_epoch is None:
            self._per_epoch = min(max(1, int(1 / sampler.rate * (1 + 1e-9))), sampler.steps)
        else:
            self._per_epoch = COUNT.check_int("steps_per_epoch", steps_per_epoch)

    @property
    def sampler(self) -> Sampler:
        """The sampler whose distribution the batches have."""
        return self._stream.sampler

    @property
    def position(self) -> int:
        """Batches drawn so far; with workers, more than the training loop has seen."""
        return self._stream.position

    def __len__(self) -> int:
        return self._per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        stream = self._stream
        if stream.position == stream.steps:
            raise InputError(
                f"All {stream.steps} batches of {stream.sampler!r} are taken; make a sampler with more epochs, and "
                "account for them."
            )
        left = min(self._per_epoch - stream.position % self._per_epoch, stream.steps - stream.position)
        return (next(stream).tolist() for _ in range(left))

    def state_dict(self, taken: int | None = None) -> dict[str, Any]:
        """The place in the stream, for `load_state_dict`. Secret: it foretells all batches to come.

        `taken` is the number of batches the training loop has used, over all epochs; it is needed when the loader has
        workers, which draw ahead. Without it, all batches drawn count as used.
        """
        if taken is None:
            return self._stream.state()
        began = self._beginning["position"]
        Domain(began, self._stream.position, integer=True).check_int("taken", taken)
        earlier = BatchStream.resumed(self.sampler, self._beginning)
        while earlier.position < taken:
            next(earlier)
        return earlier.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a place; the batches are those that the interrupted loop would have seen next."""
        self._stream = BatchStream.resumed(self.sampler, state)
        # From here on this place is as far back as `taken` can go.
        self._beginning = self._stream.state()


_NO_TORCH = "Collating into tensors needs PyTorch: pip install '.[torch]' in the clone."


class CollateWithEmpty:
    """A `collate_fn` that also accepts a batch without records, shaped like the dataset's first record.

    `collate` is the one for batches with records; PyTorch's `default_collate` if left out.
    """

    def __init__(self, dataset: Any, collate: Callable[[Sequence[Any]], Any] | None = None) -> None:
        self._dataset = dataset
        self._collate = collate or library("torch.utils.data", _NO_TORCH).default_collate

    def __call__(self, records: Sequence[Any]) -> Any:
        """The records as a batch."""
        return self._collate(records) if len(records) else _without_rows(self._collate([self._dataset[0]]))


def _without_rows(batch: Any) -> Any:
    """The same structure with every tensor cut to no rows."""
    if isinstance(batch, Mapping):
        return {key: _without_rows(part) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_without_rows(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch[:0]
