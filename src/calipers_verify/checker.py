"""What a certificate claims, and whether it is so.

    {"format": "calipers-certificate", "version": 1,
     "run": {"adjacency": ..., "phases": [...]},          exact rationals; what was executed
     "claims": [{"jaw": "upper", ...}, {"jaw": "lower", ...}],
     "made_by": ..., "digest": ...}

An upper claim says that the run is (epsilon, delta)-differentially private, a lower one that an attack shows it is
not so for any smaller delta. `verify` recomputes everything that a claim rests on from the run; the file only
supplies laws to be checked, cells of tests, and how finely to compute.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from flint import arb, ctx

from calipers_verify import attacks, lattice
from calipers_verify.calls import (
    ONE,
    PRECISION,
    ball,
    gaussian,
    poisson_absent,
    poisson_present,
    poisson_replaced,
)
from calipers_verify.epochs import Epoch, displaced, displaced_replaced, opposite
from calipers_verify.reading import MOST_BYTES, Effort, Refused, digest, fields, items, one_of, parsed, rational, whole
from calipers_verify.sums import read_plans

FORMAT, VERSION = "calipers-certificate", 1
ADJACENCIES = ("add-remove", "zero-out", "substitute")
DIRECTIONS = ("present-absent", "absent-present")
"""P against Q: the dataset with the record against the one without (or: the original against the replaced), and back.
"""
MOST_PHASES = 64
MOST_COUNT = 1 << 53


class Phase(NamedTuple):
    """One phase: `repeats` steps (Poisson) or epochs (all others)."""

    sampler: str
    sigma: Fraction
    repeats: int
    rate: Fraction
    rounds: int
    share: Fraction
    isolated: bool


class Claim(NamedTuple):
    """A statement that was verified."""

    jaw: str
    epsilon: Fraction
    delta: Fraction
    direction: str


class Verdict(NamedTuple):
    """Everything a certificate proves about its run."""

    run: dict[str, Any]
    claims: tuple[Claim, ...]

    def sentences(self) -> list[str]:
        """The claims in words."""
        neighbors = f"{self.run['adjacency']} neighbors"
        words = []
        for claim in self.claims:
            numbers = f"epsilon = {decimal(claim.epsilon)} and delta = {decimal(claim.delta)}"
            if claim.jaw == "upper":
                words.append(f"The run is differentially private with {numbers} ({neighbors}, both directions).")
            else:
                words.append(
                    f"An attack shows that at {numbers} no smaller delta holds ({neighbors}, {claim.direction})."
                )
        return words


def decimal(number: Fraction) -> str:
    """The number as written in decimals where it is one, and as a fraction otherwise."""
    denominator, digits = number.denominator, 0
    while denominator > 1 and digits < 60 and 10**digits % denominator:
        digits += 1
    if 10**digits % denominator:
        return str(number)
    scaled = str(abs(number.numerator) * 10**digits // denominator).rjust(digits + 1, "0")
    whole_part, rest = scaled[: len(scaled) - digits], scaled[len(scaled) - digits :]
    shown = f"{whole_part}.{rest}" if rest else whole_part
    if len(rest) > 12 and not int(whole_part):
        first = rest.lstrip("0")
        shown = f"{first[0]}{'.' + first[1:] if first[1:] else ''}e-{len(rest) - len(first) + 1}"
    return ("-" if number < 0 else "") + shown


def verify_file(path: str | os.PathLike[str]) -> Verdict:
    """The verdict on a file; see `verify`."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"it cannot be read ({error.strerror or error})") from error
    return verify(data)


def verify(data: bytes) -> Verdict:
    """What the certificate in `data` proves; raises `Refused`, with the reason, unless all of its claims are proven."""
    record = fields(parsed(data), ("format", "version", "run", "claims", "made_by", "digest"), "a certificate")
    if record["format"] != FORMAT or record["version"] is True or record["version"] != VERSION:
        raise Refused(f"it is not a {FORMAT} of version {VERSION}")
    if not isinstance(record["made_by"], str) or len(record["made_by"]) > 200:
        raise Refused("made_by should be a short string")
    if record["digest"] != digest(record):
        raise Refused("its digest is not that of its content: it was damaged or altered")
    run = fields(record["run"], ("adjacency", "phases"), "run")
    adjacency = one_of(run["adjacency"], ADJACENCIES, "adjacency")
    phases = [read_phase(phase) for phase in items(run["phases"], 1, MOST_PHASES, "phases")]
    effort = Effort()
    try:
        with ctx.workprec(PRECISION):
            claims = [_claim(claim, phases, adjacency, effort) for claim in items(record["claims"], 1, 4, "claims")]
    except (ArithmeticError, ValueError, MemoryError) as error:  # whatever this is, nothing was proven
        raise Refused(f"its numbers are out of all proportion ({type(error).__name__})") from error
    return Verdict(run, tuple(claims))


