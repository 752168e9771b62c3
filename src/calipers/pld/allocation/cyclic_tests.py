"""Tests on a sum of many scores that is known up to multiples of a number: where they are not too rare, by transforms.

A test may look at anything, so also at the *residue* of a sum of scores, each rounded to a lattice by a coin: the sum
walks around a circle. Its PLD on the circle is a product of transforms, under noise (f_0 the PLD of one score) and with
one round, at whichever place, following another PLD f_i:

    W_0 = f_0^(*M),      W_i = f_0^(*(M - 1)) * f_i.

Nothing is cut and nothing comes in from outside: the circle is the statistic. It is made so long that the sum hardly
ever comes around, which is a matter of power, not of truth. What is added is the error of the transforms, whose
2-norm `calipers.numerics.fourier` bounds: a sum over n places errs by sqrt(n) times that, an absolute number. Ladders
(`calipers.pld.allocation.multi_resolution`), which take five times as long, are accurate relative to the rarest event.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, one_of_another_kind
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.average_tests import EventFamily, family
from calipers.pld.allocation.resolution_plan import typical

_FINER, COARSEST = 0.5, 1.5
"""How much finer than asked for lattices are, and how much coarser they may be where circles would be too long."""
_LONGEST = 1 << 17
_AROUND, _BEYOND = 8.0, 8.0
"""In spreads of the sum: how far the circle reaches beyond where the sum usually is, and how far beyond the threshold a
single score may lie, which has decided the test by then; there is room for two of them on either side."""
_ERROR_TERM = 3e-4
"""The share of what a test shows that transforms may cost it; beyond it a grid is better."""
_THRESHOLDS, _NEAR = 2_500, 40
_DIGITS = 1e-2
"""The share of a test's error rate that the error of transforms may be."""


class CyclicLattice(NamedTuple):
    """A lattice of `size` places from number `first` on, after which it begins anew; scores are cut at both `ends`."""

    step: float
    first: int
    size: int
    ends: tuple[float, float]

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        masses: FloatArray,
        rounds: int,
        sum_threshold: float,
        resolution: float,
        coarsest: float = COARSEST,
    ) -> CyclicLattice | None:
        """A circle for sums of `rounds` scores that are compared with the threshold; None where it would be too
        long.
        """
        order = np.argsort(scores, kind="stable")
        centers, spreads = typical(scores[order], masses[order], np.array([float(rounds)]))
        center, spread = float(centers[0]), float(spreads[0])
        least = max(min(float(scores[order[0]]), 0.0), -2.0 * _BEYOND * spread)
        largest = max(sum_threshold - center, 0.0) + _BEYOND * spread
        start = center - _AROUND * spread + 2.0 * least
        end = max(sum_threshold, center) + 2.0 * largest + _AROUND * spread
        usual = resolution * spread / math.sqrt(rounds)
        step = max(_FINER * usual, (end - start) / _LONGEST)
        if step > coarsest * usual or not step > 0.0:  # no spread: scores that double precision does not tell apart
            return None
        return cls(step, math.floor(start / step), fast_length(math.ceil((end - start) / step) + 1), (least, largest))

    def pmf(self, scores: FloatArray, masses: FloatArray) -> FloatArray:
        """The PLD of one score, each split onto the two places around it, mean preserved."""
        places = np.clip(scores, *self.ends) / self.step
        below = np.floor(places)
        part = places - below
        index = below.astype(np.intp) % self.size
        pmf: FloatArray = np.asarray(np.bincount(index, masses * (1.0 - part), self.size), dtype=np.float64)
        pmf += np.bincount((index + 1) % self.size, masses * part, self.size)
        return pmf

    @property
    def values(self) -> FloatArray:
        """What the places stand for, from the one that holds 0 on."""
        numbers = (np.arange(self.size) - self.first) % self.size + self.first
        return np.asarray(numbers * self.step, dtype=np.float64)

    def families(
        self, p: FloatArray, q: FloatArray, absolute: float, relative: float, tuned: float, sum_threshold: float
    ) -> tuple[EventFamily, EventFamily] | None:
        """Tests on the residue, forward and reversed; any probability errs by `absolute`, and relatively.

        Thresholds lie everywhere, and closest about the threshold, where the best one at the epsilon they are made for
        is. None where that is too much at the epsilon they are `tuned` to, negative if it is that of reversed ones.
        """
        place = min(
            max(sum_threshold / self.step - self.first, -2.0 * _NEAR), self.size + 2.0 * _NEAR
        )  # none is farther
        near = math.floor(place) + np.arange(-_NEAR, _NEAR + 1)
        chosen = np.concatenate((np.arange(0, self.size, -(-self.size // _THRESHOLDS)), near))
        starts = np.unique(chosen[(chosen >= 0) & (chosen < self.size)])
        p, q = (np.add.reduceat(np.roll(row, -(self.first % self.size)), starts) for row in (p, q))
        between = np.asarray((self.first + starts[1:]) * self.step, dtype=np.float64)
        relative += 4.0 * self.size * UNIT_ROUNDOFF
        above = np.cumsum(q[::-1])[::-1][1:], np.cumsum(p[::-1])[::-1][1:]
        below = np.cumsum(p)[:-1], np.cumsum(q)[:-1]
        found = _with_error(above, between, absolute, relative), _with_error(below, between, absolute, relative)
        cost = absolute * (1.0 + math.exp(abs(tuned)))
        return found if cost <= _ERROR_TERM * found[tuned < 0.0].best(abs(tuned))[0] else None


def cyclic_tests(
    scores: FloatArray,
    rows: FloatArray,
    error: float,
    rounds: int,
    share: float,
    tuned: float,
    resolution: float,
    coarsest: float = COARSEST,
) -> tuple[EventFamily, EventFamily] | None:
    """Tests on the sum, forward and reversed, or None where grids are better at the epsilon they are `tuned` to.

    `rows`: masses of the cells with these scores under noise, with the record and without, each up to a relative
    `error`. `share`: how often the record takes part. `tuned` is negative where reversed tests are asked for. Tests
    whose error rates have no digits are left out.
    """
    sum_threshold = rounds * (1.0 - share) * math.expm1(tuned) / share
    circle = (
        CyclicLattice.of(scores, rows[0], rounds, sum_threshold, resolution, coarsest=coarsest) if rounds > 1 else None
    )
    # Of a sum: masses of cells, and what becomes of them in one place.
    relative = 1.01 * rounds * (error + (len(scores) + 8.0) * UNIT_ROUNDOFF)
    if circle is None or relative > _ERROR_TERM:
        return None
    pmfs = [circle.pmf(scores, row) for row in rows]
    (noise, present, absent), lost = one_of_another_kind(pmfs[0], rounds - 1, pmfs)
    p, q = (share * row + (1.0 - share) * noise for row in (present, absent))
    return circle.families(p, q, lost * math.sqrt(circle.size), relative, tuned, sum_threshold)


def _with_error(
    rates: tuple[FloatArray, FloatArray], threshold: FloatArray, absolute: float, relative: float
) -> EventFamily:
    """The tests whose false positive rate is known to some digits."""
    alpha, power = rates
    known = _DIGITS * alpha > absolute
    return family((alpha + absolute)[known], (power - absolute)[known], threshold[known], relative)
