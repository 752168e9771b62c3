"""Mechanisms as pairs of distributions: what one release tells an adversary at worst."""

from __future__ import annotations

from calipers.mechanisms.classic import approximate_dp as approximate_dp
from calipers.mechanisms.classic import laplace as laplace
from calipers.mechanisms.classic import randomized_response as randomized_response
from calipers.mechanisms.composition import compose as compose
from calipers.mechanisms.concentrated import Concentrated as Concentrated
from calipers.mechanisms.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
from calipers.mechanisms.gaussian import gaussian as gaussian
from calipers.mechanisms.gaussian import poisson_gaussian as poisson_gaussian
from calipers.mechanisms.noise_matrix import NoiseMatrix as NoiseMatrix
from calipers.mechanisms.noise_matrix import Patterns as Patterns
from calipers.mechanisms.sided import exponential_mechanism as exponential_mechanism
from calipers.mechanisms.sided import permute_and_flip as permute_and_flip
from calipers.mechanisms.tree_noise import TreeNoise as TreeNoise
