"""The lower bound of a certificate: cells and scores of a test. Any choice is a valid test; this one is close to the
best.

One step, or one round, is scored by its rounded log likelihood ratio, or by its rounded term of the sum that the best
test of an epoch looks at; sums of rounds are scored by the rounded log of the probabilities that they have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from calipers.certificates.exact import exact
from calipers.certificates.placing import spacing_for
from calipers.certificates.upper import SayProgress, rounded
from calipers.numerics.elementary import bisect
from calipers.numerics.types import FloatArray, IntArray
from calipers_verify import attacks
from calipers_verify.checker import DIRECTIONS, dust_of, fixed_batches
from calipers_verify.reading import read, spend
from calipers_verify.rows import ONE
from calipers_verify.steps import Phase
from calipers_verify.stop_loss import ball, gaussian

_MESH = 40_001
_GROWTH = 0.02
_PER_SPREAD = 9.0
"""Round scores per deviation of a term."""
_MOST_SCORE, _ROUGH_SCORE = 12_000, 1_000
"""Scores of a round; fewer where directions and statistics are only compared."""
_FARTHEST = 96 * 1024
"""No score lies farther out: the checker reads up to 1e5, and this one stays what it is when scores are rounded."""
_LOG_LARGEST = 300.0
"""Ratios beyond this are as good as infinite: no mass in a certificate is below 2^-256, which is e^-178."""


class LowerClaim(NamedTuple):
    """A lower claim: what it says, and the attack that shows it."""

    epsilon: Fraction
    delta: Fraction
    direction: str
    attack: object


def _snapped(values: FloatArray, growth: float = _GROWTH) -> IntArray:
    """Whole numbers near the values: the nearest ones near 0, multiples of a power of two further out."""
    size = np.abs(values)
    step = np.exp2(np.maximum(0.0, np.floor(np.log2(np.maximum(growth * size, 1.0)))))
    return np.asarray(np.rint(np.rint(values / step) * step).astype(np.int64))


def _exp(at: float) -> float:
    """e^at, or a number that is as good as infinite here."""
    return math.exp(min(at, _LOG_LARGEST))


def _runs(scores: IntArray) -> IntArray:
    """Where a new score begins."""
    return np.flatnonzero(np.diff(scores)) + 1


def _cells(mesh: FloatArray, values: FloatArray) -> dict[str, object]:
    """Cuts and scores of an observation whose score at the mesh points is given, in units."""
    scores = _snapped(np.clip(values, -_FARTHEST, _FARTHEST))
    starts = _runs(scores)
    cuts = [Fraction(round(0.5 * (mesh[i - 1] + mesh[i]) * 2**40), 2**40) for i in starts]
    if not cuts:
        cuts, starts = [Fraction(0)], np.array([len(scores) - 1])
    kept = [int(scores[0]), *(int(scores[i]) for i in starts)]
    return {"cuts": [f"{cut.numerator}/{cut.denominator}" for cut in cuts], "scores": kept}


def _mesh(mu: float, small: float) -> FloatArray:
    end = math.sqrt(-2.0 * math.log(small))
    return np.linspace(-end - mu, end + mu, _MESH)


def _step(phase: Phase, back: bool, spacing: float, small: float, dust: int) -> tuple[dict[str, object], attacks.Rows]:
    """Scores of one round that shows the record with some probability: the rounded log likelihood ratio."""
    means = [float(mean.mid()) for mean in attacks.shifts(phase, back)]
    z, q = _mesh(max(map(abs, means)), small), float(phase.share)
    ratios = (mean * z - 0.5 * mean * mean for mean in means)
    log_p, log_q = (np.logaddexp(math.log1p(-q), math.log(q) + ratio) if q < 1 else ratio for ratio in ratios)
    record = _cells(z, (log_p - log_q) / spacing) | {"bins": [], "bin_scores": []}
    cuts, scores, _, _ = read(record, attacks.FACTOR, "a factor")
    return record, attacks.epoch(cuts, scores, phase, back, dust // phase.repeats)


def _epoch(
    phase: Phase, back: bool, spacing: float, small: float, at: float, dust: int, most: int
) -> tuple[dict[str, object], attacks.Rows]:
    """Scores of the rounds, and bins of their sum, with what the checker finds of an epoch.

    `at`: the log ratio at which the sum is the best statistic.
    """
    means = [float(mean.mid()) for mean in attacks.shifts(phase, back)]
    z = _mesh(max(map(abs, means)), small / phase.rounds)
    logs = means[0] * z - 0.5 * means[0] ** 2, at + means[1] * z - 0.5 * means[1] ** 2
    terms = np.subtract(*(np.exp(np.minimum(each, _LOG_LARGEST)) for each in logs))
    weights = np.exp(-0.5 * z * z)
    weights /= weights.sum()
    middle = float(np.sum(weights * terms))
    usual = np.abs(z) < 0.5 + math.sqrt(2.0 * math.log(50.0 * phase.rounds))
    spread = math.sqrt(float(np.sum(weights[usual] * (terms[usual] - middle) ** 2)))
    # Far terms decide a heavy tail: scores reach as far as the whole sum has to go for a ratio of e^at, and then some.
    farthest = 3.0 * phase.rounds * (1.0 + _exp(abs(at))) + 10.0 * spread
    farthest = min(farthest, float(np.max(np.abs(terms - middle))))
    unit = max(spread / _PER_SPREAD, farthest / most)
    values = np.clip((terms - middle) / unit, -most, most)
    record = _cells(z, values) | {"bins": [], "bin_scores": []}
    cuts, scores, _, _ = read(record, attacks.FACTOR, "a factor")
    total = attacks.epoch(cuts, scores, phase, back, dust // phase.repeats)
    p, q = (np.array([int(mass) / ONE for mass in row.masses]) for row in total)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((p > 0) & (q > 0), np.log(p) - np.log(q), -np.inf)
    lowest = float(np.min(ratio[np.isfinite(ratio)], initial=0.0))
    found = _snapped(np.clip(np.maximum(ratio, lowest) / spacing, -_FARTHEST, _FARTHEST))
    starts = _runs(found)
    if len(starts) == 0:
        starts = np.array([len(found) - 1])
    bins = [total[0].low + int(i) for i in starts]
    bin_scores = [int(found[0]), *(int(found[i]) for i in starts)]
    return record | {"bins": bins, "bin_scores": bin_scores}, attacks.binned(total, bins, bin_scores)


class LowerAttack:
    """The best of a few tests at about (epsilon, delta); one that shows what is `enough`, a pair, ends the search."""

    def __init__(
        self,
        phases: list[Phase],
        epsilon: float,
        delta: float,
        share: float,
        say: SayProgress,
        enough: tuple[float, float],
    ) -> None:
        self.phases, self.dust = phases, dust_of(exact(delta))
        self.found: list[tuple[str, dict[str, object], attacks.Rows]] = []
        self.mu = None
        if any(phase.kind in ("realized", "size") for phase in phases):
            return  # no attack on these is checked
        if not any(phase.is_hidden for phase in phases):
            self.mu = fixed_batches(phases, "lower")
            return
        steps = sum(phase.repeats for phase in phases)
        spacing = float(spacing_for(epsilon, delta, steps, share))
        hidden = sum(phase.repeats for phase in phases if phase.rounds > 1)
        tuned = sorted({epsilon / max(1, hidden), epsilon / math.sqrt(max(1, hidden))}) if hidden else [epsilon]
        orientations = [
            (orientation, at) for orientation in (DIRECTIONS[:1] if phases[0].replaced else DIRECTIONS) for at in tuned
        ]
        for number, (orientation, at) in enumerate(orientations, 1):
            say(f"looking for an attack, {number} of {len(orientations)}")
            self._try(orientation, at, spacing, delta / steps / 100.0, _ROUGH_SCORE if hidden else _MOST_SCORE)
            if not hidden and self._shown(self.found[-1], enough[0]) >= enough[1]:
                break  # the bracket closes: no other direction shows more than is proven
        if hidden:  # the best of them again, with care
            self.found, found = [], [self._shown(one, epsilon) for one in self.found]
            say("sharpening the best attack")
            orientation, at = orientations[found.index(max(found))]
            self._try(orientation, at, spacing, delta / steps / 100.0, _MOST_SCORE)

    def _shown(self, found: tuple[str, dict[str, object], attacks.Rows], epsilon: float) -> float:
        """The largest delta at about epsilon."""
        p, q = self._tails(found[2])
        return float(np.max(p - _exp(epsilon) * q))

    def _try(self, direction: str, at: float, spacing: float, small: float, most: int) -> None:
        spend(0, anew=True)
        back = direction == DIRECTIONS[1]
        found = [
            _epoch(phase, back, spacing, small, at, self.dust, most)
            if phase.rounds > 1
            else _step(phase, back, spacing, small, self.dust)
            for phase in self.phases
        ]
        attack: dict[str, object] = {"factors": [record for record, _ in found], "threshold": 0}
        parts = [(rows, phase.repeats) for (_, rows), phase in zip(found, self.phases, strict=True)]
        self.found.append((direction, attack, attacks.total(parts, self.dust)))

    def _rows(self, direction: str, attack: dict[str, object]) -> attacks.Rows:
        """What the checker finds of an attack."""
        factors = read(attack, attacks.ATTACK, "an attack")[0]
        return attacks.tested(factors, self.phases, direction == DIRECTIONS[1], self.dust)

    def _tails(self, rows: attacks.Rows) -> tuple[FloatArray, FloatArray]:
        """p and q of the tests "at least this place", for every place."""
        p, q = (np.array([int(mass) / ONE for mass in masses])[::-1] for masses in (row.masses for row in rows))
        return np.cumsum(p)[::-1], np.cumsum(q)[::-1]

    def largest_epsilon(self, delta: Fraction) -> LowerClaim | None:
        """The largest epsilon of seven digits at which a test shows delta."""
        if self.mu is not None:
            return self._gaussian(delta)

        def reached(p: FloatArray, q: FloatArray) -> FloatArray:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(p > float(delta), np.log((p - float(delta)) / q), -np.inf)

        return self._best(reached, lambda epsilon: (epsilon, delta))

    def largest_delta(self, epsilon: Fraction) -> LowerClaim | None:
        """The largest delta of seven digits that a test shows at epsilon.

        The checker cuts what is small next to the delta claimed: where more is shown than was expected, as much is cut
        here before it is claimed.
        """
        if self.mu is not None:
            exactly = rounded(float(gaussian(self.mu, ball(epsilon)).mid()) * (1.0 - 1e-9), False)
            return LowerClaim(epsilon, exactly, DIRECTIONS[0], "fixed-batches") if exactly > 0 else None
        shown = self._best(lambda p, q: p - _exp(float(epsilon)) * q, lambda delta: (epsilon, delta))
        if shown is None or dust_of(shown.delta) <= self.dust:
            return shown
        spend(0, anew=True)
        self.dust = dust_of(shown.delta)
        self.found = [(orientation, attack, self._rows(orientation, attack)) for orientation, attack, _ in self.found]
        return self._best(lambda p, q: p - _exp(float(epsilon)) * q, lambda delta: (epsilon, delta))

    def _best(
        self,
        reached: Callable[[FloatArray, FloatArray], FloatArray],
        claimed: Callable[[Fraction], tuple[Fraction, Fraction]],
    ) -> LowerClaim | None:
        """The test that reaches most, if the checker agrees with what is then claimed."""
        most, best = 0.0, None
        for direction, attack, rows in self.found:
            values = reached(*self._tails(rows))
            place = int(np.argmax(values))
            if values[place] > most:
                epsilon, delta = claimed(rounded(float(values[place]) * (1.0 - 1e-9), False))
                if attacks.delta_shown(rows, rows[0].low + place, epsilon) >= ball(delta):
                    whole = attack | {"threshold": rows[0].low + place}
                    most, best = float(values[place]), LowerClaim(epsilon, delta, direction, whole)
        return best

    def _gaussian(self, delta: Fraction) -> LowerClaim | None:
        mu = self.mu
        assert mu is not None
        low, high, bound = 0.0, 1.0, ball(delta)
        if not gaussian(mu, ball(Fraction(0))) >= bound:
            return None
        while gaussian(mu, ball(Fraction(high))) >= bound:
            low, high = high, 2.0 * high
        low, _ = bisect(low, high, lambda epsilon: gaussian(mu, ball(Fraction(epsilon))) >= bound, 60)
        return LowerClaim(rounded(low, False), delta, DIRECTIONS[0], "fixed-batches")
