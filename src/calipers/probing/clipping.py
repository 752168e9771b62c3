"""What a step does to gradients: which rule clips them, and how far one record can move the sum.

A battery of small batches is planted: one large gradient, two alike, two opposed, a large one next to a small one, one
along each layer, one spread over all coordinates, many at once, some just below and above the clipping norm C. What
comes out, times the divisor, is compared with what each rule of a list would give. "Each record by itself, its whole
norm, to C" is one of them; clipping the mean, the sum, pairs, layers or coordinates are others, and a rule that does
not fit every batch of the battery is out. Nothing random enters: the noise is equal on both sides of every
difference.

Next to the rule stands a witness that needs none: the greatest distance that replacing *one* record's gradient by zero
moved the sum, in units of C. It is a lower bound on the sensitivity, so the noise multiplier that counts is at most
the one asked for divided by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.numerics.types import FloatArray
from calipers.probing.clipping_rules import ClippingRule, rules
from calipers.probing.lens import LOST, ROUNDING, Lens
from calipers.probing.protocol import Finding

LARGE, SMALL, HUGE = 8.0, 0.125, 1e4


@dataclass(frozen=True)
class PlantedGradient:
    """A batch of gradients and what came out: the change of the sum (the step's change times the divisor)."""

    gradients: FloatArray
    moved: FloatArray
    witness: float
    tolerance: float

    def follows(self, rule: ClippingRule) -> bool:
        """Whether the rule explains how the sum moved."""
        return bool(np.linalg.norm(rule.applied(self.gradients) - self.moved) <= self.tolerance)


def battery(lens: Lens) -> list[FloatArray]:
    """The batches, one row a record."""
    bound, rows = lens.bound, lens.directions
    first, second, last = rows[0], rows[1 % len(rows)], rows[-1]
    nothing = np.zeros(lens.dimension)
    alone = [[scale * first] for scale in (0.9, 1.1, LARGE, HUGE)] + [[LARGE * row] for row in rows[1:]]
    together = [
        [LARGE * first, LARGE * first],
        [LARGE * first, -LARGE * first],
        [LARGE * first, SMALL * second],
        [SMALL * first, LARGE * last],
        [0.6 * first, 0.6 * first],
        [LARGE * first, nothing, nothing],
        [LARGE * first, LARGE * second, SMALL * last, SMALL * first],
        [SMALL * second, LARGE * last, -0.5 * first, 2.0 * second, SMALL * last],
        [LARGE * first] * 8,
    ]
    if lens.mixes:
        together += [[LARGE * first + 0.3 * second], [LARGE * first + LARGE * second, SMALL * first]]
    return [bound * np.stack(rows) for rows in alone + together]


def planted(lens: Lens, divisor: Callable[[int], float]) -> list[PlantedGradient]:
    """The battery, planted; `divisor` gives what a step on so many records divides by."""
    found = []
    for gradients in battery(lens):
        count = len(gradients)
        scale = divisor(count)
        moved = lens.moved(gradients) * scale
        without = gradients.copy()
        without[0] = 0.0
        less = lens.moved(without) * scale if count > 1 else np.zeros_like(moved)
        length = float(np.linalg.norm(lens.still(count))) * scale + float(np.linalg.norm(moved))
        # Opacus divides by (norm + 1e-6), so a clipped gradient is short of C by 1e-6 / norm.
        slack = count * (ROUNDING * lens.bound + 1e-6) + LOST * length + ROUNDING * float(np.linalg.norm(moved))
        found.append(PlantedGradient(gradients, moved, float(np.linalg.norm(moved - less)), slack))
    return found


def clipping_finding(lens: Lens, divisor: Callable[[int], float]) -> Finding:
    """The rule that fits the whole battery; an alarm unless it bounds every record by C."""
    trials = planted(lens, divisor)
    bound, asked = lens.bound, float(lens.configuration.noise_multiplier)
    worst = max(trials, key=lambda trial: trial.witness if np.isfinite(trial.witness) else np.inf)
    if not all(np.isfinite(trial.moved).all() for trial in trials):
        return Finding("clipping", "not finite", "A step on finite gradients returns infinities or NaN.", alarm=True)
    count = len(worst.gradients)
    evidence = (
        f"{len(trials)} planted batches, equal noise; replacing one gradient of a batch of {count} by zero moved the "
        f"sum by {floor_digits(worst.witness / bound, 4)} times the clipping norm {bound:g}, the most that was seen"
    )
    if max(trial.tolerance for trial in trials[:4]) > 0.2 * bound + ROUNDING * HUGE * bound:
        return Finding("clipping", "not seen: rounding hides it at this much noise", evidence, alarm=True)
    huge = next(t for t in trials if len(t.gradients) == 1 and np.linalg.norm(t.gradients) > 100 * bound)
    known = rules(bound, lens.layers, float(np.linalg.norm(huge.moved)), divisor(2))
    fitting = next((rule for rule in known if all(trial.follows(rule) for trial in trials)), None)
    if fitting is not None and fitting.right:
        return Finding("clipping", fitting.verdict, evidence)
    verdict = _additive(lens, divisor) if fitting is None else fitting.verdict
    return Finding("clipping", verdict, evidence + _counts_as(worst.witness / bound, asked), alarm=True)


def _counts_as(times: float, asked: float) -> str:
    """What that leaves of the noise multiplier."""
    if times <= 1 + 1e-3:
        return ""
    return f"; noise of multiplier {asked:g} then counts as at most {ceil_digits(asked / times, 4)}"


def _additive(lens: Lens, divisor: Callable[[int], float]) -> str:
    """Where no rule fits: whether two records act on each other."""
    first, last = LARGE * lens.bound * lens.directions[0], LARGE * lens.bound * lens.directions[-1]
    nothing = np.zeros_like(first)
    apart = lens.moved(np.stack([first, nothing])) + lens.moved(np.stack([nothing, last]))
    together = lens.moved(np.stack([first, last]))
    off = float(np.linalg.norm(together - apart)) * divisor(2)
    if off > 1e-2 * lens.bound:
        return "records act on each other: what one adds to the sum depends on the others (no rule known here fits)"
    return "no rule known here fits"


def infinite_finding(lens: Lens) -> Finding:
    """What a step makes of one gradient that is no finite number."""
    passed = []
    for word, value in (("NaN", np.nan), ("infinity", np.inf), ("1e30", 1e30)):
        gradients = np.zeros((2, lens.dimension))
        touched = lens.directions[0] != 0
        gradients[0, touched] = value * np.sign(lens.directions[0][touched])
        with np.errstate(all="ignore"):
            try:
                released = lens.update(gradients)
            except Exception:  # a loop that raises here releases nothing
                continue
        if not np.isfinite(released).all():
            passed.append(word)
    if not passed:
        return Finding("gradients that are no numbers", "kept out of the step", "NaN, infinity and 1e30 were planted.")
    evidence = f"One record's gradient of {', '.join(passed)} makes the released step infinite or NaN."
    return Finding("gradients that are no numbers", "pass into the step: one such record shows to everybody", evidence)
