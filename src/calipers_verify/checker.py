"""What a certificate claims, and whether it is so.

    {"format": "calipers-certificate", "version": 2,
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
from typing import Any, NamedTuple

from flint import arb, ctx

from calipers_verify import attacks, lattice
from calipers_verify.calls import PRECISION, ball, gaussian
from calipers_verify.reading import Chosen, Effort, Items, Or, Rational, Refused, digest, loaded, parsed, read
from calipers_verify.rows import ONE
from calipers_verify.steps import HOW, PHASE, Phase, Shown, phases_of

FORMAT, VERSION = "calipers-certificate", 2
DIRECTIONS = ("present-absent", "absent-present")
"""P against Q: the dataset with the record against the one without (or: the original against the replaced), and back.
"""
RUN = {"adjacency": ("add-remove", "zero-out", "substitute"), "phases": Items(PHASE, 1, 64)}
PROOF = {
    "direction": ("both", *DIRECTIONS),
    "spacing": Rational(1),
    "factors": Items({"law": lattice.LAW, "sums": Items(HOW, 1, lattice.MOST_NODES)}, 1, 128),
}
NUMBERS = {"epsilon": Rational(10**6, 0), "delta": Rational(1)}
EVIDENCE: dict[str, dict[str, Any]] = {
    "upper": {"direction": ("both",), "proof": Or("fixed-batches", Items(Items(PROOF, 1, 2), 1, 2))},
    "lower": {"direction": DIRECTIONS, "attack": Or("fixed-batches", attacks.ATTACK)},
}
CLAIMS = Items(Chosen("jaw", {jaw: NUMBERS | own for jaw, own in EVIDENCE.items()}), 1, 4)


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
        context.traps[Inexact] = True
        try:
            return str(Decimal(number.numerator) / number.denominator)
        except Inexact:
            return str(number)


def verify_file(path: str | os.PathLike[str]) -> Verdict:
    """The verdict on a file; see `verify`."""
    return verify(loaded(path))


def verify(data: bytes) -> Verdict:
    """What the certificate in `data` proves; raises `Refused`, with the reason, unless all of its claims are proven."""
    record = parsed(data)
    if record.get("format") != FORMAT or record.get("version") is True or record.get("version") != VERSION:
        raise Refused(f"it is not a {FORMAT} of version {VERSION}")
    if record.keys() != {"format", "version", "run", "claims", "made_by", "digest"}:
        raise Refused("a certificate has a format, a version, a run, claims, made_by and a digest, and nothing else")
    if not isinstance(record["made_by"], str) or len(record["made_by"]) > 200:
        raise Refused("made_by should be a short string")
    if record["digest"] != digest(record):
        raise Refused("its digest is not that of its content: it was damaged or altered")
    pairs, effort = pairs_of(record["run"]), Effort()
    try:
        with ctx.workprec(PRECISION):
            claims = [_checked(claim, pairs, effort) for claim in read(record["claims"], CLAIMS, "claims")]
    except (ArithmeticError, LookupError, ValueError, MemoryError) as error:  # whatever this is, nothing was proven
        raise Refused(f"its numbers do not fit together ({type(error).__name__})") from error
    return Verdict(record["run"], tuple(claims))


def pairs_of(record: Any) -> list[list[Phase]]:
    """The phases of the run, for every pair of neighboring datasets that counts: one, or two where a rate moves."""
    run = read(record, RUN, "run")
    found = [phases_of(phase, run["adjacency"]) for phase in run["phases"]]
    count = max(len(pairs) for pairs in found)
    return [list(chain.from_iterable(pairs[i % len(pairs)] for pairs in found)) for i in range(count)]


def needed(phases: list[Phase]) -> tuple[str, ...]:
    """The directions that an upper claim has to prove: replacing is symmetric."""
    return ("both",) if phases[0].replaced else DIRECTIONS


def _checked(claim: dict[str, Any], pairs: list[list[Phase]], effort: Effort) -> Claim:
    """The claim, or `Refused` unless it holds."""
    jaw, epsilon, delta, direction = (claim[key] for key in Claim._fields)
    evidence = claim["proof" if jaw == "upper" else "attack"]
    if evidence == "fixed-batches":
        found = [gaussian(fixed_batches(pairs[0], jaw), ball(epsilon))]
    elif jaw == "upper":
        found = [lattice.delta_bound(law, epsilon) for law in proven(evidence, pairs, dust_of(delta), effort)]
    else:
        back = direction == DIRECTIONS[1]
        rows = attacks.tested(evidence["factors"], pairs[0], back, dust_of(delta), effort)
        found = [attacks.delta_shown(rows, evidence["threshold"], epsilon)]
    if not all(value <= ball(delta) if jaw == "upper" else value >= ball(delta) for value in found):
        raise Refused(f"what is proven about the {jaw} jaw is not the delta claimed")
    return Claim(jaw, epsilon, delta, direction)


def dust_of(delta: Fraction) -> int:
    """The mass that cutting tails may cost, in 2^-256: a small part of delta."""
    return int(delta * ONE) // 2000


def fixed_batches(phases: list[Phase], jaw: str) -> arb:
    """mu of the run if everybody knew which batches hold the record: sampling at random never leaks more."""
    if any(phase.kind in ("realized", "size") for phase in phases):
        raise Refused("fixed batches do not bound what a divisor or a rate that moves with the data shows")
    if jaw == "lower" and any(phase.is_hidden for phase in phases):
        raise Refused("the closed form for fixed batches is attained only where nothing is drawn at random")
    squares = (phase.repeats * (4 if phase.replaced else 1) * phase.shift for phase in phases)
    return ball(sum(squares, Fraction(0))).sqrt()


def proven(proof: Any, pairs: list[list[Phase]], dust: int, effort: Effort) -> list[lattice.Law]:
    """The laws of the whole run, for all pairs of neighbors and all directions that are needed."""
    laws = []
    for phases, records in zip(pairs, proof, strict=True):
        if tuple(record["direction"] for record in records) != needed(phases):
            raise Refused(f"a proof for one pair of neighbors has the directions {', '.join(needed(phases))}")
        shown = [Shown(phase, effort) for phase in phases]
        laws += [proven_law(record, shown, dust, effort) for record in records]
    return laws


def proven_law(record: Any, shown: list[Shown], dust: int, effort: Effort) -> lattice.Law:
    """The law of the whole run in one direction, every factor checked to dominate its step or epoch."""
    spacing, back, laws = record["spacing"], record["direction"] == DIRECTIONS[1], []
    for factor, one in zip(record["factors"], shown, strict=True):
        places, sums = factor["law"]["places"], factor["sums"]
        each = sums * len(places) if len(sums) == 1 else sums  # one for all places, or one for each
        bounds = [one.bound(place * spacing, back, how) for place, how in zip(places, each, strict=True)]
        laws.append((lattice.dominating(factor["law"], spacing, bounds), one.phase.repeats))
    return lattice.power(laws, dust, effort)
