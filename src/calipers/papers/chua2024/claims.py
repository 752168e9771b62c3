"""What the text says without a figure: substitution by group privacy, the limit of large L, and Conjecture 3.2.

**Substitution (Section 2.2).** Replacing a record is zeroing it out and zeroing another one in, so a mechanism that is
(eps, delta)-DP under zero-out is (2 eps, delta (1 + e^eps))-DP under substitution. For a target delta the smallest such
2 eps solves eps = g(eps), g(eps) = epsilon_P(delta / (1 + e^eps)); g increases, so from any start above the solution
the iterates fall towards it and each is valid: with eps' = g(eps) <= eps,

    delta_P(eps') (1 + e^eps') <= delta (1 + e^eps') / (1 + e^eps) <= delta.

From below, an attack under zero-out is one under substitution: a record whose gradient is 0 shows what an empty place
shows. From above, one Gaussian with twice the shift.

**The limit of L (Section 4.3.1).** Were the other records allowed to pull by -L, the batch of the differing one would
stand out by L + 1 or by L. The event {max_t w_t >= C} then finds it for large L, and what is left to tell apart is one
Gaussian from another. Joint convexity (Lemma B.1) bounds the divergence by delta_D for every L.

**Conjecture 3.2.** The paper proves a lower bound with one dataset, in which the record is at odds with all others in
every step, and conjectures that no adaptive queries leak more. Two batches decide it
(`calipers.theorems.shuffle_conjecture`): a record that agrees with the others in the second batch once the first one
has given something leaks more, and both numbers are certified. With more batches the same idea, carried out on the
running sum (`calipers.pld.allocation.adaptive_sign`), is shown next to the best test of the conjectured pair.
"""

from __future__ import annotations

import math

from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_epsilon
from calipers.papers.chua2024 import published
from calipers.papers.chua2024.settings import deterministic, epoch, poisson, shuffled
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack
from calipers.pld.allocation.average_tests import MaximumTests
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.run import Run
from calipers.theorems.shuffle_conjecture import two_batches

_PULLS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_TWO = ((2.0, 0.5), (1.0, 0.5), (5.0, 0.1), (20.0, 0.05), (2.0, 0.0))
_MORE = ((2.0, 100, 0.7), (5.0, 100, 0.05), (1.0, 30, 2.0), (4.0, 20, 0.3))


def group_privacy_epsilon(run: Run, delta: float) -> float:
    """At least epsilon_P(delta) under substitution: 2 eps with delta_P(eps) (1 + e^eps) <= delta."""
    found = poisson(run)

    def following(epsilon: float) -> float:
        return found.epsilon(delta / (1.0 + math.exp(epsilon))).upper

    epsilon = 2.0 * found.epsilon(delta).upper
    while (smaller := following(epsilon)) > epsilon:
        epsilon *= 2.0
    # Every iterate is valid from here on; one that gains next to nothing ends the search.
    while smaller < epsilon * (1.0 - 1e-4):
        epsilon, smaller = smaller, following(smaller)
    return 2.0 * epsilon


def substitution(progress: ItemProgress) -> Computed:
    """Whether shuffling still leaks more than Poisson batches when a record is replaced instead of zeroed out."""
    figure, table = published.FIGURE_1, Sheet()
    for quote in watched(figure.quotes, progress):
        run = epoch(quote.noise_multiplier, figure.steps)
        grouped, tight = group_privacy_epsilon(run, figure.delta), poisson(run, "substitute").epsilon(figure.delta)
        lower = shuffled(run, "epsilon", figure.delta)[0]
        fixed = gaussian_epsilon(2.0 / run.noise_multiplier, figure.delta) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)
        sigma = quote.noise_multiplier
        table.add(noise_multiplier=sigma, group_privacy=grouped, poisson=tight, shuffle=(lower, fixed))
        table.unlisted(gap=(lower - grouped, fixed - tight.lower))
    return Computed([table])


def large_pull(progress: ItemProgress) -> Computed:
    """What the event {max_t w_t >= C} shows when the other records pull by -L; L = 1 is Equation (3)."""
    figure, table = published.FIGURE_7, Sheet()
    run, epsilon = epoch(figure.noise_multiplier, figure.steps), figure.quotes[0].epsilon
    limit = deterministic(run, "delta", epsilon)
    for pull in watched(_PULLS, progress):
        shown, threshold = MaximumTests(run.noise_multiplier, run.total_steps, pull + 1.0, pull).delta(epsilon, False)
        table.add(pull=pull, shown=shown, threshold=threshold, limit=limit[1]).unlisted(delta=(shown, limit[1]))
        table.unlisted(note="Equation (3)" if pull == 1.0 else "")
    table.unlisted(fixed=limit)
    return Computed([table], {"epsilon": epsilon})


def conjecture(progress: ItemProgress) -> Computed:
    """What the attack shows against what the conjecture allows, at two batches; then with more of them."""
    table = Sheet()
    for sigma, rounds, epsilon in watched((*((sigma, 2, epsilon) for sigma, epsilon in _TWO), *_MORE), progress):
        fixed = deterministic(epoch(sigma, rounds), "delta", epsilon)[1]
        pair = ShuffleAttack(sigma, rounds).best_delta(epsilon)[0]
        run = {"noise_multiplier": sigma, "steps": rounds, "epsilon": epsilon, "pair_lower": pair}
        if rounds == 2:
            found = two_batches(epsilon, sigma)
            shown, most, note = found.delta, found.conjectured, "attack to deterministic batches"
            table.add(**run, pair_upper=most, adaptive=shown, deterministic=fixed)
            table.unlisted(pair=(pair, most), gap=(shown - most, fixed - pair))
        else:
            shown = AdaptiveSignAttack(sigma, rounds, tuned=epsilon).delta(epsilon)[0]
            note = f"the best test found of the conjectured pair shows {pair:.5g}"
            table.add(**run, pair_upper="", adaptive=shown, deterministic=fixed)
        table.unlisted(shown=(shown, fixed), note=note)
    return Computed([table])
