"""Wang, Cui, Cui, Yuan (2026): the privacy of DP-SGD whose noisy sum is divided by a number that depends on the data.

Figures 2 to 7 (Figure 1 is a diagram), Table 2 (Table 1 is notation), the limit theorem beside the exact test, and the
numbers and relations of the text. Items whose name ends in "normality" audit by the paper's own Algorithm 1 with its
number of trials; those in "opacus" run the installed Opacus (`pip install '.[opacus]' in the clone`).
"""

from __future__ import annotations

from functools import partial

from calipers.papers.items import item_of
from calipers.papers.wang2026 import claims, guarantees, implementations, synthetic, tables

_item = partial(item_of, "wang2026")


ITEMS = (
    _item(
        "figure-2a",
        "Figure 2 (a)",
        "Division by N q: δ(0) against N, n = 100",
        "The exact leakage, audited values, the fall with N.",
        synthetic.figure_2a,
    ),
    _item(
        "figure-2b",
        "Figure 2 (b), Section 5.2",
        "Division by |B|: δ(0) against N, n = 100",
        "The exact leakage, audited values, the fall with N, and what Section 5.2 says about it.",
        synthetic.figure_2b,
    ),
    _item(
        "figure-2a-normality",
        "Figure 2 (a), Algorithm 1",
        "Division by N q, audited by normality tests",
        "The paper's distinguisher on full vectors, 10,000 runs of each dataset.",
        synthetic.figure_2a_normality,
        slow=True,
    ),
    _item(
        "figure-2b-normality",
        "Figure 2 (b), Algorithm 1",
        "Division by |B|, audited by normality tests",
        "The paper's distinguisher on full vectors, 10,000 runs of each dataset.",
        synthetic.figure_2b_normality,
        slow=True,
    ),
    _item(
        "figure-3",
        "Figure 3",
        "ε at δ = 1e-5 against the dimension, N = 4",
        "Exact and audited ε for six dimensions and both divisors, above the claim.",
        synthetic.figure_3,
    ),
    _item(
        "figure-3-normality",
        "Figure 3, Algorithm 1",
        "The same, audited by normality tests",
        "The paper's distinguisher on full vectors, 10,000 runs of each dataset.",
        synthetic.figure_3_normality,
        slow=True,
    ),
    _item(
        "figure-4",
        "Figure 4, Section 5.3",
        "Four methods by their update rules, N = 4",
        "Exact and audited ε of DPSGD-HF, DPSUR, PrivImage and DP-FETA, above the claim.",
        implementations.figure_4,
    ),
    _item(
        "figure-4-opacus",
        "Figure 4, Section 5.3",
        "The installed Opacus on four records against five",
        "An audit of Opacus itself; needs the extra opacus, reads images from CALIPERS_DATA.",
        implementations.figure_4_opacus,
        slow=True,
    ),
    _item(
        "figure-5",
        "Figure 5, Section 5.4",
        "One round on datasets of up to 59,999 records",
        "Ceilings, exact and by the limit theorem, the claim, and the mechanism from both sides.",
        guarantees.figure_5,
    ),
    _item(
        "figure-6",
        "Figure 6, Appendix A.3",
        "Division by floor(N q), three records against four",
        "Exact and audited ε of DP-FETA's update rule, above the claim.",
        implementations.figure_6,
    ),
    _item(
        "figure-6-opacus",
        "Figure 6, Appendix A.3",
        "The installed Opacus on three records against four",
        "An audit of Opacus itself; needs the extra opacus, reads images from CALIPERS_DATA.",
        implementations.figure_6_opacus,
        slow=True,
    ),
    _item(
        "figure-7",
        "Figure 7, Appendix A.4",
        "Division by floor(N q) over 200 rounds, N = 140,199",
        "Ceilings, exact and by the limit theorem, the claim, and the mechanism from both sides.",
        guarantees.figure_7,
    ),
    _item(
        "table-2",
        "Table 2, Section 1",
        "What each release of Opacus divides by",
        "Thirteen rows, and the introduction's different account of releases 0.14 to 1.4.",
        tables.table_2,
    ),
    _item(
        "limit-versus-exact",
        "Theorems 3.12, 3.13 and A.7",
        "The limit theorem beside the exact chi-square test",
        "Both at α = 0.1 in the paper's settings, and where the limit theorem says nothing.",
        guarantees.limit_versus_exact,
    ),
    _item(
        "quoted-rates",
        "Section 1",
        "FPR at FNR 0.5",
        "Below 0.2 in some cases, where the claim says more than 0.4.",
        claims.quoted_rates,
    ),
    _item(
        "statements",
        "Sections 3 and 5",
        "Monotone relations, tightness at q = 1, parameter counts",
        "Theorems 3.4 and 3.5, Lemmas 3.14 to 3.16 on grids, and what the text says in numbers.",
        claims.statements,
    ),
)
