"""How often an attacker names a secret of one record, against how often a guess is right.

The secret is drawn from a known prior; everything else, all other records included, is known. An answer is right or
wrong; the best answer that does not look at the run is right with probability `baseline`. With the symmetric trade-off
curve f of the run,

    success <= 1 - f(baseline)      for every secret, prior, rule of being right, and attacker,

and where the attack behind the lower bound sets all other gradients to zero, uniform priors over more and more
candidates whose gradients are orthogonal, answered by a short list, come as near to 1 - f(baseline) as one likes
(f: of that attack, with the null "record absent"). Proofs: docs/success.md.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from calipers.bracket import Bracket, Evidence, Side
from calipers.citations import implements, statement
from calipers.curves.envelope import Envelope
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import OPEN_UNIT
from calipers.errors import UnsupportedError
from calipers.run import DATA_DEPENDENT, Run
from calipers.schemes import scheme_of
from calipers.stated import Stated

_DEEPEST = 1e-12
_PROVEN = "With the symmetric trade-off curve f, an attacker whose guess is right with probability k is with 1 - f(k)."
_LIST = (
    "The secret is which of many equally likely records took part, their gradients orthogonal; the attacker names the "
    "share of them with the largest scores. The number is the limit of many candidates."
)
_TWO = (
    "The secret has two values, which the two neighboring datasets of the attack stand for; the attacker names the one "
    "that is more probable given what is released. Below a baseline of 1/2 a guess is all that is shown."
)


class Answers(Protocol):
    """What is asked of a measurement."""

    @property
    def runs(self) -> tuple[Run, ...]:
        """The phases that were measured."""

    @property
    def stated(self) -> Stated | None:
        """A guarantee that was stated in place of a run."""

    @property
    def others_zero(self) -> bool:
        """Whether all other gradients of the attack are zero."""

    def curve(self, side: Side, smallest_delta: float = ...) -> TradeoffCurve:
        """The symmetric trade-off curve of one side."""

    def envelope(self, side: Side, smallest_delta: float = ...) -> Envelope:
        """What attacks in either order attain."""

    def explain(self) -> tuple[Evidence, Evidence]:
        """(lower, upper): how each bound was chosen."""


def others_are_zero(run: Run) -> bool:
    """Whether the attack on the run moves one record's sum alone, in a direction that may be any."""
    return (
        scheme_of(run).others_zero
        and run.adjacency in ("add-remove", "zero-out")
        and run.normalization not in DATA_DEPENDENT
        and run.records_per_unit == 1
        and run.derived_rate == "public"
        and run.view == "worst-case"
        and run.dimension is None
    )


@implements("calipers:success")
def success(measurement: Answers, baseline: float) -> Bracket:
    """The largest success of any attacker over all secrets of one record with this baseline.

    Args:
        measurement: of what was released.
        baseline: the probability with which the best answer is right that does not look at it.

    Returns:
        lower <= sup over games with this baseline of the best attacker's success <= upper.

    Raises:
        UnsupportedError: in the isolated view.
    """
    baseline = OPEN_UNIT.check("baseline", baseline)
    if is_isolated(measurement):
        raise UnsupportedError(
            "The isolated view bounds what one noisy contribution shows, not what the trained model shows; measure "
            "with view = 'worst-case' to bound how often a secret is named."
        )
    depth = max(1e-250, min(_DEEPEST, 1e-3 * baseline))
    upper = float(measurement.curve(Side.UPPER, depth).rates(baseline)[1])
    below, above = measurement.explain()
    attack = measurement.envelope(Side.LOWER, depth)
    if measurement.others_zero:
        lower, game = max(float(curve.rates(baseline)[1]) for curve in attack.absent), _LIST
    else:
        lower, game = _two_values(attack, baseline), _TWO
    return Bracket(max(lower, baseline), max(upper, baseline), _with(below, game), _with(above, _PROVEN))


def is_isolated(measurement: Answers) -> bool:
    """Whether the numbers are about one noisy contribution alone."""
    view = measurement.stated.view if measurement.stated is not None else "worst-case"
    return "isolated" in (view, *(run.view for run in measurement.runs))


def _two_values(attack: Envelope, baseline: float) -> float:
    """The best success where a secret of two values has this baseline, whichever dataset is the likelier one."""
    if baseline < 0.5:
        return 0.0
    error = float(np.min(attack.bayes_error([baseline, 1.0 - baseline])))
    return float(np.nextafter(1.0 - error, 0.0))


def _with(evidence: Evidence, said: str) -> Evidence:
    """The evidence of the curve, with what is concluded from it."""
    source = f"{evidence.source}; {statement('calipers:success')}"
    return Evidence(evidence.kind, f"{evidence.statement} {said}", source, evidence.confidence)
