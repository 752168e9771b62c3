"""Every number that Gomez et al. (2025) print and Calipers computes again, with the place where it stands.

Numbers are kept as text, because "1.3" and "1.30" claim different things.
"""

from __future__ import annotations

from dataclasses import dataclass

CIFAR_RECORDS = 50_000
"""Section 5: the sampling rate is 2^14/50,000 (the training images of CIFAR-10)."""

CIFAR_ALL_IMAGES = 60_000
"""Training and test images together. Printed nowhere: that Table 2's mu fit it is an inference (see `table_2`)."""

BATCH_SIZE = 16_384
"""Tables 4 and 5, row "Batch-size"."""

DELTA = 1e-5
"""Tables 4 and 5, row delta; also Figure 1."""


@dataclass(frozen=True)
class Column:
    """One column of Table 4 or 5: the printed epsilon, the noise multiplier, the number of updates."""

    epsilon: str
    noise_multiplier: float
    steps: int


# Table 4: training on CIFAR-10 without extra data (from Table 14 of De et al. 2022).
TABLE_4 = (
    Column("1.0", 40.0, 906),
    Column("2.0", 24.0, 1156),
    Column("3.0", 20.0, 1656),
    Column("4.0", 16.0, 1765),
    Column("6.0", 12.0, 2007),
    Column("8.0", 9.4, 2000),
)

# Table 5: ImageNet-32 to CIFAR-10, fine-tuning the last layer (from Table 17 of De et al. 2022).
TABLE_5 = (
    Column("1.0", 21.1, 250),
    Column("2.0", 15.8, 500),
    Column("4.0", 12.0, 1000),
    Column("8.0", 9.4, 2000),
)

# Table 2: the budgets in the heads of "Before" and "After", and the caption's claim about the regret.
TABLE_2_EPSILON = ("1.0", "2.0", "4.0", "8.0")
TABLE_2_MU = ("0.21", "0.39", "0.72", "1.3")
TABLE_2_REGRET = "< 0.001"
TABLE_2_OTHER_DELTA = 8e-7

# Table 2, rows 2 and 4 to 6: of these the paper prints epsilon, delta and the dataset, but no noise multiplier, batch
# size or number of updates. The sizes of the training sets are those of the datasets' own publications.
IMAGENET_RECORDS, PLACES_RECORDS = 1_281_167, 1_803_460
MANY_UPDATES = 100_000

# Table 3: mu for (epsilon, delta); columns are the deltas.
TABLE_3_DELTA = (1e-5, 1e-6, 1e-9)
TABLE_3 = {
    0.1: ("0.03", "0.03", "0.02"),
    0.5: ("0.14", "0.12", "0.09"),
    1.0: ("0.27", "0.24", "0.18"),
    2.0: ("0.50", "0.45", "0.35"),
    4.0: ("0.92", "0.84", "0.67"),
    6.0: ("1.31", "1.20", "0.97"),
    8.0: ("1.67", "1.53", "1.26"),
    10.0: ("2.00", "1.85", "1.54"),
}

# Table 1: concise, ordered, accurate.
TABLE_1 = {
    "ε-DP": (True, True, False),
    "(ε, δ)-DP": (True, False, False),
    "(ε, δ(ε)) or f": (False, False, True),
    "(t, ε(t))-RDP": (False, False, False),
    "ρ-zCDP": (True, True, False),
    "μ-GDP": (True, True, True),
}

ACCURATE = 0.01
"""Section 4: a regret below 10^-2 is an essentially complete picture."""

# Section 5, "DP-SGD": sigma = 9.4, p = 2^14/50,000, T = 2,000 (the last column of Tables 4 and 5).
HEADLINE = TABLE_4[-1]
HEADLINE_MU = "1.57"
HEADLINE_REGRET = "0.001"

# Section 1: true positive rates at a false positive rate of 10 %, in percent.
QUOTED_FPR = 0.1
QUOTED_TPR_CURVE = "61"
QUOTED_TPR_EPSILON_DELTA = "99.95"

# Section 5, "Rule of thumb".
RULE_NOISE_MULTIPLIER = 2.0
RULE_STEPS = 400
RULE_REGRET = "< 0.01"

# Figure 4: the numbers of compositions.
FIGURE_4_STEPS = (400, 1000, 2000)

# Section 5, "Top-Down algorithm".
TOPDOWN_MU = "2.702"

# Section 6: randomized response. Epsilon is not printed; 1 is the value that gives the printed regret.
RANDOMIZED_RESPONSE_REGRET = "0.058"
RANDOMIZED_RESPONSE_EPSILON = 1.0

# The 2020 Census, release of 25 August 2022: shares of rho in thousandths, ten queries a level, a tenth each.
TOPDOWN_SHARES = {
    "US": 20,
    "State": 274,
    "County": 85,
    "Prim": 131,
    "Tract_Subset_Group": 131,
    "Tract_Subset": 238,
    "Block_Group": 118,
    "Block": 3,
}
TOPDOWN_QUERIES = 10
TOPDOWN_RHO_ROUNDED = 3.65
TOPDOWN_RHO_PRODUCTION = (485 / 254) ** 2

# Appendix F: the largest distance of the two curves is at most twice the regret, except at this noise multiplier.
APPENDIX_F_EXCEPTION = 9.4

# Appendix B, Figure 6: the Gaussian mechanism calibrated to this pair.
FIGURE_6_EPSILON, FIGURE_6_DELTA = 8.0, 1e-5
