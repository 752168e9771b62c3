"""Any divided run: an answer or one sentence, in order, within five seconds of processor time and 500 MB.

A random run is measured as `calipers measure` does, every question of a report, in a process of its own whose time and
memory are then read. Refusals must be about the user's numbers.
"""

from __future__ import annotations

import math
import multiprocessing
from typing import Any

import pytest
from drivers.divided_runs import asked, drawn, why_bad
from drivers.many import alone

from calipers.bracket import Side
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.measure.divided import CollinearProof
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.division.collinear import CollinearPair
from calipers.run import Run

BUSY = 3.0
"""How much longer a core takes that is shared with others; the driver judges by the seconds of a quiet one."""


def check(keys: dict[str, Any]) -> None:
    found = alone(asked, keys)
    assert why_bad(found | {"seconds": found["seconds"] / BUSY}) == "", (keys, found)


needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="measures its own memory in a forked process"
)


@needs_fork
@pytest.mark.parametrize("seed", [1, 102, 113, 114, 116, 117, 119])
def test_random_runs_keep_within_time_and_memory(seed: int) -> None:
    """One of each kind, among them datasets told apart at once and batches of few records."""
    check(drawn(seed))


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 3000, 100))
def test_three_thousand_random_runs_keep_within_time_and_memory(first: int) -> None:
    """No crossing, no traceback, nothing above the limits."""
    for seed in range(first, first + 100):
        check(drawn(seed))


FOUND_IN_REVIEW = [
    ("floor", 60_100, 0.005, 10_000, 1.0, 10_000_000),
    ("floor", 60_100, 0.005, 10_000, 1.0, 125_000_000),
    ("floor", 160, 0.02, 1000, 2.0, 1_000_000),
    ("floor", 587, 0.0034079568690490837, 1611, 0.9949, 30_853),
    ("realized", 15, 0.69, 79, 1.0, 345),
    ("expected", 4, 0.2, 441, 4.45, 64_456),
    ("expected", 3, 4.18e-4, 2537, 40.0, 4508),
    ("floor", 3, 0.862, 7567, 35.0, 339),
    ("expected", 745_760, 0.1, 7, 10.0, 6),
    ("expected", 36_429, 0.85, 3, 12.2, 165),
    ("expected", 257, 0.032, 1, 42.0, 1),
]


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND_IN_REVIEW)
def test_what_once_ran_away(case: tuple[Any, ...]) -> None:
    """Runs that took minutes or gigabytes, or were refused with divisors that are not the user's."""
    names = ("normalization", "dataset_size", "sample_rate", "steps", "noise_multiplier", "dimension")
    check(dict(zip(names, case, strict=True)))


def divided(normalization: str, size: int, dimension: int, **more: Any) -> Run:
    keys = {"sample_rate": 0.2, "steps": 3, "noise_multiplier": 2.0} | more
    return Run(dataset_size=size, normalization=normalization, dimension=dimension, **keys)


def test_where_nothing_is_hidden_that_is_the_answer() -> None:
    """K = 3 in 10^8 coordinates: epsilon at least in closed form, advantage 1, and the note; no refusal."""
    found = measure(divided("expected", 4, 10**8))
    bracket = found.epsilon(1e-5)
    assert 1e7 < bracket.lower < bracket.upper == math.inf
    assert found.advantage().lower > 1.0 - 1e-10
    assert found.tpr(1e-6).lower > 0.999
    assert any(note.startswith("Nothing is hidden") for note in found.notes)
    assert "length" in bracket.lower_evidence.statement


@pytest.mark.parametrize(
    ("normalization", "low", "high"), [("expected", 5, 9), ("realized", 30, 60), ("floor", 12, 21)]
)
def test_a_range_holds_each_of_its_sizes(normalization: str, low: int, high: int) -> None:
    """The bracket of the range against that of single sizes: never below an attack on any of them."""
    whole = measure(divided(normalization, low, 20), dataset_sizes=(low, high), tolerance=1e-2).epsilon(1e-5)
    single = [measure(divided(normalization, size, 20), tolerance=1e-2).epsilon(1e-5) for size in (low, low + 3, high)]
    assert whole.upper >= max(bracket.lower for bracket in single)
    assert whole.lower <= whole.upper
    # The attack of the range is that on its smallest pair whose divisor moves.
    assert whole.lower >= 0.95 * max(bracket.lower for bracket in single)


