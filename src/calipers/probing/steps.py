"""One step under the lens: the divisor, the clipping norm, and the noise.

Let u(g) be what a step returns for per-record gradients g. With equal seeds the noise is equal, so

    u(g) - u(0) = (sum of clip(g_i)) / divisor

holds up to rounding, and no statistics is needed. A gradient of an eighth of the clipping norm is not
clipped: k of them give k C / (8 divisor), hence the divisor. One of eight times the clipping norm is: it
gives C / divisor, hence C. Two such gradients give twice as much if each record is clipped by itself, and
spreading one over all coordinates changes nothing if its whole norm is what is clipped.

u(0) is the noise divided by the divisor. If it is Gaussian, d (s/s0)^2 is chi-square with d degrees of
freedom for d samples of empirical second moment s^2, which gives an interval for the noise multiplier;
and the Dvoretzky-Kiefer-Wolfowitz inequality, P(sup |F_d - F| > t) <= 2 e^(-2 d t^2), tests the whole
distribution against N(0, (sigma C / divisor)^2) without approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, ndtr

from calipers.probing.protocol import Configuration, Finding
from calipers.errors import InputError
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.numerics.types import FloatArray

# Single precision carries 24 bits. The coordinate looked at is the one with the least noise, so a step adds, scales and
# subtracts a handful of numbers of like size: some 2^-20 of them is lost.
ROUNDING = 1e-5
NOISE_SAMPLES = 100_000


@dataclass(frozen=True)
class StepNumbers:
    """What the differences of steps show. `by_count` holds the divisor for batches of 1, 2 and 3 records."""

    divisor: float
    by_count: tuple[float, float, float]
    clipped_norm: float
    spread_norm: float
    two_clipped: float

    @property
    def realized(self) -> bool:
        """Whether the divisor is the number of records in the batch."""
        return all(close(found, count) for count, found in enumerate(self.by_count, start=1))

    @property
    def data_independent(self) -> bool:
        """Whether the divisor ignores the number of records in the batch."""
        return all(close(found, self.divisor) for found in self.by_count)


def close(measured: float, exact: float) -> bool:
    """Whether two numbers agree up to the rounding of a step in single precision."""
    return abs(measured - exact) <= ROUNDING * max(abs(exact), 1.0)


def step_numbers(configuration: Configuration, seed: int) -> StepNumbers:
    """The divisor and the clipping, from differences of steps with equal noise.

    A divisor of 0 means that the step returns infinities or NaN.
    """
    if not _repeats(configuration, seed):
        raise InputError(
            "Two steps with the same seed differ: draw all randomness of update() from the generator it is given."
        )
    quiet = int(np.argmin(np.abs(_update(configuration, np.zeros((2, configuration.dimension)), seed))))

    def moved(count: int, norm: float) -> float:
        gradients = np.zeros((count, configuration.dimension))
        gradients[:, quiet] = norm
        return _moved(configuration, gradients, seed)

    small = configuration.max_grad_norm / 8
    slopes = [moved(count, small) for count in (1, 2, 3)]
    if not all(math.isfinite(slope) for slope in slopes):
        return StepNumbers(0.0, (0.0, 0.0, 0.0), math.nan, math.nan, math.nan)
    by_count = tuple(count * small / slope if slope else math.inf for count, slope in enumerate(slopes, start=1))
    large = 8 * configuration.max_grad_norm
    one, two = moved(1, large), moved(2, large)
    spread = np.full((1, configuration.dimension), large / math.sqrt(configuration.dimension))
    return StepNumbers(
        divisor=by_count[1],
        by_count=(by_count[0], by_count[1], by_count[2]),
        clipped_norm=one * by_count[0],
        spread_norm=_moved(configuration, spread, seed) * by_count[0],
        two_clipped=two * by_count[1],
    )


def noise_samples(configuration: Configuration, seed: int) -> FloatArray:
    """Coordinates of steps on two zero gradients: at least `NOISE_SAMPLES` of them."""
    repeats = math.ceil(NOISE_SAMPLES / configuration.dimension)
    still = np.zeros((2, configuration.dimension))
    return np.concatenate([_update(configuration, still, seed + number) for number in range(repeats)])


def noise_finding(
    configuration: Configuration, divisor: float, seed: int, error: float
) -> tuple[Finding, float | None]:
    """Whether the noise is Gaussian with the multiplier asked for, and a value to describe it by.

    The second value is the multiplier asked for when the data allow it, otherwise the lower end of its
    interval (less noise than that is excluded with probability 1 - error), or None if the noise is not Gaussian
    of any size in the interval.
    """
    samples = noise_samples(configuration, seed) * divisor / configuration.max_grad_norm
    degrees = samples.size
    asked = configuration.noise_multiplier
    if not np.isfinite(samples).all():
        return Finding("noise", "not finite", "A step returns infinities or NaN.", alarm=True), None
    square = float(np.mean(samples**2))
    low = math.sqrt(square * degrees / chdtri(degrees, error / 4))
    high = math.sqrt(square * degrees / chdtri(degrees, 1 - error / 4))
    distance, fitted = (_distance(samples, scale) for scale in (asked, math.sqrt(square)))
    allowed = math.sqrt(math.log(4 / error) / (2 * degrees))
    evidence = (
        f"{degrees} coordinates: noise multiplier in [{floor_digits(low)}, {ceil_digits(high)}] if Gaussian; "
        f"greatest distance from the distribution of N(0, {asked:g}^2) {distance:.3g}, allowed {allowed:.3g}"
    )
    if low <= asked <= high and distance <= allowed:
        return Finding("noise", f"Gaussian, noise multiplier {asked:g} as asked", evidence, error), asked
    # d Phi(x/s) / d log s is at most 0.25 in size, so the true scale moves the distance by no more than this.
    if fitted > allowed + 0.25 * math.log(high / low):
        return Finding("noise", "not Gaussian", evidence, error, alarm=True), None
    verdict = f"Gaussian, but not of multiplier {asked:g}: estimated {math.sqrt(square):.5g}"
    return Finding("noise", verdict, evidence, error, alarm=True), low


def _distance(samples: FloatArray, scale: float) -> float:
    """The greatest distance between the samples' distribution function and that of N(0, scale^2)."""
    expected = ndtr(np.sort(samples) / scale)
    steps = np.arange(samples.size + 1) / samples.size
    return float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))


