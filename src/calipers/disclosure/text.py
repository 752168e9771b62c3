"""A short Markdown form, a block for a model card, and a checklist."""

from __future__ import annotations

import math

from calipers.disclosure.facts import Disclosure
from calipers.disclosure.yaml_text import to_yaml
from calipers.numerics.decimals import ceil_digits, setting
from calipers.reports.markdown import plain
from calipers.reports.paragraph import GOOD_REGRET, printed_regret
from calipers.reports.readings import Standing

_BEYOND = (
    "The upper value is a proof about the run described here; the lower value is what an explicit attack reaches. They "
    "say nothing about steps before this training: pretraining, preprocessing, choosing settings."
)
YOURS = "**To be answered by the deployer.**"


def short_lines(found: Disclosure) -> list[str]:
    """Ten sentences, the guarantee first; each is true by itself."""
    answers, about = found.answers, found.origin
    return [
        f"Guarantee: {found.guarantee}{found.delta_note}",
        f"Attack: {_attack(found)}",
        f"Whole curve: {_mu(found)}",
        f"Attackers: {found.attackers(ceil_digits(answers.tpr[0][1].upper, 3))}",
        f"Training: {found.training}",
        f"Privacy unit: {found.unit}. {found.neighbors}",
        f"Adversary: {found.adversary}",
        f"Standard accounting (Poisson): {_claim(found)}",
        f"The run is known {found.known}; run SHA-256 {about['run_sha256']}."
        + ("" if not found.conditions else f" {' '.join(found.conditions)}"),
        f"Measured with Calipers {about['calipers']} on {about['date']}: {about['command']}.",
    ]


def short(found: Disclosure) -> str:
    """The ten sentences as a list in Markdown: ten lines."""
    return "".join(f"- {plain(line)}\n" for line in short_lines(found))


def model_card(found: Disclosure) -> str:
    """A model card of Hugging Face: metadata that the hub searches, and the section to keep in a card of your own."""
    metadata = to_yaml({"tags": ["differential-privacy", "dp-sgd"]})
    lines = "\n".join(f"- {plain(line)}" for line in short_lines(found))
    return (
        f"---\n{metadata}---\n\n## Differential privacy\n\n"
        f"This model was trained with differentially private SGD.\n\n{lines}\n\n{_BEYOND}\n"
    )


def checklist(found: Disclosure) -> str:
    """What NIST SP 800-226 asks an evaluator to look at, answered where the measurement answers it."""
    rows = "\n".join(f"| {plain(topic)} | {_cell(reply)} | {plain(basis)} |" for topic, reply, basis in _topics(found))
    return (
        "## Evaluation after NIST SP 800-226 (March 2025)\n\n"
        "Guidelines for Evaluating Differential Privacy Guarantees, doi:10.6028/NIST.SP.800-226. Topics after the "
        "differential privacy pyramid of the publication, from epsilon at its top down to data collection; each layer "
        "rests on those below it. Names, order and questions are in our own words: the publication decides what it "
        "asks, and NIST has neither seen nor endorsed this page.\n\n"
        f"| topic | answer | based on |\n| :--- | :--- | :--- |\n{rows}\n"
    )


def _cell(reply: str) -> str:
    if not reply.startswith(YOURS):
        return plain(reply)
    return f"{YOURS} {plain(reply.removeprefix(YOURS).strip())}".rstrip()


def _topics(found: Disclosure) -> list[tuple[str, str, str]]:
    """(topic, answer, what it is based on); what a measurement of a run cannot know is asked back."""
    epsilon, delta = found.pair
    said = {key: str(value) for key, value in found.about.items() if isinstance(value, str)}
    measured, described = "the measurement", f"the run, {found.known}"

    def asked(topic: str, key: str, question: str) -> tuple[str, str, str]:
        return (
            (topic, said[key], "the deployer's word")
            if said.get(key)
            else (topic, f"{YOURS} {question}", "nothing yet")
        )

    return [
        ("Privacy parameter", f"epsilon at most {epsilon} at delta = {delta} (proof); {_attack(found)}"
         f"{found.delta_note}", measured),
        ("Variant of differential privacy", f"{found.guarantee} {_mu(found)}", measured),
        ("Unit of privacy", f"{found.unit[0].upper()}{found.unit[1:]}. {found.beyond_unit}",
         found.basis_of("unit")),
        ("Neighboring datasets", found.neighbors, found.basis_of("neighbors")),
        asked("Composition", "other_releases", "Is the same data used in any other release? Epsilons of several "
              "releases add up; the measurement is about this training alone."),
        ("Algorithm", f"DP-SGD. {found.training}", described),
        ("Correctness of the implementation", f"The run is {found.known}. {_claim(found)}"
         f"{' ' + ' '.join(found.conditions) if found.conditions else ''}", f"{described}; {measured}"),
        asked("Choice of settings", "preprocessing_and_hyperparameter_tuning", "Were settings chosen with the help of "
              "the private data? That is not in epsilon."),
        asked("Utility and bias", "utility", "How does accuracy differ between groups, with and without privacy? Which "
              "bias was in the data or in the choices of people before?"),
        asked("Random numbers and floating point", "noise_source", "Does the noise come from a cryptographic "
              "generator? The measurement is about real-valued Gaussian noise."),
        asked("Threat and trust model", "actors", f"{found.adversary} Who is trusted with the data itself?"),
        asked("Side channels", "side_channels", "Can running time, memory or failures of the training be seen?"),
        asked("Security and access control", "access_control", "Who can read the data, the checkpoints, the logs?"),
        asked("Data collection exposure", "data_collection", "What is exposed before noise is added?"),
    ]  # fmt: skip


def _attack(found: Disclosure) -> str:
    if not found.attained or found.row.bracket.lower == 0:
        return "no attack is claimed: the run bounds what was executed from above."
    return f"an explicit attack reaches an epsilon of at least {found.shown} at the same delta."


def _mu(found: Disclosure) -> str:
    answers = found.answers
    if math.isinf(answers.mu.upper):
        none = "no mu is finite" if math.isinf(answers.mu.lower) else "no finite mu is proven"
        return f"{none} up to delta0 = {setting(answers.delta0)}."
    mu, regret = ceil_digits(answers.mu.upper), printed_regret(answers)
    fits = "does not sum up the curve"
    if regret < GOOD_REGRET:
        fits = f"sums up the curve, except at false positive rates of about {GOOD_REGRET:g} and below"
    where = f"up to delta0 = {setting(answers.delta0)}, regret at most {ceil_digits(regret)}"
    return f"mu-GDP with mu = {mu} {where}: mu {fits}."


def _claim(found: Disclosure) -> str:
    answers, row = found.answers, found.row
    claim = f"Poisson accounting of the undivided sum would claim epsilon = {ceil_digits(row.claim)}"
    if answers.as_accounted:
        return f"{claim}, whose assumptions this run{', as described,' if found.loop_open else ''} meets."
    state = row.standing
    if state is Standing.ELSEWHERE:
        return f"{claim}, which is about adding or removing one record."
    if state is Standing.REFUTED and found.attained:
        return f"{claim}, which an explicit attack refutes."
    return f"{claim}, which is {'' if state is Standing.COVERED else 'not '}proven to hold."
