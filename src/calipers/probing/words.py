"""What a probe leaves open: the caveats of a run, and what no probe of this kind can see."""

from __future__ import annotations

from collections.abc import Sequence

from calipers.probing.protocol import Finding, Schedule
from calipers.probing.rules import moving
from calipers.run import Run
from calipers.schemes import scheme_named


def caveats(near: Sequence[Schedule], run: Run | None, findings: Sequence[Finding], one_size: bool) -> tuple[str, ...]:
    """What the run leaves out."""
    if run is None:
        return ()
    found = []
    if one_size:
        found.append(
            "The Run takes rate and steps for public constants; the loop was shown at one dataset size, so whether "
            "they move when a record joins was not seen."
        )
    moves = [name for name in moving(near) if name != "the divisor"]
    if moves:
        found.append(
            f"{' and '.join(moves).capitalize()} differ between neighboring datasets; the Run takes them for public "
            "constants, so what it measures is no guarantee for this implementation at this N."
        )
    if run.normalization in ("floor", "expected", "realized") and run.dimension is None:
        found.append("What such a divisor leaks grows with the number of parameters: give dimension (--dimension).")
    said = {finding.subject: finding for finding in findings}
    if "pass into" in said["gradients that are no numbers"].verdict:
        found.append("The Run takes every gradient for a finite number; a NaN or an infinity goes through, and shows.")
    if said["empty batch"].alarm:
        found.append("The Run takes a step with noise for an empty batch; this loop does something else.")
    return tuple(found)


def unseen(sampler: str | None, one_size: bool, layered: bool, real_data: bool) -> tuple[str, ...]:
    """What this probe was blind to."""
    found = [
        "Only the gradients, batch sizes, seeds and first steps that were tried: a rule that changes later in "
        "training, or for other gradients, is not seen.",
        ("" if real_data else "How gradients come from data (normalization across records, augmentation). ")
        + "A record that is in several places; what else is released (losses, metrics, checkpoints, choices by them).",
        "Whether seeds are secret and the generator cryptographic. Noise that is shared in other ways than at a fixed "
        "distance of coordinates, steps or runs, or by a common factor.",
    ]
    if not layered:
        found.append("Where layers begin: the loop names none (layers).")
    if sampler is not None and scheme_named(sampler).independent:
        found.append("Records that come together in groups above 32, or tied over more than two successive batches.")
    if one_size:
        found.append("What moves when the dataset has one record more: the loop was shown at one size only.")
    return tuple(found)
