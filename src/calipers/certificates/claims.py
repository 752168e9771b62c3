"""The claims of a certificate: an upper one with its proof, and a lower one with its attack where there is one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from calipers.bracket import Bracket
from calipers.certificates.exact import written
from calipers.certificates.lower import LowerAttack, LowerClaim
from calipers.certificates.rounds import hides
from calipers.certificates.upper import SayProgress, UpperProof
from calipers.errors import UnsupportedError
from calipers_verify.checker import RUN, pairs_of
from calipers_verify.reading import Refused, read
from calipers_verify.steps import Phase

_SHARE, _SHARE_OF_MANY = 0.0005, 0.003
"""Part of epsilon that rounding to a lattice may cost: where steps are cheap, and where every node is a sum of its
own.
"""
_COARSE_EPSILON = 0.02
"""Where delta is spent at epsilon = 0 already, or epsilon is small, lattices are as fine as for this epsilon."""
LEAST_DELTA = Fraction(1, 10**60)
"""The smallest delta that a certificate states: masses in it are whole numbers of 2^-256."""


def _read(record: dict[str, Any]) -> tuple[list[list[Phase]], float]:
    try:
        pairs = pairs_of(read(record, RUN, "run"))
    except Refused as reason:
        raise UnsupportedError(f"No certificate can be had: {reason}.") from reason
    many = any(hides(phase) and not phase.one_sum for phase in pairs[0])
    return pairs, _SHARE_OF_MANY if many else _SHARE


def claims_at_delta(
    record: dict[str, Any], delta: Fraction, likely: Bracket, say: SayProgress
) -> list[dict[str, object]]:
    """epsilon from above and from below; `likely` only says how finely to compute."""
    pairs, share = _read(record)
    if likely.upper == 0.0:
        # A lattice on which a small epsilon could be told from 0 would be many times as long.
        proof = UpperProof(pairs, _COARSE_EPSILON, float(delta), share, say)
        if proof.holds(Fraction(0), delta):
            return [_above(Fraction(0), delta, proof)]
    low, high = (max(end, 1e-4) for end in _ends(likely))
    proof = UpperProof(pairs, high, float(delta), share, say)
    proven = proof.smallest_epsilon(delta)
    if proven == 0:
        return [_above(proven, delta, proof)]  # there is nothing below
    enough = (1.0 - 3.0 * share) * float(proven), float(delta)
    attack = LowerAttack(pairs[0], low, float(delta), share, say, enough)
    return [_above(proven, delta, proof), *_below(attack.largest_epsilon(delta))]


def claims_at_epsilon(
    record: dict[str, Any], epsilon: Fraction, likely: Bracket, say: SayProgress
) -> list[dict[str, object]]:
    """delta from above and from below; `likely` only says how finely to compute."""
    pairs, share = _read(record)
    low, high = (min(max(end, 1e-60), 0.5) for end in _ends(likely))
    at = max(float(epsilon), _COARSE_EPSILON)
    proof = UpperProof(pairs, at, high, share, say)
    proven = proof.smallest_delta(epsilon)
    if proven <= LEAST_DELTA:
        return [_above(epsilon, LEAST_DELTA, proof)]
    attack = LowerAttack(pairs[0], at, low, share, say, (float(epsilon), 0.99 * float(proven)))
    shown = attack.largest_delta(epsilon)
    return [_above(epsilon, proven, proof), *_below(None if shown is None or shown.delta < LEAST_DELTA else shown)]


def _ends(likely: Bracket) -> tuple[float, float]:
    """Where the lower and the upper bound are to be expected: each at its own end, if that says anything."""
    high = likely.upper if math.isfinite(likely.upper) and likely.upper > 0.0 else likely.lower
    return likely.lower or high, high


def _above(epsilon: Fraction, delta: Fraction, proof: UpperProof) -> dict[str, object]:
    return {
        "jaw": "upper",
        "epsilon": written(epsilon),
        "delta": written(delta),
        "direction": "both",
        "proof": proof.record(epsilon, delta),
    }


def _below(shown: LowerClaim | None) -> list[dict[str, object]]:
    if shown is None:
        return []
    return [
        {
            "jaw": "lower",
            "epsilon": written(shown.epsilon),
            "delta": written(shown.delta),
            "direction": shown.direction,
            "attack": shown.attack,
        }
    ]
