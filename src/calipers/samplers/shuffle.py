"""Shuffled batches: a random order of the records, cut into equal batches.

**Adding or removing a record** changes who else is in the batches: a record that joins a batch of fixed size takes the
place of another one. The pair of that is proven and attained (`calipers.samplers.equal_batches`). What follows is about
records that are zeroed out or replaced, whose places stay theirs.

**Isolated view.** An adversary who sees nothing but the differing record's noisy contribution faces a hidden record
(van Dijk and Ertan; Ertan and van Dijk).

**Worst case.** With batches of fixed size the other records reveal where the differing one is. Above, two proofs
compete: fixed batches (shuffling never leaks more, Chua et al. 2024, Lemma B.2: given the order batches are fixed,
and divergences are jointly convex), and the distribution of an epoch, `calipers.pld.allocation.shuffled_epoch` where a
remainder is not seen, `calipers.pld.allocation.full_epoch` where every record is. In an epoch inside which the run
ends, records of the batches that did not come any more are such a remainder. Below, all other gradients are -u and the
record's is u: one dataset throughout (`calipers.pld.allocation.shuffle_attack`), which Conjecture 3.2 of Chua et al.
held to be the worst case, or the record that changes sides (`calipers.pld.allocation.adaptive_sign`), which shows that
it is not.

**One order for all epochs.** A record then sits in the same batch in every epoch. An attack that repeats itself sees
one epoch at noise sigma / sqrt(E); above, fixed batches are all that is proven.

**A short last batch** is not looked at by the attack: a record that sits in it counts as left out. In the isolated view
an epoch that keeps one hides a record less well than as many equal batches do, and at least as well as its full ones.

**Drawing.** Algorithm S: a fresh permutation every epoch, cut into equal batches, as data loaders do. The last, partial
batch is dropped or kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.domains import Domain, choice
from calipers.numerics.binomial import hypergeometric
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.allocation.adaptive_sign import AdaptiveSignAttack
from calipers.pld.allocation.average import SIGMA, AllocationPair
from calipers.pld.allocation.full_epoch import FullEpoch
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.core.allocated_unit import AllocatedUnit
from calipers.pld.core.drawn_shift import Shifts
from calipers.run_fields import RunFields
from calipers.samplers.allocated import (
    allocated_unit,
    at_places,
    epochs_of,
    hidden,
    hidden_alone,
    hidden_noise,
    refuse_many,
    summed_unit,
    weighed_unit,
    whole_epochs_of,
)
from calipers.samplers.analysis import Analysis, Attack, AuditedSums, Configurations, Proof, known_release, known_times
from calipers.samplers.draws import permuted, sliced
from calipers.samplers.equal_batches import (
    CutScheme,
    EqualBatches,
    added_or_removed,
    unchanged_steps,
    with_remainder,
    with_some_remainder,
)
from calipers.samplers.law import SamplerLaw
from calipers.samplers.poisson import REPLACED_LOADERS, coins_text, same_for_all


@implements("chua2024:alg3", "ertan2026:def3.2")
@dataclass(frozen=True, kw_only=True)
class Shuffle(EqualBatches):
    """Consecutive blocks of a uniformly random permutation, drawn anew in every epoch.

    `rounds` is the number M of batches in an epoch; left out, it is floor(N/B), as in a data
    loader. Chua et al. (2024) assume N = M B. Ertan and van Dijk (2026) start from M instead and
    use B = floor(N/M); that is `batch_size=N // M, rounds=M`. The two readings differ: N = 10,
    M = 4 gives B = 2, of which a data loader would make 5 batches, not 4.
    The records of an epoch that are dropped are the last N - M B of its permutation, so they are
    other ones in every epoch. `last_batch="keep"` drops none: the last batch is shorter instead.
    `reshuffle="once"` draws one permutation and repeats it in every epoch.

    Formal guarantees:
        - Inclusion: P(record i in batch t) = B/N for every i and t.
        - Participation: in an epoch at most once; exactly once with probability M B/N, and then
          uniformly in one of the M rounds (in a shorter last batch less often). Epochs are
          independent, or repeat the first.
        - Joint: two records share a given batch with probability B(B-1)/(N(N-1)); the batches of an
          epoch are disjoint.
        - Batch size: always B, but for a last batch that is kept.
        - Other records' batches determine this record's batch (or that it was dropped): the sizes
          give it away. Amplification statements that need independence do not apply.
        - Exact: every ordered outcome of an epoch is equally likely, in integer arithmetic.
        - Memory: one bit for each record, and towards the end of the epoch one byte more (32 MiB
          if that is larger), besides the batch itself. The first batch does not wait for the epoch.
    """

    reshuffle: str = "every-epoch"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("reshuffle", self.reshuffle, ("every-epoch", "once"))

    def law(self) -> SamplerLaw:
        """Random allocation to one of M rounds, with positions revealed by the fixed sizes."""
        return self._law("shuffle", rate=self.batch_size / self.dataset_size)

    def epoch(self, rng: np.random.Generator) -> Iterator[IntArray]:
        """Blocks of a fresh permutation."""
        return sliced(permuted(self.dataset_size, rng), iter(self.sizes))


MOST_OF_ONE_RECORD = 200
"""Batches of a single record that a search for noise, or a certificate, takes: more of them take minutes."""
FIXED, SHUFFLED, FULL_EPOCHS = "chua2024:lemB.2", "calipers:shuffled", "calipers:displaced"
NEVER_MORE = "Shuffling never leaks more than fixed batches (Chua et al. 2024, Lemma B.2), which show the record in"
_REMAINDER = (
    "The proof lets this record change places with another one. Every epoch drops a remainder, or ends before all "
    "batches came, and the other one goes there, where it is not observed; so where this one is shows in one batch sum "
    "only: an epoch is dominated by a sum of independent worst-case terms, by a dynamic program over what an adversary "
    "can choose from batch to batch, and by fixed batches (Chua et al. 2024, Lemma B.2); at every e^epsilon the "
    "smallest of the three counts."
)
_NO_REMAINDER = (
    "The proof lets this record change places with another one. Since every record is used in every epoch, the other "
    "one shows in a batch sum too, which hardly tells that it changed places: but for a small share of the "
    "probability, an epoch is dominated by a sum of worst-case terms with nearly equal weights; for that share by "
    "fixed batches (Chua et al. 2024, Lemma B.2). At every e^epsilon where fixed batches alone show less, they count."
)


class ShuffleScheme(CutScheme):
    """A new order every epoch, or one for all."""

    name = "shuffle"
    summary = "equal batches"
    revealed = "deterministic"
    drawn_by = Shuffle

    def batches(self, run: RunFields) -> str:
        """In words; of more than one epoch also whether the order is a new one."""
        order = f", in {'a new random order every epoch' if run.reshuffle == 'every-epoch' else _ONE_ORDER}"
        return f"shuffled batches of fixed size{order * (run.total_steps > run.steps_per_epoch)} ({{batches}})"

    @implements("chua2024:lemB.2")
    def analyze(self, run: RunFields) -> Analysis:
        """Even a single batch hides a record if it may be left out of it."""
        if run.adjacency == "add-remove" and run.view == "worst-case":
            return added_or_removed(run)
        epochs = epochs_of(run)
        if run.steps_per_epoch == 1 and run.kept_share == 1:
            return known_times(run, epochs)
        hidden_well, full = run.view == "isolated" and run.reshuffle == "every-epoch", _full_batches(run)
        if hidden_well and full == run.steps_per_epoch:
            return hidden_alone(run, run.kept_share)
        proofs: tuple[Proof, ...] = (known_release(run, epochs, FIXED, NEVER_MORE),)
        if hidden_well and full > 1:
            # Places of weights B/N and, in the short batch, less: majorized by the full batches with equal weights.
            parts = [(min(steps, full), min(steps / full, 1.0), count) for steps, count in run.epoch_parts]
            proofs += hidden(run.noise_multiplier, parts, run.adjacency == "substitute").proofs
        return Analysis((*proofs, *_epochs(run)), _attack(run))

    def revealed_allocation(self, run: RunFields) -> tuple[AllocatedUnit, int] | None:
        """Into places of a random order; added or removed, each of them takes another record's place."""
        if run.sizes is None:
            return None
        unit, epochs = allocated_unit(run, *run.sizes)
        if run.adjacency != "add-remove" or run.view == "isolated":
            return unit, epochs
        if run.last_batch == "keep":
            return None
        return dataclasses.replace(unit, shift=2.0 * unit.shift, places=unchanged_steps(run).larger), epochs

    def unit_attacks(self, run: RunFields) -> tuple[Attack, ...]:
        """Records of a remainder, and of batches that did not come any more, are left out."""
        if run.sizes is None or (run.adjacency == "add-remove" and run.view != "isolated"):
            return ()
        size, batch = run.sizes
        records, kept = min(run.records_per_unit, size), run.last_batch == "keep"

        def used(steps: int) -> Shifts:
            seen = size if kept and steps == run.steps_per_epoch else min(steps * batch, size)
            chances, error = hypergeometric(size, records, seen)
            return Shifts.of(range(len(chances)), chances.tolist(), error)

        def full(steps: int) -> tuple[int, int, int]:
            steps = min(steps, size // batch)
            return steps, batch, size - steps * batch

        directions = (0,) if run.view == "isolated" else (0, -1)
        return (summed_unit(run, used), *(each for v in directions for each in weighed_unit(run, full, v)))

    def sizes_of_units(self, run: RunFields) -> tuple[int, int] | None:
        """Removed one after the other, records leave ever smaller datasets, in which the next is the easier to see."""
        if run.adjacency != "add-remove" or run.view == "isolated":
            return None
        larger = unchanged_steps(run).larger
        return larger, larger - run.records_per_unit + 1

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record; added or removed, it moves a sum by 2."""
        found = hidden_noise(run)
        doubled = run.adjacency == "add-remove" and run.view == "worst-case"
        return dataclasses.replace(found, low=2.0 * found.low, high=2.0 * found.high) if doubled else found

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """What the order hides."""
        if run.view == "isolated":
            return (
                "The isolated view assumes an adversary who sees only the record's own noisy contribution. One who "
                "knows the other records of a batch of fixed size can learn where the record is: see view = "
                "'worst-case'.",
                REPLACED_LOADERS,
            )
        hidden = _displacement(run) if run.adjacency == "add-remove" else _hidden(run)
        return (hidden, _RANDOM, REPLACED_LOADERS)

    def remedies(self, run: RunFields) -> tuple[tuple[str, dict[str, object]], ...]:
        """Leave a record over, throw every record by itself, or toss coins."""
        if run.view != "worst-case":
            return ()
        change: dict[str, object] = {"sampler": "balls-and-bins"}
        size, batch = run.sizes or (run.steps_per_epoch, 1)
        steps, rate = size // batch, f"{batch:,}/{size:,}"
        divided = run.normalization not in ("none", "constant")
        if divided:  # sizes that vary would be divisors that vary, for which nothing is proven
            change["normalization"] = "constant"
        thrown = (
            "Draw every record into a random batch of the epoch independently of the others (sampler = "
            f"'balls-and-bins'){', and divide by a public constant' if divided else ''}: {steps:,} steps per epoch, "
            f"over all records; only the batch sizes vary.{same_for_all(run, 'The number of steps')}"
        )
        coins = coins_text(run, divided, rate, steps)
        return (*with_remainder(run), (thrown, change), (coins, change | {"sampler": "poisson"}))

    def stated(self, run: RunFields) -> Mapping[str, object]:
        """Sizes; a sample rate 1/M is read as equal batches of a size that nobody said."""
        size, batch = run.sizes or (run.steps_per_epoch, 1)
        own = {"last_batch": run.last_batch, "order": run.reshuffle, "view": run.view, "epochs": whole_epochs_of(run)}
        return {"dataset_size": size, "batch_size": batch, **own}

    def draw(self, sums: AuditedSums, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        """The place in a random permutation of all records; the last ones are left out of the epoch."""
        return at_places(rng.integers(sums.others + 1, size=shape[:2]) // sums.batch_size, sums.rounds)

    def configurations(self, sums: AuditedSums, member: bool) -> Configurations:
        """Where the record is, or that it is left out."""
        rounds, size = sums.rounds, sums.others + 1
        if not member:
            return np.zeros(1), np.full((1, rounds), float(sums.batch_size)), np.zeros((1, rounds))
        left_out = size - rounds * sums.batch_size
        refuse_many(rounds + 1)
        included = np.eye(rounds)
        log_weight = np.full(rounds, math.log(sums.batch_size / size))
        if left_out > 0:
            included = np.vstack([included, np.zeros(rounds)])
            log_weight = np.append(log_weight, math.log(left_out / size))
        return log_weight, sums.batch_size - included, included


def _epochs(run: RunFields) -> tuple[Proof, ...]:
    """The theorems about shuffled epochs; nothing where fixed batches are all that is proven."""
    if run.sizes is None or run.reshuffle == "once" or run.view == "isolated":
        return ()
    (size, batch), noise, replaced = run.sizes, run.noise_multiplier, run.adjacency == "substitute"
    found: list[tuple[ShuffledEpoch | FullEpoch, int]] = []
    for steps, count in run.epoch_parts:
        if run.left_over or steps < run.steps_per_epoch:
            found.append((ShuffledEpoch(noise, steps, steps * batch / size, replaced), count))
        else:
            found.append((FullEpoch(noise, steps, 1.0, replaced, batch, size), count))
    all_seen = isinstance(found[0][0], FullEpoch)
    statement, reason = (FULL_EPOCHS, _NO_REMAINDER) if all_seen else (SHUFFLED, _REMAINDER)
    return (Proof(*found[0], statement, reason, additional=tuple(found[1:])),)


def _full_batches(run: RunFields) -> int:
    """Batches of an epoch that have the full size."""
    return run.steps_per_epoch if run.sizes is None else run.sizes[0] // run.sizes[1]


def _attack(run: RunFields) -> Attack:
    """What an attack sees of one order, and how often an order is drawn; it does not look at a short last batch."""
    noise, replaced, full = run.noise_multiplier, run.adjacency == "substitute", _full_batches(run)
    parts = [(min(steps, full), count) for steps, count in run.epoch_parts]
    size, batch = run.sizes or (run.steps_per_epoch, 1)
    once = run.reshuffle == "once"
    if once:
        # More noise than there is can only weaken the attack.
        noise, parts = max(noise / math.sqrt(epochs_of(run)), 2.0 * SIGMA.low), [(full, 1)]
    statement, description = "calipers:shuffle-sum-test", attack_description(run)
    kind: type[AllocationPair] | type[ShuffleAttack] = AllocationPair if replaced else ShuffleAttack
    # With a replaced record every batch sums to -B along u but one, at a random place, which sums to -B + 2.
    seen_at = 0.5 * noise if replaced else noise
    if run.view == "isolated":
        kind, seen_at = AllocationPair, noise
    (first, count), *others = [(kind(seen_at, rounds, rounds * batch / size), times) for rounds, times in parts]
    rival = None
    if not once and run.view != "isolated":
        rival = AdaptiveSignAttack(noise, parts[0][0], parts[0][0] * batch / size, substituted=replaced)
    return Attack(first, count, statement, description, one_sided=True, rival=rival, additional=tuple(others))


_RANDOM = (
    "The proof holds only if every order of all records is equally likely, drawn independently of the data (and anew "
    "for every epoch, unless reshuffle = 'once'). A shuffle through a buffer, or of each file by itself, is not that: "
    "fixed batches (sampler = 'deterministic') are what is proven for it, and nothing for adding or removing a record."
)
_ONE_ORDER = "one random order for all epochs"
_BETWEEN = (
    "The truth lies between the attack, which the evidence describes, and the proof, which holds for every dataset and "
    "for gradients chosen adaptively."
)


def attack_description(run: RunFields) -> str:
    """Everybody's gradients, and the score of what is seen: as `_attack` computes it."""
    replaced, (size, batch) = run.adjacency == "substitute", run.sizes or (run.steps_per_epoch, 1)
    share, isolated = _full_batches(run) * batch / size, run.view == "isolated"
    mean = "mean_t {}_t" if share == 1.0 else "(1 - p + p mean_t {}_t)"
    score = ("log {}" if replaced or isolated else "log({} / {})").format(mean.format("U"), mean.format("V"))
    small, large = "exp(x_t/sigma - 1/(2 sigma^2))", "exp(2 x_t/sigma - 2/sigma^2)"
    weights = f"U_t = {small if isolated else large}" + ("" if replaced or isolated else f", V_t = {small}")
    rate = "" if share == 1.0 else f", p = {share:.10g} the probability that the record is in one of these batches"
    if isolated:
        gone, seen = "replaced" if replaced else "zeroed out", "what is seen of batch t along u"
        played = f"The record's clipped gradient is u, a unit vector, or zero once it is {gone}."
    else:
        shown = "is u, or -u once it is replaced" if replaced else "is u, or zero once it is zeroed out"
        played = f"All other clipped gradients are -u, a unit vector, and the record's {shown}; so batches sum to -B "
        played, seen = played + "along u, except where the record is.", "sum of batch t along u + B"
    score = f"{played} With x_t = ({seen})/sigma the score of an epoch is {score}, {weights}{rate}."
    if run.reshuffle == "once":
        averaged = " Every batch is averaged over the epochs first: sigma is the noise of that average."
        score = score.replace("of an epoch", "of all epochs") + averaged
    return score + (" A last, shorter batch is not looked at." if run.last_batch == "keep" and size % batch else "")


def _displacement(run: RunFields) -> str:
    """What really adding or removing a record shows."""
    if run.last_batch == "keep":
        seen = (
            "Removing a record shortens the last batch and adding one makes another, and shuffling does not hide that. "
            "Use a batch size that does not divide N and drop the remainder (drop_last=True)"
            if run.sizes is not None and not run.sizes[0] % run.sizes[1]
            else "Adding or removing a record changes the size of the kept last batch in every epoch, and shuffling "
            "does not hide that. Drop the last batch (drop_last=True)"
        )
        return (
            f"{seen}, draw batches by balls-and-bins or Poisson sampling, or state a guarantee for zeroed-out records "
            "(adjacency = 'zero-out'). Divisor and learning rate must be the same for both datasets."
        )
    return (
        "A record that is added to batches of fixed size takes the place of another one, so a sum moves by up to twice "
        "the most that one record contributes. The numbers hold only if learning rate and divisor (where there is one) "
        "are the same with and without the record. "
        "A guarantee for zeroed-out records (adjacency = 'zero-out') is about a record that keeps its place and adds "
        "zero."
    )


def _hidden(run: RunFields) -> str:
    """What shuffled batches hide from an adversary who knows all other records."""
    if run.reshuffle == "once":
        return (
            "One order is kept for all epochs, so a record sits in the same batch every time: the attack sees one "
            "epoch at noise sigma / sqrt(epochs), and above nothing better than fixed batches is proven. Draw a new "
            "order every epoch (reshuffle = 'every-epoch')."
        )
    if run.sizes is None:
        return (
            "Without dataset_size and batch_size it is not known whether an epoch drops a remainder, so the upper "
            "bound is that of fixed batches, which gives the record no credit for being hidden. Give both."
        )
    if run.left_over:
        left = f"{run.left_over:,} record{'s' * (run.left_over > 1)}"
        return (
            f"Every epoch drops a remainder of {left}. The proof puts the record in the place of one that goes to this "
            f"remainder, where no sum shows it; the attack may reach less. {_BETWEEN}"
        )
    size, batch = run.sizes
    smaller = with_some_remainder(size, batch)
    advice = (
        "Drop the last batch (last_batch = 'drop')"
        if run.last_batch == "keep" and size % batch
        else f"Use batches of {smaller} and drop the remainder"
        if smaller
        else "Draw every record into a batch independently (sampler = 'balls-and-bins')"
    )
    return (
        "Where every record is used in every epoch the proof is looser than where a remainder is dropped. "
        f"{_BETWEEN} {advice} in another training, described with adjacency = '{run.adjacency}': bounds come closer."
    )
