"""The runs behind the paper's numbers, and their certified brackets.

Theorem 6.1 is about one record that shows up in one of M rounds, seen by somebody who sees nothing but its noisy
contribution (view "isolated"). The paper calls this adversary the worst case; one who knows the other records of
batches of fixed size can learn more, because their sums give the record's round away. So shuffling has two brackets
here: the isolated one, which is the pair the theorem bounds, and the worst case between attack and proof. Adjacency is
zero-out throughout, as in the paper, and every sum is divided by the public batch size.

Poisson sampling can never do better than not drawing the record: with T rounds at rate q the two datasets give the
same outputs with probability (1-q)^T, so total variation is at most 1 - (1-q)^T. `poisson_ceiling` is that bound,
whatever the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from calipers.bracket import Bracket
from calipers.measure import Measurement, measure
from calipers.numerics.elementary import bisect_ratio
from calipers.papers.items import NumberPair
from calipers.run import Run
from calipers.theorems.separation import noise_threshold

_TOLERANCE = 3e-3
"""Relative width aimed for: three digits, where the paper prints two or three."""

_ISOLATED_TOLERANCE = 1e-2
"""The isolated view comes out narrower than what is asked for, by a factor of ten."""

_LONGEST_ATTACKED = 1_000
"""Rounds per epoch up to which several epochs are attacked in about a second."""

_NEAR = 1.003
"""The factor between two noise multipliers that are as good as one."""

ROUNDING = 1e-12
"""More than the relative error of a closed form in double precision."""


def epoch(rounds: int, noise_multiplier: float | None = None, epochs: int = 1) -> Run:
    """Epochs of so many rounds in which every record takes part, with σ = 1/sqrt(2 ln M) unless given."""
    return _run(noise_multiplier or noise_threshold(rounds), epochs, sample_rate=1.0 / rounds)


def epochs_of(records: int, batch_size: int, epochs: int) -> Run:
    """Epochs of a dataset's batches, the incomplete one dropped (Appendix B.3), with σ = 1/sqrt(2 ln M)."""
    return _run(noise_threshold(records // batch_size), epochs, dataset_size=records, batch_size=batch_size)


def _run(noise_multiplier: float, epochs: int, **shape: float) -> Run:
    fixed = {"adjacency": "zero-out", "normalization": "constant"}
    return Run.from_dict({"noise_multiplier": noise_multiplier, "epochs": epochs, **shape, **fixed})


@cache
def poisson(run: Run) -> Measurement:
    """What Poisson sampling leaks; the bracket closes."""
    return measure(run, tolerance=_TOLERANCE)


@cache
def shuffle(run: Run) -> Measurement:
    """What shuffling leaks in the worst case: an attack from below, a proof from above."""
    return measure(run.replace(sampler="shuffle"), tolerance=_TOLERANCE)


@cache
def isolated(run: Run) -> Measurement:
    """What shuffling leaks as the paper's adversary sees it; the bracket closes."""
    return measure(run.replace(sampler="shuffle", view="isolated"), tolerance=_ISOLATED_TOLERANCE)


def worst_case_epsilon(run: Run, delta: float) -> tuple[float, float, str]:
    """Bounds of ε(delta) of shuffling in the worst case, and a note where the lower one could be closer.

    The attack on several long epochs takes seconds. There the lower bound is that of the isolated view, whose adversary
    is one that the worst case includes, and the upper one is still the proof (fixed batches).
    """
    if run.total_epochs == 1 or run.steps_per_epoch <= _LONGEST_ATTACKED:
        found = shuffle(run).epsilon(delta)
        return found.lower, found.upper, ""
    fixed = measure(run.replace(sampler="deterministic"), tolerance=_TOLERANCE)
    return isolated(run).epsilon(delta).lower, fixed.epsilon(delta).upper, "lower bound: isolated view"


def poisson_ceiling(rounds: int, epochs: int = 1) -> float:
    """(1 - (1 - 1/M)^(M E))/sqrt 2.

    Post-condition: no noise multiplier makes the separation of E Poisson epochs at rate 1/M larger than this.
    """
    return -math.expm1(rounds * epochs * math.log1p(-1.0 / rounds)) / math.sqrt(2.0)


def forced_noise(separation: Callable[[float], Bracket], target: float, guess: float, spread: float) -> NumberPair:
    """The noise multiplier at which a decreasing separation passes `target`, searched around `guess`.

    Post-condition: at the first value returned a test shows more than `target`, at the second a proof gives at most
    `target`. How far they are apart is up to the brackets of the separation.
    """
    low, high = guess / spread, guess * spread
    while separation(low).lower <= target:
        low /= spread
    while separation(high).upper > target:
        high *= spread
    necessary, _ = bisect_ratio(low, high, lambda sigma: separation(sigma).lower > target, 60, _NEAR)
    return necessary, bisect_ratio(high, low, lambda sigma: separation(sigma).upper <= target, 60, _NEAR)[0]
