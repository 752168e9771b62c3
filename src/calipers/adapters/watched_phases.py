"""Measuring the phases of a run that was watched, and what its accountant was given."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

from calipers.bracket import Evidence, Kind, Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.measure import Measurement, measure
from calipers.measure.bounds import Bounds, KnownCurve
from calipers.run import Run

MANY_LEVELS = 32
"""Distinct phases measured one by one, 0.1 s each; more are put together, by their least and their largest noise."""


def reported_runs(accountant: Any) -> list[Run]:
    """What the accountant was given, as it reads it: Poisson sampling of the undivided sum."""
    return [
        Run(noise_multiplier=float(noise), sample_rate=float(rate), steps=int(steps))
        for noise, rate, steps in accountant.history
        if noise > 0 and 0 < rate <= 1
    ]


def measured_phases(runs: tuple[Run, ...], tolerance: float) -> Measurement:
    """The measurement of some phases; of very many, those of equal settings and nearly equal noise are one phase.

    Adding noise is post-processing: the least noise of such phases bounds them from above, the largest from below.
    """
    if len(runs) <= MANY_LEVELS:
        return measure(runs, tolerance=tolerance)
    above = measure(_together(runs, min), tolerance=tolerance)
    below = measure(_together(runs, max), tolerance=tolerance)
    evaluation = Bounds(above.evaluation.upper, below.evaluation.lower)
    note = (
        f"{len(runs)} phases were measured as {MANY_LEVELS} or fewer, the upper bound with the least and the lower "
        "bound with the largest noise of those put together."
    )
    return dataclasses.replace(above, evaluation=evaluation, conditions=(*above.conditions, note))


def _together(runs: tuple[Run, ...], noise: Callable[[Iterable[float]], float]) -> tuple[Run, ...]:
    """Phases that differ in nothing but a little noise, as one with the least or the largest of it."""
    kinds: dict[Run, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.replace(noise_multiplier=1.0, steps=1), []).append(run)
    found: list[Run] = []
    for members in kinds.values():
        members.sort(key=lambda run: run.noise_multiplier)
        share = max(1, math.ceil(len(members) * (len(kinds) + 1) / MANY_LEVELS))
        for start in range(0, len(members), share):
            part = members[start : start + share]
            steps = sum(run.total_steps for run in part)
            found.append(part[0].replace(steps=steps, noise_multiplier=noise(run.noise_multiplier for run in part)))
    return tuple(found)


_SOURCE = "true of every mechanism"


def unproven(reason: str) -> Bounds:
    """Epsilon between 0 and infinity; `reason` says why no more is known."""
    nothing = Evidence(Kind.THEOREM, f"No finite number is proven. {reason}", _SOURCE)
    guess = Evidence(Kind.TEST, f"Guessing: no attack is claimed. {reason}", _SOURCE)
    perfect = TradeoffCurve.from_tests([0.0], [1.0], side=Side.UPPER)
    return Bounds(KnownCurve(perfect, nothing), KnownCurve(TradeoffCurve.perfect_privacy(Side.LOWER), guess))
