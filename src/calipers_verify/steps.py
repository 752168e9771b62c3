"""What one step, or one epoch, shows at most: x -> D at e^x, for every kind of phase.

**Hidden in one of M rounds.** With the record taking part with probability s, D_k is at most

    E[( (1 - s)(1 - k) + (s / M) (X_1 + ... + X_M) )+],

X_1 ... X_M independent copies of a term of `calipers_verify.calls`. Dealt out independently of all others (Poisson
sampling: M = 1, s = q; fixed batches: M = s = 1; balls-and-bins; shuffled batches for one who knows nothing of the
others) the term is `opposite` if the record is replaced, and lognormal - k if it is zeroed out: then one sum serves
all k. Shuffled batches of fixed size that leave a record over have the term `displaced`, or blocks of rounds that are
a little less (`calipers_verify.blocks`); where nothing is left over, `calipers_verify.cover` says what is added.

**Fixed batches.** All of these leak at most what N(1/sigma, 1) against N(0, 1) does, 2/sigma if replaced.

**Other steps.** A Poisson step divided by its realized size, and one whose rate moves with the dataset.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb

from calipers_verify.blocks import BLOCKS, ROUNDS, block_call, halves
from calipers_verify.calls import Call, ball, displaced, gaussian, lognormal, moved, opposite, realized, turned
from calipers_verify.cover import COVER, first_batch, rough, weights
from calipers_verify.reading import Chosen, Effort, Or, Rational, Refused, Whole
from calipers_verify.sums import PLAN, Calls, Plan, Sum, connected, summed

COUNT, MANY = Whole(1, 1 << 53), Whole(3, 10**8)
"""MANY: of datasets whose batch sizes are looked at one by one."""
NOISE, RATE = Rational(10**6, Fraction(1, 1000)), Rational(1)
SAMPLERS: dict[str, dict[str, Any]] = {
    "poisson": {"sample_rate": RATE, "steps": COUNT},
    "poisson-realized": {
        "dataset_size": MANY,
        "sample_rate": Rational(1 - Fraction(1, 1 << 53)),
        "steps": COUNT,
    },
    "poisson-moving": {"dataset_size": MANY, "batch_size": MANY._replace(low=1), "steps": COUNT},
    "deterministic": {"epochs": COUNT},
    "balls-and-bins": {"batches": Whole(1, 10**11), "epochs": COUNT},
    "shuffle": {
        "dataset_size": COUNT,
        "batch_size": COUNT,
        "last_batch": ("drop", "keep"),
        "order": ("every-epoch", "once"),
        "epochs": COUNT,
        "view": ("worst-case", "isolated"),
    },
}
PHASE = Chosen("sampler", {sampler: {"noise_multiplier": NOISE, **own} for sampler, own in SAMPLERS.items()})
HOW = Or(None, {"plan": PLAN, "blocks": Or(None, BLOCKS), "cover": Or(None, COVER)})
"""How a node of a law is proven: by a closed form, or by a sum."""
MOST_SUMS = 2000


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


def phases_of(record: dict[str, Any], adjacency: str) -> list[list[Phase]]:
    """The phase for every pair of neighboring datasets that differ in what they show, each as factors of a product."""
    sampler, count = record["sampler"], record["steps"] if "steps" in record else record["epochs"]
    shift, size, batch = 1 / record["noise_multiplier"] ** 2, record.get("dataset_size", 0), record.get("batch_size", 0)
    dealt = Phase("dealt", count, shift, adjacency == "substitute", record.get("sample_rate", Fraction(1)))
    if sampler in ("poisson-realized", "poisson-moving") and adjacency != "add-remove":
        raise Refused(f"{sampler} is about add-remove neighbors")
    if sampler == "poisson-realized":  # size and sum show less the larger a dataset is
        return [[dealt._replace(kind="realized", size=size - 1)]]
    if sampler == "poisson-moving":
        if batch > size - 2:
            raise Refused("a rate that moves should stay below 1 on both neighbors")
        pairs = [(dealt._replace(share=Fraction(batch, n + 1)), n) for n in (size - 1, size)]
        return [[step, dealt._replace(kind="size", size=n, batch=batch)] for step, n in pairs]
    return [[_shuffled(record, dealt) if sampler == "shuffle" else dealt._replace(rounds=record.get("batches", 1))]]


def _shuffled(record: dict[str, Any], dealt: Phase) -> Phase:
    size, batch, opposed = record["dataset_size"], record["batch_size"], record["view"] == "worst-case"
    if batch > size:
        raise Refused("a batch should not be larger than the dataset")
    keeps, (rounds, left) = record["last_batch"] == "keep", divmod(size, batch)
    share = Fraction(rounds * batch, size)
    found = dealt._replace(share=share, rounds=rounds, opposed=opposed, size=size, batch=batch)
    if record["order"] == "once":
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

    def bound(self, x: Fraction, back: bool, how: Any) -> arb:
        """At least D at e^x, of Q against P if `back`; `how`: the sum to be used, if any."""
        phase, k = self.phase, ball(x).exp()
        if (x < 0) if phase.replaced or phase.kind == "full" else back:
            return 1 - k + k * self.bound(-x, not back, how)
        self.effort.spend(20_000 if self.closed or how else 100)
        if how is not None:
            return self._by_sum(x, back and not phase.replaced, **how)
        if self.closed is not None:
            return self.closed(k)
        if phase.rounds > 1 or phase.kind in ("fixed", "full", "covered"):
            return gaussian(phase.mu, ball(x))
        return self._hidden(x, self._term(k, False))

    def _by_sum(self, x: Fraction, back: bool, plan: Any, blocks: Any, cover: Any) -> arb:
        phase, plan = self.phase, Plan(**plan)
        if self.closed or phase.kind == "fixed" or (cover is not None) != (phase.kind == "full"):
            raise Refused("no bound by sums like this one is proven for this phase")
        if blocks is not None and (phase.kind != "dropping" or phase.rounds < ROUNDS):
            raise Refused("blocks are proven only for shuffled epochs that leave a record over and are as long")
        key = (x if self._moves else None, back, plan, str(blocks), str(cover))
        if key not in self.known:
            if len(self.known) >= MOST_SUMS:
                raise Refused("it asks for too many sums")
            found = self._blocks(x, plan, blocks) if cover is None else self._covered(x, back, plan, cover)
            self.known[key] = Calls(found, plan.unit)
        if cover is None:
            return self._hidden(x, self.known[key])
        exposed = weights(phase.size, phase.batch, phase.shift, cover)[2]
        return ball(Fraction(phase.batch, phase.size)) * self.known[key](arb(0)) + exposed * gaussian(phase.mu, ball(x))

    def _blocks(self, x: Fraction, plan: Plan, blocks: Any) -> Sum:
        """All rounds of an epoch, those that fill blocks by blocks."""
        phase, k = self.phase, ball(x).exp()
        term = connected(self._term(k, False), plan, self.effort)
        if blocks is None:
            return summed([(term, phase.rounds)], plan, self.effort)
        payoff = block_call(halves(phase.r, k, phase.replaced), **blocks, effort=self.effort)
        terms = Calls(summed([(term, ROUNDS)], plan, self.effort), plan.unit)
        block = connected(lambda c: payoff(c).min(terms(c)), plan, self.effort, ROUNDS)
        count, rest = divmod(phase.rounds, ROUNDS)
        return summed([(block, count), (term, rest)], plan, self.effort)

    def _covered(self, x: Fraction, back: bool, plan: Plan, cover: Any) -> Sum:
        """The first batch, and the later ones with the weights that cover them."""
        phase, r = self.phase, self.phase.r
        low, high, _ = weights(phase.size, phase.batch, phase.shift, cover)
        far = (2 * r, 2 * r) if phase.replaced else (r, 2 * r) if back else (2 * r, r)
        first = connected(first_batch(x, phase.mu, far), rough(plan), self.effort)
        term = self._term(ball(x).exp(), back)
        many, few = (connected(lambda c, w=w: w * term(c / w), plan, self.effort) for w in (low, high))  # type: ignore[misc]
        return summed([(first, 1), (many, cover["many"]), (few, cover["few"])], plan, self.effort)

    @property
    def _moves(self) -> bool:
        """Whether every k has a term of its own."""
        return self.phase.replaced or self.phase.kind not in ("dealt", "covered")

    def _term(self, k: arb, back: bool) -> Call:
        phase = self.phase
        if not self._moves:
            return lognormal(phase.r)
        if phase.kind not in ("dropping", "full"):
            return opposite(phase.r, k)
        return turned(displaced(phase.r, 1 / k, False), k) if back else displaced(phase.r, k, phase.replaced)

    def _hidden(self, x: Fraction, calls: Call) -> arb:
        phase, k = self.phase, ball(x).exp()
        share, rounds = Fraction(1) if phase.kind == "covered" else phase.share, phase.rounds
        strike = ball((1 - share) / share * rounds) * (k - 1)
        return ball(share / rounds) * calls(strike if self._moves else strike + k * rounds)
