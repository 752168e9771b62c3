"""The value of one shuffled epoch with a remainder by dynamic programming; shares no code.

V_0(s) = max(s, 0), V_n(s) = max over some alpha of E[V_(n-1)(s + A - k B)], divergence (r/M) V_M(-M (1 - r)(k - 1)/r).
Terms are quadrature nodes, interpolation is cubic: an estimate, to about 1e-5 of the value, neither above nor below.
Restricted to alpha = 0 and alpha = 4/sigma^2 it is an adversary's value, and six digits of the supremum. For replaced
records the maximum runs over triples (x, x', y) of points of a ball, as many as one likes.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.fft

Lengths = tuple[float, float, float]


def zeroed_lengths(radius: float, alpha: float, reverse: bool) -> Lengths:
    """|a|, |b|, |a - b|: |a|^2 = alpha, |b| = |a - b| = radius (reverse: |b|^2 = alpha, |a| = radius)."""
    return (radius, math.sqrt(alpha), radius) if reverse else (math.sqrt(alpha), radius, radius)


def triples_in_the_ball(radius: float, directions: int, inside: tuple[float, ...] = ()) -> list[Lengths]:
    """Lengths of the shifts of x, x', y on the circle in equally spaced directions, and on smaller circles inside."""
    turns = np.exp(2j * math.pi * np.arange(directions) / directions)
    points = [share * radius * turn for share in (1.0, *inside) for turn in turns]
    others = [share * radius for share in (1.0, *inside)]
    found = {
        (round(abs(x - y), 12), round(abs(v - y), 12), round(abs(x - v), 12))
        for x in points
        for v in points
        for y in others
    }
    return sorted(one for one in found if one[2] > 0.0)


def _nodes(lengths: Lengths, k: float) -> tuple[np.ndarray, np.ndarray]:
    """A - k B and weights."""
    a, b, width = lengths
    p = (a * a - b * b + width * width) / (2.0 * width)
    s = math.sqrt(max(a * a - p * p, 0.0))
    flat = s <= 1e-6
    x = np.linspace(-9.5 - 2.0 * width, 9.5 + 2.0 * width, 30_000 if flat else 1_500)
    along = np.exp(-0.5 * x * x)
    y, across = (np.zeros(1), np.ones(1)) if flat else np.polynomial.hermite_e.hermegauss(40)
    factor = np.exp(p * x - 0.5 * p * p) - k * np.exp((p - width) * x - 0.5 * (p - width) ** 2)
    values = np.outer(factor, np.exp(s * y - 0.5 * s * s)).ravel()
    return values, np.outer(along / along.sum(), across / across.sum()).ravel()


def _kernel(values: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    """Weights of a cyclic convolution that looks ahead by the values, cubic between places."""
    index = np.floor(values).astype(np.int64)
    f = values - index
    left, right = -f * (f - 1) * (f - 2) / 6, (f + 1) * f * (f - 1) / 6
    kernel = np.zeros(length)
    for shift, share in ((-1, left), (0, (f + 1) * (f - 1) * (f - 2) / 2), (1, -(f + 1) * f * (f - 2) / 2), (2, right)):
        kernel += np.bincount(-(index + shift) % length, weights * share, length)
    return kernel


def exact_divergence(
    sigma: float,
    rounds: int,
    epsilon: float,
    participation: float = 1.0,
    reverse: bool = False,
    step: float = 0.1,
    shares: tuple[float, ...] = (0.0, 0.5, 1.0),
    digits: type = np.float64,
) -> float:
    """About the divergence at epsilon of the best adaptive adversary; `step` in deviations of k B.

    With little noise and below 1e-7 it takes `digits` of np.longdouble.
    """
    radius = 1.0 / sigma
    lengths = [zeroed_lengths(radius, share * 4.0 * radius**2, reverse) for share in shares]
    return value_of_choices(lengths, rounds, epsilon, participation, step, digits)


def value_of_choices(
    choices: list[Lengths],
    rounds: int,
    epsilon: float,
    participation: float = 1.0,
    step: float = 0.1,
    digits: type = np.float64,
) -> float:
    """About the divergence at epsilon of an adversary who has these choices in every round."""
    k = math.exp(epsilon)
    h = step * k * math.sqrt(math.expm1(max(width for _, _, width in choices) ** 2))
    reach = math.ceil((rounds * (k - 1.0) / participation + 7.5 / step * h * math.sqrt(rounds)) / h) + 8
    sums = h * np.arange(-reach, reach + 1)
    size, pad = len(sums), 2 * reach + 4
    length = scipy.fft.next_fast_len(size + 2 * pad, real=True)
    start = -rounds * (1.0 - participation) / participation * (k - 1.0)
    kernels, beyond = [], []
    for lengths in choices:
        terms, weights = _nodes(lengths, k)
        near, right, left = np.abs(terms) <= (pad - 3) * h, terms > (pad - 3) * h, terms < (3 - pad) * h
        kernels.append(_kernel(terms[near] / h, weights[near], length))
        beyond.append((weights[right].sum(), float(weights[right] @ terms[right]), weights[left].sum()))
    # Values are multiplied by e^(-tilt s), without which rare ones have no digits, and by a factor each round.
    ahead = h * -np.fft.fftfreq(length, 1.0 / length)
    tilts = np.geomspace(1e-3, 60.0, 60) / float(ahead.max())
    logs = [np.log(max(float(kernel @ np.exp(t * ahead)) for kernel in kernels)) for t in tilts]
    best = int(np.argmin(rounds * np.array(logs) + tilts * start))
    tilt, factor = float(tilts[best]), math.exp(-logs[best])
    spectra = [scipy.fft.rfft((kernel * np.exp(tilt * ahead)).astype(digits)) for kernel in kernels]
    tilted, done = np.exp(-tilt * sums.astype(digits)), digits(1.0)
    beside = np.exp(-tilt * h * np.arange(1, pad + 1))
    values = np.maximum(sums, 0.0) * tilted
    for _ in range(rounds):
        right = values[-1] * beside + done * tilted[-1] * beside * h * np.arange(1, pad + 1)
        spectrum = scipy.fft.rfft(np.concatenate((np.zeros(pad), values, right)), length)
        found = []
        for kernel, (mass, moment, _) in zip(spectra, beyond, strict=True):
            inside = scipy.fft.irfft(spectrum * kernel, length)[pad : pad + size]
            last = values[-1] / tilted[-1] + done * (sums - sums[-1])
            found.append(inside + (mass * last + done * moment) * tilted)
        values = factor * np.max(found, axis=0)
        done *= factor
    return participation / rounds * float(np.interp(start, sums, (values / tilted / done).astype(np.float64)))
