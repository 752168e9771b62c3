"""Gomez, Kulynych, Kaissis, Calmon, Hayes, Balle, Honkela (2025): Gaussian DP for reporting guarantees.

Figure 3 is a listing of the procedure and has nothing to compute: `calipers.curves.gdp_mu` and `regret` are it.
"""

from __future__ import annotations

from functools import partial

from calipers.papers.gomez2025 import claims, desiderata, figures, regret_grid, tables
from calipers.papers.items import item_of

_item = partial(item_of, "gomez2025")


ITEMS = (
    _item(
        "table-1",
        "Table 1",
        "Which reports are concise, ordered and accurate",
        "The eighteen marks, each from a computed number and a stated criterion.",
        desiderata.table_1,
    ),
    _item(
        "table-2",
        "Table 2",
        "μ of De et al.'s settings",
        "The four μ of the After columns and the claim about their regret.",
        tables.table_2,
    ),
    _item(
        "table-2-solved",
        "Table 2, rows 2 and 4 to 6",
        "μ of the rows whose σ is not printed",
        "σ solved for at assumed rates and updates, and the μ and regret it needs.",
        tables.table_2_solved,
        slow=True,
    ),
    _item("table-3", "Table 3", "μ for common (ε, δ)", "All twenty-four values of μ.", tables.table_3),
    _item(
        "table-4",
        "Table 4",
        "CIFAR-10 from scratch: ε, μ and regret of each column",
        "The printed ε from the printed hyper-parameters.",
        tables.table_4,
    ),
    _item(
        "table-5",
        "Table 5",
        "Fine-tuning on CIFAR-10: ε, μ and regret of each column",
        "The printed ε from the printed hyper-parameters.",
        tables.table_5,
    ),
    _item(
        "figure-1",
        "Figure 1",
        "Laplace under DP, DP-SGD under GDP, and the regrets",
        "Three panels: two trade-off curves with their guarantees, and the regret of every report.",
        figures.figure_1,
    ),
    _item("figure-2", "Figure 2", "The regret as a shift", "The illustration, for a real run.", figures.figure_2),
    _item(
        "figure-4",
        "Figure 4",
        "Regret of μ-GDP over sampling rates",
        "Regret against the sampling rate for T = 400, 1000, 2000.",
        regret_grid.figure_4,
        slow=True,
    ),
    _item(
        "figure-5",
        "Figure 5",
        "TopDown and randomized response",
        "Curves, best GDP bounds, μ = 2.702 and regret 0.058.",
        figures.figure_5,
    ),
    _item(
        "figure-6",
        "Figure 6",
        "Profile and attack bounds of a Gaussian mechanism",
        "The profile calibrated to (8, 1e-5) and the bounds of its points.",
        figures.figure_6,
    ),
    _item(
        "figure-7",
        "Figure 7",
        "Curves of Table 2, row 1, and their GDP guarantees",
        "Curves, gaps, and the claim that the gap is at most twice the regret.",
        figures.figure_7,
    ),
    _item(
        "figure-8",
        "Figure 8",
        "Curves of Table 2, row 3, and their GDP guarantees",
        "Curves, gaps, and the claim that the gap is at most twice the regret.",
        figures.figure_8,
    ),
    _item(
        "headline",
        "Section 5",
        "σ = 9.4, rate 16384/50000, T = 2000: μ and regret",
        "μ = 1.57 with regret about 0.001, and how both move with δ0.",
        claims.headline,
    ),
    _item(
        "tpr",
        "Section 1",
        "True positive rates at FPR 10 %",
        "At most 61 % for the run, 99.95 % from its (ε, δ) alone.",
        claims.quoted_tpr,
    ),
    _item(
        "topdown",
        "Section 5",
        "μ of the 2020 Census TopDown algorithm",
        "μ = 2.702, from eighty discrete Gaussians.",
        claims.topdown,
    ),
    _item(
        "rule-of-thumb",
        "Section 5",
        "Does σ >= 2 and T >= 400 keep the regret below 0.01?",
        "The rule of thumb, on a grid of runs.",
        regret_grid.rule_of_thumb,
        slow=True,
    ),
    _item(
        "rdp-minimum",
        "Appendix A.6",
        "Minimum or maximum over Rényi orders",
        "The trade-off curve of several RDP guarantees.",
        claims.renyi_minimum,
    ),
)
