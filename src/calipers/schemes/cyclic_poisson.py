"""Cyclic Poisson sampling: the records are split into groups that take turns, and a step draws from one group only.

A record whose group is known takes part in ceil(T / cycle) steps at most, each by a coin of its own: that many Poisson
steps at the group's rate q, proven and attained. Which group a record is in must not depend on the other records:
here it is its index modulo the number of groups.
"""

from __future__ import annotations

from calipers.errors import InputError
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Exposure
from calipers.schemes.scheme import Scheme, read_as_public
from calipers.schemes.units import sampled_unit


class CyclicPoissonScheme(Scheme):
    """Groups that take turns, coins within the group."""

    name = "cyclic-poisson"
    summary = "coins, groups in turn"
    whole_epochs = False
    counts_units = ("add-remove", "zero-out", "substitute")
    others_zero = True
    drawn_by = "CyclicPoisson"

    def check(self, run: RunFields) -> None:
        """A group has no more records to draw than it has."""
        assert run.cycle is not None
        if run.sizes is not None and run.sizes[1] * run.cycle > run.sizes[0]:
            raise InputError(
                f"A group of {run.sizes[0]}/{run.cycle} records cannot fill batches of {run.sizes[1]} on average; "
                "lower batch_size or cycle."
            )

    def rounds(self, run: RunFields) -> int:
        """The whole run."""
        return run.total_steps

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """Two groups: the same records half as often, at twice the rate."""
        rate = {} if run.sample_rate is None else {"sample_rate": min(1.0, 2.0 * run.mean_rate)}
        return {"sampler": self.name, "cycle": 2, **rate}

    def batches(self, run: RunFields) -> str:
        """In words."""
        return (
            f"cyclic Poisson batches ({run.cycle} groups take turns; each record of the group enters with probability "
            "{rate})"
        )

    def exposure(self, run: RunFields) -> Exposure:
        """The steps of one group; several records of a unit are worst in one group."""
        assert run.cycle is not None
        return sampled_unit(run, -(-run.total_steps // run.cycle))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What is read, and what is not."""
        assert run.cycle is not None
        turns = -(-run.total_steps // run.cycle)
        return (
            f"A record takes part in at most {turns} of {run.total_steps} steps, those of its group, each time by a "
            "coin of its own. Groups are read as known (a record's index modulo their number) and as independent of "
            "other records. The lower bound is about an adversary who knows the groups; a split that is drawn and kept "
            "secret shows no more than the upper bound; one whose groups move when a record is added is not covered.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The rate, and the steps of so many epochs."""
        return read_as_public(run, rate=True)


SCHEME = CyclicPoissonScheme()
