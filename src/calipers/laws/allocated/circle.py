"""Tests on a sum of many scores that is known up to multiples of a number: where they are not too rare, by transforms.

A test may look at anything, so also at the *residue* of a sum of scores, each rounded to a lattice by a coin: the sum
walks around a circle. Its law on the circle is a product of transforms, under noise (f_0 the law of one score) and with
one round, at whichever place, following another law f_i:

    W_0 = f_0^(*M),      W_i = f_0^(*(M - 1)) * f_i.

Nothing is cut and nothing comes in from outside: the circle is the statistic. It is made so long that the sum hardly
ever comes around, which is a matter of power, not of truth. What is charged is the error of the transforms, whose
2-norm `calipers.numerics.fourier` bounds: a sum over n places errs by sqrt(n) times that, an absolute number. Ladders
(`calipers.laws.allocated.average_ladder`), which take five times as long, are accurate relative to the rarest event.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calipers.laws.allocated.average_plan import typical
from calipers.laws.allocated.average_tests import EventFamily, family
from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, one_of_another_kind
from calipers.numerics.types import FloatArray

_FINER, _COARSEST, _LONG = 0.5, 1.5, 1 << 15
"""Lattices are this much finer than asked for, or as fine as circles of so many places allow, down to the other end."""
_AROUND, _BEYOND = 8.0, 8.0
"""In spreads of the sum: how far the circle reaches beyond where the sum usually is, and how far beyond the threshold a
single score may lie, which has decided the test by then; there is room for two of them on either side."""
_CHARGED = 3e-4
"""The share of what a test shows that transforms may cost it; beyond it a ladder is better."""
_THRESHOLDS = 2_500
_DIGITS = 1e-2
"""The share of a test's error rate that the error of transforms may be."""


class Circle(NamedTuple):
    """A lattice of `size` places from number `first` on, after which it begins anew; scores are cut at both `ends`."""

    step: float
    first: int
    size: int
    ends: tuple[float, float]

    @classmethod
    def of(cls, scores: FloatArray, masses: FloatArray, rounds: int, strike: float, resolution: float) -> Circle | None:
        """A circle for sums of `rounds` scores that are compared with the strike; None where it would be too long."""
        order = np.argsort(scores, kind="stable")
        centers, spreads = typical(scores[order], masses[order], np.array([float(rounds)]))
        center, spread = float(centers[0]), float(spreads[0])
        least = max(float(scores[order[0]]), -2.0 * _BEYOND * spread)
        largest = max(strike - center, 0.0) + _BEYOND * spread
        start = center - _AROUND * spread + min(2.0 * least, 0.0)
        end = max(strike, center) + 2.0 * largest + _AROUND * spread
        usual = resolution * spread / math.sqrt(rounds)
        step = max(_FINER * usual, (end - start) / _LONG)
        if step > _COARSEST * usual:
            return None
        return cls(step, math.floor(start / step), fast_length(math.ceil((end - start) / step) + 1), (least, largest))

    def law(self, scores: FloatArray, masses: FloatArray) -> FloatArray:
        """The law of one score, each split onto the two places around it, mean preserved."""
        places = np.clip(scores, *self.ends) / self.step
        below = np.floor(places)
        part = places - below
        index = below.astype(np.int64) % self.size
        law: FloatArray = np.asarray(np.bincount(index, masses * (1.0 - part), self.size), dtype=np.float64)
        law += np.bincount((index + 1) % self.size, masses * part, self.size)
        return law

    def families(
        self, p: FloatArray, q: FloatArray, absolute: float, relative: float
    ) -> tuple[EventFamily, EventFamily]:
        """Tests on the residue, forward and reversed; the laws err by `absolute` in the 2-norm, and relatively."""
        stride = -(-self.size // _THRESHOLDS)
        p, q = (
            np.add.reduceat(np.roll(row, -(self.first % self.size)), np.arange(0, self.size, stride)) for row in (p, q)
        )
        places = stride * np.arange(1, len(p))
        between = (self.first + places) * self.step
        relative += 4.0 * self.size * UNIT_ROUNDOFF
        above = (np.cumsum(row[::-1])[::-1][1:] for row in (q, p))
        below = (np.cumsum(row)[:-1] for row in (p, q))
        return (
            _charged(*above, between, absolute * np.sqrt(self.size - places), relative),
            _charged(*below, between, absolute * np.sqrt(places), relative),
        )


def circle_tests(
    scores: FloatArray, rows: FloatArray, error: float, rounds: int, share: float, tuned: float, resolution: float
) -> tuple[EventFamily, EventFamily] | None:
    """Tests on the sum, forward and reversed, or None where ladders are better at the epsilon they are `tuned` to.

    `rows`: masses of the cells with these scores under noise, with the record and without, each up to a relative
    `error`. `share`: how often the record takes part; `tuned` is negative where reversed tests are asked for. Tests whose error rates have no digits are left out.
    """
    strike = rounds * (1.0 - share) * math.expm1(tuned) / share
    circle = Circle.of(scores, rows[0], rounds, strike, resolution) if rounds > 1 else None
    # Masses, and what becomes of them in a place, once for every round.
    relative = 1.01 * rounds * (error + (len(scores) + 8.0) * UNIT_ROUNDOFF)
    if circle is None or relative > _DIGITS**2:
        return None
    laws = [circle.law(scores, row) for row in rows]
    (noise, present, absent), absolute = one_of_another_kind(laws[0], rounds - 1, laws)
    p, q = (share * row + (1.0 - share) * noise for row in (present, absent))
    found = circle.families(p, q, absolute * (1.0 + 1e-9), relative)
    cost = absolute * math.sqrt(circle.size) * (1.0 + math.exp(abs(tuned)))
    return found if cost <= _CHARGED * found[tuned < 0.0].best(abs(tuned))[0] else None


def _charged(
    alpha: FloatArray, power: FloatArray, threshold: FloatArray, absolute: FloatArray, relative: float
) -> EventFamily:
    """The tests whose false positive rate is known to some digits."""
    known = _DIGITS * alpha > absolute
    return family((alpha + absolute)[known], (power - absolute)[known], threshold[known], relative)
