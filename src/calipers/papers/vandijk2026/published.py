"""Every number that van Dijk and Ertan (2026) print and Calipers computes again, with the place where it stands.

Numbers are kept as text, because "1.14e6" and "1.140e6" claim different things. M is called `rounds` here (batches in
one epoch), N `records`, and delta is the largest distance of the trade-off curve below 1 - a: the advantage.
"""

from __future__ import annotations

from dataclasses import dataclass

# Figure 1, and the rows of Table 1.
NOISE_MULTIPLIERS = (0.5, 0.75, 1.0, 1.5, 2.0)

DELTA = 0.01
"""Table 1, Section 6.1 and the abstract."""

FIGURE_1_MARKS = (0.01, 1e-4)
"""The dashed lines of Figure 1."""

FIGURE_3_DELTAS = (1e-2, 1e-3, 1e-4)
"""The three targets of Figure 3."""

NOISE_PER_ROUND = 0.1
"""Section 6.1: C sigma M / N is to be at most this, in units of C."""


@dataclass(frozen=True)
class Table1Row:
    """Rounds by the two leading terms, rounds by the whole theorem, and records."""

    two_terms: str
    exact: str
    records: str


TABLE_1 = {
    0.5: Table1Row("1.57e9", "1.57e9", "7.87e9"),
    0.75: Table1Row("3.72e6", "3.72e6", "2.79e7"),
    1.0: Table1Row("1.14e6", "1.14e6", "1.14e7"),
    1.5: Table1Row("3.23e6", "3.23e6", "4.85e7"),
    2.0: Table1Row("1.49e7", "1.49e7", "2.98e8"),
}

TWO_TERMS_WITHIN = "<= 0.1"
"""Captions of Table 1 and Figure 3, Section 6.1: the two columns agree to within (about) 0.1 percent."""


@dataclass(frozen=True)
class Setting:
    """A worked setting of Section 6 (sigma = 1): epochs, delta of one epoch, rounds, records."""

    epochs: int
    delta: float
    rounds: str
    records: str


# Sections 6.1 and 6.2, and the conclusion.
SETTINGS = (
    Setting(1, 1e-2, "1.14e6", "1.14e7"),
    Setting(4, 1 / 400, "1.82e7", "1.82e8"),
    Setting(100, 1e-4, "1.14e10", "1.14e11"),
)

# Section 6.2, "Even under the conjectured": sqrt(E) delta = 0.01. For E = 10,000 both fall "into the 1e10-1e11 range".
CONJECTURED = (Setting(100, 1e-3, "1.14e8", "1.14e9"), Setting(10_000, 1e-4, "1.14e10", "1.14e11"))

RULE_OF_THUMB = "114"
"""Section 6.2: M is about 114 / delta^2 at sigma = 1."""

HALVING = "4"
"""Section 6.2: halving delta quadruples M."""

# Section 4.1, below Equation (4): delta = 0.01 allows sigma <= 3.71, and sigma = 1 allows delta <= 0.20.
LARGEST_NOISE = "3.71"
LARGEST_DELTA = "0.20"

# Section 4.1, "From the concrete theorem": delta ~ 3 B M^(-(1 - 3/s^2)/2) at sigma = s/sqrt(ln M).
WEAK_ASYMPTOTIC_MULTIPLE = "3"

# Section 5 and Figure 2.
MIDPOINT_NOISE = "1.668"
MIDPOINT_RATIO = "1.207"

LEAST_NOISE_FIGURE_3 = "1"
"""Appendix E: the minimum of Figure 3 sits near sigma = 1."""

# Proposition D.6 and Equation (40): the numerator and the two numbers of the denominator of the tail term.
TAIL_CONSTANTS = ("4.52", "2.88", "2.41")

# Proposition G.3: s > 16 sqrt(2) / 9.
SMALLEST_S = "2.514"
