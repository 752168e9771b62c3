"""What one step, or one epoch, shows at most: x -> D at e^x, for every kind of phase.

**Hidden in one of M rounds.** With the record taking part with probability s, D_k is at most

    E[( (1 - s)(1 - k) + (s / M) (X_1 + ... + X_M) )+],

X_1 ... X_M independent copies of a term of `calipers_verify.stop_loss`. Allocated independently of all others (Poisson
sampling: M = 1, s = q; fixed batches: M = s = 1; balls-and-bins; shuffled batches for one who knows nothing of the
others) the term is `opposite` if the record is replaced, and lognormal - k if it is zeroed out: then one sum serves
all k. Shuffled batches of fixed size that drop a record have the term `displaced`, or blocks of rounds that are
a little less (`calipers_verify.shuffled`); where there is no remainder, `calipers_verify.shuffled` says what is added.

**Fixed batches.** All of these leak at most what N(1/sigma, 1) against N(0, 1) does, 2/sigma if replaced.

**One order for all epochs.** Whoever adds up what is seen of a batch sees one epoch with less noise.

**A record that is really added or removed** where batches have a fixed size (`calipers_verify.neighbors`): hidden in
one of M rounds with twice the shift; a last batch that is kept is one more factor, a fixed batch.

**Other steps.** A Poisson step divided by its realized size, and one whose rate moves with the dataset.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from flint import arb

from calipers_verify.neighbors import Neighbors, cut
from calipers_verify.reading import Chosen, Refused, spend
from calipers_verify.shuffled import (
    BLOCKS,
    COUNT,
    ROUNDS,
    WEIGHTS,
    block_stop_loss,
    first_batch_stop_loss,
    halves,
    weights,
)
from calipers_verify.stop_loss import (
    StopLossBall,
    ball,
    displaced,
    gaussian,
    lognormal,
    moved,
    opposite,
    realized,
    turned,
)
from calipers_verify.sums import PLAN, Sum, SumPlan, connected, stop_loss_of, summed

MANY, MORE = range(1, 10**8), range(3, 10**8)
"""Of datasets whose batch sizes are looked at one by one."""
NOISE, RATE = (Fraction(1, 1000), Fraction(10**6)), (Fraction(1, 10**60), Fraction(1))
BELOW_ONE = (RATE[0], 1 - Fraction(1, 1 << 53))
ORDER = {"every-epoch", "once"}
CUT = {"dataset_size": COUNT, "batch_size": COUNT, "last_batch": {"drop", "keep"}}
SAMPLERS: dict[str, dict[str, Any]] = {
    "poisson": {"sample_rate": RATE, "steps": COUNT},
    "poisson-realized": {"dataset_size": MORE, "sample_rate": BELOW_ONE, "steps": COUNT},
    "poisson-moving": {"dataset_size": MORE, "batch_size": MANY, "steps": COUNT},
    "deterministic": {**CUT, "epochs": COUNT},
    "balls-and-bins": {"batches": range(1, 10**11), "order": ORDER, "epochs": COUNT},
    "shuffle": {**CUT, "order": ORDER, "view": {"worst-case", "isolated"}, "epochs": COUNT},
}
PHASE = Chosen("sampler", {sampler: {"noise_multiplier": NOISE, **own} for sampler, own in SAMPLERS.items()})
HOW = (None, {"plan": PLAN, "blocks": (None, BLOCKS), "cover": (None, WEIGHTS)})
"""How a node of a PLD is proven: by a closed form, or by a sum."""


class Phase(NamedTuple):
    """`repeats` steps or epochs that are alike.

    kind: "allocated"; "covered" (allocated, with a short last batch: the full ones with equal weights show more);
        "dropping";
    "full" (no remainder); "fixed" (only fixed batches are proven); "realized"; "size" (how many of the others were
    drawn, at a rate that moves). shift: r^2. share, rounds: as above; for an attack, of the full batches. opposed:
    whether the other records may be chosen against this one.
    """

    kind: str
    repeats: int
    shift: Fraction
    replaced: bool
    share: Fraction = Fraction(1)
    rounds: int = 1
    opposed: bool = False
    size: int = 0
    batch: int = 0

    @property
    def r(self) -> arb:
        """1/sigma."""
        return ball(self.shift).sqrt()

    @property
    def mu(self) -> arb:
        """Of one step or epoch with a fixed batch."""
        return 2 * self.r if self.replaced else self.r

    @property
    def is_hidden(self) -> bool:
        """Whether the record's place, or its presence, is drawn at random."""
        return self.rounds > 1 or self.share < 1

    @property
    def one_sum(self) -> bool:
        """Whether one term serves all k."""
        return self.kind in ("dealt", "covered") and not self.replaced


