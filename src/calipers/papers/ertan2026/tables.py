"""Tables 1 to 9, without their accuracies, and Table 10.

**Tables 1 to 9** print test accuracies at σ = 1/sqrt(2 ln M). The accuracies are measured by training. What a formula
gives is σ, from M = floor(N / batch size), and what a measurement adds is how much such a run leaks: σ at the
threshold is where Theorem 6.1 begins to speak, not where privacy begins.

**SVHN.** Appendix B says about 73k training examples. The printed σ = 0.24, 0.25, 0.27 do not follow from that number
(which gives 0.28, 0.30, 0.32), but do from 604,388, SVHN with its "extra" images.

**Table 10** turns the bounds of Theorems 6.1 and 6.3 into the smallest epsilon they allow. It is correct to its last
digit, and far below the truth: one number, the separation, says little about epsilon at delta = 1e-8.
"""

from __future__ import annotations

from functools import partial

from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.settings import Leaks, Setting, leaks
from calipers.papers.items import Data, Outcome, Progress, Row, printed
from calipers.theorems.separation import noise_threshold, poisson_separation_lower, shuffle_separation_lower
from calipers.theorems.separation_to_epsilon import epsilon_from_separation

_HEADER = (
    "batch_size",
    "epochs",
    "records",
    "rounds",
    "participation",
    "sigma_printed",
    "sigma",
    "theorem_6_1",
    "shuffle_separation_isolated_lower",
    "shuffle_separation_isolated_upper",
    "poisson_separation_lower",
    "poisson_separation_upper",
    "shuffle_epsilon_lower",
    "shuffle_epsilon_upper",
    "poisson_epsilon_lower",
    "poisson_epsilon_upper",
)

_ACCURACIES = "The accuracies of this table are measured by training; they are not computed here."
_BRACKETS = (
    "ε is at δ = 1/N. Shuffling in the worst case lies between an attack and a proof; its separation is that of the "
    "paper's adversary, who does not use what the other records of a batch give away. Both count that a record is "
    "left over with probability 1 − M·batch/N, which the paper conditions away."
)


def _svhn_remark(table: published.Table) -> str:
    stated = ", ".join(f"{noise_threshold(table.dataset.records // batch):.2f}" for batch in table.noise)
    return (
        f"The printed σ = {', '.join(table.noise.values())} need N = {table.dataset.everything:,}: SVHN's training and "
        f"“extra” images together. The N = {table.dataset.records:,} that Appendix B states gives {stated}; a run on "
        "those images with the printed σ is below the threshold of Theorem 6.1, not at it."
    )


def _leak_rows(name: str, found: Leaks, delta: float) -> list[Row]:
    isolated, poisson = found.isolated.separation(), found.poisson.separation()
    low, high, note = found.worst_case_epsilon(delta)
    epsilon = found.poisson.epsilon(delta)
    return [
        Row(f"{name}: separation, isolated", None, isolated.lower, isolated.upper),
        Row(f"{name}: separation, Poisson", None, poisson.lower, poisson.upper),
        Row(f"{name}: ε(1/N), shuffling, worst case", None, low, high, note=note),
        Row(f"{name}: ε(1/N), Poisson", None, epsilon.lower, epsilon.upper),
    ]


