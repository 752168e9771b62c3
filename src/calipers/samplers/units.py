"""Units of several records: what one step, or one batch, shows of all of them together.

A unit has up to g records, each with a gradient of its own that is clipped by itself. A unit with fewer records is one
whose other gradients are zero, and less private is only the one with all of them.

- **Coins.** j of the g records join a step, j binomial(g, q), and the sum moves by at most j: a drawn shift
  (`calipers.pld.core.drawn_shift`), proven and attained by g equal gradients. dp_accounting's mixture of Gaussians
  is the same pair.
- **A batch known beforehand.** Up to B of the g records share a batch; the more do, the more shows: one release moved
  by g, where g <= B.
- **Anything else** is said by group privacy on the curve of one record (`calipers.measure.units`), and, where records
  are allocated to batches, by whoever learns the allocation (`calipers.pld.core.allocated_unit`).
"""

from __future__ import annotations

import functools
import math

import numpy as np

from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.numerics.binomial import BINOMIAL_RELATIVE_ERROR, binomial_window, log_binomial
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.pair import Pair
from calipers.run_fields import RunFields
from calipers.samplers.analysis import Analysis, closed, known_times, release

MOST_RECORDS = 10_000
_DEEPEST = -690.0
"""Of trials in their millions, larger numbers of successes than matter with this log tail are never built."""
_SAME = "The record's clipped gradient is the same unit vector in every step"


@functools.lru_cache(maxsize=64)
def binomial_shifts(trials: int, rate: float, shift: float) -> Shifts:
    """j times `shift`, j binomial."""
    window = binomial_window(trials, rate, _DEEPEST)
    j = np.arange(window.values[-1] + 1.0)
    chances = np.exp(log_binomial(j, trials, rate))
    # What lies beyond the last j is counted there, and there it is too rare to be distinguished from what is beyond.
    chances[-1] += window.outside if j[-1] < trials else 0.0
    rounding = BINOMIAL_RELATIVE_ERROR if trials > 1 else 1e-15
    return Shifts.of((shift * j).tolist(), chances.tolist(), rounding)


@functools.lru_cache(maxsize=64)
def binomial_pair(trials: int, rate: float, shift: float, opposite: bool) -> Pair:
    """One object per kind, so that equal phases are counted together."""
    return drawn_shift(binomial_shifts(trials, rate, shift), opposite=opposite)


def all_of(run: RunFields) -> str:
    """The gradients of an attack: those of the record, or of all records of the unit."""
    if run.records_per_unit == 1:
        return "The record's clipped gradient is the same unit vector u in every step"
    return f"All {run.records_per_unit} records of the {run.unit_name} have the same clipped gradient u in every step"


def sampled_unit(run: RunFields, count: int) -> Analysis:
    """`count` steps that each record of the unit joins by a coin of its own."""
    records, replaced = run.records_per_unit, run.adjacency == "substitute"
    if run.rate == 1:
        return known_times(run, count) if records == 1 else known_unit(run, float(records), count)
    if records == 1:
        return _one_record(run, count)
    opposite, shift = ", their replacements the opposite one," if replaced else "", 1.0 / run.noise_multiplier
    return closed(
        binomial_pair(records, run.rate, shift, replaced),
        count,
        "calipers:drawn-shift",
        f"In every step each of up to {records} records of one {run.unit_name} is drawn independently and moves the "
        "sum by at most the clipping norm: a Gaussian shifted by the number of records drawn",
        f"{all_of(run)}{opposite} and all other gradients are zero, so each step attains exactly this pair.",
    )


_pair = functools.lru_cache(maxsize=64)(poisson_gaussian)
"""One object per kind, so that equal phases are counted together."""


def _one_record(run: RunFields, count: int) -> Analysis:
    """One pair per step, proven and attained."""
    # A record that is zeroed out is dominated by the pair of one that is removed: one object for both.
    adjacency, statement, instead = "add-remove", "zhu2022:thm11", ""
    reason = (
        "Adding, removing or zeroing out a record is dominated, step by step, by its Poisson pair (in units of the "
        "noise, with rate q and noise multiplier s: N(0, 1) where the record is absent, (1 - q) N(0, 1) + q N(1/s, 1) "
        "where present)"
    )
    if run.adjacency == "substitute":
        adjacency, statement, instead = (
            "substitute",
            "calipers:substitute-pair",
            ", its replacement's the opposite one,",
        )
        reason = (
            "Replacing a record is dominated, step by step, by opposite gradients (in units of the noise, with rate q "
            "and noise multiplier s: (1 - q) N(0, 1) + q N(1/s, 1) against (1 - q) N(0, 1) + q N(-1/s, 1))"
        )
    description = f"{_SAME}{instead} and all other gradients are zero, so each step attains exactly this pair."
    return closed(_pair(run.rate, run.noise_multiplier, adjacency), count, statement, reason, description)


def known_unit(run: RunFields, records: float, count: int) -> Analysis:
    """`count` releases at known times, each moved by up to `records` records (a root of a sum of squares, if several
    batches of one epoch are put together).
    """
    source, reason = release(records * run.largest_shift), f"All records of the {run.unit_name} take part in"
    opposite = ", their replacements -u," if run.adjacency == "substitute" else ""
    description = f"{all_of(run)}{opposite} and all other gradients are zero, so each participation attains exactly "
    description += "this pair."
    return closed(source, count, "dong2022:cor3.3+cor2.13", reason, description)


def together(records: int, batch_size: int | None) -> float:
    """The most that records allocated once per epoch can move all sums of the epoch together, as one release.

    With at most `batch_size` of them in a batch, full batches of them are worst: the root of the sum of squares.
    """
    if batch_size is None or records <= batch_size:
        return float(records)
    full, rest = divmod(records, batch_size)
    return math.sqrt(full * float(batch_size) ** 2 + float(rest) ** 2)
