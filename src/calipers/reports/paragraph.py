"""A paragraph for a paper or a model card, after the reporting practice of Gomez et al. (2025).

They report a non-asymptotic mu-GDP guarantee, pessimistic by construction, together with the regret of using it
instead of the whole curve (their Algorithm 1). With regret below 0.01 mu sums up the curve: an attacker's
advantage is then overstated by at most twice the regret (Proposition 4.1). Otherwise they fall back on the tightest
guarantee available, here the profile at the deltas asked for. What the practice leaves open is said too: the delta0 up
to which mu holds, adjacency, sampler, divisor, adversary, privacy unit, accountant and its version.

The paragraph states only what a proof carries, as "at most", and adds what an attack shows, as "at least".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from calipers._version import __version__
from calipers.citations import implements
from calipers.guarantee import GuaranteeSubject
from calipers.numerics.decimals import ceil_digits, floor_digits, setting
from calipers.reports.answers import Answers
from calipers.reports.implied import implied_paragraph, is_guarantee
from calipers.reports.readings import Claimed
from calipers.reports.relations import listed, shared_number
from calipers.reports.standing import between, is_closed
from calipers.reports.words import describe, describe_phases
from calipers.run import Run
from calipers.scope import (
    AT_MOST,
    FIXED,
    FIXED_SHORT,
    NOT_DP,
    held_for,
    not_promised,
    only_side,
    other_side,
    scope_text,
    unit_name,
    unit_text,
    unseen_text,
)

if TYPE_CHECKING:
    from calipers.auditing.audit import AuditResult

COMPUTED = "an attack, computed and not carried out on this model,"
GOOD_REGRET = 0.01
"""Below this much regret Gomez et al. treat mu as a complete account."""


@implements("gomez2025:alg1", "gomez2025:prop4.1")
def paragraph(answers: Answers, tolerance: float) -> str:
    """Run, unit, mu with regret, (epsilon, delta), attack, accountant: ready to paste."""
    if is_guarantee(answers):
        return " ".join([*implied_paragraph(answers, printed_regret(answers)), _accountant()])
    return " ".join(
        [
            *((_trained(answers), _terms(answers)) if answers.stated is None else _said(answers.stated)),
            _gaussian(answers),
            *_epsilons(answers, tolerance),
            _accountant(),
        ]
    )


def _trained(answers: Answers) -> str:
    runs = answers.runs
    if answers.executed:
        said = describe_phases(runs).replace("\n", " ")
        return f"The model was trained with DP-SGD, in {answers.executed}, {AT_MOST} the run bounded here: {said}"
    said = describe_phases(runs, answers.dataset_sizes).replace("\n", " ")
    phases = ":" if len(runs) == 1 else f" in {len(runs)} phases."
    return f"The model was trained with DP-SGD{phases} {said}"


def _said(stated: GuaranteeSubject) -> tuple[str]:
    return (f"What is {'described' if stated.is_described else 'stated'}: {stated.sentence} {stated.about_lower}",)


def judgements(result: AuditResult) -> list[tuple[str, bool]]:
    """The verdicts of an audit as sentences, each naming what it is about, and whether it is a falsification."""
    found = [verdict for verdict in (result.verdict, result.upper_verdict) if verdict is not None]
    against: dict[tuple[str, bool], list[str]] = {}
    for verdict in found:
        against.setdefault((verdict.message, verdict.outcome.value == "falsified"), []).append(verdict.judged)
    return [(_judged(listed(names), text), bad) for (text, bad), names in against.items()]


def _judged(against: str, message: str) -> str:
    """A verdict as a sentence with a subject."""
    outcome, _, reason = message.partition(": ")
    return f"Against {against} the audit says: {outcome[0].lower()}{outcome[1:]}; {reason}"


def _terms(answers: Answers) -> str:
    """What a guarantee is about, after the sentence that describes the run, and when it holds."""
    held = dict.fromkeys(filter(None, (held_for(run, answers.dataset_sizes) for run in answers.runs)))
    sized = "".join(f" The divisor depends on the data: the guarantee is {one}." for one in held)
    unseen = unseen_text(answers.runs)
    seen = f" The adversary sees every noisy sum, but {unseen}." if unseen else ""
    nothing = f" {not_promised(answers.runs)}".rstrip()
    same = f" It holds only if {same}." if (same := _same_numbers(answers.runs)) else ""
    return f"{_about(answers.runs, 'The guarantee')}{nothing}{sized}{seen} {FIXED}{same}"


def _same_numbers(runs: Sequence[Run]) -> str:
    """Which numbers neighboring datasets have to share, where one record more or fewer could move them; else empty."""
    shared = [run for run in runs if run.adjacency == "add-remove" and run.derived_rate == "public"]
    names = dict.fromkeys(map(shared_number, shared))
    same = "number of steps are the same for both neighboring datasets"
    return f"{', '.join(names)} and {same}" if names else ""


def _about(runs: Sequence[Run], what: str) -> str:
    """Unit and adjacency, and whether it is for adding or removing alone."""
    side, only = only_side(runs), ""
    if side:
        only = f", for {side} one {unit_name(runs)} only: for {other_side(side)} one no finite epsilon holds"
    return f"{what} is for {unit_text(runs[0])} as the privacy unit, under {runs[0].adjacency} adjacency{only}."


def _sided(answers: Answers, sentence: str) -> str:
    """The sentence, which is true by itself: for adding or removing alone, where that is what it is about."""
    side = only_side(answers.runs)
    return f"For {side} one, {sentence[0].lower()}{sentence[1:]}" if side else sentence


def _gaussian(answers: Answers) -> str:
    """mu with its regret, and whether mu sums up the curve."""
    where = f"up to delta0 = {setting(answers.delta0)}"
    if math.isinf(answers.mu.upper):
        none = "No mu-GDP guarantee holds" if math.isinf(answers.mu.lower) else "No finite mu-GDP guarantee is proven"
        return f"{none} {where}, so the privacy profile is reported instead."
    mu, regret = ceil_digits(answers.mu.upper), printed_regret(answers)
    isolated = any(run.view == "isolated" for run in answers.runs)
    guarantee = _sided(
        answers,
        f"{'Against that adversary the' if isolated else 'The'} run is proven to be mu-GDP with mu = {mu} {where}: "
        "false negative rates are at least those of mu-GDP minus delta0 (regret at most "
        f"{ceil_digits(regret)}; reported with its regret as Gomez et al., 2025, propose).",
    )
    if regret < GOOD_REGRET:
        meaning = (
            f"With a regret below {GOOD_REGRET:g} this mu sums up the trade-off curve: it overstates the best "
            f"attacker's advantage by at most {ceil_digits(2 * regret)} "
            f"(this says little about true positive rates at false positive rates of about {GOOD_REGRET:g} and below)."
        )
    else:
        meaning = f"Since the regret is {regret_text(answers)}, mu alone does not sum up the curve."
    return f"{guarantee} {meaning}"


def regret_text(answers: Answers) -> str:
    """That the regret is too large, or that it may be: mu overstates the advantage by at most twice the regret."""
    allowed = math.erf(answers.mu.upper / math.sqrt(8.0))  # the advantage under mu
    known = allowed - answers.advantage.upper > 2.0 * GOOD_REGRET
    return f"above {GOOD_REGRET:g}" if known else f"not proven to be below {GOOD_REGRET:g}"


def printed_regret(answers: Answers) -> float:
    """At least the regret of mu as it is printed, rounded up: the number that stands next to it everywhere."""
    if math.isinf(answers.mu.upper) or (answers.stated is not None and answers.stated.number("mu") is not None):
        return answers.regret  # a stated mu is printed as it was stated
    return rounded_regret(answers, ceil_digits(answers.mu.upper))


def rounded_regret(answers: Answers, mu: str) -> float:
    """At least the regret of reporting `mu`, a decimal not below the proven mu.

    d/dmu delta_mu(eps) = phi(mu/2 - eps/mu) <= 0.39895, and the regret is a supremum of differences of profiles over
    1 + k >= 2 (Equation 24); so rounding mu up by h adds at most 0.2 h.
    """
    added = Decimal("0.2") * (Decimal(mu) - Decimal(answers.mu.upper))
    return math.nextafter(float(Decimal(answers.regret) + added), math.inf)


def report_this(answers: Answers) -> str:
    """One line to report: what is proven, for which neighbors and adversary, and how much of it an attack shows."""
    row = answers.leading
    lower = floor_digits(row.bracket.lower)
    if math.isinf(row.bracket.lower):
        return f"no guarantee; an attack shows that no {row.name} is finite."
    if math.isinf(row.bracket.upper):
        return f"no guarantee; no finite {row.name} is proven, and an attack shows at least {lower}."
    said = f"mu = {ceil_digits(answers.mu.upper)} up to delta0 = {setting(answers.delta0)}"
    if isinstance(row, Claimed):
        said_too = f", {said} (regret at most {ceil_digits(printed_regret(answers))})"
        summed_up = math.isfinite(answers.mu.upper) and printed_regret(answers) < GOOD_REGRET
        pairs, bounds, shown_at = _proven(answers)
        said = f"{pairs}differentially private{said_too if summed_up else ''}"
        if any(run.view == "isolated" for run in answers.runs):
            said = f"epsilon at most {bounds} ({NOT_DP})"
        lower = shown_at if len(answers.epsilon) > 1 else lower
    if answers.stated is not None:
        adjacency = answers.stated.adjacency
        own = "the neighbors that its pairs are about" if adjacency == "its own" else answers.stated.differ
        shown = {"adaptive": f"a policy in the budget shows at least {lower}", "filter": "no attack is claimed"}
        if answers.stated.table in shown:
            return f"{said}, for {own}{_CHOSEN}. Proven with Calipers {__version__}; {shown[answers.stated.table]}."
        if answers.stated.is_described:
            return f"{said}, for {own}. Proven with Calipers {__version__}; an attack shows at least {lower}."
        return (
            f"{said}, for {own}. As stated, read with Calipers {__version__}; some "
            f"mechanism with this guarantee shows at least {lower}."
        )
    attack = f"{COMPUTED} shows at least {lower}" if _attacked(answers) else "no attack is claimed"
    scope = scope_text(answers.runs, answers.executed, answers.dataset_sizes)
    more = ", and the conditions of its notes were met" if answers.executed else ""
    nothing = not_promised(answers.runs)
    same = f", and if {same}" if (same := _same_numbers(answers.runs)) else ""
    conditions = f"It holds only if {FIXED_SHORT}{same}{more}"
    proven = f"Proven with Calipers {__version__}; {attack}."
    return " ".join(filter(None, (f"{said}, {scope}. {conditions}.", proven, nothing, _not_about_content(answers))))


def _not_about_content(answers: Answers) -> str:
    """What an epsilon under another relation than substitute does not say, with the number that does."""
    row = next((one for one in answers.relations if one.adjacency == "substitute" and not one.last_batch), None)
    isolated = any(run.view == "isolated" for run in answers.runs)  # whose epsilon is no guarantee about what data say
    if isolated or answers.runs[0].adjacency == "substitute" or row is None or row.epsilon is None:
        return ""
    proven = (
        f"epsilon at most {ceil_digits(row.epsilon.upper)} at delta = {setting(row.delta)}"
        if math.isfinite(row.epsilon.upper)
        else "for which no finite epsilon is proven"
    )
    return f"What the data of a known participant say is another question (substitute), {proven}."


_CHOSEN = (
    ", against an adversary who sees all that is released, but neither the noise nor who was in which batch; menu and "
    "budget were fixed before the run"
)


def _attacked(answers: Answers) -> bool:
    """Whether an attack on what was executed is shown."""
    return not answers.executed or answers.advantage.lower > 0


def _proven(answers: Answers) -> tuple[str, str, str]:
    """Every delta with a finite epsilon: the pairs, the bounds, and what attacks show there."""
    rows = [row for row in answers.epsilon if math.isfinite(row.bracket.upper)]
    pairs = [f"({ceil_digits(row.bracket.upper)}, {setting(row.at)})-" for row in rows]
    bounds = [f"{ceil_digits(row.bracket.upper)} at delta = {setting(row.at)}" for row in rows]
    shown = [f"{floor_digits(row.bracket.lower)} at delta = {setting(row.at)}" for row in rows]
    return listed(pairs), listed(bounds), listed(shown)


def _epsilons(answers: Answers, tolerance: float) -> list[str]:
    """(epsilon, delta) as proven, and how much of it attacks show."""
    proven = [row for row in answers.epsilon if math.isfinite(row.bracket.upper)]
    sentences = [
        f"At delta = {setting(row.at)} {between('epsilon', row.bracket)}."
        for row in answers.epsilon
        if row not in proven
    ]
    if not proven:
        return sentences
    pairs, bounds, shown = _proven(answers)
    dp = _sided(answers, f"It is {pairs}differentially private (proof")
    attack = "An attack computed for these settings, not carried out on this model, shows an epsilon of at least "
    words = f"{dp}). {attack}"
    if any(run.view == "isolated" for run in answers.runs):
        words = f"Epsilon is at most {bounds} (proof; {NOT_DP}). {attack}"
    if not _attacked(answers):
        return [*sentences, f"{dp}); no attack is claimed."]
    if all(is_closed(row.bracket, tolerance) for row in proven):
        return [*sentences, f"{words}{shown}, so the bound is tight."]
    return [*sentences, f"{words}{shown}; where between attack and proof the truth lies is not known."]


def _accountant() -> str:
    return (
        f"All bounds were computed with Calipers {__version__}; upper bounds are rounded up, lower bounds down, and "
        "numerical error is included."
    )


def audited_relation(result: AuditResult, run: Run | None = None) -> str:
    """What the two datasets of an audit differ by: as its target says, or the run that it is meant to be."""
    return str(result.target.get("adjacency") or ("add-remove" if run is None else run.adjacency))


def other_hypothesis(result: AuditResult, run: Run | None = None) -> str:
    """How the second half of the runs was played."""
    words = {"substitute": "with the one that replaces it", "zero-out": "with its gradients zeroed out"}
    return words.get(audited_relation(result, run), "without it")


def audit_paragraph(result: AuditResult, run: Run | None = None) -> str:
    """What was played, as which run, what it shows with which confidence, and what an audit cannot say."""
    sure = f"with confidence {setting(result.confidence)} each"
    bounds = [f"epsilon >= {floor_digits(b.value)} at delta = {setting(b.at)}" for b in result.epsilon]
    bounds += [f"delta >= {floor_digits(b.value)} at epsilon = {setting(b.at)}" for b in result.delta]
    bounds.append(f"mu >= {floor_digits(result.mu.value)} up to delta0 = {setting(result.mu.at)}")
    audited, is_this = f"The implementation {result.target_name} was audited", "is said to be this run"
    if result.simulated:
        audited = f"Not training code but Calipers' own simulation was audited ({result.target_name})"
        is_this = "simulates this run"
    return " ".join(
        [
            f"{audited} with Calipers {__version__}: {result.trials:,} runs "
            f"with one record and {result.trials:,} {other_hypothesis(result, run)} (seed {result.seed}), scored by "
            f"{result.scored_by}.",
            *(() if run is None else (f"It {is_this}: {describe(run)}", _about((run,), "The audit"))),
            f"Lower bounds, {sure}: {'; '.join(bounds)}.",
            *(text for text, _ in judgements(result)),
            "An audit bounds the leakage of this pair of datasets under this attack from below; it does not prove "
            "privacy.",
        ]
    )
