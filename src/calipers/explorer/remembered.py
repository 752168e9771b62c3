"""A measurement made in another process, which knows the answers it gave there.

Verdicts between runs need both trade-off curves of each run and the brackets that were asked for, nothing else. A
measurement holds its mechanism as well, which neither travels between processes nor is needed. What is kept here
replays the answers: asked anything that was not asked before, it raises, since it has no way to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from calipers.bracket import Bracket, Side
from calipers.errors import CertificationError
from calipers.measure import Gdp
from calipers.reports.answers import Answers
from calipers.reports.comparison import Comparison, compare_measurements
from calipers.reports.format import setting
from calipers.reports.readings import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from calipers.curves.envelope import Envelope
    from calipers.curves.tradeoff import TradeoffCurve
    from calipers.measure import Measurement
    from calipers.reports.answers import Questions
    from calipers.run import Run
    from calipers.stated import Stated


def _reading(answers: Answers, quantity: str, at: float) -> Reading:
    for reading in answers.readings:
        if (reading.quantity, reading.at) == (quantity, at):
            return reading
    raise CertificationError(f"Nothing was measured at {setting(at)}; ask for it when the run is measured.")


def _claim(answers: Answers, quantity: str, at: float) -> float:
    claim = _reading(answers, quantity, at).claim
    assert claim is not None
    return claim


@dataclass(frozen=True)
class RememberedClaim:
    """What mainstream accounting would report, where it was asked."""

    answers: Answers

    def epsilon(self, delta: float) -> float:
        """The claim at a delta that was asked for."""
        return _claim(self.answers, "epsilon", delta)

    def delta(self, epsilon: float) -> float:
        """The claim at an epsilon that was asked for."""
        return _claim(self.answers, "delta", epsilon)


@dataclass(frozen=True)
class Remembered:
    """Answers and both curves of one measurement; everything it returns was certified when it was measured."""

    answers: Answers
    curves: dict[Side, TradeoffCurve]
    envelopes: dict[Side, Envelope]
    tolerance: float
    closes: bool

    @classmethod
    def of(cls, measurement: Measurement, answers: Answers) -> Remembered:
        """What is worth keeping of a measurement that was asked already."""
        curves = {side: measurement.curve(side) for side in Side}
        envelopes = {side: measurement.envelope(side) for side in Side}
        return cls(answers, curves, envelopes, measurement.tolerance, measurement.closes)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The phases that were measured."""
        return self.answers.runs

    @property
    def stated(self) -> Stated | None:
        """The guarantee, where one was stated instead of a run."""
        return self.answers.stated

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the answers."""
        return self.answers.notes

    @property
    def claim(self) -> RememberedClaim:
        """The claims of the answers."""
        return RememberedClaim(self.answers)

    def epsilon(self, delta: float) -> Bracket:
        """The bracket at a delta that was asked for."""
        return _reading(self.answers, "epsilon", delta).bracket

    def delta(self, epsilon: float) -> Bracket:
        """The bracket at an epsilon that was asked for."""
        return _reading(self.answers, "delta", epsilon).bracket

    def tpr(self, fpr: float) -> Bracket:
        """The bracket at a false positive rate that was asked for."""
        return _reading(self.answers, "tpr", fpr).bracket

    def gdp(self, delta0: float) -> Gdp:
        """mu up to the delta0 that was asked for."""
        if delta0 != self.answers.delta0:
            raise CertificationError(
                f"mu was measured up to delta0 = {setting(self.answers.delta0)}, not {setting(delta0)}."
            )
        return Gdp(self.answers.mu, self.answers.delta0, self.answers.regret)

    def advantage(self) -> Bracket:
        """The bracket of the advantage."""
        return self.answers.advantage

    def separation(self) -> Bracket:
        """The bracket of the separation."""
        return self.answers.separation

    def curve(self, side: Side) -> TradeoffCurve:
        """The trade-off curve of one side."""
        return self.curves[side]

    def envelope(self, side: Side) -> Envelope:
        """The directed curves of one side."""
        return self.envelopes[side]


def compare_remembered(names: Sequence[str], found: Sequence[Remembered], questions: Questions) -> Comparison:
    """The verdicts of `calipers compare` on runs that were measured already."""
    # Remembered answers every question that a comparison asks; the cast says so.
    return compare_measurements(names, [cast("Measurement", one) for one in found], questions)
