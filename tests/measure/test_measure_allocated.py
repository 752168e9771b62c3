"""Shuffling and balls-and-bins: replaced records, mixed phases, attacks that can be run, and no bound out of order.

The simulations run the mechanism itself: batches come from the sampler, sums are released with noise, and the test
is the one that the evidence describes.
"""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from oracles import contour, enumeration, pairs

from calipers.bracket import Bracket, Kind, Side
from calipers.errors import InputError
from calipers.measure import Measurement, measure
from calipers.pld.allocation.average import AllocationPair
from calipers.pld.composition.one_sided import AttackProduct
from calipers.reports.answers import Questions, answer
from calipers.run import Run
from calipers.samplers import BallsAndBins, Shuffle


def dealt(sampler: str, records: int, batch: int, noise: float, epochs: int = 1, **more: Any) -> Run:
    if sampler in ("shuffle", "deterministic"):
        more.setdefault("adjacency", "zero-out")
    return Run(dataset_size=records, batch_size=batch, epochs=epochs, noise_multiplier=noise, sampler=sampler, **more)


def overlap(first: Bracket, second: Bracket) -> bool:
    return first.lower <= second.upper and second.lower <= first.upper


# Simulating the mechanism


def observed(run: Run, gradient: float, others: float, trials: int, seed: int) -> np.ndarray:
    """Noisy sums along u of one epoch in `trials` runs: record 0 has `gradient`, all others have `others`."""
    assert run.dataset_size is not None
    assert run.batch_size is not None
    kind = Shuffle if run.sampler == "shuffle" else BallsAndBins
    sampler = kind(dataset_size=run.dataset_size, batch_size=run.batch_size, epochs=trials)
    rng = np.random.default_rng(seed)
    values = np.full(run.dataset_size, others)
    values[0] = gradient
    sums = np.array([values[batch].sum() for batch in sampler.batches(rng)]).reshape(trials, -1)
    return sums + run.noise_multiplier * rng.standard_normal(sums.shape)


def shuffle_score(run: Run, sums: np.ndarray, replaced: bool) -> np.ndarray:
    """The score of an epoch as the evidence states it."""
    assert run.dataset_size is not None
    assert run.batch_size is not None
    s, r = run.noise_multiplier, run.steps_per_epoch * run.batch_size / run.dataset_size
    x = (sums + run.batch_size) / s
    present = 1 - r + r * np.exp(2 * x / s - 2 / s**2).mean(axis=1)
    absent = np.ones(len(x)) if replaced else 1 - r + r * np.exp(x / s - 0.5 / s**2).mean(axis=1)
    return np.log(present / absent)


def changing_sides(run: Run, told: str, present: bool, trials: int, seed: int) -> np.ndarray:
    """Scores of one epoch in `trials` runs of the attack that changes sides, with the numbers of its description."""
    assert run.dataset_size is not None
    assert run.batch_size is not None
    looks, marks = (
        [float(number) for number in found.group(1).split(", ")]
        for found in (
            re.search(r"After ([\d, ]+) batches", told),
            re.search(r"is above ([-+\d.e, ]+) respectively", told),
        )
        if found is not None
    )
    factor = re.search(r"running sum of U_t - ([\d.]+) V_t", told)
    assert factor is not None
    s, batch, replaced = run.noise_multiplier, run.batch_size, run.adjacency == "substitute"
    rng = np.random.default_rng(seed)
    place = rng.integers(run.dataset_size, size=trials) // batch  # where a random permutation puts the record
    running, total_u, total_v, opposes = (
        np.zeros(trials),
        np.zeros(trials),
        np.zeros(trials),
        np.ones(trials, dtype=bool),
    )
    for t in range(run.steps_per_epoch):
        if t in looks:
            opposes = running <= marks[looks.index(t)]
        own = np.where(opposes, 1.0, -1.0)
        gradient = own if present else -own if replaced else 0.0 * own
        sums = np.where(place == t, 1.0 - batch + gradient, -float(batch)) + s * rng.standard_normal(trials)
        x = (sums + batch) / s
        jump, missed = np.exp(2 * x / s - 2 / s**2), np.exp(x / s - 0.5 / s**2)
        u = np.where(opposes, jump, 1.0)
        v = np.where(opposes, 1.0, jump) if replaced else missed
        running, total_u, total_v = running + u - float(factor.group(1)) * v, total_u + u, total_v + v
    r, rounds = run.steps_per_epoch * batch / run.dataset_size, run.steps_per_epoch
    return np.asarray(np.log((1 - r + r * total_u / rounds) / (1 - r + r * total_v / rounds)))


