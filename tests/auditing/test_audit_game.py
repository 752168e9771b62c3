"""The game gives the same scores however it is played, refuses targets that break its rules, and finds what leaks."""

from __future__ import annotations

import math
import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from calipers.auditing import parallel
from calipers.auditing.audit import audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import distinguisher_for
from calipers.auditing.distinguishers import LikelihoodRatio, MatchedFilter, Plain, ScoreFunction
from calipers.auditing.fitted import Fitted
from calipers.auditing.game import Scores, play
from calipers.auditing.targets import FunctionTarget, TargetError
from calipers.auditing.verdict import AuditOutcome
from calipers.errors import CalipersError, InputError
from calipers.measure import measure
from calipers.run import Run

TARGET = NoisySums(others=4, sample_rate=0.3, noise_multiplier=2, dimension=10, normalization="realized", gradient=-1)


def same(first: Scores, second: Scores) -> bool:
    return bool((first.absent == second.absent).all() and (first.present == second.present).all())


def function(one_run, name: str = "mine") -> FunctionTarget:
    return FunctionTarget(one_run, name=name)


def test_chunks_are_seeded_as_stated() -> None:
    """Chunk c draws from SeedSequence(seed, spawn_key=(c, hypothesis)): anybody can repeat it without the game."""
    found = play(TARGET, LikelihoodRatio(TARGET), trials=25, seed=77, chunk=10)
    score = LikelihoodRatio(TARGET)
    for number, size in enumerate((10, 10, 5)):
        for present, side in ((False, found.absent), (True, found.present)):
            rng = np.random.default_rng(np.random.SeedSequence(77, spawn_key=(number, int(present))))
            expected = score.scores(TARGET.outputs(present, size, rng))
            assert (side[10 * number : 10 * number + size] == expected).all()


def test_seeds_decide_everything_and_nothing_else_does() -> None:
    """The same seed gives the same scores, another seed others; the hypotheses and chunks never share numbers."""
    first = play(TARGET, MatchedFilter(), trials=300, seed=1, chunk=50)
    assert same(first, play(TARGET, MatchedFilter(), trials=300, seed=1, chunk=50))
    other = play(TARGET, MatchedFilter(), trials=300, seed=2, chunk=50)
    everything = np.concatenate([first.absent, first.present, other.absent, other.present])
    assert len(np.unique(everything)) == everything.size
    big = play(TARGET, MatchedFilter(), trials=5, seed=2**127)
    assert np.isfinite(big.absent).all()


def test_processes_and_threads_give_the_same_scores() -> None:
    """One process, two processes, two threads."""
    alone = play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20)
    assert same(alone, play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20, jobs=2))
    threads = play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20, jobs=2, joblib_backend="threading")
    assert same(alone, threads)


@pytest.mark.dask
def test_a_dask_cluster_gives_the_same_scores() -> None:
    """Two worker processes of a real local cluster; a failing target is reported from there too."""
    distributed = pytest.importorskip("distributed")
    alone = play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        found = play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20, joblib_backend="dask")
        assert same(alone, found)
        with pytest.raises(TargetError, match="ZeroDivisionError") as failure:
            play(function(lambda present, rng: 1 / 0), Plain(), trials=20, seed=5, joblib_backend="dask")
        assert (failure.value.chunk, failure.value.seed) == (0, 5)
    with pytest.raises(InputError, match="Client"):
        play(TARGET, MatchedFilter(), trials=10, seed=5, joblib_backend="dask")


@pytest.mark.dask
@pytest.mark.filterwarnings("ignore:.*still being processed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_and_one_process_share_a_ledger(tmp_path: Path) -> None:
    """Begun on a cluster and broken off, gone on with in one process, and the other way round: chunks stream to the one
    process that asked, which writes them down as they come; nothing is played twice and the scores are the same."""
    distributed = pytest.importorskip("distributed")
    alone = play(TARGET, LikelihoodRatio(TARGET), trials=230, seed=5, chunk=20)
    game = {"trials": 230, "seed": 5, "chunk": 20}

    def broken_off(done: int, trials: int) -> None:
        if done >= 100:
            raise KeyboardInterrupt

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        for first, second in (("dask", None), (None, "dask")):
            path, began = tmp_path / f"{first}.ledger", list[int]()
            with pytest.raises(KeyboardInterrupt):
                play(TARGET, LikelihoodRatio(TARGET), **game, joblib_backend=first, ledger=path, progress=broken_off)
            found = play(
                TARGET,
                LikelihoodRatio(TARGET),
                **game,
                joblib_backend=second,
                ledger=path,
                resume=True,
                progress=lambda done, trials, began=began: began.append(done),
            )
            assert began[0] >= 100
            assert same(alone, found)


def test_a_backend_that_returns_everything_at_once_is_played_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray's does: after each wave of one chunk for each worker the finished chunks are handed on."""
    from joblib import register_parallel_backend
    from joblib.parallel import ThreadingBackend

    class AtOnce(ThreadingBackend):
        supports_return_generator = False

    register_parallel_backend("at-once", AtOnce)
    monkeypatch.setattr(parallel, "LOCAL", (*parallel.LOCAL, "at-once"))
    alone = play(TARGET, MatchedFilter(), trials=50, seed=3, chunk=10)
    seen: list[int] = []
    waves = play(
        TARGET, MatchedFilter(), trials=50, seed=3, chunk=10, jobs=2, joblib_backend="at-once",
        progress=lambda done, _: seen.append(done),
    )  # fmt: skip
    assert same(alone, waves)
    assert seen == [0, 10, 20, 30, 40, 50]


def test_progress_counts_trials() -> None:
    """From 0 to the number of trials, never backwards."""
    seen: list[tuple[int, int]] = []
    play(TARGET, MatchedFilter(), trials=45, seed=1, chunk=10, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 45), (10, 45), (20, 45), (30, 45), (40, 45), (45, 45)]


