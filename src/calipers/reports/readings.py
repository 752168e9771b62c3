"""A reading: one quantity of a measurement, where it was read, its bracket, the claim of standard accounting and what
became of it.

A measurement is asked once, and its answers are a list of readings. The terminal, JSON, HTML, Markdown, the explorer
and a comparison are views of that list, so that one number has one spelling wherever it stands.

The claim is what mainstream accounting prints: Poisson sampling of the undivided sum under add-remove adjacency. It is

    refuted     when an explicit attack exceeds it, read generously (rounded up to the printed digits);
    covered     when the proven upper value does not exceed it;
    undecided   when it lies inside the bracket;
    elsewhere   when it is about other neighbors than the run (substitution, a unit of several records), so that
                nothing compares.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from calipers.bracket import Bracket
from calipers.numerics.decimals import ceil_digits, setting
from calipers.phases import comparable
from calipers.run import Run
from calipers.samplers import ASSUMED

PUBLIC = ("none", "constant")
"""Divisors that do not depend on the data."""

NAMES = {
    "epsilon": "epsilon at delta = {}",
    "delta": "delta at epsilon = {}",
    "tpr": "TPR at FPR = {}",
    "advantage": "advantage, largest TPR - FPR",
    "separation": "separation",
    "mu": "mu up to delta0 = {}",
}
"""How every view calls a quantity, in the order of the views."""


def name_of(quantity: str, at: float | None) -> str:
    """The quantity and where it is read."""
    return NAMES[quantity].format("" if at is None else setting(at))


class Standing(enum.Enum):
    """Where the claim of standard accounting stands next to the bracket."""

    REFUTED = "refuted"
    COVERED = "covered"
    UNDECIDED = "undecided"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Reading:
    """One quantity at one place (`at` is None where there is none), unrounded; claim and standing where it has them."""

    quantity: str
    at: float | None
    bracket: Bracket
    claim: float | None = None
    standing: Standing | None = None

    @property
    def name(self) -> str:
        """The quantity and its place."""
        return name_of(self.quantity, self.at)

    @property
    def refuted(self) -> bool:
        """Whether an explicit attack exceeds the claim."""
        return self.standing is Standing.REFUTED


@dataclass(frozen=True)
class Claimed(Reading):
    """A reading that mainstream accounting has a number for."""

    at: float
    claim: float
    standing: Standing


def claimed(quantity: str, at: float, bracket: Bracket, claim: float, runs: Sequence[Run]) -> Claimed:
    """A reading next to the claim of standard accounting; REFUTED and COVERED only when attack or proof say so."""
    if not comparable(runs):
        found = Standing.ELSEWHERE
    elif Decimal(ceil_digits(claim)) < Decimal(bracket.lower):
        found = Standing.REFUTED
    else:
        found = Standing.COVERED if bracket.upper <= claim else Standing.UNDECIDED
    return Claimed(quantity, at, bracket, claim, found)


def is_claimed_run(runs: Sequence[Run], accounted: Sequence[Run] = ()) -> bool:
    """Whether the standard accounting describes exactly what was measured; `accounted`: the phases that it is about,
    where they may be others.
    """
    as_assumed = all(run.sampler == ASSUMED and run.normalization in PUBLIC and not rate_moves(run) for run in runs)
    return comparable(runs) and as_assumed and (not accounted or schedule(runs) == schedule(accounted))


def schedule(runs: Sequence[Run]) -> dict[tuple[float, float], int]:
    """How many steps have which mean sampling rate and noise multiplier."""
    found: Counter[tuple[float, float]] = Counter()
    for run in runs:
        found[(run.mean_rate, run.noise_multiplier)] += run.total_steps
    return dict(found)


def rate_moves(run: Run) -> bool:
    """Whether neighbors have two rates, where standard accounting assumes a public one."""
    return run.derived_rate == "moving" and run.adjacency == "add-remove"
