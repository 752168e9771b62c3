"""The noise of a step: its distribution, its size, and what it shares with other steps, layers and seeds.

Noise hides a gradient only if nobody can subtract it. Noise of the right size that is the same in every step, in
every run, or in two layers, hides nothing: the difference of the two is free of it. So the noise is looked at as a
table, one row a step (several successive steps of several runs, each run with its own seed), one column a coordinate,
under the hypothesis that all entries are independent N(0, s^2):

- **size**: d (s/s0)^2 is chi-square for d entries, for the whole table and for each layer; entries that never change
  get no noise at all;
- **distribution**: the Dvoretzky-Kiefer-Wolfowitz inequality, P(sup |F_d - F| > t) <= 2 e^(-2 d t^2);
- **correlation**: a sum of n products of entries at a fixed distance (of coordinates, steps or runs) is a quadratic
  form of Frobenius norm sqrt(n/2) and spectral norm at most 1, so it exceeds sqrt(2 n u) + 2 u with probability at
  most e^(-u) (Laurent and Massart's bound). All distances are tried at once by Fourier transform;
- **common factors**: the largest singular value of an m x n table exceeds s (sqrt(m) + sqrt(n) + sqrt(2 u)) with
  probability at most e^(-u) (Davidson and Szarek);
- **precision**: a hundred thousand draws of single precision hardly ever repeat a value; half precision repeats most.

All but the last hold without approximation.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import chdtri

from calipers.auditing.normality import normal_distance
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.numerics.types import FloatArray
from calipers.probing.lens import Lens
from calipers.probing.protocol import Finding

SAMPLES = 100_000
STEPS = 4
# Coordinates looked at, from the beginning of each layer: generators that start anew repeat themselves there.
MOST_COORDINATES = 4096
LEAST_TERMS = 1000
# Steps of a real model take their time; few coordinates then give wider intervals.
MOST_RUNS = 250


class NoiseTable:
    """Noise in units of the clipping norm: shape (runs, STEPS, coordinates), and the columns of each layer.

    Steps on two zero gradients: `SAMPLES` coordinates or more, fewer if `MOST_RUNS` do not hold as many.
    """

    def __init__(self, lens: Lens, divisor: float, seed: int) -> None:
        share = max(1, MOST_COORDINATES // len(lens.layers))
        columns = [np.arange(layer.start, min(layer.stop, layer.start + share)) for layer in lens.layers]
        picked = np.concatenate(columns)
        runs = min(MOST_RUNS, max(12, math.ceil(SAMPLES / (STEPS * picked.size))))
        values = np.stack([lens.successive(STEPS, 2, seed + run)[:, picked] for run in range(runs)])
        self.values = _without_shift(values * divisor / lens.bound)
        self.named = len(columns) > 1
        # One layer, or nothing said about layers: look at its parts.
        parts = np.linspace(0, picked.size, min(8, picked.size) + 1).astype(int)
        edges = np.cumsum([0, *map(len, columns)]) if self.named else parts
        self.layers = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]

    @property
    def rows(self) -> FloatArray:
        """All steps of all runs, one row each."""
        return self.values.reshape(-1, self.values.shape[2])


def _without_shift(values: FloatArray) -> FloatArray:
    """A constant that every step adds (weight decay) is no noise; it is taken off where it is beyond luck."""
    rows = values.reshape(-1, values.shape[2])
    if not np.isfinite(rows).all():
        return values
    mean = rows.mean(axis=0)
    variance = float(np.mean((rows - mean) ** 2))
    luck = chdtri(mean.size, 1e-9) / len(rows)
    return values - mean if variance > 0 and float(mean @ mean) > luck * variance else values


def noise_finding(
    table: NoiseTable, asked: float, bound: float, error: float, *, shared: bool = False
) -> tuple[Finding, float | None]:
    """Whether the noise is Gaussian with the multiplier asked for, and a value to describe it by.

    `shared` says that values repeat because steps or layers share them.

    The second value is the multiplier asked for when the data allow it, otherwise the lower end of its interval (less
    noise than that is excluded with probability 1 - error), or None if the noise is none, or of no size in the
    interval.
    """
    samples = table.values.ravel()
    if not np.isfinite(samples).all():
        return Finding("noise", "not finite", "A step returns infinities or NaN.", alarm=True), None
    constant = np.ptp(table.rows, axis=0) == 0.0
    if constant.all():
        return _never_changes(table)
    if constant.any():
        evidence = f"{int(constant.sum())} of {constant.size} coordinates did not change in {len(table.rows)} steps"
        return Finding("noise", f"missing: {_where(table, constant)}", evidence, alarm=True), None
    size, low, high = _interval(samples, error / 4)
    evidence = f"{samples.size} coordinates: noise multiplier in [{floor_digits(low)}, {ceil_digits(high)}] if Gaussian"
    uneven = _uneven(table, error / 4)
    if uneven is not None:
        return Finding("noise", uneven[0], f"{evidence}; {uneven[1]}", error, True), None
    distance = math.inf if asked <= 0 else float(normal_distance(samples / asked))
    fitted = float(normal_distance(samples / size))
    allowed = math.sqrt(math.log(8 / error) / (2 * samples.size))
    evidence += f"; greatest distance from the distribution of N(0, {asked:g}^2) {distance:.3g}, allowed {allowed:.3g}"
    coarse = _coarse(samples[: 2 * SAMPLES])
    if coarse and not shared:
        return Finding("noise", "few different values: of low precision, or drawn again", coarse, error, True), None
    if low <= asked <= high and distance <= allowed:
        return Finding("noise", f"Gaussian, noise multiplier {asked:g} as asked", evidence, error), asked
    # d Phi(x/s) / d log s is at most 0.25 in size, so the true scale moves the distance by no more than this.
    if fitted > allowed + 0.25 * math.log(high / low):
        return Finding("noise", "not Gaussian", evidence, error, alarm=True), None
    verdict = f"Gaussian, but not of multiplier {asked:g}: estimated {size:.5g}{_likely(low, high, asked, bound)}"
    return Finding("noise", verdict, evidence, error, alarm=True), low


def _never_changes(table: NoiseTable) -> tuple[Finding, None]:
    """A table of equal rows: no noise, or one vector for all steps and seeds."""
    evidence = f"{len(table.rows)} steps with {len(table.values)} seeds gave one and the same vector"
    if not table.values.any():
        return Finding("noise", "none: steps on zero gradients return zeros", evidence, alarm=True), None
    return Finding("noise", "none: every step of every run adds the same vector", evidence, alarm=True), None


def _interval(samples: FloatArray, tail: float) -> tuple[float, float, float]:
    """The deviation, and the ends between which it lies if the samples are Gaussian; each end errs with `tail`."""
    square = float(np.mean(samples**2))
    count = samples.size
    low, high = (math.sqrt(square * count / chdtri(count, level)) for level in (tail, 1 - tail))
    return math.sqrt(square), low, high


def _uneven(table: NoiseTable, error: float) -> tuple[str, str] | None:
    """The layer whose noise cannot have the deviation of another's, if there is one."""
    tail = error / (2 * len(table.layers))
    found = [_interval(table.rows[:, layer].ravel(), tail) for layer in table.layers]
    least, most = (int(np.argmin([size for size, _, _ in found])), int(np.argmax([size for size, _, _ in found])))
    if found[least][2] >= found[most][1]:
        return None
    what = f"layer {least + 1}" if table.named else f"part {least + 1} of {len(table.layers)} of the coordinates"
    verdict = f"differs between {'layers' if table.named else 'coordinates'}: least in {what}"
    return verdict, f"multipliers estimated {', '.join(f'{size:.4g}' for size, _, _ in found)}"