def test_memory_does_not_grow_with_the_trials() -> None:
    """Ten times the trials of full vectors: the peak grows by the scores, not by the outputs."""
    target = NoisySums(others=2, sample_rate=0.5, noise_multiplier=1, dimension=2000, vectors=True)

    def peak(trials: int) -> int:
        tracemalloc.start()
        play(target, MatchedFilter(), trials=trials, seed=1, chunk=20)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(40), peak(400)
    assert few > 20 * 2000 * 8
    assert many < few + 400 * 2000


def unrepeatable(present, rng):
    rng.normal()
    return np.random.default_rng().normal()


def shape_of_the_chunk(present, rng):
    return np.zeros(1 + int(rng.bit_generator.seed_seq.spawn_key[0] > 0)) + rng.normal()


BREACHES = [
    (lambda present, rng: [rng.normal(), math.nan], "NaN in run 0 with the record absent", 0),
    (lambda present, rng: 1 / 0 if present else rng.normal(), "ZeroDivisionError.*present", 0),
    (unrepeatable, "played again", 0),
    (lambda present, rng: np.random.default_rng(4).normal(), "never drew from rng", 0),
    (shape_of_the_chunk, "keep one shape", 1),
    (lambda present, rng: rng.normal(size=1 + present), "with it; keep one shape", 0),
    (lambda present, rng: time.sleep(60), "within 0.3 seconds", 0),
]


@pytest.mark.parametrize(("one_run", "message", "chunk"), BREACHES, ids=[message for _, message, _ in BREACHES])
def test_a_target_that_breaks_the_rules_is_reported(one_run, message: str, chunk: int) -> None:
    """With the chunk and the seed that repeat it, in the sentence and as attributes."""
    with pytest.raises(TargetError, match=message) as failure:
        play(function(one_run), MatchedFilter(), trials=12, seed=31, chunk=4, time_limit=0.3)
    assert (failure.value.chunk, failure.value.seed) == (chunk, 31)
    assert f"Chunk {chunk}, seed 31" in str(failure.value)
    assert isinstance(failure.value, CalipersError)


def test_failures_come_back_from_other_processes() -> None:
    """The sentence, the chunk and the target's own traceback; a process that dies is a failure too."""

    def third_chunk(present, rng):
        if rng.bit_generator.seed_seq.spawn_key[0] == 2:
            raise ValueError("not today")
        return rng.normal()

    with pytest.raises(TargetError, match="ValueError: not today") as failure:
        play(function(third_chunk), Plain(), trials=20, seed=6, chunk=5, jobs=2)
    assert failure.value.chunk == 2
    assert "third_chunk" in "".join(failure.value.__notes__)
    with pytest.raises(TargetError, match=r"worker process died.*seed 6"):
        play(function(lambda present, rng: os._exit(1)), Plain(), trials=20, seed=6, chunk=5, jobs=2)


class Vectorised:
    """A target written directly against the protocol."""

    name = "vectorised"

    def __init__(self, outputs) -> None:
        self._outputs = outputs

    def identity(self) -> dict[str, object]:
        return {"target": "vectorised"}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> np.ndarray:
        return self._outputs(present, count, rng)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda present, count, rng: rng.normal(size=(count + 1, 2)), "asked for 4 runs"),
        (lambda present, count, rng: rng.normal(size=count), "asked for 4 runs"),
        (lambda present, count, rng: rng.normal(size=(count, 0)), "asked for 4 runs"),
        (lambda present, count, rng: np.ones((count, 2)), "never drew from rng"),
    ],
)
def test_outputs_are_checked_for_every_target(outputs, message: str) -> None:
    """Count, dimensions, and whether there is any randomness."""
    with pytest.raises(TargetError, match=message):
        play(Vectorised(outputs), MatchedFilter(), trials=8, seed=1, chunk=4)


