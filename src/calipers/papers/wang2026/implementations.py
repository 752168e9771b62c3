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
division by N q, floor(N q) and |B| are the same. `loss_reduction="sum"` divides by nothing and is played beside it.

Images are read from the folder named by the environment variable CALIPERS_DATA: mnist.npz (x_train, y_train),
cifar10_test.npz (x, y; averaged over colors and cropped to 28 x 28). Without it they are drawn from a seed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calipers.adapters.opacus_library import opacus_module
from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.distinguishers import ScoreFunction
from calipers.errors import InputError
from calipers.papers.items import Outcome, Picture, Progress, Row, Table, watched
from calipers.papers.wang2026 import drawing, published
from calipers.papers.wang2026.settings import (
    claimed_delta,
    claimed_epsilon,
    coordinates_of,
    delta_jaws,
    epsilon_jaws,
    length_epsilon,
    others_in,
    rounds,
)
from calipers.papers.wang2026.synthetic import audit_note, play
from calipers.run import Run

DATA_FOLDER = "CALIPERS_DATA"
RULE_TRIALS = 10_000
_WORDS = {"realized": "|B|", "floor": "floor(N q)"}


def _epsilons(run: Run) -> tuple[float, float]:
    """From both sides where that is quick; for the large models the test of the length from below, nothing above.

    A floor that is the same for both datasets is post-processing: epsilon is the claim's.
    """
    before, after = (math.floor(size * run.rate) for size in (others_in(run), others_in(run) + 1))
    if run.normalization == "floor" and before == after:
        claim = claimed_epsilon(run.rate, published.DELTA)
        return claim * (1.0 - 1e-10), claim
    if coordinates_of(run) == published.LARGE_MODEL:
        return length_epsilon(run, published.DELTA), float("inf")
    return epsilon_jaws(run)


def _add(table: Table, what: str, run: Run, epsilon: float, delta: float) -> None:
    """What is known of a run and what an audit found."""
    found = {"epsilon_audited": epsilon, "delta_0_audited": delta}
    claim = claimed_epsilon(run.rate, published.DELTA)
    table.add(what=what, rate=run.rate, dimension=coordinates_of(run), epsilon=_epsilons(run), **found, claim=claim)


def _rule_rows(name: str, run: Run, table: Table) -> tuple[list[Row], drawing.Epsilons]:
    exact, found = _epsilons(run), play(run, len(table.records), RULE_TRIALS)
    audited, claim = found.epsilon[0].value, claimed_epsilon(run.rate, published.DELTA)
    note = audit_note(RULE_TRIALS)
    rows = [
        Row.of(f"{name}ε", None, exact),
        Row.of(f"{name}audited ε", None, audited, "estimate", note),
        Row.of(f"{name}audited δ(0)", None, found.delta[0].value, "estimate", note),
        Row.of(f"{name}ε − claimed ε", "> 0", (exact[0] - claim, exact[1] - claim)),
    ]
    _add(table, name, run, audited, found.delta[0].value)
    return rows, drawing.Epsilons(f"q = {run.rate:g}", *exact, audited, claim)


def _code_rows() -> list[Row]:
    """The same methods by the divisor of their published code: nothing is printed of these."""
    rows: list[Row] = []
    for method in published.CODE_METHODS:
        for rate in method.rates:
            run = rounds(method.normalization, published.FIGURE_4_SIZE, rate, method.dimension)
            claim, exact = claimed_epsilon(rate, published.DELTA), _epsilons(run)
            name, note = f"{method.name}'s code, q = {rate:g}: ", f"divides by {_WORDS[method.normalization]}"
            rows += [
                Row.of(f"{name}ε", None, exact, note=note),
                Row.of(f"{name}ε − claimed ε", None, (exact[0] - claim, exact[1] - claim), note=note),
            ]
    return rows


def figure_4(progress: Progress) -> Outcome:
    """Four methods at N = 4 by their update rules: exact, audited, claimed."""
    rows, table = [], Table("rules")
    panels: dict[str, list[drawing.Epsilons]] = {}
    methods = [(method, rate) for method in published.METHODS for rate in method.rates]
    for method, rate in watched(methods, progress):
        run = rounds(method.normalization, published.FIGURE_4_SIZE, rate, method.dimension)
        found, curve = _rule_rows(f"{method.name}, q = {rate:g}: ", run, table)
        rows += found
        panels.setdefault(f"{method.name}, n = {method.dimension:,}", []).append(curve)
    rows += _realized_rows() + _code_rows()
    picture = Picture(partial(drawing.draw_panels, panels, (2, 2)), (10.4, 10.4))
    return Outcome(rows, data=(table.data,), picture=picture)


