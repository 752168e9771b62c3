"""`verify` and `certified`: what a certificate proves, by the checker that trusts neither Calipers nor the file."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from calipers.certificates.certify import Certificate, certify, needs_flint
from calipers.errors import CertificationError, UnsupportedError
from calipers.measure import Measurement

if TYPE_CHECKING:
    from calipers_verify import Verdict


def verify(path: str | os.PathLike[str]) -> Verdict:
    """Everything the certificate in a file proves; raises `CertificationError` with the reason if one claim fails.

    `Verdict.claims` holds exact numbers, `Verdict.sentences()` says them. The same as `python -m calipers_verify FILE`.
    """
    needs_flint()
    from calipers_verify import Refused, verify_file

    try:
        return verify_file(path)
    except Refused as reason:
        raise CertificationError(f"{os.fspath(path)} is refused: {reason}.") from reason


def certified(measurement: Measurement, delta: float, path: str | os.PathLike[str]) -> tuple[Measurement, Certificate]:
    """Write a certificate of the measured run at delta; the measurement returned names it and its claims in its notes.

    What is certified may be a little wider than what is measured; the note says exactly what it is. Raises
    `UnsupportedError` where the measurement is about more than its run.
    """
    if measurement.dataset_sizes is not None:
        raise UnsupportedError(
            "No certificate can be had for a range of dataset sizes: a certificate states one; leave out the range, or "
            "measure it without one."
        )
    if not measurement.runs:
        raise UnsupportedError(
            "No certificate can be had for what is not a run of DP-SGD steps: describe it as a run, or measure it "
            "without one."
        )
    certificate = certify(measurement.runs, delta=delta)
    certificate.save(path)
    name, digest = Path(path).name, certificate.record["digest"][:16]
    head = f"Certificate {name} (digest {digest}), to be checked with python -m calipers_verify."
    note = " ".join((head, *certificate.verdict.sentences()))
    return dataclasses.replace(measurement, conditions=(*measurement.conditions, note)), certificate
