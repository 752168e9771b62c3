"""Calipers: the privacy of the DP-SGD run that was actually executed, from both sides.

>>> import calipers as cp
>>> run = cp.Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0)
>>> bracket = cp.measure(run).epsilon(delta=1e-5)
>>> 1.827 < bracket.lower <= bracket.upper < 1.830
True

Describe what was executed with `Run` (or read run files with `load_runs`), then ask:

    measure(run)                 epsilon, delta, tpr, gdp, advantage, ... of the run, each as a Bracket
    measure(Guarantee(epsilon=8, delta=1e-5))   the same of a guarantee that is stated, or of a mechanism
    AdaptiveRun(menu, costs, budget)   steps chosen while training; PrivacyFilter(menu, epsilon, delta) allows them
    calibrate(run, epsilon=...)  the run with the smallest noise whose upper bound meets a target
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
    from calipers.adaptive import AdaptiveRun as AdaptiveRun
    from calipers.adaptive import Odometer as Odometer
    from calipers.adaptive import PrivacyFilter as PrivacyFilter
    from calipers.auditing.audit import AuditResult as AuditResult
    from calipers.auditing.audit import audit as audit
    from calipers.bracket import Bracket as Bracket
    from calipers.bracket import Evidence as Evidence
    from calipers.bracket import Kind as Kind
    from calipers.bracket import Side as Side
    from calipers.calibrate import Calibration as Calibration
    from calipers.calibrate import calibrate as calibrate
    from calipers.certificates import Certificate as Certificate
    from calipers.certificates import certify as certify
    from calipers.certificates import verify as verify
    from calipers.curves.tradeoff import TradeoffCurve as TradeoffCurve
    from calipers.errors import CalipersError as CalipersError
    from calipers.errors import CertificationError as CertificationError
    from calipers.errors import ConditionError as ConditionError
    from calipers.errors import InputError as InputError
    from calipers.errors import MissingExtraError as MissingExtraError
    from calipers.errors import UnsupportedError as UnsupportedError
    from calipers.gate import Budget as Budget
    from calipers.gate import check as check
    from calipers.guarantee import Guarantee as Guarantee
    from calipers.measure import Measurement as Measurement
    from calipers.measure import measure as measure
    from calipers.phases import load_runs as load_runs
    from calipers.receipts import verify_receipt as verify_receipt
    from calipers.receipts import write_receipt as write_receipt
    from calipers.reports.comparison import Comparison as Comparison
    from calipers.reports.comparison import compare as compare
    from calipers.reports.files import write_report as write_report
    from calipers.run import Run as Run

_ROOMS = {
    "adaptive": "AdaptiveRun Odometer PrivacyFilter",
    "auditing.audit": "AuditResult audit",
    "bracket": "Bracket Evidence Kind Side",
    "calibrate": "Calibration calibrate",
    "certificates": "Certificate certify verify",
    "curves.tradeoff": "TradeoffCurve",
    "errors": "CalipersError CertificationError ConditionError InputError MissingExtraError UnsupportedError",
    "gate": "Budget check",
    "measure": "Measurement measure",
    "receipts": "verify_receipt write_receipt",
    "reports.comparison": "Comparison compare",
    "reports.files": "write_report",
    "phases": "load_runs",
    "run": "Run",
    "guarantee": "Guarantee",
}
_HOME = {name: f"calipers.{room}" for room, names in _ROOMS.items() for name in names.split()}
if not TYPE_CHECKING:  # whoever checks types reads the imports above
    __all__ = ["__version__", *_HOME]


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
        return sorted({*super().__dir__(), *_HOME})


sys.modules[__name__].__class__ = _Facade
