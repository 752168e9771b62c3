"""Profiles that can be written down: closed forms, exact enumeration, and plain quadrature in mpmath.

Everything here is slow and obvious on purpose. Float arguments are taken as the exact binary numbers they are.

- ``D_k(P||Q) = E_Q[(L - k)+]`` (direction "PQ") and ``D_k(Q||P) = E_Q[(1 - k L)+]`` (direction "QP"), ``k = e^eps``.
- One Gaussian: ``Phi(mu/2 - eps/mu) - k Phi(-mu/2 - eps/mu)``.
- One Poisson-subsampled Gaussian: ``L = 1 - q + q Y``, so a call on L is q calls on Y with strike ``(k - 1 + q)/q``.
- Two steps: ``E[(L L' - k)+] = E_L[L C(k/L)]`` with C the one-step call: one integral.
- Finite laws: the product law of L is a finite table of fractions; nothing is rounded until the last sum.
- Laplace: log L has atoms at +-a and is otherwise ``e^(-l/2)`` times a constant, so every product is ``e^(-l/2)``
  times a sum of Irwin-Hall densities.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 50
Number = Any


def gaussian(mu: Number, eps: Number) -> mp.mpf:
    """``delta`` of N(mu, 1) against N(0, 1); the same in both directions."""
    with mp.workdps(DIGITS + 30):
        mu, eps = mp.mpf(mu), mp.mpf(eps)
        return mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)


def _lognormal_call(mu: mp.mpf, strike: mp.mpf) -> mp.mpf:
    """``E[(Y - strike)+]``, ``log Y ~ N(-mu^2/2, mu^2)``."""
    return 1 - strike if strike <= 0 else gaussian(mu, mp.log(strike))


def _lognormal_put(mu: mp.mpf, strike: mp.mpf) -> mp.mpf:
    """``E[(strike - Y)+]``: the call with its two tails exchanged, so that a small put is not a difference of 1s."""
    if strike <= 0:
        return mp.mpf(0)
    eps = mp.log(strike)
    return strike * mp.ncdf(mu / 2 + eps / mu) - mp.ncdf(eps / mu - mu / 2)


def poisson_one_step(q: Number, sigma: Number, eps: Number, direction: str = "PQ") -> mp.mpf:
    """``delta`` of one step: P = (1-q) N(0, sigma^2) + q N(1, sigma^2), Q = N(0, sigma^2)."""
    with mp.workdps(DIGITS + 30):
        q, mu, k = mp.mpf(q), 1 / mp.mpf(sigma), mp.exp(mp.mpf(eps))
        if direction == "PQ":
            return q * _lognormal_call(mu, (k - 1 + q) / q)
        return k * q * _lognormal_put(mu, (1 / k - 1 + q) / q)


def poisson_two_steps(q: Number, sigma: Number, eps: Number, direction: str = "PQ") -> mp.mpf:
    """``delta`` of two steps: one integral of the one-step profile over the first observation."""
    with mp.workdps(DIGITS):
        q, sigma, eps = mp.mpf(q), mp.mpf(sigma), mp.mpf(eps)

        def integrand(x: mp.mpf) -> mp.mpf:
            log_ratio = mp.log(1 - q + q * mp.exp(x / sigma - 1 / (2 * sigma**2)))
            if direction == "PQ":
                inner = mp.exp(log_ratio) * poisson_one_step(q, sigma, eps - log_ratio)
            else:
                inner = poisson_one_step(q, sigma, eps + log_ratio, "QP")
            return mp.npdf(x) * inner

        # Where the second step's strike crosses 0 the integrand is smooth but not analytic: a knot goes there.
        crossing = (mp.exp(eps) / (1 - q) - 1 + q) if direction == "PQ" else 1 / (mp.exp(eps) * (1 - q)) - 1 + q
        turn = sigma * mp.log(crossing / q) + 1 / (2 * sigma)
        knots = sorted([*mp.linspace(-16, 16 + 2 / sigma, 17), turn])
        if direction == "QP":
            knots = [x for x in knots if x <= turn]
        return mp.quad(integrand, knots)


def one_step_by_quadrature(
    log_p: Callable[[mp.mpf], mp.mpf], log_q: Callable[[mp.mpf], mp.mpf], eps: Number, knots: Sequence[Number]
) -> mp.mpf:
    """``integral (p - k q)+`` of two densities; ``knots`` must hold the ends and every point where the sign changes."""
    with mp.workdps(DIGITS):
        k = mp.exp(mp.mpf(eps))
        return mp.quad(lambda x: max(mp.mpf(0), mp.exp(log_p(x)) - k * mp.exp(log_q(x))), [mp.mpf(x) for x in knots])


def product_law(
    p: Sequence[Fraction], q: Sequence[Fraction], steps: int
) -> tuple[Mapping[Fraction, Fraction], Fraction]:
    """The exact law of the T-fold product of L under Q, and the P-mass where Q is 0, of two finite distributions."""
    one: dict[Fraction, Fraction] = defaultdict(Fraction)
    lost = Fraction(0)
    for a, b in zip(p, q, strict=True):
        if b == 0:
            lost += a
        else:
            one[Fraction(a) / b] += b
    law: dict[Fraction, Fraction] = {Fraction(1): Fraction(1)}
    for _ in range(steps):
        following: dict[Fraction, Fraction] = defaultdict(Fraction)
        for ratio, mass in law.items():
            for factor, weight in one.items():
                following[ratio * factor] += mass * weight
        law = following
    return law, 1 - (1 - lost) ** steps


def finite_profile(
    p: Sequence[Fraction], q: Sequence[Fraction], steps: int, k: Fraction, direction: str = "PQ"
) -> Fraction:
    """``D_k`` of the T-fold product of two finite distributions, as a fraction. ``k`` itself, not eps, is given."""
    law, infinite = product_law(p, q, steps)
    if direction == "PQ":
        return sum((m * (ratio - k) for ratio, m in law.items() if ratio > k), infinite)
    return sum((m * (1 - k * ratio) for ratio, m in law.items() if k * ratio < 1), Fraction(0))


def randomized_response(truth: Fraction, steps: int, k: Fraction) -> Fraction:
    """``D_k`` of T answers, each true with probability ``truth``: a binomial sum (same in both directions)."""
    odds = truth / (1 - truth)
    total = Fraction(0)
    for true_answers in range(steps + 1):
        ratio = odds ** (2 * true_answers - steps)
        if ratio > k:
            under_q = comb(steps, true_answers) * (1 - truth) ** true_answers * truth ** (steps - true_answers)
            total += under_q * (ratio - k)
    return total


def laplace(scale: Number, steps: int, eps: Number) -> mp.mpf:
    """``delta`` of T Laplace mechanisms (both directions): Irwin-Hall densities between atoms. Meant for T up to 12."""
    with mp.workdps(30):
        a, eps = 1 / mp.mpf(scale), mp.mpf(eps)

        def gain(x: mp.mpf) -> mp.mpf:
            return mp.exp(x / 2) - mp.exp(eps - x / 2)

        def density(x: mp.mpf) -> mp.mpf:
            """Of the T-fold convolution of (delta_a + delta_-a + Lebesgue(-a, a)/2), without its pure atoms."""
            total = mp.mpf(0)
            for m in range(1, steps + 1):
                for ups in range(steps - m + 1):
                    s = x - (2 * ups - (steps - m)) * a
                    hall = sum(
                        (-1) ** j * comb(m, j) * (s + (m - 2 * j) * a) ** (m - 1)
                        for j in range(m + 1)
                        if s + (m - 2 * j) * a > 0
                    )
                    total += comb(steps, m) * comb(steps - m, ups) * mp.mpf(hall) / (2**m * mp.factorial(m - 1))
            return total

        knots = [eps] + [i * a for i in range(-steps, steps + 1) if i * a > eps]
        smooth = mp.quad(lambda x: gain(x) * density(x), knots) if len(knots) > 1 else mp.mpf(0)
        atoms = sum(comb(steps, ups) * max(mp.mpf(0), gain((2 * ups - steps) * a)) for ups in range(steps + 1))
        return (mp.exp(-a / 2) / 2) ** steps * (smooth + atoms)


def discrete_gaussian(sigma: Number, steps: int, eps: Number) -> mp.mpf:
    """``delta`` of T integer-valued Gaussians, shift 1 (both directions): ``log L = (2S - T)/(2 sigma^2)``, S the sum.

    Masses are integers over 2^bits; their convolution is exact.
    """
    bits = 256
    with mp.workdps(bits // 3):
        variance = mp.mpf(sigma) ** 2
        reach = int(mp.ceil(mp.sqrt(2 * variance * bits * mp.log(2))))
        masses = [mp.exp(-mp.mpf(n * n) / (2 * variance)) for n in range(-reach, reach + 1)]
        norm = sum(masses)
        one = np.array([int(m / norm * 2**bits) for m in masses], dtype=object)
        law = one
        for _ in range(steps - 1):
            law = np.convolve(law, one)
        k = mp.exp(mp.mpf(eps))
        gains = (mp.exp((2 * n - steps) / (2 * variance)) - k for n in range(-steps * reach, steps * reach + 1))
        return sum(mp.mpf(int(m)) * g for m, g in zip(law, gains, strict=True) if g > 0) / mp.mpf(2) ** (bits * steps)


def epsilon(profile: Callable[[mp.mpf], mp.mpf], delta: Number, largest: Number = 700) -> mp.mpf:
    """The smallest eps >= 0 with ``profile(eps) <= delta``, by bisection to 25 digits; ``inf`` beyond ``largest``."""
    with mp.workdps(DIGITS):
        target, low, high = mp.mpf(delta), mp.mpf(0), mp.mpf(largest)
        if profile(low) <= target:
            return low
        if profile(high) > target:
            return mp.inf
        while high - low > mp.mpf(10) ** -25 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if profile(middle) > target else (low, middle)
        return high
