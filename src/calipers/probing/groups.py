"""Records that come together: joint inclusion of pairs and of small groups.

Batch sizes, counts of records and successive batches can look like Poisson sampling while records come in pairs: if a
tenth of the pairs always come together and the others never do, the spread of batch sizes is what it should be. So
pairs are counted. Under Poisson sampling two records are in the same batch with probability q^2, independently from
step to step, and one is in a batch and the other in the next with probability q^2 as well. Chernoff's bound

    P(|X/n - p| as far on that side) <= exp(-n KL(X/n, p))

for X of Binomial(n, p) is evaluated for every pair among the records looked at, and divided among all of them. Pairs
that *avoid* each other show too little one by one, so pairs of neighbors (in the order of the dataset, half of it
apart, mirrored) are also counted together; disjoint pairs are independent, so their sum is binomial too. Groups of 3
to 32 neighbors, and as many random groups, are compared by the spread of how many of a group came, by normal
approximation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from calipers.numerics.types import FloatArray, IntArray

MOST_RECORDS = 1024
MOST_STEPS = 4096
GROUPS = (3, 4, 8, 16, 32)


class Inclusions:
    """Which of the records looked at were in which step, for the first `MOST_STEPS` steps."""

    def __init__(self, dataset_size: int, steps: int, rng: np.random.Generator) -> None:
        if dataset_size <= MOST_RECORDS:
            self.records = np.arange(dataset_size)
        else:  # half of them neighbors, half from anywhere
            half = MOST_RECORDS // 2
            start = int(rng.integers(dataset_size - half))
            near = np.arange(start, start + half)
            far = rng.choice(dataset_size, MOST_RECORDS - half, replace=False)
            self.records = np.unique(np.concatenate([near, far]))
        self._place = np.full(dataset_size, -1, dtype=np.int64)
        self._place[self.records] = np.arange(self.records.size)
        self.table = np.zeros((min(steps, MOST_STEPS), self.records.size), dtype=np.float32)

    def see(self, step: int, batch: IntArray) -> None:
        """Note the batch of a step."""
        if step < len(self.table):
            places = self._place[batch]
            self.table[step, places[places >= 0]] = 1.0


def together(seen: Inclusions, low: float, high: float, error: float, quantile: float) -> tuple[bool, str]:
    """Whether joint inclusions may be those of Poisson sampling at a rate between `low` and `high`, and what was seen.

    `error` is shared by all pairs; `quantile` is the normal deviate allowed for the groups.
    """
    interval = (low**2, high**2)
    alike, evidence = _pairs(seen.table, interval, interval, error)
    deviate, group = _group_spread(seen.table.astype(np.float64), float(seen.table.mean()))
    evidence += (
        f"; small groups: {deviate:+.2f} standard deviations for {group} (allowed {quantile:.2f}, normal approximation)"
    )
    return alike and abs(deviate) <= quantile, evidence


def together_at(seen: Inclusions, same: float, after: float, error: float) -> tuple[bool, str]:
    """Whether pairs come in one batch with probability `same` and in successive ones with probability `after`.

    Indicators of disjoint pairs in a uniform batch of fixed size are negatively associated: Chernoff's bound holds.
    """
    return _pairs(seen.table, (same, same), (after, after), error)


def _pairs(
    table: NDArray[np.float32], same: tuple[float, float], later: tuple[float, float], error: float
) -> tuple[bool, str]:
    """Whether all pairs fit these intervals of probabilities, and the pair that fits worst."""
    steps, records = table.shape
    worst, pair = 0.0, "none"
    joint: FloatArray = (table.T @ table).astype(np.float64)
    after: FloatArray = (table[:-1].T @ table[1:]).astype(np.float64)
    order = np.arange(records)
    found: list[tuple[FloatArray, float, str, tuple[float, float]]] = [
        (joint[np.triu_indices(records, 1)], steps, "two records in the same batch", same),
        (after[~np.eye(records, dtype=np.bool_)], steps - 1, "a record in the batch after another's", later),
    ]
    half = records // 2
    for ones, others, word in (
        (order[: 2 * half : 2], order[1 : 2 * half : 2], "neighbors 1 and 2, 3 and 4, ... in the same batch"),
        (order[:half], order[half : 2 * half], "records half the dataset apart in the same batch"),
        (order[:half], order[::-1][:half], "mirrored records in the same batch"),
    ):
        found.append((np.array([joint[ones, others].sum()]), steps * half, word, same))
    tests = sum(counts.size for counts, _, _, _ in found)
    for counts, trials, word, chances in found:
        if trials < 1 or not counts.size:
            continue
        for value in (float(counts.max()), float(counts.min())):
            exponent = _exponent(value, trials, *chances)
            if exponent > worst:
                worst, pair = exponent, f"{word} {value:.0f} times in {trials:.0f}"
    allowed = math.log(2 * max(tests, 1) / error)
    evidence = f"pairs of records: most unlikely is {pair}, exp(-{worst:.3g}) against exp(-{allowed:.3g}) allowed"
    return worst <= allowed, evidence


def _exponent(value: float, trials: float, low: float, high: float) -> float:
    """n KL(X/n, p) for the p in [low, high] nearest to what was counted."""
    share = value / trials
    return trials * divergence(share, min(max(share, low), high))


def divergence(p: float, q: float) -> float:
    """KL(Bernoulli(p), Bernoulli(q))."""
    if q in (0.0, 1.0):
        return 0.0 if p == q else math.inf
    first = p * math.log(p / q) if p else 0.0
    return first + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


def _group_spread(table: FloatArray, rate: float) -> tuple[float, str]:
    """The spread of how many of a group came, over disjoint groups and all steps, as the most extreme deviate.

    A group's count K of Binomial(g, q) has (K - g q)^2 with mean v = g q (1-q) and variance
    2 v^2 + v (1 - 6 q (1-q)); their mean over n groups and steps is nearly normal.
    """
    steps, records = table.shape
    worst, word = 0.0, "none"
    if rate in (0.0, 1.0):
        return worst, word
    shuffled = np.random.default_rng(records).permutation(records)
    for order, kind in ((np.arange(records), "neighbors"), (shuffled, "random records")):
        for size in GROUPS:
            count = records // size
            if count * steps < 1000:
                continue
            sums = table[:, order[: count * size]].reshape(steps, count, size).sum(axis=2)
            variance = size * rate * (1 - rate)
            width = math.sqrt((2 * variance**2 + variance * (1 - 6 * rate * (1 - rate))) / sums.size)
            deviate = (float(np.mean((sums - size * rate) ** 2)) - variance) / width
            if abs(deviate) > abs(worst):
                worst, word = deviate, f"groups of {size} {kind}"
    return worst, word
