"""Built-in targets have the law they state; targets of one's own are loaded, or refused in a sentence."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from calipers.auditing.audit import audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.loading import LoadedTarget
from calipers.auditing.targets import FunctionTarget, Target, TargetError
from calipers.errors import InputError
from calipers.run import Run

SOURCE = Path(__file__).parents[2] / "src"
# Statistical tests accept the truth at this p-value and reject the named alternative far below it. Seeds are fixed.
ACCEPT, REJECT = 1e-3, 1e-9


def drawn(present: bool, count: int = 20_000, seed: int = 1, **fields) -> np.ndarray:
    return NoisySums(**fields).outputs(present, count, np.random.default_rng(seed))


@pytest.mark.parametrize("present", [False, True])
@pytest.mark.parametrize(
    ("normalization", "absent_divisor", "present_divisor"),
    [("none", 1, 1), ("constant", 4, 4), ("expected", 3, 4), ("floor", 3, 4), ("realized", 3, 4)],
)
def test_at_rate_one_the_output_is_one_gaussian(
    present: bool, normalization: str, absent_divisor: int, present_divisor: int
) -> None:
    """q = 1, N = 3, v = -1: <y, e> = N(-3 + present, sigma^2)/d and the residual is sigma^2 chi-square_(n-1)/d^2."""
    fields = {"others": 3, "sample_rate": 1.0, "noise_multiplier": 2.0, "dimension": 6, "gradient": -1}
    found = drawn(present, **fields, normalization=normalization)[:, 0, :]
    divisor = present_divisor if present else absent_divisor
    mean, deviation = (-3 + present) / divisor, 2.0 / divisor
    assert stats.kstest(found[:, 0], stats.norm(mean, deviation).cdf).pvalue > ACCEPT
    assert stats.kstest(found[:, 1], stats.chi2(5, scale=deviation**2).cdf).pvalue > ACCEPT
    assert stats.kstest(found[:, 0], stats.norm(mean, 1.1 * deviation).cdf).pvalue < REJECT
    assert stats.kstest(found[:, 1], stats.chi2(6, scale=deviation**2).cdf).pvalue < REJECT


@pytest.mark.parametrize(
    "fields",
    [
        {"others": 4, "sample_rate": 0.4, "normalization": "realized", "gradient": 1},
        {"others": 4, "sample_rate": 0.4, "normalization": "expected", "gradient": -1},
        {"others": 5, "sample_rate": 0.5, "rounds": 2, "sampler": "balls-and-bins", "normalization": "realized"},
        {"others": 5, "sample_rate": 0.5, "rounds": 2, "sampler": "shuffle", "adjacency": "zero-out", "gradient": -1},
    ],
    ids=lambda fields: fields.get("sampler", fields.get("normalization")),
)
def test_statistic_and_vectors_have_one_law(fields: dict) -> None:
    """The pair (projection, squared residual) of full vectors is distributed as the pair that is drawn directly."""
    fields = {**fields, "noise_multiplier": 0.7, "dimension": 5}
    short = drawn(True, **fields)
    long = drawn(True, seed=2, **fields, vectors=True)
    pairs = np.stack([long[..., 0], np.square(long[..., 1:]).sum(axis=-1)], axis=-1)
    for round_ in range(short.shape[1]):
        for feature in range(2):
            assert stats.ks_2samp(short[:, round_, feature], pairs[:, round_, feature]).pvalue > ACCEPT
    wrong = drawn(True, **{**fields, "noise_multiplier": 0.8})
    assert stats.ks_2samp(wrong[:, 0, 1], pairs[:, 0, 1]).pvalue < REJECT


def batch_counts(present: bool, **fields) -> tuple[np.ndarray, np.ndarray]:
    target = NoisySums(noise_multiplier=1e-6, gradient=-1, **fields)
    return target._batches(present, 20_000, np.random.default_rng(3))


def test_poisson_batches_are_binomial() -> None:
    """Sizes of the others' batch have the binomial frequencies, independently of the record; q + 0.02 is rejected."""
    crowd, included = batch_counts(True, others=7, sample_rate=0.3, epochs=2)
    observed = np.bincount(crowd.ravel().astype(int), minlength=8)
    for rate, accepted in ((0.3, True), (0.32, False)):
        expected = crowd.size * stats.binom(7, rate).pmf(np.arange(8))
        p = stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
        assert p > ACCEPT if accepted else p < REJECT
    assert stats.binomtest(int(included.sum()), included.size, 0.3).pvalue > ACCEPT
    assert abs(np.corrcoef(crowd.ravel(), included.ravel())[0, 1]) < 4 / math.sqrt(crowd.size)
    assert abs(np.corrcoef(crowd[:, 0], crowd[:, 1])[0, 1]) < 4 / math.sqrt(len(crowd))


def test_absent_under_add_remove_is_in_no_batch() -> None:
    """Without a record there is nobody to include; under zero-out there is."""
    assert not batch_counts(False, others=7, sample_rate=0.9)[1].any()
    assert batch_counts(False, others=7, sample_rate=0.9, adjacency="zero-out")[1].any()


