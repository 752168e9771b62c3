"""One training by several processes (`torchrun`): each sums a share of every batch, the noise is added once.

    from calipers.training import joined_ranks, train

    with joined_ranks(timeout=300):
        trained = train(plan, model, records, labels, checkpoint="run.checkpoint")

**What is released is what one process releases.** Every record of the batch is in exactly one share and its summand has
norm at most C whichever process computes it, so the shares add up to the clipped sum of the whole batch; rank 0 adds
C sigma z to its share and no other rank adds anything, so the reduction yields that sum plus one Gaussian vector. All
ranks divide this one vector by the divisor of the whole batch and take the same step: only the order in which numbers
are added differs from one process.

**The sampler draws once.** All ranks go on from rank 0's generators, noise key, weights and optimizer, at the beginning
as after a checkpoint (which rank 0 alone reads and writes, so that it may lie on a disk of its own), and so draw the
same batch. Of n records, rank r of R takes those from r n / R to (r + 1) n / R. Layers that draw random numbers get
a seed for each rank: with dropout the weights depend on the number of ranks, the accounting does not.

**Ranks that are not one training are refused.** At the start plan, model, data, loss, preparation and the versions of
the libraries are compared. Before anything leaves the processes, through a checkpoint or at the end, so are the
weights and the place of the sampler: had two ranks drawn different batches, a record could have counted twice.

**If one rank refuses, all refuse; if one dies, all end** with a `RankError`: at once if the connection breaks, else
when the group's timeout is over (with NCCL, PyTorch's watchdog may end the process first). Steps since the last
checkpoint have been seen by nobody. Start again, with any number of ranks. Every rank holds all records.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np

from calipers.domains import POSITIVE
from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.numerics.types import IntArray
from calipers.training.torch_library import chosen_device, torch_module


class RankError(CalipersError, RuntimeError):
    """Another process of the training has ended, or did not answer in time."""


class Ranks:
    """This process among those of the training: `rank` of `size`. Every method is called by all of them."""

    def __init__(self, rank: int, size: int, *, joined: bool = True) -> None:
        self.rank, self.size, self._joined = rank, size, joined

    @classmethod
    def alone(cls) -> Ranks:
        """One process, whatever others do next to it."""
        return cls(0, 1, joined=False)

    @classmethod
    def found(cls) -> Ranks:
        """All processes of PyTorch's group; this one if there is no group, but not if `torchrun` started several."""
        group = torch_module("torch.distributed")
        if group.is_available() and group.is_initialized():
            return cls(group.get_rank(), group.get_world_size())
        started = os.environ.get("WORLD_SIZE", "1")
        if "TORCHELASTIC_RUN_ID" in os.environ and started != "1":
            raise InputError(
                f"torchrun started {started} processes, and each would train a model of its own; train within "
                "calipers.training.joined_ranks(), or give ranks=Ranks.alone() if that is meant."
            )
        return cls.alone()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which adds the noise and keeps the checkpoint."""
        return self.rank == 0

    def share(self, batch: IntArray) -> IntArray:
        """This rank's records of the batch; the shares of all ranks, one after the other, are the batch."""
        return batch[len(batch) * self.rank // self.size : len(batch) * (self.rank + 1) // self.size]

    def add_up(self, vector: Any) -> Any:
        """The sum of all ranks' vectors, in the place of this rank's."""
        if self._joined:
            with self._answering():
                torch_module("torch.distributed").all_reduce(vector)
        return vector

    def gathered(self, thing: Any) -> list[Any]:
        """What every rank gave, in the order of the ranks."""
        things: list[Any] = [thing] * self.size
        if self._joined:
            with self._answering():
                torch_module("torch.distributed").all_gather_object(things, thing)
        return things

    def from_first(self, contents: dict[str, Any] | None, device: Any) -> dict[str, Any] | None:
        """Rank 0's `contents`, with tensors on this rank's device."""
        if not self._joined:
            return contents
        torch, packed = torch_module(), io.BytesIO()
        if self.leads:
            torch.save(contents, packed)
        sent = [packed.getvalue()]
        with self._answering():
            torch_module("torch.distributed").broadcast_object_list(sent, src=0)
        if self.leads:
            return contents
        received: dict[str, Any] | None = torch.load(io.BytesIO(sent[0]), map_location=device, weights_only=True)
        return received

    @contextmanager
    def together(self) -> Iterator[None]:
        """What one rank refuses within, all refuse after; otherwise the others would wait for it in vain."""
        refusal: CalipersError | None = None
        try:
            yield
        except CalipersError as error:
            refusal = error
        said = self.gathered(None if refusal is None else str(refusal))
        if refusal is not None:
            raise refusal
        for rank, text in enumerate(said):
            if text is not None:
                raise InputError(f"Rank {rank} of {self.size} refused: {text}")

    def agree(self, facts: Mapping[str, object]) -> None:
        """Refuse, on all ranks, facts that are not the same on all of them."""
        first, *others = self.gathered({key: str(value) for key, value in facts.items()})
        for rank, found in enumerate(others, start=1):
            differing = [key for key in sorted({*first, *found}) if first.get(key) != found.get(key)]
            if differing:
                what = [
                    f"{key} is {first.get(key)} on rank 0, {found.get(key)} on rank {rank}" for key in differing[:3]
                ]
                raise InputError(
                    f"The ranks are not one training: {'; '.join(what)}. Start again with the same on all ranks."
                )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn what PyTorch says when a rank is gone into a sentence."""
        try:
            yield
        except RuntimeError as error:
            raise RankError(
                f"Another process of this training has ended or did not answer (rank {self.rank} of {self.size} "
                f"heard: {str(error).splitlines()[0]}). Start all again; a training goes on from its checkpoint."
            ) from error


@contextmanager
def joined_ranks(*, device: str = "auto", timeout: float = 600.0) -> Iterator[Ranks]:
    """Join the processes that `torchrun` started, each with a GPU of its own or all on CPUs; one without `torchrun`.

    `timeout`: seconds after which a rank that does not answer counts as gone.
    """
    POSITIVE.check("timeout", timeout)
    torch, group = torch_module(), torch_module("torch.distributed")
    if "RANK" not in os.environ or group.is_initialized():
        yield Ranks.found()
        return
    cuda = chosen_device(device).type == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    with ranks._answering():
        group.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout))
    try:
        yield ranks
    finally:
        group.destroy_process_group()


def refuse_wrapped(model: Any) -> None:
    """Refuse models that add gradients up themselves, that are compiled, or of which this process holds a part only."""
    if isinstance(model, torch_module("torch.nn.parallel").DistributedDataParallel):
        raise InputError("DistributedDataParallel adds up gradients that nobody has clipped; give the model within it.")
    if any(hasattr(layer, "_orig_mod") for layer in model.modules()):
        raise InputError(
            "torch.compile makes one program of whole batches, and clipping needs the gradient of every record; give "
            "the model that was compiled (model._orig_mod). On a GPU its steps are recorded and replayed anyway."
        )
    if any(hasattr(parameter, "full_tensor") for parameter in model.parameters()):
        raise UnsupportedError("Sharded models (FSDP) cannot be trained; give every rank the whole model.")


def versions() -> dict[str, str]:
    """What the numbers drawn and computed on a rank depend on besides the plan."""
    return {"python": platform.python_version(), "numpy": np.__version__, "torch": str(torch_module().__version__)}


def weights_digest(model: Any) -> str:
    """A fingerprint of all weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch_module().uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
