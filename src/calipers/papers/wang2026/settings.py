"""The three divided mechanisms of the paper, one ordered pair of dataset sizes at a time.

The paper looks at D with N records and D' with one more, so here too only that pair counts (a `Measurement` takes
the pairs (N - 1, N) and (N, N + 1) together). Everything else is Calipers' own:

- **bracket**: the least that a proof allows for all gradients, the most that an attack gets: all other gradients
  opposite to the new one, or zero where batches are so large that opposite ones only blur. The proof for division by
  N q or its floor reveals the batch and hides the membership, that for division by |B| reveals size and sum.
- **claim**: the undivided sum (SGM) that the audited methods account for. T(P, Q) = q G_(1/sigma) + (1 - q) ID; the
  order with the mixture first has the larger profile, delta(eps) = q delta_G(log(1 + (e^eps - 1)/q)).
- **length**: a test that looks only at the n - 1 coordinates without signal. Given the divisor d their squared length
  is (sigma/d)^2 times a chi-square variable, and the divisor has a known distribution under each dataset. Rejecting D
  below a threshold with power 1 - beta and level alpha shows epsilon >= log((1 - beta - delta)/alpha). For huge n this
  is nearly everything there is, and all of it is computed in logarithms.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from calipers.bracket import Side
from calipers.citations import implements
from calipers.curves import TradeoffCurve
from calipers.measure.neighbors import NeighborPair
from calipers.numerics.binomial import binomial_window
from calipers.numerics.elementary import bisect
from calipers.numerics.gamma import GAMMA_LOG_ERROR, log_gamma_tail
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_delta, gaussian_epsilon, gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.items import NumberPair, bounds_of
from calipers.papers.wang2026 import published
from calipers.pld.composition.direction import BoundsWithTest
from calipers.pld.composition.product import Product
from calipers.pld.composition.sweep import sweep
from calipers.run import Run
from calipers.theorems.division_guarantees import batch_delta

TOLERANCE = 1e-3
_OPPOSITE = (-1.0, 1.0)
_LOG_OUTSIDE = -60.0
_LARGEST_EPSILON = 600.0
_THRESHOLDS = 201


class Divisors(NamedTuple):
    """Possible divisors with their log probabilities; `left_out` is at least the probability of all others."""

    values: FloatArray
    log_weights: FloatArray
    left_out: float

    def log_probability(self, shape: float, places: FloatArray, lower: bool) -> FloatArray:
        """log P(log of the squared length over n - 1 lies below each place, or above it), without unlisted ones."""
        scaled = places[:, None] + 2.0 * np.log(self.values)
        return np.asarray(logsumexp(log_gamma_tail(shape, scaled, lower) + self.log_weights, axis=1), dtype=np.float64)


def rounds(normalization: str, others: int, rate: float, dimension: int, steps: int = 1) -> Run:
    """So many rounds on N = `others` records or one more, at rate q, in n coordinates."""
    return Run(
        sample_rate=rate,
        steps=steps,
        noise_multiplier=published.NOISE_MULTIPLIER,
        dataset_size=others + 1,
        normalization=normalization,
        dimension=dimension,
    )


def others_in(run: Run) -> int:
    """N, the size of the smaller dataset."""
    assert run.dataset_size is not None
    return run.dataset_size - 1


def coordinates_of(run: Run) -> int:
    """n, the number of coordinates."""
    assert run.dimension is not None
    return run.dimension


def _product(run: Run) -> Product:
    """The proof above and one attack below: opposite gradients, or none where opposite ones cost too much."""
    pair = NeighborPair((run,), others_in(run))
    # Where batches are large their sizes cost the most and tell the least; the pair says whether to try.
    shown = [attack for attack in pair.attacks if attack[1] == 1.0]  # the record's gradient has full length
    return Product(pair.factors(_OPPOSITE if _OPPOSITE in shown else shown[0]))


def divisors(run: Run, present: bool) -> Divisors:
    """What the sum may be divided by on D' (`present`) or D, up to a common factor; an empty batch by 1.

    A floor is taken to move by one; where it stays, division is post-processing and there is nothing to ask.
    """
    others = others_in(run)
    if run.normalization == "realized":
        window = binomial_window(others + present, run.rate, _LOG_OUTSIDE)
        complete = len(window.values) == others + present + 1
        left_out = 0.0 if complete else 2.0 * window.outside
        return Divisors(np.maximum(window.values, 1.0), np.log(window.weights), left_out)
    smaller = math.floor(others * run.rate) if run.normalization == "floor" else others
    return Divisors(np.array([float(smaller + present)]), np.zeros(1), 0.0)


@cache
def delta_bounds(run: Run, epsilon: float = 0.0, tolerance: float = TOLERANCE) -> NumberPair:
    """lower <= the largest delta(epsilon) of any pair of these sizes <= upper, in both orders."""
    if run.normalization == "realized":
        # What keeps this bracket open is the proof, not the grid: a finer one costs more and closes nothing.
        tolerance = max(tolerance, 3e-2)
    return bounds_of(_product(run).delta(epsilon, tolerance))


@cache
def epsilon_bounds(run: Run, delta: float = published.DELTA, tolerance: float = 1e-2) -> NumberPair:
    """lower <= the largest epsilon(delta) of any pair of these sizes <= upper, in both orders."""
    found: BoundsWithTest = _product(run).epsilon(delta, tolerance)
    upper = found.upper
    if run.normalization == "realized" and run.total_steps == 1:
        upper = min(upper, batch_epsilon(run, delta))
    return max(found.lower, length_epsilon(run, delta)), upper


def batch_epsilon(run: Run, delta: float) -> float:
    """At least epsilon(delta) by Theorem 3.7, one round; infinite where that exceeds 600."""

    def proven(epsilon: float) -> bool:
        value = batch_delta(epsilon, coordinates_of(run), others_in(run), run.rate, run.noise_multiplier)
        return value <= delta

    if not proven(_LARGEST_EPSILON):
        return math.inf
    return bisect(0.0, _LARGEST_EPSILON, lambda epsilon: not proven(epsilon), 60, share=1e-3)[1]


@implements("calipers:length-without-signal")
@cache
def length_epsilon(run: Run, delta: float) -> float:
    """At most epsilon(delta) of one round on collinear gradients: the best threshold on the length, either order.

    Thresholds are tried on a grid; every one of them gives a valid bound.
    """
    if coordinates_of(run) == 1:
        return 0.0
    shape = 0.5 * (coordinates_of(run) - 1)
    absent, present = divisors(run, False), divisors(run, True)
    # In units of sigma^2 the squared length over n - 1 has its logarithm near -2 log d, with deviation 1/sqrt(shape).
    centers = np.unique(-2.0 * np.log(np.concatenate([absent.values, present.values])))
    reach = 8.0 / math.sqrt(shape)
    places = (centers[:, None] + np.linspace(-reach, reach, _THRESHOLDS)).ravel()
    best = 0.0
    for lower, null, other in ((True, absent, present), (False, present, absent)):
        log_power = other.log_probability(shape, places, lower)
        log_level = null.log_probability(shape, places, lower)
        # Unlisted divisors count against the test: never a hit, always a false alarm.
        if null.left_out > 0.0:
            log_level = np.logaddexp(log_level, math.log(null.left_out))
        margin = np.exp(log_power) * (1.0 - 1e-9) - delta
        useful = margin > 0.0
        slack = 8.0 * GAMMA_LOG_ERROR * (1.0 + np.abs(log_level[useful])) + 1e-9
        shown = np.log(margin[useful]) - log_level[useful] - slack
        best = max(best, float(np.max(shown, initial=0.0)))
    return best


@cache
def mechanism_curves(run: Run) -> dict[Side, TradeoffCurve]:
    """UPPER at or below, LOWER at or above the symmetric curve: the convex hull of both orders' trade-off curves."""
    return sweep(_product(run), 1e-3, 5e-2)