def _realized_rows() -> list[Row]:
    """Division by |B| leaks more at q = 0.8 than at 0.7, and less than division by N q."""
    dpsur = published.METHODS[1]
    low, high = (
        delta_jaws(rounds(dpsur.normalization, published.FIGURE_4_SIZE, rate, dpsur.dimension), 0.0, 1e-2)
        for rate in dpsur.rates
    )
    other = delta_jaws(rounds("expected", published.FIGURE_4_SIZE, dpsur.rates[0], dpsur.dimension), 0.0, 1e-2)
    return [
        Row.of("DPSUR: δ(0) at q = 0.8 − δ(0) at q = 0.7", "> 0", (high[0] - low[1], high[1] - low[0])),
        Row.of("δ(0) divided by N q − by |B|, q = 0.7", "> 0", (other[0] - low[1], other[1] - low[0])),
    ]


def figure_6(progress: Progress) -> Outcome:
    """Division by floor(N q) with three records against four, q = 1/2, in DP-FETA's 1,485,217 coordinates."""
    run = rounds("floor", published.FIGURE_6_SIZE, published.FIGURE_6_RATE, published.LARGE_MODEL)
    table = Table("rules")
    rows, curve = _rule_rows("", run, table)
    few = rounds("floor", published.FIGURE_6_SIZE, published.FIGURE_6_RATE, 10)
    rows.append(Row.of("the same with n = 10: δ(0)", None, delta_jaws(few), note="ten coordinates are enough"))
    progress(1, 1)

    return Outcome(
        rows,
        data=(table.data,),
        picture=Picture.on_axes(
            (5.8, 5.6), drawing.draw_epsilon_curves, f"floor(N q), N = 3, n = {coordinates_of(run):,}", [curve]
        ),
    )


@dataclass(frozen=True)
class Records:
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

    target = OpacusTarget(
        dataset_size=size,
        batch_size=batch_size,
        noise_multiplier=published.NOISE_MULTIPLIER,
        loss_reduction=loss_reduction,
        images=records.images,
        labels=records.labels,
    )
    return audit(
        target,
        ScoreFunction(target.scores, label="exact likelihood ratio"),
        trials=trials,
        seed=0,
        confidence=published.CONFIDENCE,
        deltas=(published.DELTA,),
        epsilons=(0.0,),
    )


def _opacus(size: int, batch_size: int, run: Run, trials: int, progress: Progress) -> Outcome:
    """Both loss reductions on every dataset found: "mean" breaks the claim, "sum" keeps it."""
    opacus_module()  # refuse at once, with the line to type, where it is missing
    rows, table = [Row.of("exact for opposite gradients: ε", None, _epsilons(run))], Table("audits")
    curves: list[drawing.Epsilons] = []
    claim, claim_at_zero = claimed_epsilon(run.rate, published.DELTA), claimed_delta(run.rate, 0.0)
    sources = read_records(size + 1)
    for records in sources:
        for reduction in ("mean", "sum"):
            found = audit_opacus(records, size, batch_size, reduction, trials)
            epsilon, delta = found.epsilon[0].value, found.delta[0].value
            name = f"{records.source}, {reduction}: "
            relation = "> 0" if reduction == "mean" else None
            note = audit_note(trials)
            rows += [
                Row.of(f"{name}audited ε", None, epsilon, "estimate", note),
                Row.of(f"{name}audited δ(0)", None, delta, "estimate", note),
                Row.of(f"{name}audited δ(0) − claimed δ(0)", relation, delta - claim_at_zero, "estimate", note),
            ]
            _add(table, name, run, epsilon, delta)
            curves.append(drawing.Epsilons(name.rstrip(": "), epsilon, epsilon, epsilon, claim))
            progress(len(table.records), 2 * len(sources))
    installed = f"{found.target['target']} {found.target['opacus']}"
    sizes: dict[str, object] = {"target": installed, "size": size, "larger": size + 1}
    sizes |= {"rate": run.rate, "dimension": coordinates_of(run)}
    return Outcome(
        rows,
        data=(table.data,),
        picture=Picture.on_axes((6.4, 6.2), drawing.draw_epsilon_curves, "installed Opacus, one step", curves),
        facts=sizes,
    )


def figure_4_opacus(progress: Progress) -> Outcome:
    """Four records against five, all in one batch: Opacus divides by 4 or by 5."""
    run = rounds("expected", published.FIGURE_4_SIZE, 1.0, published.SMALL_MODEL)
    return _opacus(published.FIGURE_4_SIZE, published.FIGURE_4_SIZE + 1, run, published.TRIALS, progress)


def figure_6_opacus(progress: Progress) -> Outcome:
    """Three records against four in batches of two: Opacus divides by 1 or by 2."""
    run = rounds("floor", published.FIGURE_6_SIZE, published.FIGURE_6_RATE, published.SMALL_MODEL)
    return _opacus(published.FIGURE_6_SIZE, 2, run, published.TRIALS, progress)