def test_the_supremum_over_sizes_is_far_above_one_of_them() -> None:
    """q = 0.005, 200 steps, n = 26,010: 0.18 for 60,000 records, 18.36 for 1000; a note and a range say so."""
    run = Run(
        dataset_size=60_000,
        sample_rate=0.005,
        steps=200,
        noise_multiplier=10.0,
        normalization="expected",
        dimension=26_010,
    )
    found = measure(run)
    assert found.epsilon(1e-5).upper < 0.18
    assert any("every dataset size" in note for note in found.notes)
    whole = measure(run, dataset_sizes=(1000, 1100)).epsilon(1e-5)
    assert 18.3 < whole.lower <= whole.upper < 18.45


@pytest.mark.parametrize(
    ("run", "sizes"),
    [
        (Run(sample_rate=0.1, steps=1, noise_multiplier=1.0), (5, 9)),
        (divided("expected", 10, 5), (9, 5)),
        (divided("floor", 52, 5), (52, 53)),
        (divided("expected", 10, 5), (1, 5)),
    ],
)
def test_a_range_that_says_nothing_is_refused(run: Run, sizes: tuple[int, int]) -> None:
    """Nothing moves with the size, the ends are swapped, the floor does not jump, or a neighbor would be empty."""
    with pytest.raises(InputError, match=r"dataset_siz|dataset sizes|floor"):
        measure(run, dataset_sizes=sizes)


def test_little_noise_shows_the_lattice_of_the_batch_size() -> None:
    """Large N does not bring the plain mechanism back: sigma = 0.2, one coordinate, all gradients e.

    Sums lie near whole numbers; dividing by N + 1 instead of N moves the usual ones by q. The total variation tends to
    that of a wrapped normal law moved by q, 2 Phi(q / (2 sigma)) - 1 = 0.0995 here; the plain pair has 0.0494.
    """
    rate, sigma = 0.05, 0.2
    plain = poisson_gaussian(rate, sigma).upper(0.02, -40.0).delta(0.0)
    for others in (4000, 16_000):
        shown = CollinearPair(sigma, rate, others, others, 1.0, 1.0).lower(0.05, -40.0).delta(0.0)
        assert 0.09 < shown < 0.1
    assert plain < 0.05


def test_a_renyi_divergence_that_is_infinite_is_refused_in_words_about_the_run() -> None:
    """Noise over K against noise over K + 1: int Q^t P^(1-t) converges for t < 1/(1 - s^2) = (K + 1)^2/(2K + 1) only.

    At rate 1 the realized size is the dataset's, so it is not about batches of one record.
    """
    keys = {"dataset_size": 5, "steps": 10, "noise_multiplier": 5.0, "dimension": 20}
    for more in ({"sample_rate": 1.0, "normalization": "realized"}, {"sample_rate": 0.1, "normalization": "expected"}):
        found = measure(Run(**keys, **more))  # type: ignore[arg-type]
        assert math.isfinite(found.rdp(2.77).upper)
        with pytest.raises(UnsupportedError, match=r"order 2\.78 is infinite.* below order 2\.778"):
            found.rdp(2.78)


def test_where_no_float_holds_a_rate_the_curve_is_not_swept() -> None:
    """Sweeping each proof says the same of every rate that is a float: an attacker finds all, and nothing else."""
    run = Run(
        dataset_size=10, sample_rate=0.1, steps=150, noise_multiplier=5.0, normalization="expected", dimension=1000
    )
    found = measure(run)
    assert found.epsilon(0.9).lower > 1500.0
    proof = found.evaluation.upper
    assert isinstance(proof, CollinearProof)
    for pair in proof.pairs:
        swept = pair.proven.curve(1e-12, 1e-3)
        assert (swept.alpha.tolist(), swept.beta.tolist()) == ([0.0], [0.0])
    told = found.curve(Side.UPPER)
    assert (told.alpha.tolist(), told.beta.tolist()) == ([0.0], [0.0])
    assert found.gdp().mu.upper == math.inf
    assert found.tpr(1e-300).upper == 1.0
