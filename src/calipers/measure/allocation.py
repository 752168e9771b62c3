"""Jaws of samplers that deal every record out once per epoch: balls-and-bins and shuffling.

**Balls-and-bins.** Every record is thrown into one of M batches independently, so what the others do says
nothing about it: one epoch is dominated, and attained, by the mean of M independent ratios. The bracket closes.

**Shuffling, isolated view.** An adversary who sees nothing but the differing record's noisy contribution
faces the same pair (van Dijk and Ertan; Ertan and van Dijk).

**Shuffling, worst case.** With batches of fixed size the other records reveal where the differing one
is, and no dominating pair is proven. The upper jaw is that of fixed batches (shuffling never hurts, Chua
et al., Theorem 4.1); the lower jaw is an explicit attack. If Conjecture 3.2 of Chua et al. holds, one epoch
leaks exactly what the attack's pair shows; that value is reported beside the bracket, never as a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.bracket import Evidence, Kind, Side
from calipers.citations import add_statement, implements
from calipers.curves.gdp import gdp_mu
from calipers.curves.tradeoff import TradeoffCurve
from calipers.errors import UnsupportedError
from calipers.laws.direction import Jaws
from calipers.laws.shuffle import ShuffleAttack
from calipers.run import Run

add_statement(
    "chua2024:conj3.2",
    "Conjecture 3.2",
    "If true, one epoch leaks what the attack's pair shows: the lower jaw, up to the rounding of its tests.",
)


def participation(run: Run) -> float:
    """Probability that a record takes part in an epoch of fixed batches: kept / dataset_size."""
    if run.dataset_size is None or run.batch_size is None:
        return 1.0
    return run.steps_per_epoch * run.batch_size / run.dataset_size


@dataclass(frozen=True)
class ShuffleBackend:
    """The attack on shuffled batches: a lower jaw only; its upper values are infinite or trivial."""

    attack: ShuffleAttack
    epochs: int

    def epsilon(self, delta: float, tolerance: float) -> Jaws:
        """At most the true epsilon."""
        del tolerance
        return Jaws(self.attack.epsilon(delta, self.epochs), math.inf, math.inf, False)

    def delta(self, epsilon: float, tolerance: float) -> Jaws:
        """At most the true delta."""
        del tolerance
        return Jaws(self.attack.delta(epsilon, self.epochs), 1.0, math.inf, False)

    def curves(self, smallest_delta: float, tolerance: float) -> dict[Side, TradeoffCurve]:
        """The attack's curve, from its tests in both directions."""
        del tolerance
        tests = self.attack.tests(smallest_delta, self.epochs)
        # A rate too small for a double is rounded up: an attack may claim more false positives, never fewer.
        alpha = np.exp(np.maximum(np.concatenate([t.log_alpha for t in tests]), -690.0))
        power = np.exp(np.concatenate([t.log_power for t in tests]))
        useful = (alpha < power) & (power <= 1.0)
        curve = TradeoffCurve.from_tests(alpha[useful], power[useful], side=Side.LOWER).symmetrised()
        return {Side.LOWER: curve}

    def mu(self, delta0: float, tolerance: float) -> tuple[float, float]:
        """Read off the attack's curve."""
        curve = self.curves(max(1e-280, min(1e-12, 1e-2 * delta0)), tolerance)[Side.LOWER]
        return gdp_mu(curve, delta0), math.inf

    def renyi(self, order: float) -> Jaws:
        """Not available: an attack's tests bound Renyi divergences poorly."""
        raise UnsupportedError(
            f"No useful lower jaw of the Renyi divergence of order {order:g} is known for shuffled batches; ask for "
            "epsilon, delta or the trade-off curve."
        )

    def upper_evidence(self) -> Evidence:
        """None."""
        raise UnsupportedError("The attack on shuffled batches proves no upper jaw.")

    def lower_evidence(self, jaws: Jaws | None = None) -> Evidence:
        """The attack, so that a reader could run it."""
        del jaws
        test = self.attack.best_test(0.0)
        several = "" if self.epochs == 1 else f" Scores of {self.epochs} epochs are added."
        text = (
            "All other gradients are the opposite unit vector, the record's is the unit vector or zero, so batch sums "
            f"show where it is. In every epoch, for example at epsilon = 0: {test}.{several}"
        )
        return Evidence.of(Kind.TEST, "calipers:shuffle-sum-test", text)


@implements("chua2024:conj3.2")
def conjectured(jaws: Jaws) -> tuple[float, Evidence]:
    """The lower jaw as the value that Conjecture 3.2 would make the truth of one epoch, up to the tests' rounding."""
    return jaws.lower, Evidence.of(Kind.CONJECTURE, "chua2024:conj3.2")
