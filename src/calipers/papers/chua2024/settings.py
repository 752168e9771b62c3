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
the same pair P_S against Q_S, up to the rounding of its scores (`calipers.pld.allocation.shuffle_attack`). The upper
end is Theorem 4.1.

**Balls-and-bins.** Not in the paper: every record picks its batch independently, so that the other records give nothing
away. It costs the same training and its bracket closes.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
from scipy.special import logsumexp

from calipers.curves import delta_from_rdp, epsilon_from_rdp
from calipers.measure import Measurement, measure
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR
from calipers.numerics.types import FloatArray
from calipers.papers.items import NumberPair, Value
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.run import Run
from calipers.theorems import samplers_gap as theorem

ORDERS: FloatArray = np.concatenate((1.0 + np.arange(1, 100) / 10.0, np.arange(11, 64)))
"""The Renyi orders that dp_accounting tries unless given otherwise (without its four largest, which never win here)."""

Quantity = Literal["epsilon", "delta"]
TOLERANCE = 1e-3
_SLACK = 4.0 * GAUSSIAN_RELATIVE_ERROR


def epoch(noise_multiplier: float, steps: int) -> Run:
    """One epoch of `steps` batches that hold a record with probability 1/steps."""
    return Run(sample_rate=1.0 / steps, epochs=1, noise_multiplier=noise_multiplier, adjacency="zero-out")


@cache
def _measured(run: Run) -> Measurement:
    return measure(run, tolerance=TOLERANCE)


def poisson(run: Run, adjacency: str = "zero-out") -> Measurement:
    """The epoch with Poisson batches; asked twice, computed once."""
    return _measured(run.replace(adjacency=adjacency))


def balls_and_bins(run: Run) -> Measurement:
    """The epoch in which every record picks its batch; asked twice, computed once."""
    return _measured(run.replace(sampler="balls-and-bins"))


def deterministic(run: Run, quantity: Quantity, level: float) -> NumberPair:
    """epsilon_D(delta) or delta_D(epsilon), Proposition 3.1, with its rounding."""
    value: float = getattr(theorem, f"deterministic_{quantity}")(level, run.noise_multiplier)
    return value * (1.0 - _SLACK), value * (1.0 + _SLACK)


@cache
def shuffled_by_event(run: Run, quantity: Quantity, level: float) -> float:
    """At most epsilon_S(delta) or delta_S(epsilon): what Equation (3) shows with the best C."""
    if quantity == "epsilon":
        return theorem.shuffle_epsilon_lower(level, run.noise_multiplier, run.total_steps)
    return theorem.shuffle_delta_lower(level, run.noise_multiplier, run.total_steps).delta


@cache
def shuffled(run: Run, quantity: Quantity, level: float) -> NumberPair:
    """epsilon_S(delta) or delta_S(epsilon) lies between these: the best test found, and Theorem 4.1."""
    found: float = getattr(ShuffleAttack(run.noise_multiplier, run.total_steps), f"best_{quantity}")(level)[0]
    return max(found, shuffled_by_event(run, quantity, level)), deterministic(run, quantity, level)[1]


@cache
def renyi_divergences(run: Run) -> FloatArray:
    """D_t(P||Q) of one epoch of Poisson batches at `ORDERS`, to an absolute error of about `steps` * 1e-13."""
    q, width = 1.0 / run.total_steps, 1.0 / run.noise_multiplier
    step = run.noise_multiplier / 8.0
    # Tilted by t, the normal density sits around t width; twelve deviations more on either side.
    x = np.arange(-12.0, 12.0 + float(ORDERS[-1]) * width, step)
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + width * x - 0.5 * width * width)
    log_density = -0.5 * x * x + math.log(step) - 0.5 * math.log(2.0 * math.pi)
    moments = logsumexp(log_density + ORDERS[:, None] * log_ratio, axis=1)
    return np.asarray(run.total_steps * moments / (ORDERS - 1.0), dtype=np.float64)


def renyi(run: Run, quantity: Quantity, level: float) -> float:
    """At least epsilon_P(delta) or delta_P(epsilon), up to the rounding of the divergences: the paper's accountant."""
    if quantity == "epsilon":
        return epsilon_from_rdp(ORDERS, renyi_divergences(run), level)
    return float(delta_from_rdp(ORDERS, renyi_divergences(run), level))


def by_every_route(run: Run, quantity: Quantity, level: float) -> dict[str, Value]:
    """epsilon(level) or delta(level) of one epoch by every sampler: certified, and as the paper finds it."""
    return {
        "deterministic": deterministic(run, quantity, level),
        "poisson": getattr(poisson(run), quantity)(level),
        "renyi": renyi(run, quantity, level),
        "event": shuffled_by_event(run, quantity, level),
        "shuffle": shuffled(run, quantity, level),
    }
