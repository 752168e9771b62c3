"""What is read off an attack's whole curve: how often a secret of one record is named, and the advantage.

What is proven, and why such attacks exist: `calipers.measure.measurement`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calipers.bracket import Bracket, Evidence
from calipers.citations import statement
from calipers.curves.envelope import Envelope, advantage
from calipers.measure.bounds import Bound, BoundValue

_PROVEN = "With the symmetric trade-off curve f, an attacker whose guess is right with probability k is with 1 - f(k)."
_LIST = (
    "The secret is which of many equally likely records took part, their gradients orthogonal; the attacker names the "
    "share of them with the largest scores. The number is the limit of many candidates."
)
_TWO = (
    "The secret has two values, which the two neighboring datasets of the attack stand for; the attacker names the one "
    "that is more probable given what is released. Below a baseline of 1/2 a guess is all that is shown."
)


def success_shown(attack: Envelope, baseline: float, others_zero: bool) -> float:
    """The success that an attack shows.

    Args:
        attack: its curves.
        baseline: the probability with which the best guess is right.
        others_zero: whether all gradients but the record's are zero in it, which then may have any direction.

    Returns:
        At most the largest success, at least 0.
    """
    if others_zero:
        return max(float(curve.rates(baseline)[1]) for curve in attack.absent)
    return _two_values(attack, baseline)


def with_curve(found: BoundValue, attack: Bound, depth: float, tolerance: float) -> BoundValue:
    """The largest TPR - FPR that an attack shows: that of one test, or the most that its curve shows.

    Args:
        found: delta at epsilon 0, with its test.
        attack: a lower bound.
        depth: down to which delta curves are worked out.
        tolerance: of the measurement.

    Returns:
        The larger of the two, with the test at epsilon 0 of the attack whose curve it is.
    """

    def shown(one: Bound) -> float:
        return advantage(one.curve(depth, tolerance))

    if shown(attack) <= found.value:
        return found
    leading = attack.leading(shown)
    test, any_test = leading.delta(0.0, tolerance).evidence, leading.evidence()
    return BoundValue(shown(attack), test if test.source == any_test.source else any_test)


def with_game(found: Bracket, others_zero: bool) -> Bracket:
    """The bracket with the secret that is named, and what is concluded from the curves."""
    below = _with(found.lower_evidence, _LIST if others_zero else _TWO)
    return replace(found, lower_evidence=below, upper_evidence=_with(found.upper_evidence, _PROVEN))


def _two_values(attack: Envelope, baseline: float) -> float:
    """The best success where a secret of two values has this baseline, whichever dataset is the likelier one."""
    if baseline < 0.5:
        return 0.0
    error = float(np.min(attack.bayes_error([baseline, 1.0 - baseline])))
    return float(np.nextafter(1.0 - error, 0.0))


def _with(evidence: Evidence, explanation: str) -> Evidence:
    """The evidence of the curve, with what is concluded from it."""
    source = f"{evidence.source}; {statement('calipers:success')}"
    return Evidence(evidence.kind, f"{evidence.statement} {explanation}", source, evidence.confidence)
