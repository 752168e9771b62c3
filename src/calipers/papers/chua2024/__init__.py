"""Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang (2024): how private DP-SGD implementations are.

Seven figures and the numbers quoted with them. The paper has no tables.
"""

from __future__ import annotations

from functools import partial

from calipers.papers.chua2024 import claims, conjecture, crossing, figures
from calipers.papers.items import item_of

_item = partial(item_of, "chua2024")


ITEMS = (
    _item(
        "figure-1",
        "Figure 1, Section 1.1",
        "ε of three samplers against σ, δ = 1e-6, T = 10,000",
        "The six quoted ε and the curves.",
        figures.figure_1,
        slow=True,
    ),
    _item(
        "figure-2",
        "Figure 2, Theorem 4.2",
        "Poisson against deterministic batches, σ = 0.3, T = 10",
        "Both curves, their crossing, and the ε0 and ε1 of the proof.",
        crossing.figure_2,
    ),
    _item(
        "figure-3",
        "Figure 3, Section 4.3",
        "δ of three samplers against ε, σ = 0.4, T = 10,000",
        "The five quoted δ and the curves.",
        figures.figure_3,
        slow=True,
    ),
    _item(
        "figure-4",
        "Figure 4, Appendix A.1",
        "ε of three samplers against σ, δ = 1e-6, T = 100,000",
        "The five quoted ε and the curves; the quoted ε again with the caption's T = 10,000.",
        figures.figure_4,
        slow=True,
    ),
    _item(
        "figure-5",
        "Figure 5, Appendix A.1",
        "ε of three samplers against σ, δ = 1e-5, T = 1000",
        "The six quoted ε and the curves.",
        figures.figure_5,
        slow=True,
    ),
    _item(
        "figure-6",
        "Figure 6, Appendix A.2",
        "δ of three samplers against ε, σ = 0.8, T = 1000",
        "The four quoted δ and the curves.",
        figures.figure_6,
        slow=True,
    ),
    _item(
        "figure-7",
        "Figure 7, Appendix A.2",
        "δ of three samplers against ε, σ = 1, T = 1000",
        "The four quoted δ and the curves; three of the four again at ε = 1/2, where they fit.",
        figures.figure_7,
        slow=True,
    ),
    _item(
        "substitution",
        "Section 2.2",
        "Does the separation hold when a record is replaced?",
        "Group privacy and tight ε of Poisson batches, against the attack on shuffled ones.",
        claims.substitution,
    ),
    _item(
        "large-pull",
        "Section 4.3.1",
        "Other records that pull by −L: the limit is no amplification",
        "What the event of Equation (3) shows as L grows.",
        claims.large_pull,
    ),
    _item(
        "conjecture-3-2",
        "Conjecture 3.2",
        "Is one dataset the worst case of shuffled batches?",
        "A counterexample with two batches and adaptive queries; larger numbers of batches beside it.",
        conjecture.conjecture,
    ),
)
