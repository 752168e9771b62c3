"""Where a search for noise begins, and where it looks next: guesses on which nothing depends but the time it takes.

Many small steps, each with a record in it at rate q, show about what N(mu, 1) shows against N(0, 1), where
mu^2 = q^2 T (e^(1/sigma^2) - 1) (the central limit theorem of Gaussian differential privacy).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import gaussian_mu, normal_tail_quantile
from calipers.run import Run
from calipers.samplers import scheme_of

_LARGEST = 700.0
"""An exponent."""
_APART = 0.05
"""How far apart two measurements are for a slope."""
BEYOND, _CLOSE = 0.006, 5e-4
"""Of slow measurements: what share of the bracket beyond a guess they are made, so that they meet the target; and where
their search ends.
"""

NoiseAndBound = tuple[float, float]
"""The logarithm of a noise, and how far the target is exceeded there."""


def gaussian_target(given: Mapping[str, float]) -> float:
    """The mu of a Gaussian mechanism that just meets the target; not finite or not positive where none does."""
    if "mu" in given:
        return given["mu"]
    if "advantage" in given:
        return 2.0 * float(normal_tail_quantile(0.5 * (1.0 - given["advantage"])))
    if "epsilon" in given:
        return gaussian_mu(given["epsilon"], given["delta"])
    return float(normal_tail_quantile(given["fpr"]) - normal_tail_quantile(given["tpr"]))


def _rate(run: Run) -> float:
    """At which a record is in a batch, about."""
    most = run.max_batch_size
    return run.rate if most is None or run.dataset_size is None else min(run.rate, most / run.dataset_size)


def _moved(run: Run) -> float:
    """How far a record moves the sum of its batch: twice as far where it takes another one's place in a hidden one."""
    return 2.0 if scheme_of(run).equal_batches and scheme_of(run).revealed else 1.0


def likely_noise(phases: tuple[Run, ...], given: Mapping[str, float], noises: Domain) -> float:
    """About the noise multiplier of the first phase that meets the target; its own where nothing can be guessed."""
    first = phases[0].noise_multiplier
    try:
        mu = gaussian_target(given)
        steps = [(_rate(p) ** 2 * p.total_steps, p.noise_multiplier / (first * _moved(p))) for p in phases]
    except (InputError, ArithmeticError):
        return first
    if not 0.0 < mu < math.inf:
        return first

    def leaks(log_noise: float) -> bool:
        inverses = [math.exp(min(-2.0 * (log_noise + math.log(ratio)), _LARGEST)) for _, ratio in steps]
        parts = zip(steps, inverses, strict=True)
        return sum(weight * math.expm1(min(inverse, _LARGEST)) for (weight, _), inverse in parts) > mu * mu

    return math.exp(bisect(math.log(noises.low), math.log(noises.high), leaks, 40)[1])


def aimed(guess: float, low: float, high: float, width: float) -> float:
    """Where to measure next, if the target is guessed to lie at `guess` between an end that fails and one that meets.

    A little inside the meeting side; near the end that meets, as far from it as ends the search if that fails.
    """
    position = high - 0.95 * width if high - guess < 0.7 * width else guess + 0.25 * width
    position = max(position, low + min(0.05 * (high - low), 0.9 * width))
    return position if low < position < high else 0.5 * (low + high)


def close_enough(width: float) -> float:
    """How far from the target a search of slow measurements (a few seconds each) ends, on the log scale of noise.

    Two more measurements would bring it down to the `width` asked for, and save so much noise at most.
    """
    return min(5.0 * width, max(width, _CLOSE))


def crossed(seen: Sequence[NoiseAndBound], bent: bool) -> tuple[float, float]:
    """Where the line through the two that are nearest to the target crosses it, and its slope; or the parabola's.

    Args:
        seen: At least two.
        bent: Whether a third one counts as well, for a slope that is known to a few percent.
    """
    first, *others = sorted(seen, key=lambda found: abs(found[1]))
    farthest = max(others, key=lambda found: abs(found[0] - first[0]))
    second = next((found for found in others if abs(found[0] - first[0]) >= _APART), farthest)
    slope = (second[1] - first[1]) / (second[0] - first[0])
    if not -math.inf < slope < 0.0:
        return math.nan, -math.inf
    crossing = first[0] - first[1] / slope
    third = next((found for found in others if min(abs(found[0] - at) for at, _ in (first, second)) >= _APART), None)
    if not bent or third is None or not math.isfinite(third[1]):
        return crossing, slope
    bend = ((third[1] - first[1]) / (third[0] - first[0]) - slope) / (third[0] - second[0])
    for _ in range(4):
        chord = slope + bend * (crossing - second[0])
        if not 2.0 * slope < chord < 0.5 * slope:
            return first[0] - first[1] / slope, slope
        crossing = first[0] - first[1] / chord
    return crossing, slope + bend * (2.0 * crossing - first[0] - second[0])
