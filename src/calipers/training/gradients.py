"""Lines 5 to 7 of Algorithm B: a gradient for every record, each clipped, then the sum.

    G = sum over i in the batch of g_i * min(1, C / ||g_i||),     g_i = gradient of the loss of record i.

**Per-record gradients** come from `torch.func.vmap(grad(loss))`: the model is differentiated as a
function of its parameters, for one record, and that function is mapped over the batch. There is no
rule for any kind of layer here, so whatever `vmap` can trace can be trained, and a rule cannot be wrong.

**Clipping holds for the numbers in memory.** A norm that comes out too small lets a record through that is too long.
PyTorch's `vector_norm` in single precision adds the squares one after the other on CPUs: over 2.4 million entries it
was seen to be 1e-4 too small, over 7.7 million 7e-4. Squares are therefore added in double precision: whatever the
order, the norm of n numbers is off by a relative n 2^-53 at most. The factor is made smaller by that and by 4
roundings of its own format, so that factor * ||g_i|| <= C is true of the stored numbers and not merely intended.

**A record whose gradient is not finite contributes nothing.** Zero is a vector of norm at most C like
any other; a NaN that spreads to the weights would tell the world that this record was there.

**Micro-batches** only bound memory: clipped gradients are added up piece by piece, and noise is
added once, to the whole sum, elsewhere. An empty batch has the sum 0. On CUDA, where every new size of a batch costs
time to plan, a piece is filled up to a multiple of 32 with copies of a record whose factor is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calipers.citations import add_statement, implements
from calipers.domains import COUNT, POSITIVE
from calipers.errors import InputError
from calipers.training.torch_library import tensor_cores, torch_module

__all__ = ["GradientSum", "batch_statistics", "cross_entropy"]

add_statement("ertan2026:def3.3", "Definition 3.3", "Gradient clipping: g times min(1, C/||g||) has norm at most C.")

_ROUNDINGS = 4
_FILL = 32


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """The mean cross-entropy of class scores; of one record, its own."""
    return torch_module("torch.nn.functional").cross_entropy(outputs, labels)


def batch_statistics(model: Any) -> list[str]:
    """The names of layers whose output for one record depends on the others in the batch."""
    normalization = torch_module("torch.nn.modules.batchnorm")._BatchNorm
    return [name for name, layer in model.named_modules() if isinstance(layer, normalization)]


class GradientSum:
    """The sum of the clipped gradients of a batch's records, as one flat vector.

    `max_grad_norm` None means no clipping: the sum is then one ordinary backward pass, and nothing bounds
    what one record adds to it. `loss(outputs, labels)` is called with one record at a time.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_grad_norm: float | None,
        loss: Callable[[Any, Any], Any] = cross_entropy,
        micro_batch: int = 256,
        tf32: bool = True,
    ) -> None:
        mixing = batch_statistics(model)
        if mixing:
            raise InputError(
                f"Batch normalization ({', '.join(mixing[:3])}) makes a record's gradient depend on the other records, "
                "so that clipping bounds nothing; use GroupNorm instead."
            )
        self._torch = torch_module()
        self._model, self._loss, self._tf32 = model, loss, tf32
        self.max_grad_norm = None if max_grad_norm is None else POSITIVE.check("max_grad_norm", max_grad_norm)
        self.micro_batch = COUNT.check_int("micro_batch", micro_batch)
        self._named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not self._named:
            raise InputError("The model has no parameter that requires a gradient; there is nothing to train.")
        self._frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
        self._frozen |= dict(model.named_buffers())
        self.dimension = sum(p.numel() for p in self._named.values())
        func = torch_module("torch.func")
        # "different": layers that draw random numbers draw them per record.
        self._each = func.vmap(func.grad(self._record_loss), in_dims=(None, 0, 0), randomness="different")
        self._call = func.functional_call

    @property
    def parameters(self) -> list[Any]:
        """The trained parameters, in the order of the flat vector."""
        return list(self._named.values())

    def _record_loss(self, parameters: dict[str, Any], record: Any, label: Any) -> Any:
        outputs = self._call(self._model, (parameters, self._frozen), (record.unsqueeze(0),))
        return self._loss(outputs, label.unsqueeze(0))

    @implements("ertan2026:def3.3")
    def __call__(self, records: Any, labels: Any) -> Any:
        """The sum over the records; every summand has norm at most `max_grad_norm`. 0 for no records."""
        first = self.parameters[0]
        total = self._torch.zeros(self.dimension, dtype=first.dtype, device=first.device)
        for start in range(0, len(labels), self.micro_batch):
            piece = slice(start, start + self.micro_batch)
            part = self._plain if self.max_grad_norm is None else self._clipped
            total += part(records[piece], labels[piece])
        return total

    def per_record(self, records: Any, labels: Any) -> list[Any]:
        """One gradient for every record, unclipped: a tensor (records, *shape) for each parameter."""
        current = {name: p.detach() for name, p in self._named.items()}
        with tensor_cores(self._tf32):
            return list(self._each(current, records, labels).values())

    def _clipped(self, records: Any, labels: Any) -> Any:
        torch = self._torch
        assert self.max_grad_norm is not None
        count = len(labels)
        missing = -count % _FILL if labels.device.type == "cuda" else 0
        if missing:
            records = torch.cat((records, records[:1].expand(missing, *records.shape[1:])))
            labels = torch.cat((labels, labels[:1].expand(missing, *labels.shape[1:])))
        flat = [gradient.flatten(1) for gradient in self.per_record(records, labels)]
        norms = torch.stack([torch.linalg.vector_norm(g, dim=1, dtype=torch.float64) for g in flat]).norm(dim=0)
        margin = 1.0 - _ROUNDINGS * torch.finfo(flat[0].dtype).eps - self.dimension * 2.0**-53
        factors = (self.max_grad_norm * margin / norms).clamp(max=1.0).to(flat[0].dtype)
        broken = ~torch.isfinite(norms)
        if bool(broken.any()):
            factors = factors.masked_fill(broken, 0.0)
            flat = [g.masked_fill(broken[:, None], 0.0) for g in flat]
        factors[count:] = 0.0
        with tensor_cores(False):
            return torch.cat([factors @ g for g in flat])

    def _plain(self, records: Any, labels: Any) -> Any:
        torch = self._torch
        with tensor_cores(self._tf32):
            loss = self._loss(self._model(records), labels) * len(labels)
            gradients = torch.autograd.grad(loss, self.parameters)
        return torch.cat([g.reshape(-1) for g in gradients])
