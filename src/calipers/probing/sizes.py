"""How a step depends on the number of records in its batch: the divisor, the noise, and batches of nobody.

Gradients that sum to an eighth of the clipping norm are not clipped: k of them alike move the step by C / (8
divisor), hence the divisor for every k that is tried. Steps on k zero gradients with equal noise show what k does to
the noise: nothing, if the loop is right and its divisor is public. The batch that came out is secret, so noise that
follows it is neither the noise that was accounted for nor a constant times it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.numerics.types import FloatArray
from calipers.probing.clipping import SMALL
from calipers.probing.lens import LOST, Lens, close
from calipers.probing.protocol import Finding

MOST_RECORDS = 128
SEEDS = 24


@dataclass(frozen=True)
class StepNumbers:
    """The divisor for batches of each size that was tried; all zero if a step is not finite, infinite if it is
    still."""

    by_count: dict[int, float]

    @property
    def divisor(self) -> float:
        """The divisor for two records."""
        return self.by_count[2]

    @property
    def finite(self) -> bool:
        """Whether steps are finite and follow their gradients."""
        return all(math.isfinite(value) and value > 0 for value in self.by_count.values())

    @property
    def realized(self) -> bool:
        """Whether the divisor is the number of records in the batch."""
        return all(close(found, count) for count, found in self.by_count.items())

    @property
    def data_independent(self) -> bool:
        """Whether the divisor ignores the number of records in the batch."""
        return all(close(found, self.divisor) for found in self.by_count.values())

    def at(self, count: int) -> float:
        """The divisor for so many records, by the rule that the tried sizes follow."""
        if count in self.by_count:
            return self.by_count[count]
        return float(count) if self.realized else self.divisor


def counts_to_try(batch_size: int) -> tuple[int, ...]:
    """1, 2, 3, a few, and batches around the size that was asked for."""
    usual = min(batch_size, MOST_RECORDS)
    return tuple(sorted({1, 2, 3, 4, 5, 8, usual, 2 * usual}))


def step_numbers(lens: Lens, batch_size: int, counts: tuple[int, ...] = ()) -> StepNumbers:
    """The divisor at each size of the batch, from differences of steps with equal noise."""
    found = {}
    for count in counts or counts_to_try(batch_size):
        direction = lens.directions[0]
        # Together an eighth of C: not clipped, whether records, sums or averages are.
        moved = lens.moved(np.tile(SMALL / count * lens.bound * direction, (count, 1)))
        along = float(moved @ direction)
        if not np.isfinite(moved).all():
            found[count] = 0.0
        else:
            found[count] = SMALL * lens.bound / along if along else math.inf
    return StepNumbers(found)


def size_finding(lens: Lens, numbers: StepNumbers, error: float) -> Finding:
    """Whether the noise of the sum depends on how many records came out."""
    subject = "noise and batch size"
    counts = sorted(numbers.by_count)
    still = {count: lens.still(count) * numbers.at(count) for count in counts}
    base = still[counts[0]]
    size = float(np.linalg.norm(base))
    if size == 0.0:
        return Finding(subject, "no noise to look at", f"Steps on {counts} zero gradients.", alarm=True)
    shares = {count: float(value @ base) / size**2 for count, value in still.items()}
    apart = {count: float(np.linalg.norm(still[count] - shares[count] * base)) / size for count in counts}
    tolerance = 1e-4 + 4 * LOST
    shown = ", ".join(f"{shares[count]:.4g} at {count}" for count in counts)
    if max(apart.values()) <= tolerance:
        evidence = f"Noise of the sum by batch size, equal seeds, in units of that for one record: {shown}"
        if all(abs(share - 1) <= tolerance for share in shares.values()):
            return Finding(subject, "the same for every batch size", evidence)
        return Finding(subject, f"the noise follows the batch that came out{_power(shares)}", evidence, 0.0, True)
    shift = _shift(lens, numbers, counts)
    if shift is not None:
        verdict = "every record moves the step by something that is no gradient and not clipped"
        evidence = f"{shift[1]} zero gradients move the sum by {shift[0] / lens.bound:.4g} C, whatever the seed"
        return Finding(subject, verdict, evidence, 0.0, True)
    return _by_law(lens, numbers, counts, error)


def _power(shares: dict[int, float]) -> str:
    """The power of the batch size that the noise follows, in words, where there is one."""
    counts = [count for count in shares if count > 1 and shares[count] > 0]
    powers = [math.log(shares[count]) / math.log(count) for count in counts]
    words = {-1.0: ": divided by its size", -0.5: ": divided by the root of its size", 0.5: ": grows like its root",
             1.0: ": grows like its size"}  # fmt: skip
    for power, word in words.items():
        if powers and max(abs(found - power) for found in powers) < 0.03:
            return word
    return ""


def _shift(lens: Lens, numbers: StepNumbers, counts: list[int]) -> tuple[float, int] | None:
    """How far zero gradients move the sum whatever the noise: the difference is the same for two seeds."""
    last = counts[-1]

    def difference(seed: int) -> FloatArray:
        return (lens.still(last, seed) - lens.still(counts[0], seed)) * numbers.at(last)

    one, two = difference(lens.seed), difference(lens.seed + 101)
    size = float(np.linalg.norm(one))
    rounding = 16 * LOST * float(np.linalg.norm(lens.still(last))) * numbers.at(last)
    return (size, last - counts[0]) if float(np.linalg.norm(one - two)) <= 1e-3 * size + rounding < size else None


def _by_law(lens: Lens, numbers: StepNumbers, counts: list[int], error: float) -> Finding:
    """Where equal seeds do not give equal noise at different sizes: compare second moments; numbers are estimates."""
    subject = "noise and batch size"
    moments = {count: _moment(lens, count) * numbers.at(count) ** 2 for count in counts}
    allowed = _allowed(lens, len(counts), error)
    base = moments[counts[0]]
    shares = {count: math.sqrt(moment / base) if base else math.inf for count, moment in moments.items()}
    shown = ", ".join(f"{shares[count]:.3g} at {count}" for count in counts)
    evidence = f"Estimated deviation by batch size, in units of that for one record: {shown} ({SEEDS} seeds each)"
    if base and all((1 - allowed) / (1 + allowed) <= s**2 <= (1 + allowed) / (1 - allowed) for s in shares.values()):
        return Finding(subject, "not distinguished between batch sizes", evidence, error)
    return Finding(subject, f"the noise follows the batch that came out{_power(shares)}", evidence, error, True)


def empty_finding(lens: Lens, error: float) -> Finding:
    """What a step does when no record was drawn; the guarantee needs the same noise as ever."""
    nobody = np.zeros((0, lens.dimension))
    try:
        with np.errstate(all="ignore"):
            alone = lens.update(nobody)
    except Exception as raised:  # whatever a foreign library raises is the finding
        evidence = f"update() of no gradients raised {type(raised).__name__}: {' '.join(str(raised).split())[:120]}"
        return Finding("empty batch", "the step fails", evidence, alarm=True)
    if not np.isfinite(alone).all():
        return Finding("empty batch", "not finite", "update() of no gradients returned infinities or NaN.", alarm=True)
    usual = lens.still(1)
    scales = [float(np.sqrt(np.mean(value**2))) for value in (alone, usual)]
    evidence = f"root mean square {scales[0]:.4g} without records, {scales[1]:.4g} with one zero gradient, same noise"
    if scales[0] == 0.0:
        return Finding("empty batch", "no noise: the step is skipped", evidence, alarm=True)
    if float(np.linalg.norm(alone - usual)) <= 1e-4 * float(np.linalg.norm(usual)):
        return Finding("empty batch", "noise as usual", evidence)
    allowed = _allowed(lens, 2, error)
    ratio = _moment(lens, 0) / _moment(lens, 1)
    if (1 - allowed) / (1 + allowed) <= ratio <= (1 + allowed) / (1 - allowed):
        return Finding("empty batch", "noise not distinguished from that of other batches", evidence, error)
    return Finding("empty batch", "noise differs from that of other batches", evidence, error, True)


def _moment(lens: Lens, count: int) -> float:
    """The mean square of a coordinate of steps on so many zero gradients, over `SEEDS` seeds."""
    return float(np.mean([np.mean(lens.still(count, lens.seed + 7 + number) ** 2) for number in range(SEEDS)]))


def _allowed(lens: Lens, moments: int, error: float) -> float:
    """How far a mean of squares of N(0, 1) is from 1 at most, with probability 1 - error for all moments together.

    A mean of n squares is within 2 sqrt(u/n) + 2 u/n of 1 with probability 1 - 2 e^(-u) (Laurent and Massart).
    """
    samples = SEEDS * lens.dimension
    u = math.log(2 * moments / error)
    return min(0.99, 2 * math.sqrt(u / samples) + 2 * u / samples)
