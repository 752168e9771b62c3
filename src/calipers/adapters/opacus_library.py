"""Opacus and PyTorch, imported when they are needed."""

from __future__ import annotations

import hashlib
import inspect
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from calipers.errors import InputError, UnsupportedError
from calipers.extras import library


def opacus_module(name: str = "opacus") -> Any:
    """The module of Opacus called `name` (see `calipers.extras.library`)."""
    return library(
        name,
        f"This needs the library {name.partition('.')[0]}: pip install '.[opacus]' in the clone. To keep a PyTorch for "
        "GPUs out, install the one for CPUs first.",
        " Calipers reads Opacus 1.5 to 1.6; compare the releases that are installed.",
    )


def torch_module(name: str = "torch") -> Any:
    """The module of PyTorch called `name`, likewise."""
    return opacus_module(name)


def installed_opacus() -> str:
    """The name and version of the Opacus that is installed, for messages."""
    return f"Opacus {opacus_module().__version__}"


def check_device(device: str) -> None:
    """`InputError` unless PyTorch can put a tensor there."""
    torch = torch_module()
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"PyTorch cannot use device={device!r}: {str(error).splitlines()[0]}") from error


class PrivateLoop:
    """What `PrivacyEngine.make_private` makes of a model that does not move, and what its steps release.

    `like` names the settings: noise_multiplier, max_grad_norm, loss_reduction, grad_sample_mode and device. `loading`
    is how `dataset` is loaded. Before 1.5.3 ghost clipping has no place in `make_private`: an `UnsupportedError`.
    """

    def __init__(self, like: Any, model: Any, criterion: Any, dataset: Any, *, poisson: bool = True, **loading: Any):
        torch, mode = torch_module(), like.grad_sample_mode
        with quiet_engine():
            self.engine = opacus_module().PrivacyEngine(accountant="rdp")
        if mode == "ghost" and "criterion" not in inspect.signature(self.engine.make_private).parameters:
            raise UnsupportedError(
                f"{installed_opacus()} has no grad_sample_mode='ghost' in make_private (1.5.3 has); choose hooks."
            )
        extra: dict[str, Any] = {} if mode == "hooks" else {"grad_sample_mode": mode}
        extra |= {"criterion": criterion} if mode == "ghost" else {}
        self.sampling, self.noise = torch.Generator(), torch.Generator(device=like.device)
        model = model.to(like.device)
        with quiet_engine():
            self.model, self.optimizer, *ghost, self.loader = self.engine.make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
                data_loader=torch.utils.data.DataLoader(dataset, generator=self.sampling, **loading),
                noise_multiplier=like.noise_multiplier,
                max_grad_norm=like.max_grad_norm,
                loss_reduction=like.loss_reduction,
                poisson_sampling=poisson,
                noise_generator=self.noise,
                **extra,
            )
        self._criterion = ghost[0] if ghost else criterion

    def step(self, inputs: Any, targets: Any) -> Any:
        """Forward, backward and `DPOptimizer.step`: the gradient that the optimizer inside was given."""
        self.optimizer.zero_grad()
        self._criterion(self.model(inputs), targets).backward()
        self.optimizer.step()
        return self.released()

    def released(self) -> Any:
        """The gradient of the last step, as one vector."""
        return torch_module().cat([parameter.grad.reshape(-1) for parameter in self.optimizer.params])


def generator_digest(generator: Any, device: Any) -> str | None:
    """A short name for the state that the next random numbers come from; None where no state can be read.

    `generator` None is PyTorch's own for the device. Equal names mean equal random numbers.
    """
    torch = torch_module()
    if generator is not None:
        state = generator.get_state()
    elif device.type in ("cpu", "cuda"):
        state = torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)
    else:
        return None
    return hashlib.blake2b(state.cpu().numpy().tobytes(), digest_size=8).hexdigest()


@contextmanager
def quiet_engine() -> Iterator[None]:
    """Silence warnings that are no news in an audit.

    Opacus warns that its generator is not cryptographic (an audit must be repeatable) and logs that a first
    batch is empty (an audit of small datasets draws many), PyTorch that hooks fire although inputs need no
    gradients (Opacus reads parameters only).
    """
    logger = logging.getLogger("opacus.data_loader")
    silent, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Secure RNG turned off")
            warnings.filterwarnings("ignore", message="(Using a non-)?[Ff]ull backward hook")
            yield
    finally:
        logger.disabled = silent


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: in work this small, threads wait for each other longer than they compute."""
    torch = torch_module()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
