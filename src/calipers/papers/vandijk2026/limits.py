"""Section 5, at finite M: the Edgeworth map (Theorem 5.1) and the Gaussian limit (Theorem 5.2).

Both theorems are limits without a rate. The exact bracket shows one: with E = c^2 M epochs the profile differs from
that of its limit by about a constant over M.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from calipers.bracket import Side
from calipers.curves import TradeoffCurve
from calipers.laws.allocated.average import AllocationPair
from calipers.laws.composed.product import Product
from calipers.laws.composed.sweep import sweep
from calipers.numerics.normal import gaussian_delta, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.items import Interval, Outcome, Picture, Progress, Row, Table, watched
from calipers.papers.vandijk2026 import drawing
from calipers.papers.vandijk2026.exact import advantage, limit_advantage, limit_mu, profile
from calipers.papers.vandijk2026.ratio_mean import standardized_cdf
from calipers.papers.vandijk2026.tables import QUICK_TOLERANCE, closed
from calipers.theorems.lognormal_ratio import berry_esseen_distance
from calipers.theorems.shuffle_limits import ratio_edgeworth_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FINE = 1e-4
_ROUNDS = (10, 100, 1000, 10_000)
_EPSILONS = (0.0, 1.0, 6.0, 10.0)
_DRAWN_ROUNDS = (10, 100, 1000)
_DRAWN_NOISE = {1.0: (30, 100, 300, 1000), 0.75: (100, 300, 1000, 3000), 0.5: (300, 1000, 3000, 10_000)}
_ALPHA = np.linspace(0.0, 1.0, 201)
_COUNTS = (100, 1000, 10_000, 100_000)
_EDGEWORTH_NOISE = (0.75, 1.0, 2.0)
_WITHIN = np.linspace(-1.0, 1.0, 41)


@cache
def _curves(rounds: int) -> dict[Side, TradeoffCurve]:
    return sweep(Product([(AllocationPair(1.0, rounds), rounds)]), 1e-6, QUICK_TOLERANCE)


def _gaps(rounds: int) -> tuple[FloatArray, FloatArray]:
    """Bounds of f - G_mu at sigma = 1, M = E = rounds."""
    limit = gaussian_tradeoff(limit_mu(1.0, rounds, rounds), _ALPHA)
    curves = _curves(rounds)
    return curves[Side.UPPER](_ALPHA) - limit, curves[Side.LOWER](_ALPHA) - limit


def epochs_for_unit_mu(sigma: float, rounds: int) -> int:
    """The number of epochs, two or more, whose limit has mu nearest to 1."""
    return max(2, round(rounds / math.expm1(sigma**-2)))


def gaussian_limit(progress: Progress) -> Outcome:
    """E = M epochs at sigma = 1 against G_mu, mu = sqrt(e - 1); E = sqrt(M) epochs against the diagonal."""
    rows: list[Row] = []
    table = Table("profiles")

    def add(sigma: float, rounds: int, epochs: int, epsilon: float, jaws: Interval, limit: float) -> None:
        run = {"noise_multiplier": sigma, "rounds": rounds, "epochs": epochs, "epsilon": epsilon}
        table.add(**run, delta=jaws, delta_limit=limit)

    for epsilon in _EPSILONS:
        limit = float(gaussian_delta(limit_mu(1.0, 1, 1), epsilon))
        for rounds in _ROUNDS:
            found = profile(1.0, rounds, rounds, epsilon, _FINE if rounds <= 1000 else QUICK_TOLERANCE)
            rows.append(Row.of(f"δ({epsilon:g}) of M = E = {rounds}", None, found, note="isolated view, σ = 1"))
            add(1.0, rounds, rounds, epsilon, found, limit)
        rows.append(closed(f"δ({epsilon:g}) of the limit, μ = √(e − 1)", None, limit, "Theorem 5.2 with c = 1"))
    progress(1, 4)
    for rounds in (100, 10_000, 1_000_000):
        epochs = math.isqrt(rounds)
        rows.append(Row.of(f"advantage of M = {rounds}, E = √M", None, advantage(1.0, rounds, epochs, QUICK_TOLERANCE)))
    for rounds in (100, 10_000, 1_000_000):
        low, high = advantage(1.0, rounds, 1, QUICK_TOLERANCE)
        first = limit_mu(1.0, rounds - 1, 1) / math.sqrt(2.0 * math.pi)
        rows.append(Row.of(f"one epoch of M = {rounds}: advantage over μ/√(2π)", None, (low / first, high / first)))
    progress(2, 4)
    lines: dict[str, list[tuple[float, float]]] = {}
    for sigma, counts in _DRAWN_NOISE.items():
        points = lines.setdefault(f"σ = {sigma:g}", [])
        for rounds in counts:
            epochs = epochs_for_unit_mu(sigma, rounds)
            low, high = advantage(sigma, rounds, epochs, _FINE)
            limit = limit_advantage(sigma, rounds, epochs)
            points.append((float(rounds), limit - 0.5 * (low + high)))
            add(sigma, rounds, epochs, 0.0, (low, high), limit)
        name = f"σ = {sigma:g}, M = {rounds}, E = {epochs}: M (limit − advantage)"
        rows.append(Row.of(name, None, (rounds * (limit - high), rounds * (limit - low)), note="μ near 1"))
    progress(3, 4)
    gaps = {rounds: _gaps(rounds) for rounds in _DRAWN_ROUNDS}
    progress(4, 4)

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        drawing.draw_gaps(left, _ALPHA, gaps)
        words = {"xlabel": "rounds M", "ylabel": "advantage of the limit − advantage", "slope": "1/M"}
        drawing.draw_errors(right, lines, title="μ near 1: distance to the limit", **words)

    return Outcome(rows, data=(table.data,), picture=Picture(draw, (10.8, 4.8)))


def edgeworth(progress: Progress) -> Outcome:
    """Theorem 5.1 for the mean of n likelihood ratios: n sup |F_n - Phi(p_n)| over |x| <= 1 goes to zero."""
    rows, table = [], Table("errors")
    lines: dict[str, list[Interval]] = {}
    note = "by Fourier inversion, over a grid of |x| <= 1"
    for sigma in watched(_EDGEWORTH_NOISE, progress):
        points = lines.setdefault(f"σ = {sigma:g}", [])
        for count in _COUNTS:
            cdf = standardized_cdf(sigma, count, _WITHIN)
            edge = ratio_edgeworth_map(sigma, count)
            mapped = ndtr(np.array([edge(float(x)) for x in _WITHIN]))
            error = count * float(np.max(np.abs(cdf - mapped)))
            plain = math.sqrt(count) * float(np.max(np.abs(cdf - ndtr(_WITHIN))))
            limit = math.sqrt(count) * berry_esseen_distance(sigma, count)
            rows += [
                Row.of(f"σ = {sigma:g}, n = {count}: n sup |F_n − Φ(p_n)|", None, error, "estimate", note),
                Row.of(f"σ = {sigma:g}, n = {count}: √n sup |F_n − Φ|", f"<= {limit:.4g}", plain, "estimate", note),
            ]
            found = {"n_sup_edgeworth": error, "root_n_sup_normal": plain, "root_n_berry_esseen_eq19": limit}
            table.add(noise_multiplier=sigma, n=count, **found)
            points.append((float(count), error))
    words = {"xlabel": "terms n", "ylabel": "n sup |F_n − Φ(p_n)| over |x| <= 1", "slope": "1/√n"}
    picture = Picture.on_axes((6.4, 4.8), drawing.draw_errors, lines, title="Theorem 5.1", **words)
    return Outcome(rows, data=(table.data,), picture=picture)
