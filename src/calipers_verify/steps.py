"""What one step, or one epoch, shows at most: x -> D at e^x, for every kind of phase.

**Hidden in one of M rounds.** With the record taking part with probability s, D_k is at most

    E[( (1 - s)(1 - k) + (s / M) (X_1 + ... + X_M) )+],

X_1 ... X_M independent copies of a term of `calipers_verify.calls`. Dealt out independently of all others (Poisson
sampling: M = 1, s = q; fixed batches: M = s = 1; balls-and-bins; shuffled batches for one who knows nothing of the
others) the term is `opposite` if the record is replaced, and lognormal - k if it is zeroed out: then one sum serves
all k. Shuffled batches of fixed size that leave a record over have the term `Displaced`, or blocks of rounds that are
a little less (`calipers_verify.blocks`).

**Nothing left over.** Shuffled epochs that use all N records: for k >= 1 and n < N/B the same with s = 1 and n rounds,

    and kappa D_k(fixed batches) + zeta(k) on top,

which is what the displaced record shows, who is seen once, early (`_exposed`, `_seen_early`).

**Fixed batches.** All of these leak at most what N(1/sigma, 1) against N(0, 1) does, 2/sigma if replaced.

**Other steps.** A Poisson step divided by its realized size, and one whose rate moves with the dataset.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from flint import arb

from calipers_verify.blocks import Payoff
from calipers_verify.calls import Call, Displaced, ball, gaussian, lognormal, moved, opposite, realized, tail
from calipers_verify.reading import MOST_COUNT, Effort, Refused, fields, one_of, rational, whole
from calipers_verify.sums import Calls, Plan, Sum, in_blocks, read_plan, summed

KEYS = {
    "poisson": ("sample_rate", "steps"),
    "poisson-realized": ("dataset_size", "sample_rate", "steps"),
    "poisson-moving": ("dataset_size", "batch_size", "steps"),
    "deterministic": ("epochs",),
    "balls-and-bins": ("batches", "epochs"),
    "shuffle": ("dataset_size", "batch_size", "last_batch", "order", "epochs", "view"),
}
MOST_SUMS = 2000
MOST_SIZE = 10**8
"""Of datasets whose batch sizes are looked at one by one."""


class Phase(NamedTuple):
    """`repeats` steps or epochs that are alike.

    kind: "dealt"; "covered" (dealt, with a short last batch: the full ones with equal weights show more); "dropping";
    "full" (nothing left over); "fixed" (only fixed batches are proven); "realized"; "size" (how many of the others were
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


def read_phase(record: Any, adjacency: str) -> list[list[Phase]]:
    """The phase for every pair of neighboring datasets that differ in what they show, each as factors of a product."""
    sampler = one_of(record.get("sampler") if isinstance(record, dict) else None, KEYS, "sampler")
    fields(record, ("sampler", "noise_multiplier", *KEYS[sampler]), f"a phase with sampler {sampler}")
    sigma = rational(record["noise_multiplier"], Fraction(1, 1000), 10**6, "noise_multiplier")
    count = whole(record["steps" if "steps" in record else "epochs"], 1, MOST_COUNT, "steps or epochs")
    shift, replaced = 1 / sigma**2, adjacency == "substitute"
    dealt = Phase("dealt", count, shift, replaced)
    if sampler in ("poisson-realized", "poisson-moving"):
        if adjacency != "add-remove":
            raise Refused(f"{sampler} is about add-remove neighbors")
        size = whole(record["dataset_size"], 3, MOST_SIZE, "dataset_size")
        if sampler == "poisson-realized":  # size and sum show less the larger a dataset is
            rate = rational(record["sample_rate"], 0, 1 - Fraction(1, MOST_COUNT), "sample_rate")
            return [[Phase("realized", count, shift, False, rate, size=size - 1)]]
        batch = whole(record["batch_size"], 1, size - 2, "batch_size")
        return [
            [dealt._replace(share=Fraction(batch, n + 1)), Phase("size", count, shift, False, size=n, batch=batch)]
            for n in (size - 1, size)
        ]
    if sampler == "poisson":
        return [[dealt._replace(share=rational(record["sample_rate"], 0, 1, "sample_rate"))]]
    if sampler == "balls-and-bins":
        return [[dealt._replace(rounds=whole(record["batches"], 1, 10**11, "batches"))]]
    return [[dealt if sampler == "deterministic" else _shuffled(record, dealt)]]


def _shuffled(record: Any, dealt: Phase) -> Phase:
    size = whole(record["dataset_size"], 1, MOST_COUNT, "dataset_size")
    batch = whole(record["batch_size"], 1, size, "batch_size")
    opposed = one_of(record["view"], ("worst-case", "isolated"), "view") == "worst-case"
    keeps = one_of(record["last_batch"], ("drop", "keep"), "last_batch") == "keep"
    rounds, left = divmod(size, batch)
    share = Fraction(rounds * batch, size)
    found = dealt._replace(share=share, rounds=rounds, opposed=opposed, size=size, batch=batch)
    if one_of(record["order"], ("every-epoch", "once"), "order") == "once":
        # Whoever knows the batch sees one release with less noise; so does an attack that repeats itself.
        return found._replace(kind="fixed", repeats=1, shift=dealt.shift * dealt.repeats)
    if not opposed:
        return found._replace(kind="covered") if keeps and left else found
    return found._replace(kind="dropping" if left and not keeps else "full")


class Shown:
    """D of one step or epoch of a phase; sums are kept, since several nodes and both directions may ask for one."""

    def __init__(self, phase: Phase, effort: Effort) -> None:
        self.phase, self.effort = phase, effort
        self.known: dict[Any, Calls] = {}
        self.closed: Call | None = None
        if phase.kind == "realized":
            self.closed = realized(phase.size, phase.share, phase.r)
        if phase.kind == "size":
            self.closed = moved(phase.size, phase.batch)

    def bound(self, x: Fraction, direction: str, record: Any) -> arb:
        """At least D at e^x; `record`: the plan of the sum to be used, if any."""
        self.effort.spend(20_000 if self.phase.kind in ("realized", "full") else 100)
        back = direction == "absent-present" or (direction == "both" and x < 0)  # replacing is symmetric
        k, y = ball(x).exp(), -x if back else x
        plan = None if record is None else read_plan(record, self.phase.rounds)
        value = self._without_sums(y) if plan is None else self._by_sum(y, plan)
        value = 1 - k + k * value if back else value
        return value if plan is None or self.phase.kind != "full" else value + self._on_top(x, back, plan.terms)

    def _without_sums(self, x: Fraction) -> arb:
        phase = self.phase
        if self.closed is not None:
            return self.closed(ball(x).exp())
        if phase.rounds > 1 or phase.kind in ("fixed", "full", "covered"):
            return gaussian(phase.mu, ball(x))
        return self._hidden(x, phase.share, 1, self._term(x))

    def _by_sum(self, x: Fraction, plan: Plan) -> arb:
        phase, term = self.phase, self._term(x)
        if phase.kind == "fixed" or self.closed is not None or (phase.kind != "full" and plan.terms != phase.rounds):
            raise Refused("no such bound by sums is proven for this phase")
        key = (x if self._moves else None, plan)
        if key not in self.known:
            if len(self.known) >= MOST_SUMS:
                raise Refused("it asks for too many sums")
            self.known[key] = Calls(self._sum(x, term, plan), plan.unit)
        share = Fraction(1) if phase.kind in ("full", "covered") else phase.share
        return self._hidden(x, share, plan.terms, self.known[key])

    def _sum(self, x: Fraction, term: Call, plan: Plan) -> Sum:
        phase = self.phase
        if plan.blocks is None:
            return summed(term, plan, plan.terms, self.effort)
        if phase.kind != "dropping":
            raise Refused("blocks are proven only for shuffled epochs that leave a record over")
        payoff = Payoff(phase.shift, ball(x).exp(), phase.replaced, plan.blocks, self.effort)
        return in_blocks(term, payoff, plan, self.effort)

    @property
    def _moves(self) -> bool:
        """Whether every k has a term of its own."""
        return self.phase.replaced or self.phase.kind not in ("dealt", "covered")

    def _term(self, x: Fraction) -> Call:
        phase = self.phase
        if not self._moves:
            return lognormal(phase.r)
        k = ball(x).exp()
        return Displaced(phase.r, k, phase.replaced) if phase.kind in ("dropping", "full") else opposite(phase.r, k)

    def _hidden(self, x: Fraction, share: Fraction, rounds: int, calls: Call) -> arb:
        k = ball(x).exp()
        strike = ball((1 - share) / share * rounds) * (k - 1)
        return ball(share / rounds) * calls(strike if self._moves else strike + k * rounds)

    def _on_top(self, x: Fraction, back: bool, rounds: int) -> arb:
        """What n = `rounds` equal rounds do not cover where nothing is left over; D_k for k < 1 is that for 1/k."""
        phase, k = self.phase, ball(abs(x)).exp()
        back = back != (x < 0)
        added = _exposed(phase, rounds) * gaussian(phase.mu, ball(abs(x))) + _seen_early(phase, k, back)
        return added if x >= 0 else added / k


def _exposed(phase: Phase, rounds: int) -> arb:
    """kappa: the expected share of weight beyond what so many equal rounds cover, by the best of some moments."""
    size, batch = phase.size, phase.batch
    excess = Fraction(size, batch * rounds)
    if excess <= 1 or size == batch:
        raise Refused("where nothing is left over there should be fewer rounds than N/B")
    scale = excess * (-(-size // batch) - 1) * batch / (size - batch)
    bounds = [ball(scale / (excess - 1) ** p) * _moment(p, phase.shift, batch) for p in (2, 4, 6, 8)]
    return reduce(arb.min, bounds)


@lru_cache(maxsize=256)
def _moment(p: int, shift: Fraction, batch: int) -> arb:
    """At least E[(w - 1)^p], w the mean of `batch` likelihood ratios over the mean of all."""
    largest = arb(1)
    for i in range(2048):  # each factor at the end of the interval where it is largest
        low, high = Fraction(i, 2048), Fraction(i + 1, 2048)
        far = ball(p * (p - 1) * (1 + high) ** 2 * shift / 2).exp() - 1
        spread = ball((p - 1) * (1 - low**2) * shift / 2).exp()
        largest = largest.max(spread * (1 + ball((1 - low) / (1 + low)) * far))
    log = largest.log()
    parts = ((blocks, (log * (p - blocks) / (p - 1)).exp() - 1) for blocks in range(1, p // 2 + 1))
    return sum((_partitions(p, b) * ball(Fraction(1, batch ** (p - b))) * part for b, part in parts), arb(0))


def _partitions(things: int, blocks: int) -> int:
    """Partitions of a set into blocks with at least two elements each."""
    if blocks == 0 or things < 2 * blocks:
        return int(things == 0 == blocks)
    return blocks * _partitions(things - 1, blocks) + (things - 1) * _partitions(things - 2, blocks - 1)


def _seen_early(phase: Phase, k: arb, back: bool) -> arb:
    """At least zeta: p E[X'+ pi(X')], p = B/N, pi(s) = P(X > -s p/(1 - p)), with a staircase above pi.

    Backwards X is distributed as -k times the term at 1/k.
    """
    p = Fraction(phase.batch, phase.size)
    odds = ball(p / (1 - p))
    term = Displaced(phase.r, 1 / k if back else k, phase.replaced)

    def chance(s: arb) -> arb:
        return tail(-(term.right(odds * s / k) if back else term.left(odds * s)))

    def beyond(s: arb) -> arb:
        return k * term.loss(term.left(s / k)) if back else term.gain(term.right(s))

    s = ball(Fraction(1, 400))
    before, total = chance(s), chance(s) * beyond(arb(0))
    for _ in range(160):
        step = s * 9 / 8
        after = chance(step)
        total += (after - before) * beyond(s)
        s, before = step, after
    return ball(p) * (total + (1 - before) * beyond(s))
