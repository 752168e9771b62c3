"""Ertan and van Dijk (2026): the noise that a small separation forces.

Everything that a formula gives is computed here. The accuracies of Tables 1 to 9 come from training; those of
Tables 1 and 3 were trained again, with the rows kept (`utility`).
"""

from __future__ import annotations

from functools import partial

from calipers.papers.ertan2026 import claims, figures, published, sizes, tables, utility
from calipers.papers.items import Item, item_of

_item = partial(item_of, "ertan2026")


def _table(number: int) -> Item:
    table = published.TABLES[number]
    return _item(
        f"table-{number}",
        f"Table {number}",
        f"{table.dataset.name} / {table.model}: σ, and what the runs leak",
        "The σ of every row, with the separation and ε of its run; not the accuracies, which need training.",
        tables.TABLES[number],
        slow=True,
    )


ITEMS = (
    *(_table(number) for number in published.TABLES),
    _item(
        "utility",
        "Section 7, Tables 1 and 3",
        "Accuracy at the noise that small separation forces",
        "The accuracies of two tables beside our own trainings on part of the data, and accuracy against noise.",
        utility.utility,
    ),
    _item(
        "table-10",
        "Table 10",
        "The least ε that the separation bounds allow",
        "All thirty-six values, beside the true κ and ε at the threshold.",
        tables.table_10,
        slow=True,
    ),
    _item(
        "figure-1",
        "Figure 1",
        "Separation on a trade-off curve",
        "The illustration, for one shuffled epoch.",
        figures.figure_1,
    ),
    _item(
        "figure-2",
        "Figure 2",
        "x', κ_sub and κ_shuf",
        "The illustration, for one shuffled epoch, and the order of its three distances.",
        figures.figure_2,
    ),
    _item(
        "figure-3",
        "Figure 3",
        "The explicit bound of the Gaussian limit, and one Poisson epoch",
        "Equation (52) over M for several s.",
        figures.figure_3,
    ),
    _item(
        "figure-4",
        "Figure 4",
        "The separation that the Gaussian limit predicts, and the true one",
        "Equation (47) at the threshold over M for E = 1, 10, 25.",
        figures.figure_4,
    ),
    _item(
        "thresholds",
        "Section 6.2",
        "The noise that ImageNet and LAION need",
        "M = 5e3 and σ = 0.24, M = 2.3e7 and σ = 0.17.",
        claims.thresholds,
        slow=True,
    ),
    _item(
        "theorem-6-1",
        "Theorems 6.1 and 6.3",
        "The two dichotomies beside the separations they bound",
        "The bounds at the threshold for M from 2 to a million, and two constants of the proof.",
        claims.dichotomies,
        slow=True,
    ),
    _item(
        "forced-noise",
        "Sections 1 and 6",
        "The noise that small separation really forces",
        "σ of a separation of 0.1, 0.03 and 0.01, from both sides, beside 1/√(2 ln M).",
        claims.forced,
        slow=True,
    ),
    _item(
        "model-sizes",
        "Captions of Tables 2 to 7 and 9",
        "Numbers of parameters",
        "The seven model sizes, from the architectures of Appendix B.",
        sizes.model_sizes,
    ),
)