def mechanism_at(run: Run, fpr: float) -> NumberPair:
    """Both sides of that curve at one false positive rate."""
    curves = mechanism_curves(run)
    return float(curves[Side.UPPER](fpr)), float(curves[Side.LOWER](fpr))


def claimed_delta(rate: float, epsilon: float, noise_multiplier: float = published.NOISE_MULTIPLIER) -> float:
    """delta(epsilon) of one undivided round, the larger order; relative rounding 4e-12 at most."""
    inner = math.log1p(math.expm1(epsilon) / rate)
    return rate * float(gaussian_delta(1.0 / noise_multiplier, inner))


def claimed_epsilon(rate: float, delta: float, noise_multiplier: float = published.NOISE_MULTIPLIER) -> float:
    """epsilon(delta) of one undivided round, the larger order; 0 where delta(0) is at most delta."""
    if delta >= claimed_delta(rate, 0.0, noise_multiplier):
        return 0.0
    inner = gaussian_epsilon(1.0 / noise_multiplier, delta / rate)
    return math.log1p(rate * math.expm1(inner)) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)


def claimed_fnr(rate: float, fpr: FloatArray, noise_multiplier: float = published.NOISE_MULTIPLIER) -> FloatArray:
    """q G_(1/sigma) + (1 - q) ID, the curve that Section 3.4 compares with."""
    curve = rate * gaussian_tradeoff(1.0 / noise_multiplier, fpr) + (1.0 - rate) * (1.0 - fpr)
    return np.asarray(curve, dtype=np.float64)
