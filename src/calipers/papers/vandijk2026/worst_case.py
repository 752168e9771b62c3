"""Theorem 4.1 read as a statement about shuffled batches of fixed size, where an attack beats it.

The paper calls its adversary the strongest possible one: it knows the sum of all other records in every round and is
left with the noise and the differing record's own contribution. That is not all it knows. With batches of fixed size
the other records are permuted together with the differing one, so their sums say where it is missing. For the dataset
of Chua et al. (all other gradients -1) a batch sums to -B, except for the one with the differing record, -B + 2 if it
is present and -B + 1 if it is zeroed out, and no knowledge beyond that dataset is needed: two Gaussian mixtures, with
an explicit test between them (`calipers.laws.allocated.shuffle`).

That test is an attack on exactly the mechanism of Theorem 4.1, and for small sigma its advantage falls so much more
slowly with M than the isolated pair's that it overtakes the bound, at the theorem's own Table 1 entry for sigma = 0.5.
"""

from __future__ import annotations

from calipers.laws.allocated.shuffle import ShuffleAttack
from calipers.papers.items import Outcome, Progress, Row, Table, watched
from calipers.papers.vandijk2026 import published
from calipers.papers.vandijk2026.exact import advantage
from calipers.papers.vandijk2026.tables import QUICK_TOLERANCE
from calipers.theorems.samplers_gap import shuffle_delta_lower, shuffle_delta_upper
from calipers.theorems.shuffle_one_epoch import shuffle_delta, shuffle_rounds

_MANY_ROUNDS = 10**10


def shuffled_batches(progress: Progress) -> Outcome:
    """The entries of Table 1, and sigma = 0.5 with ten billion rounds, under the attack on shuffled batches."""
    entries = [(sigma, shuffle_rounds(published.DELTA, sigma)) for sigma in published.NOISE_MULTIPLIERS]
    rows, table = [], Table("advantages")
    for sigma, rounds in watched((*entries, (0.5, _MANY_ROUNDS)), progress):
        bound = shuffle_delta(sigma, rounds).delta
        isolated = advantage(sigma, rounds, tolerance=QUICK_TOLERANCE)
        event = shuffle_delta_lower(0.0, sigma, rounds).delta
        attack = ShuffleAttack(sigma, rounds).best_test(0.0).delta
        most = shuffle_delta_upper(0.0, sigma, rounds)
        name, claim = f"σ = {sigma:g}, M = {rounds:,}", f"<= {bound:.4g}"
        note = "lower: an explicit test; upper: fixed batches (Chua et al., Theorem 4.1); claim: Theorem 4.1 here"
        rows += [
            Row.of(f"{name}: advantage, isolated view", claim, isolated),
            Row.of(f"{name}: advantage, shuffled batches", claim, (attack, most), note=note),
            Row.of(f"{name}: the same from the event of Chua et al., (3)", claim, (event, most), note=note),
        ]
        run = {"noise_multiplier": sigma, "rounds": rounds, "thm41": bound}
        table.add(**run, isolated=isolated, event_lower=event, attack_lower=attack, fixed_batches_upper=most)
    return Outcome(rows, data=(table.data,))
