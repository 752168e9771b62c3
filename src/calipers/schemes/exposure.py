"""How a run exposes one record (or one unit of several): proofs above, attacks below.

A `Proof` says that each of `count` participations is dominated by the UPPER laws of its source; proofs of one exposure
compete, and the least bound counts. An `Attack` says what each participation shows once everybody's gradients are
chosen: its LOWER laws; attacks compete too, and the most that any of them shows counts. A pair that is both proven and
attained is the source of both, and then the bracket closes. Where the neighbors of a dataset expose a record
differently, each has an exposure of its own, and the largest counts.

Phases of one run compose: an adaptive composition is dominated by the product of what dominates its parts, and an
attack chooses everybody's gradients anew in every phase, so attacks on the phases are one attack on the run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from calipers.laws.core.drawn_shift import Shifts
from calipers.laws.core.source import AnySource, LawSource, LowerSource, UpperSource
from calipers.mechanisms.gaussian import gaussian
from calipers.run_fields import RunFields

if TYPE_CHECKING:
    from calipers.laws.allocated.switching import SwitchingAttack

Proven = tuple[tuple[UpperSource, int], ...]
Shown = tuple[tuple[LowerSource, int], ...]
Kind = TypeVar("Kind", bound=AnySource, covariant=True)

KNOWN_TIME = "The record takes part in"
SEEN_ALONE = (
    "The record's clipped gradient is the same unit vector in every step, its replacement's (if there is one) the "
    "opposite, and all other gradients are zero, so each participation shows exactly this pair."
)


@dataclass(frozen=True)
class Participations(Generic[Kind]):
    """`count` participations, each with the laws of `source`; `beside`: those of another kind that are there too."""

    source: Kind
    count: int
    statement: str
    beside: tuple[tuple[Kind, int], ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Proof(Participations[UpperSource]):
    """Participations, each dominated by the laws of its source.

    `reason` begins a sentence that the evaluation ends with how many there are. `published`: others publish the same
    bound, and ours is never the larger for its rounding (`calipers.laws.composed.product`). `lengths`: how far a
    participation moves what is released, in units of the noise, for whoever is told: another proof, of all phases that
    have them (`calipers.measure.told`).
    """

    reason: str
    published: bool = False
    lengths: Shifts | None = None

    @property
    def shift(self) -> float | None:
        """mu of a participation that is a plain Gaussian at a known time."""
        return self.source.mu

    @property
    def one_sided(self) -> bool:
        """Whether nothing is known of the source from below."""
        return self.source.both is None


@dataclass(frozen=True)
class Attack(Participations[LowerSource]):
    """Participations, each of which shows the laws of its source to whoever plays the `scene`.

    `one_sided`: the source is composed from below only. `rival`: an attack that is made for the number asked for,
    where all participations are alike.
    """

    scene: str
    one_sided: bool = False
    rival: SwitchingAttack | None = None


@dataclass(frozen=True)
class Exposure:
    """The proofs that compete for the upper bound of one phase, and the attack behind its lower bound.

    `attacks`: further attacks, which compete. `neighbors`: the exposures of further neighbors of the dataset.
    `covering`: one proof about all neighbors that says next to nothing more, from which whole curves are read.
    """

    proofs: tuple[Proof, ...]
    attack: Attack
    attacks: tuple[Attack, ...] = ()
    neighbors: tuple[Exposure, ...] = ()
    covering: Proof | None = None

    @property
    def closes(self) -> bool:
        """Whether one pair is both proven and attained."""
        return len(self.proofs) == 1 and self.proofs[0].source.both == self.attack.source and not self.neighbors


release = functools.lru_cache(maxsize=64)(gaussian)
"""One object per shift, so that equal phases are counted together."""


def closed(
    source: LawSource, count: int, statement: str, reason: str, scene: str, lengths: Shifts | None = None
) -> Exposure:
    """A pair that is proven and attained."""
    proof = Proof(source, count, statement, reason, lengths=lengths)
    return Exposure((proof,), Attack(source, count, statement, scene))


def known_release(run: RunFields, count: int, statement: str = "dong2022:cor2.13", reason: str = KNOWN_TIME) -> Proof:
    """Plain Gaussians at known times, in which a record takes part at most `count` times."""
    return Proof(release(run.largest_shift), count, statement, reason)


def known_times(run: RunFields, count: int) -> Exposure:
    """A record whose participations are all at known times: `count` plain Gaussians."""
    return closed(release(run.largest_shift), count, "dong2022:cor2.13", KNOWN_TIME, SEEN_ALONE)