def test_balls_and_bins_throw_everybody_once() -> None:
    """Each epoch's counts add up to N and the record is in exactly one round, uniformly."""
    crowd, included = batch_counts(True, others=5, sample_rate=0.25, rounds=4, epochs=2, sampler="balls-and-bins")
    epochs = crowd.reshape(-1, 4)
    assert (epochs.sum(axis=1) == 5).all()
    assert (included.reshape(-1, 4).sum(axis=1) == 1).all()
    assert stats.chisquare(included.reshape(-1, 4).sum(axis=0)).pvalue > ACCEPT
    observed = np.bincount(epochs[:, 0].astype(int), minlength=6)
    assert stats.chisquare(observed, epochs.shape[0] * stats.binom(5, 0.25).pmf(np.arange(6))).pvalue > ACCEPT


def test_shuffled_batches_are_full_and_may_leave_the_record_out() -> None:
    """N + 1 = 11 records in 5 batches of 2: the record is left out of 1/11 of the epochs, every batch has 2."""
    crowd, included = batch_counts(
        True, others=10, sample_rate=2 / 11, rounds=5, epochs=3, sampler="shuffle", adjacency="zero-out"
    )
    assert (crowd + included == 2).all()
    kept = included.reshape(-1, 5).sum(axis=1)
    assert stats.binomtest(int(kept.sum()), kept.size, 10 / 11).pvalue > ACCEPT
    assert stats.binomtest(int(kept.sum()), kept.size, 0.93).pvalue < REJECT


@pytest.mark.parametrize("normalization", ["expected", "floor", "realized"])
def test_a_divisor_of_zero_is_one(normalization: str) -> None:
    """No other records: the absent dataset is empty, and its output is the noise itself."""
    fields = {"others": 0, "sample_rate": 1.0, "noise_multiplier": 3.0, "normalization": normalization}
    assert stats.kstest(drawn(False, **fields)[:, 0, 0], stats.norm(0, 3.0).cdf).pvalue > ACCEPT


@pytest.mark.parametrize("size", [3, 10, 49, 98, 1000])
def test_the_floor_is_that_of_the_exact_product(size: int) -> None:
    """(1/L) * 2L counts as 2 for every L, also where double precision says 1.999...; one record fewer gives 1."""
    target = NoisySums(others=2 * size - 1, sample_rate=1 / size, noise_multiplier=1, normalization="floor")
    assert target.divisor(True, np.zeros(1))[0] == 2
    assert target.divisor(False, np.zeros(1))[0] == 1


def test_a_run_is_read_as_its_own_dataset_with_and_without_one_record() -> None:
    """dataset_size counts the differing record; steps, rounds, noise and dimension carry over."""
    run = Run(dataset_size=5, sample_rate=0.05, steps=3, noise_multiplier=10, normalization="expected", dimension=10)
    target = NoisySums.of_run(run)
    assert (target.others, target.epochs, target.rounds, target.dimension) == (4, 3, 1, 10)
    assert target.gradient == -1
    assert target.divisor(False, np.zeros(1))[0] == pytest.approx(4 * 0.05)
    assert target.divisor(True, np.zeros(1))[0] == pytest.approx(5 * 0.05)
    assert NoisySums.of_run(run.replace(normalization="none")).gradient == 0
    shuffled = Run(
        dataset_size=100, batch_size=10, epochs=2, noise_multiplier=1, sampler="shuffle", adjacency="zero-out"
    )
    target = NoisySums.of_run(shuffled)
    assert (target.batch_size, target.rounds, target.epochs, target.gradient) == (10, 10, 2, -1)
    with pytest.raises(InputError, match="zero-out"):
        NoisySums.of_run(shuffled.replace(adjacency="add-remove"))
    with pytest.raises(InputError, match="dataset_size"):
        NoisySums.of_run(Run(sample_rate=0.1, steps=1, noise_multiplier=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"others": -1},
        {"others": 1.5},
        {"sample_rate": 0},
        {"sample_rate": math.nan},
        {"noise_multiplier": 0},
        {"dimension": 0},
        {"epochs": 0},
        {"gradient": 2},
        {"gradient": True},
        {"sampler": "sequential"},
        {"normalization": "mean"},
        {"sampler": "shuffle", "adjacency": "zero-out", "rounds": 9, "sample_rate": 0.5},
    ],
)
def test_fields_outside_their_domain_are_refused(wrong: dict) -> None:
    """The message names the field."""
    fields = {"others": 4, "sample_rate": 0.5, "noise_multiplier": 1.0}
    with pytest.raises(InputError):
        NoisySums(**{**fields, **wrong})


def test_chunks_stay_small_in_memory() -> None:
    """A chunk of outputs holds at most 32 MiB, down to one run."""
    large = NoisySums(others=4, sample_rate=0.1, noise_multiplier=1, dimension=20_000, vectors=True)
    assert large.chunk * 20_000 * 8 <= 2**25
    huge = NoisySums(others=4, sample_rate=0.1, noise_multiplier=1, dimension=10**8, vectors=True)
    assert huge.chunk == 1
    assert NoisySums(others=4, sample_rate=0.1, noise_multiplier=1, dimension=10**8).chunk == 1000