def accuracy_table(number: int, progress: Progress) -> Outcome:
    """σ of every row of one of Tables 1 to 9, and what its runs leak."""
    table = published.TABLES[number]
    total = len(table.noise) * len(published.EPOCHS)
    rows: list[Row] = []
    values = []
    records = table.dataset.everything or table.dataset.records
    for batch, text in table.noise.items():
        for epochs in published.EPOCHS:
            setting = Setting.of_dataset(records, batch, epochs)
            sigma, name = setting.noise_multiplier, f"batch {batch}, {epochs} epoch{'s' if epochs > 1 else ''}"
            if table.dataset.everything is not None:
                stated = noise_threshold(table.dataset.records // batch)
                note = f"N = {table.dataset.records:,} as stated"
                rows.append(Row(f"{name}: σ, stated N", printed(text), stated, stated, "closed form", note))
            note = f"both samplers; M = {setting.rounds}"
            rows.append(Row(f"{name}: σ", printed(text), sigma, sigma, "closed form", note))
            leaked = _leak_rows(name, leaks(setting), 1.0 / records)
            rows += leaked
            share = setting.rounds * batch / records
            bound = shuffle_separation_lower(sigma, setting.rounds)
            jaws = [jaw for row in leaked for jaw in (row.lower, row.upper)]
            values.append([batch, epochs, records, setting.rounds, share, float(text), sigma, bound, *jaws])
            progress(len(values), total)
    remarks: tuple[str, ...] = (_ACCURACIES, _BRACKETS)
    if table.dataset.everything is not None:
        remarks = (_svhn_remark(table), *remarks)
    return Outcome(tuple(rows), remarks, (Data("runs", _HEADER, values),))


TABLES = {number: partial(accuracy_table, number) for number in published.TABLES}


def table_10(progress: Progress) -> Outcome:
    """The four columns, and what runs with the most noise that Theorem 6.1 speaks about really leak."""
    rows: list[Row] = []
    values = []
    delta = published.TABLE_10_DELTA
    for line in published.TABLE_10:
        sigma, name = noise_threshold(line.rounds), f"M = {line.rounds:,}"
        kappas = shuffle_separation_lower(sigma, line.rounds), poisson_separation_lower(sigma, line.rounds)
        least = [epsilon_from_separation(kappa, delta) for kappa in kappas]
        found = leaks(Setting.at_threshold(line.rounds))
        separations = found.isolated.separation(), found.poisson.separation()
        epsilons = found.shuffle.epsilon(delta), found.poisson.epsilon(delta)
        texts = (line.shuffle_separation, line.poisson_separation), (line.shuffle_epsilon, line.poisson_epsilon)
        views = ("isolated view", "Poisson"), ("shuffling, worst case", "Poisson")
        for index, sampler in enumerate(("shuffling", "Poisson")):
            kappa, bound, epsilon = texts[0][index], texts[1][index], epsilons[index]
            above = f"σ = {sigma:.4f}"
            rows += [
                Row(f"{name}: κ, {sampler}", printed(kappa), kappas[index], kappas[index], "closed form"),
                Row(f"{name}: least ε, {sampler}", printed(bound), least[index], least[index], "closed form"),
                Row(
                    f"{name}: true κ, {views[0][index]}",
                    printed(f">= {kappa}"),
                    separations[index].lower,
                    separations[index].upper,
                    note=above,
                ),
                Row(
                    f"{name}: true ε, {views[1][index]}",
                    printed(f">= {bound}"),
                    epsilon.lower,
                    epsilon.upper,
                    note=above,
                ),
            ]
        jaws = [jaw for bracket in (*separations, *epsilons) for jaw in (bracket.lower, bracket.upper)]
        values.append([line.rounds, sigma, *kappas, *least, *jaws])
        progress(len(values), len(published.TABLE_10))
    remarks = (
        "True: at σ = 1/√(2 ln M), the most noise that the theorems speak about, where the leak is least. κ is that of "
        "the paper's adversary, ε that of the worst case at δ = 1e-8.",
        "The printed κ are within 6 % of the truth for shuffling and within 24 % for Poisson sampling. The "
        "printed ε are not: ε of about 1 is what one separation can exclude, while these runs have ε above 27.",
        "Poisson sampling has the smaller κ and the larger ε of the two: it may draw the record several times.",
    )
    header = ("rounds", "sigma", "kappa_shuffle", "kappa_poisson", "epsilon_shuffle", "epsilon_poisson")
    names = ("separation_isolated", "separation_poisson", "true_epsilon_shuffle", "true_epsilon_poisson")
    jaw_names = tuple(f"{name}_{end}" for name in names for end in ("lower", "upper"))
    return Outcome(tuple(rows), remarks, (Data("values", header + jaw_names, values),))
