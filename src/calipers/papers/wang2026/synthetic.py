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
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.distinguishers import Distinguisher, LikelihoodRatio
from calipers.auditing.normality import NormalityTest
from calipers.papers.items import Interval, Outcome, Picture, Progress, Row, Table, watched
from calipers.papers.wang2026 import drawing, published
from calipers.papers.wang2026.settings import (
    claimed_delta,
    claimed_epsilon,
    coordinates_of,
    delta_jaws,
    epsilon_jaws,
    others_in,
    rounds,
)
from calipers.run import Run
from calipers.theorems.division_guarantees import batch_delta

QUICK_TRIALS = 2_500
_NAMES = {"expected": "divided by N q", "realized": "divided by |B|", "floor": "divided by floor(N q)"}


def play(run: Run, seed: int, trials: int = QUICK_TRIALS, *, normality: bool = False) -> AuditResult:
    """An audit of one round with opposite gradients, at epsilon = 0 and at delta = 1e-5.

    Post-condition: each lower bound of the result exceeds the truth with probability at most 5 %.
    """
    target = NoisySums(
        others=others_in(run),
        sample_rate=run.rate,
        noise_multiplier=run.noise_multiplier,
        epochs=run.total_steps,
        dimension=coordinates_of(run),
        normalization=run.normalization,
        gradient=-1,
        vectors=normality,
    )
    score: Distinguisher = LikelihoodRatio(target)
    if normality:
        score = NormalityTest(target, aggregation="vote" if run.normalization == "realized" else "best-fit")
    return audit(
        target,
        score,
        trials=trials,
        seed=seed,
        confidence=published.CONFIDENCE,
        deltas=(published.DELTA,),
        epsilons=(0.0,),
    )


def audit_note(trials: int, *, normality: bool = False) -> str:
    """How an audited number was found."""
    score = "normality tests" if normality else "likelihood ratio"
    return f"lower bound with 95 % confidence; {score}, {trials:,} runs of each dataset"


def smallest_step(brackets: Sequence[Interval], sign: float) -> Interval:
    """The least of sign * (next - this) over consecutive brackets, as a bracket."""
    steps = [
        sorted((sign * (after[0] - before[1]), sign * (after[1] - before[0]))) for before, after in pairwise(brackets)
    ]
    return min(step[0] for step in steps), min(step[1] for step in steps)


def _grid(normalization: str, rates: tuple[float, ...]) -> dict[tuple[int, float], Run]:
    dimension = published.FIGURE_2_DIMENSION
    return {
        (size, rate): rounds(normalization, size, rate, dimension) for rate in rates for size in published.AUDITED_SIZES
    }


def _trends(exact: dict[tuple[int, float], Interval], rates: tuple[float, ...], realized: bool) -> list[Row]:
    """Does delta(0) fall with N at every rate, and (division by |B|) rise with q at every N?"""
    rows = []
    for rate in rates:
        said = "< 0" if realized and rate in published.NOT_MONOTONE_RATES else "> 0"
        note = "Section 5.2 sees a rise" if said == "< 0" else ""
        fall = smallest_step([exact[size, rate] for size in published.AUDITED_SIZES], -1.0)
        rows.append(Row.of(f"q = {rate:g}: least fall of δ(0) from N to N + 1", said, fall, note=note))
    for size in published.AUDITED_SIZES if realized else ():
        rise = smallest_step([exact[size, rate] for rate in rates], 1.0)
        rows.append(Row.of(f"N = {size}: least rise of δ(0) with q", "> 0", rise))
    return rows


def _theorem_rows(theorem: dict[tuple[int, float], float]) -> list[Row]:
    """The same fall of the guarantee of Theorem 3.7, which reveals batch and membership."""
    rows = []
    for rate in published.NOT_MONOTONE_RATES:
        values = [(theorem[size, rate],) * 2 for size in published.AUDITED_SIZES]
        low, high = smallest_step(values, -1.0)
        quantity = f"q = {rate:g}: least fall of Theorem 3.7's δ(0) from N to N + 1"
        rows.append(Row.of(quantity, "< 0", (low - 1e-9, high + 1e-9), "closed form"))
    return rows


