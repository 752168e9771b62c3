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

import itertools

from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.settings import epoch, epochs_of, leaks
from calipers.papers.items import Outcome, Progress, Row, Table, watched
from calipers.theorems.separation import noise_threshold, poisson_separation_lower, shuffle_separation_lower
from calipers.theorems.separation_to_epsilon import epsilon_from_separation


def accuracy_table(progress: Progress, number: int) -> Outcome:
    """σ of every row of one of Tables 1 to 9, and what its runs leak."""
    shown = published.TABLES[number]
    stated, records = shown.dataset.records, shown.dataset.everything or shown.dataset.records
    rows, table = [], Table("runs")
    for (batch, text), epochs in watched(itertools.product(shown.noise.items(), published.EPOCHS), progress):
        run = epochs_of(records, batch, epochs)
        found, sigma, rounds = leaks(run), run.noise_multiplier, run.steps_per_epoch
        isolated, poisson = found.isolated.separation(), found.poisson.separation()
        low, high, note = found.worst_case_epsilon(1.0 / records)
        epsilon = found.poisson.epsilon(1.0 / records)
        name = f"batch {batch}, {epochs} epoch{'s' if epochs > 1 else ''}"
        if shown.dataset.everything:
            as_stated = f"N = {stated:,} as stated"
            rows.append(
                Row.of(f"{name}: σ, stated N", text, noise_threshold(stated // batch), "closed form", as_stated)
            )
        rows += [
            Row.of(f"{name}: σ", text, sigma, "closed form", f"both samplers; M = {rounds}"),
            Row.of(f"{name}: separation, isolated", None, isolated),
            Row.of(f"{name}: separation, Poisson", None, poisson),
            Row.of(f"{name}: ε(1/N), shuffling, worst case", None, (low, high), note=note),
            Row.of(f"{name}: ε(1/N), Poisson", None, epsilon),
        ]
        table.add(
            batch_size=batch,
            epochs=epochs,
            records=records,
            rounds=rounds,
            participation=rounds * batch / records,
            sigma_printed=float(text),
            sigma=sigma,
            theorem_6_1=shuffle_separation_lower(sigma, rounds),
            shuffle_separation_isolated=isolated,
            poisson_separation=poisson,
            shuffle_epsilon=(low, high),
            poisson_epsilon=epsilon,
        )
    thresholds = ", ".join(f"{noise_threshold(stated // batch):.2f}" for batch in shown.noise)
    return Outcome(rows, data=(table.data,), facts={"stated": thresholds})


def table_10(progress: Progress) -> Outcome:
    """The four columns, and what runs with the most noise that Theorem 6.1 speaks about really leak."""
    rows, table = [], Table()
    delta = published.TABLE_10_DELTA
    for line in watched(published.TABLE_10, progress):
        sigma, found = noise_threshold(line.rounds), leaks(epoch(line.rounds))
        kappas = shuffle_separation_lower(sigma, line.rounds), poisson_separation_lower(sigma, line.rounds)
        least = [epsilon_from_separation(kappa, delta) for kappa in kappas]
        separations = found.isolated.separation(), found.poisson.separation()
        epsilons = found.shuffle.epsilon(delta), found.poisson.epsilon(delta)
        names = ("shuffling", "isolated view", "shuffling, worst case"), ("Poisson", "Poisson", "Poisson")
        texts = (line.shuffle_separation, line.shuffle_epsilon), (line.poisson_separation, line.poisson_epsilon)
        for index, (sampler, view, worst) in enumerate(names):
            (kappa, bound), above = texts[index], f"σ = {sigma:.4f}"
            rows += [
                Row.of(f"M = {line.rounds:,}: κ, {sampler}", kappa, kappas[index], "closed form"),
                Row.of(f"M = {line.rounds:,}: least ε, {sampler}", bound, least[index], "closed form"),
                Row.of(f"M = {line.rounds:,}: true κ, {view}", f">= {kappa}", separations[index], note=above),
                Row.of(f"M = {line.rounds:,}: true ε, {worst}", f">= {bound}", epsilons[index], note=above),
            ]
        table.add(
            rounds=line.rounds,
            sigma=sigma,
            kappa_shuffle=kappas[0],
            kappa_poisson=kappas[1],
            epsilon_shuffle=least[0],
            epsilon_poisson=least[1],
            separation_isolated=separations[0],
            separation_poisson=separations[1],
            true_epsilon_shuffle=epsilons[0],
            true_epsilon_poisson=epsilons[1],
        )
    return Outcome(rows, data=(table.data,))
