"""What whoever signs for a model reads first and last: the words, the attacks on a secret, what is not covered.

Nothing is computed here beyond `Measurement.success`; every sentence is about the measured neighbors and adversary, and
where no finite bound is proven, or only the isolated view is measured, there is nothing to sign.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from calipers.bracket import Bracket
from calipers.guarantee import NEIGHBORS
from calipers.numerics.decimals import ceil_digits, setting
from calipers.phases import comparable
from calipers.reports.answers import LARGEST_EPSILON, Answers
from calipers.reports.document import Block, Cell, Items, Notice, Number, Prose, Section, Table, ends, nearest
from calipers.reports.evidence import BEHIND
from calipers.reports.paragraph import report_this
from calipers.reports.relations import presence
from calipers.run import ADJACENCIES
from calipers.scope import (
    NOT_DP,
    easier_text,
    in_units,
    members_text,
    only_side,
    question_text,
    shared_neighbors,
    unit_name,
    unit_text,
    verdicts,
)

if TYPE_CHECKING:
    from calipers.measure import Measurement

BASELINES = (0.99, 0.5, 0.1, 0.01, 1e-3, 1e-6)
_SHARE = 0.01
"""How often a guess isolates somebody in the example of singling out: a chosen round number, far below certainty."""
SECRETS = "Reconstruction, attribute inference, singling out"
_AS_A_GUESS = "the guess alone"
_REACHED = ("some attack reaches at least", "no attack exceeds")
ALLOWED = ("some mechanism allows at least", "no mechanism allows more than")
"""What bounds are called: of a run, and of a stated guarantee."""
_ITEMS = (
    "training", "privacy", "epsilon", "delta", "tpr", "mu", "regret", "proof", "attack", "standard", "numbers",
)  # fmt: skip
"""What each item of "How to read this report" is about."""
_Success = Sequence[tuple[float, Bracket]]


def reading_section(answers: Answers, without: Collection[str] = ()) -> Section:
    """What the words of the first page mean; items are left out by name."""
    who, compared = unit_words(answers), _compared(answers)
    asked = question_text(relation(answers), unit_name(answers.described), only_side(answers.runs))
    yes, no = verdicts(relation(answers))
    divided = (
        "That changes nothing if the number is a public constant; if a script computes it from its data (as rate x "
        "number of records), one record can change the scale of all noise, and epsilon can be many times as large."
    )
    if relation(answers) in ("zero-out", "substitute"):
        divided = "That changes nothing if the number is the same for both datasets."
    training = (
        "DP-SGD trains in steps. Each takes a batch of records, limits what every record adds to a sum (its gradient, "
        "clipped), and adds random noise to it; the noise multiplier is the size of the noise compared with the most "
        f"that one record can add. The noisy sum may then be divided by a number. {divided} An epoch is one pass over "
        "the data, or as many steps as a pass would take. What counts as released is every noisy sum; whoever sees "
        "only the trained model sees less."
    )
    standard = (
        "Standard accounting is the add-remove epsilon that a tight accountant for Poisson sampling reports "
        "(for the same rate and steps Opacus's PRV accountant reports a little more, and accountants by Renyi "
        "differential privacy, RDP, clearly more; the rate that Opacus computes is 1 / number of batches). It assumes "
        "that way of drawing batches, whether or not it was used."
    )
    if comparable(answers.runs):
        standard += (
            " It is about add-remove adjacency (for Poisson sampling the epsilon is the same as for zero-out). It is "
            "refuted where an attack shows more, and then it is not a guarantee of this run; the proof still is."
        )
    texts = (
        training if answers.stated is None else "",
        f"Differential privacy compares {compared}, which differ by {differ_text(answers)}. "
        f"It bounds how much what is released can differ between the two, and so how much it can reveal about {who}.",
        "epsilon and delta: what happens with probability p on one of the two datasets happens with probability at "
        "most e^epsilon p + delta on the other. epsilon = 0 with delta = 0 is perfect privacy; e^1 is 2.7, e^3 is 20, "
        f"e^8 is 2,981{_own_factor(answers)}. No value is the border between safe and unsafe: compare what an attacker "
        "gets, in the tables below, with what a guess gets.",
        f"delta has to be smaller than 1 divided by the number of people{_people(answers)}, and better is much "
        "smaller: publishing all data of one person drawn at random has epsilon = 0 at a delta of that size. Where "
        "nobody named a delta, 1e-5 is taken.",
        f"TPR at FPR: an attacker decides {asked}, by a score of what was released "
        f"and a threshold. The true positive rate is how often the answer is '{yes}' where that is right, the false "
        f"positive rate how often it is '{yes}' where '{no}' is right; the threshold is the one that gives the false "
        f"positive rate of the row. Where '{no}' can be said more reliably, the row is about that: then the "
        f"false positive rate is how often it is '{no}' where '{yes}' is right. Rates are probabilities over the noise "
        f"and the draws of one training, about one {unit_name(answers.described)} that the attacker chose; they are no "
        f"share of the {unit_name(answers.described)}s. The false negative rate is 1 minus the true positive rate. The "
        "advantage is the largest TPR - FPR: 0 where nothing is learned, 1 where everything is. The separation, the "
        "advantage divided by the square root of 2, says the same in other units.",
        "mu (of Gaussian differential privacy, mu-GDP) bounds the same by one number: distinguishing the two datasets "
        "is at least as hard as deciding from which of two bell curves of standard deviation 1, mu apart, one number "
        "was drawn, except with probability delta0, where nothing is promised.",
        "The regret says how far that overstates the attacker: mu overstates the advantage by at most twice the "
        "regret. At one false positive rate the gap can be larger.",
        'A proof ("at most") holds against every attacker within the scope that is named, also against attacks that '
        f"nobody has thought of.{_SECRET if answers.stated is None else ''}",
        'An attack ("at least") is an explicit procedure whose success was computed, so nothing smaller can be '
        "guaranteed where every noisy sum is seen. It is played on data that suit it: on your data, or where only the "
        "trained model is seen, attackers may do worse. The proof holds there too.",
        standard if answers.stated is None else "",
        "Numbers such as 1e-5 are written with a power of ten: 1e-5 is 1 in 100,000.",
    )
    items = tuple(text for name, text in zip(_ITEMS, texts, strict=True) if text and name not in without)
    warning = (Notice(f"This report is {NOT_DP}."),) if _is_isolated(answers) else ()
    return Section("How to read this report", (*warning, Items(items)))


def _compared(answers: Answers) -> str:
    """What is done on neighboring datasets; a mechanism that is stated need not train."""
    stated = answers.stated is not None and answers.stated.is_guarantee
    return "the same release from two neighboring datasets" if stated else "two trainings on neighboring datasets"


_SECRET = (
    " That attacker is stronger than a real one: all other records and, step by step, all gradients are of the "
    "attacker's choice. "
    "The noise, and who was in which batch where batches are drawn at random, stay secret."
)


def _own_factor(answers: Answers) -> str:
    """e^epsilon of this report, rounded up."""
    row = answers.leading
    if row.quantity != "epsilon" or not row.bracket.upper <= LARGEST_EPSILON:
        return ""
    stated = answers.stated.number("epsilon") if answers.stated is not None else None
    epsilon = setting(stated) if stated == row.bracket.upper else ceil_digits(row.bracket.upper)
    factor = Decimal(ceil_digits(math.exp(float(epsilon)) * (1.0 + 1e-12), 3))
    return f"; here e^{epsilon} is at most {factor:,f}"


def _people(answers: Answers) -> str:
    """How many units there are, where the run says how many records there are."""
    run = answers.runs[0] if answers.runs else None
    if run is None or run.dataset_size is None:
        return ""
    size, fewest = run.dataset_size, -(-run.dataset_size // run.records_per_unit)
    name = unit_name(answers.described)
    if fewest == size:
        return f" (here 1/{size:,}, if each {name} is a person)"
    return f" (here, with {size:,} records of between {fewest:,} and {size:,} {name}s, 1/{size:,} to be safe)"


def differ_text(answers: Answers) -> str:
    """What neighbors differ by."""
    if answers.stated is None:
        return shared_neighbors(answers.runs) if answers.runs else "one record"
    words = NEIGHBORS.get(answers.stated.adjacency)
    return "whatever the guarantee calls neighbors" if words is None else answers.stated.differ


def relation(answers: Answers) -> str:
    """The neighboring relation that the answers are about."""
    return answers.runs[0].adjacency if answers.stated is None else answers.stated.adjacency


def _is_isolated(answers: Answers) -> bool:
    view = answers.stated.view if answers.stated is not None else "worst-case"
    return "isolated" in (view, *(run.view for run in answers.runs))


def success_rates(measurement: Measurement) -> _Success:
    """Success at every baseline of the table; none in the isolated view, where nothing is proven about the model."""
    return () if measurement.isolated else tuple((k, measurement.success(k)) for k in BASELINES)


def secrets_section(measurement: Measurement, answers: Answers, found: _Success) -> Section:
    """How often a secret of one record is named, against a guess; singling out, where the dataset size is known."""
    if not found:
        return Section(SECRETS, (Notice(_ISOLATED),))
    who, name = unit_words(answers), unit_name(answers.described)
    released = answers.stated is not None and answers.stated.is_guarantee  # it need not be a model
    a_model, this = ("what is released", "this release") if released else ("a model trained", "this model")
    intro = (
        f"An attacker who knows everything but one secret of {who} looks at what was released and names it. The "
        "table compares how often that is right with the best guess of somebody who knows as much (all other data, "
        f"and {a_model} {_reference(answers)}) but has not seen {this}. Three kinds of secrets:"
    )
    whole = f"all records of the {unit_name(answers.described)}" if _several(answers) else "the record itself"
    items = (
        "Attribute inference: the secret is an attribute, such as a diagnosis. The guess is right with the probability "
        f"of the most likely value, given all else known of the {unit_name(answers.described)} and {a_model} "
        f"{_reference(answers)}. A diagnosis that 1 in 100 such persons have is not the row '1 in 100': its best guess "
        "is 'no', right 99 times in 100. How often those who have it are recognized, at a given rate of false alarms: "
        "see 'What an attacker gets' in a report with adjacency substitute, where the first record is the one with the "
        "diagnosis and the second the same without it.",
        f"Reconstruction: the secret is {whole}. You say how close an answer has to be; the guess is the one answer "
        "that is most often that close, and its probability of being so is the row to read.",
        f"Singling out a given {name}: the attacker gives a description, and is right if it fits that {name}. "
        "The guess is right with the share of the population that the description fits. Cohen and Nissim (2020) speak "
        "of singling out where a description fits exactly one record, whoever it is. Whether either is what a "
        "regulation calls singling out is not decided here, and no number here measures linking: finding which records "
        "of two datasets are of one person.",
    )
    rows: list[tuple[Cell, ...]] = [(_one_in(k), nearest(k), *success_cells(k, bracket)) for k, bracket in found]
    table = Table(
        "Success of the best attacker, over all secrets with this baseline",
        (
            "a guess is right",
            "baseline",
            *(_REACHED if answers.stated is None or answers.stated.is_described else ALLOWED),
        ),
        tuple(rows),
    )
    blocks: list[Block] = [Prose(intro), Items(items), table, Prose(_about_proof(answers)), Prose(_shown(measurement))]
    blocks += [Prose(text) for text in _anybody(measurement, answers)]
    return Section(SECRETS, tuple(blocks))


_REFERENCES = {
    "add-remove": "without {whose}",
    "zero-out": "with the gradients of {whose} set to zero",
    "substitute": "with fixed data in the place of {whose}",
}


def _reference(answers: Answers) -> str:
    """How the training that a guess knows differs: the dataset without the secret of docs/success.md."""
    name = unit_name(answers.described)
    whose = f"the records of that {name}" if _several(answers) else f"that {name}"
    return _REFERENCES.get(relation(answers), "on a neighboring dataset without the secret").format(whose=whose)


def _about_proof(answers: Answers) -> str:
    """Whose secrets the upper numbers are about, and which other relations bound the same attackers."""
    proof = "Why the upper numbers hold is proven in docs/success.md of Calipers."
    if answers.stated is not None:
        return proof
    name, own = unit_name(answers.described), relation(answers)
    others = " or ".join(
        f"{one} (unless it is for adding only)" if one == "add-remove" else one for one in ADJACENCIES if one != own
    )
    if only_side(answers.runs) == "adding":
        return (
            f"{proof} Here they are about a {name} that is added to the data of the run, since nothing finite holds "
            f"for removing one. For the secret of a {name} that is in them, measure zero-out or substitute."
        )
    return (
        f"{proof} They hold also for a {name} that is known to be in the data; then a report with adjacency {others} "
        "has such a table too; its numbers hold as well, and the smallest may be quoted. That is so for "
        f"the numbers of this section only: an epsilon for what the data of a known {name} say is that of substitute."
    )


def success_cells(baseline: float, bracket: Bracket) -> tuple[Number, Number]:
    """Both bounds; an attack that shows nothing more than the baseline is said to be a guess."""
    lower, upper = ends(bracket)
    guess = lower.text == nearest(baseline).text or bracket.lower <= baseline
    return (dataclasses.replace(lower, text=_AS_A_GUESS) if guess else lower), upper


def _shown(measurement: Measurement) -> str:
    """For which secret the lower number is reached."""
    if measurement.others_zero:
        return (
            "The lower number is reached for this secret: one of very many equally likely records took part, and the "
            "attacker names a list, as large a share of all candidates as the baseline. The answer is right if the "
            "record is on it. For other secrets attackers may do worse. "
            "What follows from the population alone, without this person, is in the "
            "baseline and not counted as leakage."
        )
    return (
        "The lower number is reached where the secret is which of the attack's two datasets was used (see "
        f"'{BEHIND}'); for the three kinds above attacks may do worse. Where it says '{_AS_A_GUESS}', no attack was "
        "computed that does better, which does not mean that none does. What follows from the population alone, "
        "without this person, is in the baseline and not counted as leakage."
    )


def _anybody(measurement: Measurement, answers: Answers) -> list[str]:
    """Singling out anybody: the sum over all records, which needs their number and independent records."""
    size = answers.runs[0].dataset_size if answers.runs else None
    if size is None or _several(answers):  # records of one unit are not independent
        return []
    if only_side(answers.runs) == "adding":  # the sum needs a bound for each of the N records that are there
        return []
    weight = _SHARE / size
    upper = size * measurement.success(weight).upper * (1.0 + 1e-12)
    said = (
        f"that probability is at most {ceil_digits(upper)} (proof)"
        if upper < 1
        else "no bound below 1 is proven for that probability"
    )
    text = (
        f"Singling out anybody is to give a description that fits exactly one of the {size:,} records, for somebody "
        "who knows the population but none of the records (whoever knows one can describe it). An example: where "
        f"records are drawn independently of one another, a description that fits one in {round(1 / weight):,} of the "
        f"population does so by chance with probability below {setting(_SHARE)}. For attackers who choose so rare a "
        f"description after they saw what was released, {said}; it may be much lower, since no attack is computed for "
        "this."
    )
    return [in_units(text, answers.runs[0])]


_ISOLATED = (
    "Nothing is said here. The numbers of this report are about an adversary who sees only the differing record's own "
    "noisy contribution, not the trained model; measure with view = 'worst-case' for a statement about people."
)


def signature_section(answers: Answers) -> tuple[Section, ...]:
    """The sentence and lines to sign; none without a finite guarantee of differential privacy for those in the data."""
    row, name = answers.leading, unit_name(answers.described)
    if _is_isolated(answers) or not math.isfinite(row.bracket.upper) or answers.stated is not None:
        return ()
    if only_side(answers.runs) == "adding":
        why = (
            f"There is nothing to sign: the numbers are for adding one {name} only, and no finite epsilon holds for "
            f"removing one. A signature would promise nothing to {members_text(answers.runs)}."
        )
        return (Section("To sign", (Notice(why),)),)
    blanks: tuple[tuple[Cell, ...], ...] = tuple((name, " ") for name in ("name", "role", "date", "signature"))
    described = "training" if answers.executed else "run"
    statement = (
        f"The {described} described above is {report_this(answers)} This holds if the model was trained as described, "
        "every single contribution clipped, and within what the sections 'What the numbers do not cover' and 'Notes' "
        f"say.{_not_about_presence(answers)}"
    )
    return (Section("To sign", (Prose(statement), Table("Responsible", ("who", "entry"), blanks))),)


def _not_about_presence(answers: Answers) -> str:
    """What a signature under another relation than add-remove does not say, where that is known."""
    if relation(answers) == "add-remove":
        return ""
    easier = easier_text(answers.runs, "tell", presence(answers.relations, answers.runs))
    known = "" if easier.startswith("may") else f", and {easier}"
    asked = f" Whether somebody's data were used at all is another question (add-remove){known}."
    return asked if known or relation(answers) == "substitute" else ""


def _several(answers: Answers) -> bool:
    """Whether a unit has more records than one."""
    return any(run.records_per_unit > 1 for run in answers.described)


def unit_words(answers: Answers) -> str:
    """What is protected."""
    runs = answers.described
    return in_units(unit_text(runs[0]), runs[0]) if runs else "one record"


def _one_in(baseline: float) -> str:
    return f"1 in {round(1 / baseline):,}" if baseline <= 0.5 else f"{round(100 * baseline)} in 100"
