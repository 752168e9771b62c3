"""Two claims of the text that have no figure: substitution by group privacy, and the limit of large L.

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
"""

from __future__ import annotations

import math

from calipers.laws.allocated.average_tests import MaximumTests
from calipers.numerics.normal import GAUSSIAN_RELATIVE_ERROR, gaussian_epsilon
from calipers.papers.chua2024 import published
from calipers.papers.chua2024.settings import deterministic_delta_bracket, epoch, poisson, shuffle_epsilon_bracket
from calipers.papers.items import Outcome, Progress, Row, Table, watched
from calipers.run import Run

_PULLS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


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


def substitution(progress: Progress) -> Outcome:
    """Whether shuffling still leaks more than Poisson batches when a record is replaced instead of zeroed out."""
    figure = published.FIGURE_1
    rows, table = [], Table()
    for quote in watched(figure.quotes, progress):
        run = epoch(quote.noise_multiplier, figure.steps)
        grouped = group_privacy_epsilon(run, figure.delta)
        tight = poisson(run, "substitute").epsilon(figure.delta)
        lower = shuffle_epsilon_bracket(run, figure.delta)[0]
        fixed = gaussian_epsilon(2.0 / run.noise_multiplier, figure.delta) * (1.0 + 4.0 * GAUSSIAN_RELATIVE_ERROR)
        name = f"σ = {quote.noise_multiplier:g}: "
        gap = lower - grouped, fixed - tight.lower
        rows += [
            Row.of(f"{name}ε_P under substitution, group privacy", None, grouped, "estimate", "upper bound"),
            Row.of(f"{name}ε_P under substitution", None, tight),
            Row.of(f"{name}ε_S under substitution", None, (lower, fixed), note="attack to deterministic batches"),
            Row.of(f"{name}ε_S − ε_P under substitution", "> 0", gap, note="lower end by group privacy alone"),
        ]
        sigma = quote.noise_multiplier
        table.add(noise_multiplier=sigma, group_privacy=grouped, poisson=tight, shuffle=(lower, fixed))
    return Outcome(rows, data=(table.data,))


def large_pull(progress: Progress) -> Outcome:
    """What the event {max_t w_t >= C} shows when the other records pull by -L; L = 1 is Equation (3)."""
    figure = published.FIGURE_7
    run = epoch(figure.noise_multiplier, figure.steps)
    rows, table = [], Table()
    epsilon = figure.quotes[0].epsilon
    limit = deterministic_delta_bracket(run, epsilon)
    for pull in watched(_PULLS, progress):
        tests = MaximumTests(run.noise_multiplier, run.total_steps, pull + 1.0, pull)
        shown, threshold = tests.delta(epsilon, False)
        note = "Equation (3)" if pull == 1.0 else ""
        rows.append(Row.of(f"L = {pull:g}: δ({epsilon:g})", None, (shown, limit[1]), note=note))
        table.add(pull=pull, shown=shown, threshold=threshold, limit=limit[1])
    rows.append(Row.of(f"δ_D({epsilon:g})", None, limit, "closed form"))
    return Outcome(rows, data=(table.data,))
