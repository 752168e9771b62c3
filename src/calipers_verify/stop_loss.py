"""Closed forms in Arb balls: stop-loss transforms c -> E[(X - c)+] of the terms that make up what a step or an epoch
shows.

An `arb` is a ball that contains the number meant, whatever was rounded; a bound is read off its outer end. z is a
standard normal variable, r = 1/sigma the shift that one record can cause, k = e^x. For a pair (P, Q) with L = dP/dQ,

    D_k(P||Q) = E_Q[(L - k)+],        D_k(Q||P) = 1 - k + k D_(1/k)(P||Q).

Why these terms are the worst ones is proven in the documentation; this file only computes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise

from flint import arb, fmpq

from calipers_verify.reading import Refused, spend
from calipers_verify.rows import ONE

PRECISION = 320
"""Bits of the balls: far more than masses have, so that a comparison is decided unless it is a tie."""
StopLossBall = Callable[[arb], arb]


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
    if not (value > 0 or value <= 0):
        raise Refused("a node lies where the precision does not tell the sign; choose another one")
    return bool(value > 0)


def lognormal(r: arb) -> StopLossBall:
    """X = exp(r z - r^2/2)."""

    def stop_loss(c: arb) -> arb:
        if not is_positive(c):
            return 1 - c
        z = c.log() / r + r / 2
        return tail(z - r) - c * tail(z)

    return stop_loss


def gaussian(mu: arb, x: arb) -> arb:
    """D at e^x of N(mu, 1) against N(0, 1)."""
    return lognormal(mu)(x.exp())


def root(a: arb, b: arb, c: arb) -> arb:
    """The positive solution y of a y^2 - b y - c = 0, for a > 0 and c >= 0."""
    return (b + (b * b + 4 * a * c).sqrt()) / (2 * a)


def opposite(r: arb, k: arb) -> StopLossBall:
    """X = exp(r z - r^2/2) - k exp(-r z - r^2/2): the record moves the sum by r, its replacement by -r."""
    size = (-r * r / 2).exp()

    def stop_loss(c: arb) -> arb:
        z = root(size, c, k * size).log() / r
        return tail(z - r) - k * tail(z + r) - c * tail(z)

    return stop_loss


def displaced(r: arb, k: arb, replaced: bool) -> StopLossBall:
    """X of shuffled batches, whose stop-loss transform is at least that of every A - k B the adversary can make.

    On (0, inf) it is A - k B at the shifts (2r, r), on (-inf, 0) at (0, r); replaced, at (2r, 0) and (0, 2r).
    """
    other, shift = (arb(0), 2 * r) if replaced else (r, r)

    def stop_loss(c: arb) -> arb:
        if not is_positive(c):  # the second part falls with z, down to c at this one
            z = ((1 - c) / k).log() / shift + shift / 2
            return k * tail(z - shift) - k + (1 - c) * tail(-z)
        y = (k + c).sqrt() if replaced else root((-2 * r * r).exp(), k * (-r * r / 2).exp(), c)
        z = y.log() / r + (r if replaced else 0)
        return tail(z - 2 * r) - k * tail(z - other) - c * tail(z)

    return stop_loss


def turned(stop_loss: StopLossBall, k: arb) -> StopLossBall:
    """The stop-loss transform of -k X, where `stop_loss` is that of X and E[X] = 1 - 1/k: P and Q exchanged."""
    return lambda c: 1 - k - c + k * stop_loss(-c / k)


def masses_at(nodes: list[arb], heights: list[arb]) -> list[arb]:
    """The measure whose stop-loss transform connects these heights, that has slope -1 to the left, less the last
    height.
    """
    falls = [(a - b) / (y - x) for (x, y), (a, b) in zip(pairwise(nodes), pairwise(heights), strict=True)]
    return [left - right for left, right in pairwise([arb(1), *falls, arb(0)])]


def sizes(n: int, p: Fraction, around: Fraction) -> dict[int, arb]:
    """The probabilities of Bin(n, p) at the sizes near its mean, or near that for another rate."""
    center, reach = int(n * around), 18 * int(float(n * around * (1 - around)) ** 0.5 + 4)
    first, last = max(0, center - reach), min(n, center + reach)
    spend(2 * (last - first))
    ways, odds = arb(n + 1).lgamma() - arb(first + 1).lgamma() - arb(n - first + 1).lgamma(), ball(p / (1 - p))
    masses = {first: ways.exp() * ball(1 - p) ** (n - first) * ball(p) ** first}
    for size in range(first, last):
        masses[size + 1] = masses[size] * odds * (n - size) / (size + 1)
    return masses


def realized(others: int, rate: Fraction, r: arb) -> StopLossBall:
    """k -> D_k(P||Q) of a Poisson step that shows its size and its sum, which a division by the size cannot add to.

    Given the size j the ratio is 1 - q + w_j exp(2 r z - 2 r^2), w_j = q b_(j-1)/b_j = (1 - q) j/(n - j + 1), with the
    probabilities b_j of Bin(n, q). It is linear in w_j, so that w may be spread onto every few of its values.
    """
    found = sizes(others, rate, rate)
    first = min(found)
    gap = max(1, int((others * float(rate * (1 - rate))) ** 0.5 / 5))
    above, moment = arb(0), arb(0)  # of all larger sizes
    kept, stop_losses, rest = list[arb](), list[arb](), ball(1 - rate)
    for j in reversed(found):
        weight = rest * j / (others - j + 1)
        if j % gap == 0 or j == first or not kept:
            kept.append(weight)
            stop_losses.append(moment - weight * above)
        above, moment = above + found[j], moment + found[j] * weight
    kept, heights = kept[::-1], [each / above for each in reversed(stop_losses)]
    shares = list(zip(kept, masses_at(kept, heights), strict=True))
    beyond = 1 - above * ball(1 - rate) - moment  # sizes left out count as if P alone had them
    once = lognormal(2 * r)

    def stop_loss(k: arb) -> arb:
        spend(20 * len(shares))
        threshold = k - ball(1 - rate)
        each = (share * (w * once(threshold / w) if w > 0 else (-threshold).max(arb(0))) for w, share in shares)
        return beyond + above * sum(each, arb(0))

    return stop_loss


def moved(others: int, batch: int) -> StopLossBall:
    """k -> D_k(P||Q) of Bin(n, B/(n+1)) against Bin(n, B/n): how many of the common records were drawn.

    The ratio falls as the size grows, so that the best event is one of the smallest sizes: those before the ratio
    passes k. Where the balls do not tell on which side of k a size lies, both events are looked at.
    """
    rate = Fraction(batch, others)
    p, q = (list(sizes(others, each, rate).values()) for each in (Fraction(batch, others + 1), rate))
    sums = [list(accumulate(each, initial=arb(0))) for each in (p, q)]

    def stop_loss(k: arb) -> arb:
        j = bisect_left(range(len(p)), True, key=lambda i: not p[i] > k * q[i])
        if not all(a < k * b for a, b in zip(p[j + 1 : j + 2], q[j + 1 : j + 2], strict=True)):
            raise Refused("a node lies where the precision does not tell the sign; choose another one")
        best = [sums[0][i] - k * sums[1][i] for i in (j, min(j + 1, len(p)))]
        return 1 - sums[0][-1] + best[0].max(best[1]).max(arb(0))

    return stop_loss