def test_discrete_outputs_that_happen_to_agree_are_no_breach() -> None:
    """Randomised response with a rare answer draws from rng, and may well say the same in a whole chunk."""
    found = play(function(lambda present, rng: float(rng.random() < 1e-6)), Plain(), trials=40, seed=1, chunk=20)
    assert not found.absent.any()


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (lambda outputs: np.full(len(outputs), math.nan), "NaN for run 0"),
        (lambda outputs: outputs, "one score for each run"),
        (lambda outputs: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_distinguisher_that_breaks_the_rules_is_reported(scores, message: str) -> None:
    """NaN, the wrong number of scores, an exception."""
    with pytest.raises(TargetError, match=message):
        play(TARGET, ScoreFunction(scores, label="bad"), trials=8, seed=1)


def test_infinite_scores_are_allowed() -> None:
    """A distinguisher may be certain."""
    certain = ScoreFunction(lambda outputs: np.where(outputs[:, 0, 0] > 0, np.inf, -np.inf), label="certain")
    assert np.isinf(play(TARGET, certain, trials=8, seed=1).absent).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": 1.5}, "trials"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**128}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"chunk": 0}, "chunk"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": 1.5}, "jobs"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": math.nan}, "time_limit"),
        ({"resume": True}, "ledger"),
        ({"joblib_backend": "spark"}, "joblib_backend"),
    ],
)
def test_settings_outside_their_domain_are_refused(wrong: dict, message: str) -> None:
    """The message names the setting."""
    with pytest.raises(InputError, match=message):
        play(TARGET, MatchedFilter(), **{"trials": 10, "seed": 1, **wrong})


def own_scores(present, rng):
    return rng.normal(size=2)


own_scores.scores = lambda outputs: outputs[:, 1]  # type: ignore[attr-defined]


def test_auto_is_the_strongest_distinguisher_known() -> None:
    """The exact ratio where it can be enumerated, the target's own scores where it has some, else a fitted one."""
    assert distinguisher_for(TARGET) == LikelihoodRatio(TARGET)
    many = NoisySums(others=500, sample_rate=0.1, rounds=10, sampler="balls-and-bins", noise_multiplier=1, gradient=-1)
    assert distinguisher_for(many) == MatchedFilter()
    scored = distinguisher_for(function(own_scores))
    assert (scored.scores(np.array([[1.0, 5.0]])) == 5.0).all()
    assert isinstance(distinguisher_for(function(lambda present, rng: rng.normal(size=2)), pilot=20), Fitted)
    with pytest.raises(InputError, match="built-in"):
        distinguisher_for(function(own_scores), "likelihood-ratio")
    with pytest.raises(InputError, match="scores"):
        distinguisher_for(function(lambda present, rng: 0.0), "scores")
    with pytest.raises(InputError, match="distinguisher"):
        distinguisher_for(TARGET, "best")


@pytest.mark.parametrize(
    ("normalization", "size", "rate", "dimension", "at_least", "truth"),
    [
        ("expected", 5, 0.05, 10, 0.30, 0.3759),
        ("expected", 5, 0.05, 100, 0.85, 0.8843),
        ("floor", 4, 0.5, 10, 0.83, 0.868),
    ],
)
def test_division_by_the_dataset_falsifies_the_accounting_of_the_sum(
    normalization: str, size: int, rate: float, dimension: int, at_least: float, truth: float
) -> None:
    """sigma = 10, 10,000 trials, 95 %: delta(0) lies far above what the undivided sum allows, and below the truth."""
    run = Run(
        dataset_size=size,
        sample_rate=rate,
        steps=1,
        noise_multiplier=10,
        normalization=normalization,
        dimension=dimension,
    )
    claim = measure(Run(sample_rate=rate, steps=1, noise_multiplier=10)).claim
    target = NoisySums.of_run(run)
    result = audit(target, distinguisher_for(target), trials=10_000, seed=2, epsilons=(0.0,), claim=claim)
    assert at_least <= result.delta[0].value <= truth
    assert result.verdict is not None
    assert result.verdict.outcome is AuditOutcome.FALSIFIED
    assert claim.delta(0.0) < 0.021


def test_the_undivided_sum_keeps_its_claim() -> None:
    """The same game without division: the accounting of the sum is not falsified, its half would be."""
    run = Run(dataset_size=5, sample_rate=0.5, steps=1, noise_multiplier=0.5, dimension=100)
    target = NoisySums.of_run(run)
    claim = measure(run).claim
    result = audit(target, distinguisher_for(target), trials=10_000, seed=2, epsilons=(0.0, 1.0), claim=claim)
    assert result.verdict is not None
    assert result.verdict.outcome is not AuditOutcome.FALSIFIED
    half = audit(
        target,
        distinguisher_for(target),
        trials=10_000,
        seed=2,
        epsilons=(0.0, 1.0),
        claim=lambda epsilon: claim.delta(epsilon) / 2,
    )
    assert half.verdict is not None
    assert half.verdict.outcome is AuditOutcome.FALSIFIED