def clipping_finding(configuration: Configuration, numbers: StepNumbers) -> Finding:
    """Whether each record's whole gradient is clipped to the norm asked for."""
    asked = configuration.max_grad_norm
    evidence = (
        f"Gradients of norm {8 * asked:g} arrive with norm {numbers.clipped_norm:.6g} along one coordinate, "
        f"{numbers.spread_norm:.6g} spread over all; two of them add up to {numbers.two_clipped:.6g}"
    )
    # Opacus divides by (norm + 1e-6), so a clipped gradient is short of C by a relative 1e-6 / norm.
    slack = 1e-5 * asked + 1e-6

    def near(value: float, exact: float) -> bool:
        return abs(value - exact) <= slack + ROUNDING * exact

    if not near(numbers.clipped_norm, asked):
        bounded = numbers.clipped_norm < 4 * asked
        verdict = f"clips to {numbers.clipped_norm:.6g}, not {asked:g}" if bounded else "does not clip"
        return Finding("clipping", verdict, evidence, alarm=True)
    if not near(numbers.two_clipped, 2 * asked):
        return Finding("clipping", "clips the sum of the batch, not each record", evidence, alarm=True)
    if not near(numbers.spread_norm, asked):
        return Finding("clipping", "clips parts of a gradient, not its whole norm", evidence, alarm=True)
    return Finding("clipping", f"each record's gradient to norm {asked:g}", evidence)


def empty_finding(configuration: Configuration, seed: int) -> Finding:
    """What a step does when no record was drawn; the guarantee needs the same noise as ever."""
    nobody = np.zeros((0, configuration.dimension))
    try:
        alone = _update(configuration, nobody, seed)
    except Exception as error:  # whatever a foreign library raises is the finding
        evidence = f"update() of no gradients raised {type(error).__name__}: {' '.join(str(error).split())[:120]}"
        return Finding("empty batch", "the step fails", evidence, alarm=True)
    if not np.isfinite(alone).all():
        return Finding("empty batch", "not finite", "update() of no gradients returned infinities or NaN.", alarm=True)
    usual = _update(configuration, np.zeros((1, configuration.dimension)), seed)
    scales = [float(np.sqrt(np.mean(value**2))) for value in (alone, usual)]
    evidence = f"root mean square {scales[0]:.4g} without records, {scales[1]:.4g} with one zero gradient, same noise"
    if close(scales[0], scales[1]) and scales[0] > 0:
        return Finding("empty batch", "noise as usual", evidence)
    return Finding("empty batch", "noise differs from that of other batches", evidence, alarm=True)


def _update(configuration: Configuration, gradients: FloatArray, seed: int) -> FloatArray:
    found = np.asarray(configuration.update(gradients, np.random.default_rng(seed)), dtype=np.float64)
    if found.shape != (configuration.dimension,):
        raise InputError(f"update() returned shape {found.shape}, expected ({configuration.dimension},).")
    return found


def _repeats(configuration: Configuration, seed: int) -> bool:
    still = np.zeros((2, configuration.dimension))
    first, second = (_update(configuration, still, seed) for _ in range(2))
    return bool(np.array_equal(first, second, equal_nan=True))


def _moved(configuration: Configuration, gradients: FloatArray, seed: int) -> float:
    """The norm of u(g) - u(0) with equal noise; NaN or infinite if the step is."""
    still = _update(configuration, np.zeros_like(gradients), seed)
    with np.errstate(invalid="ignore"):
        return float(np.linalg.norm(_update(configuration, gradients, seed) - still))
