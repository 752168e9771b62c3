"""Laws of log likelihood ratios on a lattice, in whole numbers only.

A law is a measure: mass p_i at the log ratio x_i = place * spacing, and mass at infinity. It stands for the function

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

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, fmpz, fmpz_poly

from calipers_verify.calls import ONE, ball, rounded_up
from calipers_verify.reading import Effort, Refused, each, fields, increasing, whole

MOST_PLACES = 1 << 18
MOST_NODES = 60_000


class Law(NamedTuple):
    """Masses (in 2^-256) at the places low, low + 1, ... of a lattice of log ratios, and at infinity."""

    spacing: Fraction
    low: int
    masses: list[Any]
    infinity: int


def product_up(first: list[Any], second: list[Any], effort: Effort) -> list[Any]:
    """All masses of the convolution of two non-negative lists, each rounded up to a whole number of 2^-256."""
    count = len(first) + len(second) - 1
    effort.spend(count)
    exact = fmpz_poly(first) * fmpz_poly(second)
    found: list[Any] = ((exact + fmpz_poly([ONE - 1] * count)) // fmpz(ONE)).coeffs()
    return found + [fmpz(0)] * (count - len(found))


def dominating(record: Any, spacing: Fraction, call: Callable[[Fraction], arb], effort: Effort) -> Law:
    """The law in `record` (places, masses, infinity), checked to dominate the step whose D at e^x is `call(x)`."""
    record = fields(record, ("places", "masses", "infinity"), "a law")
    places = increasing(record["places"], 2, MOST_NODES, 10**9, "places")
    masses = each(record["masses"], len(places), lambda mass: whole(mass, 0, 2 * ONE, "a mass"), "masses")
    infinity = whole(record["infinity"], 0, ONE, "infinity")
    if places[-1] - places[0] >= MOST_PLACES:
        raise Refused("a law reaches too far")
    if sum(masses) + infinity < ONE:
        raise Refused("the masses of a law sum to less than 1")
    effort.spend(100 * len(places))
    mass_above, ratio_above = infinity, arb(0)  # of all places to the right of the present one
    for place, mass in zip(reversed(places), reversed(masses), strict=True):
        x = place * spacing
        k = ball(x).exp()
        if not arb(mass_above) - k * ratio_above >= ONE * call(x):
            raise Refused(f"the law does not dominate the step at the log ratio {float(x):.6g}")
        mass_above, ratio_above = mass_above + mass, ratio_above + mass / k
    dense = [fmpz(0)] * (places[-1] - places[0] + 1)
    for place, mass in zip(places, masses, strict=True):
        dense[place - places[0]] = fmpz(mass)
    return Law(spacing, places[0], dense, infinity)


def trimmed(law: Law, dust: int) -> Law:
    """At most `dust` of mass on the right goes to infinity, at most as much on the left moves right: both only add."""
    masses, low, infinity = law.masses, law.low, law.infinity
    end, cut = len(masses), 0
    while end > 1 and cut + masses[end - 1] <= dust:
        end -= 1
        cut += masses[end]
    infinity += int(cut)
    start, moved = 0, 0
    while start < end - 1 and moved + masses[start] <= dust:
        moved += masses[start]
        start += 1
    kept = masses[start:end]
    kept[0] += moved
    return Law(law.spacing, low + start, kept, infinity)


def multiplied(first: Law, second: Law, dust: int, effort: Effort) -> Law:
    """A law that dominates both steps together (fact 2)."""
    if first.spacing != second.spacing:
        raise Refused("two laws on different lattices cannot be multiplied")
    if len(first.masses) + len(second.masses) > MOST_PLACES:
        raise Refused("a product has too many places")
    masses = product_up(first.masses, second.masses, effort)
    finite = int(sum(first.masses))
    infinity = first.infinity * (int(sum(second.masses)) + second.infinity) + finite * second.infinity
    return trimmed(Law(first.spacing, first.low + second.low, masses, -(-infinity // ONE)), dust)


def coarsened(law: Law, effort: Effort) -> Law:
    """The law on the lattice of twice the spacing: what lies at odd places is split onto both neighbors (fact 3)."""
    masses, low = law.masses, law.low
    if low % 2:
        masses, low = [fmpz(0), *masses], low - 1
    if len(masses) % 2 == 0:
        masses = [*masses, fmpz(0)]
    effort.spend(len(masses))
    step = ball(law.spacing).exp()
    left, right = rounded_up(1 / (1 + step)), rounded_up(step / (1 + step))
    even, odd = masses[0::2], fmpz_poly(masses[1::2])
    count = len(even) - 1
    filler = fmpz_poly([ONE - 1] * count)
    down, up = (((odd * fmpz(share) + filler) // fmpz(ONE)).coeffs() for share in (left, right))
    for i, mass in enumerate(down):
        even[i] += mass
    for i, mass in enumerate(up):
        even[i + 1] += mass
    return Law(2 * law.spacing, low // 2, even, law.infinity)


def power(law: Law, count: int, coarsen: list[int], dust: int, effort: Effort) -> Law:
    """A law that dominates `count` steps: squarings, `coarsen[j]` coarsenings before the j-th, tails of `dust` cut."""
    bits = count.bit_length()
    base, result = law, None
    for j in range(bits):
        for _ in range(coarsen[j]):
            base = coarsened(base, effort)
            result = None if result is None else coarsened(result, effort)
        if count >> j & 1:
            result = base if result is None else multiplied(result, base, dust // bits, effort)
        if j + 1 < bits:
            # This square stands for 2^(j+1) of `count` steps, and so may lose that share.
            base = multiplied(base, base, (dust << (j + 1)) // (count * bits), effort)
    assert result is not None
    return result


def together(laws: list[Law], dust: int, effort: Effort) -> Law:
    """The product of laws on lattices whose spacings are one number times powers of two."""
    widest = max(law.spacing for law in laws)
    total = None
    for law in laws:
        while law.spacing < widest:
            law = coarsened(law, effort)
        total = law if total is None else multiplied(total, law, dust, effort)
    assert total is not None
    return total


def delta_bound(law: Law, epsilon: Fraction) -> arb:
    """V(e^epsilon), which no divergence of what the law dominates exceeds."""
    first = int(epsilon // law.spacing) + 1  # the first place to the right of epsilon
    start = max(0, first - law.low)
    inside = law.masses[start:]
    step = ball(-law.spacing).exp()
    ratios = arb(0)
    for mass in reversed(inside):
        ratios = ratios * step + arb(mass)
    shift = ball(epsilon - (law.low + start) * law.spacing).exp()
    return (arb(int(sum(inside)) + law.infinity) - shift * ratios) / ONE
