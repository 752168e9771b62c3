"""Scores: the likelihood ratio against enumeration of every batch, the others against closed forms."""

from __future__ import annotations

import itertools
import math
import time

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import ndtr

from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import pilot_for
from calipers.auditing.distinguishers import (
    Distinguisher,
    LikelihoodRatio,
    MatchedFilter,
    MaximumTest,
    Plain,
    ScoreFunction,
)
from calipers.auditing.fitted import Fitted, fit
from calipers.auditing.game import play
from calipers.auditing.normality import NormalityTest, kolmogorov_smirnov, variance_test
from calipers.auditing.targets import FunctionTarget, TargetError
from calipers.errors import InputError, UnsupportedError


def largest_difference(absent: np.ndarray, present: np.ndarray) -> float:
    """The largest TPR - FPR over thresholds, of samples."""
    grid = np.sort(np.concatenate([absent, present]))
    fpr = 1 - np.searchsorted(np.sort(absent), grid, side="right") / absent.size
    tpr = 1 - np.searchsorted(np.sort(present), grid, side="right") / present.size
    return float((tpr - fpr).max())


def advantage(target: NoisySums, distinguisher: Distinguisher, trials: int = 20_000) -> float:
    scores = play(target, distinguisher, trials=trials, seed=11)
    return largest_difference(scores.absent, scores.present)


def placements(target: NoisySums, members: int) -> list[tuple[float, list[list[int]]]]:
    """Every way an epoch's batches can come out, by enumeration of records: (probability, members of each batch)."""
    people = range(members)
    if target.sampler == "poisson":
        q, found = target.sample_rate, []
        for coins in itertools.product((0, 1), repeat=members):
            heads = sum(coins)
            found.append((q**heads * (1 - q) ** (members - heads), [[i for i in people if coins[i]]]))
        return found
    if target.sampler == "balls-and-bins":
        ways = itertools.product(range(target.rounds), repeat=members)
        return [
            (target.rounds**-members, [[i for i in people if way[i] == t] for t in range(target.rounds)])
            for way in ways
        ]
    orders = list(itertools.permutations(people)) if target.sampler == "shuffle" else [tuple(people)]
    size = target.batch_size
    return [(1 / len(orders), [list(o[t * size : (t + 1) * size]) for t in range(target.rounds)]) for o in orders]


def log_density_by_enumeration(target: NoisySums, present: bool, epoch: np.ndarray) -> mpmath.mpf:
    """log of the density of one epoch's vectors, record 0 being the differing one, 30 digits, no shortcuts."""
    member = present or target.adjacency != "add-remove"
    size = target.others + member
    pull = 1 if present else {"zero-out": 0, "substitute": -1, "add-remove": 0}[target.adjacency]
    sigma, n = mpmath.mpf(target.noise_multiplier), target.dimension
    total = mpmath.mpf(0)
    for probability, batches in placements(target, size):
        density = mpmath.mpf(probability)
        for batch, y in zip(batches, epoch, strict=True):
            gradients = [pull if member and i == 0 else target.gradient for i in batch]
            divisor = {
                "none": 1,
                "constant": (target.others + 1) * target.sample_rate,
                "expected": size * target.sample_rate,
                "floor": math.floor(size * target.sample_rate + 1e-9),
                "realized": len(batch),
            }[target.normalization]
            d = mpmath.mpf(divisor) if divisor else mpmath.mpf(1)
            z = [(d * mpmath.mpf(float(c)) - (sum(gradients) if axis == 0 else 0)) / sigma for axis, c in enumerate(y)]
            density *= (d / sigma) ** n * mpmath.exp(-mpmath.fsum(c * c for c in z) / 2)
        total += density
    return mpmath.log(total)