def read_phase(record: Any) -> Phase:
    """One phase of the run, checked."""
    if not isinstance(record, dict):
        raise Refused("a phase should be an object")
    samplers = ("poisson", "deterministic", "balls-and-bins", "shuffle")
    sampler = one_of(record.get("sampler"), samplers, "sampler")
    own = {
        "poisson": ("sample_rate", "steps"),
        "deterministic": ("epochs",),
        "balls-and-bins": ("batches", "epochs"),
        "shuffle": ("dataset_size", "batch_size", "epochs", "view"),
    }[sampler]
    fields(record, ("sampler", "noise_multiplier", *own), f"a phase with sampler {sampler}")
    sigma = rational(record["noise_multiplier"], Fraction(1, 1000), 10**6, "noise_multiplier")
    count = whole(record["steps" if sampler == "poisson" else "epochs"], 1, MOST_COUNT, "steps or epochs")
    rate, rounds, share, isolated = Fraction(1), 1, Fraction(1), False
    if sampler == "poisson":
        rate = rational(record["sample_rate"], 0, 1, "sample_rate")
    elif sampler == "balls-and-bins":
        rounds = whole(record["batches"], 1, 10**11, "batches")
    elif sampler == "shuffle":
        size = whole(record["dataset_size"], 1, MOST_COUNT, "dataset_size")
        batch = whole(record["batch_size"], 1, size, "batch_size")
        rounds = size // batch
        share = Fraction(rounds * batch, size)
        isolated = one_of(record["view"], ("worst-case", "isolated"), "view") == "isolated"
    return Phase(sampler, sigma, count, rate, rounds, share, isolated)


def _claim(record: Any, phases: list[Phase], adjacency: str, effort: Effort) -> Claim:
    if not isinstance(record, dict):
        raise Refused("a claim should be an object")
    jaw = one_of(record.get("jaw"), ("upper", "lower"), "jaw")
    evidence = "proof" if jaw == "upper" else "attack"
    fields(record, ("jaw", "epsilon", "delta", "direction", evidence), f"a claim about the {jaw} jaw")
    epsilon = rational(record["epsilon"], -1, 10**6, "epsilon")
    if epsilon < 0:
        raise Refused("epsilon is negative")
    delta = rational(record["delta"], 0, 1, "delta")
    directions = ("both",) if jaw == "upper" else DIRECTIONS
    direction = one_of(record["direction"], directions, "direction")
    if jaw == "upper":
        _check_upper(record["proof"], phases, adjacency, epsilon, delta, effort)
    else:
        _check_lower(record["attack"], phases, adjacency, epsilon, delta, direction, effort)
    return Claim(jaw, epsilon, delta, direction)


def fixed_batches(phases: list[Phase], adjacency: str) -> arb:
    """mu of the run if everybody knew which batches hold the record: sampling at random never leaks more."""
    largest = 2 if adjacency == "substitute" else 1
    return ball(sum((phase.repeats * largest**2 / phase.sigma**2 for phase in phases), Fraction(0))).sqrt()


def _check_upper(
    proof: Any, phases: list[Phase], adjacency: str, epsilon: Fraction, delta: Fraction, effort: Effort
) -> None:
    if proof == "fixed-batches":
        if not gaussian(fixed_batches(phases, adjacency), ball(epsilon)) <= ball(delta):
            raise Refused("the closed form for fixed batches is larger than the delta claimed")
        return
    needed = ("both",) if adjacency == "substitute" else DIRECTIONS  # replacing is symmetric
    kinds = [EpochKind(phase, adjacency, effort) for phase in phases]
    proof = fields(proof, needed, "a proof")
    for direction in needed:
        law = composed(proof[direction], phases, kinds, direction, effort)
        if not lattice.delta_bound(law, epsilon) <= ball(delta):
            raise Refused(f"the composed law shows a larger delta than the one claimed ({direction})")


class EpochKind:
    """What one step or epoch of a phase shows, as a function of direction and of how sums are kept."""

    def __init__(self, phase: Phase, adjacency: str, effort: Effort) -> None:
        self.phase, self.replaced = phase, adjacency == "substitute"
        self.r = ball(1 / phase.sigma)
        term: Callable[[arb, arb], Callable[[arb], arb]] | None = opposite if self.replaced else None
        if phase.sampler == "shuffle" and not phase.isolated:
            # Proven for loaders that drop at least one record: the displaced one goes where nobody looks.
            term = displaced_replaced if self.replaced else displaced
        self.epoch = Epoch(term, self.r, phase.share, phase.rounds, effort)

    def closed_form(self, direction: str) -> Callable[[Fraction], arb]:
        """x -> D at e^x of a Poisson step, or of fixed batches, which every other epoch leaks at most."""
        if self.phase.sampler != "poisson":
            mu = 2 * self.r if self.replaced else self.r
            return lambda x: gaussian(mu, ball(x))
        form = poisson_present if direction == "present-absent" else poisson_absent
        if self.replaced:
            form = poisson_replaced
        return lambda x: form(self.phase.rate, self.r, ball(x))

    def by_sums(self, direction: str, record: Any, places: list[Any], spacing: Fraction) -> Callable[[Fraction], arb]:
        """x -> D at e^x of an epoch that hides the record, by sums of its rounds."""
        phase = self.phase
        worst_case = phase.sampler == "shuffle" and not phase.isolated
        if phase.sampler in ("poisson", "deterministic") or (worst_case and phase.share == 1):
            raise Refused(f"no bound by sums is proven for sampler {phase.sampler} here; use the closed form")
        plans = read_plans(record, len(places), phase.rounds)
        plan_at = {place * spacing: plan for place, plan in zip(places, plans * len(places), strict=False)}
        present, absent = self.epoch.present, self.epoch.absent
        if direction == "both":  # replacing is symmetric, so that one side of the sums serves both
            return lambda x: present(x, plan_at[x]) if x >= 0 else absent(x, plan_at[x])
        return lambda x: (absent if direction == "absent-present" else present)(x, plan_at[x])


