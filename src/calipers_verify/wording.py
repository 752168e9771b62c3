"""What was checked, in words: the run, its neighbors, what the adversary sees, what is assumed, what is trusted.

The words are made from the values that were read and used, never from the text of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from calipers_verify.neighbors import CUT, Neighbors, cut, neighbors_of

Record = tuple[Any, ...]
CONDITIONS = (
    "noise, rate and number of steps were fixed in advance, whatever was seen in between (a run that might have "
    "stopped early has to be described as the longest run that was possible); clipped gradients have norm at most 1 "
    "and the noise is Gaussian with the noise multiplier as deviation, in units of the clipping norm"
)
CHOSEN = (
    "menu, costs and budget were fixed in advance; each step, and when to stop, was chosen by what had been released "
    "and by nothing else of the data; every step draws its batches afresh; clipped gradients have norm at most 1 and "
    "the noise is Gaussian with the noise multiplier as deviation, in units of the clipping norm"
)
POLICIES = "the recursion over the remaining budget: what dominates every step bounds every choice (docs/adaptive)"
GAUSSIANS = (
    "Gaussian releases chosen one after the other show no more than one whose mu^2 is the largest sum of their mu^2 "
    "(docs/adaptive)"
)
SAME_FOR_BOTH = "divisor, learning rate and schedule do not depend on dataset_size or on the size of the last batch"
WORST = (
    "worst case: the adversary sees every noisy release, knows and chooses all other records, and gradients may depend "
    "on all that was released before"
)
ISOLATED = (
    "isolated: the adversary sees the noisy contributions of the one record and nothing of the others; whoever knows "
    "others may learn more, so that this is not differential privacy"
)
COMPOSED = "the product theorem: what dominates every step, given all that was seen before, multiplies (pmfs.py)"
MOVED = (
    "the theorem of a record really added or removed, which takes the place of another one in a batch of a fixed size "
    "(neighbors.py; docs/theory/shuffling.md, section 5)"
)
HIDDEN = "the theorem of a record hidden in one of M rounds (docs/theory/shuffling.md, section 6)"
TRUSTED = {
    "poisson": "the theorem of a record drawn into a step with probability q (docs/mathematics)",
    "poisson-realized": "the theorem of size and sum under Poisson sampling (docs/normalization)",
    "poisson-moving": "the theorem of a rate that moves: Poisson step times batch size (docs/normalization)",
    "gaussian": "one Gaussian release: a shift of 1 in units of its deviation",
    "deterministic": "known batches compose to one Gaussian (docs/mathematics)",
    "balls-and-bins": HIDDEN,
    "isolated": HIDDEN,
    "drop": "the theorem of shuffled batches with a dropped remainder (docs/theory/shuffling.md, section 8)",
    "keep": "the theorem of shuffled batches without a remainder (docs/theory/shuffling.md, section 9)",
    "fixed": "random batches show no more than the same batches known to the adversary: joint convexity",
}


def decimal(value: Fraction) -> str:
    """The exact number: in decimals where it has at most 60, as 1e-5 where it is small, else as a fraction."""
    places = next((n for n in range(200) if 10**n % value.denominator == 0), None)
    if places is None:
        return str(value)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    sign, first = "-" if value < 0 else "", len(digits) - places
    if 0 < abs(value) < Fraction(1, 1000):
        return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{first - 1}"
    digits = digits.rjust(places + 1, "0")
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def counted(count: int, what: str) -> str:
    """1 record, 2 records; batch becomes batches."""
    return f"{count} {what}{'' if count == 1 else 'es' if what == 'batch' else 's'}"


def phase_words(record: Record) -> str:
    """One phase: sampler, sizes, how long, noise."""
    sampler, sigma, *own, count = record
    match sampler, *own:
        case ("gaussian",):
            said = "Gaussian releases that one record shifts by at most 1, unsampled"
        case "poisson", rate:
            said = f"Poisson sampling at the public rate {decimal(rate)}"
        case "poisson-realized", size, rate:
            said = f"Poisson sampling of {counted(size, 'record')} at the public rate {decimal(rate)}"
        case "poisson-moving", size, batch:
            said = f"Poisson sampling at the rate {batch}/N of the dataset at hand, N = {size}"
        case "balls-and-bins", batches, order:
            said = f"balls-and-bins sampling into {counted(batches, 'batch')} per epoch, thrown {_order(order)}"
        case _, size, batch, last, *more:
            full, rest = divmod(size, batch)
            said = "batches in a fixed order" if sampler == "deterministic" else f"batches shuffled {_order(more[0])}"
            said += f", N = {size}, {counted(full, 'batch')} of {batch} per epoch, "
            short = f"the last batch of {counted(rest, 'record')} kept" if rest else "no shorter last batch, keep"
            dropped = f"the last {counted(rest, 'record')} dropped" if rest else "no remainder to drop"
            said += short if last == "keep" else dropped
    length = counted(count, "step" if sampler.startswith(("poisson", "gaussian")) else "epoch")
    return f"{said}, {length}, noise multiplier {decimal(sigma)}"


def _order(order: str) -> str:
    return "anew every epoch" if order == "every-epoch" else "once for all epochs"


def run_words(phases: tuple[Record, ...]) -> str:
    """All phases."""
    return "; then ".join(phase_words(record) for record in phases)


def neighbor_words(neighbors: Neighbors) -> str:
    """The neighboring datasets, named."""
    adjacency, size, others = neighbors
    if adjacency == "own":
        return "any two datasets between which every release shifts by at most 1"
    if adjacency == "substitute":
        return "replacing one record (substitute)"
    if adjacency == "zero-out":
        return "zeroing out one record (zero-out: its gradient becomes zero and everybody keeps their place)"
    if size is None or len(others) == 2:
        return "adding or removing one record (add-remove" + (f", N = {size})" if size else ")")
    (other,) = others
    if other < size:
        return f"removing one record (add-remove, N against N-1: {size} records against {other}; not for adding one)"
    return f"adding one record (add-remove, N against N+1: {size} records against {other}; not for removing one)"


def is_isolated(phases: tuple[Record, ...]) -> bool:
    """Whether a phase is proven only for an adversary who knows nothing of the other records."""
    return any(record[0] == "shuffle" and record[-2] == "isolated" for record in phases)


def released_words(phases: tuple[Record, ...]) -> str:
    """What everybody may see."""
    if any(record[0] == "poisson-realized" for record in phases):
        return "the noisy sum of every batch and the number of records in it, so also their quotient"
    return "the noisy sum of every batch, undivided; dividing it by public constants is post-processing"


def trusted(phases: tuple[Record, ...], neighbors: Neighbors, known: bool) -> Iterator[str]:
    """The theorems that a proof rests on; known: fixed batches were enough."""
    yield COMPOSED
    for sampler, _, *own, _ in phases:
        if sampler in CUT and neighbors.adjacency == "add-remove" and own[-1] != "isolated":
            yield MOVED
        elif known or (sampler == "shuffle" and own[3] == "once"):
            yield TRUSTED["deterministic" if sampler == "deterministic" else "fixed"]
        elif sampler == "shuffle":
            nothing_over = own[2] == "keep" or own[0] % own[1] == 0
            yield TRUSTED["isolated" if own[-1] == "isolated" else "keep" if nothing_over else "drop"]
        else:
            yield TRUSTED[sampler]


def sentence(
    side: str, epsilon: Fraction, delta: Fraction, direction: str, phases: tuple[Record, ...], neighbors: Neighbors
) -> str:
    """A claim that was verified, for whoever reads nothing else."""
    at, pair = decimal(epsilon), f"epsilon = {decimal(epsilon)} and delta = {decimal(delta)}"
    where, run = neighbor_words(neighbors), run_words(phases)
    if side == "lower":
        way = direction.replace("-", " against ")
        return (
            f"An explicit attack shows that at epsilon = {at} delta is at least {decimal(delta)}, for {where}, record "
            f"{way}: {run}."
        )
    if is_isolated(phases):
        return (
            f"In the isolated view, which is not differential privacy, the run shows at most {pair}, for {where}, both "
            f"directions: {run}."
        )
    return f"The run is differentially private with {pair}, for {where}, both directions: {run}."


def scope(phases: tuple[Record, ...], neighbors: Neighbors, known: bool) -> tuple[str, ...]:
    """The lines that every verdict is printed with. Where a place moves, batches are named that the theorem counts."""
    conditions = CONDITIONS
    if any(record[0] in CUT for record in phases):
        conditions += f"; {SAME_FOR_BOTH}"
    moved = [
        f"; {record[0]}: M = {rounds}, participation {neighbors.participation(rounds * record[3])}"
        for record in phases
        if record[0] in CUT and neighbors.adjacency == "add-remove" and not is_isolated((record,))
        for rounds in [cut(*record[2:5]).rounds]
    ]
    return (
        f"run: {run_words(phases)}",
        f"neighbors: {neighbor_words(neighbors)}{''.join(moved)}",
        f"view: {ISOLATED if is_isolated(phases) else WORST}",
        f"released: {released_words(phases)}",
        f"conditions: {conditions}",
        *(f"trusted: {each}" for each in dict.fromkeys(trusted(phases, neighbors, known))),
    )


def menu_words(menu: tuple[Record, ...], budget: int) -> str:
    """What could be chosen, and how much of it."""
    choices = "; ".join(f"for {counted(cost, 'unit')} {phase_words(step)}" for cost, step in menu)
    return f"steps chosen while it ran, {counted(budget, 'unit')} of budget spent at most: {choices}"


def menu_sentence(epsilon: Fraction, delta: Fraction, adjacency: str, menu: tuple[Record, ...], budget: int) -> str:
    """A claim about every choice, for whoever reads nothing else."""
    pair = f"epsilon = {decimal(epsilon)} and delta = {decimal(delta)}"
    where = neighbor_words(_menu_neighbors(adjacency, menu))
    return (
        f"Whatever was chosen, the run is differentially private with {pair}, for {where}, both directions: "
        f"{menu_words(menu, budget)}."
    )


def menu_scope(adjacency: str, menu: tuple[Record, ...], budget: int, *, known: bool) -> tuple[str, ...]:
    """The lines that a verdict about a menu is printed with; known: fixed batches were enough."""
    steps, neighbors = tuple(step for _, step in menu), _menu_neighbors(adjacency, menu)
    _, *lines = scope(steps, neighbors, known)
    own = [line.replace(CONDITIONS, CHOSEN) for line in lines if line != f"trusted: {COMPOSED}"]
    return (f"run: {menu_words(menu, budget)}", *own, f"trusted: {GAUSSIANS if known else POLICIES}")


def _menu_neighbors(adjacency: str, menu: tuple[Record, ...]) -> Neighbors:
    return neighbors_of(adjacency, tuple(step for _, step in menu if step[0] != "gaussian"))
