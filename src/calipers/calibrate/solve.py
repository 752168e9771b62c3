"""Calibration: the smallest noise multiplier whose upper bound meets a target.

Every leakage falls as noise grows, on a log-log scale almost along a line, so a bracketing secant search needs few
measurements: in two passes, coarse ones find the place, fine ones settle it. At the answer the *upper* bound was
computed and meets the target; at a multiplier smaller by the relative tolerance it was computed and does not.
Measurements that take seconds (shuffled batches) end once the answer is about 5e-4 above the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from calipers.bracket import Bracket, Side
from calipers.calibrate.estimate import BEYOND, NoiseAndBound, aimed, close_enough, crossed, likely_noise
from calipers.calibrate.out_of_reach import out_of_reach, searchable, with_noise
from calipers.domains import RESOLVED, TOLERANCE, Domain
from calipers.errors import CertificationError, InputError
from calipers.measure import CorrelatedNoise, JointRelease, Measurement, Selection, measure
from calipers.measure.correlated import TREE
from calipers.mechanisms.gaussian import NOISE
from calipers.phases import as_phases
from calipers.run import Run
from calipers.samplers import scheme_of
from calipers.synonyms import key_named

_COARSE, _NEAR, _UNSURE = 1e-2, (0.1, 0.05), (0.1, 0.03)
"""The tolerance of coarse measurements, how near to the target they end, and by what share their slope may err: the
second where they take much less time than fine ones."""
_MOST_MEASUREMENTS = 80
_TINY_EPSILON = 1e-3

More = CorrelatedNoise | Selection | JointRelease
"""What is measured as a run is, and has noise that can be changed."""

SearchProgress = Callable[[float, float], None]
"""Called with (noise_multiplier, upper bound) after every measurement."""


@dataclass(frozen=True)
class Calibration:
    """What has an upper bound that meets the target, and what it achieves.

    `found` are the phases of a run; or more than a run: one with correlated noise, the best of several, or one with
    something released in addition to the gradient.
    """

    found: tuple[Run, ...] | More
    target: dict[str, float]
    achieved: Bracket
    measurements: int

    @property
    def phases(self) -> tuple[Run, ...]:
        """Of the run; there is none next to correlated noise."""
        if isinstance(self.found, Selection | JointRelease):
            return as_phases(self.found.of)  # type: ignore[arg-type]  # `_Noisy` has refused guarantees
        return self.found if isinstance(self.found, tuple) else ()

    @property
    def run(self) -> Run | CorrelatedNoise:
        """The first phase, or the run with correlated noise."""
        return self.found if isinstance(self.found, CorrelatedNoise) else self.phases[0]

    @property
    def noise_multiplier(self) -> float:
        """The smallest noise multiplier found; that of the first phase, where there are several."""
        return self.run.noise_multiplier

    @property
    def noise_multipliers(self) -> tuple[float, ...]:
        """The noise multiplier of every phase."""
        return tuple(phase.noise_multiplier for phase in self.phases) or (self.noise_multiplier,)

    @property
    def release_keys(self) -> dict[str, object]:
        """What a run file says next to the phases: how one of several runs is selected, what else is released.

        All of it where the noise is correlated; its matrix is named, and has to lie next to the file.
        """
        found = self.found
        if isinstance(found, CorrelatedNoise):
            keys = dict(found.stated.keys) | {"adjacency": found.adjacency}
            return keys | ({"noise_matrix": TREE} if found.matrix.tree_nodes else {})
        if isinstance(found, Selection):
            chosen = {"selected_mean": found.mean, "trials": found.trials}
            return chosen | ({} if found.shape is None else {"trials_shape": found.shape})
        return {"additional_query": list(found.noises)} if isinstance(found, JointRelease) else {}

    def measured(self, tolerance: float) -> Measurement:
        """The measurement of what was found.

        Args:
            tolerance: how far apart the bounds may be, relatively.

        Returns:
            Its bounds; the upper one meets the target.
        """
        return measure(self.found, tolerance=tolerance)


@dataclass(frozen=True)
class _SearchTarget:
    """A leakage to read off a measurement, and the value it may not exceed."""

    value: float
    upper: Callable[[Measurement], float]
    """What the search reads: the upper bound alone, where computing the lower one as well takes longer."""
    achieved: Callable[[Measurement], Bracket]
    described: dict[str, float]
    most: float = math.inf
    """What the leakage cannot exceed: as it comes near, it falls with noise as what is left to it grows."""

    def excess(self, upper: float) -> float:
        """How far the upper bound lies above the target, on a scale on which noise has an even effect: > 0 above it."""
        if upper <= 0.0:
            return -math.inf
        if upper >= self.most > self.value:
            return math.inf
        far = math.log(upper / self.value)
        if self.value < self.most < math.inf:
            far += math.log((self.most - self.value) / (self.most - upper))
        return far


_TOGETHER = (("epsilon", "delta"), ("mu",), ("advantage",), ("tpr", "fpr"))
_DOMAINS = dict.fromkeys(("epsilon", "mu"), Domain(0.0, 1e12, low_open=True)) | {"delta": Domain(1e-300, 0.99)}
TARGETS = {name: _DOMAINS.get(name, RESOLVED) for names in _TOGETHER for name in names}
"""What makes up a target, and where it may lie: a delta near 1 promises next to nothing."""


def one_target(wanted: Mapping[str, float | None], written: str = "{}") -> dict[str, float]:
    """What makes up the one target that is named; refusals have the names as whoever asks has `written` them."""
    given = {name: value for name in TARGETS if (value := wanted.get(name)) is not None}
    begun = [names for names in _TOGETHER if given.keys() & set(names)]
    if not begun:
        listed = ", or ".join(" with ".join(map(written.format, names)) for names in _TOGETHER)
        raise InputError(f"Name a target: {listed}.")
    if len(begun) > 1:
        named = " and ".join(written.format(next(name for name in names if name in given)) for names in begun)
        raise InputError(f"{named} contradict each other: they are different targets; name one.")
    for missing in begun[0]:
        if missing not in given:
            raise InputError(f"{written.format(*given)} needs {written.format(missing)} as well.")
    return given


def _target(delta0: float, **wanted: float | None) -> _SearchTarget:
    if unknown := wanted.keys() - TARGETS.keys():
        meant = [f" Did you mean {key!r}?" for name in sorted(unknown) if (key := key_named(name)) in TARGETS]
        raise TypeError(f"There is no target {', '.join(sorted(unknown))}.{''.join(meant)}")
    given = one_target(wanted)
    for name, value in given.items():
        TARGETS[name].check(name, value)
    if "mu" in given:
        described = {**given, "delta0": delta0}
        upper = lambda m: m.evaluation.upper.alone.mu(delta0, m.tolerance)  # noqa: E731
        return _SearchTarget(given["mu"], upper, lambda m: m.gdp(delta0).mu, described)
    if "advantage" in given:
        upper = lambda m: m.evaluation.upper.delta(0.0, m.tolerance).value  # noqa: E731
        return _SearchTarget(given["advantage"], upper, Measurement.advantage, given, 1.0)
    if "epsilon" in given:
        epsilon, delta = given["epsilon"], given["delta"]
        if epsilon < _TINY_EPSILON:
            # Near its end epsilon(delta) falls to 0 as off a cliff; delta(epsilon) is smooth, and as good a proof.
            return _SearchTarget(delta, lambda m: _delta(m, epsilon), lambda m: _met(m, epsilon, delta), given)
        return _SearchTarget(epsilon, lambda m: _epsilon(m, delta), lambda m: m.epsilon(delta), given)
    tpr, fpr = given["tpr"], given["fpr"]
    if tpr <= fpr:
        raise InputError(f"Expected tpr > fpr, got tpr={tpr} and fpr={fpr}: guessing alone reaches TPR = FPR.")
    # Leakage beyond guessing is what vanishes with noise, so the search is on TPR - FPR.
    return _SearchTarget(tpr - fpr, lambda m: _beyond(m, fpr), lambda m: m.tpr(fpr), given, 1.0 - fpr)


def _epsilon(measurement: Measurement, delta: float) -> float:
    """The upper bound that `measure` finds; where proof and attack are of one pair, they are computed together."""
    both = measurement.evaluation
    return measurement.epsilon(delta).upper if both.closes else both.upper.epsilon(delta, measurement.tolerance).value


def _delta(measurement: Measurement, epsilon: float) -> float:
    """The same of delta."""
    both = measurement.evaluation
    return measurement.delta(epsilon).upper if both.closes else both.upper.delta(epsilon, measurement.tolerance).value


def _met(measurement: Measurement, epsilon: float, delta: float) -> Bracket:
    """The bracket of epsilon at delta for a run whose delta at `epsilon` is proven to be at most `delta`."""
    proof = measurement.delta(epsilon)
    found = measurement.epsilon(delta)
    if found.upper <= epsilon or proof.upper > delta:
        return found
    return Bracket(found.lower, epsilon, found.lower_evidence, proof.upper_evidence)


def _beyond(measurement: Measurement, fpr: float) -> float:
    """At most so much of the true positive rate exceeds the false positive rate."""
    return max(0.0, (measurement.tpr_bound(Side.UPPER, fpr) - fpr) * (1.0 + 1e-15))


@dataclass(frozen=True)
class _Noisy:
    """What is calibrated: its noise, where that may lie, and the same with other noise."""

    phases: tuple[Run, ...]
    noise: float
    range: Domain
    at: Callable[[float], Any]

    @classmethod
    def of(cls, run: Run | Sequence[Run] | More) -> _Noisy:
        """Of several phases the noise of the first, to which the others keep their ratio."""
        if isinstance(run, CorrelatedNoise):
            return cls((), run.noise_multiplier, NOISE, lambda noise: run.replace(noise_multiplier=noise))
        if isinstance(run, Selection | JointRelease):
            if not isinstance(run.of, Run | tuple):
                raise InputError("A guarantee has no noise that could be changed; calibrate a run.")
            whole, inner = run, cls.of(run.of)
            return cls(inner.phases, inner.noise, inner.range, lambda noise: replace(whole, of=inner.at(noise)))
        phases = searchable(as_phases(run))
        first = phases[0].noise_multiplier
        ranges = [(scheme_of(p).noise_range(p), p.noise_multiplier / first) for p in phases]
        domain = Domain(max(r.low / ratio for r, ratio in ranges), min(r.high / ratio for r, ratio in ranges))
        return cls(phases, first, domain, lambda noise: with_noise(phases, noise))


class _Search:
    """Measurements so far: the largest noise known to fail, the smallest known to meet the target."""

    def __init__(self, noisy: _Noisy, target: _SearchTarget, progress: SearchProgress | None) -> None:
        self.noisy, self.target, self.progress, self.range = noisy, target, progress, noisy.range
        self.count, self.cheap = 0, False  # whether coarse measurements take much less time than fine ones
        self.forget(coarse=True)

    def forget(self, coarse: bool = False) -> None:
        """Start a pass, for which what was decided by coarser measurements is only a hint: no noise is known."""
        self.coarse = coarse
        self.fails = -math.inf, math.nan  # (log noise, excess > 0)
        self.meets = math.inf, math.nan
        self.before: tuple[float, float] | None = None  # the last but one of its side
        self.met: Measurement | None = None  # that of the smallest noise which meets the target
        self.seen: list[NoiseAndBound] = []

    def measure(self, log_noise: float, tolerance: float) -> float:
        """The excess over the target at one noise multiplier."""
        if self.count >= _MOST_MEASUREMENTS:
            raise CertificationError("The calibration did not converge; widen the tolerance or check the target.")
        self.count += 1
        noise = min(max(math.exp(min(log_noise, 700.0)), self.range.low), self.range.high)
        measured = measure(self.noisy.at(noise), tolerance=tolerance)
        both = measured.evaluation
        if self.coarse and both.upper.rough is not both.upper:
            self.cheap, measured = True, replace(measured, evaluation=replace(both, upper=both.upper.rough))
        upper = self.target.upper(measured)
        if self.progress is not None:
            self.progress(noise, upper)
        excess = self.target.excess(upper)
        self.seen.append((log_noise, excess))
        if excess > 0.0:
            if log_noise > self.fails[0]:
                self.before, self.fails = self.fails, (log_noise, excess)
        elif log_noise < self.meets[0]:
            self.before, self.meets, self.met = self.meets, (log_noise, excess), measured
        return excess

    def settled(self) -> tuple[float, float]:
        """Where what is measured crosses the target, about, and its slope (negative)."""
        crossing, slope = crossed(self.seen, self.cheap)
        middle = 0.5 * (self.fails[0] + self.meets[0])
        return middle if math.isinf(slope) else min(max(crossing, self.fails[0]), self.meets[0]), slope

    def _is_near(self, distance: float) -> bool:
        """Whether a measurement lies so near to the target."""
        crossing, slope = self.settled()
        return math.isfinite(slope) and min(abs(at - crossing) for at, _ in self.seen) < distance

    def polish(self, start: float, slope: float, tolerance: float, width: float) -> None:
        """The place that coarse measurements point to, and a step with their slope, a little beyond the target."""
        excess = self.measure(start, tolerance)
        if math.isfinite(slope) and math.isfinite(excess):
            step = excess / -slope
            beyond = max(0.35 * width, _UNSURE[self.cheap] * abs(step))
            self.measure(start + step + math.copysign(beyond, excess), tolerance)

    def bracket(self, tolerance: float, step: float) -> None:
        """Move outward from what is known until one noise fails and one meets the target."""
        low, high = math.log(self.range.low), math.log(self.range.high)
        while math.isinf(self.meets[0] - self.fails[0]):
            if self.fails[0] >= high:
                alone = self.noisy.phases if isinstance(self.noisy.at(self.range.high), tuple) else ()
                raise out_of_reach(alone, self.range.high, lambda runs: self._meets(runs, tolerance))
            if self.meets[0] <= low:
                raise InputError(
                    f"Even noise_multiplier {self.range.low:g} meets the target; it is too weak to calibrate for."
                )
            more = math.isinf(self.meets[0])
            last, step = self.fails if more else self.meets, self._predicted(step)
            self.measure(min(last[0] + step, high) if more else max(last[0] - step, low), tolerance)
            step *= 2.0

    def _meets(self, runs: tuple[Run, ...], tolerance: float) -> bool:
        return self.target.excess(self.target.upper(measure(runs, tolerance=tolerance))) <= 0.0

    def _predicted(self, step: float) -> float:
        """A little more than the way to the target along the last two of the side that is known; else the `step`."""
        last = self.fails if math.isinf(self.meets[0]) else self.meets
        if self.before is None or math.isinf(self.before[0]) or not 0.0 < abs(last[1]) < abs(self.before[1]) < math.inf:
            return step
        slope = (self.before[1] - last[1]) / (self.before[0] - last[0])
        return min(max(1.1 * abs(last[1] / slope), 0.5 * step), 16.0 * step)

    def shrink(self, tolerance: float, width: float, blind: float = 0.0, near: float = 0.0) -> None:
        """Secant steps inside the bracket until it is `width` wide on the log scale, or `blind` if an end says nothing;
        or until one is `near` the target; of slow ones, until the noise that meets it is `close_enough`. An end that
        stays a second time is taken to lie half as far from the target (Illinois), so that both ends move.
        """
        ends, last = [self.fails, self.meets], -1
        while (left := self.meets[0] - self.fails[0]) > width:
            (low, high_excess), (high, low_excess) = ends
            finite = math.isfinite(high_excess - low_excess)
            if (not finite and left < blind) or (near and self._is_near(near)):
                return
            if (slow := self.cheap and not self.coarse) and high - self.settled()[0] <= close_enough(width):
                return
            guess = low + (high_excess / (high_excess - low_excess) if finite else 0.5) * (high - low)
            guess += BEYOND * (high - low) if slow else 0.0
            position = aimed(guess, low, high, width)
            moved = 0 if self.measure(position, tolerance) > 0.0 else 1
            ends[moved] = (self.fails, self.meets)[moved]
            if moved == last:
                ends[1 - moved] = ends[1 - moved][0], 0.5 * ends[1 - moved][1]
            last = moved


def solve(
    run: Run | Sequence[Run] | More,
    *,
    tolerance: float = 1e-4,
    progress: SearchProgress | None = None,
    delta0: float = 1e-10,
    **wanted: float | None,
) -> Calibration:
    """The run with the smallest noise (within the relative `tolerance`) whose upper bound meets what is `wanted`.

    That is one target: epsilon with delta, mu (up to `delta0`), advantage, or tpr with fpr. The noise of several phases
    is changed by one factor: that of the first is found, the others keep their ratio to it. Of what is released with a
    gradient only the gradient's noise is changed. Shuffled batches: within 5e-4, or five times a smaller tolerance.
    """
    noisy = _Noisy.of(run)
    target = _target(delta0, **wanted)
    tolerance = TOLERANCE.check("tolerance", tolerance)
    search = _Search(noisy, target, progress)
    coarse = max(_COARSE, tolerance)
    begin = likely_noise(noisy.phases, target.described, search.range) if noisy.phases else noisy.noise
    start = min(max(begin, 2.0 * search.range.low), 0.5 * search.range.high)
    excess = search.measure(math.log(start), coarse)
    # Leakage falls about like a power of the noise between 1 and 2, so this step usually lands on the other side.
    search.bracket(coarse, min(1.0, max(0.1, abs(excess))))
    search.shrink(coarse, max(_COARSE, 2.0 * tolerance), blind=0.1, near=_NEAR[search.cheap])
    crossing, slope = search.settled()
    search.forget()
    # By default as `measure` does, which then proves the target; the upper bound is finer than the bracket is wide.
    fine = min(coarse, 10.0 * tolerance)
    search.polish(crossing, slope, fine, tolerance)
    search.bracket(fine, max(4.0 * tolerance, 2e-3))
    search.shrink(fine, tolerance)
    assert search.met is not None
    found = noisy.at(math.exp(search.meets[0]))
    return Calibration(found, target.described, target.achieved(search.met), search.count)


@overload
def calibrate(run: Run, **target: Any) -> Run: ...
@overload
def calibrate(run: CorrelatedNoise, **target: Any) -> CorrelatedNoise: ...
@overload
def calibrate(run: Selection, **target: Any) -> Selection: ...
@overload
def calibrate(run: JointRelease, **target: Any) -> JointRelease: ...
@overload
def calibrate(run: Sequence[Run], **target: Any) -> tuple[Run, ...]: ...
def calibrate(run: Run | Sequence[Run] | More, **target: Any) -> Run | tuple[Run, ...] | More:
    """The same run with the smallest noise whose upper bound meets the target.

    Args:
        run: a run, its phases, or what is released with gradients. Of several phases the noise changes by one factor.
        target: the keywords of `solve`: epsilon with delta, mu, advantage, or tpr with fpr; tolerance; progress.

    Returns:
        What was given, with other noise: a proof that the target is met, and within `tolerance` of the least noise for
        which this proof can be had.

    Raises:
        CertificationError: no noise in the range can be shown to meet the target.
        InputError: not exactly one target.
    """
    found = solve(run, **target)
    return found.phases[0] if isinstance(run, Run) else found.found