def gain(present: np.ndarray, absent: np.ndarray, epsilon: float, backward: bool) -> tuple[float, float]:
    """What the test with threshold epsilon shows, and five standard errors."""
    hits, alarms = (absent < -epsilon, present < -epsilon) if backward else (present > epsilon, absent > epsilon)
    k = math.exp(epsilon)
    error = math.sqrt((hits.var() + k * k * alarms.var()) / len(hits))
    return float(hits.mean() - k * alarms.mean()), 5 * error


# Replaced records


@pytest.mark.parametrize(("batch", "epochs"), [(2, 1), (2, 4), (6, 3)])
def test_a_replaced_record_in_shuffled_batches_is_at_most_fixed_batches(batch: int, epochs: int) -> None:
    """Fixed batches are N(0, 1) against N(2 sqrt(E)/sigma, 1); one batch attains it, of three the proof is below."""
    found = measure(dealt("shuffle", 6, batch, 1.5, epochs, adjacency="substitute"))
    for epsilon in (0.0, 1.0):
        fixed = enumeration.gaussian(2 * mp.sqrt(epochs) / mp.mpf(1.5), epsilon)
        both = found.delta(epsilon)
        assert both.lower <= both.upper <= fixed * (1 + mp.mpf(10) ** -9)
        if batch == 6:
            assert both.lower <= fixed <= both.upper
    assert found.closes == (batch == 6)


@pytest.mark.parametrize(
    ("adjacency", "records", "batch", "noise", "epsilon"),
    [("substitute", 6, 2, 1.4, 0.5), ("substitute", 7, 2, 1.4, 0.2), ("zero-out", 13, 2, 4.0, 0.0)],
)
def test_the_attack_that_changes_sides_can_be_run(
    adjacency: str, records: int, batch: int, noise: float, epsilon: float
) -> None:
    """All is read from the evidence and simulated: it shows the lower bound, and more than never changing sides."""
    run = dealt("shuffle", records, batch, noise, adjacency=adjacency)
    bracket = measure(run).delta(epsilon)
    told = bracket.lower_evidence.statement
    assert told.startswith("The record changes sides.")
    scores = [changing_sides(run, told, present, 400_000, seed) for present, seed in ((True, 1), (False, 2))]
    shown, error = gain(scores[0], scores[1], epsilon, False)
    assert abs(shown - bracket.lower) <= error + 2e-3 * bracket.lower
    replaced = adjacency == "substitute"
    fixed = [shuffle_score(run, observed(run, g, -1.0, 25_000, 3), replaced) for g in (1.0, -1.0 if replaced else 0.0)]
    assert gain(fixed[0], fixed[1], epsilon, False)[0] < bracket.lower


def test_the_attack_on_a_replaced_record_is_one_of_independent_batches() -> None:
    """Batches of 2 of 7: a dataset that never changes sides shows what `AllocationPair` at half the noise does."""
    run, epsilon = dealt("shuffle", 7, 2, 1.4, adjacency="substitute"), 0.2
    scores = [shuffle_score(run, observed(run, g, -1.0, 25_000, seed), True) for g, seed in ((1.0, 1), (-1.0, 2))]
    shown, error = gain(scores[0], scores[1], epsilon, False)
    certified = AttackProduct([(AllocationPair(0.7, 3, 6.0 / 7.0), 1)]).delta(epsilon)[0]
    assert abs(shown - certified) <= error + 2e-3 * certified
    isolated = measure(dealt("balls-and-bins", 7, 2, 1.4)).delta(epsilon)
    assert abs(shown - isolated.upper) > error


def test_a_replaced_record_in_independent_batches() -> None:
    """Simulated with opposite gradients and zeros around, the likelihood ratio test attains the bound."""
    run, epsilon = dealt("balls-and-bins", 3, 1, 1.2, adjacency="substitute"), 0.4
    bracket, width = measure(run).delta(epsilon), 1 / 1.2
    scores = []
    for gradient, seed in ((1.0, 3), (-1.0, 4)):
        x = observed(run, gradient, 0.0, 25_000, seed) / 1.2
        scores.append(np.log(np.exp(width * x).mean(axis=1) / np.exp(-width * x).mean(axis=1)))
    shown, error = gain(scores[0], scores[1], epsilon, False)
    assert abs(shown - bracket.lower) <= error
    assert bracket.relative_width < 1e-3
    zeroed = measure(run.replace(adjacency="zero-out")).delta(epsilon)
    assert abs(shown - zeroed.upper) > error


