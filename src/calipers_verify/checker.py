"""What a certificate claims, and whether it is so.

    {"format": "calipers-certificate", "version": 5,
     "run": {"adjacency": ..., "phases": [...]},          exact rationals; what was executed, or for steps that were
                                                          chosen while it ran {..., "menu": [...], "budget": ...}
     "claims": [{"bound": "upper", ...}, {"bound": "lower", ...}],
     "made_by": ..., "digest": ...}

An upper claim says that the run is (epsilon, delta)-differentially private for the neighbors named (in the isolated
view: that it shows no more to an adversary who knows nothing of the others), a lower one that an attack shows it is
not so for any smaller delta. `verify` recomputes everything that a claim rests on from the run; the file only
supplies PLDs to be checked, cells of tests, and how finely to compute.

Version 4: add-remove of batches of a fixed size means that a record is really added or removed, and a fixed order
states its sizes. In version 3 it meant a record zeroed out, which is zero-out now.
"""

from __future__ import annotations

import os
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from flint import arb, ctx

from calipers_verify import adaptive, attacks, pmfs, wording
from calipers_verify.neighbors import CUT, Neighbors, neighbors_of
from calipers_verify.reading import MOST_BYTES, Chosen, Refused, Unproven, digest, parsed, read, spend
from calipers_verify.rows import ONE
from calipers_verify.steps import HOW, PHASE, Phase, bound, phases_of
from calipers_verify.stop_loss import PRECISION, ball, gaussian

FORMAT, VERSION = "calipers-certificate", 5
DIRECTIONS = ("present-absent", "absent-present")
"""P against Q: the dataset with the record against the one without (or: the original against the replaced), and back.
An upper claim proves both, in this order; where the record is replaced they are the same.
"""
RUN = {"adjacency": {"add-remove", "zero-out", "substitute"}, "phases": [PHASE, 1, 64]}
FACTOR = {"law": pmfs.PMF, "sums": [HOW, 1, pmfs.MOST_NODES]}
PROOF = {"spacing": (Fraction(1, 10**60), Fraction(1)), "factors": [FACTOR, 1, 128]}
NUMBERS = {"epsilon": (Fraction(0), Fraction(10**6)), "delta": (Fraction(1, 10**60), Fraction(1))}
UPPER = {**NUMBERS, "direction": {"both"}, "proof": ("fixed-batches", [PROOF, 1, 4])}
LOWER = {**NUMBERS, "direction": set(DIRECTIONS), "attack": ("fixed-batches", attacks.ATTACK)}
CLAIMS = [Chosen("jaw", {"upper": UPPER, "lower": LOWER}), 1, 4]
ENDS = {"made_by": 200, "digest": 64}
CERTIFICATE = {"format": {FORMAT}, "version": range(VERSION, VERSION + 1), "run": RUN, "claims": CLAIMS} | ENDS
MENU = {"adjacency": {*RUN["adjacency"], "own"}, "menu": [adaptive.CHOICE, 1, 64], "budget": range(1, 10**7 + 1)}
CHOSEN = {**adaptive.WINDOW, "steps": [PROOF, 1, 64]}
CHOICES = {**NUMBERS, "direction": {"both"}, "proof": ("fixed-batches", [CHOSEN, 1, 2])}
ADAPTIVE = {**CERTIFICATE, "run": MENU, "claims": [Chosen("jaw", {"upper": CHOICES}), 1, 4]}


class Claim(NamedTuple):
    """A statement that was verified, and in words."""

    side: str
    epsilon: Fraction
    delta: Fraction
    direction: str
    sentence: str


class Verdict(NamedTuple):
    """Everything a certificate proves about its run, and the scope it is proven in: run, neighbors, view, ..."""

    run: dict[str, Any]
    claims: tuple[Claim, ...]
    scope: tuple[str, ...]

    def sentences(self) -> list[str]:
        """The claims in words, each with run and neighbors."""
        return [claim.sentence for claim in self.claims]

    def lines(self) -> list[str]:
        """What is printed of a certificate: every claim, and the scope of all of them."""
        return [*(f"proven: {sentence}" for sentence in self.sentences()), *self.scope]


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
    try:
        with ctx.workprec(PRECISION):
            return _verdict(parsed(data))
    except Refused:
        raise
    except Exception as error:  # whatever this is, nothing was proven
        why = "is not JSON" if "Decode" in type(error).__name__ else f"does not fit together ({type(error).__name__})"
        raise Refused(f"it {why}") from error


