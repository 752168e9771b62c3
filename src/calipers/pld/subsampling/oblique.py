"""Truncated batches attacked in a plane: all other gradients are one unit vector e at an angle to the record's u.

Opposite gradients (e = -u) show most of a record that displaces another one, but where batches are not always full the
number of records in them hides it: a full batch with the record in place of another has the sum of a batch that is two
records short. At an angle of more than 90 degrees both show: the sum along e counts the others, and the component of
the record across e is seen next to it. With k records of the unit kept and c others used, the released sum is, in units
of the clipping norm,

    (c + k cos(angle), k sin(angle))      along e and across, with Gaussian noise in both.

Cells of a grid in this plane are an observation that anybody can make. Given k the two coordinates are independent, so
a cell's probability is a sum over k of products. Cells of about equal likelihood ratio count as one outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair
from calipers.pld.division.collinear import RATIO_ERROR, Components, log_cell_masses
from calipers.pld.subsampling.truncated import TruncatedAttack

_FINEST, _ACROSS = 0.05, 0.1
"""The width of cells along e, in deviations of the noise, at least, and across."""
_NEAR_FULL = 24.0
"""Sums that are so many deviations below that of a full batch are not distinguished along e."""
_OUTCOMES = 4_000
"""So many likelihood ratios are distinguished."""
_DEEP, _KNOWN = 60.0, 45.0
"""How far below e^log_tail the probability of what is left out lies; cells that it may be a part of are left out."""
_ROUNDING = 1e-12
"""Relative error of a sum of products of interval masses."""


@dataclass(frozen=True)
class ObliqueAttack(AttainedPair):
    """The records of the unit have gradient u, all others e, at an `angle` in radians; LOWER only.

    `line` says who is kept, and what the unit's records are on the other dataset.
    """

    line: TruncatedAttack
    angle: float

    @property
    def slope(self) -> float:
        """Of one gradient."""
        return self.line.shift

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER: which of a few thousand outcomes the cell of the noisy sum is."""
        return _pmf(self, max(_FINEST, resolution), log_tail)


@lru_cache(maxsize=8)
def _pmf(attack: ObliqueAttack, resolution: float, log_tail: float) -> PrivacyLossPmf:
    line, radius = attack.line, math.sqrt(2.0 * (_DEEP - log_tail))
    weights, used, displaced, own, complete = line.outcomes(log_tail - _DEEP)
    along, across = line.shift * math.cos(attack.angle), line.shift * math.sin(attack.angle)
    others, instead = line.shift * (used - displaced), line.instead
    present = [_Part(weights[:, k], others[:, k] + along * k, across * k) for k in range(len(own))]
    if instead is None:
        absent = [_Part(weights.sum(axis=1), line.shift * used[:, 0], 0.0)]
    else:
        absent = [
            part._replace(along=others[:, k] + instead * along * k, across=instead * part.across)
            for k, part in enumerate(present)
        ]
    highest = max(float(np.max(part.along)) for part in (*present, *absent))
    low = line.shift * line.truncation.largest - _NEAR_FULL
    edges = low + resolution * np.arange(math.ceil((highest + radius - low) / resolution) + 1.0)
    start, end = (pick(part.across for part in (*present, *absent)) for pick in (min, max))
    across_edges = start - radius + _ACROSS * np.arange(math.ceil((end - start + 2.0 * radius) / _ACROSS) + 1.0)
    log_p, log_q = (_cells(some, edges, across_edges, radius).ravel() for some in (present, absent))
    # What is rare on both datasets only burdens the composition; what may be made of what is left out is not known.
    complete = complete and all(float(np.min(part.along)) > low - radius for part in (*present, *absent))
    least = -math.inf if complete else log_tail - _DEEP + _KNOWN
    some = (np.maximum(log_p, log_q) > log_tail) & (np.minimum(log_p, log_q) > least)
    misplaced = 1e-15 * (abs(low) + abs(highest) + radius) * (radius + 1.0 / resolution)
    error = _ROUNDING + line.truncation.rounding + misplaced
    return PrivacyLossPmf.observed(*same_ratio(log_p[some], log_q[some]), error, RATIO_ERROR)


class _Part(NamedTuple):
    """A number of the unit's records kept: probabilities, and where the sum is along e and across."""

    weights: FloatArray
    along: FloatArray
    across: float


def _cells(parts: list[_Part], edges: FloatArray, across_edges: FloatArray, radius: float) -> FloatArray:
    """Log probabilities of all cells, those below the first edge included: a sum over the parts of products."""
    total = np.full((len(edges), len(across_edges) - 1), -np.inf)
    for weights, means, side in parts:
        near = means > edges[0] - radius  # the others have at most e^(-radius^2/2) above the first edge
        with np.errstate(divide="ignore"):
            below = np.log(np.sum(weights * ndtr(edges[0] - means)))
        along = np.append(below, log_cell_masses(Components(weights[near], means[near], 1.0), edges))
        across = log_cell_masses(Components(np.ones(1), np.array([side]), 1.0), across_edges)
        total = np.logaddexp(total, along[:, None] + across)
    return total


def same_ratio(log_p: FloatArray, log_q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cells of about equal ratio as one outcome."""
    ratio = log_p - log_q
    order = np.argsort(ratio, kind="stable")
    width = max((float(ratio[order[-1]]) - float(ratio[order[0]])) / _OUTCOMES, 1e-12)
    starts = np.flatnonzero(np.append(True, np.diff(np.floor((ratio[order] - ratio[order[0]]) / width)) > 0))
    found = []
    for logs in (log_p[order], log_q[order]):
        peaks = np.maximum.reduceat(logs, starts)
        lengths = np.diff(np.append(starts, len(logs)))
        found.append(peaks + np.log(np.add.reduceat(np.exp(logs - np.repeat(peaks, lengths)), starts)))
    return found[0], found[1]