def test_replacing_leaks_more_than_zeroing_out_and_less_than_a_known_time() -> None:
    """A zero gradient is an allowed replacement, and hiding never hurts."""
    for sampler, view in (("balls-and-bins", "worst-case"), ("shuffle", "isolated"), ("shuffle", "worst-case")):
        run = dealt(sampler, 9, 2, 1.3, 2, view=view)
        zeroed, replaced = measure(run).delta(0.7), measure(run.replace(adjacency="substitute")).delta(0.7)
        known = enumeration.gaussian(2 * mp.sqrt(2) / mp.mpf(1.3), 0.7)
        assert zeroed.lower < replaced.lower < known
        assert zeroed.upper < replaced.upper <= known * (1 + mp.mpf(10) ** -9)


def test_readings_of_a_replaced_record() -> None:
    """All readings of both samplers are brackets in order; independent batches close, shuffled ones do not."""
    for sampler in ("balls-and-bins", "shuffle"):
        found = measure(dealt(sampler, 4, 1, 2.0, 2, adjacency="substitute"))
        one_pair = found.closes
        brackets = [found.advantage(), found.tpr(0.01), found.tradeoff(0.1), found.epsilon(1e-3)]
        assert all(0.0 <= b.lower < b.upper for b in brackets)
        assert found.curve(Side.UPPER).is_below(found.curve(Side.LOWER))
        assert one_pair == (sampler == "balls-and-bins")


def test_little_noise_is_refused_with_its_range() -> None:
    """A replaced record needs twice the least noise of a zeroed-out one."""
    assert measure(dealt("shuffle", 10, 1, 0.15)).delta(1.0).upper <= 1.0
    with pytest.raises(InputError, match=r"\[0.2, 100\]"):
        measure(dealt("shuffle", 10, 1, 0.15, adjacency="substitute"))


# Mixed phases


def test_the_attack_on_mixed_phases_can_be_run() -> None:
    """One epoch at sigma = 1 and two at sigma = 1.5, batches of 2 and 3 of 6: scores add, as simulated."""
    first, second, epsilon = dealt("shuffle", 6, 2, 1.0), dealt("shuffle", 6, 3, 1.5, 2), 0.8
    bracket = measure([first, second]).delta(epsilon)
    totals = []
    for gradient, seed in ((1.0, 10), (0.0, 20)):
        parts = [(first, seed), (second, seed + 1), (second, seed + 2)]
        scores = [shuffle_score(run, observed(run, gradient, -1.0, 20_000, s), False) for run, s in parts]
        totals.append(np.sum(scores, axis=0))
    shown, error = gain(totals[0], totals[1], epsilon, "'absent'" in bracket.lower_evidence.statement)
    assert bracket.lower <= shown + error
    assert bracket.lower >= 0.97 * shown - error
    alone = measure(second).delta(epsilon)
    assert shown - error > alone.lower  # what forgetting a phase would say


def test_phases_with_different_noise_are_at_most_one_gaussian() -> None:
    """At least as hidden as fixed batches, of which mu^2 is the sum of E/sigma^2; and not much more, with so few."""
    found = measure([dealt("shuffle", 6, 2, 2.0), dealt("shuffle", 6, 3, 1.0, 2), dealt("deterministic", 6, 2, 4.0, 4)])
    truth = enumeration.gaussian(mp.sqrt(mp.mpf(1) / 4 + 2 + mp.mpf(1) / 4), 1.0)
    assert 0.98 * truth <= found.delta(1.0).upper <= truth * (1 + mp.mpf(10) ** -9)


@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_phases_with_other_samplers_compose(adjacency: str) -> None:
    """Shuffled and Poisson phases: above the attack, at most a Gaussian times the Poisson pairs, by contour."""
    shuffled = dealt("shuffle", 100, 10, 3.0, 2, adjacency=adjacency)
    poisson = Run(
        dataset_size=100, batch_size=10, steps=30, noise_multiplier=1.5, adjacency=adjacency, sampler="poisson"
    )
    step = (pairs.poisson_substitute if adjacency == "substitute" else pairs.poisson_gaussian)(0.1, 1.5)
    mixed = pairs.product((step, 30), (pairs.gaussian(3.0 / (2.0 if adjacency == "substitute" else 1.0)), 2))
    found, truth = measure([shuffled, poisson]).epsilon(1e-5), contour.epsilon(mixed, 1, 1e-5)
    alone = measure(poisson).epsilon(1e-5)
    assert alone.upper < found.lower < found.upper <= 1.002 * truth
    once = measure([shuffled.replace(reshuffle="once"), poisson]).epsilon(1e-5)
    assert truth <= once.upper <= 1.002 * truth
    assert "Lemma B.2" in once.upper_evidence.statement
    assert "In phase 2: " in found.lower_evidence.statement


