"""Whether records act on each other, and whether a step leaves traces that no noise covers.

Clipping bounds what a record does through its own gradient. Through the *others'* gradients it may do anything: a loss
that divides by the weights or the tokens of its batch, a loss that compares records, inputs centered by the batch. So
a batch is given a companion, a record whose own gradient is planted as zero. Exchanged for another companion it must
change nothing. The others' gradients are planted just below the clipping norm C, where clipping hides no change, and
the noise is equal: the distance between two such steps is what exchanging one record did, without statistics.

A step also changes what it is not read by: buffers, weights that another optimizer trains, weights edited by hand. Two
batches are planted whose clipped sums are equal (gradients H and -2H, then -H and 2H, for H far above C), so that
everything that follows from the released sum is equal too; what differs follows from the records by another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from calipers.numerics.decimals import floor_digits
from calipers.numerics.types import FloatArray
from calipers.probing.clipping import HUGE
from calipers.probing.lens import LOST, ROUNDING, Lens
from calipers.probing.protocol import Finding

OTHERS, STATE = "influence of other records", "other state"
# Largest batch: enough to see what one record does to the sum of many.
MOST_RECORDS = 128
BELOW = 0.9
# Relative changes of a tensor that rounding may explain: Opacus clips by norm + 1e-6, single precision has 24 bits.
SAME = 1e-4


def companion_findings(lens: Lens, divisor: Callable[[int], float], batch_size: int) -> list[Finding]:
    """Both findings, for a loop that can be given companions; none otherwise."""
    count = int(getattr(lens.configuration, "companions", 0))
    if count < 2:
        return []
    return [_others(lens, divisor, count, max(2, min(batch_size, MOST_RECORDS))), _state(lens, count)]


def _others(lens: Lens, divisor: Callable[[int], float], companions: int, size: int) -> Finding:
    """How far exchanging one record of gradient zero moves the sum.

    Post-condition: the distance in the evidence is a lower bound on what exchanging one record does to the sum.
    """
    bound, scale = lens.bound, divisor(size)
    worst, slack = 0.0, 0.0
    for row in (lens.directions[0], lens.directions[-1]):
        planted = np.tile(BELOW * bound * row, (size - 1, 1))
        steps = [lens.among(planted, number)[0] * scale for number in range(companions)]
        far = max(steps, key=lambda step: _apart(step, steps[0]))
        worst = max(worst, max(_apart(step, far) for step in steps))
        length = max(float(np.linalg.norm(step)) for step in steps)
        slack = max(slack, size * (ROUNDING * bound + 1e-6) + 4 * LOST * length)
    evidence = (
        f"{companions} companions with a gradient of zero, one at a time in a batch of {size}, equal noise: exchanging "
        f"one for another moved the sum by {floor_digits(worst / bound, 4)} times the clipping norm {bound:g}, the "
        "most that was seen"
    )
    if not np.isfinite(worst) or worst > slack:
        verdict = "what a record adds depends on the others of its batch, and clipping does not bound that"
        return Finding(OTHERS, verdict, evidence, alarm=True)
    if slack > 0.2 * bound:
        return Finding(OTHERS, "not seen: rounding hides it under this much noise", evidence, alarm=True)
    return Finding(OTHERS, "none seen: exchanging a record of gradient zero changes nothing", evidence)


def _apart(one: FloatArray, other: FloatArray) -> float:
    return float(np.linalg.norm(one - other))


def _state(lens: Lens, companions: int) -> Finding:
    """Whether something besides the released sum follows from the records."""
    far = HUGE * lens.bound * lens.directions[0]
    here, there = np.stack([far, -2 * far]), np.stack([-far, 2 * far])
    first = lens.among(here, 0)[1]
    changes = [lens.among(there, 0)[1], *(lens.among(here, number)[1] for number in range(1, companions))]
    names = [name for name in first if any(_differ(first[name], change[name]) for change in changes)]
    others = tuple(getattr(lens.configuration, "other_optimizers", ()))
    evidence = (
        f"Batches with equal clipped sums and {companions} companions; compared how {len(first)} tensors changed, less "
        "the optimizer's own steps"
    )
    said = []
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        said.append(f"the step changes {shown} by the records, without noise")
    if others:
        said.append(f"another optimizer ({', '.join(others)}) takes steps as well, which the probe does not read")
    if said:
        return Finding(STATE, "; ".join(said), evidence, alarm=True)
    if not first:
        return Finding(STATE, "not seen: an optimizer of your own is read by how far it moves", evidence)
    return Finding(STATE, "nothing else that follows from the records was seen to change", evidence)


def _differ(one: FloatArray, other: FloatArray) -> bool:
    """Whether two changes of one tensor differ by more than rounding."""
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return not _apart(one, other) <= SAME * size + LOST


def undescribed(findings: Mapping[str, Finding], may_be_empty: bool) -> str:
    """Why no `Run` describes the step, by these findings; nothing where one may.

    `may_be_empty`: batches without records can be drawn.
    """
    if may_be_empty and findings["empty batch"].verdict.startswith("no noise"):
        return "No Run describes steps that are skipped when no record was drawn: that nobody was there shows."
    if OTHERS in findings and findings[OTHERS].alarm:
        return "No Run describes a step in which what a record adds depends on the other records of its batch."
    if STATE in findings and findings[STATE].alarm:
        return "No Run describes a step that changes something by the records without noise."
    return ""
