"""Truncated batches attacked through displaced records: all others are one unit vector at an angle to the record's u.

Where a batch is full, a record that is kept displaces another one. Others that oppose it (pi: on one line with it) show
most of that, but where batches are not always full the number of records in them hides it: a full batch with the record
in place of another has the sum of a batch that is two records short. At an angle of more than 90 degrees both show: the
sum along the others' e counts them, and the component of the record across e is seen next to it. With k records of the
unit kept and c others used, the released sum is, in units of the clipping norm,

    (c + k cos(angle), k sin(angle))      along e and across, with Gaussian noise in both.

Cells of a grid in this plane, or on the line, are an observation that anybody can make. Given k the two coordinates are
independent, so a cell's probability is a sum over k of products. Cells of about equal likelihood ratio count as one
outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from calipers.numerics.binomial import binomial_window
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import AttainedPair
from calipers.pld.division.collinear import RATIO_ERROR, Components, Mixtures, log_cell_masses, mixture_pmf
from calipers.pld.division.realized import merged_cells
from calipers.pld.subsampling.truncation import Truncation

_FINEST, _ACROSS = 0.05, 0.1
"""The width of cells along e, in deviations of the noise, at least, and across."""
_NEAR_FULL = 24.0
"""In the plane, sums that are so many deviations below that of a full batch are not distinguished along e."""
_DEEP, _KNOWN = 60.0, 45.0
"""How far below e^log_tail the probability of what is left out lies; cells that it may be a part of are left out."""
_ROUNDING = 1e-12
"""Relative error of a sum of products of interval masses."""
_INSTEAD = {"zero-out": 0, "substitute": -1}
"""The gradient along u that a record of the unit has on the other dataset, where it is there."""


class Part(NamedTuple):
    """A number of the unit's records kept: probabilities, and where the sum is along e and across."""

    weights: FloatArray
    along: FloatArray
    across: float


@dataclass(frozen=True)
class ObliqueAttack(AttainedPair):
    """The records of the unit have gradient u, all others e, at an `angle` in radians up to pi; LOWER only."""

    truncation: Truncation
    shift: float
    adjacency: str
    angle: float = math.pi

    @property
    def slope(self) -> float:
        """Of one gradient."""
        return self.shift

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The PLD on Side.LOWER: which cell the noisy sum is in."""
        return _pmf(self, max(_FINEST, resolution), log_tail)

    def parts(self, log_outside: float) -> tuple[list[Part], list[Part], bool]:
        """The sums without and with the unit, and whether all numbers of others are there, but for e^log_outside."""
        cut, window = self.truncation, binomial_window(self.truncation.others, self.truncation.rate, log_outside)
        room = window.values < (cut.largest - cut.free[-1] if len(cut.free) else math.inf)
        used = np.concatenate((window.values[room], cut.largest - cut.free))
        weights = np.vstack((np.outer(window.weights[room], cut.joining), cut.probabilities[:, None] * cut.kept))
        cosine, sine = math.cos(self.angle), 0.0 if self.angle == math.pi else math.sin(self.angle)

        def kept(own: int, gradient: int) -> Part:
            beside = np.minimum(used, cut.largest - own)  # the others beside `own` records of the unit
            along = self.shift * (beside + gradient * own * cosine)
            return Part(weights[:, own], along, self.shift * gradient * own * sine)

        owned = range(weights.shape[1])
        absent = [Part(weights.sum(axis=1), self.shift * used, 0.0)]
        if self.adjacency != "add-remove":
            absent = [kept(own, _INSTEAD[self.adjacency]) for own in owned]
        complete = window.values[0] == 0.0 and window.values[-1] >= min(cut.others, cut.largest)
        return absent, [kept(own, 1) for own in owned], bool(complete)

    def on_line(self, log_outside: float) -> Mixtures:
        """The same where the others oppose the unit: sums are whole numbers of gradients."""
        *both, complete = self.parts(log_outside)
        absent, present = (self._components(parts) for parts in both)
        return absent, present, complete

    def _components(self, parts: list[Part]) -> Components:
        counts = np.rint(np.concatenate([part.along for part in parts]) / self.shift)
        places, index = np.unique(counts, return_inverse=True)
        weights = np.zeros(len(places))
        np.add.at(weights, index, np.concatenate([part.weights for part in parts]))
        return Components(weights, self.shift * places, 1.0)


@lru_cache(maxsize=16)
def _pmf(attack: ObliqueAttack, resolution: float, log_tail: float) -> PrivacyLossPmf:
    cut, radius = attack.truncation, math.sqrt(2.0 * (_DEEP - log_tail))
    if attack.angle == math.pi:
        return mixture_pmf(attack.on_line, resolution, log_tail, cut.rounding)
    absent, present, complete = attack.parts(log_tail - _DEEP)
    both = (*absent, *present)
    highest = max(float(np.max(part.along)) for part in both)
    low = attack.shift * cut.largest - _NEAR_FULL
    edges = low + resolution * np.arange(math.ceil((highest + radius - low) / resolution) + 1.0)
    start, end = (pick(part.across for part in both) for pick in (min, max))
    across_edges = start - radius + _ACROSS * np.arange(math.ceil((end - start + 2.0 * radius) / _ACROSS) + 1.0)
    log_p, log_q = (_cells(some, edges, across_edges, radius).ravel() for some in (present, absent))
    # What is rare on both datasets only burdens the composition; what may be made of what is left out is not known.
    complete = complete and all(float(np.min(part.along)) > low - radius for part in both)
    least = -math.inf if complete else log_tail - _DEEP + _KNOWN
    some = (np.maximum(log_p, log_q) > log_tail) & (np.minimum(log_p, log_q) > least)
    misplaced = 1e-15 * (abs(low) + abs(highest) + radius) * (radius + 1.0 / resolution)
    error = _ROUNDING + cut.rounding + misplaced
    return PrivacyLossPmf.observed(*merged_cells(log_p[some], log_q[some]), error, RATIO_ERROR)


def _cells(parts: list[Part], edges: FloatArray, across_edges: FloatArray, radius: float) -> FloatArray:
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
