"""Probe your own training step: `probe.torch(model, optimizer, loader, loss)` and `probe.jax(step)`.

    from calipers.adapters import probe

    report = probe.torch(model, optimizer, loader, loss)
    print(report)                       # findings, the run to measure, what was not seen

Both look at one dataset size, so they cannot say what moves when a record joins. To have that looked at as well,
write a function of (dataset_size, batch_size) that returns a `TorchLoop` or a `JaxLoop`, and give it to
`calipers.probing.probe.probe` or, by its name, to `calipers probe module:function`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

import numpy as np

from calipers.adapters.jax_probe import JaxLoop
from calipers.adapters.torch_probe import TorchLoop
from calipers.probing.probe import HowToProbe, ProbeReport, probe


def torch(
    model: Any,
    optimizer: Any,
    loader: Any,
    loss: Callable[[Any, Any], Any],
    *,
    noise_multiplier: float | None = None,
    max_grad_norm: float | None = None,
    step: Callable[[Any, Any], object] | None = None,
    **how: Unpack[HowToProbe],
) -> ProbeReport:
    """Probe a training step of PyTorch; see `TorchLoop` for what is run and read.

    Run it before training, on the objects that will train: weights, generators and the accountant are left as they
    were.
    """
    loop = TorchLoop(
        model, optimizer, loader, loss, noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm, step=step
    )
    batch = max(1, round(loop.dataset_size / loop.steps_per_epoch))
    return _probed(loop, f"{type(model).__name__} and {type(optimizer).__name__}", loop.dataset_size, batch, how)


def jax(
    step: Callable[..., Any],
    *,
    noise_multiplier: float,
    max_grad_norm: float,
    params: Any = None,
    batches: Callable[[int, np.random.Generator], Iterable[Any]] | None = None,
    dataset_size: int = 1000,
    batch_size: int = 100,
    **how: Unpack[HowToProbe],
) -> ProbeReport:
    """Probe a training step of JAX, `step(loss, params, batch, key)`; see `JaxLoop`.

    Without `batches` only the step is looked at.
    """
    loop = JaxLoop(
        step,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        params=params,
        batches=batches,
        steps_per_epoch=max(1, dataset_size // batch_size),
    )
    return _probed(loop, getattr(step, "__name__", "step"), dataset_size, batch_size, how)


def _probed(loop: TorchLoop | JaxLoop, name: str, dataset_size: int, batch_size: int, how: HowToProbe) -> ProbeReport:
    sizes = {"dataset_size": dataset_size, "batch_size": batch_size, "dimension": loop.dimension}
    return probe(lambda _size, _batch: loop, **sizes, name=name, one_size=True, **how)
