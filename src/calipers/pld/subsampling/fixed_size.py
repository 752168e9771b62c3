"""Batches of exactly B records, drawn anew in every step: a record in the batch displaces another one.

**Setting.** Draw the batch so: first B of the other records; then, with probability q, the record x takes the place of
a random one of them, y. Given that x is in, the other B - 1 are a uniformly random choice, and given that it is not,
all B are, so this is B of all records without replacement when q is B over their number. Reveal everything but whether
x is in. In units of sigma, r = 1/sigma, relative to the batch without x the sum then moves by x - y if x is in.

**Added or removed.** The other dataset draws B of the other records: no move at all.

    P = (1 - q) N(0, 1) + q N(2r, 1),      Q = N(0, 1),

the Poisson pair of *twice* the sensitivity, by `calipers.pld.core.drawn_shift`. Attained: x = u, all others -u.

**Zeroed out.** A ghost takes the place of y too: a = x - y against b = -y, |b| <= r, |a - b| <= r. The lemma behind
shuffled batches (docs/theory/shuffling.md, section 7) says that E[(q A - k q B - c)+] is largest at a = 2r, b = r on
one line if c >= 0, and at a = 0, b = r if c <= 0. Here c = (k - 1)(1 - q), so

    k >= 1, present against absent:  (1 - q) N(0) + q N(2r)  against  (1 - q) N(0) + q N(r)   (others -u, x = u),
    k >= 1, absent against present:  (1 - q) N(0) + q N(r)   against  N(0)                    (others -u, x = -u).

**Replaced.** a = x - y against b = x' - y with |a|, |b|, |a - b| <= 2r; the same lemma gives (2r, 0) and (0, 2r): in
both orders (1 - q) N(0) + q N(2r) against N(0) (others -u, the record u, its replacement -u, or the reverse).

Different adversaries are worst in the two orders, so their pairs are joined at ratio 1
(`calipers.pld.core.part_algebra`): a proof for any number of steps, an attack for one. Below stands the attack of the
first, which shows more in all but the fewest steps. A larger q dominates a smaller one: D_k at rate q' < q is at most
q'/q times D_k at rate q.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtr

from calipers.citations import implements
from calipers.domains import POSITIVE, POSITIVE_PROBABILITY
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import above, below, joined_at_one
from calipers.pld.core.smooth_part import SmoothPart


def _gaussian(shift: float) -> Pair:
    part = gaussian_mixture_part((1.0,), (shift,), (1.0,), (0.0,))
    return Pair(f"Gaussian, mu = {shift:g}", smooth=(part,), symmetric=True)


def subsampled(rate: float, shift: float) -> Pair:
    """(1 - q) N(0) + q N(shift) against N(0)."""
    if rate == 1.0:
        return _gaussian(shift)
    part = gaussian_mixture_part((1.0 - rate, rate), (0.0, shift), (1.0,), (0.0,))
    return Pair(f"q = {rate:g}, shift {shift:g}", smooth=(part,))


def displacing(rate: float, shift: float) -> Pair:
    """(1 - q) N(0) + q N(2 shift) against (1 - q) N(0) + q N(shift): the record opposes the others, the ghost is 0."""
    if rate == 1.0:
        return _gaussian(shift)
    part = gaussian_mixture_part((1.0 - rate, rate), (0.0, 2.0 * shift), (1.0 - rate, rate), (0.0, shift))
    return Pair(f"q = {rate:g}, displacing, shift {shift:g}", smooth=(part,))


@implements("calipers:fixed-size", "lebeda2024:fixed-size")
def fixed_size_proof(rate: float, shift: float, adjacency: str) -> Pair:
    """A pair that dominates one step; `rate` is q, `shift` 1/sigma. Attained at every epsilon by one step."""
    rate = POSITIVE_PROBABILITY.check("rate", rate)
    shift = POSITIVE.check("shift", shift)
    if adjacency == "add-remove":
        return subsampled(rate, 2.0 * shift)
    if rate == 1.0:
        return _gaussian(shift if adjacency == "zero-out" else 2.0 * shift)
    return instead_of_another(rate, 0.0, shift, adjacency)


def instead_of_another(rate: float, short: float, shift: float, adjacency: str) -> Pair:
    """The record takes the place of another one, or of nobody; its worst pair is proven in both places.

    Args:
        rate: q < 1, at which the record is there.
        short: The probability that it takes the place of nobody (docs/theory/sampling.md, Theorem 13.2); 0 in batches
            of fixed size.
        shift: 1/sigma.
        adjacency: What the other dataset has: nobody, a zero, or another record.
    """
    name = f"q = {rate:g}, shift {shift:g}, alone {short:g}, {adjacency}"
    if adjacency == "add-remove":
        return Pair(name, smooth=(_against(rate, short, shift, -shift, None),))
    instead = 0.0 if adjacency == "zero-out" else -shift
    more, less = (_against(rate, short, shift, other, instead) for other in (-shift, shift))
    # 1 - Q(L > 1) - Q(L < 1), where the shares of q and of N(0) cancel; the ratio is 1 halfway between x and x'.
    middle = 0.5 * (shift + instead)
    high, low = shift - middle, -shift - middle
    even = float(log_ndtr(high)) + math.log1p(-float(ndtr(low) / ndtr(high)))
    return joined_at_one(
        name,
        above(more, middle),
        below(less, middle),
        even + math.log1p(-rate) + math.log1p(-short),
        symmetric=adjacency == "substitute",
    )


def _against(rate: float, short: float, record: float, other: float, instead: float | None) -> SmoothPart:
    """(1 - q) O + q N(record) against O, or (1 - q) O + q N(instead), O = short N(0) + (1 - short) N(other)."""
    rest = [(weight, mean) for weight, mean in ((short, 0.0), (1.0 - short, other)) if weight > 0.0]
    without = tuple(((1.0 - rate) * weight, mean) for weight, mean in rest)
    present = (*without, (rate, record))
    absent = tuple(rest) if instead is None else (*without, (rate, instead))
    return gaussian_mixture_part(*zip(*present, strict=True), *zip(*absent, strict=True))


def fixed_size_attack(rate: float, shift: float, adjacency: str) -> Pair:
    """What the record u among others -u shows in one step, in both orders."""
    return displacing(rate, shift) if adjacency == "zero-out" else subsampled(rate, 2.0 * shift)
