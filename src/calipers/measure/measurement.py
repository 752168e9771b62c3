"""What `measure` returns: every reading of a guarantee, as brackets with evidence.

mu-GDP and delta0. For a subsampled mechanism the mu that touches the profile keeps growing with the
depth of the tail, so "mu over all alpha" is decided far beyond anything that matters. Calipers
therefore always states mu together with the delta0 up to which it holds: mu(delta0) is the smallest
mu such that the run is dominated by G_mu tensor f_(0, delta0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from calipers.bracket import Bracket, Evidence, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import regret
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, PROBABILITY, RESOLVED
from calipers.errors import InputError
from calipers.kept import kept
from calipers.measure.jaw import Evaluation, Found, Jaw, depth_for
from calipers.numerics.decimals import setting
from calipers.run import Run
from calipers.shown import Printed
from calipers.stated import Stated

DEFAULT_DELTA0 = 1e-10
_DEEPEST, _TINY = 1e-12, 1e-290


_Jaws = tuple[Found, Found]


def _bracket_of(found: _Jaws) -> Bracket:
    below, above = found
    return Bracket(below.value, above.value, below.evidence, above.evidence)


@dataclass(frozen=True)
class Gdp:
    """mu up to delta0, and the regret of reporting it: at most this much Bayes error is overstated."""

    mu: Bracket
    delta0: float
    regret: float


@dataclass(frozen=True)
class Claim:
    """What mainstream accounting would report: Poisson sampling, undivided sum, add-remove adjacency."""

    proof: Jaw
    tolerance: float

    def epsilon(self, delta: float) -> float:
        """The claimed epsilon: the upper value a tight Poisson accountant certifies."""
        return self.proof.epsilon(delta, self.tolerance).value

    def delta(self, epsilon: float) -> float:
        """The claimed delta."""
        return self.proof.delta(epsilon, self.tolerance).value


@dataclass
class Measurement(Printed):
    """Certified brackets of one run (or of several phases on the same data).

    With `dataset_sizes` they are about the worst dataset size of that range. Where something else than a run was
    measured, `runs` is empty and `stated` says what.
    """

    runs: tuple[Run, ...]
    evaluation: Evaluation = field(repr=False)
    claim: Claim = field(repr=False)
    tolerance: float = 1e-3
    conditions: tuple[str, ...] = field(default=(), repr=False)
    _missed: list[str] = field(default_factory=list, repr=False)
    dataset_sizes: tuple[int, int] | None = None
    stated: Stated | None = None
    others_zero: bool = field(default=False, repr=False)
    """Whether the attack is one on a single record while all other gradients are zero (`calipers.measure.success`)."""
    _answers: dict[tuple[str, float], _Jaws] = field(default_factory=dict, repr=False)

    @property
    def run(self) -> Run:
        """The run, when there is one phase; the first phase otherwise."""
        if not self.runs:
            raise InputError("This measurement was not made from a run.")
        return self.runs[0]

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained, and every bracket asked for so far is as narrow as asked."""
        return self.evaluation.closes and not self._missed

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: the conditions of the run, and every bracket so far that missed the tolerance."""
        return (*self.conditions, *dict.fromkeys(self._missed))

    def _noted(self, bracket: Bracket, name: str) -> Bracket:
        """The bracket; that it is wider than asked is noted where only the computation can be the reason."""
        if self.evaluation.closes and not bracket.relative_width <= self.tolerance:
            self._missed.append(f"{name} is wider than the tolerance asked for; both bounds hold.")
        return bracket

    def _once(self, key: tuple[str, float], ask: Callable[[Jaw], Found]) -> _Jaws:
        """What both bounds answer, the attack first."""
        if key not in self._answers:
            self._answers[key] = ask(self.evaluation.below), ask(self.evaluation.above)
        return self._answers[key]

    def _bracket(self, lower: float, upper: float) -> Bracket:
        """Numbers that are read off whole curves."""
        return Bracket(lower, upper, *self.explain())

    def epsilon(self, delta: float) -> Bracket:
        """epsilon(delta): the smallest epsilon at which the run is (epsilon, delta)-private."""
        delta = RESOLVED.check("delta", delta)
        found = self._once(("epsilon", delta), lambda jaw: jaw.epsilon(delta, self.tolerance))
        found = self._sharpened(found, depth_for(delta), lambda curve: curve.epsilon(delta))
        return self._noted(_bracket_of(found), f"epsilon at delta = {setting(delta)}")

    def delta(self, epsilon: float) -> Bracket:
        """delta(epsilon), the privacy profile."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        found = self._once(("delta", epsilon), lambda jaw: jaw.delta(epsilon, self.tolerance))
        found = self._sharpened(found, depth_for(found[0].value), lambda curve: float(curve.delta(epsilon)))
        return self._noted(_bracket_of(found), f"delta at epsilon = {setting(epsilon)}")

    def _sharpened(self, found: _Jaws, depth: float, read: Callable[[TradeoffCurve], float]) -> _Jaws:
        """Where the tolerance was missed, the best of what was computed and of all else that is known.

        The curves of this depth say something too; the answer is `read` off them. What else has been asked before says
        nothing: answers do not depend on the order of questions.
        """
        below, above = found
        narrow = above.value - below.value <= self.tolerance * above.value or above.value <= _TINY
        if narrow or not self.evaluation.closes:
            return found
        if all(jaw.curves_add for jaw in self._both):
            lower, upper = (read(jaw.curve(depth, self.tolerance)) for jaw in self._both)
            if lower > below.value:
                below = Found(lower, self.evaluation.below.evidence())
            above = Found(min(above.value, upper), above.evidence)
        return below, above

    @property
    def _both(self) -> tuple[Jaw, Jaw]:
        return self.evaluation.below, self.evaluation.above

    def curve(self, side: Side, smallest_delta: float = _DEEPEST) -> TradeoffCurve:
        """The symmetric convex trade-off curve that epsilon, delta and mu are about, from one side.

        UPPER: a guarantee, at or below the truth. LOWER: no symmetric guarantee lies above it. It is the hull of both
        orders, which no attack need attain: what attacks do is `envelope`.
        """
        return self._curve(side, self._depth(smallest_delta))

    @kept
    def _curve(self, side: Side, depth: float) -> TradeoffCurve:
        return self.evaluation.jaw(side).curve(depth, self.tolerance)

    def envelope(self, side: Side, smallest_delta: float = _DEEPEST) -> Envelope:
        """What attacks in either order do at each false positive rate: UPPER proven, LOWER attained."""
        return self._envelope(side, self._depth(smallest_delta))

    @kept
    def _envelope(self, side: Side, depth: float) -> Envelope:
        return self.evaluation.jaw(side).envelope(depth, self.tolerance)

    @staticmethod
    def _depth(smallest_delta: float) -> float:
        return min(_DEEPEST, RESOLVED.check("smallest_delta", smallest_delta))

    def tradeoff(self, alpha: float) -> Bracket:
        """The smallest false negative rate of any attack with false positive rate alpha."""
        alpha = PROBABILITY.check("alpha", alpha)
        return self._bracket(float(self.envelope(Side.UPPER)(alpha)), float(self.envelope(Side.LOWER)(alpha)))

    def tpr(self, fpr: float) -> Bracket:
        """The largest true positive rate of any attack at the given false positive rate."""
        fpr = PROBABILITY.check("fpr", fpr)
        deep = max(1e-250, min(_DEEPEST, 1e-3 * fpr)) if fpr > 0 else _DEEPEST
        low, high = (float(self.envelope(side, deep).rates(fpr)[1]) for side in (Side.LOWER, Side.UPPER))
        return self._bracket(low, high)

    def advantage(self) -> Bracket:
        """The largest TPR - FPR of any attack: total variation, delta(0)."""
        return _bracket_of(self._once(("delta", 0.0), lambda jaw: jaw.delta(0.0, self.tolerance)))

    def separation(self) -> Bracket:
        """The largest distance of the trade-off curve from the line of perfect privacy: advantage / sqrt 2."""
        found = self.advantage()
        low, high = found.lower / math.sqrt(2.0), found.upper / math.sqrt(2.0)
        return Bracket(low * (1.0 - 1e-15), high * (1.0 + 1e-15), found.lower_evidence, found.upper_evidence)

    def bayes_error(self, prior: float) -> Bracket:
        """The smallest error of a Bayesian attacker whose prior for "record absent" is `prior`."""
        prior = PROBABILITY.check("prior", prior)
        low, high = (float(self.envelope(side).bayes_error(prior)) for side in (Side.UPPER, Side.LOWER))
        return self._bracket(low, high)

    def success(self, baseline: float) -> Bracket:
        """The largest probability of naming a secret of one record, where a guess is right with `baseline`.

        Covers attribute inference, reconstruction and naming a given person (`calipers.measure.success`).

        Args:
            baseline: what the best guess gets that knows everything but the record, in (0, 1).

        Returns:
            upper: no attacker's success is larger, in any game with this baseline. lower: some game with this
            baseline has an attacker whose success is as large, or comes as near as one likes.

        Raises:
            UnsupportedError: in the isolated view, which says nothing about the trained model.
        """
        from calipers.measure.success import success

        return success(self, baseline)

    @kept
    @implements("gomez2025:eq21", "gomez2025:eq24")
    def gdp(self, delta0: float = DEFAULT_DELTA0) -> Gdp:
        """mu up to delta0 with its regret; mu is infinite where no finite value is proven."""
        delta0 = RESOLVED.check("delta0", delta0, "mu over all alpha is decided by tails nobody can reach.")
        lower, upper = (jaw.mu(delta0, self.tolerance) for jaw in self._both)
        attack = self.curve(Side.LOWER, depth_for(delta0))
        overstated = regret(attack, upper, delta0) if math.isfinite(upper) else math.inf
        return Gdp(self._bracket(lower, upper), delta0, overstated)

    def rdp(self, order: float) -> Bracket:
        """The Renyi divergence of the given order > 1, the larger of both directions."""
        return _bracket_of(self._once(("rdp", order), lambda jaw: jaw.renyi(order)))

    def explain(self) -> tuple[Evidence, Evidence]:
        """(lower, upper): how each bound was chosen."""
        return self.evaluation.below.evidence(), self.evaluation.above.evidence()