CASES = [
    {"others": 4, "sample_rate": 0.05, "normalization": "expected", "gradient": -1},
    {"others": 3, "sample_rate": 0.5, "normalization": "floor", "gradient": 1},
    {"others": 4, "sample_rate": 0.7, "normalization": "realized", "gradient": -1},
    {"others": 4, "sample_rate": 0.7, "normalization": "realized", "gradient": 0},
    {"others": 3, "sample_rate": 1.0, "normalization": "expected", "gradient": 1},
    {"others": 3, "sample_rate": 0.3, "normalization": "none", "gradient": -1, "epochs": 3},
    {"others": 3, "sample_rate": 0.3, "normalization": "realized", "gradient": 1, "adjacency": "substitute"},
    {"others": 3, "sample_rate": 0.4, "normalization": "constant", "adjacency": "zero-out"},
    {"others": 0, "sample_rate": 0.4, "normalization": "expected"},
    {"others": 4, "sample_rate": 0.5, "rounds": 2, "sampler": "balls-and-bins", "normalization": "realized"},
    {"others": 3, "sample_rate": 1 / 3, "rounds": 3, "sampler": "balls-and-bins", "gradient": -1, "epochs": 2},
    {"others": 3, "sample_rate": 0.25, "rounds": 4, "sampler": "balls-and-bins"},
    {"others": 4, "sample_rate": 0.4, "rounds": 2, "sampler": "shuffle", "adjacency": "zero-out", "gradient": -1},
    {"others": 3, "sample_rate": 0.5, "rounds": 2, "sampler": "shuffle", "adjacency": "substitute", "epochs": 2},
    {"others": 5, "sample_rate": 0.5, "rounds": 2, "sampler": "deterministic", "adjacency": "zero-out", "gradient": 1},
]


@pytest.mark.parametrize("fields", CASES, ids=lambda f: "-".join(str(v) for v in f.values()))
def test_the_likelihood_ratio_is_that_of_all_batches(fields: dict) -> None:
    """Score = log p(y | present) - log p(y | absent), with every batch of every record enumerated in mpmath."""
    target = NoisySums(**fields, noise_multiplier=1.3, dimension=3, vectors=True)
    statistic = NoisySums(**fields, noise_multiplier=1.3, dimension=3)
    outputs = np.concatenate([target.outputs(side, 1, np.random.default_rng(5)) for side in (False, True)])
    short = np.stack([outputs[..., 0], np.square(outputs[..., 1:]).sum(axis=-1)], axis=-1)
    found = LikelihoodRatio(target).scores(outputs)
    assert LikelihoodRatio(statistic).scores(short) == pytest.approx(found, rel=1e-10, abs=1e-10)
    with mpmath.workdps(30):
        for run, score in zip(outputs, found, strict=True):
            truth = mpmath.mpf(0)
            for epoch in run.reshape(target.epochs, target.rounds, -1):
                truth += log_density_by_enumeration(target, True, epoch)
                truth -= log_density_by_enumeration(target, False, epoch)
            assert score == pytest.approx(float(truth), rel=1e-11, abs=1e-11)


def total_variation(n: int, others: int, rate: float, sigma: float, absent: float, present: float) -> float:
    """delta(0) of noisy sums with v = 0 and divisors `absent`, `present`, by quadrature over (projection, residual).

    In units of sigma after multiplying by the absent divisor, with s = absent/present: along e, N(0, 1) against
    (1-q) N(0, s^2) + q N(s/sigma, s^2); across, chi-square against s^2 chi-square.
    """
    s = absent / present
    p = np.linspace(-9, 9, 1201)
    r = np.linspace(1e-9, stats.chi2(n - 1).ppf(1 - 1e-12), 1201)
    first = stats.norm.pdf(p)[:, None] * stats.chi2(n - 1).pdf(r)
    along = (1 - rate) * stats.norm.pdf(p, 0, s) + rate * stats.norm.pdf(p, s / sigma, s)
    second = along[:, None] * stats.chi2(n - 1, scale=s * s).pdf(r)
    return 0.5 * float(integrate.simpson(integrate.simpson(np.abs(first - second), x=r), x=p))


