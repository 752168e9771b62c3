"""The discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020), as used by the 2020 US Census.

Integer noise with P(k) proportional to exp(-k^2 / (2 sigma^2)) on an integer query of sensitivity s.
The pair is Q(k) against P(k) = Q(k - s), so log L = (2 k s - s^2)/(2 sigma^2): all ratios lie on the
lattice s/(2 sigma^2) Z (s^2 k/..., an odd or even multiple), and a product of equal factors rounds
nothing. Atoms far out are charged (UPPER: to mass at infinity and zero) or never rejected (LOWER).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import add_statement, implements
from calipers.domains import COUNT, Domain
from calipers.laws.law import Law

SIGMA = Domain(0.05, 1e5)

add_statement("canonne2020:def1", "Definition 1", "The discrete Gaussian on the integers.")
add_statement(
    "canonne2020:prop5", "Proposition 5", "Its Renyi divergence is at most that of the Gaussian, t s^2/(2 sigma^2)."
)


@implements("canonne2020:def1")
@dataclass(frozen=True)
class DiscreteGaussian:
    """Integer Gaussian noise of scale sigma on an integer query of the given sensitivity."""

    sigma: float
    sensitivity: int = 1
    symmetric: bool = True
    p_inf: ClassVar[float] = 0.0
    q_zero: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        SIGMA.check("sigma", self.sigma)
        COUNT.check("sensitivity", self.sensitivity)

    @property
    def name(self) -> str:
        """The mechanism in words."""
        return f"discrete Gaussian, sigma = {self.sigma:g}, sensitivity {self.sensitivity}"

    @property
    def span(self) -> float:
        """Every log ratio is a multiple of s/(2 sigma^2)."""
        return self.sensitivity / (2.0 * self.sigma**2)

    def law(self, side: Side, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The atoms, cut where the remaining mass is below e^log_tail; `resolution` is not needed."""
        del resolution
        variance, shift = self.sigma**2, self.sensitivity
        reach = math.ceil(self.sigma * math.sqrt(-2.0 * log_tail + 4.0)) + 2
        k = np.arange(-reach, shift + reach + 1, dtype=np.float64)
        # P(|K| > reach) <= 2 exp(-reach^2/(2 sigma^2)): the discrete Gaussian is sub-Gaussian (Canonne et al.).
        beyond = 2.0 * math.exp(-0.5 * (reach / self.sigma) ** 2)
        whole = np.arange(-40 * math.ceil(self.sigma) - 40, 40 * math.ceil(self.sigma) + 41, dtype=np.float64)
        log_norm = math.log(float(np.sum(np.exp(-0.5 * whole * whole / variance))))
        log_q = -0.5 * k * k / variance - log_norm
        ratio = (2.0 * k - shift) * (shift / (2.0 * variance))
        charged = beyond if side is Side.UPPER else 0.0
        return Law(
            ratio,
            log_q + ratio,
            log_q,
            side,
            p_inf=charged,
            q_zero=charged,
            mass_error=1e-13,
            shift_error=4e-16 * float(np.max(np.abs(ratio))),
        )

    @implements("canonne2020:prop5")
    def log_moment_bound(self, order: float, reverse: bool = False) -> float:
        """At least log E_Q[L^t] for t >= 1: t (t - 1) s^2 / (2 sigma^2)."""
        return order * (order - 1.0) * self.sensitivity**2 / (2.0 * self.sigma**2)
