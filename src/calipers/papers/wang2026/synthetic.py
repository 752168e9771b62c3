"""Figures 2 and 3: audits of synthetic data, and what they are audits of.

The paper plays one round many times, scores it by normality tests (Algorithm 1) and reports what the error rates
prove. It does not say which synthetic gradients, which test and which aggregation. Here:

- the dataset is the worst one we know: all other gradients opposite to the new one;
- the exact leakage of a round is known from both sides, so an audit has something to be compared with;
- the quick items score by the exact likelihood ratio, which no test can beat; the slow ones by Algorithm 1 with the
  variance test and the aggregation by best fit (division by N q) or by votes (division by |B|), the better choice of
  `calipers.auditing.normality` in each case.

**What Section 5.2 sees.** It reports that under division by |B| the leakage does not always fall with N, and explains
it by two terms of the guarantee that move in opposite directions. Those are the terms of the guarantee with the batch
and the membership revealed, and that one is indeed not monotone. The leakage itself falls: its brackets at N and N + 1
do not even overlap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from calipers.auditing.audit import AuditOptions, AuditResult, audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.distinguishers import Distinguisher, LikelihoodRatio
from calipers.auditing.normality import NormalityTest
from calipers.papers.items import ItemProgress, NumberPair, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.wang2026 import published, settings
from calipers.run import Run
from calipers.theorems.division_guarantees import batch_delta

QUICK_TRIALS = 2_500
ASKED: AuditOptions = {"confidence": published.CONFIDENCE, "deltas": (published.DELTA,), "epsilons": (0.0,)}
_NAMES = {"expected": "divided by N q", "realized": "divided by |B|"}


def play(run: Run, seed: int, trials: int = QUICK_TRIALS, *, normality: bool = False) -> AuditResult:
    """An audit of one round with opposite gradients, at epsilon = 0 and at delta = 1e-5.

    Post-condition: each lower bound of the result exceeds the truth with probability at most 5 %.
    """
    target = NoisySums.of_run(run, gradient=-1, vectors=normality)
    score: Distinguisher = LikelihoodRatio(target)
    if normality:
        score = NormalityTest(target, aggregation="vote" if run.normalization == "realized" else "best-fit")
    return audit(target, score, trials=trials, seed=seed, **ASKED)


def audit_note(trials: int, *, normality: bool = False) -> str:
    """How an audited number was found."""
    score = "normality tests" if normality else "likelihood ratio"
    return f"lower bound with 95 % confidence; {score}, {trials:,} runs of each dataset"


def smallest_step(brackets: Sequence[NumberPair], sign: float) -> NumberPair:
    """The least of sign * (next - this) over consecutive brackets, as a bracket."""
    steps = [sorted((sign * (b[0] - a[1]), sign * (b[1] - a[0]))) for a, b in pairwise(brackets)]
    return min(step[0] for step in steps), min(step[1] for step in steps)


def figure_2(progress: ItemProgress, normalization: str, normality: bool = False) -> Computed:
    """delta(0) against N at several rates; by Algorithm 1 on full vectors and the paper's number of trials if asked."""
    trials, realized = published.TRIALS if normality else QUICK_TRIALS, normalization == "realized"
    rates = published.REALIZED_RATES if realized else published.EXPECTED_RATES
    table, falls, rises = Sheet("leakage"), Sheet("falls", listed=False), Sheet("rises", listed=False)
    for rate, size in watched(itertools.product(rates, published.AUDITED_SIZES), progress):
        run = settings.rounds(normalization, size, rate, published.FIGURE_2_DIMENSION)
        exact = settings.delta_bounds(run)
        theorem = batch_delta(0.0, settings.coordinates_of(run), size, rate, run.noise_multiplier)
        audited = play(run, len(table.records), trials, normality=normality).delta[0].value
        found = {"lower": exact[0], "upper": exact[1], "audited": audited, "claimed": settings.claimed_delta(rate, 0.0)}
        table.add(others=size, rate=rate, **found, theorem_3_7=theorem if realized else "")
        table.unlisted(exact=exact, middle=0.5 * sum(exact))
    claims = [(r["lower"] - r["claimed"], r["upper"] - r["claimed"]) for r in table.records]
    least = min(low for low, _ in claims), min(high for _, high in claims)
    # Does delta(0) fall with N at every rate, and (division by |B|) rise with q at every N?
    for rate in rates:
        seen = realized and rate in published.NOT_MONOTONE_RATES
        falls.add(rate=rate, fall=smallest_step([r["exact"] for r in table.where(rate=rate)], -1.0))
        falls.unlisted(said="< 0" if seen else "> 0", note="Section 5.2 sees a rise" if seen else "")
        if seen:
            # The same fall of the guarantee of Theorem 3.7, which reveals batch and membership.
            low, high = smallest_step([(r["theorem_3_7"],) * 2 for r in table.where(rate=rate)], -1.0)
            falls.unlisted(theorem=(low - 1e-9, high + 1e-9))
    for size in published.AUDITED_SIZES if realized else ():
        rises.add(size=size, rise=smallest_step([r["exact"] for r in table.where(others=size)], 1.0))
    tables = [table, Sheet("claims").unlisted(least=least), falls, rises]
    return Computed(tables, {"audit": audit_note(trials, normality=normality)})


