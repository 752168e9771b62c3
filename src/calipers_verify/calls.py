"""Closed forms in Arb balls: calls c -> E[(X - c)+] of the terms that make up what a step or an epoch shows.

An `arb` is a ball that contains the number meant, whatever was rounded; a bound is read off its outer end. z is a
standard normal variable, r = 1/sigma the shift that one record can cause, k = e^x. For a pair (P, Q) with L = dP/dQ,

    D_k(P||Q) = E_Q[(L - k)+],        D_k(Q||P) = 1 - k + k D_(1/k)(P||Q).

Why these terms are the worst ones is proven in the documentation; this file only computes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction

from flint import arb, fmpq

from calipers_verify.reading import Refused
from calipers_verify.rows import ONE

PRECISION = 512
"""Bits of the balls: far more than masses have, so that a comparison is decided unless it is a tie."""
Call = Callable[[arb], arb]


def ball(number: Fraction | int) -> arb:
    """The exact number as a ball."""
    return arb(fmpq(number.numerator, number.denominator))


def ceiling(value: arb) -> int:
    """The smallest whole number that is certainly at least `value`."""
    if not value.is_finite():
        raise Refused("a ball became infinite")
    return int(value.upper().ceil().unique_fmpz())


def rounded_up(value: arb) -> int:
    """The smallest whole number of 2^-256 that is certainly at least `value`."""
    return ceiling(value * ONE)


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


def lognormal(r: arb) -> Call:
    """X = exp(r z - r^2/2)."""

    def call(c: arb) -> arb:
        if not is_positive(c):
            return 1 - c
        z = c.log() / r + r / 2
        return tail(z - r) - c * tail(z)

    return call


def gaussian(mu: arb, x: arb) -> arb:
    """D at e^x of N(mu, 1) against N(0, 1)."""
    return lognormal(mu)(x.exp())


def root(a: arb, b: arb, c: arb) -> arb:
    """The positive solution y of a y^2 - b y - c = 0, for a > 0 and c >= 0."""
    return (b + (b * b + 4 * a * c).sqrt()) / (2 * a)


def opposite(r: arb, k: arb) -> Call:
    """X = exp(r z - r^2/2) - k exp(-r z - r^2/2): the record moves the sum by r, its replacement by -r."""
    size = (-r * r / 2).exp()

    def call(c: arb) -> arb:
        z = root(size, c, k * size).log() / r
        return tail(z - r) - k * tail(z + r) - c * tail(z)

    return call


class Displaced:
    """X of shuffled batches, whose call is at least that of every A - k B the adversary can make.

    On (0, inf) it is A - k B at the shifts (2r, r), on (-inf, 0) at (0, r); replaced, at (2r, 0) and (0, 2r). The first
    grows with z, the second falls.
    """

    def __init__(self, r: arb, k: arb, replaced: bool) -> None:
        self.r, self.k, self.replaced = r, k, replaced
        self.other, self.shift = (arb(0), 2 * r) if replaced else (r, r)

    def right(self, value: arb) -> arb:
        """The z at which the first branch is `value` >= 0."""
        r, k = self.r, self.k
        if self.replaced:
            return (k + value).log() / (2 * r) + r
        return root((-2 * r * r).exp(), k * (-r * r / 2).exp(), value).log() / r

    def left(self, size: arb) -> arb:
        """The z at which the second branch is -size <= 0."""
        return ((1 + size) / self.k).log() / self.shift + self.shift / 2

    def gain(self, z: arb) -> arb:
        """E of the first branch where it is larger than at z."""
        return tail(z - 2 * self.r) - self.k * tail(z - self.other)

    def loss(self, z: arb) -> arb:
        """-E of the second branch where it is smaller than at z."""
        return self.k * tail(z - self.shift) - tail(z)

    def __call__(self, c: arb) -> arb:
        """E[(X - c)+]."""
        if is_positive(c):
            z = self.right(c)
            return self.gain(z) - c * tail(z)
        z = self.left(-c)
        return 1 - self.k - c + self.loss(z) + c * tail(z)


class Sizes:
    """Bin(n, p) for the sizes near its mean; the rest has the probability `outside`."""

    def __init__(self, n: int, p: Fraction, around: Fraction) -> None:
        center, reach = int(n * around), 12 * int(float(n * around) ** 0.5 + 6)
        self.first, self.last = max(0, center - reach), min(n, center + reach)
        ways = arb(n + 1).lgamma() - arb(self.first + 1).lgamma() - arb(n - self.first + 1).lgamma()
        mass = ways.exp() * ball(1 - p) ** (n - self.first) * ball(p) ** self.first
        self.masses = [mass]
        for size in range(self.first + 1, self.last + 1):
            mass = mass * ball(p / (1 - p) * (n - size + 1) / size)
            self.masses.append(mass)
        self.outside = 1 - sum(self.masses, arb(0))


def realized(others: int, rate: Fraction, r: arb) -> Call:
    """k -> D_k(P||Q) of a Poisson step that shows its size and its sum, which a division by the size cannot add to.

    Given the size j the ratio is 1 - q + w_j exp(2 r z - 2 r^2), w_j = q b_(j-1)/b_j = (1 - q) j/(n - j + 1), with the
    probabilities b_j of Bin(n, q). It is linear in w_j, so that sizes between two of every few may be split onto these.
    """
    found = Sizes(others, rate, rate)
    weights = [(1 - rate) * Fraction(j, others - j + 1) for j in range(found.first, found.last + 1)]
    gap = max(1, int((others * float(rate * (1 - rate))) ** 0.5 / 5))
    kept = sorted({*range(0, len(weights), gap), len(weights) - 1})
    shares = dict.fromkeys(kept, arb(0))
    for i, mass in enumerate(found.masses):
        at = bisect_left(kept, i)
        high, low = kept[at], kept[max(0, at - 1)]
        share = Fraction(1) if high == i else (weights[i] - weights[low]) / (weights[high] - weights[low])
        shares[high] += mass * ball(share)
        shares[low] += mass * ball(1 - share)
    # Sizes left out count as if P alone had them: 1 less what P has at the sizes kept.
    beyond = 1 - sum((m * ball(1 - rate + w) for m, w in zip(found.masses, weights, strict=True)), arb(0))
    once = lognormal(2 * r)

    def call(k: arb) -> arb:
        total, strike = beyond, k - ball(1 - rate)
        for i in kept:
            w = ball(weights[i])
            total += shares[i] * (w * once(strike / w) if weights[i] else (-strike).max(arb(0)))
        return total

    return call


def moved(others: int, batch: int) -> Call:
    """k -> D_k(P||Q) of Bin(n, B/(n+1)) against Bin(n, B/n): how many of the common records were drawn."""
    rates = Fraction(batch, others + 1), Fraction(batch, others)
    p, q = (Sizes(others, rate, rates[1]) for rate in rates)
    ratios = [a / b for a, b in zip(p.masses, q.masses, strict=True)]  # they fall as the size grows
    sums = [(arb(0), arb(0))]
    for a, b in zip(p.masses, q.masses, strict=True):
        sums.append((sums[-1][0] + a, sums[-1][1] + b))

    def call(k: arb) -> arb:
        sure = bisect_left(ratios, True, key=lambda ratio: not ratio > k)
        maybe = bisect_left(ratios, True, key=lambda ratio: bool(ratio < k))
        values = [sums[i][0] - k * sums[i][1] for i in range(sure, maybe + 1)]
        if len(values) > 3:
            raise Refused("the precision does not tell enough likelihood ratios apart")
        best = values[0]
        for value in values[1:]:
            best = best.max(value)
        return p.outside + best

    return call
