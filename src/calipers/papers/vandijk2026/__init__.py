"""Van Dijk and Ertan (2026): closed-form bounds for DP-SGD with random shuffling, and what they bound.

Everything here is about the isolated view, the paper's own adversary, unless an item says otherwise: each published
number stands beside the certified bracket of the pair it is about, so that the looseness of a bound can be read off.
"""

from __future__ import annotations

from functools import partial

from calipers.papers.items import item_of
from calipers.papers.vandijk2026 import claims, coefficients, epochs, figures, limits, tables, worst_case

_item = partial(item_of, "vandijk2026")


ITEMS = (
    _item(
        "table-1",
        "Table 1",
        "Rounds and records for δ = 0.01 in one epoch",
        "All fifteen numbers, the 0.1 % agreement of its columns, and the rounds that the pair itself needs.",
        tables.table_1,
        slow=True,
    ),
    _item(
        "figure-1",
        "Figure 1",
        "δ against the number of rounds",
        "The five curves from their first M on, beside the advantage of the pair.",
        figures.figure_1,
    ),
    _item(
        "figure-2",
        "Figure 2",
        "GDP coefficients of shuffling and of Poisson sampling",
        "Both curves, their ratio, its limits and midpoint, and whether shuffling is up to √2 better.",
        coefficients.figure_2,
    ),
    _item(
        "figure-3",
        "Figure 3",
        "Rounds against the noise multiplier",
        "The three curves, their minimum near σ = 1, and the rounds that the pair itself needs.",
        figures.figure_3,
        slow=True,
    ),
    _item(
        "settings",
        "Section 6",
        "Worked settings: one, four and a hundred epochs",
        "Every M and N of Section 6, and what they buy; the settings under the √E conjecture.",
        tables.settings,
        slow=True,
    ),
    _item(
        "epochs",
        "Section 6.2, Corollary 5.3",
        "E δ, √E δ, and the pair",
        "Advantage and separation after E epochs at M = 1.14e6, and whether a √E law can hold.",
        epochs.several_epochs,
        slow=True,
    ),
    _item(
        "gaussian-limit",
        "Theorem 5.2",
        "E = c² M epochs against their Gaussian limit",
        "Convergence to G_μ, how fast it is, and where the limit is no bound.",
        limits.gaussian_limit,
        slow=True,
    ),
    _item(
        "edgeworth",
        "Theorem 5.1",
        "The Edgeworth map of the mean likelihood ratio",
        "n times the error of Φ(p_n), and √n times that of Φ, against n.",
        limits.edgeworth,
    ),
    _item(
        "interpretation",
        "Section 4.1",
        "Where Equation (3) is enough, and how δ scales",
        "σ <= 3.71, δ <= 0.20, and the factor 3B.",
        claims.interpretation,
    ),
    _item(
        "constants",
        "Appendices C, D and G",
        "The constants of the proofs",
        "0.4097, 4.52, 2.88, 2.41, 2.514, and whether (20) and (21) bound (19).",
        claims.constants,
    ),
    _item(
        "shuffled-batches",
        "Theorem 4.1",
        "Does the theorem hold for shuffled batches of fixed size?",
        "The theorem at the M of Table 1 against an explicit attack in the worst-case view.",
        worst_case.shuffled_batches,
        slow=True,
    ),
)
