"""Certificates of adaptive runs: PLDs that dominate every step of a menu, on one lattice, and a window.

The checker solves the recursion over the remaining budget itself (`calipers_verify.adaptive`). Nothing here can make a
certificate wrong, only loose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from calipers.adaptive.run import AdaptiveRun
from calipers.adaptive.steps import Step
from calipers.bracket import Bracket
from calipers.certificates.exact import exact, phase_record, written
from calipers.certificates.placing import spacing_for
from calipers.certificates.rounds import Focus, hides
from calipers.certificates.upper import EFFORT, SayProgress, one_direction, rounded, smallest
from calipers.errors import UnsupportedError
from calipers.guarantee import Guarantee
from calipers.run import Run
from calipers_verify.adaptive import FRESH, Curve, known_batches
from calipers_verify.checker import CHOSEN, MENU, dust_of, menu_curves, menu_steps
from calipers_verify.reading import MOST_EFFORT, Refused, read, spend
from calipers_verify.steps import Phase
from calipers_verify.stop_loss import ball, gaussian

_SHARE, _WIDEST = 0.0005, 0.02
"""Part of epsilon that rounding to a lattice may cost: the least that is tried, and the most."""
_EFFORT = 0.9 * MOST_EFFORT
"""Of what the checker spends, what the recursions of all directions may take."""
_BEYOND, _LEFT = 1.6, 0.5
"""The window ends at so many epsilons, and begins at minus this share of its end: what leaves it is bounded there."""
_MORE = Fraction(101, 100)
"""For how much more delta is cut, where more is claimed than was expected."""


def menu_record(run: AdaptiveRun) -> dict[str, Any]:
    """The run of a certificate.

    Raises:
        UnsupportedError: a step of the menu cannot be certified, with what to do instead.
    """
    runs = [step for step in run.menu.values() if isinstance(step, Run)]
    steps = [{"cost": run.costs[name], "step": _step(name, step)} for name, step in run.menu.items()]
    return {"adjacency": runs[0].adjacency if runs else "own", "menu": steps, "budget": run.budget}


def _step(name: str, step: Step) -> object:
    if isinstance(step, Run):
        record = phase_record(step)
        if record["sampler"] in FRESH and record.get("view") != "isolated":
            return record
        raise UnsupportedError(
            f"No certificate can be had for step {name!r} of the menu (sampler {step.sampler!r}, view {step.view!r}): "
            "measure the adaptive run without one."
        )
    mu, times = (step.mu, step.times) if isinstance(step, Guarantee) else (getattr(step, "mu", None), 1)
    if mu is None:
        raise UnsupportedError(
            f"No certificate can be had for step {name!r} of the menu: the checker knows runs and Gaussian releases. "
            "Measure the adaptive run without one."
        )
    return {"sampler": "gaussian", "noise_multiplier": written(1 / exact(mu)), "steps": times}


class MenuProof:
    """A proof for all choices at about (epsilon, delta): its record, and the bound that it gives at any epsilon.

    Known batches compete: where hiding the record proves less than its batches being known, the closed form wins.
    """

    def __init__(self, record: dict[str, Any], epsilon: float, delta: Fraction, say: SayProgress) -> None:
        try:
            run = read(record, MENU, "run")
            self.steps = menu_steps(run)
        except Refused as reason:
            raise UnsupportedError(f"No certificate can be had: {reason}.") from reason
        self.costs, self.budget = [cost for cost, _ in run[1]], run[2]
        self.orientations = (False,) if all(phases[0].replaced for phases in self.steps) else (False, True)
        spend(0, anew=True)
        self.mu = known_batches(self.steps, self.costs, self.budget)
        self.proof, self.curves, self.cut = list[dict[str, Any]](), list[Curve](), delta
        if any(phase.is_hidden for phases in self.steps for phase in phases):
            self.proof = self._found(epsilon, delta, say)
            say(f"proving the upper bound, {self.budget} levels of budget")
            self.solve(delta)

    def _found(self, epsilon: float, delta: Fraction, say: SayProgress) -> list[dict[str, Any]]:
        """The proof on the finest lattice that leaves the checker enough time."""
        say("proving the upper bound, the distributions of all steps")
        share = _SHARE
        while True:
            spend(0, anew=True)
            found = [self._direction(back, epsilon, delta, share, say) for back in self.orientations]
            effort = sum(self._effort(one) for one in found) / _EFFORT
            if effort <= 1.0:
                return found
            if share >= _WIDEST:
                raise UnsupportedError(
                    f"No certificate can be had: {self.budget} levels of budget would take the checker {effort:.2g} "
                    "times as long as it works. Put several steps into one block of the menu (steps = 10, and a "
                    "smaller budget), or measure the adaptive run without a certificate."
                )
            share = min(_WIDEST, share * max(2.0, effort * effort))

    def _direction(self, back: bool, epsilon: float, delta: Fraction, share: float, say: SayProgress) -> dict[str, Any]:
        """Window and PLDs of one direction, so fine that rounding to the lattice costs about `share` of epsilon."""
        spacings = [
            spacing_for(
                epsilon, float(delta), max(1, self.budget // cost) * sum(phase.repeats for phase in phases), share
            )
            for cost, phases in zip(self.costs, self.steps, strict=True)
        ]
        halvings = [_halvings(phases) for phases in self.steps]
        lattice = min(spacing * 2**n for spacing, n in zip(spacings, halvings, strict=True))
        dust = dust_of(delta) * min(self.costs) // self.budget
        shares = 2 * max(1, sum(hides(phase) for phases in self.steps for phase in phases))
        focus = Focus(epsilon, float(delta), alone=False, effort=EFFORT // shares)
        records = [
            one_direction(phases, back, lattice / 2**n, dust, focus, say)
            for phases, n in zip(self.steps, halvings, strict=True)
        ]
        last = math.ceil((_BEYOND * epsilon + 0.1) / float(lattice))
        return {"first": -math.ceil(_LEFT * last), "last": last, "steps": records}

    def _effort(self, proof: dict[str, Any]) -> float:
        """About what the checker spends on the recursion of one direction; a block reaches as far as its root."""
        spans = []
        for record, phases in zip(proof["steps"], self.steps, strict=True):
            ends = [
                (factor["law"]["places"], phase.repeats)
                for factor, phase in zip(record["factors"], phases, strict=True)
            ]
            reach = sum(math.sqrt(count) * (places[-1] - places[0]) for places, count in ends)
            spans.append(reach / 2 ** _halvings(phases))
        window = proof["last"] - proof["first"] + max(spans)
        return float(self.budget * sum(window + span for span in spans))

    def solve(self, delta: Fraction) -> None:
        """Solve the recursion as the checker does for this claim."""
        spend(0, anew=True)
        proof = read(self.proof, [CHOSEN, 1, 2], "a proof")
        self.cut, self.curves = delta, menu_curves(proof, self.steps, self.costs, self.budget, delta)

    def record(self, epsilon: Fraction, delta: Fraction) -> object:
        """What the certificate says for this claim."""
        return "fixed-batches" if self._known_hold(epsilon, delta) else self.proof

    def _known_hold(self, epsilon: Fraction, delta: Fraction) -> bool:
        return bool(gaussian(self.mu, ball(epsilon)) <= ball(delta))

    def holds(self, epsilon: Fraction, delta: Fraction) -> bool:
        """Whether the checker would accept it, delta at most the one it was solved for."""
        if self._known_hold(epsilon, delta):
            return True
        return bool(self.curves) and all(bool(curve.delta(epsilon) <= ball(delta)) for curve in self.curves)


def _halvings(phases: Iterable[Phase]) -> int:
    """How often the checker doubles the spacing while it composes a block (`calipers_verify.rows.composed`)."""
    return (max(phase.repeats for phase in phases).bit_length() - 1) // 3


def menu_claim(
    record: dict[str, Any], epsilon: Fraction | None, delta: Fraction | None, likely: Bracket, say: SayProgress
) -> dict[str, object]:
    """The upper claim at one delta, or at one epsilon; `likely` only says how finely to compute."""
    high = likely.upper if math.isfinite(likely.upper) and likely.upper > 0.0 else 1.0
    if delta is not None:
        at_delta = delta
        proof = MenuProof(record, max(high, 0.02), delta, say)
        epsilon = smallest(lambda found: proof.holds(found, at_delta), 0.0, f"delta = {float(delta):g}")
    else:
        assert epsilon is not None
        at_epsilon = epsilon
        proof = MenuProof(record, max(float(epsilon), 0.02), rounded(min(max(high, 1e-35), 0.5), True), say)
        delta = smallest(lambda found: proof.holds(at_epsilon, found), -37.0, f"epsilon = {float(epsilon):g}")
        if delta > proof.cut:  # the checker cuts what is small compared with the delta claimed
            proof.solve(delta * _MORE)
            delta = smallest(lambda found: proof.holds(at_epsilon, found), -37.0, f"epsilon = {float(epsilon):g}")
    claim: dict[str, object] = {"jaw": "upper", "epsilon": written(epsilon), "delta": written(delta)}
    return claim | {"direction": "both", "proof": proof.record(epsilon, delta)}
