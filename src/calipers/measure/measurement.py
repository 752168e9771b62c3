"""What `measure` returns: every reading of a guarantee, as brackets with evidence.

mu-GDP and delta0. For a subsampled mechanism the mu that touches the profile keeps growing with the
depth of the tail, so "mu over all alpha" is decided far beyond anything that matters. Calipers
therefore always states mu together with the delta0 up to which it holds: mu(delta0) is the smallest
mu such that the run is dominated by G_mu tensor f_(0, delta0).

**Success.** A secret of one record is drawn from a known prior; everything else, all other records included, is known.
An answer is right or wrong; the best answer that does not look at the run is right with probability `baseline`. With
the symmetric trade-off curve f of the run,

    success <= 1 - f(baseline)      for every secret, prior, rule of being right, and attacker,

and where the attack behind the lower bound sets all other gradients to zero, uniform priors over more and more
candidates whose gradients are orthogonal, answered by a short list, come as near to 1 - f(baseline) as one likes
(f: of that attack, with the null "record absent"). Proofs: docs/success.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from calipers.bracket import Bracket, Evidence, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope, advantage
from calipers.curves.gdp import regret
from calipers.curves.tradeoff import TradeoffCurve
from calipers.display import PrintedDisplay
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, PROBABILITY, RESOLVED
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import GuaranteeSubject
from calipers.measure.bounds import Bound, Bounds, BoundValue, GaussianBound, depth_for, in_doubles
from calipers.measure.success import success_shown, with_curve, with_game
from calipers.measure.watched import Watched
from calipers.memoize import memoize
from calipers.numerics.decimals import setting
from calipers.run import Run
from calipers.scope import direction_text

DEFAULT_DELTA0, DEFAULT_TOLERANCE = 1e-10, 1e-3
_DEEPEST, _TINY = 1e-12, 1e-290
_BREAKPOINTS = (
    "The smallest mu that holds up to delta0 at all breakpoints of the proven trade-off curve holds everywhere (Gomez "
    "et al. 2025, Proposition C.1, there with delta0 = 0)."
)


def _bracket_of(below: BoundValue, above: BoundValue) -> Bracket:
    return Bracket(below.value, above.value, below.evidence, above.evidence)


@dataclass(frozen=True)
class Gdp:
    """mu up to delta0, and the regret of reporting it: at most this much Bayes error is overstated."""

    mu: Bracket
    delta0: float
    regret: float


@dataclass(frozen=True)
class Claim:
    """What mainstream accounting would report of `runs`: Poisson sampling, undivided sum, add-remove adjacency."""

    proof: Bound
    tolerance: float
    runs: tuple[Run, ...] = ()

    def epsilon(self, delta: float) -> float:
        """The claimed epsilon: the upper value a tight Poisson accountant certifies."""
        return self.proof.epsilon(delta, self.tolerance).value

    def delta(self, epsilon: float) -> float:
        """The claimed delta."""
        return self.proof.delta(epsilon, self.tolerance).value


@dataclass
class Measurement(PrintedDisplay):
    """Certified brackets of one run (or of several phases on the same data).

    With `dataset_sizes` they are about the worst size of that range. Where no run was measured, `runs` is empty and
    `stated` says what was; where the runs only reveal at least as much as what was executed, `executed` says that.
    """

    runs: tuple[Run, ...]
    evaluation: Bounds = field(repr=False)
    claim: Claim = field(repr=False)
    tolerance: float = DEFAULT_TOLERANCE
    conditions: tuple[str, ...] = field(default=(), repr=False)
    _missed: list[str] = field(default_factory=list, repr=False)
    dataset_sizes: tuple[int, int] | None = None
    stated: GuaranteeSubject | None = None
    others_zero: bool = field(default=False, repr=False)
    """Whether the attack is one on a single record while all other gradients are zero."""
    executed: str = field(default="", repr=False)
    watched: Watched | None = field(default=None, repr=False)
    _answers: dict[tuple[Any, ...], tuple[BoundValue, BoundValue]] = field(default_factory=dict, repr=False)

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

    def _asked(self, quantity: str, *at: float) -> tuple[BoundValue, BoundValue]:
        """What both bounds answer, the attack first; asked once."""
        key, both = (quantity, *at), self.evaluation
        if key not in self._answers:
            self._answers[key] = getattr(both.lower, quantity)(*at), getattr(both.upper, quantity)(*at)
        return self._answers[key]

    def _bracket(self, lower: float, upper: float, shown: Callable[[Bound], float]) -> Bracket:
        """A number that is read off whole curves, by the proof and the attack that have it (`Bound.leading`)."""
        return Bracket(lower, upper, *(bound.leading(shown).evidence() for bound in self._both))

    def _error(self, read: Callable[[Envelope], float]) -> Bracket:
        """An error of the attacker, which a proof bounds from below, and an attack from above."""
        missed, least = (read(self.envelope(side)) for side in (Side.LOWER, Side.UPPER))
        found = self._bracket(-missed, -least, lambda one: -read(one.envelope(_DEEPEST, self.tolerance)))
        return Bracket(least, missed, found.upper_evidence, found.lower_evidence)

    def epsilon(self, delta: float) -> Bracket:
        """The smallest epsilon at which the run is (epsilon, delta)-private.

        Args:
            delta: in (0, 1), and large enough to be resolved in double precision.

        Returns:
            lower <= epsilon(delta) <= upper, with the attack and the proof behind them.

        Raises:
            InputError: `delta` is outside its domain.
            CertificationError, UnsupportedError: no bound can be certified.
        """
        delta = RESOLVED.check("delta", delta)
        found = self._asked("epsilon", delta, self.tolerance)
        return self._noted(found, f"epsilon at delta = {setting(delta)}", depth_for(delta), lambda f: f.epsilon(delta))

    def delta(self, epsilon: float) -> Bracket:
        """delta(epsilon), the privacy profile: the hockey-stick divergence of order e^epsilon, the larger direction.

        Args:
            epsilon: at least 0.

        Returns:
            lower <= delta(epsilon) <= upper, with the attack and the proof behind them.

        Raises:
            InputError: `epsilon` is outside its domain.
            CertificationError, UnsupportedError: no bound can be certified.
        """
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        found = self._asked("delta", epsilon, self.tolerance)
        name, depth = f"delta at epsilon = {setting(epsilon)}", depth_for(found[0].value)
        return self._noted(in_doubles(*found, self.runs), name, depth, lambda f: float(f.delta(epsilon)))

    def _noted(
        self, found: tuple[BoundValue, BoundValue], name: str, depth: float, read: Callable[[TradeoffCurve], float]
    ) -> Bracket:
        """The bracket; that it is wider than asked is noted where only the computation can be the reason.

        There the curves of this depth say something too, and the answer is `read` off them. What else has been asked
        before says nothing: answers do not depend on the order of questions.
        """
        below, above = found
        narrow = above.value - below.value <= self.tolerance * above.value or above.value <= _TINY
        if not narrow and self.evaluation.closes and all(bound.curves_add for bound in self._both):
            lower, upper = (read(bound.curve(depth, self.tolerance)) for bound in self._both)
            if lower > below.value:
                below = BoundValue(lower, self.evaluation.lower.evidence())
            above = BoundValue(min(above.value, upper), above.evidence)
        bracket = _bracket_of(below, above)
        if self.evaluation.closes and not bracket.relative_width <= self.tolerance:
            which = f"{'default ' * (self.tolerance == DEFAULT_TOLERANCE)}tolerance"
            wide = f"For {name} attack and proof lie more than {setting(100.0 * self.tolerance)} % apart (the {which})"
            self._missed.append(f"{wide}; both hold. The gap is numerical; a smaller tolerance hardly narrows it.")
        return bracket

    @property
    def _both(self) -> tuple[Bound, Bound]:
        return self.evaluation.lower, self.evaluation.upper

    def curve(self, side: Side, smallest_delta: float = _DEEPEST) -> TradeoffCurve:
        """The symmetric convex trade-off curve that epsilon, delta and mu are about, from one side.

        It is the hull of both orders, which no attack need attain: what attacks do is `envelope`.

        Args:
            side: of the bound.
            smallest_delta: down to which delta the curve is worked out.

        Returns:
            UPPER: a guarantee, at or below the truth. LOWER: no symmetric guarantee lies above it.
        """
        return self._curve(side, self._depth(smallest_delta))

    @memoize
    def _curve(self, side: Side, depth: float) -> TradeoffCurve:
        return self.evaluation.bound(side).curve(depth, self.tolerance)

    def envelope(self, side: Side, smallest_delta: float = _DEEPEST) -> Envelope:
        """What attacks in either order do at each false positive rate.

        Args:
            side: of the bound.
            smallest_delta: down to which delta it is worked out.

        Returns:
            UPPER: true positive rates that no attack exceeds, by proof. LOWER: rates that attacks attain.
        """
        return self._envelope(side, self._depth(smallest_delta))

    @memoize
    def _envelope(self, side: Side, depth: float) -> Envelope:
        return self.evaluation.bound(side).envelope(depth, self.tolerance)

    @staticmethod
    def _depth(smallest_delta: float) -> float:
        return min(_DEEPEST, RESOLVED.check("smallest_delta", smallest_delta))

    def tradeoff(self, alpha: float) -> Bracket:
        """The smallest false negative rate of any attack with false positive rate alpha.

        Args:
            alpha: In [0, 1].

        Returns:
            lower <= min over attacks of the false negative rate <= upper.
        """
        alpha = PROBABILITY.check("alpha", alpha)
        return self._error(lambda envelope: float(envelope(alpha)))

    def tpr(self, fpr: float) -> Bracket:
        """The largest true positive rate of any attack at the given false positive rate.

        Args:
            fpr: In [0, 1].

        Returns:
            lower <= max over attacks of the true positive rate <= upper; the evidence says which answer of the attack
            the two rates are about.
        """
        asked = (_rate_depth(fpr), self.tolerance)

        def shown(one: Bound) -> float:
            return float(one.envelope(*asked).rates(fpr)[1])

        found = self._bracket(self.tpr_bound(Side.LOWER, fpr), self.tpr_bound(Side.UPPER, fpr), shown)
        if not self.runs:
            return found
        finds = self.evaluation.lower.leading(shown).envelope(*asked).finds_present(fpr)
        return replace(found, lower_evidence=_also(found.lower_evidence, direction_text(self.runs[0].adjacency, finds)))

    def tpr_bound(self, side: Side, fpr: float) -> float:
        """One end of `tpr`, without computing the other.

        Args:
            side: UPPER for what no attack exceeds, LOWER for what one attains.
            fpr: the false positive rate, in [0, 1].

        Returns:
            The bound of the true positive rate.
        """
        fpr = PROBABILITY.check("fpr", fpr)
        return float(self.envelope(side, _rate_depth(fpr)).rates(fpr)[1])

    def advantage(self) -> Bracket:
        """The largest TPR - FPR of any attack: total variation, delta(0), as far as delta and whole curves tell.

        Returns:
            lower <= max over attacks of TPR - FPR <= upper.
        """
        at_zero, above = self._asked("delta", 0.0, self.tolerance)
        below = with_curve(at_zero, self.evaluation.lower, _DEEPEST, self.tolerance)
        return _bracket_of(below, BoundValue(min(above.value, advantage(self.curve(Side.UPPER))), above.evidence))

    def separation(self) -> Bracket:
        """The largest distance of the trade-off curve from the line of perfect privacy: advantage / sqrt 2."""
        found = self.advantage()
        low, high = found.lower / math.sqrt(2.0), found.upper / math.sqrt(2.0)
        return Bracket(low * (1.0 - 1e-15), high * (1.0 + 1e-15), found.lower_evidence, found.upper_evidence)

    def bayes_error(self, prior: float) -> Bracket:
        """The smallest error of a Bayesian attacker.

        Args:
            prior: The probability of "record absent" before the release, in [0, 1].

        Returns:
            lower <= min over attacks of prior FPR + (1 - prior) FNR <= upper.
        """
        prior = PROBABILITY.check("prior", prior)
        return self._error(lambda envelope: float(envelope.bayes_error(prior)))

    @property
    def isolated(self) -> bool:
        """Whether the numbers are about one noisy contribution alone."""
        view = self.stated.view if self.stated is not None else "worst-case"
        return "isolated" in (view, *(run.view for run in self.runs))

    @implements("calipers:success")
    def success(self, baseline: float) -> Bracket:
        """The largest probability of naming a secret of one record, where a guess is right with `baseline`.

        Covers attribute inference, reconstruction and naming a given person.

        Args:
            baseline: what the best guess gets that knows everything but the record, in (0, 1).

        Returns:
            upper: no attacker's success is larger, in any game with this baseline. lower: some game with this
            baseline has an attacker whose success is as large, or comes as near as one likes.

        Raises:
            UnsupportedError: in the isolated view, which says nothing about the trained model.
        """
        baseline = OPEN_UNIT.check("baseline", baseline)
        if self.isolated:
            raise UnsupportedError(
                "The isolated view bounds what one noisy contribution shows, not what the trained model shows; measure "
                "with view = 'worst-case' to bound how often a secret is named."
            )
        depth = _rate_depth(baseline)
        upper = float(self.curve(Side.UPPER, depth).rates(baseline)[1])
        lower = success_shown(self.envelope(Side.LOWER, depth), baseline, self.others_zero)

        def shown(one: Bound) -> float:
            if one.side is Side.UPPER:
                return float(one.curve(depth, self.tolerance).rates(baseline)[1])
            return success_shown(one.envelope(depth, self.tolerance), baseline, self.others_zero)

        return with_game(self._bracket(max(lower, baseline), max(upper, baseline), shown), self.others_zero)

    @memoize
    @implements("gomez2025:eq21", "gomez2025:eq24")
    def gdp(self, delta0: float = DEFAULT_DELTA0) -> Gdp:
        """mu up to delta0 with its regret.

        Args:
            delta0: The largest mass on which mu need not hold, in (0, 1).

        Returns:
            mu.upper: the run is dominated by G_mu tensor f_(0, delta0); infinite where no finite value is proven.
            mu.lower: it is not for any smaller mu. regret: at most so much Bayes error is overstated by mu.upper.

        Raises:
            InputError: `delta0` is outside its domain.
        """
        delta0 = RESOLVED.check("delta0", delta0, "mu over all alpha is decided by tails nobody can reach.")
        lower, upper = (bound.mu(delta0, self.tolerance) for bound in self._both)
        attack = self.curve(Side.LOWER, depth_for(delta0))
        overstated = regret(attack, upper, delta0) if math.isfinite(upper) else math.inf
        below, above = (bound.leading(lambda one: one.mu(delta0, self.tolerance)) for bound in self._both)
        attacked = "Of all thresholds the one that shows the largest mu counts." if self.runs else ""
        at_breakpoints = math.isfinite(upper) and not isinstance(above, GaussianBound)  # Whose mu is its shift.
        evidence = _also(below.evidence(), attacked), _also(above.evidence(), _BREAKPOINTS if at_breakpoints else "")
        return Gdp(Bracket(lower, upper, *evidence), delta0, overstated)

    def rdp(self, order: float) -> Bracket:
        """The Renyi divergence, the larger of both directions.

        Args:
            order: Above 1.

        Returns:
            lower <= divergence <= upper.

        Raises:
            UnsupportedError: It is infinite, or no finite bound is proven.
        """
        return _bracket_of(*self._asked("renyi", order))

    def explain(self) -> tuple[Evidence, Evidence]:
        """(lower, upper): how each bound was chosen."""
        return self.evaluation.lower.evidence(), self.evaluation.upper.evidence()


def _rate_depth(fpr: float) -> float:
    """How far down curves are resolved for what is read at this false positive rate."""
    return max(1e-250, min(_DEEPEST, 1e-3 * fpr)) if fpr > 0 else _DEEPEST


def _also(evidence: Evidence, text: str) -> Evidence:
    """The evidence with a sentence more."""
    return replace(evidence, statement=f"{evidence.statement} {text}") if text else evidence
