"""Calipers: the privacy of the DP-SGD run that was actually executed, from both sides.

>>> import calipers as cp
>>> run = cp.Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0)
>>> bracket = cp.measure(run).epsilon(delta=1e-5)
>>> 1.827 < bracket.lower <= bracket.upper < 1.830
True

Describe what was executed with `Run` (or read run files with `load_runs`), then ask:

    measure(run)                 epsilon, delta, tpr, gdp, advantage, ... of the run, each as a Bracket
    measure(Guarantee(epsilon=8, delta=1e-5))   the same of a guarantee that is stated, or of a mechanism
    calibrate(run, epsilon=...)  the run with the smallest noise whose upper jaw meets a target
    worst_dataset_size(run)      a dataset size at which division by floor(N q) leaks most
    certify(run, delta=...)      a certificate that anybody can check without Calipers; verify(path) checks one
    check(run, Budget(...))      whether a budget is proven, unproven or exceeded by an attack
    write_receipt(run, path)     what was executed, how it is known; verify_receipt measures it again
    audit(target, ...)           a lower bound found by running an implementation
    compare(run_a, run_b)        which of several runs is more private, and by what proof
    write_report(measurement, "report.html")   the same for people (.md: model cards, .json: programs)

A Bracket holds `lower` (an explicit attack gets this much) and `upper` (a proof that nobody gets
more), each with its evidence. What cannot be answered truthfully raises a `CalipersError`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from calipers._version import __version__

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult, audit
    from calipers.bracket import Bracket, Evidence, Kind, Side
    from calipers.calibrate import Calibration, calibrate
    from calipers.certificates import Certificate, certify, verify
    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.errors import (
        CalipersError,
        CertificationError,
        ConditionError,
        InputError,
        MissingExtraError,
        UnsupportedError,
    )
    from calipers.gate import Budget, check
    from calipers.measure import Measurement, measure, worst_dataset_size
    from calipers.receipts import verify_receipt, write_receipt
    from calipers.reports.comparison import Comparison, compare
    from calipers.reports.files import write_report
    from calipers.run import Run, load_runs
    from calipers.stated import Guarantee

__all__ = [
    "AuditResult",
    "Bracket",
    "Budget",
    "Calibration",
    "CalipersError",
    "Certificate",
    "CertificationError",
    "Comparison",
    "ConditionError",
    "Evidence",
    "Guarantee",
    "InputError",
    "Kind",
    "Measurement",
    "MissingExtraError",
    "Run",
    "Side",
    "TradeoffCurve",
    "UnsupportedError",
    "__version__",
    "audit",
    "calibrate",
    "certify",
    "check",
    "compare",
    "load_runs",
    "measure",
    "verify",
    "verify_receipt",
    "worst_dataset_size",
    "write_receipt",
    "write_report",
]

_ROOMS = {
    "calipers.auditing.audit": ("AuditResult", "audit"),
    "calipers.bracket": ("Bracket", "Evidence", "Kind", "Side"),
    "calipers.calibrate": ("Calibration", "calibrate"),
    "calipers.certificates": ("Certificate", "certify", "verify"),
    "calipers.curves.tradeoff": ("TradeoffCurve",),
    "calipers.errors": (
        "CalipersError",
        "CertificationError",
        "ConditionError",
        "InputError",
        "MissingExtraError",
        "UnsupportedError",
    ),
    "calipers.gate": ("Budget", "check"),
    "calipers.measure": ("Measurement", "measure", "worst_dataset_size"),
    "calipers.receipts": ("verify_receipt", "write_receipt"),
    "calipers.reports.comparison": ("Comparison", "compare"),
    "calipers.reports.files": ("write_report",),
    "calipers.run": ("Run", "load_runs"),
    "calipers.stated": ("Guarantee",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


class _Facade(ModuleType):
    """The package itself, with names that are looked up when they are first used.

    numpy and scipy take most of the import time, and a command line that only prints its help needs
    neither. Two rooms are called like the verb they hold; importing such a room must not hide the
    verb, so the facade keeps the verb and the room stays reachable by `from calipers.measure import ...`.
    """

    def __getattr__(self, name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'calipers' has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Facade
