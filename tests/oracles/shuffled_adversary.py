"""Every adaptive adversary of a tiny shuffled epoch, by enumeration: what no upper bound may fall below.

N records are dealt into M batches of B by a uniform permutation, R = N - M B are dropped. Before every round the
adversary chooses a gradient for *every* record, knowing the noisy sums of the rounds before; the record in question
shows its gradient (P), or nothing because it was zeroed out, or that of its replacement (Q). The divergence of what was
seen is the P-mass of the best event minus k times its Q-mass.

How to call it::

    from oracles.shuffled_adversary import Shuffled, line, disc

    epoch = Shuffled(records=3, batch=1, batches=2, sigma=2.0)           # R = 1
    epoch.divergence(k=math.exp(0.5), gradients=line(5))                 # 0.016350: the supremum is 0.016383
    epoch.divergence(k=math.exp(0.5), gradients=line(5), reverse=True)   # zeroed out against present
    Shuffled(3, 1, 2, 2.0, replaced=True).divergence(1.5, line(3))       # the replacement's gradient is chosen as well
    Shuffled(3, 1, 2, 2.0, width=0.5).divergence(1.5, disc(6))           # gradients in two dimensions

The supremum runs over all gradients of the given finite set, one choice per record, round and everything seen before;
nothing is assumed about what a good adversary does. It is a lower bound of the true supremum for three reasons, none of
which needs a tolerance: gradients come from a finite set; the adversary reads every sum only to within cells of `width`
noise deviations (with infinite cells at both ends), whose probabilities are differences of normal distribution
functions, so there is no quadrature; and 1e-12 is taken off for the rounding of at most a few thousand additions.

Cells of 0.1 lose about 0.2 % of a divergence, cells of 0.5 about 6 %. The work is (choices cells)^rounds: below a
second for two rounds on line(3) to line(5), two seconds for three rounds with line(3) and width 0.3, half a minute for
disc(6) or for line(5) in three rounds with width 0.8.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
_ROUNDING = 1e-12
_AT_ONCE = 4_000_000


def line(number: int) -> Floats:
    """`number` gradients from -1 to 1 on a line."""
    return np.linspace(-1.0, 1.0, number)[:, None]


def disc(directions: int) -> Floats:
    """Nothing, and unit vectors in the plane in equally spaced directions."""
    angles = 2.0 * math.pi * np.arange(directions) / directions
    return np.concatenate((np.zeros((1, 2)), np.stack((np.cos(angles), np.sin(angles)), axis=1)))


@dataclass(frozen=True)
class Shuffled:
    """One epoch of `batches` batches of `batch` of `records` records; record 0 is the one in question."""

    records: int
    batch: int
    batches: int
    sigma: float
    replaced: bool = False
    width: float = 0.1
    reach: float = 4.0

    @cached_property
    def arrangements(self) -> list[tuple[tuple[int, ...], ...]]:
        """Who is in which batch, for every permutation that differs in that; all are equally likely."""
        size = self.batch
        found = {
            tuple(tuple(sorted(order[t * size : (t + 1) * size])) for t in range(self.batches))
            for order in itertools.permutations(range(self.records))
        }
        return sorted(found)

    def divergence(self, k: float, gradients: Floats, reverse: bool = False) -> float:
        """At most the supremum over adaptive adversaries of D_k(P||Q), or of D_k(Q||P) if `reverse`."""
        search = _Search(self, k, np.asarray(gradients, dtype=float), reverse)
        uniform = np.full((1, len(self.arrangements)), 1.0 / len(self.arrangements))
        return max(0.0, float(search.value(uniform, uniform, 0)[0]) - _ROUNDING)


class _Search:
    """Backward induction over everything that can be seen, for one k and one set of gradients."""

    def __init__(self, epoch: Shuffled, k: float, gradients: Floats, reverse: bool) -> None:
        self.epoch, self.factors = epoch, (-k, 1.0) if reverse else (1.0, -k)
        shown = epoch.records + epoch.replaced
        everything = list(itertools.product(range(len(gradients)), repeat=shown))
        # Before anything was seen the other records differ by their names only.
        fresh = [c for c in everything if list(c[1 : epoch.records]) == sorted(c[1 : epoch.records])]
        edge = epoch.sigma * epoch.reach + epoch.batch
        count = math.ceil(2.0 * edge / (epoch.width * epoch.sigma))
        self.edges = np.concatenate(([-np.inf], np.linspace(-edge, edge, count + 1), [np.inf]))
        self.members: list[list[int]] = []
        self.seen: list[tuple[Floats, Floats]] = []
        for t in range(epoch.batches):
            batches = sorted({arrangement[t] for arrangement in epoch.arrangements})
            self.members.append([batches.index(arrangement[t]) for arrangement in epoch.arrangements])
            choices = gradients[np.array(fresh if t == 0 else everything)]
            self.seen.append((self._tables(choices, batches, False), self._tables(choices, batches, True)))

    def _tables(self, choices: Floats, batches: list[tuple[int, ...]], absent: bool) -> Floats:
        """Probabilities of the cells (choice x batch x cell) of the noisy sum of a batch, record 0 present or not."""
        tables = []
        for batch in batches:
            mean = choices[:, [i for i in batch if not (absent and i == 0)]].sum(axis=1)
            if absent and 0 in batch and self.epoch.replaced:
                mean = mean + choices[:, -1]
            scaled = (self.edges - mean[:, :, None]) / self.epoch.sigma  # choice x dimension x edge
            # Differences in the tail that is small: ndtr(b) - ndtr(a) = ndtr(-a) - ndtr(-b).
            low, high = scaled[..., :-1], scaled[..., 1:]
            one = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
            cells = one[:, 0]
            for axis in range(1, one.shape[1]):
                cells = (cells[:, :, None] * one[:, axis][:, None, :]).reshape(len(cells), -1)
            tables.append(cells)
        return np.stack(tables, axis=1)

    def value(self, under_p: Floats, under_q: Floats, t: int) -> Floats:
        """The largest gain from round t on; rows are histories, columns the joint masses of the arrangements."""
        if t == self.epoch.batches - 1:
            return self._last(under_p, under_q)
        members, (seen_p, seen_q) = self.members[t], self.seen[t]
        best = np.full(len(under_p), -np.inf)
        for choice_p, choice_q in zip(seen_p, seen_q, strict=True):
            cells = choice_p.shape[1]
            following = [
                (rows[:, None, :] * choice[members].T[None]).reshape(-1, rows.shape[1])
                for rows, choice in ((under_p, choice_p), (under_q, choice_q))
            ]
            total = self.value(following[0], following[1], t + 1).reshape(-1, cells).sum(axis=1)
            best = np.maximum(best, total)
        return best

    def _last(self, under_p: Floats, under_q: Floats) -> Floats:
        """In the last round the event is best: every cell counts if it gains."""
        members, (seen_p, seen_q) = np.array(self.members[-1]), self.seen[-1]
        batches = seen_p.shape[1]
        chosen = np.zeros((len(members), batches))
        chosen[np.arange(len(members)), members] = 1.0
        weights = np.concatenate((self.factors[0] * (under_p @ chosen), self.factors[1] * (under_q @ chosen)), axis=1)
        table = np.concatenate((seen_p, seen_q), axis=1)  # choice x 2 batches x cell
        best = np.full(len(weights), -np.inf)
        rows = max(1, _AT_ONCE // table.shape[2])
        for start in range(0, len(weights), rows):
            part = weights[start : start + rows]
            for choice in table:
                gains = part @ choice
                np.maximum(gains, 0.0, out=gains)
                np.maximum(best[start : start + rows], gains.sum(axis=1), out=best[start : start + rows])
        return best
