"""One epoch: Table 1, Figures 1 and 3, the settings of Section 6, the constants of the proofs, and shuffled batches.

**The theorem next to the pair.** Equation (3) and Theorem 4.1 come out to the printed digits, but for one: 3,714,997.5
rounds at sigma = 0.75 round to 3.71e6, not to 3.72e6. What the paper does not show is how far the theorem is from the
truth. The advantage of the pair is mu/sqrt(2 pi) to first order, the second term of the theorem; the first term,
Berry-Esseen, is twenty times as large at sigma = 1 and all of it is slack. The captions explain the U-shape in sigma by
that term, rightly: it is a shape of the bound. The advantage of the pair falls with sigma at every M (more noise is a
data processing of less).

**Constants** of an inequality are rounded outward in the paper, so they are compared as inequalities: 4.52 stands for
"at most 4.52" where it is a numerator.

**Shuffled batches.** The paper calls its adversary the strongest possible one: it knows the sum of all other records in
every round. That is not all it knows. With batches of fixed size the other records are permuted together with the
differing one, so their sums say where it is missing. For the dataset of Chua et al. (all other gradients -1) a batch
sums to -B, except for the one with the differing record, -B + 2 if it is present and -B + 1 if it is zeroed out: two
Gaussian mixtures, with an explicit test between them (`calipers.pld.allocation.shuffle_attack`). For small sigma its
advantage falls so much more slowly with M than the isolated pair's that it overtakes the bound, at Table 1's entry for
0.5.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy.special import erf

from calipers.numerics.elementary import bisect
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.vandijk2026 import published
from calipers.papers.vandijk2026.exact import QUICK_TOLERANCE, TOLERANCE, advantage, fewest_rounds, limit_rounds
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.theorems import lognormal_ratio as ratio
from calipers.theorems import shuffle_one_epoch as theorem
from calipers.theorems.samplers_gap import shuffle_delta_lower, shuffle_delta_upper

_DRAWN_TOLERANCE = 1e-2
"""Rounds come out to about half a percent, which is less than the size of a dot."""
_FIRST_POSSIBLE = 0.999
"""Condition (1) implies delta < 1/2, so asking the theorem for this delta gives the fewest rounds it allows."""
_EXACT_ROUNDS = (100, 10**4, 10**6, 10**8)
_MANY_ROUNDS = 10**10
_GRID = np.geomspace(0.3, 1000.0, 100)
_FAR_ROUNDS, _FAR_S = 10**60, 3.0
"""sigma = s/sqrt(ln M) at these has e^(-1/sigma^2) = M^(-1/9) = 2e-7: the limit to six digits."""


def _asked(delta: float, sigma: float) -> dict[str, float]:
    """Rounds by Equation (3), by Theorem 4.1, and by the sharper Equation (53)."""
    solved, sharp = theorem.shuffle_rounds(delta, sigma), theorem.shuffle_rounds(delta, sigma, sharp=True)
    return {"rounds_eq3": theorem.shuffle_rounds_two_terms(delta, sigma), "rounds_thm41": solved, "rounds_eq53": sharp}


def _beyond(delta: float, sigma: float) -> float:
    """By how many percent Theorem 4.1 asks for more rounds than Equation (3)."""
    return 100.0 * (theorem.shuffle_rounds(delta, sigma) / theorem.shuffle_rounds_two_terms(delta, sigma) - 1.0)


def table_1(progress: ItemProgress) -> Computed:
    """Rounds and records for delta = 0.01: as printed, by the sharper Equation (53), and exactly."""
    table, delta = Sheet("rounds"), published.DELTA
    for sigma, texts in watched(published.TABLE_1.items(), progress):
        low, high = fewest_rounds(delta, sigma, 1, QUICK_TOLERANCE)
        asked, records = _asked(delta, sigma), theorem.shuffle_dataset_size(delta, sigma)
        table.add(noise_multiplier=sigma, **asked, rounds_low=low, rounds_high=high, records=records)
        excess = asked["rounds_thm41"] / high, asked["rounds_thm41"] / low
        table.unlisted(texts=texts, short=_beyond(delta, sigma), pair=(low, high), excess=excess)
    return Computed([table], {"rounds": theorem.shuffle_rounds_two_terms(delta, 0.75)})


def settings(progress: ItemProgress) -> Computed:
    """E = 1, 4 and 100 at sigma = 1, and E = 100 and 10,000 under the conjecture."""
    asked, table, claims = Sheet("asked", listed=False), Sheet("rounds"), Sheet("claims")
    for setting in watched((*published.SETTINGS, *published.CONJECTURED), progress):
        two_terms, taken = theorem.shuffle_rounds_two_terms(setting.delta, 1.0), round(float(setting.rounds))
        bought = advantage(1.0, taken, setting.epochs, QUICK_TOLERANCE)
        how = "√E δ = 0.01" if setting in published.CONJECTURED else "E δ = 0.01"
        records = two_terms / published.NOISE_PER_ROUND
        asked.add(rounds=two_terms, taken=taken, records=records, advantage=bought).unlisted(how=how, setting=setting)
        if setting in published.CONJECTURED:
            continue
        tolerance = TOLERANCE if setting.epochs == 1 else QUICK_TOLERANCE
        low, high = fewest_rounds(published.DELTA, 1.0, setting.epochs, tolerance)
        run, solved = {"epochs": setting.epochs, "delta_per_epoch": setting.delta}, _asked(setting.delta, 1.0)
        table.add(**run, rounds_thm41=solved["rounds_thm41"], rounds_low=low, rounds_high=high)
        kept = -math.expm1(setting.epochs * math.log1p(-setting.delta))
        asked.unlisted(kept=kept, pair=(low, high))
    first, small, half = (theorem.shuffle_rounds_two_terms(delta, 1.0) for delta in (published.DELTA, 1e-4, 0.005))
    claims.unlisted(beyond=_beyond(published.DELTA, 1.0), thumb=1e-8 * small, halved=half / first)
    facts = {"rounds": theorem.shuffle_rounds(published.DELTA, 1.0)}
    return Computed([table, asked, claims], facts | {"delta": theorem.shuffle_delta(1.0, 1_140_000).delta})


def figure_1(progress: ItemProgress) -> Computed:
    """delta against M for five noise multipliers: Theorem 4.1 from its first M on, and the pair itself."""
    table = Sheet("curves")
    for sigma in watched(published.NOISE_MULTIPLIERS, progress):
        start = theorem.shuffle_rounds(_FIRST_POSSIBLE, sigma)
        for m in (start, *(round(m) for m in np.geomspace(start, 1e11, 60)[1:])):
            delta = theorem.shuffle_delta(sigma, m).delta
            table.add(noise_multiplier=sigma, rounds=float(m), what="theorem 4.1", delta=(delta, delta))
        for m in _EXACT_ROUNDS:
            bounds = advantage(sigma, m, tolerance=QUICK_TOLERANCE)
            table.add(noise_multiplier=sigma, rounds=m, what="pair", delta=bounds)
        claimed = theorem.shuffle_delta(sigma, 10**8).delta
        table.unlisted(first=start, least=math.exp(3.0 / sigma**2), claimed=claimed, shown=bounds)
        table.unlisted(excess=(claimed / bounds[1], claimed / bounds[0]))
    # The upper bound at one noise multiplier against the lower bound at the one before, at the same M.
    pairs = [pair for m in _EXACT_ROUNDS for pair in pairwise(table.where(rounds=m, what="pair"))]
    grows = sum(after["delta"][1] >= before["delta"][0] for before, after in pairs)
    return Computed([table, Sheet("claims").unlisted(grows=grows)])


def least_noise() -> float:
    """The sigma that needs the fewest rounds by Equation (3): golden-section search of a function with one valley."""
    low, high = 0.5, 2.0
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    while high - low > 1e-9:
        left, right = high - golden * (high - low), low + golden * (high - low)
        asked = [theorem.shuffle_rounds_two_terms(published.DELTA, sigma) for sigma in (left, right)]
        low, high = (low, right) if asked[0] < asked[1] else (left, high)
    return 0.5 * (low + high)


def figure_3(progress: ItemProgress) -> Computed:
    """Rounds against the noise multiplier for three targets: Equation (3), Equation (53), and the pair itself."""
    table, pair, claims = Sheet("rounds"), Sheet("pair", listed=False), Sheet("claims")
    for delta in watched(published.FIGURE_3_DELTAS, progress):
        drawn = np.geomspace(0.4, 3.7, 61).tolist()
        for s in drawn:
            asked = {name: float(rounds) for name, rounds in _asked(delta, s).items()}
            table.add(delta=delta, noise_multiplier=s, **asked).unlisted(limit=limit_rounds(delta, s))
        short = max(0.0, *(_beyond(delta, s) for s in drawn))
        for place, s in enumerate(published.NOISE_MULTIPLIERS if delta == published.DELTA else (1.0, 2.0)):
            needed = fewest_rounds(delta, s, tolerance=_DRAWN_TOLERANCE)
            pair.add(delta=delta, noise_multiplier=s, asked=theorem.shuffle_rounds_two_terms(delta, s), rounds=needed)
            pair.unlisted(short=None if place else short)
    least = least_noise()
    claims.unlisted(least=least, beyond=_beyond(published.DELTA, 4.0))
    return Computed([table, pair, claims], {"least_noise": least})


def shuffled_batches(progress: ItemProgress) -> Computed:
    """The entries of Table 1, and sigma = 0.5 with ten billion rounds, under the attack on shuffled batches."""
    entries = [(sigma, theorem.shuffle_rounds(published.DELTA, sigma)) for sigma in published.NOISE_MULTIPLIERS]
    table = Sheet("advantages")
    for sigma, rounds in watched((*entries, (0.5, _MANY_ROUNDS)), progress):
        isolated, event = advantage(sigma, rounds, 1, QUICK_TOLERANCE), shuffle_delta_lower(0.0, sigma, rounds).delta
        attack, most = ShuffleAttack(sigma, rounds).best_test(0.0).delta, shuffle_delta_upper(0.0, sigma, rounds)
        run = {"noise_multiplier": sigma, "rounds": rounds, "thm41": theorem.shuffle_delta(sigma, rounds).delta}
        table.add(**run, isolated=isolated, event_lower=event, attack_lower=attack, fixed_batches_upper=most)
        table.unlisted(shuffled=(attack, most), by_event=(event, most))
    return Computed([table])


def largest_delta(noise_multiplier: float) -> float:
    """(2/3)(1/2 - Phi(-(e^(1/sigma^2) - 1)/2)): up to this delta Equation (3) implies Equation (4)."""
    return float(erf(0.5 * ratio.ratio_variance(noise_multiplier) / math.sqrt(2.0))) / 3.0


def interpretation() -> Computed:
    """Section 4.1: where Equation (3) is enough, and how delta scales when sigma shrinks with M."""
    # The sigma up to which `largest_delta` is at least delta, by bisection of a decreasing function.
    edge = bisect(0.1, 1e3, lambda sigma: largest_delta(sigma) >= published.DELTA, 50)[0]
    sigma = _FAR_S / math.sqrt(math.log(_FAR_ROUNDS))
    unit = ratio.SHEVTSOVA * float(_FAR_ROUNDS) ** (-0.5 * (1.0 - 3.0 / _FAR_S**2))
    bound = theorem.shuffle_delta(sigma, _FAR_ROUNDS)
    implied = theorem.shuffle_condition_rounds(edge) / theorem.shuffle_rounds_two_terms(published.DELTA, edge)
    table = Sheet().unlisted(edge=edge, most=largest_delta(1.0), implied=implied, multiple=bound.delta / unit)
    return Computed([table.unlisted(condition=(bound.delta + 0.5 * bound.berry_esseen_term) / unit)])


def constants() -> Computed:
    """The constants of the proofs: each is what it has to be, or on the safe side of it."""

    def excess(sigma: float) -> tuple[float, float]:
        """Equations (20) and (21) over Equation (19)."""
        exact, low = ratio.berry_esseen_distance(sigma, 1), ratio.berry_esseen_distance_low_noise(sigma, 1)
        return ratio.berry_esseen_distance_high_noise(sigma, 1) / exact, low / exact

    table = Sheet().unlisted(
        esseen=(math.sqrt(10.0) + 3.0) / (6.0 * math.sqrt(2.0 * math.pi)),
        numerator=math.sqrt(2.0 / math.pi) * 2.0**2.5,
        first=5.0 / math.sqrt(3.0),
        second=2.0 * math.sqrt(3.0) * math.log(2.0),
        smallest=16.0 * math.sqrt(2.0) / 9.0,
        least_20=min(excess(float(s))[0] for s in _GRID),
        least_21=min(excess(float(s))[1] for s in _GRID),
        low=excess(0.5)[1],
        two=excess(2.0)[1],
        high=excess(100.0)[0],
        middle=min(excess(1.7)),
    )
    return Computed([table], {"middle": min(excess(1.7))})
