"""Sources of PLDs: what is proven gives pessimistic PLDs, what an attack shows gives optimistic PLDs.

A `DominatingPair` dominates what it stands for: its PLDs are at least the truth at every epsilon, in both directions. A
`AttainedPair` is an attack: its PLDs are at most the truth. A `TwoSidedPair` has both, and where one pair is proven
*and* attained it is `exact`: brackets of it close. Nobody has a side that it refuses; what has no proof is no
`DominatingPair`.

Next to PLDs a source knows facts, and each has a default that claims nothing: that the two orders differ, that no
lattice holds all log ratios, that no moment is finite, that there is no attack next to the proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from calipers.bracket import Side
from calipers.curves.tradeoff import TradeoffCurve
from calipers.pld.core.pmf import PrivacyLossPmf


class SingleProof(Protocol):
    """Numbers of one participation that are sharper than those of its pessimistic PLDs."""

    def epsilon(self, delta: float) -> float:
        """At least epsilon(delta)."""

    def delta(self, epsilon: float) -> float:
        """At least delta(epsilon)."""

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """The directed guarantee, its null "record absent", down to about `smallest_delta`."""


class SingleAttack(Protocol):
    """Numbers of one participation that are sharper than those of its optimistic PLDs, and the direction that shows
    them.
    """

    def best_epsilon(self, delta: float) -> tuple[float, bool]:
        """At most epsilon(delta)."""

    def best_delta(self, epsilon: float) -> tuple[float, bool]:
        """At most delta(epsilon)."""

    def curve(self, smallest_delta: float) -> TradeoffCurve:
        """What its tests attain, their null "record absent", down to about `smallest_delta`."""


class SinglePair(Protocol):
    """Brackets of one participation that are narrower than those of its PLDs."""

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(lower, upper) of epsilon(delta)."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) of delta(epsilon)."""


class AnyPair(ABC):  # noqa: B024  # every fact has a default; the PLDs of its two kinds have none
    """What proofs and attacks have in common."""

    both: TwoSidedPair | None = None
    """The same source where it is proof and attack in one."""

    mu: float | None = None
    """Of N(mu, 1) against N(0, 1), where it is that: compositions of such are one Gaussian."""

    @property
    def symmetric(self) -> bool:
        """Whether (P, Q) and (Q, P) have the same PLD."""
        return False

    span: float | None = None
    """Every log ratio is a multiple of this, if set: compositions on that lattice round nothing."""

    coarse: bool = False
    """Whether PLDs end at a resolution of their own: where an answer is wide, further questions are no help."""

    @property
    def slope(self) -> float:
        """How fast log L grows with the observation, at most: a PLD tilted by L^t sits t times as far to the side."""
        return 0.0

    cell_slope: float = 0.0
    """The same in units of a cell of resolution 1, for sources whose cells are cut along the observation."""

    moment_depth: ClassVar[float] = -104.0
    """PLDs for moments of high order are built no deeper than this log tail.

    Those that hide when a record shows cost the more the deeper they go, and say little more there at high orders.
    """


class DominatingPair(AnyPair):
    """What dominates: a proof."""

    @abstractmethod
    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """A pessimistic PLD; finer `resolution` is tighter; tails beyond e^log_tail may be lumped, and are added."""

    def upper_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The same, with cells placed for `tilt` where the source can place them."""
        return self.upper(resolution, log_tail)

    single_proof: SingleProof | None = None
    """What is sharper than the PLDs where there is one participation only."""

    finer: DominatingPair | None = None
    """The same with a tighter upper bound that takes much longer, where there is one."""

    coarser: DominatingPair | None = None
    """The same with a wider upper bound that takes much less time, where there is one: a hint where to look."""

    def rule_text(self, epsilon: float | None) -> str:
        """Which rule of its proof gives the bound at epsilon, or at every epsilon (None), in a sentence; empty where
        there is one rule only.
        """
        return ""

    def log_moment_bound(self, order: float, reverse: bool) -> float | None:
        """At least log E_Q[L^order] of the pair, or of the swapped one, in closed form; None where there is none."""
        return None

    def known_moment(self, order: float, reverse: bool) -> float | None:
        """The same for a release that tells what this one hides: far too large, but finite."""
        return None

    def log_beyond(self, order: float, log_tail: float, reverse: bool) -> list[float] | None:
        """Logs of what E_Q[L^order] holds beyond the ends of the pessimistic PLD of this tail; None where it is not
        known.
        """
        return None


class AttainedPair(AnyPair):
    """What somebody can do: an attack."""

    @abstractmethod
    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """an optimistic PLD; finer `resolution` is tighter; what is rarer than e^log_tail may be left out."""

    def lower_for(self, resolution: float, log_tail: float, tilt: float | None) -> PrivacyLossPmf:
        """The same, with cells placed for `tilt` where the source can place them."""
        return self.lower(resolution, log_tail)

    interchangeable: bool = False
    """Whether the observer cannot tell which factor a step is: all steps have to be scored alike, one by one.

    The factors' PLDs are then those of one score, the same function of what every step shows; a block of some of
    them is nothing that anybody could see, and neither is the likelihood ratio of one factor.
    """

    single_attack: SingleAttack | None = None
    """What is sharper than the PLDs where there is one participation only."""


class TwoSidedPair(DominatingPair, AttainedPair):
    """Proof and attack in one."""

    @property
    def both(self) -> TwoSidedPair:  # type: ignore[override]  # what others say once and for all
        """Itself."""
        return self

    @property
    def p_inf(self) -> float:
        """At most the P-mass where Q vanishes."""
        return self.lower(0.2, -40.0).p_inf

    @property
    def q_zero(self) -> float:
        """At most the Q-mass where P vanishes."""
        return self.lower(0.2, -40.0).q_zero

    single_pair: SinglePair | None = None
    """What is narrower than the PLDs where there is one participation only."""

    exact: ClassVar[bool] = True
    """Whether both sides are of the same pair, which is proven and attained."""

    @property
    def words(self) -> str:
        """What it is called in reports."""
        return type(self).__name__

    stated: tuple[float, float] | None = None
    """(epsilon, delta), where it is the pair of that guarantee: alone it has closed forms."""

    concentrated: tuple[float, float] | None = None
    """(rho, xi), where it stands for all that is (xi, rho)-zCDP: such guarantees add up."""

    alone: tuple[TwoSidedPair, str] | None = None
    """A pair that dominates one release, each point of it attained by some instance, and by which."""


@dataclass(frozen=True, eq=False)
class KnownPmfs(TwoSidedPair):
    """One PLD on either side, whatever is asked: it is as fine as it gets."""

    pmfs: Mapping[Side, PrivacyLossPmf]
    symmetric: bool = False

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """What dominates."""
        return self.pmfs[Side.UPPER]

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """What is attained."""
        return self.pmfs[Side.LOWER]
