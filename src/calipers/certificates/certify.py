"""`certify`: a certificate of a run, checked before it is handed out.

`verify` and `certified`: what a certificate proves, by the checker that trusts neither Calipers nor the file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers._version import __version__
from calipers.adaptive.run import AdaptiveRun
from calipers.atomic_write import atomic_write
from calipers.bracket import Bracket
from calipers.domains import Domain
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.extras import library
from calipers.measure import Measurement, measure
from calipers.numerics.decimals import ceil_digits
from calipers.phases import as_phases
from calipers.provenance import command, date
from calipers.reading import read_bounded
from calipers.run import Run

if TYPE_CHECKING:
    from calipers_verify import Verdict

DELTA = Domain(1e-60, 1.0, low_open=False, high_open=True)
"""Masses in a certificate are whole numbers of 2^-256."""
EPSILON = Domain(1e-60, 1e6)
"""How a certificate writes numbers, and how large a claim the checker reads."""
_CLEARLY = 1.01
MADE_BY = 200
"""The checker reads no longer a string."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A statement about a run and what proves it: `record` is the JSON object, `verdict` what was checked.

    `remark`: what to know about it, where `measure` proves more.
    """

    record: dict[str, Any]
    verdict: Verdict
    remark: str | None = None

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(self.record, separators=(",", ":")) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all.

        Args:
            path: of the file, which is replaced if it is there.
        """
        atomic_write(Path(path), [self.to_json().encode()])

    def _value(self, side: str, name: str) -> Fraction | None:
        found = [getattr(claim, name) for claim in self.verdict.claims if claim.side == side]
        return found[0] if found else None

    @property
    def epsilon(self) -> tuple[Fraction | None, Fraction | None]:
        """(lower, upper): the exact epsilons of the claims; None where there is no claim on that side."""
        return self._value("lower", "epsilon"), self._value("upper", "epsilon")

    @property
    def delta(self) -> tuple[Fraction | None, Fraction | None]:
        """(lower, upper): the exact deltas of the claims."""
        return self._value("lower", "delta"), self._value("upper", "delta")


def needs_flint() -> None:
    """Raise `MissingExtraError` where python-flint is not installed."""
    library(
        "flint", "Certificates need python-flint, which computes in whole numbers and balls: pip install '.[verify]'."
    )


def certify(
    run: Run | Sequence[Run] | AdaptiveRun,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    progress: Callable[[str], object] = lambda text: None,
) -> Certificate:
    """A certificate for the run at one epsilon or one delta: both bounds where an attack is known, else the upper one.

    Args:
        run: a run or its phases; of an adaptive run the upper bound over all choices within the budget is certified.
        epsilon: where to state delta; or
        delta: where to state epsilon.
        progress: is given what is being done.

    Returns:
        A certificate that `calipers_verify.verify` has accepted.

    Raises:
        UnsupportedError: no certificate can be had for such a run.
        CertificationError: none could be found.
    """
    if (epsilon is None) == (delta is None):
        raise InputError("Give exactly one of epsilon and delta: the certificate states the other one.")
    if delta is not None:
        DELTA.check("delta", delta)
    elif epsilon != 0:
        EPSILON.check("epsilon", epsilon, "At 0 there is a certificate too.")
    needs_flint()
    from flint import ctx

    from calipers.certificates.adaptive import menu_claim, menu_record
    from calipers.certificates.claims import claims_at_delta, claims_at_epsilon
    from calipers.certificates.exact import exact, run_record
    from calipers_verify import Refused
    from calipers_verify.stop_loss import PRECISION

    if isinstance(run, AdaptiveRun):
        record, measurement = menu_record(run), run.measured()
    else:
        phases = as_phases(run)
        record, measurement = run_record(phases), measure(phases, tolerance=1e-2)
    if delta is not None:
        likely = measurement.epsilon(delta)
    else:
        assert epsilon is not None
        likely = measurement.delta(epsilon)
    try:
        with ctx.workprec(PRECISION):
            if isinstance(run, AdaptiveRun):
                asked = None if epsilon is None else exact(epsilon), None if delta is None else exact(delta)
                claims = [menu_claim(record, *asked, likely, progress)]
            elif delta is not None:
                claims = claims_at_delta(record, exact(delta), likely, progress)
            else:
                assert epsilon is not None
                claims = claims_at_epsilon(record, exact(epsilon), likely, progress)
    except Refused as reason:
        raise CertificationError(
            f"No certificate could be made of this run: {reason}. Measure it without one."
        ) from reason
    progress("checking the certificate")
    certificate = sealed({"run": record, "claims": claims})
    low, high = certificate.epsilon if delta is not None else certificate.delta
    if (high is not None and high < likely.lower) or (low is not None and low > likely.upper):
        raise CertificationError(
            f"The certified bracket [{low}, {high}] contradicts the measured {likely}: one of them is wrong. Please "
            "report the run that produced this."
        )
    return dataclasses.replace(certificate, remark=_remark(certificate, likely, asked_delta=delta is not None))