def _verdict(record: Any) -> Verdict:
    if not isinstance(record, dict) or record.get("format") != FORMAT or record.get("version") != VERSION:
        older = isinstance(record, dict) and record.get("version") in (1, 2, 3)
        before = " (before, add-remove of shuffled or fixed batches meant a record zeroed out)" if older else ""
        raise Refused(f"it is not a {FORMAT} of version {VERSION}: certify the run again{before}")
    spend(0, anew=True)
    is_menu = isinstance(record.get("run"), dict) and "menu" in record["run"]
    _, _, run, claims, _, seal = read(record, ADAPTIVE if is_menu else CERTIFICATE, "a certificate")
    if seal != digest(record):
        raise Refused("its digest is not that of its content: it was damaged or altered")
    if is_menu:
        known = all(claim[-1] == "fixed-batches" for claim in claims)
        return Verdict(
            record["run"], tuple(_chosen(claim, run) for claim in claims), wording.menu_scope(*run, known=known)
        )
    pairs, neighbors = pairs_of(run), neighbors_of(*run)
    try:
        found = tuple(_checked(claim, pairs, run[1], neighbors) for claim in claims)
    except Unproven as reason:
        if run[0] != "add-remove" or not any(phase[0] in CUT for phase in run[1]):
            raise
        said = "a record is really added or removed, and one that is zeroed out is adjacency zero-out"
        raise Refused(f"{reason} (add-remove where batches have a fixed size: {said})") from reason
    known = all(claim[-1] == "fixed-batches" for claim in claims if claim[0] == "upper")
    return Verdict(record["run"], found, wording.scope(run[1], neighbors, known))


def pairs_of(run: tuple[Any, ...]) -> list[list[Phase]]:
    """The phases of the run, for every pair of neighboring datasets that counts: one, or two where a rate moves."""
    neighbors = neighbors_of(*run)
    found = [phases_of(phase, neighbors) for phase in run[1]]
    count = max(len(pairs) for pairs in found)
    return [list(chain.from_iterable(pairs[i % len(pairs)] for pairs in found)) for i in range(count)]


def _checked(claim: tuple[Any, ...], pairs: list[list[Phase]], run: tuple[Any, ...], neighbors: Neighbors) -> Claim:
    """The claim, or `Refused` unless it holds."""
    side, epsilon, delta, direction, evidence = claim
    if evidence == "fixed-batches":
        found = [gaussian(fixed_batches(pairs[0], side), ball(epsilon))]
    elif side == "upper":
        if len(evidence) != len(directions(pairs)):
            raise Refused(f"proof should have {len(directions(pairs))} entries: each pair of neighbors and direction")
        laws_of = zip(evidence, directions(pairs), strict=True)
        proven = [proven_pmf(record, phases, back, dust_of(delta)) for record, (phases, back) in laws_of]
        found = [pmfs.delta_bound(pmf, epsilon) for pmf in proven]
    else:
        rows = attacks.tested(evidence[0], pairs[0], direction == DIRECTIONS[1], dust_of(delta))
        found = [attacks.delta_shown(rows, evidence[1], epsilon)]
    if not all(value <= ball(delta) if side == "upper" else value >= ball(delta) for value in found):
        raise Unproven(f"what is proven about the {side} bound is not the delta claimed for {neighbors.adjacency}")
    sentence = wording.sentence(side, epsilon, delta, direction, run, neighbors)
    return Claim(side, epsilon, delta, direction, sentence)