def test_one_epoch_in_two_descriptions_is_one_epoch() -> None:
    """A list of one run is the run; two phases of one epoch are a run of two."""
    run = dealt("shuffle", 20, 2, 1.0)
    assert measure([run]).epsilon(1e-5).lower == measure(run).epsilon(1e-5).lower
    twice = measure([run, run]).epsilon(1e-5)
    assert twice.lower == measure(run.replace(epochs=2)).epsilon(1e-5).lower
    independent = dealt("balls-and-bins", 20, 2, 1.0)
    assert overlap(measure([independent] * 2).delta(0.3), measure(independent.replace(epochs=2)).delta(0.3))


def test_renyi_of_an_open_bracket() -> None:
    """Shuffled, then fixed batches: at least the fixed part alone, at most both as fixed batches."""
    found = measure([dealt("shuffle", 20, 2, 1.0), dealt("deterministic", 20, 2, 1.0)]).rdp(2.0)
    fixed = measure(dealt("deterministic", 20, 2, 1.0)).rdp(2.0)
    assert fixed.lower <= found.lower <= found.upper <= 2.0 * fixed.upper * (1.0 + 1e-9)


# What is said


def test_the_evidence_names_the_test_at_what_was_asked() -> None:
    """The threshold is the epsilon asked for, or the one found at the delta asked for; the statistic is spelt out."""
    found = measure(dealt("shuffle", 100, 1, 1.0))
    at_epsilon, at_delta = found.delta(1.25).lower_evidence, found.epsilon(1e-5)
    assert at_epsilon.kind is Kind.TEST
    assert at_epsilon.statement.endswith("Say 'used' when the sum of all scores exceeds 1.25.")
    assert f"exceeds {at_delta.lower:.10g}." in at_delta.lower_evidence.statement
    assert "U_t = exp(2 x_t/sigma - 2/sigma^2)" in at_epsilon.statement
    nothing = measure(dealt("shuffle", 100, 1, 50.0)).epsilon(0.5).lower_evidence.statement
    assert nothing.endswith("No test on the sum of all scores was found to show more than 0 here.")
    left_out = measure(dealt("shuffle", 7, 2, 1.0)).delta(0.1).lower_evidence.statement
    assert "p = 0.8571428571 the probability that the record is in one of these batches" in left_out


def test_the_attack_on_a_kept_short_batch_says_that_it_ignores_it() -> None:
    """1,050 records, 10 batches of 100 and one of 50: in a full one with probability 20/21, and so in the score."""
    keys = {"dataset_size": 1050, "batch_size": 100, "epochs": 2, "noise_multiplier": 1.0, "sampler": "shuffle"}
    keys |= {"last_batch": "keep", "adjacency": "zero-out"}
    worst, alone = (measure(Run.from_dict(keys | {"view": view})) for view in ("worst-case", "isolated"))
    for said in (worst.delta(0.1).lower_evidence.statement, alone.delta(0.1).lower_evidence.statement):
        assert "(1 - p + p mean_t U_t)" in said
        assert f"p = {20 / 21:.10g} the probability that the record is in one of these batches" in said
        assert "A last, shorter batch is not looked at." in said
    # Seen alone, the record moves its batch by 1/sigma: the ratio of N(1/sigma) and N(0), and no gradient of others.
    assert "U_t = exp(x_t/sigma - 1/(2 sigma^2))" in said
    assert "-u" not in said


def test_a_claim_that_an_attack_refutes_is_measured() -> None:
    """50 batches, sigma = 1: the note states the attack's epsilon and its ratio to the claim, both rounded down."""
    found = measure(dealt("shuffle", 50, 1, 1.0), tolerance=0.05)
    (note,) = [note for note in answer(found, Questions()).notes if "times the" in note]
    shown, ratio = (float(re.search(pattern, note)[1]) for pattern in (r"epsilon of ([\d.]+),", r"([\d.]+) times the"))
    lower, claim = found.epsilon(1e-5).lower, found.claim.epsilon(1e-5)
    assert 0.999 * lower <= shown <= lower
    assert 0.99 * lower / claim <= ratio <= lower / claim
    assert ratio > 1.2
    for harmless in (dealt("balls-and-bins", 50, 1, 1.0), dealt("shuffle", 50, 1, 1.0, adjacency="substitute")):
        notes = answer(measure(harmless, tolerance=0.05), Questions()).notes
        assert not any("times the" in note for note in notes)


