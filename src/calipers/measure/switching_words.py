"""The attack in which the record changes sides, in words that tell a reader how to run it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calipers.laws.allocated.switching import SwitchingAttack


def switching_words(attack: SwitchingAttack, epochs: int) -> str:
    """Everybody's gradients under the policy, when the record changes sides, and the score of what is seen."""
    policy, r = attack.policy, attack.participation
    looks = _listed(list(itertools.accumulate(policy.blocks))[:-1])
    jump, missed = "exp(2 x_t/sigma - 2/sigma^2)", "exp(x_t/sigma - 1/(2 sigma^2))"
    if attack.substituted:
        opposing, agreeing = "is u (-u once it is replaced)", "is -u (u once it is replaced)"
        weights = f"U_t = {jump} and V_t = 1 while it opposes the others, U_t = 1 and V_t = {jump} while it agrees"
    else:
        opposing, agreeing = "is u (zero once it is zeroed out)", "is -u (zero)"
        weights = f"V_t = {missed}, U_t = {jump} while it opposes the others and U_t = 1 while it agrees"
    means = "mean_t U_t / mean_t V_t" if r == 1.0 else "(1 - r + r mean_t U_t) / (1 - r + r mean_t V_t)"
    kept = "" if r == 1.0 else f", r = {r:.10g} the share of records an epoch keeps"
    return (
        f"The record changes sides. {'In every epoch all' if epochs > 1 else 'All'} other clipped gradients are -u, a "
        f"unit vector; the record's {opposing} at first. After {looks} batches it {agreeing} until the next look if "
        f"the running sum of U_t - {math.exp(attack.tuned):.10g} V_t is above {_listed(policy.marks)} respectively, "
        f"and as at first if not. Here x_t = (sum of batch t along u + B)/sigma, {weights}. The certified figure is "
        "that of a running sum rounded on the way, by fair coins, to a lattice. The score of an epoch is "
        f"log({means}){kept}."
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
