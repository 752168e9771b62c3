"""PLDs of log likelihood ratios on a lattice: the upper bound.

A PLD is a measure: mass p_i at the log ratio x_i = place * spacing, and mass at infinity. It stands for the function

    V(k) = sum_i p_i (1 - k e^(-x_i))+ + p_inf        for k > 0,

and it *dominates* a step if D_k(P||Q) <= V(k) for every k > 0 and whatever the adversary does. Four facts carry
everything:

1. More mass, and mass further right, makes V larger: rounding masses up is safe, so is moving them right or to
   infinity.
2. Products: if V dominates one step and W the next, given all that was seen before, their product (masses multiply, log
   ratios add) dominates both together. With z = q1/p1 the divergence of both is E_P[D_(kz)(second)] <= E_P[W(kz)], a
   mixture of (1 - k w z)+ over the atoms w of W, and each of these has P-expectation at most V's.
3. Splitting an atom onto two others so that its mass and its mass times e^(-x) are kept only adds: z -> (1 - kz)+ is
   convex.
4. V is linear between its places, D_k is convex in k, equal to 1 at k = 0 and decreasing: so it is enough to compare
   them at the places, and V(0), the total mass, with 1.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from flint import arb

from calipers_verify.reading import Refused, Unproven, spend
from calipers_verify.rows import ONE, Row, coarser, composed, dense, product, window
from calipers_verify.stop_loss import ball, rounded_up

MOST_NODES = 60_000
PMF: dict[str, Any] = {"places": [range(-(10**9), 10**9), 2, MOST_NODES], "masses": [range(2 * ONE), 2, MOST_NODES]}
PMF |= {"infinity": range(ONE + 1)}


class LatticePmf(NamedTuple):
    """Masses at log ratios place * spacing, and at infinity."""

    spacing: Fraction
    row: Row
    infinity: int


def dominating(record: Any, spacing: Fraction, bounds: list[arb]) -> LatticePmf:
    """The PLD in `record`, checked to dominate the step whose D at the ratios of its places is at most `bounds`."""
    places, masses, infinity = record
    if len(places) != len(masses):
        raise Refused("masses of a distribution should be as many as its places")
    if any(a >= b for a, b in pairwise(places)) or sum(masses) + infinity < ONE:
        raise Refused("the places of a distribution should increase, and its masses sum to 1 or more")
    mass_above, ratio_above = infinity, arb(0)  # of all places to the right of the present one
    for place, mass, bound in reversed(list(zip(places, masses, bounds, strict=True))):
        k = ball(place * spacing).exp()
        if not arb(mass_above) - k * ratio_above >= ONE * bound:
            raise Unproven(f"the distribution does not dominate the step at the log ratio {float(place * spacing):.6g}")
        mass_above, ratio_above = mass_above + mass, ratio_above + mass / k
    return LatticePmf(spacing, dense(dict(zip(places, masses, strict=True))), infinity)


def trimmed(pmf: LatticePmf, dust: int) -> LatticePmf:
    """At most `dust` of mass on the right goes to infinity, at most as much on the left moves right: both only add."""
    spacing, (low, masses), infinity = pmf
    start, end = window(masses, dust)
    kept = [sum(masses[: start + 1]), *masses[start + 1 : end]]
    return LatticePmf(spacing, Row(low + start, kept), infinity + int(sum(masses[end:])))


def multiplied(first: LatticePmf, second: LatticePmf, dust: int) -> LatticePmf:
    """A PLD that dominates both steps together (fact 2)."""
    finite, others = (int(sum(pmf.row.masses)) for pmf in (first, second))
    if max(finite + first.infinity, others + second.infinity) > 2 * ONE:
        raise Refused("masses of a distribution sum to more than 2, which proves nothing")
    infinity = first.infinity * (others + second.infinity) + finite * second.infinity
    return trimmed(LatticePmf(first.spacing, product(first.row, second.row, True), -(-infinity // ONE)), dust)


def coarsened(pmf: LatticePmf) -> LatticePmf:
    """The PLD on the lattice of twice the spacing: what lies at odd places is split onto both neighbors (fact 3)."""
    step = ball(pmf.spacing).exp()
    shares = rounded_up(1 / (1 + step)), rounded_up(step / (1 + step))
    return LatticePmf(2 * pmf.spacing, coarser(pmf.row, True, shares), pmf.infinity)


def power(pmfs: list[tuple[LatticePmf, int]], dust: int) -> LatticePmf:
    """A PLD that dominates so many steps of every phase; cutting tails costs about `dust`."""
    return composed(pmfs, 3, coarsened, lambda a, b, uses: multiplied(a, b, dust // uses))


def delta_bound(pmf: LatticePmf, epsilon: Fraction) -> arb:
    """V(e^epsilon), which no divergence of what the PLD dominates exceeds."""
    spacing, (low, masses), infinity = pmf
    start = max(0, int(epsilon // spacing) + 1 - low)  # the first place to the right of epsilon
    spend(len(masses))
    step, ratios = ball(-spacing).exp(), arb(0)
    for mass in reversed(masses[start:]):
        ratios = ratios * step + arb(mass)
    return (arb(int(sum(masses[start:])) + infinity) - ball(epsilon - (low + start) * spacing).exp() * ratios) / ONE
