"""How sums over an epoch are kept, and at which ratios they are asked for. Nothing here can make a certificate
wrong.

An epoch that hides the record in one of M rounds is bounded by a call on a sum of M terms. With the record zeroed out
under balls-and-bins sampling one sum serves all ratios; otherwise every ratio k has a sum of its own, so nodes are
few: gaps of about a quarter of the deviation of the epoch's log ratio, growing with the distance from 0.

`covering`: constants for the checker's proof about shuffled epochs that use every record. The theorem of
`calipers.pld.allocation.batch_weights` leaves open how much of the weight of later batches is covered, by how many
weights of which size, and with which exponential moments this is shown: here the best of a grid."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calipers.certificates.placing import places_between, saddle
from calipers.errors import CertificationError
from calipers.numerics.normal import gaussian_mu, mills_ratio
from calipers.numerics.types import FloatArray
from calipers.pld.allocation.batch_weights import find_majorant as measured_cover
from calipers.pld.allocation.batch_weights import weights_of_records
from calipers.pld.allocation.full_epoch import EXPONENTS, FullEpoch
from calipers.pld.allocation.resolution_plan import resolution_plans
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers_verify.shuffled import ROUNDS, records
from calipers_verify.steps import Phase

_RESOLUTION, _RESOLUTION_OF_MANY = 0.03, 0.12
"""Spacing of a sum over its spread: one sum for all ratios, and one for each."""
_TAIL, _TAIL_OF_MANY = 100, 20
_SPREADS = 9.0
"""How far the finest places reach from the center of a sum."""
_GROWTH, _FINE = 0.16, 0.6
"""Gaps between nodes as a share of the log ratio, and at most in units of 1/theta."""
_NEAR = (0.97, 1.15)
"""Where a single epoch is asked, in units of the epsilon expected."""
_RARE = 1e-3
_STEP, _BLOCK_SPREADS = 0.4, 8.0
"""Blocks live on a lattice of two fifths of a deviation of one term that reaches eight deviations of a block."""
_LARGEST_LOG = 700.0
"""Logarithm of the largest likelihood ratio of a term on its mesh that is a double."""
_SEEN, _WORTH = 1e-4, 0.995


class Focus(NamedTuple):
    """About what is asked: epsilon and delta, whether there is one phase, and how many operations a phase may take."""

    epsilon: float
    delta: float
    alone: bool
    effort: int

    @property
    def saddle(self) -> float:
        """About the theta at which E[L^theta] decides delta."""
        return saddle(self.epsilon, self.delta)


def hides(phase: Phase) -> bool:
    """Whether the phase is bounded by sums over its rounds."""
    return phase.kind in ("dealt", "covered", "dropping", "full") and phase.rounds > 1


def node_places(phase: Phase, spacing: Fraction, small: float, focus: Focus) -> list[int]:
    """Places of the PLD of one epoch, the same for both directions so that they share their sums."""
    mu = float(phase.mu.mid())
    # Fixed batches leak more: beyond this log ratio nothing is left of them either.
    farthest = mu * math.sqrt(-2.0 * math.log(small)) + 0.5 * mu * mu
    last = math.ceil(farthest / float(spacing))
    if phase.one_sum:
        return places_between(-last, last)
    widest = max(1, int(_FINE / focus.saddle / float(spacing)))
    if phase.repeats > 1 or not focus.alone:
        return places_between(-last, last, _GROWTH, widest)
    # One epoch alone: its PLD is asked at one epsilon, and only the nodes on both sides of it matter.
    near = [round(focus.epsilon * share / float(spacing)) for share in _NEAR]
    dense = range(near[0], near[1] + 1, max(1, min(widest, (near[1] - near[0]) // 12)))
    places = {*places_between(-last, last, 1.0), *dense, *(-place for place in dense)}
    return sorted(place for place in places if abs(place) <= last)


def gain(focus: Focus, repeats: int, first: float, last: float, value: float, next_value: float) -> float:
    """About which share of epsilon a node between two others could save; `value` of a call where log ratios are above
    0, of a put where they are below.

    Between nodes a stop-loss transform is replaced by its chord, and falls about exponentially. What all other epochs
    show together is about Gaussian: so likely it is that with them this log ratio makes epsilon.
    """
    if not (value > 0.0 and next_value > 0.0):
        return 0.0
    if focus.alone and repeats == 1:
        return 1.0  # there are few places, near the epsilon expected and some way beyond
    middle, width = 0.5 * (first + last), abs(last - first)
    share = math.expm1(middle - first) / math.expm1(last - first)
    gap = value + share * (next_value - value) - math.sqrt(value * next_value)
    epsilon = max(focus.epsilon, 1e-3)
    mu = gaussian_mu(epsilon, focus.delta)
    spread = mu * math.sqrt(1.0 - focus.alone / repeats)

    def log_odds(x: float) -> float:
        return -0.5 * ((epsilon - x) / spread - 0.5 * spread) ** 2 - math.log(spread)

    # In the other direction the log ratio has the other sign, and a gap is as large as here over the ratio.
    log_shown = max(log_odds(middle), log_odds(-middle) - middle)
    log_slope = -0.5 * (epsilon / mu - 0.5 * mu) ** 2 + math.log(mills_ratio(epsilon / mu + 0.5 * mu))
    return gap * width * repeats / epsilon * math.exp(min(700.0, log_shown - log_slope))


def sum_for(phase: Phase, back: bool, x: Fraction, small: float, known: dict[float, bool]) -> dict[str, object] | None:
    """The sum that the checker asks for at the log ratio x, or None where fixed batches prove as much.

    `known`: where blocks were found to pay, for this phase, and where not.
    """
    if phase.kind == "full":
        return _majorized(phase, abs(float(x)), (back != (x < 0)) and not phase.replaced, small)
    turned = (x < 0) if phase.replaced else back
    at = 0.0 if phase.one_sum else float(-x if turned else x)
    blocks = _blocks(phase, at) if phase.kind == "dropping" and _blocks_likely_pay(phase, at, known) else None
    return {"plan": _plan(phase, at, False, phase.rounds, small), "blocks": blocks, "cover": None}


def _majorized(phase: Phase, x: float, back: bool, small: float) -> dict[str, object] | None:
    """Where there is no remainder: a pool, and weights that cover enough of those of later batches."""
    width, rounds = float(phase.r.mid()), -(-phase.size // phase.batch)
    if rounds < 3:
        return None
    epoch = FullEpoch(1.0 / width, rounds, 1.0, phase.replaced, phase.batch, phase.size)
    chosen, known = epoch.chosen(x, back), epoch.known(x)
    if chosen is None:
        return None
    value = epoch.with_majorant(chosen, x, back, 0.5, -30.0)[1]
    sizes, pool = (phase.batch, phase.size), chosen.pool
    exponent = next(each for each in EXPONENTS if measured_cover(width, *sizes, each, pool) == chosen)
    cover = covering(width, *sizes, exponent, pool)
    if cover is None or value > _WORTH * known:
        return None
    many = int(str(cover["many"]))
    pays = many >= ROUNDS and value > _least(phase) and epoch.by_dynamic_program(x, back) < _WORTH * value
    blocks = _blocks(phase, x) if pays else None
    return {"plan": _plan(phase, x, back, 1 + many + int(str(cover["few"])), small), "blocks": blocks, "cover": cover}


def _blocks_likely_pay(phase: Phase, x: float, known: dict[float, bool]) -> bool:
    """Whether blocks are to be used at e^x: as on both sides of it, where that is known and the same."""
    if x not in known:
        sides = [at for at in known if at < x], [at for at in known if at > x]
        around = {known[max(sides[0])], known[min(sides[1])]} if all(sides) else set()
        known[x] = around.pop() if len(around) == 1 else _blocks_pay(phase, x)
    return known[x]


def _blocks_pay(phase: Phase, x: float) -> bool:
    """Whether one control for all thresholds of a block lowers the bound at e^x enough to be looked at."""
    if phase.rounds < ROUNDS:
        return False
    epoch = ShuffledEpoch(1.0 / float(phase.r.mid()), phase.rounds, float(phase.share), phase.replaced)
    plain = epoch.worst_case(abs(x), x < 0.0 and not phase.replaced, 0.1, -30.0)[1]
    return plain > _least(phase) and epoch.by_dynamic_program(abs(x), x < 0.0 and not phase.replaced) < _WORTH * plain


def _least(phase: Phase) -> float:
    """What several epochs show so rarely decides little; a single one may be asked about it."""
    return _SEEN if phase.repeats > 1 else 0.0


def _blocks(phase: Phase, x: float) -> dict[str, object]:
    """A lattice for the running sums of a block, and what a deviation of one term says of its size."""
    deviation = float(phase.mu.mid()) * math.exp(0.5 * x)
    unit = max(1, round(1024 * _STEP * deviation))
    reach = _BLOCK_SPREADS * deviation * math.sqrt(ROUNDS) + abs(math.expm1(x)) * ROUNDS
    return {"unit": f"{unit}/1024", "places": math.ceil(1024 * reach / unit)}


def _terms(phase: Phase, x: float, back: bool, reach: float) -> tuple[FloatArray, FloatArray]:
    """Values of one term in increasing order and their probabilities, on a mesh up to `reach` deviations."""
    if back:
        values, weights = _terms(phase, -x, False, reach)
        return -math.exp(x) * values[::-1], weights[::-1]
    r, k = float(phase.r.mid()), math.exp(x)
    if 2.0 * r * (reach + 2.0 * r) > _LARGEST_LOG:
        raise CertificationError(
            "Likelihood ratios lie too far apart for double precision, with so little noise at so small a probability; "
            "ask for a larger delta."
        )
    z = np.linspace(-reach, reach + 2.0 * r, 4001)
    weights = np.exp(-0.5 * z * z)
    weights /= weights.sum()
    if phase.one_sum:
        return np.exp(r * z - 0.5 * r * r), weights
    if phase.kind in ("dealt", "covered"):
        return np.exp(r * z - 0.5 * r * r) - k * np.exp(-r * z - 0.5 * r * r), weights
    if phase.replaced:
        above, below = np.exp(2.0 * r * z - 2.0 * r * r) - k, 1.0 - k * np.exp(2.0 * r * z - 2.0 * r * r)
    else:
        above = np.exp(2.0 * r * z - 2.0 * r * r) - k * np.exp(r * z - 0.5 * r * r)
        below = 1.0 - k * np.exp(r * z - 0.5 * r * r)
    values = np.concatenate((below[below < 0.0], [0.0], above[above > 0.0]))
    masses = np.concatenate((weights[below < 0.0], [0.0], weights[above > 0.0]))
    masses[np.count_nonzero(below < 0.0)] = max(0.0, 1.0 - masses.sum())
    order = np.argsort(values, kind="stable")
    return values[order], masses[order]


def _plan(phase: Phase, x: float, back: bool, terms: int, small: float) -> dict[str, object]:
    log_small = math.log(small) - math.log(terms) - 6.0 - abs(x)
    # What lies beyond the mesh is charged where it begins: a hundredth of what is small.
    values, weights = _terms(phase, x, back, math.sqrt(-2.0 * math.log(0.01 * small)))
    usual = np.cumsum(weights)
    low_usual = float(values[np.searchsorted(usual, _RARE / terms)])
    high_usual = float(values[min(len(values) - 1, int(np.searchsorted(usual, 1.0 - _RARE / terms)))])
    resolution = _RESOLUTION if phase.one_sum else _RESOLUTION_OF_MANY
    clipped = np.clip(values, low_usual, high_usual) if values[0] < 0.0 else values
    plans = resolution_plans(clipped, weights, terms, resolution, float(phase.r.mid()), log_small)
    unit = Fraction(2) ** math.floor(math.log2(plans[0].step))
    shift = math.log2(plans[0].step / float(unit))
    return {
        "unit": f"{unit.numerator}/{unit.denominator}",
        "centers": [round(plan.center / float(unit)) for plan in plans],
        "lowest": [math.floor(plan.lowest + shift) for plan in plans],
        "reach": min(4000, math.ceil(_SPREADS / resolution)),
        "tail": _TAIL if phase.one_sum else _TAIL_OF_MANY,
        "low": 0 if values[0] > 0.0 else math.floor(float(values[0]) / float(unit)),
        "high": math.ceil(float(values[-1]) / float(unit)),
    }


_LOSSES, _POOLED, _POWERS = (1.0, 2.0, 4.0, 8.0), (1.5, 2.5, 4.0), (0.1, 0.3, 0.5, 0.7, 0.9)
_TILTS = np.geomspace(1e-3, 40.0, 300)
_LEVELS = np.linspace(0.02, 0.8, 40)
_ROOM = 1.0 + 1e-6
"""Constants are rounded; what they are to satisfy is left some room."""


@lru_cache(maxsize=256)
def covering(width: float, batch: int, size: int, exponent: float, pool: int = 1) -> dict[str, object] | None:
    """Constants with which all but about e^-exponent is covered, as evenly as possible, or None."""
    if (pool == 1 and batch < 3) or size < (pool + 1) * batch:
        return None
    depths = [
        exponent + more + (2.0 * width * width if pool == 1 else 0.0) for more in (_LOSSES if pool == 1 else _POOLED)
    ]
    found = [each for depth in depths if (each := _with_depth(width, batch, size, exponent, pool, depth))]
    return min(found, key=lambda each: each[0])[1] if found else None


def _with_depth(
    width: float, batch: int, size: int, exponent: float, pool: int, depth: float
) -> tuple[float, dict[str, object]] | None:
    later, batches = size / batch - pool, -(-size // batch) - pool
    shown = records(size, batch, Fraction(width) ** 2, pool, Fraction(_short(depth)))
    ratio, loss = (float(each.mid()) for each in shown[:2])
    if loss >= 0.9:
        return None
    weights = weights_of_records(loss, width, batch, ratio)
    tilts = _TILTS / (weights.largest - 1.0)
    log_moments = weights.log_moment(tilts)
    highs = 1.0 + (log_moments + exponent + math.log(batches)) / (tilts * batch)
    at = int(np.argmin(highs))
    high = min(float(highs[at]), weights.largest) * _ROOM
    names = ("depth", "exponent", "tilt", "level", "level_tilt", "power")

    def record(level: float, tilt: float, power: float, many: int, few: int) -> dict[str, object]:
        constants = dict(zip(names, map(_short, (depth, exponent, tilts[at], level, tilt, power)), strict=True))
        return {"pool": pool, **constants, "many": many, "few": few}

    best: tuple[float, dict[str, object]] | None = None
    even = int(later / high)
    if even > 1:  # no weight is larger
        best = later**2 / even, record(1.0, 1.0, 0.5, even - 1, 1)
    for level in 1.0 + (high - 1.0) * _LEVELS:
        exponents = log_moments - tilts * batch * (level - 1.0)
        spread = np.where(exponents < 50.0, np.exp(np.minimum(exponents, 50.0)), np.inf)
        totals = np.array(
            [
                (exponent + batches * np.log1p(y * (1.0 - y) ** ((1.0 - y) / y) * spread)) / (y * tilts * batch)
                for y in _POWERS
            ]
        )
        power, tilt = np.unravel_index(int(np.argmin(totals)), totals.shape)
        few = math.ceil(float(totals[power, tilt]) * _ROOM / (high - level))
        many = int((later - few * high) / (level * _ROOM))
        if many < 1:
            continue
        uneven = (later - few * high) ** 2 / many + few * high**2
        if best is None or uneven < best[0]:
            best = uneven, record(float(level), float(tilts[tilt]), _POWERS[power], many, few)
    return best


def _short(number: float) -> str:
    """A fraction next to the number, with a small denominator."""
    found = Fraction(float(number)).limit_denominator(10**9)
    return f"{found.numerator}/{found.denominator}"
