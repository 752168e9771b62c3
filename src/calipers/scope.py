"""What a number is about: sampler, neighbors, adversary, unit, what is released, and what is taken as given.

Every sentence, record and form takes these words from here, so that none says more than was computed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from calipers.guarantee import NEIGHBORS
from calipers.numerics.decimals import claim_digits, nearest_digits
from calipers.run import DATA_DEPENDENT, Run
from calipers.run_fields import divisor_of
from calipers.run_keys import rate_text, whole
from calipers.samplers import scheme_of

DIVISORS = {
    "none": "the noisy sum is not divided",
    "constant": "the noisy sum is divided by a constant that neighboring datasets share",
    "expected": "the noisy sum is divided by the expected batch size N q",
    "floor": "the noisy sum is divided by floor(N q)",
    "realized": "the noisy sum is divided by the realized batch size",
}
SUMS = {name: f"noisy sums{words.removeprefix('the noisy sum is')}" for name, words in DIVISORS.items()}
SUMS["none"] = "undivided noisy sums"
VIEWS = {
    "worst-case": "the adversary may choose all other records and, step by step, all gradients",
    "isolated": "the adversary sees only the differing record's own noisy contribution",
}
FIXED = (
    "The numbers hold only if the noise, the sampling and the number of steps were fixed before the run, without a "
    "look into the data. A run that might have stopped early has to be described as the longest run that was "
    "possible; where noise or steps were chosen from what had been released in any other way, the numbers do not hold."
)
AT_MOST = "which reveal at most as much as"
"""Between what was executed and the run whose bound was taken for it."""
FIXED_SHORT = "noise, sampling and a maximum number of steps were fixed before the run, without a look into the data"
_SEEN = {
    "worst-case": "sees every noisy sum and may choose all other records and, step by step, all gradients",
    "isolated": "sees only the differing record's own noisy contribution",
}
SHARED = "taken as the same for both neighbors"
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


def differing(adjacency: str, run: Run) -> str:
    """What neighbors of such a relation differ by. A unit is replaced by one with as many records, so N stays."""
    equal = " by one with equally many" if adjacency == "substitute" and run.records_per_unit > 1 else ""
    return in_units(f"{NEIGHBORS[adjacency]} {unit_text(run)}{equal}", run)


def neighbors_text(run: Run) -> str:
    """What neighbors differ by; where only one of adding and removing a record is meant, which."""
    return in_units(scheme_of(run).neighbors(run, unit_text(run)) or differing(run.adjacency, run), run)


def only_side(runs: Sequence[Run]) -> str:
    """'adding' or 'removing', where the numbers are for that alone since nothing finite holds for the other."""
    sided = _sided(runs)
    return neighbors_text(sided[0]).split()[0] if sided else ""


def _sided(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.adjacency == "add-remove" and scheme_of(run).neighbors(run, "") is not None]


def shared_neighbors(runs: Sequence[Run]) -> str:
    """What neighbors of all phases differ by: where one phase is about adding or removing alone, all of them are."""
    return neighbors_text((_sided(runs) or list(runs))[0])


def other_side(side: str) -> str:
    """The one of adding and removing that it is not."""
    return "removing" if side == "adding" else "adding"


def promised_to_nobody(runs: Sequence[Run]) -> str:
    """That numbers for adding alone promise nothing to those whose data were used; else empty."""
    return f"It promises nothing to {members_text(runs)}." if only_side(runs) == "adding" else ""


def not_promised(runs: Sequence[Run]) -> str:
    """What a guarantee that is quoted alone has to add: whom, or which question, it does not cover; else empty."""
    if any(run.adjacency == "zero-out" for run in runs):
        return f"The guarantee does not cover whether a {unit_name(runs)} was in the data at all (add-remove)."
    return promised_to_nobody(runs)


def members_text(runs: Sequence[Run]) -> str:
    """Those whose data were used, where their number is known."""
    run = runs[0]
    if run.records_per_unit > 1:
        return f"the {run.unit}s whose records were used"
    return f"the {run.dataset_size:,} {f'{run.unit}s whose data' if run.unit else 'whose records'} were used"


def unseen_text(runs: Sequence[Run]) -> str:
    """What the adversary does not see, as a verb with its objects: the noise, and batches that were drawn at random.

    Empty in the isolated view, whose adversary sees one thing only.
    """
    if runs[0].view == "isolated":
        return ""
    hidden = {scheme_of(run).hides_batches(run) for run in runs}
    if hidden == {False}:
        return "does not see the noise"
    where = " where batches were drawn at random" if len(hidden) > 1 else ""
    return f"sees neither the noise nor who was in which batch{where}"


_QUESTIONS = {
    "add-remove": "whether one given {name} was in the data",
    "adding": "whether one given {name} was added to the data",
    "removing": "whether one given {name} of the data was used",
    "zero-out": "whether one given {name} was used, or its gradients were set to zero (its place in the batches stays)",
    "substitute": "whether the first of two given {name}s was in the data, or the second",
}


def question_text(adjacency: str, name: str, side: str = "") -> str:
    """What an attacker on neighbors of this relation decides, as a question; `verdicts` has its answers.

    `side`: `only_side`, where the numbers are for one of adding and removing.
    """
    asked = _QUESTIONS.get(side or adjacency, "which of two neighboring datasets was used, the first or the second")
    return asked.format(name=name)


ANSWERS = {
    "add-remove": ("present", "absent"),
    "zero-out": ("used", "zeroed out"),
    "substitute": ("original", "replaced"),
}
"""What an attack says of one record, by what neighbors differ by."""
ORIENTATIONS = {
    "add-remove": ("present against absent", "absent against present"),
    "zero-out": ("used against zeroed out", "zeroed out against used"),
    "substitute": ("the original against its replacement", "the replacement against the original"),
}
"""The two orders of a pair, by what neighbors differ by."""


def verdicts(adjacency: str) -> tuple[str, str]:
    """The two answers to that question."""
    return ANSWERS[adjacency] if adjacency in ("add-remove", "zero-out") else ("the first", "the second")


def direction_text(adjacency: str, finds_present: bool) -> str:
    """Which answer of an attack a true and a false positive rate are about."""
    answer, other = ANSWERS[adjacency][:: 1 if finds_present else -1]
    return (
        f"Here it looks for '{answer}', with the threshold at which it says '{answer}' with probability FPR where "
        f"'{other}' is right."
    )


def divisor_text(run: Run, sizes: tuple[int, int] | None = None) -> str:
    """What the noisy sum is divided by; `sizes`: the range of dataset sizes that was asked about."""
    if sizes is not None and size_matters(run):
        return f"{DIVISORS[run.normalization]}, {held_for(run, sizes)}"
    return _of_batches(DIVISORS[run.normalization], run)


def sums_text(run: Run) -> str:
    """The noisy sums, with what they are divided by."""
    return _of_batches(SUMS[run.normalization], run)


def size_matters(run: Run) -> bool:
    """Whether the divisor, and with it every number, is that of one dataset size and its neighbors."""
    moves = run.normalization in DATA_DEPENDENT and run.derived_rate == "public"
    return moves and run.adjacency == "add-remove" and scheme_of(run).independent and run.dataset_size is not None


def held_for(run: Run, sizes: tuple[int, int] | None) -> str:
    """For which dataset sizes a number holds, where that matters; `sizes`: the range that was asked about."""
    if not size_matters(run):
        return ""
    return "for this N and its neighbors only" if sizes is None else f"for every N from {sizes[0]:,} to {sizes[1]:,}"


def _released(run: Run, sizes: tuple[int, int] | None) -> str:
    """The noisy sums, with what they are divided by, and for which dataset sizes."""
    held = held_for(run, sizes)
    return sums_text(run) if sizes is None or not held else f"{SUMS[run.normalization]}, {held}"


def _sums_held(run: Run, sizes: tuple[int, int] | None) -> str:
    """The same, and that other sizes may leak more where that matters."""
    only = " (for this N; other dataset sizes may leak more)" if sizes is None and held_for(run, sizes) else ""
    return f"{_released(run, sizes)}{only}"


def _of_size(text: str, run: Run) -> str:
    """What the divisor is for this dataset and its neighbors: the numbers may be others where N is another."""
    size = run.dataset_size
    if size is None or not size_matters(run):
        return text
    if run.normalization != "floor":
        return f"{text}, with N = {size:,} and one record more or fewer"
    around = (size - 1, size, size + 1)
    divisors = [divisor_of(run, near) for near in around]
    if len(set(divisors)) == 1:
        return f"{text}, which is {divisors[0]:,} for N = {size:,} and one record more or fewer"
    values, near = ([f"{number:,}" for number in numbers] for numbers in (divisors, around))
    return f"{text}, which is {', '.join(values[:2])} and {values[2]} for N = {', '.join(near[:2])} and {near[2]}"


def _of_batches(text: str, run: Run) -> str:
    """Of batches cut from an order N q is N over their number."""
    if not scheme_of(run).equal_batches:
        return _of_size(text, run)
    size, batches = run.dataset_size, run.steps_per_epoch
    if "floor(N q)" in text and size is not None and scheme_of(run).whole_epochs:
        stays = run.adjacency != "add-remove" or (size - 1) // batches == (size + 1) // batches
        text += f" = {size // batches:,}{', the same for both neighbors' if stays else ''}"
    return text.replace("N q", "N / number of batches")


def batches_text(run: Run) -> str:
    """How batches were drawn, and what became of records that do not fill one."""
    rate, per_epoch = share_text(run.rate, run), f"{run.steps_per_epoch:,}"
    return scheme_of(run).batches(run).format(rate=rate, per_epoch=per_epoch, batches=_batches_of_an_epoch(run))


def share_text(rate: float, run: Run) -> str:
    """A rate of a run; B/N in these numbers where it is that and has many digits."""
    size, batch = run.sizes or (0, 0)
    if float(nearest_digits(rate)) != rate and size and batch / size == rate:
        return f"{batch:,}/{size:,}"
    return rate_text(rate)


def _batches_of_an_epoch(run: Run) -> str:
    """How an epoch is cut into batches. The numbers hold for this dataset size, so it is named where it is known."""
    if run.sizes is None:
        return f"{_counted(run.steps_per_epoch)} per epoch"
    size, batch = run.sizes
    full, rest = divmod(size, batch)
    cut = f"{size:,} records in {_counted(full)} of {batch:,}"
    if rest and run.last_batch == "keep":
        return f"{cut} and a last one of {rest:,} per epoch"
    remains = f"; a remainder would be {'dropped' if run.last_batch == 'drop' else 'a batch'}"
    left = f", the last {rest:,} of the order dropped" if rest else remains
    return f"{cut} per epoch{left * bool(rest or 'last_batch' in scheme_of(run).keys)}"


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


def taken_as_public(run: Run) -> tuple[str, ...]:
    """Numbers that one record more or fewer would move in a loop that computes them from its dataset, and that are
    taken to be fixed and public although no key of a run says so.
    """
    if run.adjacency != "add-remove" or run.batch_size is None:
        return ()
    return scheme_of(run).taken_as_public(run)


def assumptions(runs: Sequence[Run]) -> dict[str, str]:
    """All that nobody named of runs by its name, each with a phrase that says what it is taken to be.

    Of several phases, what one leaves open. Reports, the gate and forms print this list, so that none leaves any out.
    """
    settings = [item for run in runs for item in assumed_settings(run).items()]
    found = {key.replace("_", " "): f"{key.replace('_', ' ')} {value}" for key, value in settings}
    if found.get("derived rate") == "derived rate public":
        found["derived rate"] = f"the rate (batch size / number of records) {SHARED}"
    if "normalization" in found:
        found["normalization"] += f" ({DIVISORS['none']})"
    if counted := dict.fromkeys(_epoch_text(run) for run in runs if "last_batch" in run.assumed and leaves_over(run)):
        found["steps per epoch"] = f"steps per epoch {' and '.join(counted)}"
    found |= {name.replace("_", " "): f"the {name} {SHARED}" for run in runs for name in taken_as_public(run)}
    one_record = {"privacy unit": "privacy unit one record"}
    return found | (one_record if any(run.unit is None for run in runs) else {})


def leaves_over(run: Run) -> bool:
    """Whether steps were computed from epochs, counting full batches only of records that are not used up by them."""
    if run.epochs is None or run.last_batch == "keep":
        return False
    return whole(1 / run.mean_rate) is None if run.sizes is None else run.sizes[0] % run.sizes[1] > 0


def _epoch_text(run: Run) -> str:
    """How many steps an epoch was counted as, and why."""
    rate = f"1 / {rate_text(run.mean_rate)}" if run.sizes is None else f"{run.sizes[0]:,} / {run.sizes[1]:,}"
    return f"floor({rate}) = {run.steps_per_epoch:,}"


def last_batch_matters(run: Run) -> bool:
    """Whether nobody said what becomes of a last, shorter batch, and there is one here or with one record more."""
    assumed = "last_batch" in run.assumed and "last_batch" in scheme_of(run).keys
    return assumed and run.sizes is not None and (run.adjacency == "add-remove" or run.sizes[0] % run.sizes[1] > 0)


def easier_text(runs: Sequence[Run], verb: str, shown: str = "") -> str:
    """Whether it is easier to tell that somebody was in the data at all than what zero-out or substitute is about:
    for certain by counting batches, or where `shown`, a lower bound on epsilon under add-remove, says so.
    """
    counted = list(dict.fromkeys(side for run in runs for side in scheme_of(run).counted(run)))
    if counted:
        known = f" (for {other_side(counted[0])} one, {shown})" if shown and len(counted) == 1 else ""
        dropped = "with a last, shorter batch dropped, as assumed, " * any("last_batch" in run.assumed for run in runs)
        none = f"no finite epsilon holds for {' or for '.join(counted)} one"
        return f"{dropped}{none}: whoever counts the batches can tell{known}"
    return f"is easier to {verb}: {shown} for adding or removing one" if shown else f"may be easier to {verb}"


def adjacency_notice(runs: Sequence[Run], shown: str = "") -> str:
    """That zero-out was chosen where nobody named the neighbors, or that the numbers are for adding or removing alone,
    and what is not promised; else empty. `shown`: epsilon under add-remove, where it is known (`easier_text`).
    """
    run = runs[0] if runs else None
    if side := only_side(runs):
        nothing = promised_to_nobody(runs).replace("It promises", "They promise")
        return (
            f"The numbers are for {side} one {unit_name(runs)} only: {other_side(side)} one changes the number of "
            f"batches, which anybody can count, and no finite epsilon holds for that. {nothing}".rstrip()
        )
    if run is None or "adjacency" not in run.assumed or run.adjacency != "zero-out":
        return ""
    return (
        f"Nobody named the neighboring relation, and {scheme_of(run).why_zero_out(run)}: so the numbers are for "
        f"zero-out (the gradients of one {unit_name(runs)} become zero, and its place in the batches stays). Whether a "
        f"{unit_name(runs)} was in the data at all is add-remove, and {easier_text(runs, 'tell', shown)}."
    )


def scope_text(runs: Sequence[Run], executed: str = "", sizes: tuple[int, int] | None = None) -> str:
    """The end of a sentence that begins with a guarantee: for whom, for which run, against whom.

    `executed`: what was executed, where the runs only reveal at least as much. `sizes`: the range of dataset sizes that
    it holds for, where one was asked about.
    """
    drawn = " and then ".join(
        dict.fromkeys(
            f"{run.total_steps:,} step{'s' if run.total_steps != 1 else ''} of {batches_text(run)}, with noise "
            f"multiplier {claim_digits(run.noise_multiplier, 8)} and {_sums_held(run, sizes)}"
            for run in runs
        )
    )
    drawn = f"{executed}, {AT_MOST} {drawn}" if executed else drawn
    unseen = unseen_text(runs)
    adversary = _SEEN[runs[0].view] + (f", but {unseen}" if unseen else "")
    return in_units(f"for {shared_neighbors(runs)}, in {drawn}, against an adversary who {adversary}", runs[0])


def scope_record(runs: Sequence[Run], sizes: tuple[int, int] | None = None) -> dict[str, object]:
    """The same for programs; of several phases, all of them."""

    def joined(texts: Sequence[str]) -> str:
        return " and then ".join(dict.fromkeys(texts))

    public = [f"public {name}".replace(" ", "_") for run in runs for name in taken_as_public(run)]
    return {
        "sampler": joined([batches_text(run) for run in runs]),
        "adjacency": runs[0].adjacency,
        "neighbors": shared_neighbors(runs),
        "view": runs[0].view,
        "adversary": VIEWS[runs[0].view],
        "unit": unit_text(runs[0]),
        "released": joined([f"{_released(run, sizes)} of clipped gradients, of every step" for run in runs]),
        "assumed": list(dict.fromkeys([name for run in runs for name in assumed_settings(run)] + public)),
        "conditions": [FIXED],
    }
