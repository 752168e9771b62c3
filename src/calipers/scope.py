"""What a number is about: sampler, neighbors, adversary, unit, what is released, and what is taken as given.

Every sentence, record and form takes these words from here, so that none says more than was computed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from calipers.guarantee import NEIGHBORS
from calipers.numerics.decimals import claim_digits, floor_digits, nearest_digits
from calipers.run import Run
from calipers.run_keys import whole
from calipers.samplers import scheme_of

DIVISORS = {
    "none": "the noisy sum is not divided",
    "constant": "the noisy sum is divided by a public constant",
    "expected": "the noisy sum is divided by the expected batch size N q",
    "floor": "the noisy sum is divided by floor(N q)",
    "realized": "the noisy sum is divided by the realized batch size",
}
SUMS = {
    "none": "undivided noisy sums",
    "constant": "noisy sums divided by a public constant",
    "expected": "noisy sums divided by the expected batch size N q",
    "floor": "noisy sums divided by floor(N q)",
    "realized": "noisy sums divided by the realized batch size",
}
VIEWS = {
    "worst-case": "the adversary may choose all other records and, step by step, all gradients",
    "isolated": "the adversary sees only the differing record's own noisy contribution",
}
FIXED = (
    "The numbers hold only if the noise, the sampling and the number of steps were fixed before the run. A run that "
    "might have stopped early has to be described as the longest run that was possible; where noise or steps were "
    "chosen from what had been released, the numbers do not hold."
)
AT_MOST = "which reveal at most as much as"
"""Between what was executed and the run whose bound was taken for it."""
FIXED_SHORT = "with noise, sampling and number of steps fixed before the run"
_SEEN = {
    "worst-case": "sees every noisy sum and may choose all other records and, step by step, all gradients",
    "isolated": "sees only the differing record's own noisy contribution",
}
NOT_DP = "not differential privacy: the adversary sees only the differing record's own noisy contribution"


def in_units(text: str, run: Run) -> str:
    """The text with the unit's own name for a record, where every unit has one: clients, not records."""
    if run.unit is None or run.records_per_unit > 1:
        return text
    return re.sub(r"\brecord(s?)\b", rf"{re.escape(run.unit)}\1", text)


def unit_name(runs: Sequence[Run]) -> str:
    """What an attacker looks for: a record, or the unit whose records all are there or not."""
    return runs[0].unit or "record" if runs else "record"


def unit_text(run: Run) -> str:
    """What is protected: one record, or one unit with all its records."""
    if run.unit is None:
        return "one record"
    if run.records_per_unit == 1:
        return f"one {run.unit}"
    return f"one {run.unit} with up to {run.records_per_unit:,} records"


def neighbors_text(run: Run) -> str:
    """What neighbors differ by; where only one of adding and removing a record is meant, which."""
    unit = unit_text(run)
    return in_units(scheme_of(run).neighbors(run, unit) or f"{NEIGHBORS[run.adjacency]} {unit}", run)


def only_side(runs: Sequence[Run]) -> str:
    """'adding' or 'removing', where the numbers are for that alone since nothing finite holds for the other."""
    sided = [run for run in runs if run.adjacency == "add-remove" and scheme_of(run).neighbors(run, "") is not None]
    return neighbors_text(sided[0]).split()[0] if sided else ""


_QUESTIONS = {
    "add-remove": "whether one given {name} was in the data",
    "zero-out": "whether one given {name} was used, or its gradients were set to zero (its place in the batches stays)",
    "substitute": "whether the first of two given {name}s was in the data, or the second",
}


def question_text(adjacency: str, name: str) -> str:
    """What an attacker on neighbors of this relation decides, as a question; `verdicts` has its answers."""
    return _QUESTIONS.get(adjacency, "which of two neighboring datasets was used, the first or the second").format(
        name=name
    )


_VERDICTS = {"add-remove": ("present", "absent"), "zero-out": ("used", "zeroed out")}


def verdicts(adjacency: str) -> tuple[str, str]:
    """The two answers to that question."""
    return _VERDICTS.get(adjacency, ("the first", "the second"))


ANSWERS = {True: ("original", "replaced"), False: ("present", "absent")}
"""What an attack says of a record that is replaced, and of one that is added, removed or zeroed out."""


def direction_text(adjacency: str, finds_present: bool) -> str:
    """Which answer of an attack a true and a false positive rate are about."""
    answer, other = ANSWERS[adjacency == "substitute"][:: 1 if finds_present else -1]
    return (
        f"Here it looks for '{answer}', with the threshold at which it says '{answer}' with probability FPR where "
        f"'{other}' is right."
    )


def divisor_text(run: Run) -> str:
    """What the noisy sum is divided by."""
    return _of_batches(DIVISORS[run.normalization], run)


def sums_text(run: Run) -> str:
    """The noisy sums, with what they are divided by."""
    return _of_batches(SUMS[run.normalization], run)


def _of_batches(text: str, run: Run) -> str:
    """Of batches cut from an order N q is N over their number."""
    if not scheme_of(run).equal_batches:
        return text
    size, batches = run.dataset_size, run.steps_per_epoch
    if "floor(N q)" in text and size is not None and scheme_of(run).whole_epochs:
        stays = run.adjacency != "add-remove" or (size - 1) // batches == (size + 1) // batches
        text += f" = {size // batches:,}{', the same for both neighbors' if stays else ''}"
    return text.replace("N q", "N / number of batches")


