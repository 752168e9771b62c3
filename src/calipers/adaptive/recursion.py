r"""The recursion over the remaining budget: an upper bound over all policies, and a policy that comes near it.

A menu has steps m with a dominating pair (P_m, Q_m), L_m = dP_m/dQ_m, and a public cost c_m >= 1. With W_c(k) the
supremum of the hockey-stick divergence at k = e^epsilon over all policies that spend at most c,

    W_0(k) = max(1 - k, 0),    W_c(k) = max(W_0(k), max over c_m <= c of E_{P_m}[W_{c - c_m}(k / L_m)]).

**Upper bound** (`UpperLevels`). With kernels on a lattice of log L (`calipers.adaptive.kernel`) the recursion closes on
the same lattice of x = log k. What is stored is U_c(x) = e^{theta x} (W_c - W_0)(x), and E_c with

    W_c(x) <= W_0(x) + e^{-theta x} (U_c(x) + E_c)      at every lattice point of the window.

- *Right of the window*, whose last point is x_n: W_c falls in k, so it is at most W_c(x_n) there, and what comes from
  there is at most that times P(log L < x - x_n). With theta > 0, W_c(x) <= R_c e^{-theta x} is used instead, where
  R_c = max over m of E_{P_m}[L^theta] R_{c - c_m}, R_0 = 1 (a Renyi filter: the recursion maps k^-theta to multiples
  of itself). Both are sums of masses and need no transform. With theta > 0 mass at L = infinity, which tilting would
  blow up, is left out of the recursion and added at the end: W_c grows by at most n p_inf.
- *Left of the window*, whose first point is k_1: W_c is convex in k with W_c(0) = 1, so W_c - W_0 is at most k / k_1
  times its value at k_1.
- *Rounding.* A cyclic convolution of a (the kernel) and b by transforms of length n errs in the 2-norm, and so at every
  point, by at most 3.1 g |a|_1 |b|_2 with g = `fft_relative_error(n)` (each of the three transforms errs by g relative
  to |a|_1 |b|_2, `calipers.numerics.fourier`). An error E of b adds at most E sum p_i e^{theta i h}.
- *Shift.* Log ratios that are too small by s: W_c(x) <= e^{n s} W'_c(x - n s) with n the number of steps (by induction,
  since L W(k/L) increases with L).

**Lower bound** (`PolicyLevels`). State of the policy: what is left of the budget and x = log k minus the sum of scores.
A_c and B_c are the probabilities under P and under Q that the policy finally claims P. The choice at (c, x), a step or
to stop, is the one with the largest A - e^x B, but whatever it is, A and B are those of that policy. Stored are
e^{theta x} A_c and e^{theta x} e^x B_c, each with its error. Left of the window the policy claims P; right of it, and
from then on, it takes the step with the most P-mass where Q has none, and claims P only there (B = 0).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft

from calipers.adaptive.kernel import LowerKernel, UpperKernel
from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, fft_relative_error, two_norm
from calipers.numerics.types import FloatArray


@dataclass(frozen=True)
class Lattice:
    """The points x = h first, ..., h last of log k; `tilt` is theta."""

    step: float
    first: int
    last: int
    tilt: float = 0.0

    @property
    def x(self) -> FloatArray:
        """The points."""
        return np.asarray(self.step * np.arange(self.first, self.last + 1), dtype=np.float64)

    @property
    def size(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


class _CyclicKernel:
    """Kernels of all steps and arrays on the window, as vectors of one cyclic convolution."""

    def __init__(self, lattice: Lattice, ends: Sequence[tuple[int, int]]) -> None:
        # Position x - i h for i in [low, high]: `above` points right of the window, `below` left of it.
        self.above = max(0, *(-low for low, _ in ends))
        self.below = max(0, *(high for _, high in ends))
        self.lattice = lattice
        self.length = fast_length(lattice.size + self.above + self.below)
        self.relative_error = 3.1 * fft_relative_error(self.length)
        # log k of the points below the window, relative to its first, and of those above it.
        self.left = lattice.step * np.arange(-self.below, 0)
        self.right = lattice.step * (lattice.last + np.arange(1, self.above + 1))
        self._buffer = np.zeros(self.length)

    def kernel(self, low: int, masses: FloatArray) -> np.ndarray:
        """The transform of a kernel; its position i counts steps of the lattice."""
        around = np.zeros(self.length)
        around[np.arange(low, low + len(masses)) % self.length] = masses
        return np.asarray(scipy.fft.rfft(around))

    def spread(self, values: FloatArray, left: FloatArray, right: FloatArray | float = 0.0) -> FloatArray:
        """Values on the window with those left and right of it; the array is the same one at the next call."""
        found, end = self._buffer, self.below + self.lattice.size
        found[: self.below] = left
        found[self.below : end] = values
        found[end : end + self.above] = right
        return found

    def inside(self, spectra: np.ndarray) -> FloatArray:
        """What products of transforms are on the window."""
        return np.asarray(scipy.fft.irfft(spectra, self.length)[..., self.below : self.below + self.lattice.size])


@dataclass(frozen=True)
class _Past:
    """One level: its 2-norm, a bound on the error at every point, R_c, and what is right of the window.

    There W_c - W_0 is at most `right` times e^{-theta x} where theta > 0, and `right` where it is 0.
    """

    norm: float
    error: float
    renyi: float
    right: float


class UpperLevels:
    """The levels c = 0, 1, 2, ... of the upper recursion of one direction; `advance` computes the next."""

    def __init__(self, kernels: Sequence[UpperKernel], costs: Sequence[int], lattice: Lattice) -> None:
        self.lattice, self.costs = lattice, tuple(costs)
        self.level = 0
        theta, h = lattice.tilt, lattice.step
        self._aside = max(kernel.p_inf for kernel in kernels) if theta > 0.0 else 0.0
        if theta > 0.0:
            kernels = [replace(kernel, p_inf=0.0) for kernel in kernels]
        self._circle = _CyclicKernel(lattice, [(kernel.low, kernel.high) for kernel in kernels])
        spectra, self._mass, gains, beyond = [], [], [], []
        for kernel in kernels:
            ratio = h * np.arange(kernel.low, kernel.high + 1)
            tilted = kernel.masses * np.exp(theta * ratio) * (1.0 + 1e-15 * (1.0 + theta * np.abs(ratio)))
            spectra.append(self._circle.kernel(kernel.low, tilted))
            self._mass.append(float(np.sum(tilted)) * (1.0 + 1e-12))
            gains.append(_gain(kernel, lattice))
            beyond.append(_beyond(kernel, lattice))
        self._spectra, self._gains, self._beyond = np.array(spectra), np.array(gains), np.array(beyond)
        # The transforms of the last levels, each in the row of its level modulo their number.
        self._past_spectra = np.zeros((max(self.costs), self._spectra.shape[1]), dtype=self._spectra.dtype)
        self._renyi = 1.0
        self._left = np.exp((1.0 + theta) * self._circle.left)
        self.values = np.zeros(lattice.size)
        self.error = 0.0
        self._past: deque[_Past] = deque(maxlen=max(self.costs))
        self._shift = max(kernel.shift for kernel in kernels)

    @property
    def length(self) -> int:
        """Points of the transform that one step of the menu takes at one level."""
        return self._circle.length

    def advance(self) -> None:
        """The next level."""
        self._store()
        self.level += 1
        fitting = [m for m, cost in enumerate(self.costs) if cost <= self.level]
        if not fitting:
            return
        past = [self._past[-self.costs[m]] for m in fitting]
        rows = [(self.level - self.costs[m]) % len(self._past_spectra) for m in fitting]
        every = fitting if len(fitting) < len(self.costs) else slice(None)
        found = self._circle.inside(self._spectra[every] * self._past_spectra[rows])
        found += np.array([[level.right] for level in past]) * self._beyond[every]
        found += self._gains[every]
        self.values = found.max(axis=0, initial=0.0)
        rounding = 4.0 * UNIT_ROUNDOFF * float(self.values.max())
        self.error = rounding + max(
            self._mass[m] * (level.error + self._circle.relative_error * level.norm)
            for m, level in zip(fitting, past, strict=True)
        )
        self._renyi = max(self._mass[m] * level.renyi for m, level in zip(fitting, past, strict=True))

    def _store(self) -> None:
        values = self.values
        whole = self._circle.spread(values, values[0] * self._left)
        self._past_spectra[self.level % len(self._past_spectra)] = scipy.fft.rfft(whole)
        right = self._renyi if self.lattice.tilt > 0.0 else float(values[-1])
        self._past.append(_Past(two_norm(whole), self.error, self._renyi, right))

    @property
    def _most_steps(self) -> int:
        return self.level // min(self.costs)

    @property
    def shift(self) -> float:
        """n s: by how much log ratios of all steps together may be larger than the lattice says."""
        return self._shift * self._most_steps * (1.0 + 1e-12)

    def excess(self) -> FloatArray:
        """At least W_c - W_0 at the lattice points, shift left aside."""
        x = self.lattice.x
        found = (self.values + self.error) * np.exp(-self.lattice.tilt * x) * (1.0 + 1e-14 * (1.0 + np.abs(x)))
        return np.asarray(found + 1.001 * self._most_steps * self._aside)

    def _bound(self, place: int) -> float:
        """At least W_c at one lattice point, shift left aside."""
        x = self.lattice.step * (self.lattice.first + place)
        excess = (float(self.values[place]) + self.error) * math.exp(-self.lattice.tilt * x)
        excess = excess * (1.0 + 1e-14 * (1.0 + abs(x))) + 1.001 * self._most_steps * self._aside
        return excess + max(-math.expm1(x), 0.0)

    def delta(self, epsilon: float) -> float:
        """At least W_c(e^epsilon), by the chord of its lattice neighbors (W is convex in k); 1 outside the window."""
        place = (epsilon - self.shift) / self.lattice.step - self.lattice.first
        below = math.floor(place * (1.0 - 4.0 * UNIT_ROUNDOFF))
        if epsilon < 0.0 or below < 0:
            return 1.0
        below = min(below, self.lattice.size - 1)
        found = self._bound(below)
        if below + 1 < self.lattice.size:
            left, right = found, self._bound(below + 1)
            x = self.lattice.step * (self.lattice.first + below)
            share = math.expm1(max(epsilon - self.shift - x, 0.0)) / math.expm1(self.lattice.step)
            share = min(max(share * (1.0 - 1e-9), 0.0), 1.0)  # W falls: a smaller share of the right end is safe
            found = left * (1.0 - share) + right * share if right < left else max(left, right)
        return min(1.0, found * math.exp(self.shift) * (1.0 + 1e-12))


def _beyond(kernel: UpperKernel, lattice: Lattice) -> FloatArray:
    """At the points x of the lattice what e^{-theta x}, right of its last point x_n, adds to U(x) by one step.

    That is the sum of p_i e^{theta i h} over i h < x - x_n; with theta = 0 the sum of p_i.
    """
    ratio = lattice.step * np.arange(kernel.low, kernel.high + 1)
    rounding = 1.0 + 2.0 * UNIT_ROUNDOFF * len(ratio) + 1e-13
    sums = np.concatenate(([0.0], np.cumsum(kernel.masses * np.exp(lattice.tilt * ratio))))
    places = np.clip(np.arange(lattice.first, lattice.last + 1) - lattice.last - kernel.low, 0, len(ratio))
    return np.asarray(sums[places] * rounding)


def _gain(kernel: UpperKernel, lattice: Lattice) -> FloatArray:
    """e^{theta x} (E_P[W_0(k/L)] - W_0(k)) at the points of the lattice, rounded up: the profile of one step."""
    x, h = lattice.x, lattice.step
    ratio = h * np.arange(kernel.low, kernel.high + 1)
    p, q = kernel.masses, kernel.masses * np.exp(-ratio)
    # Sums over ratio > x, and over ratio < x, of p and of q.
    p_above = np.concatenate((np.cumsum(p[::-1])[::-1], [0.0]))
    q_above = np.concatenate((np.cumsum(q[::-1])[::-1], [0.0]))
    p_below = np.concatenate(([0.0], np.cumsum(p)))
    q_below = np.concatenate(([0.0], np.cumsum(q)))
    place = np.clip(np.arange(lattice.first, lattice.last + 1) - kernel.low, 0, len(p))
    next_place = np.clip(place + 1, 0, len(p))
    k = np.exp(x)
    right = p_above[next_place] - k * q_above[next_place] + kernel.p_inf
    right = np.where(x < ratio[0], p_above[0] - k * q_above[0] + kernel.p_inf, right)
    excess_p, excess_q = float(p.sum()) + kernel.p_inf - 1.0, float(q.sum()) - 1.0
    left = max(excess_p, 0.0) - k * min(excess_q, 0.0) + np.maximum(k * q_below[place] - p_below[place], 0.0)
    rounding = 8.0 * UNIT_ROUNDOFF * (len(p) + 8.0) * np.where(x > 0.0, p_above[next_place] + kernel.p_inf, 1.0)
    found = np.where(x > 0.0, np.maximum(right, 0.0), np.maximum(left, 0.0)) + rounding
    return np.asarray(found * np.exp(lattice.tilt * x))


@dataclass(frozen=True)
class _PolicyPast:
    """One level of a policy: transforms, 2-norms and errors of A and of e^x B, and A right of the window."""

    spectra: np.ndarray
    norms: tuple[float, float]
    errors: tuple[float, float]
    certain: float


class PolicyLevels:
    """The levels c = 0, 1, 2, ... of an explicit policy of one direction, and the error rates of its tests."""

    def __init__(self, kernels: Sequence[LowerKernel], costs: Sequence[int], lattice: Lattice) -> None:
        self.lattice, self.costs = lattice, tuple(costs)
        self.level = 0
        self._circle = _CyclicKernel(lattice, [(kernel.low, kernel.high) for kernel in kernels])
        theta, h, x = lattice.tilt, lattice.step, lattice.x
        spectra, self._mass, at_once = [], [], []
        for kernel in kernels:
            ratio = h * np.arange(kernel.low, kernel.high + 1)
            sides = kernel.p * np.exp(theta * ratio), kernel.q * np.exp((1.0 + theta) * ratio) * (1.0 + 1e-14)
            spectra.append([self._circle.kernel(kernel.low, side) for side in sides])
            self._mass.append(max(float(side.sum()) for side in sides) * (1.0 + 1e-12))
            at_once.append(kernel.p_inf)
        self._spectra = np.array(spectra)
        self._at_once = np.array(at_once)[:, None] * np.exp(theta * x) * (1.0 - 1e-14)
        left = lattice.step * lattice.first + self._circle.left
        self._left = np.exp(theta * left) * (1.0 - 1e-14), np.exp((1.0 + theta) * left) * (1.0 + 1e-14)
        # To stop is to claim P where k < 1.
        claim = np.arange(lattice.first, lattice.last + 1) < 0
        self._stop = np.array([claim * np.exp(theta * x), claim * np.exp((1.0 + theta) * x)])
        self.rates = self._stop
        self.errors = 4.0 * UNIT_ROUNDOFF * float(self._stop.max()), 4.0 * UNIT_ROUNDOFF * float(self._stop.max())
        self._past: deque[_PolicyPast] = deque(maxlen=max(self.costs))
        self._finite = [float(kernel.p.sum()) * (1.0 - 1e-12) for kernel in kernels]
        self._infinite = [kernel.p_inf for kernel in kernels]
        self._right = np.exp(np.minimum(theta * self._circle.right, 690.0))  # less than it is, and in range
        self._certain = 0.0

    def advance(self) -> None:
        """The next level."""
        self._past.append(self._stored())
        self.level += 1
        fitting = [m for m, cost in enumerate(self.costs) if cost <= self.level]
        if not fitting:
            return
        past = [self._past[-self.costs[m]] for m in fitting]
        found = self._circle.inside(self._spectra[fitting] * np.array([level.spectra for level in past]))
        found[:, 0] += self._at_once[fitting]
        values = found[:, 0] - found[:, 1]
        best, places = np.argmax(values, axis=0), np.arange(self.lattice.size)
        chosen = found[best, :, places].T
        stops = self._stop[0] - self._stop[1] >= values[best, places]
        self.rates = np.where(stops, self._stop, chosen)
        rounding = 8.0 * UNIT_ROUNDOFF * float(np.abs(self.rates).max())
        errors = [
            rounding
            + max(
                self._mass[m] * (level.errors[side] + self._circle.relative_error * level.norms[side])
                for m, level in zip(fitting, past, strict=True)
            )
            for side in (0, 1)
        ]
        self.errors = errors[0], errors[1]
        self._certain = max(
            self._infinite[m] + self._finite[m] * level.certain for m, level in zip(fitting, past, strict=True)
        )

    def _stored(self) -> _PolicyPast:
        right = self._certain * (1.0 - 1e-12) * self._right
        whole = [
            self._circle.spread(self.rates[0], self._left[0], right).copy(),
            self._circle.spread(self.rates[1], self._left[1]),
        ]
        norms = two_norm(whole[0]), two_norm(whole[1])
        return _PolicyPast(np.asarray(scipy.fft.rfft(np.array(whole))), norms, self.errors, self._certain)

    def tests(self) -> tuple[FloatArray, FloatArray]:
        """(false positive rate rounded up, power rounded down) of the policy's test, one for each lattice point."""
        x, theta = self.lattice.x, self.lattice.tilt
        room = 1e-14 * (1.0 + np.abs(x))
        power = (self.rates[0] - self.errors[0]) * np.exp(-theta * x) * (1.0 - room)
        alpha = (self.rates[1] + self.errors[1]) * np.exp(-(1.0 + theta) * x) * (1.0 + room)
        return np.clip(alpha, 0.0, 1.0), np.clip(power, 0.0, 1.0)
