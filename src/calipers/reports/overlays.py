"""The curves of several runs in one picture: a color each, the proof drawn through, the attack dashed.

Every value is a bound at its own place, as in the figures of a single run; see `calipers.reports.views`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calipers.bracket import Side
from calipers.reports.comparison import SMALLEST_SHOWN, profiles
from calipers.reports.document import Figure
from calipers.reports.views import View, low_rates_view, profile_view, tradeoff_view

if TYPE_CHECKING:
    from calipers.measure import Measurement
    from calipers.reports.views import Values

# A profile is computed on a finer grid than a picture needs.
EVERY = 4


def tradeoff_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """The trade-off curves on even axes."""
    return _overlay(
        view := tradeoff_view(),
        [(name, *_read(view, measurement)) for name, measurement in zip(names, measurements, strict=True)],
        "Trade-off curves",
        "The smallest false negative rate of any attack at each false positive rate, for every run: its proof, below, "
        "and its attack, above. A run whose proof lies above another run's attack is certainly more private.",
    )


def low_rates_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """The same curves where privacy is lost or kept, both axes logarithmic."""
    return _overlay(
        view := low_rates_view(),
        [(name, *_read(view, measurement)) for name, measurement in zip(names, measurements, strict=True)],
        "Low false positive rates",
        "The largest true positive rate of any attack on each run, both axes logarithmic: its attack, below, and its "
        "proof, above. The closer to guessing, the more private.",
    )


def profile_overlay(names: Sequence[str], measurements: Sequence[Measurement]) -> Figure:
    """delta against epsilon, as far as the loosest finite proof reaches."""
    found = profiles(names, measurements)
    grid = np.array(found[0].epsilon[::EVERY])

    def listed(values: Sequence[float]) -> Values:
        """Read off what was computed, at places of the grid."""
        return lambda at: np.array(values[::EVERY])[np.searchsorted(grid, at)]

    return _overlay(
        profile_view(grid, SMALLEST_SHOWN),
        [(one.name, listed(one.upper), listed(one.lower)) for one in found],
        "Privacy profiles",
        "delta at each epsilon, logarithmic, for every run: its attack, below, and its proof, above. The lower, the "
        "more private.",
    )


def _read(view: View, measurement: Measurement) -> tuple[Values, Values]:
    proof, attack = (view.read(measurement.envelope(side)) for side in (Side.UPPER, Side.LOWER))
    return proof, attack


def _overlay(view: View, runs: Sequence[tuple[str, Values, Values]], title: str, description: str) -> Figure:
    """Two lines for each run, the proof first, and two columns, "at least" first."""
    lines, columns = [], []
    for number, (name, proof, attack) in enumerate(runs, start=1):
        lines.append(view.line(f"{name}, proof", f"run-{number}", proof))
        lines.append(view.line(f"{name}, attack", f"run-{number} dashed", attack))
        columns += view.both(
            view.of_proof(f"{name}, {view.proof_is}", proof), view.of_attack(f"{name}, {view.attack_is}", attack)
        )
    return view.figure(title, description, lines, columns)