def _chosen(claim: tuple[Any, ...], run: tuple[Any, ...]) -> Claim:
    """The claim about a menu and a budget, or `Refused` unless it holds for every choice."""
    side, epsilon, delta, direction, evidence = claim
    _, menu, budget = run
    steps, costs = menu_steps(run), [cost for cost, _ in menu]
    if evidence == "fixed-batches":
        found = [gaussian(adaptive.known_batches(steps, costs, budget), ball(epsilon))]
    else:
        curves = menu_curves(evidence, steps, costs, budget, delta)
        found = [curve.delta(epsilon) for curve in curves]
    if not all(value <= ball(delta) for value in found):
        raise Unproven("what is proven about the upper bound of all choices is not the delta claimed")
    return Claim(side, epsilon, delta, direction, wording.menu_sentence(epsilon, delta, *run))


def menu_steps(run: tuple[Any, ...]) -> list[list[Phase]]:
    """What each step of the menu shows, as factors of a product."""
    adjacency, menu, _ = run
    sampled = tuple(step for _, step in menu if step[0] != "gaussian")
    if (adjacency == "own") == bool(sampled):
        raise Refused("adjacency should be own for Gaussian releases alone, and be named where batches are drawn")
    neighbors = neighbors_of(adjacency, sampled)
    releases = {step: [Phase("dealt", step[2], 1 / step[1] ** 2, False)] for _, step in menu if step[0] == "gaussian"}
    return [releases[step] if step in releases else phases_of(step, neighbors)[0] for _, step in menu]


def menu_curves(
    proofs: Any, steps: list[list[Phase]], costs: list[int], budget: int, delta: Fraction
) -> list[adaptive.Curve]:
    """Bounds for all policies, for each direction: one where every step replaces the record, else both."""
    ways = (False,) if all(phases[0].replaced for phases in steps) else (False, True)
    if len(proofs) != len(ways) or any(len(proof) != len(steps) for _, _, proof in proofs):
        raise Refused(f"proof should have {len(ways)} entries, one for each direction, with all steps of the menu")
    dust, found = dust_of(delta) * min(costs) // budget, []
    for (first, last, records), back in zip(proofs, ways, strict=True):
        proven = [proven_pmf(one, phases, back, dust) for one, phases in zip(records, steps, strict=True)]
        found.append(adaptive.all_policies(proven, costs, budget, (first, last)))
    return found


def dust_of(delta: Fraction) -> int:
    """The mass that cutting tails may cost, in 2^-256: a small part of delta."""
    return int(delta * ONE) // 2000


def fixed_batches(phases: list[Phase], side: str) -> arb:
    """mu of the run if everybody knew which batches hold the record: sampling at random never leaks more.

    Where nothing is drawn at random it is attained. It does not bound what a divisor, or a rate that moves, shows.
    """
    if any(phase.kind in ("realized", "size") or (side == "lower" and phase.is_hidden) for phase in phases):
        raise Refused(f"fixed batches prove no {side} bound of such a run")
    squares = (phase.repeats * (4 if phase.replaced else 1) * phase.shift for phase in phases)
    return ball(sum(squares, Fraction(0))).sqrt()


def directions(pairs: list[list[Phase]]) -> list[tuple[list[Phase], bool]]:
    """What an upper claim has to prove: all pairs, and for each both directions, which replacing makes the same."""
    return [(phases, back) for phases in pairs for back in ((False,) if phases[0].replaced else (False, True))]


def proven_pmf(record: Any, phases: list[Phase], back: bool, dust: int) -> pmfs.LatticePmf:
    """The PLD of the whole run in one direction, every factor checked to dominate its step or epoch."""
    (spacing, factors), found = record, []
    if len(factors) != len(phases):
        raise Refused(f"factors of a proof should be {len(phases)}, one for each part of the run")
    for (pmf, sums), phase in zip(factors, phases, strict=True):
        each = sums * len(pmf[0]) if len(sums) == 1 else sums
        if len(each) != len(pmf[0]):
            raise Refused("sums should be one for all places of a distribution, or one for each of them")
        bounds = [bound(phase, place * spacing, back, how) for place, how in zip(pmf[0], each, strict=True)]
        found.append((pmfs.dominating(pmf, spacing, bounds), phase.repeats))
    return pmfs.power(found, dust)
