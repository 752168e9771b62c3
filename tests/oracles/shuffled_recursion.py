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
    x = np.linspace(-9.5 - 2.0 * width, 9.5 + 2.0 * width, 1_500)
    along = np.exp(-0.5 * x * x)
    y, across = np.polynomial.hermite_e.hermegauss(40) if s > 1e-9 else (np.zeros(1), np.ones(1))
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
) -> float:
    """About the divergence at epsilon of the best adaptive adversary; `step` in deviations of k B."""
    radius = 1.0 / sigma
    lengths = [zeroed_lengths(radius, share * 4.0 * radius**2, reverse) for share in shares]
    return value_of_choices(lengths, rounds, epsilon, participation, step)


def value_of_choices(
    choices: list[Lengths], rounds: int, epsilon: float, participation: float = 1.0, step: float = 0.1
) -> float:
    """About the divergence at epsilon of an adversary who has these choices in every round."""
    k = math.exp(epsilon)
    h = step * k * math.sqrt(math.expm1(max(width for _, _, width in choices) ** 2))
    reach = math.ceil((rounds * (k - 1.0) / participation + 7.5 / step * h * math.sqrt(rounds)) / h) + 8
    sums = h * np.arange(-reach, reach + 1)
    size, pad = len(sums), 2 * reach + 4
    length = scipy.fft.next_fast_len(size + 2 * pad, real=True)
    spectra, beyond = [], []
    for lengths in choices:
        terms, weights = _nodes(lengths, k)
        near, right, left = np.abs(terms) <= (pad - 3) * h, terms > (pad - 3) * h, terms < (3 - pad) * h
        spectra.append(scipy.fft.rfft(_kernel(terms[near] / h, weights[near], length)))
        beyond.append((weights[right].sum(), float(weights[right] @ terms[right]), weights[left].sum()))
    values = np.maximum(sums, 0.0)
    for _ in range(rounds):
        ahead = values[-1] + h * np.arange(1, pad + 1)
        spectrum = scipy.fft.rfft(np.concatenate((np.full(pad, values[0]), values, ahead)), length)
        found = []
        for kernel, (mass, moment, lost) in zip(spectra, beyond, strict=True):
            inside = scipy.fft.irfft(spectrum * kernel, length)[pad : pad + size]
            found.append(inside + mass * (values[-1] + sums - sums[-1]) + moment + lost * values[0])
        values = np.max(found, axis=0)
    start = -rounds * (1.0 - participation) / participation * (k - 1.0)
    return participation / rounds * float(np.interp(start, sums, values))