def phases_of(record: tuple[Any, ...], neighbors: Neighbors) -> list[list[Phase]]:
    """The phase for every pair of neighboring datasets that differ in what they show, each as factors of a product."""
    sampler, sigma, *own, count = record
    adjacency = neighbors.adjacency
    allocated = Phase("dealt", count, 1 / sigma**2, adjacency == "substitute")
    once = allocated._replace(repeats=1, shift=allocated.shift * count)
    if sampler in ("poisson-realized", "poisson-moving") and adjacency != "add-remove":
        raise Refused(f"{sampler} is about add-remove neighbors")
    match sampler, *own:
        case "poisson", rate:
            return [[allocated._replace(share=rate)]]
        case "poisson-realized", size, rate:  # size and sum show less the larger a dataset is
            return [[allocated._replace(kind="realized", share=rate, size=size - 1)]]
        case "poisson-moving", size, batch if batch <= size - 2:  # the rate stays below 1 on both neighbors
            pairs = [(allocated._replace(share=Fraction(batch, n + 1)), n) for n in (size - 1, size)]
            return [[step, allocated._replace(kind="size", size=n, batch=batch)] for step, n in pairs]
        case "balls-and-bins", batches, order:
            return [[(once if order == "once" else allocated)._replace(rounds=batches)]]
        case "deterministic", size, batch, last if adjacency == "add-remove":  # 4M + 1 or 4M squares of a shift
            return [[once._replace(shift=once.shift * (4 * cut(size, batch, last).rounds + (last == "keep")))]]
        case "deterministic", *_:
            return [[allocated]]
        case "shuffle", size, batch, last, order, "worst-case" if adjacency == "add-remove":
            found, rounds = allocated if order == "every-epoch" else once, cut(size, batch, last).rounds
            share = neighbors.participation(rounds * batch)
            hidden = [found._replace(shift=4 * found.shift, share=share, rounds=rounds)] if rounds else []
            return [hidden + ([found] if last == "keep" else [])]
        case "shuffle", size, batch, last, order, view:
            rounds, left = divmod(size, batch)
            opposed, kept = view == "worst-case", last == "keep" and left > 0
            kind = ("dropping" if left and not kept else "full") if opposed else "covered" if kept else "dealt"
            found = allocated if order == "every-epoch" else once
            kind, share = kind if order == "every-epoch" else "fixed", neighbors.participation(rounds * batch)
            return [[found._replace(kind=kind, share=share, rounds=rounds, opposed=opposed, size=size, batch=batch)]]
    raise Refused("batch_size of poisson-moving should be at most dataset_size - 2: a rate below 1 on both neighbors")


