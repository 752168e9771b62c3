"""Correlated noise with hidden bins, by simulation: a statistical interval, labelled as one, not a proof.

Every record is thrown once into one of b bins and takes part whenever its bin has its turn (steps g, g + b, ...). For a
matrix C with non-negative entries the worst record shows the same unit vector at every participation, and the pair is

    P = mean over bins g of N(m_g, sigma^2 I)   against   Q = N(0, sigma^2 I),   m_g = sum of the columns of its steps

(Choquette-Choo et al. 2025, Near-Exact Privacy Amplification for Matrix Mechanisms). No closed form is known where
bands reach beyond the bins. What decides is the b-dimensional Gaussian vector (<m_g, z>), cheap to simulate:

    delta(eps) = E_P[(1 - e^eps / L)+], and E_Q[(1 - e^eps L)+] for the swapped pair: means of numbers in [0, 1].

The interval holds with the stated confidence (empirical Bernstein, Maurer and Pontil 2009, Theorem 4, both ends and
both orders by a union bound). It cannot resolve deltas far below 1 / trials.
"""

from __future__ import annotations

import math

import numpy as np

from calipers.bracket import Bracket, Evidence, Kind
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, Domain
from calipers.errors import UnsupportedError
from calipers.mechanisms.gaussian import NOISE
from calipers.mechanisms.noise_matrix import NoiseMatrix
from calipers.numerics.types import FloatArray

TRIALS = Domain(1000, 10**8, integer=True)
BINS = Domain(1, 4096, integer=True)
_CHUNK = 4_000_000


def estimated_delta(
    matrix: NoiseMatrix,
    noise_multiplier: float,
    *,
    bins: int,
    epsilon: float,
    trials: int = 100_000,
    confidence: float = 0.999,
    seed: int = 0,
) -> Bracket:
    """A statistical interval of delta(epsilon), add-remove, when a record is thrown once into one of `bins` bins.

    Post-condition: with probability at least `confidence` over the simulation, lower <= delta <= upper.
    """
    noise, bins = NOISE.check("noise_multiplier", noise_multiplier), BINS.check_int("bins", bins)
    epsilon, trials = NON_NEGATIVE.check("epsilon", epsilon), TRIALS.check_int("trials", trials)
    confidence = OPEN_UNIT.check("confidence", confidence)
    moved = _moved(matrix, bins) / noise
    gram = moved @ moved.T
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rng = np.random.default_rng(seed)
    sums = {True: np.zeros(2), False: np.zeros(2)}
    rows = max(1, _CHUNK // bins)
    for start in range(0, trials, rows):
        count = min(rows, trials - start)
        scores = rng.standard_normal((count, bins)) @ root.T - 0.5 * np.diag(gram)
        shown = scores + gram[rng.integers(bins, size=count)]
        for present, chosen in ((True, shown), (False, scores)):
            peak = chosen.max(axis=1)
            log_ratio = peak + np.log(np.mean(np.exp(chosen - peak[:, None]), axis=1))
            gain = -np.expm1(np.minimum(epsilon - log_ratio if present else epsilon + log_ratio, 0.0))
            sums[present] += (float(gain.sum()), float((gain**2).sum()))
    failure = (1.0 - confidence) / 4.0
    ends = [_interval(total, squares, trials, failure) for total, squares in sums.values()]
    text = (
        f"Simulation of {trials:,} runs with the record and as many without (seed {seed}), every record in one of "
        f"{bins} bins: an estimate with its confidence, not a proof."
    )
    evidence = Evidence(Kind.STATISTICAL, text, "Maurer and Pontil 2009, Theorem 4", confidence)
    return Bracket(max(low for low, _ in ends), max(high for _, high in ends), evidence, evidence)


def _moved(matrix: NoiseMatrix, bins: int) -> FloatArray:
    """What a record of each bin adds to the release, one row per bin."""
    dense = matrix.entries
    if np.any(dense < 0.0):
        raise UnsupportedError(
            "The simulated pair is proven to be the worst for matrices without negative entries only; measure the run "
            "without the sampling (known times) instead."
        )
    return np.array([dense[:, group::bins].sum(axis=1) for group in range(min(bins, matrix.steps))])


def _interval(total: float, squares: float, trials: int, failure: float) -> tuple[float, float]:
    """The empirical Bernstein interval of a mean of numbers in [0, 1]; each end fails with probability `failure`."""
    mean = total / trials
    variance = max(0.0, (squares - trials * mean * mean) / (trials - 1))
    log_term = math.log(2.0 / failure)
    reach = math.sqrt(2.0 * variance * log_term / trials) + 7.0 * log_term / (3.0 * (trials - 1))
    return max(0.0, mean - reach), min(1.0, mean + reach)
