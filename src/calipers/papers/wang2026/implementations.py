"""Figures 4 and 6: audits of real implementations.

**By update rule.** Section 5.3 audits one round of four methods on five images. What such a round releases is a
noisy sum of clipped gradients, divided by N q (DPSGD-HF, PrivImage, DP-FETA as their papers say) or by |B| (DPSUR), in
as many coordinates as the model has parameters; Appendix A.3 divides by floor(N q). These rules are the built-in
targets, so `figure_4` and `figure_6` need no training library. Real gradients point in different directions; ours
are opposite, the worst case we know. In so many coordinates that changes nothing visible: the length of the noise tells
the divisors apart.

**By the published code.** Section 5.1 also says what the code of these methods really divides by: DPSGD-HF runs on
Opacus 0.13 (|B|), PrivImage and DP-FETA on Opacus 1.0 (floor(N q)); the paper audits them under Opacus 0.15 instead,
whose rule is that of their texts. Both readings are computed; the code bases themselves are not run.

**By the installed Opacus.** `figure_4_opacus` and `figure_6_opacus` run `PrivacyEngine` itself on a network with
26,010 parameters (see `calipers.adapters.opacus_target`). Which rule the installed release follows is in Table 2; from
1.0 on it is floor(N q), with q chosen by its data loader. Three records with batches of two (Figure 6) give
q = 1/2 and divisors 1 and 2. Four records with one batch of five (Figure 4) give q = 1 and divisors 4 and 5, where
division by N q, floor(N q) and |B| are the same. `loss_reduction="sum"` divides by nothing and is played next to it.

Images are read from the folder named by the environment variable CALIPERS_DATA: mnist.npz (x_train, y_train),
cifar10_test.npz (x, y; averaged over colors and cropped to 28 x 28). Without it they are drawn from a seed.
"""

from __future__ import annotations

import math
import os
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers.adapters.opacus_library import opacus_module
from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.distinguishers import ScoreFunction
from calipers.errors import InputError
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.papers.wang2026 import published, settings
from calipers.papers.wang2026.synthetic import ASKED, audit_note, guarantees, play
from calipers.run import Run

DATA_FOLDER = "CALIPERS_DATA"
RULE_TRIALS = 10_000
_WORDS = {"realized": "|B|", "floor": "floor(N q)"}


def _epsilons(run: Run) -> tuple[float, float]:
    """From both sides where that is quick; for the large models the test of the length from below, nothing above.

    A floor that is the same for both datasets is post-processing: epsilon is the claim's.
    """
    before, after = (math.floor(size * run.rate) for size in (settings.others_in(run), settings.others_in(run) + 1))
    if run.normalization == "floor" and before == after:
        claim = settings.claimed_epsilon(run.rate, published.DELTA)
        return claim * (1.0 - 1e-10), claim
    if settings.coordinates_of(run) == published.LARGE_MODEL:
        return settings.length_epsilon(run, published.DELTA), float("inf")
    return settings.epsilon_bounds(run)


def _add(table: Sheet, what: str, run: Run, epsilon: float, delta: float) -> None:
    """What is known of a run and what an audit found."""
    exact, claim = _epsilons(run), settings.claimed_epsilon(run.rate, published.DELTA)
    found = {"epsilon_audited": epsilon, "delta_0_audited": delta, "claim": claim}
    table.add(what=what, rate=run.rate, dimension=settings.coordinates_of(run), epsilon=exact, **found)
    table.unlisted(excess=(exact[0] - claim, exact[1] - claim))


def _add_rule(table: Sheet, name: str, run: Run) -> None:
    found = play(run, len(table.records), RULE_TRIALS)
    _add(table, name, run, found.epsilon[0].value, found.delta[0].value)


def _lines(table: Sheet, panel: str = "what") -> Sheet:
    """The pictures' lines, labeled by the rate; `panel` names the cell that says in which picture."""
    return guarantees(
        (r[panel], f"q = {r['rate']:g}", r["epsilon"][0], r["epsilon_audited"], r["claim"]) for r in table.records
    )


def code_rules() -> Sheet:
    """The same methods by the divisor of their published code: nothing is printed of these, and nothing audited."""
    table = Sheet("code", listed=False)
    for method, rate in [(each, rate) for each in published.CODE_METHODS for rate in each.rates]:
        run = settings.rounds(method.normalization, published.FIGURE_4_SIZE, rate, method.dimension)
        _add(table, method.name, run, math.nan, math.nan)
        table.unlisted(divisor=_WORDS[method.normalization])
    return table


