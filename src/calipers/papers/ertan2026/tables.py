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
from calipers.papers.ertan2026.settings import epoch, epochs_of, isolated, poisson, shuffle, worst_case_epsilon
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.theorems import separation as theorem


def accuracy_table(progress: ItemProgress, number: int) -> Computed:
    """σ of every row of one of Tables 1 to 9, and what its runs leak."""
    shown, table = published.TABLES[number], Sheet("runs")
    stated, records = shown.dataset.records, shown.dataset.everything or shown.dataset.records
    thresholds = {batch: theorem.noise_threshold(stated // batch) for batch in shown.noise}
    for (batch, text), epochs in watched(itertools.product(shown.noise.items(), published.EPOCHS), progress):
        run = epochs_of(records, batch, epochs)
        sigma, rounds = run.noise_multiplier, run.steps_per_epoch
        low, high, note = worst_case_epsilon(run, 1.0 / records)
        table.add(
            batch_size=batch,
            epochs=epochs,
            records=records,
            rounds=rounds,
            participation=rounds * batch / records,
            sigma_printed=float(text),
            sigma=sigma,
            theorem_6_1=theorem.shuffle_separation_lower(sigma, rounds),
            shuffle_separation_isolated=isolated(run).separation(),
            poisson_separation=poisson(run).separation(),
            shuffle_epsilon=(low, high),
            poisson_epsilon=poisson(run).epsilon(1.0 / records),
        )
        table.unlisted(name=f"batch {batch}, {epochs} epoch{'s' if epochs > 1 else ''}", text=text, note=note)
        table.unlisted(as_stated=thresholds[batch] if shown.dataset.everything else None, count=stated)
    return Computed([table], {"stated": ", ".join(f"{sigma:.2f}" for sigma in thresholds.values())})


def table_10(progress: ItemProgress) -> Computed:
    """The four columns, and what runs with the most noise that Theorem 6.1 speaks about really leak."""
    table, delta = Sheet(), published.TABLE_10_DELTA
    for line in watched(published.TABLE_10, progress):
        sigma, run = theorem.noise_threshold(line.rounds), epoch(line.rounds)
        bounds = theorem.shuffle_separation_lower, theorem.poisson_separation_lower
        kappas = [bound(sigma, line.rounds) for bound in bounds]
        table.add(
            rounds=line.rounds,
            sigma=sigma,
            kappa_shuffle=kappas[0],
            kappa_poisson=kappas[1],
            epsilon_shuffle=theorem.epsilon_from_separation(kappas[0], delta),
            epsilon_poisson=theorem.epsilon_from_separation(kappas[1], delta),
            separation_isolated=isolated(run).separation(),
            separation_poisson=poisson(run).separation(),
            true_epsilon_shuffle=shuffle(run).epsilon(delta),
            true_epsilon_poisson=poisson(run).epsilon(delta),
        ).unlisted(line=line)
    return Computed([table])