def test_targets_keep_the_protocol() -> None:
    """Everything that can be audited has name, identity and outputs."""
    built_in = NoisySums(others=0, sample_rate=1.0, noise_multiplier=1e-9)
    own = FunctionTarget(lambda present, rng: rng.normal())
    for target in (built_in, own):
        assert isinstance(target, Target)
        assert target.outputs(True, 3, np.random.default_rng(0)).shape[0] == 3
    assert not isinstance(object(), Target)


def test_each_run_of_a_function_can_be_repeated_alone() -> None:
    """Run i draws from the i-th child of the generator that was handed in."""
    target = FunctionTarget(lambda present, rng: rng.normal(size=3))
    found = target.outputs(True, 5, np.random.default_rng(np.random.SeedSequence(9, spawn_key=(4, 1))))
    alone = np.random.default_rng(np.random.SeedSequence(9, spawn_key=(4, 1, 3))).normal(size=3)
    assert (found[3] == alone).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda present, rng: 1 / 0, "ZeroDivisionError"),
        (lambda present, rng: "abc", "no array of numbers"),
        (lambda present, rng: [], "empty"),
        (lambda present, rng: np.zeros(rng.integers(1, 9)), "one shape"),
        (lambda present, rng: np.random.default_rng(0).normal(), "never drew from rng"),
    ],
)
def test_functions_that_misbehave_are_reported(function, message: str) -> None:
    """What went wrong, and in which run."""
    with pytest.raises(TargetError, match=message):
        FunctionTarget(function, name="mine").outputs(True, 10, np.random.default_rng(0))


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a module of targets, as the current folder."""
    (tmp_path / "audited_module.py").write_text(
        "class Box:\n    @staticmethod\n    def inner(present, rng): return rng.normal()\n"
        "def target(present, rng): return rng.normal() + present\n"
        "def lonely(present): return 1\nnumber = 7\n"
    )
    (tmp_path / "audited_broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "audited_failing.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("audited_module", "audited_broken", "audited_failing"):
        sys.modules.pop(name, None)


def test_a_function_is_loaded_by_its_name(mine) -> None:
    """From the current folder, dots reach into classes, and the target travels to other processes by its name."""
    target = LoadedTarget("audited_module:target")
    assert target.name == "audited_module:target"
    assert LoadedTarget("audited_module:Box.inner").outputs(True, 2, np.random.default_rng(0)).shape == (2, 1)
    again = pickle.loads(pickle.dumps(target))
    assert again.identity() == target.identity()
    assert target.identity()["source"]
    program = "import pickle, sys; t = pickle.loads(sys.stdin.buffer.read()); print(t.name)"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(target),
        capture_output=True,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert shown.stdout.decode().strip() == "audited_module:target"


def test_an_edited_file_is_another_target(mine) -> None:
    """The identity holds the digest of the source, so that a ledger cannot mix two versions."""
    before = LoadedTarget("audited_module:target").identity()
    with (mine / "audited_module.py").open("a") as file:
        file.write("# changed\n")
    assert LoadedTarget("audited_module:target").identity() != before


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("audited_module", "form module:function"),
        ("audited_module:", "both parts"),
        (":target", "both parts"),
        ("a:b:c", "form module:function"),
        ("audited_module.py:target", "audited_module:target"),
        ("./audited_module:target", "audited_module:target"),
        ("audited_module:nothing", "it offers lonely, target"),
        ("audited_module:number", "is a int, not a function"),
        ("audited_module:lonely", "takes whether the record"),
        ("audited_absent:target", "no module 'audited_absent'"),
        ("audited_broken:target", "needs nothing_of_this_name"),
        ("audited_failing:target", "ZeroDivisionError"),
    ],
)
def test_addresses_that_lead_nowhere_are_refused(mine, address: str, message: str) -> None:
    """Each with what to write instead."""
    with pytest.raises(InputError, match=message):
        LoadedTarget(address)


def test_an_audit_takes_a_function_an_address_or_a_target(tmp_path, monkeypatch) -> None:
    """One run with and without the record, told apart by a shift of 3: all three ways find what the closed form allows.

    delta(0) of N(0, 1) against N(3, 1) is 0.866; 400 runs prove at least 0.7 of it and never more than the truth.
    """

    def shifted(present, rng):
        return rng.normal(loc=3.0 if present else 0.0)

    (tmp_path / "addressed.py").write_text(
        "def shifted(present, rng):\n    return rng.normal(loc=3.0 if present else 0.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    for given in (shifted, "addressed:shifted", FunctionTarget(shifted)):
        result = audit(given, trials=400, seed=1, epsilons=(0.0,))
        assert 0.7 < result.delta[0].value < 0.8664
    with pytest.raises(InputError, match=r"function of \(present, rng\)"):
        audit(3, trials=400, seed=1)
