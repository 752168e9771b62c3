"""The sentence that tells a reader how to run an attack: followed to the letter, it shows what the number says."""

from __future__ import annotations

import itertools
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


def shown_by_exact_ratios(threshold: float, epsilon: float, answer: str, rate: float, noise: float) -> float:
    """P[say] - e^epsilon P[say where the other is right] of two Poisson steps, the record's gradient 1, others zero.

    Said where the sum of both exact log likelihood ratios of the answer to the other exceeds the threshold: for every
    first sum x the second one has to exceed (or fall below) one number; a fine sum over x.
    """
    present = answer == "present"
    x = np.linspace(-12.0, 12.0 + 1.0 / noise, 40_001)
    first = np.log1p(rate * np.expm1(x / noise - 0.5 / noise**2))
    need = (threshold if present else -threshold) - first  # of the second one, to 'present'
    with np.errstate(invalid="ignore", divide="ignore"):
        least = noise * (np.log1p(np.expm1(need) / rate) + 0.5 / noise**2)
    least = np.where(np.expm1(need) <= -rate, -np.inf, least)
    above = (ndtr(-least), (1.0 - rate) * ndtr(-least) + rate * ndtr(1.0 / noise - least))
    weight = np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi) * (x[1] - x[0])
    weights = (weight, weight * np.exp(first))
    said = [float(np.sum(w * (a if present else 1.0 - a))) for w, a in zip(weights, above, strict=True)]
    right, wrong = (said[1], said[0]) if present else (said[0], said[1])
    return right - math.exp(epsilon) * wrong


@pytest.mark.slow
def test_the_printed_test_on_exact_ratios_shows_the_number() -> None:
    """Two Poisson steps: carried out as printed, on exact ratios, the test shows the printed epsilon, delta, advantage.

    The threshold of the rounded ratios, which is named too, is that of rounded ratios only.
    """
    rate, noise = 0.3, 0.8
    found = measure(Run(sample_rate=rate, steps=2, noise_multiplier=noise))
    epsilon, delta, advantage = found.epsilon(1e-3), found.delta(0.5), found.advantage()
    asked = [(epsilon, epsilon.lower, 1e-3), (delta, 0.5, delta.lower), (advantage, 0.0, advantage.lower)]
    for bracket, at, shown in asked:
        told = bracket.lower_evidence.statement
        said = re.search(r"The test: say '(\w+)' when the sum .* ratios of \w+ to \w+ exceeds ([\d.]+) \(", told)
        rounded = re.search(r"used rounded ratios and the threshold (-?[\d.]+); this test shows at least as much", told)
        assert said is not None
        assert rounded is not None
        reached = shown_by_exact_ratios(float(said[2]), at, said[1], rate, noise)
        assert reached >= shown * (1.0 - 1e-9), (told, reached, shown)
        others = np.linspace(float(said[2]) - 1.0, float(said[2]) + 1.0, 11)
        for other in (*others, float(rounded[1])):  # no other threshold is better
            assert shown_by_exact_ratios(float(other), at, said[1], rate, noise) <= reached + 1e-9


def test_a_jaw_does_not_serve_the_other_side() -> None:
    """A proof is no attack: an evaluation with both bounds of one side cannot be built."""
    found = measure(Run(sample_rate=1.0, steps=1, noise_multiplier=1.0)).evaluation
    with pytest.raises(AssertionError):
        Bounds(found.lower, found.upper)


def sums_of_fixed_batches(gradients: list[float], batch: int, keep: bool) -> list[float]:
    """One epoch in the order of the dataset."""
    blocks = [gradients[start : start + batch] for start in range(0, len(gradients), batch)]
    return [sum(block) for block in blocks if keep or len(block) == batch]


