"""Poisson sampling with a largest batch: every record enters by its own coin, and what exceeds the limit is dropped.

As training on accelerators does it, which wants one shape. A record of a batch that is full displaces another one
(`calipers.laws.drawn.truncated`). Under add-remove both neighbors count, N - 1 and N + 1 records.
"""

from __future__ import annotations

import functools
import math

from calipers.errors import InputError
from calipers.laws.core.pair import Pair
from calipers.laws.core.source import UpperSource
from calipers.laws.drawn.truncated import TruncatedAttack, proof_for_both, truncated_proof
from calipers.laws.drawn.truncation import Truncation
from calipers.run_fields import RunFields
from calipers.schemes.exposure import Attack, Exposure, Proof
from calipers.schemes.scheme import Scheme, read_as_public
from calipers.schemes.units import all_of, sampled_unit

STATEMENT = "calipers:truncated"
_REASON = (
    "Whether the batch was full without the record is revealed: if not, a record moves the sum by its gradient; if so, "
    "it displaces another one, as in a batch of fixed size"
)
_OFTEN = 1e-3
"""Where batches are full at least so often, an attack through displaced records is tried too."""
_HARDLY = 1e-8
_FINENESS, _FINEST = 0.02, ((100, 0.003), (1000, 0.006))
"""Of one record, and of few steps (up to so many) whose batches are full no more often than `_HARDLY`: there
dp_accounting's event differs from ours by rounding alone, of which theirs has the less the fewer steps there are."""


class TruncatedPoissonScheme(Scheme):
    """Coins, and a limit."""

    name = "truncated-poisson"
    summary = "coins, up to a largest batch"
    whole_epochs = False
    stepwise = True
    counts_units = ("add-remove", "zero-out", "substitute")
    drawn_by = "TruncatedPoisson"

    def check(self, run: RunFields) -> None:
        """How often batches are full depends on how many records there are."""
        if run.dataset_size is None:
            raise InputError(f"sampler={self.name!r} needs dataset_size: it decides how often a batch is full.")

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """A limit three deviations above the mean."""
        mean = run.expected_batch_size
        return {"sampler": self.name, "max_batch_size": math.ceil(mean + 3.0 * math.sqrt(mean))}

    def batches(self, run: RunFields) -> str:
        """In words."""
        limit = f"{run.max_batch_size:,}"
        return f"Poisson batches of at most {limit} records (each enters with probability {{rate}}, surplus is dropped)"

    def exposure(self, run: RunFields) -> Exposure:
        """The exposures of both neighbors."""
        assert run.dataset_size is not None
        assert run.max_batch_size is not None
        if run.dataset_size + run.records_per_unit <= run.max_batch_size:
            return sampled_unit(run, run.total_steps)
        others = run.dataset_size - run.records_per_unit
        sizes = (others, run.dataset_size) if run.adjacency == "add-remove" else (others,)
        counted = [Truncation(size, run.rate, run.max_batch_size, run.records_per_unit) for size in sizes]
        proofs = _proofs(tuple(counted), 1.0 / run.noise_multiplier, run.adjacency)
        first, *further = (_exposure(run, *about) for about in zip(counted, proofs, strict=True))
        return Exposure(first.proofs, first.attack, first.attacks, tuple(further))

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What truncation does."""
        assert run.dataset_size is not None
        assert run.max_batch_size is not None
        full = Truncation(run.dataset_size - 1, run.rate, run.max_batch_size).truncated
        return (
            f"A batch has at most {run.max_batch_size} records, and records that joined beyond that are dropped at "
            f"random. It is full without the record with probability {full:.3g}; then a record that is kept displaces "
            "another one, which shows more than its own gradient. The larger the limit, the nearer to Poisson "
            "sampling.",
        )

    def derived(self, run: RunFields) -> tuple[str, ...]:
        """The rate, and the steps of so many epochs."""
        return read_as_public(run, rate=True)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """A larger limit."""
        assert run.dataset_size is not None
        mean = run.expected_batch_size
        enough = min(run.dataset_size, math.ceil(mean + 8.0 * math.sqrt(mean) + 8.0))
        if run.max_batch_size is None or run.max_batch_size >= enough:
            return ()
        text = f"Make room for {enough} records in a batch (max_batch_size = {enough}): then it is never full."
        return ((text, {"max_batch_size": enough}),)


def _exposure(run: RunFields, truncation: Truncation, proof: UpperSource) -> Exposure:
    shift, steps = 1.0 / run.noise_multiplier, run.total_steps
    alone, displacing = _attacks(truncation, shift, run.adjacency)
    if run.view == "isolated":  # what the others do is not seen
        displacing = None
    replaced = {"add-remove": "", "zero-out": " (zero once zeroed out)", "substitute": " (-u once replaced)"}
    scene = f"{all_of(run)}{replaced[run.adjacency]}, and all other gradients are"
    attacks = [Attack(alone, steps, STATEMENT, f"{scene} zero. The score of a step is its log ratio.", one_sided=True)]
    if displacing is not None:
        told = f"{scene} -u. The score of a step is the log ratio of the sum along u."
        attacks.append(Attack(displacing, steps, STATEMENT, told, one_sided=True))
    finest = (fine for most, fine in _FINEST if steps <= most and truncation.truncated <= _HARDLY)
    fineness = 1.0 if run.records_per_unit > 1 else next(finest, _FINENESS)
    above = Proof(proof, steps, STATEMENT, _REASON, fineness=fineness)
    return Exposure((above,), attacks[0], tuple(attacks[1:]))


@functools.lru_cache(maxsize=32)
def _proofs(truncations: tuple[Truncation, ...], shift: float, adjacency: str) -> tuple[UpperSource, ...]:
    """One proof for every neighbor, the same one where it serves both; one object per kind, so that equal phases are
    counted together."""
    both = proof_for_both(*truncations, shift) if len(truncations) == 2 else None
    if both is not None:
        return both, both
    return tuple(truncated_proof(truncation, shift, adjacency) for truncation in truncations)


@functools.lru_cache(maxsize=32)
def _attacks(truncation: Truncation, shift: float, adjacency: str) -> tuple[Pair, TruncatedAttack | None]:
    instead = {"add-remove": None, "zero-out": 0.0, "substitute": -1.0}[adjacency]
    alone = TruncatedAttack(truncation, shift, 0.0, instead).alone()
    often = truncation.truncated >= _OFTEN
    return alone, TruncatedAttack(truncation, shift, -1.0, instead) if often else None


SCHEME = TruncatedPoissonScheme()
