"""The three batch samplers over one epoch of T batches, each by the route the paper takes and by ours.

**Deterministic.** Proposition 3.1, a closed form: exact.

**Poisson.** The sampling rate is 1/T. The paper asks two accountants of the dp_accounting library for upper bounds: a
numerical one (PLD), in whose place our certified bracket stands, and a Renyi one. The latter takes the smallest
epsilon (or delta) that Proposition 12 of Canonne et al. gives over a list of orders t, with

    D_t(P||Q) = T log E_Q[L^t] / (t - 1),      L = 1 - q + q exp(x/sigma - 1/(2 sigma^2)),   x ~ N(0, 1)

(P against Q is the larger direction: Mironov, Talwar and Zhang 2019). The integrand is analytic up to
|Im x| = pi sigma, where L first vanishes, so the trapezoidal rule with step h = sigma/8 errs by about
exp(-2 pi^2 sigma/h) = exp(-158): what is left is rounding.

**Shuffled.** The paper's lower bound is Equation (3), the best event {max_t w_t >= C}. Ours is the best of all tests of
the same pair P_S against Q_S, up to the rounding of its scores (`calipers.laws.shuffle`). The upper end is Theorem 4.1.

**Balls-and-bins.** Not in the paper: every record picks its batch independently, so that the other records give nothing
away. It costs the same training and its bracket closes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import logsumexp

from calipers.curves import delta_from_rdp, epsilon_from_rdp
from calipers.laws.shuffle import ShuffleAttack
from calipers.measure import Measurement, measure
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR
from calipers.numerics.types import FloatArray
from calipers.run import Run
from calipers.theorems.samplers_gap import (
    deterministic_delta,
    deterministic_epsilon,
    shuffle_delta_lower,
    shuffle_epsilon_lower,
)

ORDERS: FloatArray = np.concatenate((1.0 + np.arange(1, 100) / 10.0, np.arange(11, 64)))
"""The Renyi orders that dp_accounting tries unless told otherwise (without its four largest, which never win here)."""

TOLERANCE = 1e-3
_SLACK = 4.0 * GAUSSIAN_RELATIVE_ERROR

Interval = tuple[float, float]


@dataclass(frozen=True)
class Setting:
    """One epoch of `steps` batches."""

    noise_multiplier: float
    steps: int


@cache
def _measured(setting: Setting, sampler: str, adjacency: str) -> Measurement:
    return measure(
        Run(
            sample_rate=1.0 / setting.steps,
            epochs=1,
            noise_multiplier=setting.noise_multiplier,
            sampler=sampler,
            adjacency=adjacency,
        ),
        tolerance=TOLERANCE,
    )


def poisson(setting: Setting, adjacency: str = "zero-out") -> Measurement:
    """One epoch of Poisson batches; asked twice, computed once."""
    return _measured(setting, "poisson", adjacency)


def balls_and_bins(setting: Setting) -> Measurement:
    """One epoch in which every record picks its batch; asked twice, computed once."""
    return _measured(setting, "balls-and-bins", "zero-out")


def deterministic_epsilon_bracket(setting: Setting, delta: float) -> Interval:
    """epsilon_D(delta), Proposition 3.1, with its rounding."""
    value = deterministic_epsilon(delta, setting.noise_multiplier)
    return value * (1.0 - _SLACK), value * (1.0 + _SLACK)


def deterministic_delta_bracket(setting: Setting, epsilon: float) -> Interval:
    """delta_D(epsilon), Proposition 3.1, with its rounding."""
    value = deterministic_delta(epsilon, setting.noise_multiplier)
    return value * (1.0 - _SLACK), value * (1.0 + _SLACK)


@cache
def shuffle_epsilon_by_event(setting: Setting, delta: float) -> float:
    """At most epsilon_S(delta): the largest epsilon that Equation (3) shows."""
    return shuffle_epsilon_lower(delta, setting.noise_multiplier, setting.steps)


@cache
def shuffle_delta_by_event(setting: Setting, epsilon: float) -> float:
    """At most delta_S(epsilon): Equation (3) with the best C."""
    return shuffle_delta_lower(epsilon, setting.noise_multiplier, setting.steps).delta


@cache
def shuffle_epsilon_bracket(setting: Setting, delta: float) -> Interval:
    """epsilon_S(delta) lies between these: the best test found, and Theorem 4.1."""
    found = ShuffleAttack(setting.noise_multiplier, setting.steps).epsilon(delta)
    return max(found, shuffle_epsilon_by_event(setting, delta)), deterministic_epsilon_bracket(setting, delta)[1]


@cache
def shuffle_delta_bracket(setting: Setting, epsilon: float) -> Interval:
    """delta_S(epsilon) lies between these: the best test found, and Theorem 4.1."""
    found = ShuffleAttack(setting.noise_multiplier, setting.steps).delta(epsilon)
    return max(found, shuffle_delta_by_event(setting, epsilon)), deterministic_delta_bracket(setting, epsilon)[1]


@cache
def renyi_divergences(setting: Setting) -> FloatArray:
    """D_t(P||Q) of one epoch of Poisson batches at `ORDERS`, to an absolute error of about `steps` * 1e-13."""
    q, width = 1.0 / setting.steps, 1.0 / setting.noise_multiplier
    step = setting.noise_multiplier / 8.0
    # Tilted by t, the normal density sits around t width; twelve deviations more on either side.
    x = np.arange(-12.0, 12.0 + float(ORDERS[-1]) * width, step)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + width * x - 0.5 * width * width)
    log_density = -0.5 * x * x + math.log(step) - 0.5 * math.log(2.0 * math.pi)
    moments = logsumexp(log_density + ORDERS[:, None] * log_ratio, axis=1)
    return np.asarray(setting.steps * moments / (ORDERS - 1.0), dtype=np.float64)


def renyi_epsilon(setting: Setting, delta: float) -> float:
    """At least epsilon_P(delta), up to the rounding of the divergences: the Renyi accountant of the paper."""
    return epsilon_from_rdp(ORDERS, renyi_divergences(setting), delta)


def renyi_delta(setting: Setting, epsilon: float) -> float:
    """At least delta_P(epsilon), up to the rounding of the divergences: the Renyi accountant of the paper."""
    return float(delta_from_rdp(ORDERS, renyi_divergences(setting), epsilon))
