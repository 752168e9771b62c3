"""The best proof for a unit whose records are dealt into batches: the chain over its records is asked last.

Whoever is told the deal sees Gaussians, which takes no time to compute; the curve of one record's proof, of which the
chain is made, takes all of it. With little noise or many records the chain ends at infinity, or far above what is told.
So the others are asked first, and the chain where it is not known to get no further (`calipers.measure.chain_floor`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from calipers.curves.envelope import Envelope
from calipers.errors import CertificationError, UnsupportedError
from calipers.laws.core.dealt_unit import DealtUnit
from calipers.measure.chain_floor import (
    DEEPEST,
    Powers,
    chained,
    covers,
    crossing_tests,
    deep_for_epsilon,
    deep_for_mu,
    delta_shown,
    epsilon_shown,
    mu_shown,
    of_curve,
    of_value,
)
from calipers.measure.choice import Least
from calipers.measure.grouped import GroupedProof
from calipers.measure.jaw import Found, Jaw, depth_for
from calipers.measure.told import DealtProof

_CLOSE, _SAME = 1.0 - 1e-4, 1e-6
"""What others may be beyond a chain without its being asked, of an epsilon or a mu; and of rates."""


@dataclass(frozen=True)
class DealtUnitProof(Least):
    """`parts`: what is proven where the deal is told, and the chain, the last of them.

    `shown`: an attack on one record. `moves`: by how much closed form attacks move the batch of a record on the two
    datasets, as shares of the shift of one record.
    """

    shown: Jaw
    moves: tuple[float, float]

    @property
    def chain(self) -> GroupedProof:
        """The last part."""
        chain = self.parts[-1]
        assert isinstance(chain, GroupedProof)
        return chain

    @cached_property
    def _told(self) -> Least:
        return Least(self.parts[:-1])

    def _gets_no_further(
        self, beyond: Callable[[Powers], bool], deepest: float, smallest_delta: float, also: Sequence[Powers] = ()
    ) -> bool:
        """Whether what is known of one record takes the chain beyond what is told."""
        if not deepest < DEEPEST:
            return False
        known = [*also]
        for unit, times in (step for part in self.parts if isinstance(part, DealtProof) for step in part.steps):
            assert isinstance(unit, DealtUnit)
            first, second = (share * unit.shift for share in self.moves)
            known += crossing_tests(unit, times, first, second, deepest)
        return beyond(chained(known, self.chain.records, deepest, self.chain.log_least(smallest_delta)))

    def epsilon(self, delta: float, tolerance: float) -> Found:
        """The least; beside closed forms the chain is compared with what the attack on one record shows at delta."""
        told, depth = self._told.epsilon(delta, tolerance), self.chain.depth_at(delta)
        deepest = deep_for_epsilon(told.value, delta)

        def beyond(powers: Powers) -> bool:
            return epsilon_shown(powers, delta) >= told.value * _CLOSE

        if self._gets_no_further(beyond, deepest, depth):
            return told
        shown = self._attacked(lambda: of_value(self.shown.epsilon(delta, tolerance).value, delta))
        return told if self._gets_no_further(beyond, deepest, depth, shown) else super().epsilon(delta, tolerance)

    def delta(self, epsilon: float, tolerance: float) -> Found:
        """The least."""
        told = self._told.delta(epsilon, tolerance)
        deepest = deep_for_epsilon(epsilon, told.value)
        if self._gets_no_further(
            lambda powers: delta_shown(powers, epsilon) >= told.value * (1.0 - _SAME), deepest, 1.0
        ):
            return told
        return super().delta(epsilon, tolerance)

    def mu(self, delta0: float, tolerance: float) -> float:
        """The least."""
        told, depth = self._told.mu(delta0, tolerance), depth_for(delta0)
        shown = self._attacked(lambda: of_curve(self.shown.curve(depth, tolerance)))

        def beyond(powers: Powers) -> bool:
            return mu_shown(powers, delta0) >= told * _CLOSE

        if self._gets_no_further(beyond, deep_for_mu(told), depth, shown):
            return told
        return super().mu(delta0, tolerance)

    def envelope(self, smallest_delta: float, tolerance: float) -> Envelope:
        """The pointwise best."""
        told = self._told.envelope(smallest_delta, tolerance)
        shown = self._attacked(lambda: of_curve(self.shown.curve(smallest_delta, tolerance)))

        def beyond(powers: Powers) -> bool:
            return covers(powers, told, _SAME)

        if self._gets_no_further(beyond, -math.log(smallest_delta), smallest_delta, shown):
            return told
        return super().envelope(smallest_delta, tolerance)

    @staticmethod
    def _attacked(ask: Callable[[], Powers]) -> list[Powers]:
        """What an attack answers that can; the proofs hold where it cannot."""
        try:
            return [ask()]
        except (CertificationError, UnsupportedError):
            return []
