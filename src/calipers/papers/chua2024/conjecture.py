"""Conjecture 3.2: is the dataset of Equations (1) and (2) the worst case of shuffled batches?

The paper proves a lower bound with one dataset, in which the record is at odds with all others in every step, and
conjectures that no adaptive queries leak more. Two batches decide it (`calipers.theorems.shuffle_conjecture`): a record
that agrees with the others in the second batch once the first one has told something leaks more, and both numbers
are certified. With more batches the same idea, carried out on the running sum (`calipers.laws.switching`), is shown
beside the best test of the conjectured pair.
"""

from __future__ import annotations

from calipers.laws.shuffle import ShuffleAttack
from calipers.laws.switching import SwitchingAttack
from calipers.papers.chua2024.settings import deterministic_delta_bracket, epoch
from calipers.papers.items import Cell, Data, Outcome, Progress, Row
from calipers.theorems.shuffle_conjecture import two_batches

_TWO = ((2.0, 0.5), (1.0, 0.5), (5.0, 0.1), (20.0, 0.05), (2.0, 0.0))
_MORE = ((2.0, 100, 0.7), (5.0, 100, 0.05), (1.0, 30, 2.0), (4.0, 20, 0.3))


def conjecture(progress: Progress) -> Outcome:
    """What the attack shows against what the conjecture allows, at two batches; then with more of them."""
    rows: list[Row] = []
    values: list[list[Cell]] = []
    total = len(_TWO) + len(_MORE)
    for done, (sigma, epsilon) in enumerate(_TWO):
        found = two_batches(epsilon, sigma)
        fixed = deterministic_delta_bracket(epoch(sigma, 2), epsilon)[1]
        pair = ShuffleAttack(sigma, 2).delta(epsilon)
        name, excess = f"σ = {sigma:g}, T = 2: ", found.delta - found.conjectured
        rows += [
            Row.of(
                f"{name}δ_S({epsilon:g}), adaptive", None, (found.delta, fixed), note="attack to deterministic batches"
            ),
            Row.of(f"{name}δ({epsilon:g}) of the conjectured pair", None, (pair, found.conjectured)),
            Row.of(f"{name}δ_S({epsilon:g}) less the pair's", "<= 0", (excess, fixed - pair)),
        ]
        values.append([sigma, 2, epsilon, pair, found.conjectured, found.delta, fixed])
        progress(done + 1, total)
    for done, (sigma, rounds, epsilon) in enumerate(_MORE, len(_TWO)):
        shown = SwitchingAttack(sigma, rounds, tuned=epsilon).delta(epsilon)[0]
        fixed = deterministic_delta_bracket(epoch(sigma, rounds), epsilon)[1]
        pair = ShuffleAttack(sigma, rounds).delta(epsilon)
        note = f"the best test found of the conjectured pair shows {pair:.5g}"
        rows.append(Row.of(f"σ = {sigma:g}, T = {rounds}: δ_S({epsilon:g}), adaptive", None, (shown, fixed), note=note))
        values.append([sigma, rounds, epsilon, pair, "", shown, fixed])
        progress(done + 1, total)
    header = ("noise_multiplier", "steps", "epsilon", "pair_lower", "pair_upper", "adaptive", "deterministic")
    return Outcome(rows, data=(Data("values", header, values),))
