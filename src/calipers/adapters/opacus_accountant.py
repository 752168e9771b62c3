"""Calipers as an accountant of Opacus, under the name "calipers".

    from calipers.adapters.opacus_accountant import register
    register()
    engine = PrivacyEngine(accountant="calipers")  # before Opacus 1.6: engine.accountant = accountant_class()()
    ...
    engine.get_epsilon(delta=1e-5)                 # the upper bound
    engine.accountant.bracket(delta=1e-5)          # both

Opacus tells an accountant a noise multiplier and a sample rate for each step, and nothing else: neither how batches
are drawn, nor to what norm gradients are clipped, nor what the noisy sum is divided by. From that alone no answer is
honest. So this accountant meets the optimizer and the loader when `make_private` asks it for its hook, and watches
them as `calipers.adapters.opacus.attach` does: `get_epsilon` is the upper bound of that record, infinite where nothing
is proven. What `attach` refuses is a warning from `make_private`, and `get_epsilon` raises with the reason;
`describe(optimizer, loader, ...)`, before training, is the place to say what was missing.

A history that was written by hand, with no training behind it, is a question: Poisson sampling of the undivided sum.
That is how Opacus searches for a noise multiplier. Checkpoints of the engine carry the record with them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from calipers.adapters.opacus import attached
from calipers.adapters.opacus_attachment import Attachment
from calipers.adapters.opacus_library import installed_opacus, opacus_module
from calipers.adapters.watched_run import NeighborReading
from calipers.adaptive import PrivacyFilter
from calipers.bracket import Bracket
from calipers.errors import CalipersError, CalipersWarning, UnsupportedError
from calipers.extras import on_demand
from calipers.measure import measure
from calipers.run import Run

NAME = "calipers"
UNDECLARED = (
    "noise, sample rates and the number of steps were fixed in advance; learning rates and weight decay too, or they "
    "follow from what was released alone, not from batches, their sizes or losses on training records. Where training "
    "may stop early, say accountant.describe(optimizer, data_loader, planned_steps=...) before it; where noise is "
    "chosen on the way, privacy_filter=..."
)


def register() -> None:
    """Make `PrivacyEngine(accountant="calipers")` known to Opacus; registering twice is no error.

    Releases before 1.6 know their own accountants alone; there an engine is handed one: `UnsupportedError` says how.
    """
    try:
        registry = opacus_module("opacus.accountants.registry")
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{installed_opacus()} has no registry of accountants (1.6 has). Make the engine with one of its own and "
            "replace it before make_private: engine.accountant = accountant_class()()."
        ) from error
    registry.register_accountant(NAME, accountant_class(), force=True)


class _Watching:
    """Both bounds of the steps that were taken; stands before Opacus's own base, which is known at run time only."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self._record: Attachment | None = None
        self._refusal = ""
        self._saved: Mapping[str, Any] | None = None
        self._warned = False

    @property
    def licensed_by(self) -> str:
        """The condition under which `get_epsilon` holds."""
        return UNDECLARED if self._record is None else self._record.licensed_by

    def describe(
        self,
        optimizer: Any,
        data_loader: Any,
        *,
        batch_size: int | None = None,
        engine: Any = None,
        planned_steps: int | None = None,
        privacy_filter: PrivacyFilter | None = None,
        **reading: Any,
    ) -> None:
        """Watch this optimizer and loader, before training; `reading` says adjacency, public_rate, as `attach`.

        Left out, the adjacency is add-remove: `get_epsilon` returns a bare number, which cannot say that it is another.
        `planned_steps` and `privacy_filter`, as for `attach`, license a number after the fact.
        """
        reading.setdefault("adjacency", "add-remove")
        if self.history and self._record is None and self._saved is None:
            raise UnsupportedError("describe() comes too late: steps were already taken. Call it before training.")
        self._record = attached(
            self, optimizer, data_loader, reading=NeighborReading(**reading), batch_size=batch_size, engine=engine,
            state=self._saved, planned_steps=planned_steps, privacy_filter=privacy_filter,
        )  # fmt: skip
        self._refusal, self._saved = "", None

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """One more step; equal steps in a row are counted together."""
        last = self.history[-1] if self.history else None
        if last is not None and tuple(last[:2]) == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Opacus's own hook. `make_private`, which asks for it, has the optimizer and the loader at hand."""
        asking = sys._getframe(1).f_locals
        try:
            if "optimizer" not in asking or "data_loader" not in asking:
                raise UnsupportedError("How batches are drawn is not known.")
            self.describe(asking["optimizer"], asking["data_loader"], engine=asking.get("self"))
        except CalipersError as error:
            self._refusal = (
                f"{error} Then call engine.accountant.describe(optimizer, data_loader, ...) before training."
            )
            warnings.warn(f"No epsilon will be given. {self._refusal}", CalipersWarning, stacklevel=3)
        inherited: Any = super()
        hook: Callable[[Any], None] = inherited.get_optimizer_hook_fn(sample_rate)
        return hook

    def bracket(self, delta: float, *, tolerance: float = 1e-3, **reading: Any) -> Bracket:
        """epsilon(delta): lower <= truth <= upper.

        `reading` is passed on to `Attachment.runs` (adjacency, public_rate) where training was watched.
        """
        if self._record is not None:
            return self._record.epsilon(delta, tolerance=tolerance, **reading)
        if self._refusal:
            raise UnsupportedError(self._refusal)
        phases = [Run(noise_multiplier=noise, sample_rate=rate, steps=steps) for noise, rate, steps in self.history]
        return measure(phases, tolerance=tolerance).epsilon(delta)

    def get_epsilon(self, delta: float, **kwargs: Any) -> float:
        """The upper bound at delta: the steps are (this, delta)-differentially private. 0 before the first step.

        A bare number cannot say under which condition it holds; where nobody declared one, a warning does, once.
        """
        taken = self._record.steps if self._record is not None else 0
        if self._record is not None and taken and not self._record.declared and not self._warned:
            self._warned = True
            warnings.warn(f"The epsilon holds under a condition: {UNDECLARED}", CalipersWarning, stacklevel=3)
        return self.bracket(delta, **kwargs).upper if self.history or taken else 0.0

    def state_dict(self, destination: Any = None) -> Any:
        """Opacus's own state, and the record's."""
        inherited: Any = super()
        state = inherited.state_dict(destination)
        if self._record is not None:
            state["calipers"] = self._record.state_dict()
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Opacus's own state, and the record's where a checkpoint holds one."""
        inherited: Any = super()
        inherited.load_state_dict(state_dict)
        saved = state_dict.get("calipers")
        if saved is not None and self._record is not None:
            self._record.load_state_dict(saved)
        else:
            self._saved = saved

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name Opacus knows it by."""
        return NAME


# Checkpoints of Opacus before 1.6 hold a method of the class, which is pickled by its name in this module.
__getattr__ = on_demand(
    __name__, "CalipersAccountant", _Watching, lambda: opacus_module("opacus.accountants").IAccountant
)


def accountant_class() -> type[Any]:
    """The accountant, as a class that derives from Opacus's own base."""
    found: type[Any] = __getattr__("CalipersAccountant")
    return found
