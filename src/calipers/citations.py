"""The registry of sources and statements that license Calipers' numbers.

Every function that returns a published number is decorated with `implements("source:place")`;
`Evidence`, the docs, the reports and the tests all read this one registry.

>>> statement("gomez2025:eq21").where
'Equation (21), Proposition C.1'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from calipers.errors import InputError

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Source:
    """A paper or a piece of software, as one would cite it."""

    key: str
    authors: str
    title: str
    year: int
    where: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.where}."


@dataclass(frozen=True)
class Statement:
    """One numbered statement of a source: `key` is 'source:place'."""

    key: str
    source: Source
    where: str
    says: str

    def __str__(self) -> str:
        return f"{self.source.authors} {self.source.year}, {self.where}"


SOURCES: dict[str, Source] = {}
STATEMENTS: dict[str, Statement] = {}
IMPLEMENTATIONS: dict[str, list[str]] = {}


def add_source(key: str, authors: str, title: str, year: int, where: str) -> None:
    """Register a source. Raises `InputError` if the key is taken by another one."""
    source = Source(key, authors, title, year, where)
    if SOURCES.setdefault(key, source) != source:
        raise InputError(f"Source key {key!r} is already taken.")


def add_statement(key: str, where: str, says: str) -> None:
    """Register 'source:place'. The part before the colon must be a registered source."""
    source_key, _, place = key.partition(":")
    if source_key not in SOURCES or not place:
        raise InputError(f"Statement key {key!r} needs the form 'source:place' with a registered source.")
    entry = Statement(key, SOURCES[source_key], where, says)
    if STATEMENTS.setdefault(key, entry) != entry:
        raise InputError(f"Statement key {key!r} is already taken.")


def statement(key: str) -> Statement:
    """The registered statement, or `InputError` naming the key."""
    if key not in STATEMENTS:
        raise InputError(f"No statement {key!r} is registered; see calipers.citations.STATEMENTS.")
    return STATEMENTS[key]


def implements(*keys: str) -> Callable[[F], F]:
    """Mark a function or class as an implementation of registered statements."""

    def mark(thing: F) -> F:
        for key in keys:
            statement(key)
            IMPLEMENTATIONS.setdefault(key, []).append(f"{thing.__module__}.{thing.__qualname__}")
        return thing

    return mark


add_source(
    "wang2026",
    "Wang, Cui, Cui, Yuan",
    "Rethinking the Security of DP-SGD: A Corrected Analysis of Differentially Private Machine Learning",
    2026,
    "arXiv:2605.15648v1",
)
add_source(
    "vandijk2026",
    "van Dijk, Ertan",
    "Trade-off Functions for DP-SGD with Subsampling based on Random Shuffling: Tight Upper and Lower Bounds",
    2026,
    "arXiv:2605.06259v2",
)
add_source(
    "gomez2025",
    "Gomez, Kulynych, Kaissis, Calmon, Hayes, Balle, Honkela",
    "Gaussian DP for Reporting Differential Privacy Guarantees in Machine Learning",
    2025,
    "arXiv:2503.10945",
)
add_source(
    "chua2024",
    "Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang",
    "How Private are DP-SGD Implementations?",
    2024,
    "ICML 2024, arXiv:2403.17673",
)
add_source(
    "chua2025",
    "Chua, Ghazi, Harrison, Leeman, Kamath, Kumar, Manurangsi, Sinha, Zhang",
    "Balls-and-Bins Sampling for DP-SGD",
    2025,
    "AISTATS 2025, arXiv:2412.16802",
)
add_source(
    "ertan2026",
    "Ertan, van Dijk",
    "Fundamental Limitations of Favorable Privacy-Utility Guarantees for DP-SGD",
    2026,
    "arXiv:2601.10237",
)
add_source(
    "dong2022",
    "Dong, Roth, Su",
    "Gaussian Differential Privacy",
    2022,
    "Journal of the Royal Statistical Society B 84(1), arXiv:1905.02383",
)
add_source(
    "zhu2022",
    "Zhu, Dong, Wang",
    "Optimal Accounting of Differential Privacy via Characteristic Function",
    2022,
    "AISTATS 2022, arXiv:2106.08567",
)
add_source(
    "doroshenko2022",
    "Doroshenko, Ghazi, Kamath, Kumar, Manurangsi",
    "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
    2022,
    "PoPETs 2022(4), arXiv:2207.04380",
)
add_source(
    "canonne2020",
    "Canonne, Kamath, Steinke",
    "The Discrete Gaussian for Differential Privacy",
    2020,
    "arXiv:2004.00010v4",
)
add_source(
    "lebeda2024",
    "Lebeda, Regehr, Kamath, Steinke",
    "Avoiding Pitfalls for Privacy Accounting of Subsampled Mechanisms under Composition",
    2024,
    "arXiv:2405.20769",
)
add_source(
    "balle2018",
    "Balle, Barthe, Gaboardi",
    "Privacy Amplification by Subsampling: Tight Analyses via Couplings and Divergences",
    2018,
    "NeurIPS 2018, arXiv:1807.01647",
)
add_source("feldman2025", "Feldman, Shenfeld", "Privacy Amplification by Random Allocation", 2025, "arXiv:2502.08202")
add_source("kahane1985", "Kahane", "Sur le chaos multiplicatif", 1985, "Ann. Sci. Math. Quebec 9(2)")
add_source("calipers", "Calipers", "Derivations written out in the documentation of Calipers", 2026, "docs/mathematics")

add_statement(
    "gomez2025:eq21",
    "Equation (21), Proposition C.1",
    "mu* is the maximum over breakpoints of Phi^-1(1-alpha) - Phi^-1(beta).",
)
add_statement("gomez2025:eq6", "Definition 2.6, Equation (6)", "The Delta-divergence between two trade-off curves.")
add_statement("gomez2025:eq24", "Definition C.3, Equation (24)", "The Delta-divergence between two privacy profiles.")
add_statement("gomez2025:eq25", "Equation (25)", "rho* is the smallest rho with eps(t) <= rho t at every order t > 1.")
add_statement("gomez2025:eq28", "Equations (27) and (28)", "Regret as the worst loss of Bayes error over priors.")
add_statement("gomez2025:a6", "Appendix A.6", "The trade-off curves implied by ADP, GDP, RDP and zCDP guarantees.")
add_statement(
    "gomez2025:prop6.1", "Proposition 6.1", "Any eps-DP mechanism is mu-GDP with mu = -2 Phi^-1(1/(e^eps + 1))."
)
add_statement("gomez2025:prop6.2", "Proposition 6.2", "An (eps, delta) guarantee with delta > 0 implies no finite mu.")
add_statement(
    "dong2022:thm2.4",
    "Theorem 2.4 of Gomez et al.; Proposition 2.13 of Dong et al.",
    "Profile and trade-off curve determine each other by convex conjugation.",
)
add_statement("dong2022:cor2.13", "Corollary 2.13", "mu-GDP is equivalent to (eps, delta_mu(eps))-DP at every eps.")
add_statement("dong2022:thm3.2", "Theorem 3.2", "Composition of f-DP mechanisms is the tensor product of their curves.")
add_statement("dong2022:cor3.3", "Corollary 3.3", "Gaussian mechanisms compose to mu = sqrt(sum mu_i^2).")
add_statement("dong2022:thm4.2", "Theorem 4.2", "Poisson subsampling of a trade-off curve.")
add_statement(
    "dong2022:clt",
    "Theorem 5.2 / Bu et al. 2020",
    "Asymptotic mu = q sqrt(T (e^(1/sigma^2) - 1)) of noisy SGD; not a bound.",
)
add_statement(
    "kahane1985:convexity",
    "Convexity inequality",
    "Convex functions of sums of Gaussian exponentials grow in expectation with every covariance.",
)
add_statement("zhu2022:thm10", "Theorem 10", "Adaptive composition is dominated by the product of dominating pairs.")
add_statement("zhu2022:thm11", "Theorem 11", "Dominating pairs of Poisson subsampling under add and remove.")
add_statement("doroshenko2022:ctd", "Section 4", "Connect-the-dots: the tightest law on given nodes that dominates.")
add_statement(
    "chua2024:prop3.1", "Proposition 3.1", "delta_D(eps) of deterministic batches, one epoch, in closed form."
)
