"""The distribution of the batches, from the batches.

What is counted in a run of E epochs of T steps over N records, and what it decides:

- a record that comes twice in one epoch rules out every sampler that deals records out; a record that
  comes exactly once in every epoch has probability (T q (1-q)^(T-1))^(N E) under Poisson sampling, far
  below any error probability;
- batches of one size rule out Poisson and balls-and-bins (a binomial size repeated over and over has
  probability at most its largest mass to that power); whether they are uniform and drawn anew is compared as below,
  with the moments of batches of fixed size;
- for Poisson sampling at rate q the number of inclusions is Binomial(N E T, q). Chernoff's bound
  P(n KL(X/n, q) >= x) <= 2 e^(-x) gives an interval for q that holds for every n;
- the spread of batch sizes, the spread of the records' counts and the number of records that two
  successive batches share have mean N q (1-q), S q (1-q) for S steps, and N q^2; each is compared in units of its
  standard deviation. These three comparisons use the normal approximation and say so;
- which records come together: `calipers.probing.groups`.

What passes is "not distinguished from Poisson" by these comparisons. It is not proven to be Poisson: nobody can tell
that from finitely many batches.

The number of epochs is chosen so that the rates 1/T and 1/(T-1) can be distinguished.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from calipers.errors import InputError
from calipers.numerics.elementary import bisect
from calipers.numerics.normal import normal_tail_quantile
from calipers.numerics.types import IntArray
from calipers.probing.groups import Inclusions, divergence, together, together_at
from calipers.probing.protocol import Configuration, Finding
from calipers.samplers import having

# Batches looked at in one probe; beyond that the interval of the rate stays wider than one step.
MOST_BATCHES = 60_000
# The normal approximations above are poor for fewer.
LEAST_BATCHES = 1000


class BatchCounts:
    """One run of `epochs` epochs, drawn and counted; of more or fewer steps than it says, it is counted as it is."""

    def __init__(self, configuration: Configuration, dataset_size: int, epochs: int, seed: int) -> None:
        steps = self.steps_per_epoch = configuration.steps_per_epoch
        self.dataset_size, self.epochs = dataset_size, epochs
        self.by_record, this_epoch = (np.zeros(dataset_size, dtype=np.int64) for _ in range(2))
        self.shared = self.repeats = self.successive_equal = 0
        self.once_per_epoch, self.twice_in_batch, same = True, False, True
        self.first_epoch: list[IntArray] = []
        self.seen = Inclusions(dataset_size, epochs * steps, np.random.default_rng(seed + 1))
        sizes: list[int] = []
        previous = np.zeros(dataset_size, dtype=np.bool_)
        # One batch more than was said is enough to know.
        drawn = itertools.islice(_drawn(configuration, dataset_size, epochs, seed), epochs * steps + 1)
        for step, batch in enumerate(drawn):
            place = step % steps
            if place == 0:
                this_epoch[:] = 0
            sizes.append(batch.size)
            present = np.zeros(dataset_size, dtype=np.bool_)
            present[batch] = True
            self.twice_in_batch = self.twice_in_batch or int(present.sum()) < batch.size
            if step:
                self.shared += int(previous[batch].sum())
                self.successive_equal += bool(batch.size) and bool(np.array_equal(previous, present))
            previous = present
            this_epoch[batch] += 1
            self.by_record[batch] += 1
            self.seen.see(step, batch)
            if step < steps:
                self.first_epoch.append(batch)
            elif same:
                same = np.array_equal(np.sort(batch), np.sort(self.first_epoch[place]))
            if place == steps - 1:
                self.repeats += int(np.count_nonzero(this_epoch > 1))
                self.once_per_epoch = self.once_per_epoch and bool((this_epoch == 1).all())
        self.sizes = np.array(sizes, dtype=np.int64)
        self.same_every_epoch = same and epochs > 1

    @property
    def inclusions(self) -> int:
        """Records in all batches together."""
        return int(self.sizes.sum())

    @property
    def rate(self) -> float:
        """The fraction of (record, step) pairs that were inclusions."""
        return self.inclusions / (self.dataset_size * max(1, self.sizes.size))


def epochs_needed(dataset_size: int, steps_per_epoch: int, error: float) -> int:
    """Epochs after which an interval at this error separates 1/T from 1/(T-1), within `MOST_BATCHES`.

    Relative half-width sqrt(2 log(2/error) / (N E)), and two standard deviations of luck, below 1/T.
    """
    reach = math.sqrt(2 * math.log(2 / error)) + 2
    wanted = max((reach * steps_per_epoch) ** 2 / dataset_size, LEAST_BATCHES / steps_per_epoch)
    return max(2, min(math.ceil(wanted), MOST_BATCHES // steps_per_epoch))


def _drawn(configuration: Configuration, dataset_size: int, epochs: int, seed: int) -> Iterator[IntArray]:
    for given in configuration.batches(epochs, np.random.default_rng(seed)):
        batch = np.asarray(given, dtype=np.int64).ravel()
        if batch.size and not (batch.min() >= 0 and batch.max() < dataset_size):
            raise InputError(f"A batch holds indices outside range({dataset_size}).")
        yield batch


def rates_left(counts: BatchCounts, error: float) -> tuple[float, float]:
    """Rates q that the inclusions do not exclude: for independent inclusions, q lies inside with probability 1 - error.

    Chernoff: all q with n KL(X/n, q) <= log(2/error).
    """
    trials = counts.dataset_size * counts.sizes.size
    share = counts.rate
    budget = math.log(2 / error) / trials

    near, far = (bisect(share, end, lambda q: divergence(share, q) <= budget, 200)[1] for end in (0.0, 1.0))
    return near, far


def sampler_finding(counts: BatchCounts, redrawn: BatchCounts, error: float) -> tuple[Finding, str | None]:
    """The sampler, with the word a `Run` has for it (None: it has none). `redrawn` is a short run, other seed."""
    sizes = counts.sizes
    expected = counts.epochs * counts.steps_per_epoch
    if sizes.size != expected:
        return _other_length(counts, expected), None
    evidence = (
        f"{sizes.size} batches of {int(sizes.min())} to {int(sizes.max())} records in {counts.epochs} epochs; "
        f"{counts.repeats} times a record came more than once in an epoch"
    )
    if counts.twice_in_batch:
        return Finding("sampler", "draws with replacement inside a batch", evidence, alarm=True), None
    if counts.successive_equal > max(2, sizes.size // 8) and counts.dataset_size > sizes.max():
        evidence += f"; {counts.successive_equal} times a batch came again in the next step"
        return Finding("sampler", "batches are used for several steps in a row", evidence, alarm=True), None
    allocated = counts.repeats == 0 and counts.steps_per_epoch > 1
    if allocated and (counts.once_per_epoch or len(set(sizes.tolist())) == 1):
        return _allocated(counts, redrawn, evidence)
    if len(set(sizes.tolist())) == 1 and 0 < sizes[0] < counts.dataset_size:
        return _fresh(counts, evidence, error)
    deviations = _poisson_deviations(counts)
    allowed = float(normal_tail_quantile(error / (4 * (len(deviations) + 10))))
    listed = ", ".join(f"{name} {value:+.2f}" for name, value in deviations.items())
    evidence = f"{evidence}; in standard deviations: {listed} (allowed {allowed:.2f}, normal approximation)"
    if not all(abs(value) <= allowed for value in deviations.values()):
        return Finding("sampler", "not Poisson, and no other sampler known here", evidence, error, alarm=True), None
    independent, joint = together(counts.seen, *rates_left(counts, error / 4), error / 4, allowed)
    evidence = f"{evidence}; {joint}"
    if not independent:
        return Finding("sampler", "not Poisson: records come together or avoid each other", evidence, error, True), None
    return Finding("sampler", f"not distinguished from Poisson by {COMPARED}", evidence, error), "poisson"


COMPARED = "batch sizes, records' counts, successive batches, pairs and small groups of records"


def _fresh(counts: BatchCounts, evidence: str, error: float) -> tuple[Finding, str | None]:
    """Batches of one size, drawn anew in every step: uniform and independent of each other, or not."""
    size, batch = counts.dataset_size, int(counts.sizes[0])
    deviations = _fixed_size_deviations(counts)
    allowed = float(normal_tail_quantile(error / (4 * len(deviations))))
    listed = ", ".join(f"{name} {value:+.2f}" for name, value in deviations.items())
    alike, joint = together_at(counts.seen, batch * (batch - 1) / (size * (size - 1)), (batch / size) ** 2, error / 4)
    evidence = f"{evidence}; in standard deviations: {listed} (allowed {allowed:.2f}, normal approximation); {joint}"
    if not alike or not all(abs(value) <= allowed for value in deviations.values()):
        verdict = f"exactly {batch} records in every step, not uniform or not drawn anew"
        return Finding("sampler", verdict, evidence, error, alarm=True), None
    verdict = f"not distinguished from a fresh uniform batch of exactly {batch} records in every step"
    return Finding("sampler", verdict, evidence, error, alarm=True), "without-replacement"


def _fixed_size_deviations(counts: BatchCounts) -> dict[str, float]:
    """How far the counts are from uniform batches of one size, each in units of its standard deviation.

    The records' counts X have covariance S q (1-q) (N I - J) / (N-1), so that the sum of (X - m)^2 over
    S q (1-q) N / (N-1) is like chi-square of N - 1 degrees. Two batches share a hypergeometric number of records, of
    mean B q and variance B q (1-q) (N-B) / (N-1), uncorrelated from step to step.
    """
    size, steps, batch = counts.dataset_size, counts.sizes.size, int(counts.sizes[0])
    rate = batch / size
    degrees = size - 1
    total = float(np.sum((counts.by_record - steps * rate) ** 2)) * degrees / (size * steps * rate * (1 - rate))
    width = 2 / (9 * degrees)
    variance = batch * rate * (1 - rate) * (size - batch) / (size - 1)
    return {
        "spread of records' counts": (math.cbrt(total / degrees) - 1 + width) / math.sqrt(width),
        "records shared by successive batches": (counts.shared - (steps - 1) * batch * rate)
        / math.sqrt((steps - 1) * variance),
    }


def _other_length(counts: BatchCounts, expected: int) -> Finding:
    """A run of another length than it says: empty batches left out, a last batch dropped, steps added."""
    found = counts.sizes.size
    if found > expected:
        evidence = f"batches({counts.epochs}) yields more than {counts.epochs} x {counts.steps_per_epoch} batches."
        return Finding("sampler", "takes more steps than it says", evidence, alarm=True)
    evidence = f"batches({counts.epochs}) yields {found} batches, expected {counts.epochs} x {counts.steps_per_epoch}"
    if not found:
        return Finding("sampler", "draws no batches", evidence, alarm=True)
    empty = int(np.count_nonzero(counts.sizes == 0))
    evidence += f"; {empty} of them empty"
    left = found % counts.epochs != 0 and empty == 0
    why = ": empty batches are left out" if left else ""
    return Finding("sampler", f"takes fewer steps than it says{why}", evidence, alarm=True)


def _allocated(counts: BatchCounts, redrawn: BatchCounts, evidence: str) -> tuple[Finding, str | None]:
    """Samplers that deal every record out at most once in an epoch."""
    even = len(set(counts.sizes.tolist())) == 1
    last = counts.sizes[counts.steps_per_epoch - 1 :: counts.steps_per_epoch]
    others = np.delete(counts.sizes, np.s_[counts.steps_per_epoch - 1 :: counts.steps_per_epoch])
    fixed = even or (len(set(others.tolist())) == 1 and len(set(last.tolist())) == 1)
    reseeded = not all(
        np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(counts.first_epoch, redrawn.first_epoch, strict=True)
    )
    if not fixed:
        if counts.same_every_epoch:
            verdict = "balls-and-bins, thrown once and reused in every epoch"
            return Finding("sampler", verdict, evidence, alarm=True), None
        return Finding("sampler", "balls-and-bins: every record in one batch of the epoch", evidence), "balls-and-bins"
    dropped = counts.dataset_size - int(counts.sizes[: counts.steps_per_epoch].sum())
    tail = "" if even else f"; the last batch of an epoch holds {int(last[0])} records, the others {int(others[0])}"
    if counts.same_every_epoch:
        kind = "one random order for the whole run" if reseeded else "the same batches in every run"
        left = f"; {dropped} records are never used" if dropped else ""
        word = None if dropped else "deterministic"
        return Finding("sampler", f"fixed batches: {kind}{left}", evidence + tail, alarm=True), word
    if dropped:
        verdict = f"shuffle that leaves {dropped} records out in every epoch, a new order in every epoch"
        word = "shuffle" if even and dropped < int(counts.sizes[0]) else None
        return Finding("sampler", verdict, evidence + tail, alarm=True), word
    return Finding("sampler", "shuffle: fixed batch sizes, a new order in every epoch", evidence + tail, alarm=True), (
        "shuffle" if even or last[0] < others[0] else None
    )


def loader_keys(counts: BatchCounts, word: str | None) -> dict[str, object]:
    """The keys of a `Run` with batches of one size: it, and where an order is cut, what became of the last one."""
    first, last = int(counts.sizes[0]), int(counts.sizes[counts.steps_per_epoch - 1])
    if word not in having("last_batch"):
        return {"batch_size": first} if word == "without-replacement" else {}
    return {"batch_size": first, "last_batch": "keep" if last < first else "drop"}


def _poisson_deviations(counts: BatchCounts) -> dict[str, float]:
    """How far the counts are from independent inclusions, each in units of its standard deviation."""
    size, steps, rate = counts.dataset_size, counts.sizes.size, counts.rate
    if rate in (0.0, 1.0):
        return {}
    return {
        "spread of batch sizes": _spread(counts.sizes, size, rate),
        "spread of records' counts": _spread(counts.by_record, steps, rate),
        "records shared by successive batches": _shared(counts, size, steps, rate),
    }


def _spread(found: IntArray, trials: int, rate: float) -> float:
    """The spread of n counts of Binomial(trials, q), as a normal deviate.

    With q estimated from the same counts, sum (X - m)^2 / v for v = trials q (1-q) has mean n - 1 and variance
    2 n (1 - 1/trials), like chi-square of n - 1 degrees; its cube root is close to normal (Wilson and Hilferty).
    """
    variance = trials * rate * (1 - rate)
    degrees = found.size - 1
    if trials < 2 or degrees < 1:
        return 0.0
    total = float(np.sum((found - found.mean()) ** 2)) / variance
    scaled = degrees + (total - degrees) / math.sqrt(1 - 1 / trials)
    width = 2 / (9 * degrees)
    return (math.cbrt(max(scaled, 0.0) / degrees) - 1 + width) / math.sqrt(width)


def _shared(counts: BatchCounts, size: int, steps: int, rate: float) -> float:
    """The records that successive batches share, standardised.

    With q estimated from the same counts what remains is the sum of (x_t - q)(x_{t+1} - q) over records and
    steps, whose terms are uncorrelated with variance (q (1-q))^2.
    """
    mean = size * (steps - 1) * rate**2
    return (counts.shared - mean) / (rate * (1 - rate) * math.sqrt(size * (steps - 1)))