def figure_4(progress: ItemProgress) -> Computed:
    """Four methods at N = 4 by their update rules: exact, audited, claimed."""
    table, size = Sheet("rules"), published.FIGURE_4_SIZE
    cases = [(method, rate) for method in published.METHODS for rate in method.rates]
    for method, rate in watched(cases, progress):
        run = settings.rounds(method.normalization, size, rate, method.dimension)
        _add_rule(table, f"{method.name}, q = {rate:g}: ", run)
        table.unlisted(method=method.name)
    # Division by |B| leaks more at q = 0.8 than at 0.7, and less than division by N q.
    dpsur = published.METHODS[1]
    low, high = (
        settings.delta_bounds(settings.rounds("realized", size, rate, dpsur.dimension), 0.0, 1e-2)
        for rate in dpsur.rates
    )
    other = settings.delta_bounds(settings.rounds("expected", size, dpsur.rates[0], dpsur.dimension), 0.0, 1e-2)
    claims = Sheet("claims").unlisted(rate=(high[0] - low[1], high[1] - low[0]))
    claims.unlisted(divisor=(other[0] - low[1], other[1] - low[0]))
    return Computed([table, claims, code_rules(), _lines(table, "method")], {"audit": audit_note(RULE_TRIALS)})


def figure_6() -> Computed:
    """Division by floor(N q) with three records against four, q = 1/2, in DP-FETA's 1,485,217 coordinates."""
    size, rate, table = published.FIGURE_6_SIZE, published.FIGURE_6_RATE, Sheet("rules")
    _add_rule(table, "", settings.rounds("floor", size, rate, published.LARGE_MODEL))
    lines, few = _lines(table), settings.delta_bounds(settings.rounds("floor", size, rate, 10))
    return Computed([table, Sheet("claims").unlisted(few=few), lines], {"audit": audit_note(RULE_TRIALS)})


class Records(NamedTuple):
    """Images of 28 x 28 with labels, and where they come from."""

    source: str
    images: NDArray[np.uint8] | None
    labels: NDArray[np.int64] | None


def read_records(count: int) -> list[Records]:
    """The first `count` images of every file in the folder that CALIPERS_DATA names; drawn ones if it names none."""
    named = os.environ.get(DATA_FOLDER)
    if named is None:
        return [Records("images drawn from a seed", None, None)]
    folder, found = Path(named), []
    for name, file, pixels, labels in (
        ("MNIST", "mnist.npz", "x_train", "y_train"),
        ("CIFAR-10", "cifar10_test.npz", "x", "y"),
    ):
        if (folder / file).is_file():
            with np.load(folder / file) as held:
                images, classes = np.asarray(held[pixels][:count]), np.asarray(held[labels][:count])
            if images.ndim == 4:
                images = images.mean(axis=3)[:, 2:30, 2:30].astype(np.uint8)
            found.append(Records(name, images.astype(np.uint8), classes.astype(np.int64).ravel()))
    if not found:
        raise InputError(f"{DATA_FOLDER}={named} holds neither mnist.npz nor cifar10_test.npz; name their folder.")
    return found


def audit_opacus(records: Records, size: int, batch_size: int, loss_reduction: str, trials: int) -> AuditResult:
    """An audit of one step of the installed Opacus; `MissingExtraError` says what to install where it is missing."""
    from calipers.adapters.opacus_target import OpacusTarget

    data = {"images": records.images, "labels": records.labels, "loss_reduction": loss_reduction}
    run = {"dataset_size": size, "batch_size": batch_size, "noise_multiplier": published.NOISE_MULTIPLIER}
    target = OpacusTarget(**run, **data)  # type: ignore[arg-type]  # the names are those of its parameters
    return audit(target, ScoreFunction(target.scores, label="exact likelihood ratio"), trials=trials, seed=0, **ASKED)


def opacus(progress: ItemProgress, size: int, batch_size: int, normalization: str, rate: float) -> Computed:
    """Both loss reductions on every dataset found: "mean" breaks the claim, "sum" keeps it.

    Figure 4: four records against five, all in one batch, divided by 4 or by 5; Figure 6: three against four in
    batches of two, divided by 1 or by 2.
    """
    run, trials = settings.rounds(normalization, size, rate, published.SMALL_MODEL), published.TRIALS
    opacus_module()  # refuse at once, with the line to type, where it is missing
    table, panels, claim_at_zero = Sheet("audits"), [], settings.claimed_delta(run.rate, 0.0)
    for records, reduction in watched(product(read_records(size + 1), ("mean", "sum")), progress):
        found = audit_opacus(records, size, batch_size, reduction, trials)
        epsilon, delta, name = found.epsilon[0].value, found.delta[0].value, f"{records.source}, {reduction}"
        _add(table, f"{name}: ", run, epsilon, delta)
        table.unlisted(excess_at_zero=delta - claim_at_zero, said="> 0" if reduction == "mean" else "")
        panels.append(("", name, epsilon, epsilon, settings.claimed_epsilon(run.rate, published.DELTA)))
    facts = {"size": size, "larger": size + 1, "rate": run.rate, "dimension": published.SMALL_MODEL}
    words = {"target": f"{found.target['target']} {found.target['opacus']}", "audit": audit_note(trials)}
    return Computed([table, Sheet("exact").unlisted(epsilon=_epsilons(run)), guarantees(panels)], facts | words)