@pytest.mark.parametrize(
    ("n", "normalization", "others", "rate", "divisors", "published"),
    [
        (10, "expected", 4, 0.05, (0.2, 0.25), 0.3759),
        (100, "expected", 4, 0.05, (0.2, 0.25), 0.884295),
        (10, "floor", 3, 0.5, (1.0, 2.0), 0.868),
    ],
)
def test_the_advantage_found_is_the_total_variation(n, normalization, others, rate, divisors, published) -> None:
    """20,000 trials: TPR - FPR of the likelihood ratio meets the quadrature, and not a dimension one lower."""
    truth = total_variation(n, others, rate, 10.0, *divisors)
    assert truth == pytest.approx(published, abs=2e-3)
    target = NoisySums(
        others=others, sample_rate=rate, noise_multiplier=10, dimension=n, normalization=normalization, gradient=0
    )
    found = advantage(target, LikelihoodRatio(target))
    # Four standard deviations of a difference of two frequencies, and the upward bias of a maximum.
    assert found == pytest.approx(truth, abs=4 * math.sqrt(0.5 / 20_000))
    if n == 10:
        wrong = total_variation(n // 2, others, rate, 10.0, *divisors)
        assert abs(found - wrong) > 8 * math.sqrt(0.5 / 20_000)


def test_without_division_the_leakage_is_that_of_the_subsampled_gaussian() -> None:
    """delta(0) = q (2 Phi(1/(2 sigma)) - 1) for "none" and "constant", in any dimension."""
    truth = 0.3 * (2 * ndtr(1 / (2 * 0.5)) - 1)
    for normalization in ("none", "constant"):
        target = NoisySums(
            others=10, sample_rate=0.3, noise_multiplier=0.5, dimension=1000, normalization=normalization
        )
        assert advantage(target, LikelihoodRatio(target)) == pytest.approx(truth, abs=0.02)


def test_rounds_add_up() -> None:
    """q = 1, T rounds: one Gaussian with mu = sqrt(T)/sigma, found by the ratio and by the matched filter alike."""
    target = NoisySums(others=0, sample_rate=1.0, noise_multiplier=4, epochs=9)
    truth = 2 * ndtr(3 / 8) - 1
    for distinguisher in (LikelihoodRatio(target), MatchedFilter()):
        found = advantage(target, distinguisher)
        assert found == pytest.approx(truth, abs=0.02)
        assert abs(found - (2 * ndtr(9 / 8) - 1)) > 0.2


def test_the_ratio_has_mean_one_when_the_record_is_absent() -> None:
    """E[e^score | absent] = 1: the mark of a likelihood ratio of normalized densities, at large n and N too."""
    target = NoisySums(
        others=50, sample_rate=0.4, noise_multiplier=3, dimension=2000, normalization="realized", gradient=-1
    )
    scores = play(target, LikelihoodRatio(target), trials=20_000, seed=3)
    ratio = np.exp(scores.absent)
    assert ratio.mean() == pytest.approx(1.0, abs=5 * ratio.std() / math.sqrt(ratio.size))
    inverse = np.exp(-scores.present)
    assert inverse.mean() == pytest.approx(1.0, abs=5 * inverse.std() / math.sqrt(inverse.size))


def test_the_maximum_finds_the_shuffled_record() -> None:
    """v = -1, M batches, zero-out: TPR - FPR of max_t is F(c)^(M-1) [Phi((c-1)/s) - Phi((c-2)/s)] at its best c."""
    target = NoisySums(
        others=9,
        sample_rate=0.2,
        noise_multiplier=0.4,
        rounds=5,
        sampler="shuffle",
        adjacency="zero-out",
        gradient=-1,
    )
    level = np.linspace(-3, 5, 4001)
    rest = ndtr(level / 0.4) ** 4
    truth = float((rest * (ndtr((level - 1) / 0.4) - ndtr((level - 2) / 0.4))).max())
    found = advantage(target, MaximumTest(rounds=5))
    assert found == pytest.approx(truth, abs=0.02)
    assert advantage(target, LikelihoodRatio(target)) > found - 0.02
    assert advantage(target, MatchedFilter()) < truth - 0.02


def test_too_many_configurations_are_refused_with_a_way_out() -> None:
    """Balls and bins with many others that matter cannot be enumerated; with v = 0 they can."""
    fields = {"others": 1000, "sample_rate": 0.1, "rounds": 10, "sampler": "balls-and-bins", "noise_multiplier": 1}
    target = NoisySums(**fields, gradient=-1)
    outputs = target.outputs(True, 3, np.random.default_rng(0))
    with pytest.raises(UnsupportedError, match="matched filter"):
        LikelihoodRatio(target).scores(outputs)
    assert MatchedFilter().scores(outputs).shape == (3,)
    alone = NoisySums(**fields)
    assert np.isfinite(LikelihoodRatio(alone).scores(alone.outputs(True, 3, np.random.default_rng(0)))).all()


def test_p_values_agree_with_scipy() -> None:
    """The chi-square test exactly, Kolmogorov-Smirnov within the error of its limit law at n = 30 (0.02)."""
    values = np.random.default_rng(0).normal(size=(200, 30)) * np.linspace(0.7, 1.3, 200)[:, None]
    exact = np.array([stats.kstest(row, "norm", method="exact").pvalue for row in values])
    assert np.abs(kolmogorov_smirnov(values) - exact).max() < 0.02
    square = np.square(values).sum(axis=1)
    two_sided = 2 * np.minimum(stats.chi2(30).cdf(square), stats.chi2(30).sf(square))
    assert variance_test(values) == pytest.approx(two_sided, rel=1e-9)


def normality(test: str, aggregation: str, n: int = 100) -> float:
    target = NoisySums(
        others=4,
        sample_rate=0.05,
        noise_multiplier=10,
        dimension=n,
        normalization="expected",
        gradient=-1,
        vectors=True,
    )
    return advantage(target, NormalityTest(target, test, aggregation), trials=2000)


def test_normality_tests_see_the_divisor_and_stay_below_the_likelihood_ratio() -> None:
    """n = 100, exact 0.884: variance votes find most of it, Kolmogorov-Smirnov votes little; nothing finds more."""
    noise = 4 * math.sqrt(0.5 / 2000)
    assert 0.75 < normality("variance", "vote") < 0.8843 + noise
    assert 0.8 < normality("variance", "best-fit") < 0.8843 + noise
    assert normality("kolmogorov-smirnov", "vote") < 0.4
    assert 0.5 < normality("kolmogorov-smirnov", "best-fit") < 0.8843 + noise


def test_votes_follow_algorithm_1() -> None:
    """q = 1 leaves one batch on each side: the vote is 1 if only D' passes, 0 if only D does, otherwise 1/2."""
    target = NoisySums(
        others=1, sample_rate=1.0, noise_multiplier=1, dimension=400, normalization="expected", vectors=True
    )
    score = NormalityTest(target)
    z = np.random.default_rng(1).normal(size=(1, 1, 400))
    z *= math.sqrt(400 / np.square(z).sum())
    record = np.zeros((1, 1, 400))
    record[..., 0] = 1.0
    assert score.scores(z) == pytest.approx(0.0)  # D: divisor 1
    assert score.scores((z + record) / 2) == pytest.approx(1.0)  # D': divisor 2
    assert score.scores(10 * z) == pytest.approx(0.5)  # neither


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {}, "vectors=True"),
        ({"vectors": True}, {"test": "shapiro"}, "test"),
        ({"vectors": True}, {"level": 0}, "level"),
        ({"vectors": True, "adjacency": "zero-out"}, {}, "add-remove"),
    ],
)
def test_normality_tests_out_of_their_domain_are_refused(fields: dict, options: dict, message: str) -> None:
    """They need coordinates, Poisson batches and add-remove adjacency."""
    target = NoisySums(others=2, sample_rate=0.5, noise_multiplier=1, **fields)
    with pytest.raises(InputError, match=message):
        NormalityTest(target, **options)


