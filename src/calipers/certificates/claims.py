"""The claims of a certificate: an upper one with its proof, and a lower one with its attack where there is one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from calipers.bracket import Bracket
from calipers.certificates.lower import LowerAttack, Shown
from calipers.certificates.rounds import hides, one_sum
from calipers.certificates.upper import UpperProof
from calipers_verify.checker import Phase, read_phase

_SHARE, _SHARE_OF_MANY = 0.0005, 0.002
"""Part of epsilon that rounding to a lattice may cost: where steps are cheap, and where every node is a sum of its
own.
"""


def _read(record: dict[str, Any]) -> tuple[list[Phase], str, float]:
    phases = [read_phase(phase) for phase in record["phases"]]
    adjacency: str = record["adjacency"]
    many = any(hides(phase) and not one_sum(phase, adjacency == "substitute") for phase in phases)
    return phases, adjacency, _SHARE_OF_MANY if many else _SHARE


def claims_at_delta(record: dict[str, Any], delta: Fraction, likely: Bracket) -> list[dict[str, object]]:
    """epsilon from above and from below; `likely` only says how finely to compute."""
    phases, adjacency, share = _read(record)
    guess = max(likely.lower or likely.upper, 1e-4)
    proof = UpperProof(phases, adjacency, guess, float(delta), share)
    above = _above(proof.smallest_epsilon(delta), delta, proof)
    return [above, *_below(LowerAttack(phases, adjacency, guess, float(delta), share).largest_epsilon(delta))]


def claims_at_epsilon(record: dict[str, Any], epsilon: Fraction, likely: Bracket) -> list[dict[str, object]]:
    """delta from above and from below; `likely` only says how finely to compute."""
    phases, adjacency, share = _read(record)
    guess = min(max(likely.lower or likely.upper, 1e-60), 0.5)
    at = max(float(epsilon), 1e-3)
    proof = UpperProof(phases, adjacency, at, guess, share)
    above = _above(epsilon, proof.smallest_delta(epsilon), proof)
    return [above, *_below(LowerAttack(phases, adjacency, at, guess, share).largest_delta(epsilon))]


def _above(epsilon: Fraction, delta: Fraction, proof: UpperProof) -> dict[str, object]:
    return {
        "jaw": "upper",
        "epsilon": str(epsilon),
        "delta": str(delta),
        "direction": "both",
        "proof": proof.record,
    }


def _below(shown: Shown | None) -> list[dict[str, object]]:
    if shown is None:
        return []
    return [
        {
            "jaw": "lower",
            "epsilon": str(shown.epsilon),
            "delta": str(shown.delta),
            "direction": shown.direction,
            "attack": shown.attack,
        }
    ]
