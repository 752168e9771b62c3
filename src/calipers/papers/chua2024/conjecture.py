"""Conjecture 3.2: is the dataset of Equations (1) and (2) the worst case of shuffled batches?

The paper proves a lower bound with one dataset, in which the record is at odds with all others in every step, and
conjectures that no adaptive queries leak more. Two batches decide it (`calipers.theorems.shuffle_conjecture`): a record
that agrees with the others in the second batch once the first one has told something leaks more, and both numbers
are certified. With more batches the same idea, carried out on the running sum (`calipers.laws.allocated.switching`),
is shown beside the best test of the conjectured pair.
"""

from __future__ import annotations

from calipers.laws.allocated.shuffle import ShuffleAttack
from calipers.laws.allocated.switching import SwitchingAttack
from calipers.papers.chua2024.settings import deterministic_delta_bracket, epoch
from calipers.papers.items import Outcome, Progress, Row, Table, watched
from calipers.theorems.shuffle_conjecture import two_batches

_TWO = ((2.0, 0.5), (1.0, 0.5), (5.0, 0.1), (20.0, 0.05), (2.0, 0.0))
_MORE = ((2.0, 100, 0.7), (5.0, 100, 0.05), (1.0, 30, 2.0), (4.0, 20, 0.3))


def conjecture(progress: Progress) -> Outcome:
    """What the attack shows against what the conjecture allows, at two batches; then with more of them."""
    rows, table = [], Table()
    for sigma, rounds, epsilon in watched((*((sigma, 2, epsilon) for sigma, epsilon in _TWO), *_MORE), progress):
        fixed = deterministic_delta_bracket(epoch(sigma, rounds), epsilon)[1]
        pair = ShuffleAttack(sigma, rounds).delta(epsilon)
        name, most = f"σ = {sigma:g}, T = {rounds}: ", None
        note = f"the best test found of the conjectured pair shows {pair:.5g}"
        if rounds == 2:
            found = two_batches(epsilon, sigma)
            shown, most, note = found.delta, found.conjectured, "attack to deterministic batches"
        else:
            shown = SwitchingAttack(sigma, rounds, tuned=epsilon).delta(epsilon)[0]
        rows.append(Row.of(f"{name}δ_S({epsilon:g}), adaptive", None, (shown, fixed), note=note))
        if most is not None:
            rows += [
                Row.of(f"{name}δ({epsilon:g}) of the conjectured pair", None, (pair, most)),
                Row.of(f"{name}δ_S({epsilon:g}) less the pair's", "<= 0", (shown - most, fixed - pair)),
            ]
        bounds = {"pair_lower": pair, "pair_upper": "" if most is None else most}
        run = {"noise_multiplier": sigma, "steps": rounds, "epsilon": epsilon}
        table.add(**run, **bounds, adaptive=shown, deterministic=fixed)
    return Outcome(rows, data=(table.data,))
