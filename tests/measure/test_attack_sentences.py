"""The sentence that tells a reader how to run an attack: followed to the letter, it shows what the number says."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy.special import ndtr

from calipers.measure import measure
from calipers.measure.bounds import Bounds
from calipers.measure.composed import ComposedAttack
from calipers.pld.allocation.shuffle_attack import ShuffleTest
from calipers.run import Run


def gain(threshold: float, epsilon: float, reversed_: bool) -> float:
    """What "exceeds" or "is below" a threshold shows for scores that are log likelihood ratios of a unit shift.

    These are N(1/2, 1) with the record and N(-1/2, 1) without it.
    """
    if reversed_:
        return float(ndtr(threshold + 0.5) - math.exp(epsilon) * ndtr(threshold - 0.5))
    return float(ndtr(0.5 - threshold) - math.exp(epsilon) * ndtr(-0.5 - threshold))


@pytest.mark.parametrize("reversed_", [False, True])
@pytest.mark.parametrize("epsilon", [0.3, 0.7, 2.0])
def test_the_threshold_in_the_sentence_is_the_best_one(epsilon: float, reversed_: bool) -> None:
    """A likelihood ratio test is best at e^epsilon, or at e^-epsilon when its answer is "zeroed out"."""
    attack = ComposedAttack(None, "", ("present", "zeroed out"))  # type: ignore[arg-type]
    sentence = attack.test_at(0.1, epsilon, reversed_).statement
    said = re.search(r"Say '(.*)' when the sum of all scores (is below|exceeds) (-?[\d.]+)\.$", sentence)
    assert said is not None
    assert (said[1], said[2]) == (("zeroed out", "is below") if reversed_ else ("present", "exceeds"))
    others = [gain(threshold, epsilon, reversed_) for threshold in np.linspace(-6, 6, 241)]
    assert gain(float(said[3]), epsilon, reversed_) > max(others) - 1e-12 > 0.0


@pytest.mark.parametrize("reversed_", [False, True])
def test_the_factor_of_a_shuffle_test_is_the_ratio_it_compares_with(reversed_: bool) -> None:
    """sum U - factor sum V is above 0 exactly if the likelihood ratio is above the factor: e^epsilon, or e^-epsilon."""
    said = str(ShuffleTest(0.7, 0.1, "sum", 0.0, reversed_))
    factor = re.search(r"- ([\d.]+) exp", said)
    assert factor is not None
    assert math.log(float(factor[1])) == pytest.approx(-0.7 if reversed_ else 0.7, abs=1e-5)
    assert (" < 0" in said) == reversed_
    assert ("'zeroed out'" in said) == reversed_


def test_the_winning_attack_names_its_own_threshold() -> None:
    """Where attacks compete, the sentence beside the number is that of the attack that gave it, at its threshold."""
    run = Run(
        sampler="without-replacement",
        dataset_size=100,
        batch_size=10,
        steps=20,
        noise_multiplier=1.5,
        adjacency="zero-out",
    )
    found = measure(run).epsilon(1e-5)
    assert f"exceeds {found.lower:.10g}." in found.lower_evidence.statement


def test_a_jaw_does_not_serve_the_other_side() -> None:
    """A proof is no attack: an evaluation with both bounds of one side cannot be built."""
    found = measure(Run(sample_rate=1.0, steps=1, noise_multiplier=1.0)).evaluation
    with pytest.raises(AssertionError):
        Bounds(found.lower, found.upper)
