"""Pairs of distributions and their log-moments ``K(z) = log E_Q[L^z]`` for complex z, with ``L = dP/dQ``.

One function of z describes both directions, because ``E_P[(1/L)^w] = E_Q[L^(1-w)]``. It is computed here by the
trapezoid rule over the observation x: the integrands are analytic in a strip around the real line and die off like a
Gaussian, so the error falls geometrically (squares when the step halves). Three forms of the same integral keep its
relative accuracy; which one is used depends on what would cancel:

- ``expm1``: ``E[L^z] - 1 = E[(e^(z l) - 1) - z (e^l - 1)]``, legitimate because ``E_Q[L] = 1``. With T up to 1e6 steps
  the power T multiplies every absolute error of K, and K itself is small there.
- ``scaled``: ``log E[exp(z l - m)] + m`` where the moments are far from 1.
- ``from the floor``: ``log E[exp(z (l - floor))]`` with ``floor = inf l``; needed close to the largest loss.

Nothing here imports the package under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_NATS_KEPT = 46.0
"""Integrand values below exp(-46) = 1e-20 of the peak are left out."""


@dataclass(frozen=True)
class Pair:
    """A pair (P, Q), known through its log-moment.

    ``log_moment(theta, y, from_floor)`` is ``K(theta + i y)``, less ``z * floor`` when ``from_floor`` is true.
    ``floor`` is the infimum of log L, ``-inf`` when there is none.
    """

    name: str
    log_moment: Callable[[float, Floats, bool], Complexes]
    floor: float = -np.inf


@dataclass
class _Quadrature:
    """Trapezoid rule for ``K`` given ``l(x)``, ``l(x) - floor`` and the log-density of Q."""

    log_ratio: Callable[[Floats], Floats]
    above_floor: Callable[[Floats], Floats] | None
    log_density: Callable[[Floats], Floats]
    reach: Callable[[float], float]
    _steps: dict[tuple[float, float, bool], tuple[float, float, float]] = field(default_factory=dict)

    def __call__(self, theta: float, y: Floats, from_floor: bool) -> Complexes:
        y = np.asarray(y, dtype=float)
        top = float(2.0 ** np.ceil(np.log2(np.max(np.abs(y))))) if np.any(y) else 0.0
        key = (theta, top, from_floor)
        if key not in self._steps:
            self._steps[key] = self._choose(theta, top, from_floor)
        return self._log_moment(theta, y, from_floor, *self._steps[key])

    def _choose(self, theta: float, top: float, from_floor: bool) -> tuple[float, float, float]:
        """Left end, right end and step: the step is halved once more after two of them agree to 1e-9."""
        far = self.reach(theta)
        coarse = np.arange(-far, far, 0.02)
        weight = self.log_density(coarse)
        loss = self.above_floor(coarse) if from_floor and self.above_floor else self.log_ratio(coarse)
        tilted = theta * loss + weight
        kept = tilted > tilted.max() - _NATS_KEPT
        kept |= weight > weight.max() - _NATS_KEPT
        if not from_floor:
            kept |= loss + weight > -_NATS_KEPT
        low, high = coarse[kept][0] - 0.1, coarse[kept][-1] + 0.1
        probe = np.array([0.0, 0.37, 0.61, 0.83, 1.0]) * top
        step = (high - low) / 64
        previous = self._log_moment(theta, probe, from_floor, low, high, step)
        for _ in range(16):
            step /= 2
            current = self._log_moment(theta, probe, from_floor, low, high, step)
            # Moments compared, not their logarithms: far up the line the moment is nearly 0 and its logarithm noise.
            size = current[0].real
            gap = np.abs(np.exp(current - size) - np.exp(previous - size)).max()
            if gap <= 1e-9 * min(1.0, max(np.abs(current).max(), 1e-300)):
                return low, high, step / 2
            previous = current
        raise ArithmeticError(f"trapezoid rule did not settle at theta={theta}, y={top}")

    def _log_moment(self, theta: float, y: Floats, from_floor: bool, low: float, high: float, step: float) -> Complexes:
        x = np.arange(low, high, step)
        weight = self.log_density(x)
        loss = self.above_floor(x) if from_floor and self.above_floor else self.log_ratio(x)
        tilt = theta * loss
        peak = float((tilt + weight).max())
        # Far out the tilt may pass 700 while the density falls below exp(-700): join them before exponentiating.
        less_one = np.where(
            tilt < 30.0, np.expm1(np.minimum(tilt, 30.0)) * np.exp(weight), np.exp(np.minimum(tilt + weight, 30.0))
        )
        at_theta = less_one.sum() * step
        direct = peak > 20.0 or at_theta < -0.5
        shift = peak if direct else 0.0
        mass = np.exp(tilt + (weight - shift)) * step
        # e^(ib) = 1 - 2 sin^2(b/2) + 2 i sin(b/2) cos(b/2) with b = y l: nothing cancels when b is small.
        turn = np.empty(len(y), dtype=complex)
        rows = max(1, int(1e6 // len(x)))
        for start in range(0, len(y), rows):
            angle = 0.5 * y[start : start + rows, None] * loss
            sine = np.sin(angle)
            turn[start : start + rows] = -2.0 * (sine * sine @ mass) + 2j * (sine * np.cos(angle) @ mass)
        if direct:
            return np.log(mass.sum() + turn) + shift
        drift = 0.0 if from_floor else float((np.expm1(loss) * np.exp(weight)).sum() * step)
        return np.log1p(at_theta + turn - (theta + 1j * y) * drift)


def _standard_normal(x: Floats) -> Floats:
    return -0.5 * x * x - 0.5 * np.log(2 * np.pi)


def _mixture(q: float, sigma: float) -> Callable[[Floats], Floats]:
    """``log(1 - q + q exp(x/sigma - 1/(2 sigma^2)))``, accurate where it is near 0."""

    def log_ratio(x: Floats) -> Floats:
        g = x / sigma - 0.5 / sigma**2
        shift = q * np.expm1(np.minimum(g, 600.0))
        if q == 1.0:
            return g
        return np.where(
            np.abs(shift) < 0.5, np.log1p(np.maximum(shift, -0.75)), np.logaddexp(np.log1p(-q), np.log(q) + g)
        )

    return log_ratio


def gaussian(sigma: float) -> Pair:
    """P = N(1, sigma^2), Q = N(0, sigma^2): ``K(z) = z (z - 1) / (2 sigma^2)`` in closed form."""

    def log_moment(theta: float, y: Floats, from_floor: bool) -> Complexes:
        z = theta + 1j * np.asarray(y, dtype=float)
        return z * (z - 1.0) / (2.0 * sigma**2)

    return Pair(f"gaussian(sigma={sigma})", log_moment)


def poisson_gaussian(q: float, sigma: float) -> Pair:
    """P = (1-q) N(0, sigma^2) + q N(1, sigma^2), Q = N(0, sigma^2): Poisson subsampling, P holds the record."""
    floor = float(np.log1p(-q))
    log_odds = float(np.log(q)) - floor

    def above_floor(x: Floats) -> Floats:
        return np.logaddexp(0.0, x / sigma - 0.5 / sigma**2 + log_odds)

    def reach(theta: float) -> float:
        """How far exp(theta l(x) - x^2/2) may peak: theta/sigma to the right; to the left l flattens out."""
        left = min(abs(theta) / sigma, sigma * np.log1p(abs(theta) * exp(log_odds) / sigma) + 1.0)
        return 12.0 + 1.0 / sigma + (theta / sigma if theta > 0 else left)

    quadrature = _Quadrature(_mixture(q, sigma), above_floor, _standard_normal, reach)
    return Pair(f"poisson_gaussian(q={q}, sigma={sigma})", quadrature, floor)


def poisson_substitute(q: float, sigma: float) -> Pair:
    """P = (1-q) N(0) + q N(+1), Q = (1-q) N(0) + q N(-1), noise sigma: one record replaced by its opposite."""
    half = _mixture(q, sigma)

    def log_ratio(x: Floats) -> Floats:
        odd = 2 * q * np.exp(-0.5 / sigma**2) * np.sinh(np.clip(x / sigma, -600, 600)) * np.exp(-half(-x))
        return np.where(np.abs(odd) < 0.5, np.log1p(np.maximum(odd, -0.75)), half(x) - half(-x))

    def log_density(x: Floats) -> Floats:
        return _standard_normal(x) + half(-x)

    quadrature = _Quadrature(log_ratio, None, log_density, lambda theta: 12.0 + (1.0 + abs(theta)) / sigma)
    return Pair(f"poisson_substitute(q={q}, sigma={sigma})", quadrature)


def laplace(scale: float) -> Pair:
    """P = Laplace(1, scale), Q = Laplace(0, scale): atoms of log L at +-1/scale, an exponential law between."""
    a = 1.0 / scale

    def log_moment(theta: float, y: Floats, from_floor: bool) -> Complexes:
        z = theta + 1j * np.asarray(y, dtype=float)
        between = 0.5 * np.exp(-z * a) * (np.exp((2 * z - 1) * a) - 1) / (2 * z - 1)
        return np.log(0.5 * np.exp((z - 1) * a) + 0.5 * np.exp(-z * a) + between)

    return Pair(f"laplace(scale={scale})", log_moment)


def product(*factors: tuple[Pair, int]) -> Pair:
    """The product of ``count`` copies of each pair: log-moments add."""

    def log_moment(theta: float, y: Floats, from_floor: bool) -> Complexes:
        return sum((count * pair.log_moment(theta, y, from_floor) for pair, count in factors), 0j * np.asarray(y))

    return Pair("product", log_moment, sum(count * pair.floor for pair, count in factors))
