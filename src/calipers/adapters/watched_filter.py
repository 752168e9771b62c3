"""Steps of an attached optimizer that are paid from a privacy filter, each before its noise is added.

The step is paid as it is about to be executed: the realized noise multiplier (a scheduler may have changed it), the
rate and the divisor in force. Where it does not fit, or is not on the menu, it is refused before anything is released.

What is released is then (epsilon, delta)-DP whatever was chosen from what was released before, provided that every
batch is drawn afresh and used in one step. So loaders that deal a pass are refused, and so is a second step on a batch.
"""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_queue import Draw
from calipers.adapters.watched_release import Divided, WatchedRelease, divided_now
from calipers.adapters.watched_run import NeighborReading
from calipers.adaptive import PrivacyFilter
from calipers.adaptive.rules import SAID
from calipers.bracket import Evidence, Kind
from calipers.curves.rdp_curve import adp_tradeoff
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import GuaranteeSubject
from calipers.measure.guarantees import StatedPair
from calipers.run import Run

_PROVEN = {
    "menu": "calipers:adaptive-menu",
    "gaussian": "calipers:adaptive-gaussian",
    "renyi": "calipers:adaptive-renyi",
}

NO_ATTACK = "Steps were chosen while training, by a rule that nobody described; no attack on it is claimed."


class FilterSubject(GuaranteeSubject):
    """What reports say about steps that were paid from a filter."""

    noun = "a training within a privacy filter"
    about_lower = "No attack is claimed."
    about_claim = (
        "Here steps are chosen while training. The composition of those that were taken is no guarantee then, and the "
        "claim shown is the upper bound itself."
    )
    remedy = "The number is the filter's target: a filter for a smaller epsilon, fixed before training, lowers it."


class PaidSteps:
    """Pays for the steps of one optimizer on the batches of one loader.

    Raises:
        InputError: the step that the optimizer would take now is not on the menu.
        UnsupportedError: the loader's batches are not drawn afresh for every step, or on several processes.
    """

    def __init__(self, source: PrivacyFilter, laws: list[LoaderLaw], reading: NeighborReading, optimizer: Any) -> None:
        self.source, self._laws, self._reading, self._optimizer = source, laws, reading, optimizer
        self.count = 0
        """Steps that this record paid for, those of a loaded checkpoint included."""
        source.name_of(self.next())

    def next(self) -> Run:
        """The step that the optimizer would take now."""
        return self._step(self._laws[-1], float(self._optimizer.noise_multiplier), divided_now(self._optimizer))

    def _step(self, law: LoaderLaw, noise: float, divided: Divided) -> Run:
        if not law.stepwise or law.ranks > 1:
            raise UnsupportedError(
                f"A privacy filter pays for single steps on batches that one process draws afresh; {law.name} "
                f"{'draws on several processes' if law.ranks > 1 else 'deals whole passes'}. Use Poisson sampling, or "
                "call PrivacyFilter.spend yourself before each epoch of a menu of epochs."
            )
        dimension = sum(parameter.numel() for parameter in self._optimizer.params)
        try:
            return self._reading.run(law, divided, 1, noise, dimension)
        except UnsupportedError:
            if self._reading.adjacency is not None:
                raise
            return self._reading.zeroed.run(law, divided, 1, noise, dimension)

    def allows(self, further: int = 1) -> bool:
        """Whether so many more steps fit, as the optimizer is set now."""
        return self.source.allows(self.next(), further)

    def pay(self, release: WatchedRelease, used: list[tuple[Draw, int]]) -> None:
        """Pay for a step that is about to add its noise.

        Raises:
            FilterSpent: it does not fit.
            InputError: it is not on the menu.
            UnsupportedError: it is no step on one fresh batch.
        """
        if len(used) != 1 or used[0][1] != 1 or used[0][0].releases:
            raise UnsupportedError(
                "A privacy filter pays for steps on one fresh batch each, and this one used several, or one that an "
                "earlier step had used. The step was not taken; draw a new batch for every step."
            )
        divided = Divided(release.reduction, release.divisor, release.reduction == "mean" and not release.divisor)
        self.source.spend(self._step(self._laws[used[0][0].group.loader], release.noise, divided))
        self.count += 1

    def resumed(self, steps: int, paid: int) -> None:
        """A checkpoint with so many steps is loaded, of which so many were paid.

        Raises:
            InputError: not all were paid, or the filter does not know of them.
        """
        spent = sum(self.source.spent.values())
        if steps != paid or spent < paid:
            raise InputError(
                f"{steps} steps were taken before, {paid} of them paid from a filter, and this one knows of {spent}; "
                "give the filter the path it had before, and attach it before the first step."
            )
        self.count = paid

    @property
    def stated(self) -> GuaranteeSubject:
        """What reports say of such a training."""
        keys: tuple[tuple[str, object], ...] = (("epsilon", self.source.epsilon), ("delta", self.source.delta))
        spent = ", ".join(f"{count} x {name!r}" for name, count in self.source.spent.items())
        words = f"Training steps chosen while it ran, paid from a privacy filter for {self.source.target} ({spent})"
        keys = (*keys, ("rule", self.source.rule.kind), ("spent", dict(self.source.spent)))
        return FilterSubject(words, keys, self.next().adjacency, "filter")

    def upper(self) -> StatedPair:
        """The filter's target as an upper bound; below its delta no epsilon is proven."""
        rule, epsilon, delta = self.source.rule, self.source.epsilon, self.source.delta
        said = (
            f"Every step was paid, before it was taken, from a privacy filter for {self.source.target}: "
            f"{SAID[rule.kind]}."
        )
        evidence = Evidence.of(Kind.NUMERICAL, _PROVEN[rule.kind], said)
        return StatedPair(adp_tradeoff(epsilon, delta), evidence, epsilon, delta)
