"""Calipers as an accountant of Opacus, under the name "calipers".

    from calipers.adapters.opacus_accountant import register
    register()
    engine = PrivacyEngine(accountant="calipers")
    ...
    engine.get_epsilon(delta=1e-5)                 # the upper jaw
    engine.accountant.bracket(delta=1e-5)          # both

An accountant is told a noise multiplier and a sample rate for each step, and nothing else: neither what the
noisy sum is divided by nor how batches were really drawn. From that alone the answer is the one for Poisson
sampling of the undivided sum, as with Opacus's own accountants. But the hook through which it is told is
handed the optimizer, and there the divisor can be seen. So, once it has seen an optimizer that divides by a
number computed from the data, this accountant refuses to answer for the undivided sum, and names the remedies:
`loss_reduction="sum"`, or `describe(optimizer, loader)`, after which the run itself is measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from calipers.adapters.opacus import Attachment, attach
from calipers.adapters.opacus_library import opacus_module
from calipers.bracket import Bracket
from calipers.errors import UnsupportedError
from calipers.measure import measure
from calipers.run import Run

__all__ = ["NAME", "accountant_class", "register"]

NAME = "calipers"


def register() -> None:
    """Make `PrivacyEngine(accountant="calipers")` known to Opacus; registering twice is no error."""
    opacus_module("opacus.accountants.registry").register_accountant(NAME, accountant_class(), force=True)


@functools.lru_cache(maxsize=1)
def accountant_class() -> type[Any]:
    """The accountant, as a class that derives from Opacus's own base."""
    base: Any = opacus_module("opacus.accountants").IAccountant

    class CalipersAccountant(base):
        """Both jaws of the steps that were taken; see the module."""

        def __init__(self) -> None:
            self.history: list[tuple[float, float, int]] = []
            self._divides = False
            self._record: Attachment | None = None

        def describe(self, optimizer: Any, data_loader: Any, *, batch_size: int | None = None) -> None:
            """Measure from now on the run of this optimizer and loader; call it before the first step."""
            if self.history:
                raise UnsupportedError("describe() comes too late: steps were already taken. Call it before training.")
            self._record = attach(optimizer, data_loader, batch_size=batch_size)

        def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
            """One more step; equal steps in a row are counted together."""
            last = self.history[-1] if self.history else None
            if last is not None and last[:2] == (noise_multiplier, sample_rate):
                self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
            else:
                self.history.append((noise_multiplier, sample_rate, 1))

        def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
            """Opacus's own hook, with a look at the divisor."""
            told = super().get_optimizer_hook_fn(sample_rate)

            def hook(optimizer: Any) -> None:
                self._divides = self._divides or optimizer.loss_reduction == "mean"
                told(optimizer)

            return hook

        def bracket(self, delta: float, *, tolerance: float = 1e-3, **reading: Any) -> Bracket:
            """epsilon(delta): lower <= truth <= upper.

            `reading` is passed on to `Attachment.runs` (adjacency, public_rate) once the run is described.
            """
            if self._record is not None:
                return self._record.measure(tolerance=tolerance, **reading).epsilon(delta)
            if self._divides:
                raise UnsupportedError(
                    "Opacus divided the noisy sum by a number that it computed from the dataset (loss_reduction="
                    "'mean'), and the guarantee of the undivided sum does not hold for that. Train with "
                    "loss_reduction='sum', or call engine.accountant.describe(optimizer, data_loader, batch_size=...) "
                    "before training."
                )
            phases = [Run(noise_multiplier=noise, sample_rate=rate, steps=steps) for noise, rate, steps in self.history]
            return measure(phases, tolerance=tolerance).epsilon(delta)

        def get_epsilon(self, delta: float, **kwargs: Any) -> float:
            """The upper jaw at delta: the steps are (this, delta)-differentially private. 0 before the first step."""
            return self.bracket(delta, **kwargs).upper if self.history else 0.0

        def __len__(self) -> int:
            return sum(steps for _, _, steps in self.history)

        @classmethod
        def mechanism(cls) -> str:
            """The name Opacus knows it by."""
            return NAME

    return CalipersAccountant
