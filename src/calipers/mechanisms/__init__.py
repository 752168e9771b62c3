"""Mechanisms as pairs of distributions: what one release tells an adversary at worst."""

from __future__ import annotations

from calipers.mechanisms.classic import approximate_dp, laplace, randomized_response
from calipers.mechanisms.composition import compose
from calipers.mechanisms.concentrated import Concentrated
from calipers.mechanisms.discrete_gaussian import DiscreteGaussian
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian

__all__ = [
    "Concentrated",
    "DiscreteGaussian",
    "approximate_dp",
    "compose",
    "gaussian",
    "laplace",
    "poisson_gaussian",
    "randomized_response",
]