def _where(table: NoiseTable, constant: FloatArray) -> str:
    """Which layers, or how many coordinates, get no noise."""
    bare = [number + 1 for number, layer in enumerate(table.layers) if constant[layer].all()]
    if table.named and bare:
        return f"layer {', '.join(map(str, bare))} gets no noise"
    return f"{int(constant.sum())} of {constant.size} coordinates get no noise"


def _likely(low: float, high: float, asked: float, bound: float) -> str:
    """A mistake that would give this size, as a question."""
    guesses = {
        "a variance taken for a deviation": math.sqrt(asked) if asked > 0 else math.inf,
        "a deviation squared": asked**2,
        "not multiplied by the clipping norm": asked / bound,
        "multiplied twice by the clipping norm": asked * bound,
        "halved": asked / 2,
        "doubled": asked * 2,
        "two noises added": asked * math.sqrt(2),
    }
    fitting = [word for word, value in guesses.items() if low <= value <= high and value != asked]
    return f" ({' or '.join(fitting)}?)" if fitting else ""


def _coarse(samples: FloatArray) -> str:
    """Why the samples cannot be draws of single precision, or nothing.

    A single value that comes often is an atom, and a matter of the distribution.
    """
    _, times = np.unique(samples, return_counts=True)
    repeated = 1 - times.size / samples.size
    if repeated <= 0.03 or times.max() > samples.size / 100:
        return ""
    return f"{100 * repeated:.3g} % of {samples.size} draws repeat a value; single precision repeats under 2 %"


