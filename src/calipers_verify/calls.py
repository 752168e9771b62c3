"""What one step shows at most, in closed form: D_k(P||Q) = E_P[(1 - k dQ/dP)+] at k = e^x, in Arb balls.

An `arb` is a ball that contains the number meant, whatever was rounded; a bound is read off its outer end. r is
1/sigma (the shift that one record can cause), q the sampling rate. Why these pairs are the worst ones is proven in
the documentation; this file only computes them.
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb, fmpq

from calipers_verify.reading import Refused

BITS = 256
ONE = 1 << BITS
"""Masses are whole numbers of 2^-256."""
PRECISION = 640
"""Bits of the balls: far more than masses have, so that a comparison is decided unless it is a tie."""


def ball(number: Fraction | int) -> arb:
    """The exact number as a ball."""
    return arb(fmpq(number.numerator, number.denominator))


def rounded_up(value: arb) -> int:
    """The smallest whole number of 2^-256 that is certainly at least `value`."""
    if not value.is_finite():
        raise Refused("a ball became infinite")
    return int((value * ONE).upper().ceil().unique_fmpz())


def rounded_down(value: arb) -> int:
    """The largest whole number of 2^-256 that is certainly at most `value`."""
    return -rounded_up(-value)


def tail(z: arb) -> arb:
    """P(Z > z) for a standard normal Z."""
    return (z / arb(2).sqrt()).erfc() / 2


def is_positive(value: arb) -> bool:
    """The sign, or `Refused` where the precision does not decide it."""
    if value > 0:
        return True
    if value <= 0:
        return False
    raise Refused("a node lies where the precision does not tell the sign; choose another one")


def gaussian(mu: arb, x: arb) -> arb:
    """N(mu, 1) against N(0, 1)."""
    return tail(x / mu - mu / 2) - x.exp() * tail(x / mu + mu / 2)


def poisson_present(q: Fraction, r: arb, x: arb) -> arb:
    """P = (1 - q) N(0, 1) + q N(r, 1) against Q = N(0, 1): the ratio is 1 - q + q e^(r z - r^2/2)."""
    k = x.exp()
    excess = k - 1 + ball(q)
    if not is_positive(excess):  # the ratio exceeds k everywhere
        return 1 - k
    z = (excess / ball(q)).log() / r + r / 2
    return ball(q) * tail(z - r) - excess * tail(z)


def poisson_absent(q: Fraction, r: arb, x: arb) -> arb:
    """N(0, 1) against (1 - q) N(0, 1) + q N(r, 1)."""
    k = x.exp()
    room = 1 - k * ball(1 - q)
    if not is_positive(room):  # the ratio is below k everywhere
        return arb(0)
    z = (room / (k * ball(q))).log() / r + r / 2
    return room * tail(-z) - k * ball(q) * tail(r - z)


def poisson_replaced(q: Fraction, r: arb, x: arb) -> arb:
    """(1 - q) N(0, 1) + q N(r, 1) against (1 - q) N(0, 1) + q N(-r, 1)."""
    k, weight = x.exp(), ball(q) * (-r * r / 2).exp()
    half = ball(1 - q) * (k - 1) / 2
    # y = e^(r z) solves weight y^2 - 2 half y - k weight = 0: the ratio exceeds k to the right of it.
    y = (half + (half * half + k * weight * weight).sqrt()) / weight
    z = y.log() / r
    return ball(1 - q) * (1 - k) * tail(z) + ball(q) * tail(z - r) - k * ball(q) * tail(z + r)