def bound(phase: Phase, x: Fraction, back: bool, how: Any) -> arb:
    """At least D of one step or epoch at e^x, of Q against P if `back`; `how`: the sum to be used, if any."""
    k, kind, rounds = ball(x).exp(), phase.kind, phase.rounds
    if (x < 0) if phase.replaced or kind == "full" else back:
        return 1 - k + k * bound(phase, -x, not back, how)
    spend(100)
    if how is not None:
        stop_loss, exposed, alone = by_sum(phase, Fraction(0) if phase.one_sum else x, back and not phase.replaced, how)
    elif kind in ("realized", "size"):
        return _closed(phase)(k)
    elif rounds > 1 or kind in ("fixed", "full", "covered"):
        return gaussian(phase.mu, ball(x))
    else:
        stop_loss, exposed, alone = _term(phase, k, False), arb(0), arb(0)
    each = Fraction(1, rounds) if kind == "covered" else phase.share / rounds
    rest = 0 if kind in ("covered", "full") else 1 - phase.share
    threshold = ball(rest / each) * (k - 1) + (k * rounds if phase.one_sum else 0)
    return ball(each) * (stop_loss(threshold) + alone) + exposed * gaussian(phase.mu, ball(x))


@lru_cache(maxsize=64)
def _closed(phase: Phase) -> StopLossBall:
    if phase.kind == "size":
        return moved(phase.size, phase.batch)
    return realized(phase.size, phase.share, phase.r)


def _term(phase: Phase, k: arb, back: bool) -> StopLossBall:
    if phase.one_sum:
        return lognormal(phase.r)
    if phase.kind not in ("dropping", "full"):
        return opposite(phase.r, k)
    return turned(displaced(phase.r, 1 / k, False), k) if back else displaced(phase.r, k, phase.replaced)


@lru_cache(maxsize=1024)
def by_sum(phase: Phase, x: Fraction, back: bool, how: Any) -> tuple[StopLossBall, arb, arb]:
    """The stop-loss transform of the sum of an epoch, and what it leaves exposed: a share of fixed batches, and rounds
    alone.

    Several nodes may ask for the same one.
    """
    plan, blocks, cover, r, k = SumPlan(*how[0]), how[1], how[2], phase.r, ball(x).exp()
    if phase.kind not in ("dealt", "covered", "dropping", "full") or (cover is not None) != (phase.kind == "full"):
        raise Refused("no bound by sums like this one is proven for this phase")
    if blocks is not None and phase.kind not in ("dropping", "full"):
        raise Refused("blocks are proven only for shuffled epochs")
    term, rounds, low = _term(phase, k, back), phase.rounds, arb(1)
    parts, exposed, alone = list[tuple[Sum, int]](), arb(0), arb(0)
    if cover is not None:  # a batch of the pool, and the later ones with the weights that cover them
        low, high, exposed, alone = weights(phase.size, phase.batch, phase.shift, cover)
        pool, rounds, few = cover[0], cover[-2], cover[-1]
        rough = plan._replace(centers=(0,), lowest=(plan.lowest[0] + 2,), reach=16, tail=8, high=plan.high << 10)
        parts.append((connected(first_batch_stop_loss(x, r, phase.replaced, back, pool), rough), 1))  # flat and far
        parts.append((connected(_weighted(term, high), plan), few))
        alone = pool * alone
    one = connected(_weighted(term, low), plan)
    if blocks is None:
        return stop_loss_of(summed([*parts, (one, rounds)], plan), plan.unit), exposed, alone
    if rounds < ROUNDS:
        raise Refused("blocks are longer than the epoch")
    moves = [turned(half, k) for half in halves(r, 1 / k, False)] if back else halves(r, k, phase.replaced)
    payoff, terms = (
        _weighted(block_stop_loss(moves, *blocks), low),
        stop_loss_of(summed([(one, ROUNDS)], plan), plan.unit),
    )
    block = connected(lambda c: payoff(c).min(terms(c)), plan, ROUNDS)
    parts += [(block, rounds // ROUNDS), (one, rounds % ROUNDS)]
    return stop_loss_of(summed(parts, plan), plan.unit), exposed, alone


def _weighted(stop_loss: StopLossBall, weight: arb) -> StopLossBall:
    """Of a term times a weight."""
    return lambda c: weight * stop_loss(c / weight)
