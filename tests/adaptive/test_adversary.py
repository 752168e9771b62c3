"""An adversary that chooses noise by the likelihood ratio released so far, against real guards in a real loop.

Steps are numpy: a Poisson coin for the differing record, a clipped gradient of norm 1 along one coordinate, Gaussian
noise. Runs that have made the same choices go through one loop together, with one guard.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import calipers as cp
from calipers.callbacks import BudgetGuard

RATE, EPSILON, START, MANY = 0.2, 1.5, 2, 20
NOISE = {"start": 0.8, "quiet": 2.0, "sharp": 0.766}
STEPS = {name: cp.Run(sample_rate=RATE, steps=1, noise_multiplier=sigma) for name, sigma in NOISE.items()}
RUNS = 3_000_000
WRONG = 1e-5
"""Each confidence bound is wrong with this probability at most."""
SWITCH = 0.6


def steps_of(guard: BudgetGuard, name: str, most: int, present: bool, scores: np.ndarray, rng) -> np.ndarray:
    """Up to so many steps of one kind, as many as the guard lets through; log likelihood ratios added up."""
    sigma, scores = NOISE[name], scores.copy()
    if isinstance(guard.training, cp.PrivacyFilter):
        guard.step = name
    for _batch in guard.batches(range(most)):
        joined = (rng.random(scores.size) < RATE) if present else np.zeros(scores.size)
        seen = rng.standard_normal(scores.size) + joined / sigma
        scores += np.log1p(RATE * np.expm1(seen / sigma - 0.5 / sigma**2))
    return scores


def claims(guards: dict[str, BudgetGuard], present: bool, rng) -> float:
    """How many runs the adversary claims the record in: start, look, go on with one sharp step or many quiet ones."""
    scores = steps_of(guards["start"], "start", START, present, np.zeros(RUNS), rng)
    low = scores < SWITCH
    found = 0
    for name, most, chosen in (("sharp", 1, scores[low]), ("quiet", MANY, scores[~low])):
        found += int(np.sum(steps_of(guards[name], name, most, present, chosen, rng) > EPSILON))
    return found


def shown(guards, seed: int) -> tuple[float, float]:
    """Confidence bounds (lower, upper) of P(claim) - e^epsilon Q(claim): a delta that the mechanism has at least."""
    rng = np.random.default_rng(seed)
    rates = []
    for present in (True, False):
        count = claims(guards(), present, rng)
        low = float(special.betaincinv(count, RUNS - count + 1, WRONG))
        rates.append((low, float(special.betaincinv(count + 1, RUNS - count, 1.0 - WRONG))))
    (power_low, power_high), (alpha_low, alpha_high) = rates
    return power_low - math.exp(EPSILON) * alpha_high, power_high - math.exp(EPSILON) * alpha_low


def pathwise(name: str, steps: int) -> float:
    """What the composition of the steps of one path is proven to have, as if it had been fixed in advance."""
    run = [STEPS["start"].replace(steps=START), STEPS[name].replace(steps=steps)]
    return cp.measure(run).delta(EPSILON).upper


def old_guards() -> dict[str, BudgetGuard]:
    """Guards that let every path through whose own composition is within the budget."""
    wide = {"epsilon": 50.0, "delta": 1e-5}
    return {name: BudgetGuard(step, **wide) for name, step in STEPS.items()}


@pytest.mark.heavy
def test_the_number_of_the_path_is_falsified_and_the_filter_holds() -> None:
    """The adversary shows more than either path is proven to have; within a filter for that target it does not."""
    target = max(pathwise("quiet", MANY), pathwise("sharp", 1))
    lower, _ = shown(old_guards, 1)
    assert lower > target, (lower, target)

    def guards() -> dict[str, BudgetGuard]:
        # Runs that chose differently have filters of their own, which have paid for the same start.
        made = {}
        for name in ("start", "quiet", "sharp"):
            keep = cp.PrivacyFilter(STEPS, EPSILON, target, rule="menu")
            if name != "start":
                keep.spend("start", START)
            made[name] = BudgetGuard(keep)
        return made

    _, upper = shown(guards, 2)
    assert upper <= target, (upper, target)
