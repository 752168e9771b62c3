"""A measurement made in another process, as far as verdicts between runs need it.

They need the answers that were given there and both trade-off curves, nothing else. A measurement holds its mechanism
as well, which neither travels between processes nor is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from calipers.bracket import Side
from calipers.reports.answers import Answers
from calipers.reports.comparison import Comparison, compare_answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.measure import Measurement
    from calipers.run import Run
    from calipers.stated import Stated


@dataclass(frozen=True)
class Remembered:
    """Answers and both curves of one measurement; everything in it was certified when it was measured."""

    answers: Answers
    curves: dict[Side, TradeoffCurve]

    @classmethod
    def of(cls, measurement: Measurement, answers: Answers) -> Remembered:
        """What is worth keeping of a measurement that was asked already."""
        return cls(answers, {side: measurement.curve(side) for side in Side})

    @property
    def runs(self) -> tuple[Run, ...]:
        """The phases that were measured."""
        return self.answers.runs

    @property
    def stated(self) -> Stated | None:
        """The guarantee, where one was stated instead of a run."""
        return self.answers.stated

    def curve(self, side: Side) -> TradeoffCurve:
        """The trade-off curve of one side."""
        return self.curves[side]


def compare_remembered(names: Sequence[str], found: Sequence[Remembered]) -> Comparison:
    """The verdicts of `calipers compare` on runs that were measured already."""
    # Verdicts ask a measurement for its run and its curves, which is what is remembered; the cast says so.
    return compare_answers(names, [cast("Measurement", one) for one in found], [one.answers for one in found])