def composed(record: Any, phases: list[Phase], kinds: list[EpochKind], direction: str, effort: Effort) -> lattice.Law:
    """The law of the whole run in one direction, every factor checked to dominate its step."""
    record = fields(record, ("spacing", "dust", "factors"), "a proof for one direction")
    spacing = rational(record["spacing"], 0, 1, "spacing")
    dust = whole(record["dust"], 0, ONE, "dust")
    laws = []
    for factor, phase, kind in zip(
        items(record["factors"], len(phases), len(phases), "factors"), phases, kinds, strict=True
    ):
        factor = fields(factor, ("law", "coarsen", "plans"), "a factor")
        if factor["plans"] is None:
            call = kind.closed_form(direction)
        else:
            places = items(
                fields(factor["law"], ("places", "masses", "infinity"), "a law")["places"], 2, 5000, "places"
            )
            places = [whole(place, -(10**9), 10**9, "a place") for place in places]
            call = kind.by_sums(direction, factor["plans"], places, spacing)
        law = lattice.dominating(factor["law"], spacing, call, effort)
        laws.append(
            lattice.power(law, phase.repeats, attacks.read_coarsen(factor["coarsen"], phase.repeats), dust, effort)
        )
    return lattice.together(laws, dust, effort)


def _check_lower(
    attack: Any,
    phases: list[Phase],
    adjacency: str,
    epsilon: Fraction,
    delta: Fraction,
    direction: str,
    effort: Effort,
) -> None:
    if attack == "fixed-batches":
        if any(phase.rate < 1 or phase.rounds > 1 or phase.share < 1 for phase in phases):
            raise Refused("the closed form for fixed batches is attained only where nothing is drawn at random")
        if not gaussian(fixed_batches(phases, adjacency), ball(epsilon)) >= ball(delta):
            raise Refused("the closed form for fixed batches is smaller than the delta claimed")
        return
    attack = fields(attack, ("dust", "factors", "threshold"), "an attack")
    scores = tested(attack, phases, adjacency, direction, effort)
    threshold = whole(attack["threshold"], -(10**12), 10**12, "threshold")
    if not attacks.delta_shown(scores, threshold, epsilon) >= ball(delta):
        raise Refused("the attack shows less than the delta claimed")


def tested(attack: Any, phases: list[Phase], adjacency: str, direction: str, effort: Effort) -> attacks.Scores:
    """The score of the whole run under P from below and under Q from above.

    The run that attains it: the record's clipped gradient is one unit vector u in every step, its replacement's is
    -u; all others are zero, or -u where batches of fixed size are shuffled and the adversary may choose them.
    """
    dust = whole(attack["dust"], 0, ONE, "dust")
    factors = items(attack["factors"], len(phases), len(phases), "factors")
    scores = []
    for factor, phase in zip(factors, phases, strict=True):
        hidden = phase.rounds > 1 or phase.share < 1
        own = ("bins", "bin_scores", "coarsen_epochs") if hidden else ()
        factor = fields(factor, ("cuts", "scores", "coarsen", *own), "a factor of an attack")
        back = direction == "absent-present"
        if hidden:
            sums = attacks.epoch(factor, shifts(phase, adjacency, back), phase.share, phase.rounds, dust, effort)
            found = attacks.binned(sums, factor)
            times = attacks.read_coarsen(factor["coarsen_epochs"], phase.repeats)
        else:
            cuts, values = attacks.read_cells(factor)
            p, q = ([(phase.rate, mean), (1 - phase.rate, arb(0))] for mean in shifts(phase, adjacency, back))
            found = attacks.cells(cuts, values, p, q, effort)
            times = attacks.read_coarsen(factor["coarsen"], phase.repeats)
        scores.append(attacks.power(found, phase.repeats, times, dust, effort))
    return attacks.together(scores, dust, effort)


def shifts(phase: Phase, adjacency: str, back: bool) -> tuple[arb, arb]:
    """What the record adds to the noise of its step or round under P and under Q."""
    r, replaced = ball(1 / phase.sigma), adjacency == "substitute"
    if phase.sampler == "shuffle" and not phase.isolated:
        present, absent = 2 * r, arb(0) if replaced else r
    else:
        present, absent = r, -r if replaced else arb(0)
    return (absent, present) if back else (present, absent)
