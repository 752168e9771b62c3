"""draft"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.fft

from calipers.laws.allocated.frontier import GridTerm, cell_on_grid, control_range
from calipers.laws.allocated.hidden_term import HiddenTerm
from calipers.numerics.fourier import UNIT_ROUNDOFF, fast_length, fft_relative_error, two_norm
from calipers.numerics.types import FloatArray

USUAL = (0.0, 0.01, 0.05, 0.25, 0.75, 0.95, 0.99, 1.0)
FINE = (0.0, 0.003, 0.012, 0.04, 0.12, 0.22, 0.4, 0.6, 0.78, 0.88, 0.96, 0.988, 0.997, 1.0)


class Operator:
    """One round before: the best cell at every running sum, tilted."""

    def __init__(self, cells, low, size, step, tilt):
        self.low, self.size, self.step, self.tilt = low, size, step, tilt
        first, last = cells[0].low, cells[0].low + len(cells[0].masses) - 1
        masses = np.stack([c.masses for c in cells])
        self.charge = max(c.charge for c in cells)
        x = step * np.arange(first, last + 1)
        tilted = masses * np.exp(tilt * x)
        self.log_moment = math.log(float(tilted.sum(axis=1).max()))
        tilted /= math.exp(self.log_moment)
        near = np.arange(first, last + 1)
        inside = np.abs(near) < size
        reach = max(min(-first, size - 1), min(last, size - 1))
        self.length = fast_length(size + reach)
        spread = np.zeros((len(cells), self.length))
        spread[:, (-near[inside]) % self.length] = tilted[:, inside]
        self.spectra = scipy.fft.rfft(spread)
        # landing below the first place / above the last
        u = np.arange(size)  # place number
        below = np.cumsum(masses, axis=1)  # P(x <= place)
        def cdf(t):  # P(X <= t) for integer places t
            idx = np.clip(t - first, -1, last - first)
            return np.where(idx < 0, 0.0, below[:, np.maximum(idx, 0)])
        self.left = cdf(-1 - u) * np.exp(-tilt * step * u) / math.exp(self.log_moment)
        above_mass = np.cumsum(tilted[:, ::-1], axis=1)[:, ::-1]
        survive = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]  # P(X >= place)
        calls = step * np.cumsum(np.concatenate((survive[:, 1:], np.zeros((len(cells), 1))), axis=1)[:, ::-1], axis=1)[:, ::-1]  # E(X - place)+
        t = size - 1 - u  # distance to last place
        def at(table, place):
            idx = place - first
            return np.where(idx > last - first, 0.0, table[:, np.clip(idx, 0, last - first)])
        factor = np.exp(tilt * step * t - self.log_moment)
        self.right = at(survive, t + 1) * factor
        self.call = at(calls, t) * factor
        self.last_place = step * (low + size - 1)

    def __call__(self, values, scale):
        """values: V e^(-tilt u) e^-scale."""
        spectrum = scipy.fft.rfft(values, self.length)
        found = scipy.fft.irfft(spectrum * self.spectra, self.length)[:, : self.size]
        found += values[0] * self.left
        found += values[-1] * self.right
        found += self.call * math.exp(-self.tilt * self.last_place - scale)
        error = 1.02 * (3 * fft_relative_error(self.length) + 8 * UNIT_ROUNDOFF) * two_norm(values)
        return found.max(axis=0) + error


def recursion_divergence(term, rounds, participation, fine=0.3, shares=USUAL, points=240, z=5.0, info=False):
    k = math.exp(term.epsilon)
    drift = math.expm1(term.epsilon)
    start = -rounds * drift / participation
    sd = k * math.sqrt(math.expm1(term.width**2))
    step = fine * sd
    if -start > step:
        step = -start / math.ceil(-start / step)
    spread = z * sd * math.sqrt(rounds)
    low = math.floor((start - spread) / step)
    losses = 0.0
    if term.left[1] > term.right[0]:
        losses = k * math.exp(4.0 * term.left[1] - 0.5 * term.left[1] ** 2)
    high = math.ceil(max(spread, min(losses, 3 * spread)) / step)
    size = high - low + 1
    r = control_range(term)
    marks = [r[0] + (r[1] - r[0]) * s for s in shares]
    cells = [cell_on_grid(term, c, drift, step, (-size, size), points) for c in pairwise(marks)]
    # trim
    total = np.max([c.masses for c in cells], axis=0)
    x = step * np.arange(-size, size + 1)
    # tilt
    m = np.stack([c.masses for c in cells])
    rates = np.geomspace(1e-3 / spread, 60.0 / spread, 60)
    logs = np.array([rounds * math.log(float((m @ np.exp(np.minimum(t * x, 600))).max())) + t * start for t in rates])
    i = int(np.argmin(logs))
    tilt = float(rates[i])
    op = Operator(cells, low, size, step, tilt)
    u = step * np.arange(low, high + 1)
    values = np.maximum(u, 0.0) * np.exp(-tilt * u)
    for n in range(rounds):
        values = op(values, n * op.log_moment)
    at = float(np.interp(start, u, values))
    out = at * math.exp(tilt * start + rounds * op.log_moment) + rounds * op.charge
    if info:
        print("size", size, op.length, "step", step / sd, "tilt*spread", tilt * spread, "charge", rounds * op.charge / out)
    return min(1.0, participation * out / rounds)
