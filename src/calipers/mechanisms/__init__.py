"""Mechanisms as pairs of distributions: what one release tells an adversary at worst."""

from __future__ import annotations

from calipers.mechanisms.classic import approximate_dp, laplace, randomized_response
from calipers.mechanisms.composition import compose
from calipers.mechanisms.concentrated import Concentrated
from calipers.mechanisms.discrete_gaussian import DiscreteGaussian
from calipers.mechanisms.gaussian import gaussian, poisson_gaussian
from calipers.mechanisms.noise_matrix import NoiseMatrix, Patterns
from calipers.mechanisms.sided import exponential_mechanism, permute_and_flip

__all__ = [
    "Concentrated",
    "DiscreteGaussian",
    "NoiseMatrix",
    "Patterns",
    "approximate_dp",
    "compose",
    "exponential_mechanism",
    "gaussian",
    "laplace",
    "permute_and_flip",
    "poisson_gaussian",
    "randomized_response",
]