def _remark(certificate: Certificate, measured: Bracket, asked_delta: bool) -> str | None:
    """A sentence where the certified upper bound is above the measured one."""
    name, value = ("epsilon", certificate.epsilon[1]) if asked_delta else ("delta", certificate.delta[1])
    if value is None or not math.isfinite(measured.upper) or value <= Fraction(ceil_digits(measured.upper)):
        return None
    if not asked_delta and float(value) <= DELTA.low:
        return f"Certificates state no delta below {DELTA.low:g}; calipers measure prints {measured.upper:.6g}."
    head = f"The certified {name} is above the {ceil_digits(measured.upper)} that calipers measure proves"
    if float(value) <= _CLEARLY * measured.upper:
        return f"{head}; quote the certified one with this certificate."
    return (
        f"{head}: for such a run the checker knows a weaker theorem than measure, or it would take too long to be "
        "asked everywhere (docs, what can be certified). Both are upper bounds."
    )


def made_by() -> str:
    """Version, date and command, as much of it as the format has room for."""
    return f"calipers {__version__}; {date()}; {command()}"[:MADE_BY].encode("ascii", "replace").decode("ascii")


def sealed(content: dict[str, Any]) -> Certificate:
    """A certificate with this run and these claims, or `CertificationError` if the checker does not accept it."""
    from calipers_verify import Refused, verify
    from calipers_verify.checker import FORMAT, VERSION
    from calipers_verify.reading import digest

    record = {"format": FORMAT, "version": VERSION, **content, "made_by": made_by()}
    record["digest"] = digest(record)
    draft = json.dumps(record, separators=(",", ":")).encode("ascii")
    try:
        verdict = verify(draft)
    except Refused as reason:
        raise CertificationError(
            f"No certificate could be made: the checker refuses the draft, because {reason}."
        ) from reason
    return Certificate(record, verdict)


def verify(path: str | os.PathLike[str]) -> Verdict:
    """Everything the certificate in a file proves. The same as `python -m calipers_verify FILE`.

    Args:
        path: of the certificate.

    Returns:
        A verdict: `claims` holds exact numbers, `sentences()` says them.

    Raises:
        CertificationError: a claim fails, or the file cannot be read; with the reason.
    """
    needs_flint()
    from calipers_verify import Refused
    from calipers_verify import verify as checked
    from calipers_verify.reading import MOST_BYTES

    try:
        return checked(read_bounded(path, MOST_BYTES))
    except OSError as error:
        why = f"it cannot be read ({error.strerror or error})"
        raise CertificationError(f"{os.fspath(path)} is refused: {why}.") from error
    except Refused as reason:
        raise CertificationError(f"{os.fspath(path)} is refused: {reason}.") from reason


def certified(
    measurement: Measurement, delta: float, path: str | os.PathLike[str], run: AdaptiveRun | None = None
) -> tuple[Measurement, Certificate]:
    """Write a certificate of the measured run at delta; the measurement returned names it and its claims in its notes.

    `run`: the adaptive run, where one was measured.

    What is certified may be a little wider than what is measured; the note says exactly what it is. Raises
    `UnsupportedError` where the measurement is about more than its run.
    """
    if measurement.dataset_sizes is not None:
        raise UnsupportedError(
            "No certificate can be had for a range of dataset sizes: a certificate states one; leave out the range, or "
            "measure it without one."
        )
    if not measurement.runs and run is None:
        raise UnsupportedError(
            "No certificate can be had for what is not a run of DP-SGD steps: describe it as a run, or measure it "
            "without one."
        )
    certificate = certify(measurement.runs if run is None else run, delta=delta)
    certificate.save(path)
    name, digest = Path(path).name, certificate.record["digest"][:16]
    head = f"Certificate {name} (digest {digest}), to be checked with python -m calipers_verify."
    note = " ".join((head, *certificate.verdict.sentences(), "Scope: " + "; ".join(certificate.verdict.scope) + "."))
    return dataclasses.replace(measurement, conditions=(*measurement.conditions, note)), certificate
