"""The contour integral of ``contour`` with many bits, for runs whose total has several humps.

D = (1/2 pi i) times the integral over Re z = theta > 1 of E[L^z]^T e^((1-z) eps)/(z (z - 1)), by two nested trapezoid
rules with fixed steps, as in ``contour_mp``. Where steps are rarely large the integrand is many orders of magnitude
larger than the result and dies off slowly along the line; 200 bits and a line of ten thousand nodes are then needed.
Powers L^z advance along the line by one complex multiplication each, which costs a few of the 200 bits.
"""

from __future__ import annotations

from flint import acb, arb, ctx

BITS = 200


def poisson_delta(
    rate: float, sigma: float, steps: int, eps: float, theta: float = 2.0, top: float = 0.0, spacing: float = 0.05
) -> tuple[float, float]:
    """``D_{e^eps}(P||Q)`` of T Poisson-subsampled Gaussian steps, and the size of the last node's contribution."""
    return phases_delta([(rate, sigma, steps)], eps, theta, top, spacing)


def phases_delta(
    phases: list[tuple[float, float, int]], eps: float, theta: float = 2.0, top: float = 0.0, spacing: float = 0.05
) -> tuple[float, float]:
    """``D_{e^eps}(P||Q)`` of Poisson-subsampled Gaussian steps, phase after phase, and the last node's contribution.

    The line runs to height `top` with the given `spacing`; the observation runs over [-15, 15 + theta/sigma] in steps
    of 0.1 (the integrand is analytic in a strip of half width pi sigma, so the rule is exact to e^(-20 pi^2 sigma)).
    """
    saved, ctx.prec = ctx.prec, BITS
    try:
        gap = arb(spacing)
        lines = [_line(rate, sigma, theta, gap) for rate, sigma, _ in phases]
        total, last = arb(0), arb(0)
        for j in range(int(top / spacing) + 1):
            z = acb(arb(theta), gap * j)
            moment = acb(1)
            for (terms, _), (_, _, steps) in zip(lines, phases, strict=True):
                moment *= sum(terms, acb(0)).mid() ** steps
            last = (moment * ((1 - z) * arb(eps)).exp() / (z * (z - 1))).real
            total += last / 2 if j == 0 else last
            # Balls around complex numbers grow with every turn although the rounding does not: keep the middles.
            lines = [
                ([(term * turn).mid() for term, turn in zip(terms, turns, strict=True)], turns)
                for terms, turns in lines
            ]
        value = total * gap / arb.pi()
        return float(value.mid()), abs(float((last * gap / arb.pi()).mid()))
    finally:
        ctx.prec = saved


def _line(rate: float, sigma: float, theta: float, gap: arb) -> tuple[list[acb], list[acb]]:
    """The weighted powers L^theta of one step at its places, and what each is multiplied by from node to node."""
    q, s, h = arb(rate), arb(sigma), arb(1) / 10
    places = [arb(-15) + h * j for j in range(int((30.0 + theta / sigma) * 10) + 1)]
    weights = [h * (-x * x / 2).exp() / (2 * arb.pi()).sqrt() for x in places]
    logs = [(1 - q + q * (x / s - 1 / (2 * s * s)).exp()).log() for x in places]
    terms = [acb(w * (x * arb(theta)).exp()) for w, x in zip(weights, logs, strict=True)]
    return terms, [acb(0, gap * x).exp().mid() for x in logs]
