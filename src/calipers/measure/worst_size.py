"""The worst dataset size for a divisor that moves with the data.

For which dataset size does a divisor that moves with the data hurt most? "My N does not jump" is
luck, not a guarantee: a mechanism is private if it is so for every dataset, hence for every N. `worst_dataset_size`
measures some sizes of a stated range: the smaller the divisor, the larger its relative change, so the first size (for
a floor, the first jump) is among them, and a few more to see the trend. The result is a bad size with its own
certified bracket: its lower bound is one of the mechanism on the range. An upper bound for all sizes of the range
at once is what `measure(run, dataset_sizes=(low, high))` proves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calipers.bracket import Bracket
from calipers.errors import InputError
from calipers.measure.divided import divided_attack
from calipers.measure.divisors import SIZE, public_because
from calipers.measure.routes import measure
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.run import DATA_DEPENDENT, Run
from calipers.run_fields import divisor_of
from calipers.samplers import scheme_of

_MEASURED, _MOST_NARROW = 4, 2
_ROUGHLY = 0.05


@dataclass(frozen=True)
class WorstSize:
    """The size with the largest lower bound among those measured, out of sizes `smallest` .. `largest`."""

    dataset_size: int
    epsilon: Bracket
    delta: float
    smallest: int
    largest: int
    measured: tuple[int, ...]
    what: str = "jumps of floor(N q)"

    @property
    def note(self) -> str:
        """The finding in words."""
        return (
            f"Other dataset sizes may leak more: of sizes {self.smallest} to {self.largest}, N = "
            f"{self.dataset_size} is the worst of {len(self.measured)} {self.what} measured (the rate and the steps "
            f"stay), with epsilon between {floor_digits(self.epsilon.lower)} and {ceil_digits(self.epsilon.upper)} at "
            f"delta = {setting(self.delta)}."
        )


def worst_dataset_size(
    run: Run, *, delta: float, smallest: int | None = None, largest: int | None = None, tolerance: float = 1e-3
) -> WorstSize | None:
    """The worst size found for N in [smallest, largest]; the rate, the steps and the noise stay those of `run`.

    Args:
        run: Poisson sampled, divided by a number that depends on the data, under add-remove adjacency.
        delta: Where epsilon is compared.
        smallest: The smallest size, N/2 unless given.
        largest: The largest size, 2N unless given.
        tolerance: The relative width aimed for.

    Returns:
        A size whose certified lower bound is a lower bound of the mechanism on the range; None if floor(N q) jumps
        nowhere in it.

    Raises:
        InputError: The divisor of the run does not move with the data, or the range is empty.
    """
    if run.normalization not in DATA_DEPENDENT or not scheme_of(run).independent or run.adjacency != "add-remove":
        raise InputError(
            "worst_dataset_size is about normalization 'expected', 'floor' or 'realized' with sampler='poisson' under "
            f"add-remove adjacency, got {run.normalization!r}, {run.sampler!r}, {run.adjacency!r}."
        )
    assert run.dataset_size is not None
    low = SIZE.check_int("smallest", smallest if smallest is not None else max(2, run.dataset_size // 2))
    high = SIZE.check_int("largest", largest if largest is not None else 2 * run.dataset_size)
    if low > high:
        raise InputError(f"Expected smallest <= largest, got smallest={low} and largest={high}.")
    floor = run.normalization == "floor"
    sizes = _jumps(run, low, high) if floor else _spread(low, high)
    if not sizes:
        return None

    # A rough attack on every size; both bounds where that leaves open which is the worst.
    rough = {size: divided_attack(_resized(run, size)).roughly(delta) for size in sizes}
    worst = sorted(sizes, key=lambda size: -rough[size])[:_MOST_NARROW]
    least = rough[worst[0]] * (1.0 - _ROUGHLY)
    narrow = {
        size: measure(_resized(run, size), tolerance=tolerance).epsilon(delta) for size in worst if rough[size] >= least
    }
    chosen = max(narrow, key=lambda size: narrow[size].lower)
    what = "jumps of floor(N q)" if floor else "sizes"
    return WorstSize(chosen, narrow[chosen], delta, low, high, tuple(sizes), what)


def _spread(low: int, high: int) -> list[int]:
    """Up to `_MEASURED` sizes from low to high, dense at the low end."""
    return sorted({round(low * (high / low) ** ((i / (_MEASURED - 1)) ** 2)) for i in range(_MEASURED)})


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