def rate_text(rate: float) -> str:
    """A rate; one with many digits as 1/M, or rounded down: what holds for it holds for that."""
    shown, turns = nearest_digits(rate), whole(1 / rate)
    if float(shown) == rate:
        return shown
    return f"1/{turns:,}" if turns and 1 / turns == rate else floor_digits(rate)


def batches_text(run: Run) -> str:
    """How batches were drawn, and what became of records that do not fill one."""
    rate, size = rate_text(run.rate), run.dataset_size
    if float(nearest_digits(run.rate)) != run.rate and run.batch_size and size and run.batch_size / size == run.rate:
        rate = f"{run.batch_size:,}/{size:,}"
    per_epoch = f"{run.steps_per_epoch:,}"
    return scheme_of(run).batches(run).format(rate=rate, per_epoch=per_epoch, batches=_batches_of_an_epoch(run))


def _batches_of_an_epoch(run: Run) -> str:
    """How an epoch is cut into batches. The numbers hold for this dataset size, so it is named where it is known."""
    if run.sizes is None:
        return f"{_counted(run.steps_per_epoch)} per epoch"
    size, batch = run.sizes
    full, rest = divmod(size, batch)
    cut = f"{size:,} records in {_counted(full)} of {batch:,}"
    if rest and run.last_batch == "keep":
        return f"{cut} and a last one of {rest:,} per epoch"
    return f"{cut} per epoch{f', the remaining {rest:,} dropped' if rest else ''}"


def _counted(batches: int) -> str:
    return f"{batches:,} batch{'' if batches == 1 else 'es'}"


def assumed_settings(run: Run) -> dict[str, object]:
    """The keys of the run that nobody named, with the values that they are taken to have.

    That a rate computed from the sizes is public is one of them where neighbors have different sizes.
    """
    known = run.to_dict()
    if run.adjacency == "add-remove" and run.batch_size is not None and "derived_rate" in scheme_of(run).keys:
        known["derived_rate"] = run.derived_rate
    return {key: known[key] for key in run.assumed if key in known}


def left_open(runs: Sequence[Run]) -> dict[str, object]:
    """Of what nobody named, what a description that is wrong about the loop most often leaves out."""
    return {
        key: value
        for run in runs
        for key, value in assumed_settings(run).items()
        if key in ("sampler", "normalization", "derived_rate")
        or (key == "reshuffle" and run.total_steps > run.steps_per_epoch)
    }


def last_batch_matters(run: Run) -> bool:
    """Whether nobody said what becomes of a last, shorter batch, and there is one here or with one record more."""
    assumed = "last_batch" in run.assumed and "last_batch" in scheme_of(run).keys
    return assumed and run.sizes is not None and (run.adjacency == "add-remove" or run.sizes[0] % run.sizes[1] > 0)


def adjacency_notice(runs: Sequence[Run]) -> str:
    """That zero-out was chosen where nobody named the neighbors, or that the numbers are for adding or removing alone,
    and what is not promised; else empty.
    """
    run = runs[0] if runs else None
    if side := only_side(runs):
        other = "removing" if side == "adding" else "adding"
        return (
            f"The numbers are for {side} one {unit_name(runs)} only: {other} one changes the number of batches, which "
            "anybody can count, and no finite epsilon holds for that."
        )
    if run is None or "adjacency" not in run.assumed or run.adjacency != "zero-out":
        return ""
    return (
        f"Nobody named the neighboring relation, and {scheme_of(run).why_zero_out(run)}: so the numbers are for "
        f"zero-out (the gradients of one {unit_name(runs)} become zero, and its place in the batches stays). Whether a "
        f"{unit_name(runs)} was in the data at all is add-remove, and may be easier to tell."
    )


def scope_text(runs: Sequence[Run], executed: str = "") -> str:
    """The end of a sentence that begins with a guarantee: for whom, for which run, against whom.

    `executed`: what was executed, where the runs only reveal at least as much.
    """
    drawn = " and then ".join(
        dict.fromkeys(
            f"{run.total_steps:,} step{'s' if run.total_steps != 1 else ''} of {batches_text(run)}, with noise "
            f"multiplier {claim_digits(run.noise_multiplier, 8)} and {sums_text(run)}"
            for run in runs
        )
    )
    drawn = f"{executed}, {AT_MOST} {drawn}" if executed else drawn
    whole = f"for {neighbors_text(runs[0])}, in {drawn}, against an adversary who {_SEEN[runs[0].view]}"
    return in_units(whole, runs[0])


def scope_record(runs: Sequence[Run]) -> dict[str, object]:
    """The same for programs; of several phases, all of them."""

    def joined(texts: Sequence[str]) -> str:
        return " and then ".join(dict.fromkeys(texts))

    return {
        "sampler": joined([batches_text(run) for run in runs]),
        "adjacency": runs[0].adjacency,
        "neighbors": neighbors_text(runs[0]),
        "view": runs[0].view,
        "adversary": VIEWS[runs[0].view],
        "unit": unit_text(runs[0]),
        "released": joined([f"{sums_text(run)} of clipped gradients, of every step" for run in runs]),
        "assumed": list(dict.fromkeys(name for run in runs for name in assumed_settings(run))),
        "conditions": [FIXED],
    }
