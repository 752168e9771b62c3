"""For which dataset size a floor hurts most.

floor(N q) is the same for most neighboring sizes and jumps for some. "My N does not jump" is luck, not a guarantee: a
mechanism is private if it is so for every dataset, hence for every N. `worst_dataset_size` measures jumps in a stated
range. The smaller the divisor at a jump, the larger its relative change, so the first jump of the range is measured,
and a few more to see the trend. The result is a bad size, with its own certified bracket: its lower jaw is a lower
jaw of the mechanism on the range. That no size of the range is worse is not proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.bracket import Bracket
from calipers.domains import Domain
from calipers.errors import InputError
from calipers.measure.divisors import divisor_of, public_because
from calipers.measure.routes import measure
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.run import Run

_SIZE = Domain(2, 2**53, integer=True)
_MEASURED = 4
_ROUGHLY = 0.05


@dataclass(frozen=True)
class WorstSize:
    """The size with the largest lower jaw among those measured, out of sizes `smallest` .. `largest`."""

    dataset_size: int
    epsilon: Bracket
    delta: float
    smallest: int
    largest: int
    measured: tuple[int, ...]

    @property
    def note(self) -> str:
        """The finding in words."""
        return (
            f"A guarantee has to hold for every dataset size: of sizes {self.smallest} to {self.largest}, N = "
            f"{self.dataset_size} is the worst of {len(self.measured)} jumps of floor(N q) measured, with "
            f"epsilon between {floor_digits(self.epsilon.lower)} and {ceil_digits(self.epsilon.upper)} at "
            f"delta = {self.delta:g}."
        )


def worst_dataset_size(
    run: Run, *, delta: float, smallest: int | None = None, largest: int | None = None, tolerance: float = 1e-3
) -> WorstSize | None:
    """The worst jump of floor(N q) found for N in [smallest, largest], by default [N/2, 2N]; None if there is none.

    The rate, the steps and the noise stay those of `run`.
    """
    if run.normalization != "floor" or run.sampler != "poisson" or run.adjacency != "add-remove":
        raise InputError(
            "worst_dataset_size is about normalization='floor' with sampler='poisson' under add-remove adjacency, got "
            f"{run.normalization!r}, {run.sampler!r}, {run.adjacency!r}."
        )
    assert run.dataset_size is not None
    low = _SIZE.check_int("smallest", smallest if smallest is not None else max(2, run.dataset_size // 2))
    high = _SIZE.check_int("largest", largest if largest is not None else 2 * run.dataset_size)
    if low > high:
        raise InputError(f"Expected smallest <= largest, got smallest={low} and largest={high}.")
    sizes = _jumps(run, low, high)
    if not sizes:
        return None

    def epsilon(size: int, within: float) -> Bracket:
        return measure(_resized(run, size), tolerance=within).epsilon(delta)

    # Roughly first; as narrowly as was asked for where that leaves open which is the worst.
    rough = {size: epsilon(size, max(tolerance, _ROUGHLY)) for size in sizes}
    least = max(bracket.lower for bracket in rough.values())
    narrow = {size: epsilon(size, tolerance) for size, bracket in rough.items() if bracket.upper >= least}
    worst = max(narrow, key=lambda size: narrow[size].lower)
    return WorstSize(worst, narrow[worst], delta, low, high, tuple(sizes))


def _resized(run: Run, size: int) -> Run:
    return run.replace(dataset_size=size, sample_rate=run.rate, steps=run.total_steps)


def _jumps(run: Run, low: int, high: int) -> list[int]:
    """Up to `_MEASURED` sizes, from the first jump on, at which floor(N q) jumps between N - 1 and N and is not 0
    before.
    """
    first = max(2, math.floor((low - 1) * run.rate) + 1)
    last = math.floor(high * run.rate)
    if last < first:
        return []
    divisors = sorted({round(first * (last / first) ** (i / (_MEASURED - 1))) for i in range(_MEASURED)})
    sizes = []
    for divisor in divisors:
        size = math.ceil(divisor / run.rate)
        while divisor_of(_resized(run, size), size) < divisor:
            size += 1
        while size > 2 and math.floor((size - 1) * run.rate) >= divisor:
            size -= 1
        if low <= size <= high and public_because(_resized(run, size)) is None:
            sizes.append(size)
    return sizes