def correlation_finding(table: NoiseTable, error: float) -> Finding:
    """Whether noise is shared between steps, seeds, layers or coordinates."""
    subject = "noise correlation"
    values = table.values
    runs, steps, columns = values.shape
    if not np.isfinite(values).all() or not values.any():
        return Finding(subject, "no noise to look at", "Steps return zeros, infinities or NaN.", alarm=True)
    size, _, high = _interval(values.ravel(), error / 4)
    unit = values / high
    u = math.log(4 * (3 * 2 * columns + columns + 2) / error)
    evidence = f"{runs} runs of {steps} steps, {columns} coordinates, every distance between them"
    # (correlation beyond luck, in words) for each way to share noise; the greatest names the mistake.
    found: list[tuple[float, str]] = []
    if runs > 1:
        total, terms = float(np.sum(unit[1:, 0] * unit[:-1, 0])), (runs - 1) * columns
        if abs(total) > math.sqrt(2 * terms * u) + 2 * u:
            found.append((total / terms, "runs with different seeds share noise: the generator is not used"))
    for gap in range(1, steps):
        lag, share = _greatest(unit[:, gap:].reshape(-1, columns), unit[:, :-gap].reshape(-1, columns), u)
        if share:
            verdict = "successive steps add the same noise" if share * high**2 > 0.99 * size**2 else "steps share noise"
            where = f"steps {gap} apart" + (f", coordinates {abs(lag)} apart" if lag else "")
            found.append((share, f"{verdict}: it can be taken off again ({where})"))
    lag, share = _greatest(table.rows / high, None, u)
    if share:
        found.append((share, _shared(table, lag)))
    if found:
        share, verdict = max(found, key=lambda entry: round(abs(entry[0]), 3))
        return Finding(
            subject, verdict, f"{evidence}; estimated correlation {share * high**2 / size**2:.3g}", error, True
        )
    smaller = table.rows / high
    gram = smaller @ smaller.T if len(smaller) <= columns else smaller.T @ smaller
    largest = math.sqrt(max(0.0, float(np.linalg.eigvalsh(gram)[-1])))
    limit = math.sqrt(len(smaller)) + math.sqrt(columns) + math.sqrt(2 * math.log(4 / error))
    evidence += f"; largest singular value {largest:.4g}, allowed {limit:.4g}"
    if largest > limit:
        return Finding(subject, "coordinates share a common factor", evidence, error, True)
    return Finding(subject, "none found between steps, seeds, layers or coordinates", evidence, error)


def _greatest(first: FloatArray, second: FloatArray | None, u: float) -> tuple[int, float]:
    """The distance of coordinates with the greatest correlation beyond luck, and that correlation; (0, 0) if none is.

    `second` None correlates rows with themselves, at distances from 1 on.
    """
    rows, columns = first.shape
    length = next_fast_len(2 * columns, real=True)
    left = rfft(first, length, axis=1)
    right = left if second is None else rfft(second, length, axis=1)
    sums = irfft((left * np.conj(right)).sum(axis=0), length)
    lags = np.arange(1, columns) if second is None else np.arange(-columns + 1, columns)
    totals = sums[lags]
    terms = rows * (columns - np.abs(lags))
    beyond = (np.abs(totals) > np.sqrt(2 * terms * u) + 2 * u) & (terms >= min(LEAST_TERMS, rows * columns))
    if not beyond.any():
        return 0, 0.0
    found = int(np.argmax(np.where(beyond, np.abs(totals), 0.0)))
    return int(lags[found]), float(totals[found] / terms[found])


def _shared(table: NoiseTable, lag: int) -> str:
    """Which layers begin with the same noise, or that coordinates share it."""
    if table.named:
        starts = [layer.start for layer in table.layers]
        pairs = [
            (i + 1, j + 1)
            for i, one in enumerate(starts)
            for j, other in enumerate(starts)
            if other - one == lag and i < j
        ]
        if pairs:
            return f"layers {pairs[0][0]} and {pairs[0][1]} receive the same noise: it can be taken off again"
    return f"coordinates {lag} apart receive the same noise: it can be taken off again"