def guarantees(panels: Iterable[tuple[str, str, float, float, float]]) -> Sheet:
    """What (epsilon, 1e-5) allows, by panel and label: of the exact epsilon from below, audited, and claimed.

    Where nothing but the audit is known, it stands for the exact one.
    """
    lines, room, claims = Sheet("lines", listed=False), 1.0 - published.DELTA, dict[tuple[str, float], str]()
    fpr = np.linspace(0.0, 1.0, 401)

    def add(panel: str, kind: str, name: str, label: str, epsilon: float) -> None:
        level = min(epsilon, 700.0)
        fnr = np.maximum(np.maximum(room - np.exp(level) * fpr, np.exp(-level) * (room - fpr)), 0.0)
        words = {"panel": panel, "kind": kind, "name": name, "label": label}
        lines.records += [words | {"fpr": a, "fnr": b} for a, b in zip(fpr.tolist(), fnr.tolist(), strict=True)]

    for panel, label, lower, audited, claim in panels:
        known = f"ε ≥ {lower:.4g}, " if lower > audited else ""
        add(panel, "exact", label, f"{label}: {known}audited ε = {audited:.3g}", lower)
        add(panel, "audited", label, "", audited if known else math.nan)
        claims.setdefault((panel, claim), label)
    for (panel, claim), label in sorted(claims.items()):
        whose = f", {label}" if sum(other == panel for other, _ in claims) > 1 else ""
        add(panel, "claim", str(claim), f"claimed{whose}: ε = {claim:.3g}", claim)
    return lines


def figure_3(progress: ItemProgress, normality: bool = False) -> Computed:
    """epsilon at delta = 1e-5 for six dimensions and both divisors; audited as in Figure 2."""
    trials, table, panels = published.TRIALS if normality else QUICK_TRIALS, Sheet("epsilon"), []
    rates = {"expected": published.FIGURE_3_EXPECTED_RATE, "realized": published.FIGURE_3_REALIZED_RATE}
    cases = itertools.product(rates.items(), published.FIGURE_3_DIMENSIONS)
    for (normalization, rate), dimension in watched(cases, progress):
        run = settings.rounds(normalization, published.FIGURE_3_SIZE, rate, dimension)
        exact, claim = settings.epsilon_bounds(run), settings.claimed_epsilon(rate, published.DELTA)
        audited = play(run, len(table.records), trials, normality=normality).epsilon[0].value
        ours = {"epsilon_audited": audited, "epsilon_claimed": claim}
        table.add(normalization=normalization, dimension=dimension, epsilon=exact, **ours)
        table.unlisted(name=_NAMES[normalization], excess=(exact[0] - claim, exact[1] - claim))
        panels.append((normalization, f"n = {dimension}", exact[0], audited, claim))
    facts = {"trials": f"{trials:,}", "most": np.log(trials), "audit": audit_note(trials, normality=normality)}
    return Computed([table, guarantees(panels)], facts)
