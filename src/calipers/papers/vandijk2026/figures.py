"""Figures 1 and 3, with the pair itself drawn beside the bounds.

Both evaluate Theorem 4.1 or its two leading terms. The paper prints no number in them, so what can be compared is what
their captions say. They explain the U-shape in sigma by the Berry-Esseen coefficient, rightly: it is a shape of the
bound. The advantage of the pair falls with sigma at every M (more noise is a data processing of less).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from calipers.papers.items import Outcome, Picture, Progress, Row, Table, watched
from calipers.papers.vandijk2026 import drawing, published
from calipers.papers.vandijk2026.exact import advantage, fewest_rounds, limit_rounds
from calipers.papers.vandijk2026.tables import QUICK_TOLERANCE, closed
from calipers.theorems.shuffle_one_epoch import (
    shuffle_delta,
    shuffle_rounds,
    shuffle_rounds_sharp,
    shuffle_rounds_two_terms,
)

_EXACT_ROUNDS = (100, 10**4, 10**6, 10**8)
_FEWER_NOISE_MULTIPLIERS = (1.0, 2.0)
_LARGEST_NOISE = 3.7
_DRAWN_TOLERANCE = 1e-2
"""Rounds come out to about half a percent, which is less than the size of a dot."""
_FIRST_NOTE = "condition (1) decides, not e^(3/σ²)"
_FIRST_POSSIBLE = 0.999
"""Condition (1) implies delta < 1/2, so asking the theorem for this delta gives the fewest rounds it allows."""


def figure_1(progress: Progress) -> Outcome:
    """delta against M for five noise multipliers: Theorem 4.1 from its first M on, and the pair itself."""
    rows, table = [], Table("curves")
    curves, exact = {}, {}
    for sigma in watched(published.NOISE_MULTIPLIERS, progress):
        start = shuffle_rounds(_FIRST_POSSIBLE, sigma)
        places = [start, *(round(m) for m in np.geomspace(start, 1e11, 60)[1:])]
        curves[sigma] = [(float(m), shuffle_delta(sigma, m).delta) for m in places]
        brackets = [advantage(sigma, m, tolerance=QUICK_TOLERANCE) for m in _EXACT_ROUNDS]
        exact[sigma] = [(float(m), high) for m, (_, high) in zip(_EXACT_ROUNDS, brackets, strict=True)]
        name = f"σ = {sigma:g}"
        claimed = shuffle_delta(sigma, 10**8).delta
        low, high = brackets[-1]
        rows += [
            closed(f"{name}: first M", f">= {math.exp(3.0 / sigma**2):.6g}", start, _FIRST_NOTE),
            closed(f"{name}: δ by Theorem 4.1 at M = 1e8", None, claimed),
            Row.of(f"{name}: advantage at M = 1e8", None, (low, high), note="isolated view"),
            Row.of(f"{name}: the bound over the advantage at M = 1e8", None, (claimed / high, claimed / low)),
        ]
        for m, delta in curves[sigma]:
            table.add(noise_multiplier=sigma, rounds=m, what="theorem 4.1", delta=(delta, delta))
        for m, jaws in zip(_EXACT_ROUNDS, brackets, strict=True):
            table.add(noise_multiplier=sigma, rounds=m, what="pair", delta=jaws)
    # The upper jaw at one noise multiplier against the lower jaw at the one before, at the same M.
    grows = sum(
        after["delta_upper"] >= before["delta_lower"]  # type: ignore[operator]
        for m in _EXACT_ROUNDS
        for before, after in pairwise(table.where(rounds=m, what="pair"))
    )
    rows.append(Row.of("times the pair's advantage may grow with σ, same M", None, grows, "exact check"))
    drawn = drawing.draw_delta_against_rounds, curves, exact, published.FIGURE_1_MARKS
    return Outcome(rows, data=(table.data,), picture=Picture.on_axes((8.0, 5.6), *drawn))


def least_noise() -> float:
    """The sigma that needs the fewest rounds by Equation (3): golden-section search of a function with one valley."""
    low, high = 0.5, 2.0
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    while high - low > 1e-9:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if shuffle_rounds_two_terms(published.DELTA, left) < shuffle_rounds_two_terms(published.DELTA, right):
            high = right
        else:
            low = left
    return 0.5 * (low + high)


def figure_3(progress: Progress) -> Outcome:
    """Rounds against the noise multiplier for three targets: Equation (3), Equation (53), and the pair itself."""
    sigma = np.geomspace(0.4, _LARGEST_NOISE, 61)
    curves, exact, table = {}, {}, Table("rounds")
    rows = [closed("σ with the fewest rounds by Equation (3)", published.LEAST_NOISE_FIGURE_3, least_noise())]
    for delta in watched(published.FIGURE_3_DELTAS, progress):
        curves[delta] = {
            "eq3": np.array([shuffle_rounds_two_terms(delta, float(s)) for s in sigma]),
            "eq53": np.array([float(shuffle_rounds_sharp(delta, float(s))) for s in sigma]),
            "limit": np.array([limit_rounds(delta, float(s)) for s in sigma]),
        }
        whole = np.array([float(shuffle_rounds(delta, float(s))) for s in sigma])
        short = 100.0 * float(np.max(whole / curves[delta]["eq3"] - 1.0))
        name = f"δ = {delta:g}"
        quantity, note = f"{name}: (3) short of Theorem 4.1 at most (%)", "over a grid of σ from 0.4 to 3.7"
        rows.append(Row.of(quantity, published.TWO_TERMS_WITHIN, short, "estimate", note))
        for place in zip(sigma, curves[delta]["eq3"], whole, curves[delta]["eq53"], strict=True):
            s, asked, all_terms, sharp = (float(number) for number in place)
            table.add(delta=delta, noise_multiplier=s, rounds_eq3=asked, rounds_thm41=all_terms, rounds_eq53=sharp)
        places = published.NOISE_MULTIPLIERS if delta == published.DELTA else _FEWER_NOISE_MULTIPLIERS
        found = {s: fewest_rounds(delta, s, tolerance=_DRAWN_TOLERANCE) for s in places}
        exact[delta] = [(s, float(high)) for s, (_, high) in found.items()]
        for s, (low, high) in found.items():
            asked = shuffle_rounds_two_terms(delta, s)
            rows += [
                closed(f"{name}, σ = {s:g}: M by Equation (3)", None, asked),
                Row.of(f"{name}, σ = {s:g}: M that the pair needs", None, (low, high), note="isolated view"),
            ]
    beyond = 100.0 * (shuffle_rounds(published.DELTA, 4.0) / shuffle_rounds_two_terms(published.DELTA, 4.0) - 1.0)
    rows.append(closed("δ = 0.01, σ = 4: (3) short of Theorem 4.1 (%)", None, beyond, "condition (1) decides here"))
    picture = Picture.on_axes((8.0, 5.6), drawing.draw_rounds_against_noise, sigma, curves, exact)
    return Outcome(rows, data=(table.data,), picture=picture, facts={"least_noise": least_noise()})
