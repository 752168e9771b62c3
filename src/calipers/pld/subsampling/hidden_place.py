"""Truncated batches, one record: a proof that does not reveal whether a batch is full.

As in `calipers.pld.subsampling.truncated`, m of the n other records join with probability q each, and of more than B
that have joined B are kept, at random. Where m >= B - 1, only a random set T of B - 1 of the others that are used is
revealed. On the dataset without the record the batch is T (m = B - 1) or T and one more, a random other j (m >= B).
With the record it is the same, unless the record joins and is kept: then it is T and the record, whether m = B - 1 or m
>= B. T is uniformly random in all cases, and so is j given T, whatever m is.

Where m >= B a record that joins is kept if a coin says so, which depends on m alone; its mean is s = B E[1/(m+1) | m
>= B]. Toss a coin of the same mean where m = B - 1, where it means nothing, and reveal it. Given T, heads, and j, with
alpha = P(m = B - 1 | m >= B - 1), x the gradient of the record and g that of j, in units of the noise,

    O = alpha N(0) + (1 - alpha) N(g),      P = (1 - q) O + q N(x),      Q = O, or (1 - q) O + q N(x')

on the dataset without the record, or on that where it has gradient x' (zero if it is zeroed out): it is kept by the
same coins, and takes the same place. Given tails, m = B - 1 is a Poisson step of rate q, and m >= B shows nothing.
Where m < B - 1, m and who joined are revealed: a Poisson step. All probabilities that are revealed are the same on both
datasets.

**Worst gradients, added or removed.** With r = 1/sigma and z a standard normal vector, N(0) and N(g) have relative to
N(x) the densities e^(X - Var X/2), X = -<x, z>, and e^(Y - Var Y/2), Y = <g - x, z>. Both divergences of N(x) and O at
any k are means of convex functions of alpha e^(X - Var X/2) + (1 - alpha) e^(Y - Var Y/2), so by Kahane's inequality
they are largest where Var X = |x|^2, Var Y = |g - x|^2 and Cov(X, Y) = |x|^2 - <x, g> are all largest: r^2, 4 r^2 and
2 r^2, at |x| = r and g = -x. Poisson sampling, 1 - q + q L, keeps that order, and so does the mean over T and j (joint
convexity). So one pair dominates a step whatever the gradients are, and its products whatever an adaptive adversary
does.

**Zeroed out or replaced.** For k >= 1

    P - k Q = q N(x) - k q N(x') - (k - 1) (1 - q) O,      Q - k P = q N(x') - k q N(x) - (k - 1) (1 - q) O

have one positive term each. Relative to it the others are exponentials with weights >= 0 and the vectors x' - x, -x,
g - x, or x - x', -x', g - x': by Kahane's inequality worst where all their products are largest. Zeroed out: x = r and
g = -r in the one order, x = g = r in the other. Replaced: x = r, x' = g = -r, and x' = r, x = g = -r. Different
adversaries in the two orders, joined at ratio 1 as in `calipers.pld.subsampling.fixed_size`, whose pairs these are
where alpha = 0.

It is at most what is proven where it is revealed whether a batch is full, but for the coin: neither is always the
smaller.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from calipers.citations import implements
from calipers.domains import POSITIVE
from calipers.numerics.binomial import binomial_window
from calipers.pld.core.drawn_shift import Shifts, drawn_shift
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair
from calipers.pld.core.part_algebra import RoundedPair, above, below, joined_at_one, revealed
from calipers.pld.subsampling.truncation import DEEPEST, Truncation


@implements("calipers:truncated", "kahane1985:convexity")
def hidden_place_proof(truncation: Truncation, shift: float, adjacency: str = "add-remove") -> RoundedPair:
    """What dominates one step for one record, without revealing whether the batch is full.

    Args:
        truncation: Others, rate and largest batch; a unit of one record, and batches that may be full.
        shift: 1/sigma.
        adjacency: What the other dataset has in place of the record.

    Returns:
        The pair: its profile is at least that of a step, in both directions, whatever the gradients are.
    """
    assert truncation.unit == 1
    rate, full = truncation.rate, truncation.truncated
    shift = POSITIVE.check("shift", shift)
    window = binomial_window(truncation.others, rate, DEEPEST)
    short = float(np.sum(window.weights[window.values == truncation.largest - 1]))
    room = float(np.sum(window.weights[window.values < truncation.largest - 1])) + window.outside
    heads = min(1.0, float(truncation.kept[0, 1]) / rate)
    poisson = drawn_shift(Shifts.of([0.0, shift], [1.0 - rate, rate], 1e-15), opposite=adjacency == "substitute")
    nothing = Pair("nothing", atom_log_p=(0.0,), atom_log_q=(0.0,))
    parts = [
        (_hidden(rate, (short / (short + full), full / (short + full)), shift, adjacency), (short + full) * heads),
        (poisson, room + short * (1.0 - heads)),
        (nothing, full * (1.0 - heads)),
    ]
    name = f"Poisson, q = {rate:g}, at most {truncation.largest}, {adjacency}, whether it is full is hidden"
    # Weights of the mixtures err as the probabilities do, and those of heads and tails as a quotient of two of them.
    return revealed(name, [(pair, min(1.0, chance)) for pair, chance in parts], 4.0 * truncation.rounding)


def _hidden(rate: float, weights: tuple[float, float], shift: float, adjacency: str) -> Pair:
    """T and nobody else, or another one at random, with these weights; or the record in their place."""
    name = f"T and another one at random, or the record, q = {rate:g}, {adjacency}"
    kept = (*((1.0 - rate) * weight for weight in weights), rate)
    if adjacency == "add-remove":
        part = gaussian_mixture_part(kept, (0.0, -shift, shift), weights, (0.0, -shift))
        return Pair(name, smooth=(part,))
    instead = 0.0 if adjacency == "zero-out" else -shift
    more, less = (
        gaussian_mixture_part(kept, (0.0, other, shift), kept, (0.0, other, instead)) for other in (-shift, shift)
    )
    # 1 - Q(L > 1) - Q(L < 1), where the shares of q and of N(0) cancel; the ratio is 1 halfway between x and x'.
    middle = 0.5 * (shift + instead)
    high, low = shift - middle, -shift - middle
    even = float(log_ndtr(high)) + math.log1p(-float(ndtr(low) / ndtr(high)))
    return joined_at_one(
        name,
        above(more, middle),
        below(less, middle),
        even + math.log1p(-rate) + math.log(weights[1]),
        symmetric=adjacency == "substitute",
    )
