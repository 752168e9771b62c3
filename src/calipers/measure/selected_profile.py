"""The profile of the best of a random number of trials, from the guarantee of one as a curve.

`calipers.mechanisms.selection` has both lemmas. A curve is a pair of atoms that dominates one trial, and the mean of a
convex function of its ratio is a sum over them: nothing is interpolated. Every a proves something; which is the best
for an epsilon is looked for.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Side
from calipers.curves.envelope import profile_nodes
from calipers.curves.rdp_curve import rdp_tradeoff
from calipers.curves.tradeoff import TradeoffCurve
from calipers.mechanisms.selection import Trials
from calipers.numerics.elementary import bisect
from calipers.numerics.types import FloatArray

_PLACES = np.geomspace(1e-6, 40.0, 36)
_CLOSER = np.linspace(0.0, 1.0, 8)[1:-1]
"""Where a is looked for: first anywhere, then between the neighbors of the best."""
_BISECTIONS, _PRECISE = 60, 1e-6
_ORDERS = np.concatenate((np.geomspace(1.01, 2.0, 12), np.geomspace(2.2, 40.0, 14)))
"""Of moments that say something about large deltas."""
_ERROR_TERM = 1.0 + 1e-11
_LARGE = 1e-3
"""Where delta is larger, one curve for all epsilons and both orders says more than what is found at one epsilon."""
_NODES, _FEWEST, _TERMS, _KNOTS = 400, 80, 1_000_000, 7
"""Of a curve: most and fewest nodes, terms of all sums for them, and at how many of them a is looked for."""


@dataclass(frozen=True, eq=False)
class SelectedProfile:
    """What is proven of the best of several trials, each with this guarantee."""

    trials: Trials
    one: TradeoffCurve

    @functools.cached_property
    def shift(self) -> float:
        """The smallest r found: a grows, D(a) falls, and the maximum is least where they meet."""

        def profile(at: float) -> float:
            return float(self.one.delta(at))

        total, shift = profile(0.0), self.trials.log_shift
        low, high = 0.0, 1.0
        while high < 500.0 and shift(profile(high), 0.0, total) > shift(0.0, high, total):
            low, high = high, 2.0 * high

        def above(at: float) -> bool:
            return shift(profile(at), 0.0, total) > shift(0.0, at, total)

        low, high = bisect(low, high, above, 0 if self.trials.poisson else _BISECTIONS, share=1e-3)
        return min(shift(profile(at), at, total) for at in (low, high))

    @functools.cached_property
    def distance(self) -> float:
        """The total variation distance, trials coupled one by one."""
        return min(1.0, float(self.trials.missed(np.array([float(self.one.delta(0.0))]))[0]) * _ERROR_TERM)

    @functools.cached_property
    def _atoms(self) -> tuple[FloatArray, FloatArray]:
        """P-masses and log ratios; what only P shows has infinite odds and the last mass."""
        masses, _, beyond, _ = self.one.atoms
        some = masses > 0.0  # odds of 0 have no logarithm
        return np.append(masses[some], beyond), np.append(np.log(self.one.odds[some]), 1e300)

    @functools.cached_property
    def _deltas(self) -> FloatArray:
        return self.one.delta(_PLACES)

    def _mean(self, at: float, delta_at: float, epsilon: float) -> float:
        masses, log_ratio = self._atoms
        return self.trials.mean * float(masses @ self.trials.spread(log_ratio, at, delta_at, epsilon)) * _ERROR_TERM

    def _place(self, epsilon: float, rounds: int = 2) -> tuple[float, float]:
        """About the best a, and its D(a)."""
        places, deltas = _PLACES, self._deltas
        for left in range(rounds, -1, -1):
            found = [self._mean(float(at), float(d), epsilon) for at, d in zip(places, deltas, strict=True)]
            best = int(np.argmin(found))
            if left:
                low, high = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
                places = np.append(low * (high / low) ** _CLOSER, places[best])
                deltas = self.one.delta(places)
        return float(places[best]), float(deltas[best])

    def delta(self, epsilon: float) -> float:
        """The least that is found."""
        found = min(self.distance, self._mean(*self._place(epsilon), epsilon))
        return found if found < _LARGE else min(found, float(self.curve.delta(epsilon)))

    def epsilon(self, delta: float) -> float:
        """The least that is found."""
        if delta >= self.distance:
            return 0.0
        found = self.shift + self.one.epsilon(delta / self.trials.mean * (1.0 - 1e-15))
        better = self._below(found, delta)
        while better < found * (1.0 - _PRECISE):
            found, better = better, self._below(better, delta)
        return better if delta < _LARGE else min(better, self.curve.epsilon(delta))

    def _below(self, high: float, delta: float) -> float:
        """The epsilon of the a that is best at `high`, if it is less."""
        if not math.isfinite(high):
            return high
        at, delta_at = self._place(high)

        def fails(epsilon: float) -> bool:
            return not self._mean(at, delta_at, epsilon) <= delta

        return high if fails(high) else bisect(0.0, high, fails, _BISECTIONS, share=1e-7)[1]

    @functools.cached_property
    def curve(self) -> TradeoffCurve:
        """The first lemma at the nodes of one trial's profile, the mean of profiles at some, and the distance at 0."""
        nodes = profile_nodes(self.one.odds)
        deltas = self.trials.mean * self.one.delta(nodes) * (1.0 + 1e-12)
        count = max(_FEWEST, min(_NODES, _TERMS // len(self._atoms[0])))
        some = nodes[np.unique(np.linspace(0, len(nodes) - 1, count // 2).astype(np.intp))]
        some = np.unique(np.concatenate((some, some + self.shift)))
        # Between a few epsilons the best a is guessed: any will do.
        knots = some[np.linspace(0, len(some) - 1, _KNOTS).astype(np.intp)]
        logs = [math.log(self._place(float(knot), 0)[0]) for knot in knots]
        places = np.exp(np.interp(some, knots, logs))
        asked = zip(places, self.one.delta(places), some, strict=True)
        means = [self._mean(float(at), float(delta_at), float(epsilon)) for at, delta_at, epsilon in asked]
        large, allowed = self._by_moments()
        epsilons = np.concatenate((nodes + self.shift, some, [0.0], large))
        proven = np.minimum(np.concatenate((deltas, means, [self.distance], allowed)), 1.0)
        return TradeoffCurve.from_profile(epsilons, proven, side=Side.UPPER, symmetric=True)

    def _by_moments(self) -> tuple[FloatArray, FloatArray]:
        """Nodes where delta is large: nothing but what is proven already, unless the number of trials is Poisson."""
        if not self.trials.poisson or len(self._atoms[0]) == 1:
            return np.zeros(0), np.zeros(0)
        (masses, log_ratio), near = self._atoms, self.one.delta(np.log1p(1.0 / (_ORDERS - 1.0)))
        asked = zip(_ORDERS.tolist(), near.tolist(), strict=True)
        found = np.array(
            [self.trials.moment(t, masses[:-1], log_ratio[:-1], float(masses[-1]), delta) for t, delta in asked]
        )
        implied = rdp_tradeoff(_ORDERS, found[:, 0], 100)
        nodes = profile_nodes(implied.odds)
        return nodes, implied.delta(nodes) + float(found[:, 1].max())
