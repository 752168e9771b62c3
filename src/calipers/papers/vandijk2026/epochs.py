"""Several epochs: the proven E delta, the conjectured sqrt(E) delta, and the pair (Section 6.2, Corollary 5.3).

The proof composes the line 1 - a - delta, whose composition loses E delta to first order; the curve itself loses
about sqrt(E) delta. The paper conjectures a concrete bound sqrt(E) delta. Two readings:

- with the delta of Theorem 4.1 the bound holds at every setting computed here, by a factor of twenty or more;
- with the smallest valid delta of one epoch, its advantage, it is *false*, by up to a percent: two epochs of a skewed
  pair have slightly more than sqrt(2) times the advantage of one. A proof needs a constant above 1 or a margin.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.papers.items import Outcome, Picture, Progress, Row, Table
from calipers.papers.vandijk2026 import drawing
from calipers.papers.vandijk2026.exact import advantage, limit_advantage
from calipers.papers.vandijk2026.tables import QUICK_TOLERANCE, closed
from calipers.theorems.shuffle_limits import shuffle_separation_limit, shuffle_separation_upper
from calipers.theorems.shuffle_one_epoch import shuffle_delta

_ROUNDS = 1_140_000
"""M of the single-epoch setting at sigma = 1 (abstract, Section 6.1)."""
_EPOCHS = (1, 4, 16, 100, 1000, 10_000)
_BOUND = "isolated view; the bound is Theorem 4.1 composed, evaluated here"
_SKEWED = ((1.0, 2683, 4), (0.75, 3359, 16), (0.5, 1_411_582, 100))
"""Noise multiplier, the first M that Theorem 4.1 allows, epochs."""


def _root_row(sigma: float, rounds: int, epochs: int) -> Row:
    """The advantage after some epochs in units of sqrt(E) times that of one."""
    low, high = advantage(sigma, rounds, epochs, 1e-4)
    least, most = advantage(sigma, rounds)
    root = math.sqrt(epochs)
    quantity = f"σ = {sigma:g}, M = {rounds}, E = {epochs}: advantage over √E × advantage of one epoch"
    return Row.of(
        quantity, None, (low / (root * most), high / (root * least)), note="isolated view; above 1: no √E law"
    )


def several_epochs(progress: Progress) -> Outcome:
    """sigma = 1 and M = 1.14e6: advantage and separation after E epochs, beside E delta and sqrt(E) delta."""
    delta = shuffle_delta(1.0, _ROUNDS).delta
    rows: list[Row] = []
    table = Table("epochs")
    total = len(_EPOCHS) + len(_SKEWED)
    for done, epochs in enumerate(_EPOCHS, start=1):
        low, high = advantage(1.0, _ROUNDS, epochs, QUICK_TOLERANCE)
        proven = -math.expm1(epochs * math.log1p(-delta))
        conjectured = math.sqrt(epochs) * delta
        root, most = math.sqrt(2.0), shuffle_separation_upper(1.0, _ROUNDS, epochs)
        apart = shuffle_separation_limit(1.0, _ROUNDS, epochs)
        rows += [
            Row.of(f"E = {epochs}: advantage", f"<= {proven:.4g}", (low, high), note=_BOUND),
            Row.of(f"E = {epochs}: advantage over √E δ", "<= 1", (low / conjectured, high / conjectured)),
            Row.of(f"E = {epochs}: separation", f"<= {most:.4g}", (low / root, high / root), note=_BOUND),
            closed(f"E = {epochs}: limit of the separation", None, apart, "Corollary 5.3; no bound"),
        ]
        limit = limit_advantage(1.0, _ROUNDS, epochs)
        table.add(epochs=epochs, advantage=(low, high), proven=proven, conjectured=conjectured, limit=limit)
        progress(done, total)
    for done, setting in enumerate(_SKEWED, start=len(_EPOCHS) + 1):
        rows.append(_root_row(*setting))
        progress(done, total)
    grid = np.geomspace(1.0, 1e4, 81)
    lines = {
        "proven: 1 − (1 − δ)^E": -np.expm1(grid * math.log1p(-delta)),
        "conjectured: √E δ": np.sqrt(grid) * delta,
        "limit of the pair": np.array([limit_advantage(1.0, _ROUNDS, 1) * math.sqrt(e) for e in grid]),
    }
    exact = list(zip(table.column("epochs"), table.column("advantage_upper"), strict=True))
    picture = Picture.on_axes((6.8, 5.0), drawing.draw_epochs, grid, lines, exact, "σ = 1, M = 1.14e6")
    return Outcome(rows, data=(table.data,), picture=picture, facts={"delta": delta})
