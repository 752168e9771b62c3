"""The Gaussian mechanism and its Poisson-subsampled form, under three adjacencies.

One step of DP-SGD releases the sum of clipped gradients (norm at most 1) of a batch plus
N(0, sigma^2 I). Conditioned on which other records are in the batch, and by rotation, only the
direction of the differing record matters; in units of sigma the pair lives on the real line.

**add-remove and zero-out.** The record is in the batch with probability q and then shifts the sum
by a vector of norm at most 1:

    P = (1 - q) N(0, 1) + q N(1/sigma, 1),      Q = N(0, 1),

and both orders (P, Q) and (Q, P) count.

**substitute.** One record is replaced by another, both sampled with the same coin:

    P = (1 - q) N(0, 1) + q N(1/sigma, 1),      Q = (1 - q) N(0, 1) + q N(-1/sigma, 1).

*This pair dominates.* Let the two gradients be u and v (in units of sigma), |u|, |v| <= r = 1/sigma.
For k >= 1, with X standard normal, A = <u,X> - |u|^2/2, B = <v,X> - |v|^2/2 and
c = (k - 1)(1 - q) >= 0,

    D_k(P||Q) = E[(q e^A - k q e^B - c)+].

(A, B) are jointly Gaussian with fixed margins and correlation cos(u, v). The function
(a(A) - b(B) - c)+ with a, b increasing has a non-positive mixed derivative (it is a convex
function of a difference), so its expectation falls as the correlation grows (Slepian): the worst
case has v opposite to u. On that line D_k = q Phi(|u| - x) - k q Phi(-|v| - x) - c Phi(-x) at the
optimal threshold x, and by the envelope theorem its derivatives q phi(|u| - x) and
k q phi(|v| + x) with respect to |u| and |v| are positive, so |u| = |v| = r is worst. For k < 1 swap
the roles of P and Q. The pair is symmetric under z -> -z.
"""

from __future__ import annotations

from calipers.citations import implements
from calipers.domains import POSITIVE, POSITIVE_PROBABILITY, Domain, choice
from calipers.errors import InputError
from calipers.pld.core.gaussian_part import GaussianPair, gaussian_mixture_part, gaussian_pair
from calipers.pld.core.pair import Pair

NOISE = Domain(0.02, 1e7)
SMALLEST_RATE = 1e-12
"""Below this rate log(1 - q + q Y) is constant to working precision and nothing can be certified."""


@implements("dong2022:cor2.13")
def gaussian(mu: float) -> GaussianPair:
    """N(mu, 1) against N(0, 1): the Gaussian mechanism with sensitivity/noise ratio mu > 0."""
    return gaussian_pair(POSITIVE.check("mu", mu))


@implements("zhu2022:thm11", "calipers:substitute-pair")
def poisson_gaussian(rate: float, noise_multiplier: float, adjacency: str = "add-remove") -> Pair:
    """One step of Poisson-subsampled DP-SGD. The pair dominates the step, and is attained."""
    rate = POSITIVE_PROBABILITY.check("rate", rate)
    shift = 1.0 / NOISE.check("noise_multiplier", noise_multiplier)
    adjacency = choice("adjacency", adjacency, ("add-remove", "zero-out", "substitute"))
    if rate < SMALLEST_RATE:
        raise InputError(
            f"Expected rate in [{SMALLEST_RATE:g}, 1], got rate={rate:g}: the effect of one step is too small to "
            "resolve."
        )
    name = f"Poisson-subsampled Gaussian, q = {rate:g}, sigma = {noise_multiplier:g}, {adjacency}"
    if rate == 1.0:
        return gaussian(2.0 * shift if adjacency == "substitute" else shift)
    replaced = adjacency == "substitute"
    against = ((1.0 - rate, rate), (0.0, -shift)) if replaced else ((1.0,), (0.0,))
    part = gaussian_mixture_part((1.0 - rate, rate), (0.0, shift), *against)
    return Pair(name, smooth=(part,), symmetric=replaced)