def test_notes_say_why_the_bracket_is_open_and_what_closes_it() -> None:
    notes = " ".join(measure(dealt("shuffle", 10, 1, 1.0)).notes)
    assert "the proof is looser than where a remainder is dropped" in notes
    assert "sampler = 'balls-and-bins'" in notes  # batches of one record: no smaller batch leaves one over
    assert "Use batches of 9" in " ".join(measure(dealt("shuffle", 100, 10, 1.0)).notes)
    assert "the attack reaches what is proven" in " ".join(measure(dealt("balls-and-bins", 10, 1, 1.0)).notes)


# No bound out of order


def random_phases(rng: random.Random, adjacency: str, view: str) -> list[Run]:
    """A few phases on one small dataset: any sampler, batch size, noise, number of epochs."""
    records = rng.choice([3, 4, 5, 7])
    return [
        dealt(
            rng.choice(["poisson", "shuffle", "shuffle", "balls-and-bins", "deterministic"]),
            records,
            rng.choice([1, 1, 2, 3, records]),
            round(rng.choice([0.5, 0.9, 1.5, 4.0, 20.0]) * rng.uniform(0.8, 1.2), 3),
            rng.choice([1, 1, 1, 2, 5]),
            adjacency=adjacency,
            view=view,
        )
        for _ in range(rng.choice([1, 1, 1, 2, 3]))
    ]


def asked(found: Measurement, question: tuple[str, float]) -> Bracket:
    """The answer; a bracket whose lower end exceeds its upper end raises."""
    return found.epsilon(question[1]) if question[0] == "epsilon" else found.delta(question[1])


def check_order(seed: int, number: int, replaced_share: float) -> None:
    """lower <= upper for each run, and across views and adjacencies of which one allows more than the other."""
    rng = random.Random(seed)
    for _ in range(number):
        replaced = rng.random() < replaced_share
        adjacency = "substitute" if replaced else "zero-out"
        phases = random_phases(rng, adjacency, rng.choice(["worst-case", "isolated"]))
        question = rng.choice([("epsilon", 10 ** rng.uniform(-8, -1)), ("delta", rng.choice([0.0, rng.uniform(0, 5)]))])
        bracket = asked(measure(phases, tolerance=0.05), question)
        assert 0.0 <= bracket.lower <= bracket.upper
        if phases[0].view == "isolated":
            exposed = [run.replace(view="worst-case") for run in phases]
            assert bracket.lower <= asked(measure(exposed, tolerance=0.05), question).upper
        if replaced:
            zeroed = [run.replace(adjacency="zero-out") for run in phases]
            assert asked(measure(zeroed, tolerance=0.05), question).lower <= bracket.upper


@pytest.mark.parametrize("sampler", ["deterministic", "poisson", "shuffle", "balls-and-bins"])
@pytest.mark.parametrize("adjacency", ["zero-out", "substitute"])
def test_a_delta_below_every_float_is_not_rounded_to_zero(sampler: str, adjacency: str) -> None:
    """Fifty standard deviations away something is left. Its lower bound had digits that are none (8.4e-323)."""
    run = Run(dataset_size=4, batch_size=2, epochs=1, noise_multiplier=22.159, sampler=sampler, adjacency=adjacency)
    found = measure(run, tolerance=0.05).delta(4.5180044676142606)
    assert found.lower == 0.0 < 1e-300 <= found.upper < 1e-200


@pytest.mark.slow
def test_a_delta_whose_tail_lies_too_deep_for_doubles_is_answered() -> None:
    """One order for all epochs with little noise: likelihood ratios lie too far apart at epsilon 99; it was refused."""
    keys = {"dataset_size": 1611, "batch_size": 9, "epochs": 13, "noise_multiplier": 0.751, "sampler": "shuffle"}
    run = Run(**keys, adjacency="substitute", last_batch="drop", reshuffle="once")
    found = measure(run, tolerance=0.05).delta(99.128)
    assert 0.0 <= found.lower <= found.upper < 1.1e-8


def test_no_lower_bound_exceeds_an_upper_bound() -> None:
    """Fifty random runs of all samplers, views, adjacencies and phases."""
    check_order(seed=1, number=50, replaced_share=0.1)


@pytest.mark.slow
def test_no_lower_bound_exceeds_an_upper_bound_in_thousands_of_runs() -> None:
    """The same for two thousand runs, a third of them with a replaced record."""
    check_order(seed=2, number=2000, replaced_share=0.33)
