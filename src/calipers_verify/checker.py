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
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from flint import arb, ctx

from calipers_verify import attacks, lattice
from calipers_verify.calls import PRECISION, ball, gaussian
from calipers_verify.reading import MOST_BYTES, Effort, Refused, digest, fields, items, one_of, parsed, rational, whole
from calipers_verify.rows import ONE
from calipers_verify.steps import Phase, Shown, read_phase

FORMAT, VERSION = "calipers-certificate", 1
ADJACENCIES = ("add-remove", "zero-out", "substitute")
DIRECTIONS = ("present-absent", "absent-present")
"""P against Q: the dataset with the record against the one without (or: the original against the replaced), and back.
"""
MOST_PHASES = 64


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
        words, neighbors = [], f"{self.run['adjacency']} neighbors"
        for jaw, epsilon, delta, direction in self.claims:
            numbers = f"epsilon = {decimal(epsilon)} and delta = {decimal(delta)}"
            if jaw == "upper":
                words.append(f"The run is differentially private with {numbers} ({neighbors}, both directions).")
            else:
                words.append(f"An attack shows that at {numbers} no smaller delta holds ({neighbors}, {direction}).")
        return words


def decimal(number: Fraction) -> str:
    """The number as written in decimals where it is one, and as a fraction otherwise."""
    with localcontext(prec=60) as context:
        context.traps[Inexact] = False
        context.clear_flags()
        value = (Decimal(number.numerator) / number.denominator).normalize()
        shown = f"{value:f}" if value.adjusted() > -12 else str(value)
        return str(number) if context.flags[Inexact] else shown


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
    pairs, effort = read_run(record["run"]), Effort()
    try:
        with ctx.workprec(PRECISION):
            claims = [_claim(claim, pairs, effort) for claim in items(record["claims"], 1, 4, "claims")]
    except (ArithmeticError, ValueError, MemoryError) as error:  # whatever this is, nothing was proven
        raise Refused(f"its numbers are out of all proportion ({type(error).__name__})") from error
    return Verdict(record["run"], tuple(claims))


def read_run(record: Any) -> list[list[Phase]]:
    """The phases of the run, for every pair of neighboring datasets that counts: one, or two where a rate moves."""
    run = fields(record, ("adjacency", "phases"), "run")
    adjacency = one_of(run["adjacency"], ADJACENCIES, "adjacency")
    found = [read_phase(phase, adjacency) for phase in items(run["phases"], 1, MOST_PHASES, "phases")]
    count = max(len(pairs) for pairs in found)
    return [list(chain.from_iterable(pairs[i % len(pairs)] for pairs in found)) for i in range(count)]


def needed(phases: list[Phase]) -> tuple[str, ...]:
    """The directions that an upper claim has to prove: replacing is symmetric."""
    return ("both",) if phases[0].replaced else DIRECTIONS


def _claim(record: Any, pairs: list[list[Phase]], effort: Effort) -> Claim:
    jaw = one_of(record.get("jaw") if isinstance(record, dict) else None, ("upper", "lower"), "jaw")
    evidence = "proof" if jaw == "upper" else "attack"
    fields(record, ("jaw", "epsilon", "delta", "direction", evidence), f"a claim about the {jaw} jaw")
    epsilon = rational(record["epsilon"], -1, 10**6, "epsilon")
    if epsilon < 0:
        raise Refused("epsilon is negative")
    delta = rational(record["delta"], 0, 1, "delta")
    direction = one_of(record["direction"], ("both",) if jaw == "upper" else DIRECTIONS, "direction")
    if jaw == "upper":
        _check_upper(record["proof"], pairs, epsilon, delta, effort)
    else:
        _check_lower(record["attack"], pairs[0], epsilon, delta, direction, effort)
    return Claim(jaw, epsilon, delta, direction)


def fixed_batches(phases: list[Phase]) -> arb:
    """mu of the run if everybody knew which batches hold the record: sampling at random never leaks more."""
    if any(phase.kind in ("realized", "size") for phase in phases):
        raise Refused("fixed batches do not bound what a divisor or a rate that moves with the data shows")
    squares = (phase.repeats * (4 if phase.replaced else 1) * phase.shift for phase in phases)
    return ball(sum(squares, Fraction(0))).sqrt()


def _check_upper(proof: Any, pairs: list[list[Phase]], epsilon: Fraction, delta: Fraction, effort: Effort) -> None:
    if proof == "fixed-batches":
        if not gaussian(fixed_batches(pairs[0]), ball(epsilon)) <= ball(delta):
            raise Refused("the closed form for fixed batches is larger than the delta claimed")
        return
    for phases, records in zip(pairs, items(proof, len(pairs), len(pairs), "a proof"), strict=True):
        shown = [Shown(phase, effort) for phase in phases]
        fields(records, needed(phases), "a proof for one pair of neighbors")
        for direction in needed(phases):
            law = composed(records[direction], shown, direction, effort)
            if not lattice.delta_bound(law, epsilon) <= ball(delta):
                raise Refused(f"the composed law shows a larger delta than the one claimed ({direction})")


def composed(record: Any, shown: list[Shown], direction: str, effort: Effort) -> lattice.Law:
    """The law of the whole run in one direction, every factor checked to dominate its step or epoch."""
    record = fields(record, ("spacing", "dust", "factors"), "a proof for one direction")
    spacing = rational(record["spacing"], 0, 1, "spacing")
    dust = whole(record["dust"], 0, ONE, "dust")
    laws = []
    for factor, one in zip(items(record["factors"], len(shown), len(shown), "factors"), shown, strict=True):
        factor = fields(factor, ("law", "coarsen", "plans"), "a factor")
        nodes, plans = [place * spacing for place in lattice.read_places(factor["law"])], factor["plans"]
        each = items(plans, len(nodes), len(nodes), "plans") if isinstance(plans, list) else [plans] * len(nodes)
        bounds = {x: one.bound(x, direction, plan) for x, plan in zip(nodes, each, strict=True)}
        law = lattice.dominating(factor["law"], spacing, bounds.__getitem__)
        coarsen = attacks.read_coarsen(factor["coarsen"], one.phase.repeats)
        laws.append((sum(coarsen), lattice.power(law, one.phase.repeats, coarsen, dust, effort)))
    return lattice.all_phases(laws, dust, effort)


def _check_lower(
    attack: Any, phases: list[Phase], epsilon: Fraction, delta: Fraction, direction: str, effort: Effort
) -> None:
    if attack == "fixed-batches":
        if any(phase.is_hidden for phase in phases):
            raise Refused("the closed form for fixed batches is attained only where nothing is drawn at random")
        if not gaussian(fixed_batches(phases), ball(epsilon)) >= ball(delta):
            raise Refused("the closed form for fixed batches is smaller than the delta claimed")
        return
    rows = attacks.tested(attack, phases, direction, effort)
    threshold = whole(attack["threshold"], -(10**12), 10**12, "threshold")
    if not attacks.delta_shown(rows, threshold, epsilon) >= ball(delta):
        raise Refused("the attack shows less than the delta claimed")