def test_a_fitted_score_finds_means_and_scales() -> None:
    """Pilot runs alone reveal a shift in one feature, or a scale common to all; identical sides stay hidden."""

    def shifted(present, rng):
        return rng.normal(size=50) + 2.0 * present * np.eye(50)[7]

    def scaled(present, rng):
        return rng.normal(size=50) * (0.8 if present else 1.0)

    def same(present, rng):
        return rng.normal(size=50)

    found = {}
    for function in (shifted, scaled, same):
        target = FunctionTarget(function)
        scores = play(target, fit(target, pilot=300, seed=5), trials=1000, seed=5)
        found[function.__name__] = largest_difference(scores.absent, scores.present)
    assert found["shifted"] == pytest.approx(2 * ndtr(1.0) - 1, abs=0.06)
    level = np.linspace(1, 150, 2000)
    best = float((stats.chi2(50).cdf(level / 0.64) - stats.chi2(50).cdf(level)).max())
    assert found["scaled"] == pytest.approx(best, abs=0.06)
    assert found["same"] < 0.1


def test_differences_that_only_show_together_are_used() -> None:
    """Twenty features shifted by 0.1: 1,000 pilot runs show none alone, and the score finds 0.3 of the 0.447."""
    rng = np.random.default_rng(4)
    score = Fitted(rng.normal(size=(1000, 20)), rng.normal(0.1, size=(1000, 20)))
    absent, present = (score.scores(rng.normal(shift, size=(50_000, 20))) for shift in (0.0, 0.1))
    assert (present.mean() - absent.mean()) / absent.std() > 0.3
    assert "more than 1000 + 1000 pilot runs (--pilot)" in score.blind
    chance = [Fitted(*rng.normal(size=(2, 200, 20))) for _ in range(200)]
    assert sum(bool((one.present_mean != one.absent_mean).all()) for one in chance) <= 8


