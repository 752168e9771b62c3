"""What `measure` returns: every reading of a guarantee, as brackets with evidence.

mu-GDP and delta0. For a subsampled mechanism the mu that touches the profile keeps growing with the
depth of the tail, so "mu over all alpha" is decided far beyond anything that matters. Calipers
therefore always states mu together with the delta0 up to which it holds: mu(delta0) is the smallest
mu such that the run is dominated by G_mu tensor f_(0, delta0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from calipers.bracket import Bracket, Evidence, Side
from calipers.citations import implements
from calipers.curves.envelope import Envelope
from calipers.curves.gdp import regret
from calipers.curves.tradeoff import TradeoffCurve
from calipers.domains import NON_NEGATIVE, OPEN_UNIT, PROBABILITY, Domain
from calipers.errors import InputError
from calipers.laws.composed.direction import Jaws
from calipers.measure.backends import Backend, ProductBackend, depth_for
from calipers.numerics.decimals import setting
from calipers.run import Run
from calipers.shown import as_html, as_text
from calipers.stated import Stated

DELTA0 = Domain(0.0, 1.0, low_open=True, high_open=True)
DEFAULT_DELTA0 = 1e-10
_DEEPEST, _TINY = 1e-12, 1e-290


@dataclass(frozen=True)
class Gdp:
    """mu up to delta0, and the regret of reporting it: at most this much Bayes error is overstated."""

    mu: Bracket
    delta0: float
    regret: float


@dataclass(frozen=True)
class Claim:
    """What mainstream accounting would report: Poisson sampling, undivided sum, add-remove adjacency."""

    backend: Backend
    tolerance: float

    def epsilon(self, delta: float) -> float:
        """The claimed epsilon: the upper value a tight Poisson accountant certifies."""
        return self.backend.epsilon(delta, self.tolerance).upper

    def delta(self, epsilon: float) -> float:
        """The claimed delta."""
        return self.backend.delta(epsilon, self.tolerance).upper


@dataclass
class Measurement:
    """Certified brackets of one run (or of several phases on the same data).

    With `dataset_sizes` they are about the worst dataset size of that range. Where something else than a run was
    measured, `runs` is empty and `stated` says what.
    """

    runs: tuple[Run, ...]
    backend: Backend = field(repr=False)
    claim: Claim = field(repr=False)
    tolerance: float = 1e-3
    conditions: tuple[str, ...] = field(default=(), repr=False)
    _missed: list[str] = field(default_factory=list, repr=False)
    dataset_sizes: tuple[int, int] | None = None
    stated: Stated | None = None
    _cache: dict[object, object] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    @property
    def run(self) -> Run:
        """The run, when there is one phase; the first phase otherwise."""
        if not self.runs:
            raise InputError("This measurement was not made from a run.")
        return self.runs[0]

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained, and every bracket asked for so far is as narrow as asked."""
        return self._one_pair and not self._missed

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: the conditions of the run, and every bracket so far that missed the tolerance."""
        return (*self.conditions, *dict.fromkeys(self._missed))

    @property
    def _one_pair(self) -> bool:
        return self.backend.closes

    def _noted(self, bracket: Bracket, name: str) -> Bracket:
        """The bracket; that it is wider than asked is noted where only the computation can be the reason."""
        if self._one_pair and not bracket.relative_width <= self.tolerance:
            self._missed.append(f"{name} is wider than the tolerance asked for; both jaws hold.")
        return bracket

    def _once(self, key: object, compute: Callable[[], Jaws]) -> Jaws:
        if key not in self._cache:
            self._cache[key] = compute()
        found = self._cache[key]
        assert isinstance(found, Jaws)
        return found

    def _bracket(self, lower: float, upper: float, jaws: Jaws | None = None) -> Bracket:
        return Bracket(lower, upper, self.backend.lower_evidence(jaws), self.backend.upper_evidence(jaws))

    def epsilon(self, delta: float) -> Bracket:
        """epsilon(delta): the smallest epsilon at which the run is (epsilon, delta)-private."""
        delta = OPEN_UNIT.check("delta", delta)
        jaws = self._once(("epsilon", delta), lambda: self.backend.epsilon(delta, self.tolerance))
        jaws = self._sharpened(jaws, self._known_epsilons(delta))
        return self._noted(self._bracket(jaws.lower, jaws.upper, jaws), f"epsilon at delta = {setting(delta)}")

    def delta(self, epsilon: float) -> Bracket:
        """delta(epsilon), the privacy profile."""
        epsilon = NON_NEGATIVE.check("epsilon", epsilon)
        jaws = self._once(("delta", epsilon), lambda: self.backend.delta(epsilon, self.tolerance))
        jaws = self._sharpened(jaws, self._known_deltas(epsilon))
        return self._noted(self._bracket(jaws.lower, jaws.upper, jaws), f"delta at epsilon = {setting(epsilon)}")

    def _sharpened(self, jaws: Jaws, known: Iterator[tuple[float, float]]) -> Jaws:
        """Where the tolerance was missed, the best of what was computed and of all (lower, upper) that are `known`."""
        narrow = jaws.upper - jaws.lower <= self.tolerance * jaws.upper or jaws.upper <= _TINY
        if narrow or not self._one_pair:
            return jaws
        for lower, upper in known:
            if lower > jaws.lower:
                jaws = replace(jaws, lower=lower, threshold=math.inf, attack="")
            jaws = replace(jaws, upper=min(jaws.upper, upper))
        return jaws

    def _known_epsilons(self, delta: float) -> Iterator[tuple[float, float]]:
        """What other answers and the curves say about epsilon(delta): it falls as delta grows."""
        for kind, at, found in self._answered():
            if kind == "epsilon":
                yield (found.lower if at >= delta else 0.0), (found.upper if at <= delta else math.inf)
            else:
                yield (at if found.lower > delta else 0.0), (at if found.upper <= delta else math.inf)
        if self._sharper_curves:
            curves = self.backend.curves(depth_for(delta), self.tolerance)
            yield curves[Side.LOWER].epsilon(delta), curves[Side.UPPER].epsilon(delta)

    def _known_deltas(self, epsilon: float) -> Iterator[tuple[float, float]]:
        """What other answers and the curves say about delta(epsilon): it falls as epsilon grows."""
        for kind, at, found in self._answered():
            if kind == "delta":
                yield (found.lower if at >= epsilon else 0.0), (found.upper if at <= epsilon else 1.0)
            else:
                yield (at if found.lower >= epsilon else 0.0), (at if found.upper <= epsilon else 1.0)
        if self._sharper_curves:
            curves = self.backend.curves(1e-280, self.tolerance)
            yield float(curves[Side.LOWER].delta(epsilon)), float(curves[Side.UPPER].delta(epsilon))

    @property
    def _sharper_curves(self) -> bool:
        """Whether curves may know more than a single answer."""
        return not (isinstance(self.backend, ProductBackend) and self.backend.coarse)

    def _answered(self) -> Iterator[tuple[str, float, Jaws]]:
        for key, found in self._cache.items():
            if isinstance(found, Jaws) and isinstance(key, tuple) and key[0] in ("epsilon", "delta"):
                yield key[0], key[1], found

    def curve(self, side: Side, smallest_delta: float = _DEEPEST) -> TradeoffCurve:
        """The symmetric convex trade-off curve that epsilon, delta and mu are about, from one side.

        UPPER: a guarantee, at or below the truth. LOWER: no symmetric guarantee lies above it. It is the hull of both
        orders, which no attack need attain: what attacks do is `envelope`.
        """
        key = ("curve", side, self._depth(smallest_delta))
        if key not in self._cache:
            self._cache[key] = self.backend.curves(key[2], self.tolerance)[side]
        found = self._cache[key]
        assert isinstance(found, TradeoffCurve)
        return found

    def envelope(self, side: Side, smallest_delta: float = _DEEPEST) -> Envelope:
        """What attacks in either order do at each false positive rate: UPPER proven, LOWER attained."""
        key = ("envelopes", self._depth(smallest_delta))
        if key not in self._cache:
            self._cache[key] = self.backend.envelopes(key[1], self.tolerance)
        found = self._cache[key]
        assert isinstance(found, dict)
        envelope: Envelope = found[side]
        return envelope

    @staticmethod
    def _depth(smallest_delta: float) -> float:
        return min(_DEEPEST, OPEN_UNIT.check("smallest_delta", smallest_delta))

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
        jaws = self._once(("delta", 0.0), lambda: self.backend.delta(0.0, self.tolerance))
        return self._bracket(jaws.lower, jaws.upper, jaws)

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

    @implements("gomez2025:eq21", "gomez2025:eq24")
    def gdp(self, delta0: float = DEFAULT_DELTA0) -> Gdp:
        """mu up to delta0 with its regret; mu is infinite where no finite value is proven."""
        delta0 = DELTA0.check("delta0", delta0, "mu over all alpha is decided by tails nobody can reach.")
        key = ("gdp", delta0)
        if key not in self._cache:
            lower, upper = self.backend.mu(delta0, self.tolerance)
            attack = self.curve(Side.LOWER, depth_for(delta0))
            overstated = regret(attack, upper, delta0) if math.isfinite(upper) else math.inf
            self._cache[key] = Gdp(self._bracket(lower, upper), delta0, overstated)
        found = self._cache[key]
        assert isinstance(found, Gdp)
        return found

    def rdp(self, order: float) -> Bracket:
        """The Renyi divergence of the given order > 1, the larger of both directions."""
        jaws = self._once(("rdp", order), lambda: self.backend.renyi(order))
        return self._bracket(jaws.lower, jaws.upper)

    def explain(self) -> tuple[Evidence, Evidence]:
        """(lower, upper): how each jaw was chosen."""
        return self.backend.lower_evidence(), self.backend.upper_evidence()