def figure_2(progress: Progress, normalization: str, normality: bool = False) -> Outcome:
    """delta(0) against N at several rates; by Algorithm 1 on full vectors and the paper's number of trials if asked."""
    trials = published.TRIALS if normality else QUICK_TRIALS
    realized = normalization == "realized"
    rates = published.REALIZED_RATES if realized else published.EXPECTED_RATES
    exact: dict[tuple[int, float], Interval] = {}
    audited: dict[tuple[int, float], float] = {}
    theorem: dict[tuple[int, float], float] = {}
    rows, table = [], Table("leakage")
    for key, run in watched(_grid(normalization, rates).items(), progress):
        size, rate = key
        exact[key] = delta_jaws(run)
        audited[key] = play(run, len(table.records), trials, normality=normality).delta[0].value
        claim = claimed_delta(rate, 0.0)
        name = f"N = {size}, q = {rate:g}: "
        rows += [
            Row.of(f"{name}δ(0)", None, exact[key]),
            Row.of(f"{name}audited δ(0)", None, audited[key], "estimate", audit_note(trials, normality=normality)),
        ]
        if realized:
            theorem[key] = batch_delta(0.0, coordinates_of(run), size, rate, run.noise_multiplier)
        found = {"lower": exact[key][0], "upper": exact[key][1], "audited": audited[key], "claimed": claim}
        table.add(others=size, rate=rate, **found, theorem_3_7=theorem.get(key, ""))
    above = [
        (low - claimed_delta(key[1], 0.0), high - claimed_delta(key[1], 0.0)) for key, (low, high) in exact.items()
    ]
    least = min(low for low, _ in above), min(high for _, high in above)
    rows.append(Row.of("least δ(0) − claimed δ(0)", "> 0", least))
    rows += _trends(exact, rates, realized)
    if realized:
        rows += _theorem_rows(theorem)
    title = f"Figure 2 ({'b' if realized else 'a'}): {_NAMES[normalization]}, n = {published.FIGURE_2_DIMENSION}"
    picture = Picture.on_axes((7.6, 4.8), drawing.draw_leakage, title, exact, audited, theorem)
    return Outcome(rows, data=(table.data,), picture=picture)


def figure_3(progress: Progress, normality: bool = False) -> Outcome:
    """epsilon at delta = 1e-5 for six dimensions and both divisors; audited as in Figure 2."""
    trials = published.TRIALS if normality else QUICK_TRIALS
    rows, table = [], Table("epsilon")
    panels: dict[str, list[drawing.Epsilons]] = {}
    rates = {"expected": published.FIGURE_3_EXPECTED_RATE, "realized": published.FIGURE_3_REALIZED_RATE}
    settings = itertools.product(rates.items(), published.FIGURE_3_DIMENSIONS)
    for (normalization, rate), dimension in watched(settings, progress):
        run = rounds(normalization, published.FIGURE_3_SIZE, rate, dimension)
        exact, claim = epsilon_jaws(run), claimed_epsilon(rate, published.DELTA)
        audited = play(run, len(table.records), trials, normality=normality).epsilon[0].value
        name = f"{_NAMES[normalization]}, n = {dimension}: "
        rows += [
            Row.of(f"{name}ε", None, exact),
            Row.of(f"{name}audited ε", None, audited, "estimate", audit_note(trials, normality=normality)),
            Row.of(f"{name}ε − claimed ε", "> 0", (exact[0] - claim, exact[1] - claim)),
        ]
        curve = drawing.Epsilons(f"n = {dimension}", *exact, audited, claim)
        panels.setdefault(f"{_NAMES[normalization]}, q = {rate:g}", []).append(curve)
        ours = {"epsilon_audited": audited, "epsilon_claimed": claim}
        table.add(normalization=normalization, dimension=dimension, epsilon=exact, **ours)
    facts = {"trials": f"{trials:,}", "most": np.log(trials)}
    picture = Picture(partial(drawing.draw_panels, panels, (1, 2)), (11.0, 5.6))
    return Outcome(rows, data=(table.data,), picture=picture, facts=facts)
