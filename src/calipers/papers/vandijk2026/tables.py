"""Table 1 and the worked settings of Section 6, each beside what the pair itself needs.

Equation (3) and Theorem 4.1 come out to the printed digits, but for one: 3,714,997.5 rounds at sigma = 0.75 round to
3.71e6, not to 3.72e6. What the table does not show is how far the theorem is from the truth. The advantage of the pair
is mu/sqrt(2 pi) to first order, the second term of the theorem; the first term, Berry-Esseen, is twenty times as large
at sigma = 1 and all of it is slack.
"""

from __future__ import annotations

import math
from typing import Any

from calipers.papers.items import Outcome, Progress, Row, Table, watched
from calipers.papers.vandijk2026 import published
from calipers.papers.vandijk2026.exact import TOLERANCE, advantage, fewest_rounds
from calipers.theorems.shuffle_one_epoch import (
    shuffle_dataset_size,
    shuffle_delta,
    shuffle_rounds,
    shuffle_rounds_sharp,
    shuffle_rounds_two_terms,
)

QUICK_TOLERANCE = 1e-3
"""Relative width aimed for where many advantages are needed: rounds come out to about 0.1 percent."""

_ISOLATED = "isolated view: the pair of the paper"


def closed(quantity: str, text: str | None, value: float, note: str = "") -> Row:
    """A row of a closed form, whose rounding is far below every printed digit."""
    return Row.of(quantity, text, value, "closed form", note)


def table_1(progress: Progress) -> Outcome:
    """Rounds and records for delta = 0.01: as printed, by the sharper Equation (53), and exactly."""
    rows, table = [], Table("rounds")
    delta = published.DELTA
    for sigma, texts in watched(published.TABLE_1.items(), progress):
        approximate, solved = shuffle_rounds_two_terms(delta, sigma), shuffle_rounds(delta, sigma)
        sharp, records = shuffle_rounds_sharp(delta, sigma), shuffle_dataset_size(delta, sigma)
        low, high = fewest_rounds(delta, sigma, tolerance=QUICK_TOLERANCE)
        name = f"σ = {sigma:g}"
        rows += [
            closed(f"{name}: M by Equation (3)", texts.two_terms, approximate),
            closed(f"{name}: M by Theorem 4.1", texts.exact, solved),
            closed(f"{name}: records N", texts.records, records),
            closed(
                f"{name}: (3) short of Theorem 4.1 (%)",
                published.TWO_TERMS_WITHIN,
                100.0 * (solved / approximate - 1.0),
            ),
            closed(f"{name}: M by Equation (53) with (19)", None, sharp, "the theorem's proof with the exact moment"),
            Row.of(f"{name}: M that the pair needs", None, (low, high), note=_ISOLATED),
            Row.of(f"{name}: Theorem 4.1 asks for this many times too much", None, (solved / high, solved / low)),
        ]
        found = {"rounds_eq3": approximate, "rounds_thm41": solved, "rounds_eq53": sharp}
        table.add(noise_multiplier=sigma, **found, rounds_low=low, rounds_high=high, records=records)
    facts = {"rounds": shuffle_rounds_two_terms(delta, 0.75)}
    return Outcome(rows, data=(table.data,), facts=facts)


def _setting_rows(setting: Any, target: float, how: str) -> list[Row]:
    """What the paper asks for over some epochs, what it buys, and what would do."""
    asked = shuffle_rounds_two_terms(setting.delta, 1.0)
    taken = round(float(setting.rounds))
    name = f"E = {setting.epochs}, {how}"
    note = f"isolated view, {taken:.3g} rounds"
    return [
        closed(f"{name}: M", setting.rounds, asked, f"δ = {setting.delta:g} in each epoch"),
        closed(f"{name}: records N", setting.records, asked / published.NOISE_PER_ROUND),
        Row.of(
            f"{name}: advantage after all epochs",
            f"<= {target:g}",
            advantage(1.0, taken, setting.epochs, QUICK_TOLERANCE),
            note=note,
        ),
    ]


def settings(progress: Progress) -> Outcome:
    """E = 1, 4 and 100 at sigma = 1, and E = 100 and 10,000 under the conjecture."""
    rows, table = [], Table("rounds")
    for setting in watched((*published.SETTINGS, *published.CONJECTURED), progress):
        if setting in published.CONJECTURED:
            rows += _setting_rows(setting, published.DELTA, "√E δ = 0.01")
            continue
        rows += _setting_rows(setting, published.DELTA, "E δ = 0.01")
        kept = -math.expm1(setting.epochs * math.log1p(-setting.delta))
        tolerance = TOLERANCE if setting.epochs == 1 else QUICK_TOLERANCE
        low, high = fewest_rounds(published.DELTA, 1.0, setting.epochs, tolerance)
        rows += [
            closed(f"E = {setting.epochs}: 1 − (1 − δ)^E", None, kept, "what composing the line 1 − a − δ costs"),
            Row.of(
                f"E = {setting.epochs}: M that the pair needs for advantage 0.01", None, (low, high), note=_ISOLATED
            ),
        ]
        asked = shuffle_rounds(setting.delta, 1.0)
        run = {"epochs": setting.epochs, "delta_per_epoch": setting.delta}
        table.add(**run, rounds_thm41=asked, rounds_low=low, rounds_high=high)
    first = shuffle_rounds_two_terms(published.DELTA, 1.0)
    whole = 100.0 * (shuffle_rounds(published.DELTA, 1.0) / first - 1.0)
    rows += [
        closed("Theorem 4.1 beyond Equation (3), σ = 1 (%)", published.TWO_TERMS_WITHIN, whole),
        closed("M δ² at σ = 1, δ = 1e-4", published.RULE_OF_THUMB, 1e-8 * shuffle_rounds_two_terms(1e-4, 1.0)),
        closed("M at δ = 0.005 over M at δ = 0.01", published.HALVING, shuffle_rounds_two_terms(0.005, 1.0) / first),
    ]
    facts = {"rounds": shuffle_rounds(published.DELTA, 1.0), "delta": shuffle_delta(1.0, 1_140_000).delta}
    return Outcome(rows, data=(table.data,), facts=facts)
