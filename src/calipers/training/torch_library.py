"""PyTorch, imported when it is needed, and the devices it offers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from calipers.domains import choice
from calipers.errors import InputError
from calipers.extras import library

PRECISIONS = ("full", "bf16")


def torch_module(name: str = "torch") -> Any:
    """The module of PyTorch called `name`, or `MissingExtraError` with the line to type."""
    return library(
        name,
        "Training needs PyTorch (2.4 or newer): pip install '.[torch]' in the clone. To keep a PyTorch for GPUs out, "
        "install the one for CPUs first.",
    )


def chosen_device(name: str = "auto") -> Any:
    """The device called `name`; "auto" is CUDA where there is one, else the CPU."""
    torch = torch_module()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"Expected device to be 'auto', 'cpu' or 'cuda', got device={name!r}.") from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"Expected device to be 'auto', 'cpu' or 'cuda', got device={name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={name!r}, but this PyTorch sees no CUDA device; use device='cpu'.")
    return device


@cache
def kernels(module: str) -> Any:
    """A module of this package that imports Triton at once, or None where Triton is not installed."""
    try:
        return import_module(f"calipers.training.{module}")
    except ImportError:
        return None


@contextmanager
def random_layers(seed: int, device: Any) -> Iterator[None]:
    """Let what draws from PyTorch's own generators (dropout, augmentation) draw by this seed; they are put back after.

    Only the generators of the CPU and of the device are touched.
    """
    torch, cuda = torch_module(), device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def as_used(model: Any) -> Iterator[None]:
    """The model as it is used and not trained: layers in eval mode, no gradients; every layer is put back after."""
    training = [layer for layer in model.modules() if layer.training]
    model.eval()
    try:
        with torch_module().no_grad():
            yield
    finally:
        for layer in training:
            layer.training = True


def low_precision(precision: str, device: Any) -> Any:
    """Within, "bf16" lets PyTorch compute products from factors and results of 8 bits; weights and sums keep theirs.

    A record's gradient becomes a rougher function of the record, and is clipped afterwards as any other.
    """
    torch = torch_module()
    choice("precision", precision, PRECISIONS)
    # No cache: it would keep weights that were cast inside a transformation of functions.
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


@contextmanager
def tensor_cores(allowed: bool) -> Iterator[None]:
    """Let CUDA round the factors of products to 10 bits of mantissa (TF32), or forbid it; a CPU rounds none.

    A record's gradient may be computed roughly: it is clipped afterwards, and any function of the record
    will do. The clipped sum may not: rounding it would undo the clipping.
    """
    settings = _precision_settings(torch_module(), allowed)
    before = [getattr(place, name) for place, name, _ in settings]
    for place, name, value in settings:
        setattr(place, name, value)
    try:
        yield
    finally:
        for (place, name, _), value in zip(settings, before, strict=True):
            setattr(place, name, value)


@cache
def refuse_rounding(device: Any) -> None:
    """Refuse a device that rounds the factors of products although it is asked not to.

    Variables of the environment do that (NVIDIA_TF32_OVERRIDE, DNNL_DEFAULT_FPMATH_MODE), whatever a program sets; the
    clipped sum is a product, and a summand could be longer than the clipping norm.
    """
    torch, size, fine = torch_module(), 256, 1.0 + 2.0**-12
    with tensor_cores(False):
        found = torch.full((size, size), fine, device=device) @ torch.eye(size, device=device)
    if found.is_meta:  # a device without numbers, on which shapes and memory are tried
        return
    if not bool((found == fine).all()):
        raise InputError(
            f"PyTorch rounds the factors of products on {device} although it is asked not to, so that clipping does "
            "not hold; unset NVIDIA_TF32_OVERRIDE and DNNL_DEFAULT_FPMATH_MODE."
        )


def _precision_settings(torch: Any, allowed: bool) -> list[tuple[Any, str, object]]:
    """Where PyTorch keeps the choice: since 2.9 by kind of operation, before that as two flags.

    `torch.set_float32_matmul_precision("medium")` lets CPUs that can compute products from 8 bits, also the clipped
    sum; nothing in the proof of the norms knows of that.
    """
    products, convolutions, cpu = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mkldnn
    if not (hasattr(products, "fp32_precision") and hasattr(convolutions, "conv")):
        if not torch.cuda.is_available():
            return []
        return [(products, "allow_tf32", allowed), (convolutions, "allow_tf32", allowed)]
    word = "tf32" if allowed else "ieee"
    places = [(cpu.matmul, "ieee"), (cpu.conv, "ieee")]
    if torch.cuda.is_available():
        places += [(products, word), (convolutions.conv, word)]
    return [(place, "fp32_precision", value) for place, value in places]