@pytest.mark.parametrize(("size", "last_batch"), [(41, "drop"), (45, "drop"), (42, "keep"), (45, "keep")])
def test_in_a_fixed_order_the_named_gradients_of_first_records_show_mu(size: int, last_batch: str) -> None:
    """With and without the first record the sums are as far apart as the proven Gaussian says."""
    run = Run(
        dataset_size=size, batch_size=10, epochs=3, noise_multiplier=5.0, sampler="deterministic",
        adjacency="add-remove", last_batch=last_batch,
    )  # fmt: skip
    below, above = measure(run).explain()
    assert "first records of successive batches" in below.statement
    assert "alternate u, -u, a unit vector, and all others are zero" in below.statement
    assert "every full batch sum moves by two clipping norms" in below.statement
    assert ("the kept last one by one" in below.statement) is (last_batch == "keep")
    assert "Theorem 5.4 (fixed order)" in below.source
    gradients = [0.0 if place % 10 else (-1.0) ** (place // 10) for place in range(size)]
    there, gone = (sums_of_fixed_batches(data, 10, last_batch == "keep") for data in (gradients, gradients[1:]))
    moved = [abs(one - other) for one, other in zip(there, gone, strict=True)]
    assert moved == [2.0] * 4 + [1.0] * (last_batch == "keep")
    said = re.search(r"mu = ([\d.]+)", above.statement)
    assert said is not None
    assert float(said[1].rstrip(".")) == pytest.approx(math.sqrt(3 * sum(one**2 for one in moved)) / 5.0, rel=1e-10)


@pytest.mark.parametrize(
    ("adjacency", "replacement"), [("zero-out", ""), ("substitute", ", that of its replacement -u")]
)
def test_the_named_gradients_of_a_record_that_stays_in_its_batch_are_those_of_the_adjacency(
    adjacency: str, replacement: str
) -> None:
    """A replaced record moves the sum by two clipping norms, so its replacement is named too."""
    run = Run(
        dataset_size=40, batch_size=10, epochs=3, noise_multiplier=5.0, sampler="deterministic", adjacency=adjacency
    )
    below, above = measure(run).explain()
    assert f"clipped gradient is u, a unit vector, in every step{replacement}, and all other" in below.statement
    assert f"mu = {(2 if replacement else 1) * math.sqrt(3) / 5:.8g}"[:12] in above.statement


@pytest.mark.parametrize("adjacency", ["add-remove", "substitute"])
def test_the_score_of_random_allocation_is_the_log_likelihood_ratio(adjacency: str) -> None:
    """Two of four steps: what is printed, against densities; for a replaced record it was off by k / sigma^2."""
    sigma, chosen = 1.3, 2
    run = Run(
        sampler="random-allocation", sample_rate=0.5, steps=4, participations=chosen, noise_multiplier=sigma,
        adjacency=adjacency,
    )  # fmt: skip
    text = measure(run, tolerance=0.1).epsilon(1e-5).lower_evidence.statement
    said = re.search(r"Y_i = exp\((.*?)\) and e_k .*?, log\(e_k\(Y_1, \.\.\., Y_t\) / (.*?)\)\. The number", text)
    assert said is not None
    seen = np.array([0.4, -1.2, 2.1, 0.7])  # sums over sigma
    pairs = list(itertools.combinations(range(4), chosen))

    def density(sign: float) -> float:
        means = [sign / sigma * np.isin(range(4), pair) for pair in pairs]
        return float(np.mean([math.exp(-0.5 * np.sum((seen - mean) ** 2)) for mean in means]))

    def polynomial(values: np.ndarray) -> float:
        return float(sum(math.prod(values[list(pair)]) for pair in pairs))

    exponents = {"x_i/sigma": seen / sigma, "x_i/sigma - 1/(2 sigma^2)": seen / sigma - 0.5 / sigma**2}
    ratios = np.exp(exponents[said[1]])
    divisors = {"C(t, k)": math.comb(4, chosen), "e_k(1/Y_1, ..., 1/Y_t)": polynomial(1 / ratios)}
    other = density(-1.0 if adjacency == "substitute" else 0.0)
    assert polynomial(ratios) / divisors[said[2]] == pytest.approx(density(1.0) / other, rel=1e-12)
