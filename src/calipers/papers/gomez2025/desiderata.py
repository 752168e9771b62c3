"""Table 1: which ways to report privacy are concise, ordered and accurate.

The paper argues for its marks in words. Here each mark is a number held against a stated criterion:

- *Concise* (D1): at most two numbers are reported. We count them; a curve or a profile counts as infinitely many.
- *Ordered* (D2): of two reports with the same number of parameters, the one with the smaller budget is at least as
  private at every alpha. For a one-parameter family that is a line of proof (each curve falls as its parameter grows)
  and we look for a violation over a grid of parameters and alpha. For the others one pair of incomparable
  reports refutes it; the Blackwell order of the two stored curves is decided exactly.
- *Accurate* (D3): the regret is at most 0.01 on every run of Tables 4 and 5. The regrets are upper bounds, except that
  those above 0.01 by a wide margin are what refutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from calipers.bracket import Side
from calipers.curves import adp_tradeoff, compare, gaussian_curve, rdp_tradeoff, zcdp_tradeoff
from calipers.numerics.normal import gaussian_tradeoff
from calipers.numerics.types import FloatArray
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.representations import dpsgd_regrets
from calipers.papers.gomez2025.settings import laplace_curves, run_of
from calipers.papers.items import ItemProgress, Published, watched
from calipers.papers.sheets import Computed, Sheet

_ALPHA = np.concatenate((np.geomspace(1e-9, 0.1, 60), np.linspace(0.1, 1.0, 60)))
_BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_NUMBERS = {"ε-DP": 1, "(ε, δ)-DP": 2, "ρ-zCDP": 1, "μ-GDP": 1}
_REGRET = {
    "ε-DP": "pure",
    "(ε, δ)-DP": "epsilon_delta",
    "(ε, δ(ε)) or f": "curve",
    "(t, ε(t))-RDP": "rdp_optimal",
    "ρ-zCDP": "zcdp_on_grid",
    "μ-GDP": "gdp",
}
"""Which of a run's regrets is that of each representation."""


def _violations(family: Callable[[float], FloatArray]) -> int:
    """How many neighboring budgets of a one-parameter family are out of order somewhere on the grid of alpha."""
    curves = [family(budget) for budget in _BUDGETS]
    return sum(bool(np.any(larger > smaller)) for smaller, larger in pairwise(curves))


def order_violations() -> dict[str, int]:
    """For each representation, how many pairs of reports were found that its budget orders wrongly."""
    witnesses = {
        "(ε, δ)-DP": (adp_tradeoff(6.0, 1e-5), adp_tradeoff(8.0, 1e-9)),
        "(ε, δ(ε)) or f": (laplace_curves().guarantee, gaussian_curve(0.9, Side.UPPER)),
        "(t, ε(t))-RDP": (rdp_tradeoff(2.0, 0.5), rdp_tradeoff(20.0, 1.0)),
    }
    found = {name: int(compare(*pair) == "incomparable") for name, pair in witnesses.items()}
    found["ε-DP"] = _violations(lambda epsilon: adp_tradeoff(epsilon)(_ALPHA))
    found["ρ-zCDP"] = _violations(lambda rho: zcdp_tradeoff(rho)(_ALPHA))
    found["μ-GDP"] = _violations(lambda mu: gaussian_tradeoff(mu, _ALPHA))
    return found


def _marked(mark: bool, word: str, yes: tuple[float, float], no: tuple[float, float]) -> Published:
    return Published(f"✓ {word}", *yes) if mark else Published(f"✗ {word}", *no)


def table_1(progress: ItemProgress) -> Computed:
    """The eighteen marks, each from a number."""
    table, marks, limit = Sheet("regrets"), Sheet("marks", listed=False), published.ACCURATE
    for run in watched(dict.fromkeys(run_of(c) for c in (*published.TABLE_4, *published.TABLE_5)), progress):
        found = dpsgd_regrets(run)
        of_each = {name: found[field] for name, field in _REGRET.items()}
        more = {"rdp_proposition_12": found["rdp_as_published"], "zcdp_all_orders": found["zcdp"]}
        table.add(**{"noise_multiplier": run.noise_multiplier, "steps": run.total_steps}, **of_each, **more)
    violations = order_violations()
    for name, (concise, ordered, accurate) in published.TABLE_1.items():
        worst = max(table.column(name))
        marks.add(name=name, numbers=float(_NUMBERS.get(name, math.inf)), wrong=float(violations[name]), worst=worst)
        marks.unlisted(concise=_marked(concise, "concise", (1, 2), (3, math.inf)))
        marks.unlisted(ordered=_marked(ordered, "ordered", (0, 0), (1, math.inf)))
        marks.unlisted(accurate=_marked(accurate, "accurate", (0, limit), (limit, math.inf)))
    return Computed([table, marks])
