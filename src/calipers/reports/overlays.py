"""The curves of several runs in one picture: a color each, the proof drawn through, the attack dashed.

Every value is a bound at its own place, as in the figures of a single run; see `calipers.reports.views`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calipers.bracket import Side
from calipers.reports.comparison import SMALLEST_SHOWN, shown_epsilons
from calipers.reports.document import Figure
from calipers.reports.views import View, low_rates_view, profile_view, tradeoff_view

if TYPE_CHECKING:
    from calipers.measure import Measurement

_SIDES = (Side.UPPER, Side.LOWER)
# A profile is computed on a finer grid than a picture needs.
EVERY = 4


_WORDS = (
    (
        "Trade-off curves",
        "The smallest false negative rate of any attack at each false positive rate, for every run: at least "
        "that of its proof, at most that of its attack. Where a run's proof has more than another run's attack, the "
        "run is certainly more private.",
    ),
    (
        "Low false positive rates",
        "The largest true positive rate of any attack on each run at each false positive rate: at least that of its "
        "attack, at most that of its proof. The closer to guessing, the more private.",
    ),
    (
        "Privacy profiles",
        "delta at each epsilon, for every run: at least that of one attack, at most that of its proof; at single "
        "points another attack may show more. The smaller, the more private.",
    ),
)
"""Title of each view, and how to read it."""


def overlays(names: Sequence[str], measurements: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Error rates on even axes, low rates, and delta against epsilon as far as the loosest finite proof reaches."""
    envelopes = [[measurement.envelope(side) for side in _SIDES] for measurement in measurements]
    curves = [[measurement.curve(side) for side in _SIDES] for measurement in measurements]
    profile = profile_view(shown_epsilons(measurements)[::EVERY], SMALLEST_SHOWN)
    views: list[tuple[View, Any]] = [(tradeoff_view(), envelopes), (low_rates_view(), envelopes), (profile, curves)]
    return tuple(_overlay(view, names, each, *words) for (view, each), words in zip(views, _WORDS, strict=True))


def _overlay(view: View, names: Sequence[str], each: Sequence[Any], title: str, description: str) -> Figure:
    """Two lines for each run, the proof first, and two columns, "at least" first."""
    lines, columns = [], []
    for number, (name, both) in enumerate(zip(names, each, strict=True), start=1):
        proof, attack = map(view.read, both)
        lines.append(view.line(f"{name}, proof", f"run-{number}", proof))
        lines.append(view.line(f"{name}, attack", f"run-{number} dashed", attack))
        named = (("proof", proof), ("attack", attack))
        columns += view.both(*(view.bound(which, f"{name}, {view.says(which)}", values) for which, values in named))
    return view.figure(title, description, lines, columns)