def test_a_tenth_of_many_trials_is_a_pilot() -> None:
    """No fewer than 500."""
    assert [pilot_for(trials) for trials in (100, 5_000, 20_000)] == [500, 500, 2_000]


def test_one_number_that_rises_is_its_own_score() -> None:
    """One feature with a larger mean needs no fitting; one that falls, or only spreads, does."""
    rising = fit(FunctionTarget(lambda present, rng: rng.normal() + present), pilot=200, seed=1)
    falling = fit(FunctionTarget(lambda present, rng: rng.normal() - present), pilot=200, seed=1)
    assert rising == Plain()
    assert isinstance(falling, Fitted)
    assert falling.scores(np.array([[-1.0], [1.0]]))[0] > falling.scores(np.array([[-1.0], [1.0]]))[1]


def test_the_pilot_draws_no_number_of_the_game() -> None:
    """With the same seed, no output of the pilot is an output of the game."""
    seen: list[float] = []

    def remember(present, rng):
        seen.append(float(rng.normal()))
        return seen[-1]

    target = FunctionTarget(remember)
    fit(target, pilot=50, seed=4)
    pilot = set(seen)
    seen.clear()
    play(target, Plain(), trials=50, seed=4)
    assert len(pilot) == 100
    assert not pilot & set(seen)


def test_pilots_that_cannot_be_fitted_are_refused() -> None:
    """Too short, NaN, or other features with the record than without."""
    with pytest.raises(InputError, match="pilot"):
        fit(FunctionTarget(lambda present, rng: rng.normal()), pilot=3, seed=1)
    with pytest.raises(TargetError, match="NaN"):
        fit(FunctionTarget(lambda present, rng: [rng.normal(), math.nan]), pilot=20, seed=1)
    with pytest.raises(TargetError, match="with it"):
        fit(FunctionTarget(lambda present, rng: rng.normal(size=1 + present)), pilot=20, seed=1)


@pytest.mark.parametrize(
    ("one_run", "message"),
    [
        (lambda present, rng: 1 / 0, "ZeroDivisionError"),
        (lambda present, rng: rng.normal() if rng.random() < 0.9 else math.nan, "NaN or infinity in run"),
        (lambda present, rng: rng.normal() + (time.sleep(30) or 0.0), "within 0.1 seconds"),
    ],
    ids=["raises", "nan", "hangs"],
)
def test_a_pilot_that_fails_names_its_chunk_and_seed(one_run, message: str) -> None:
    """As a game does: what raises, returns NaN or hangs in the pilot can be found again."""
    with pytest.raises(TargetError, match=message) as failure:
        fit(FunctionTarget(one_run), pilot=40, seed=7, time_limit=0.1)
    assert "Pilot, record absent, chunk" in str(failure.value)
    assert failure.value.seed == 7
    assert failure.value.chunk in (0, 1)


def test_any_function_can_score() -> None:
    """A canary's own score is used as it is, and its source is part of the identity."""
    score = ScoreFunction(lambda outputs: outputs[:, 0] ** 2, label="square")
    assert (score.scores(np.array([[3.0], [-1.0]])) == [9.0, 1.0]).all()
    assert score.name == "square"
    assert score.identity()["source"]


def test_outputs_of_another_shape_are_refused() -> None:
    """A score says which shape it needs."""
    target = NoisySums(others=0, sample_rate=1.0, noise_multiplier=1)
    with pytest.raises(InputError, match="shape"):
        LikelihoodRatio(target).scores(np.zeros((3, 2, 2)))
    with pytest.raises(InputError, match="features"):
        MatchedFilter(direction=(1.0, 0.0)).scores(np.zeros((3, 3)))
    with pytest.raises(InputError, match="one number"):
        Plain().scores(np.zeros((3, 2)))
    with pytest.raises(InputError, match="epochs"):
        MaximumTest(rounds=2).scores(np.zeros((3, 3, 2)))
