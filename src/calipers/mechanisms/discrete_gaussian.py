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
from calipers.laws.core.law import Law
from calipers.laws.core.source import LawSource
from calipers.numerics.types import FloatArray

SIGMA = Domain(0.05, 1e5)
_MOST_ATOMS = 2000.0
"""Above this sigma atoms are taken together in cells."""

add_statement("canonne2020:def1", "Definition 1", "The discrete Gaussian on the integers.")
add_statement(
    "canonne2020:prop5", "Proposition 5", "Its Renyi divergence is at most that of the Gaussian, t s^2/(2 sigma^2)."
)


@implements("canonne2020:def1")
@dataclass(frozen=True)
class DiscreteGaussian(LawSource):
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
    def words(self) -> str:
        """The mechanism in words."""
        return f"discrete Gaussian, sigma = {self.sigma:g}, sensitivity {self.sensitivity}"

    @property
    def span(self) -> float | None:
        """Every log ratio is a multiple of s/(2 sigma^2); None where the atoms are too many to be kept apart."""
        return self.sensitivity / (2.0 * self.sigma**2) if self.sigma <= _MOST_ATOMS else None

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The atoms, or cells of them split onto their ends; what is cut off is charged."""
        return self._cut(Side.UPPER, resolution, log_tail)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> Law:
        """The atoms, or cells of them observed as one."""
        return self._cut(Side.LOWER, resolution, log_tail)

    def _cut(self, side: Side, resolution: float, log_tail: float) -> Law:
        """The atoms, cut where the remaining mass is below e^log_tail.

        With a large sigma there are too many: then cells of about `resolution` sigma are split onto their ends (UPPER),
        or observed as one (LOWER).
        """
        variance, shift = self.sigma**2, self.sensitivity
        reach = math.ceil(self.sigma * math.sqrt(-2.0 * log_tail + 4.0)) + 2
        width = 1 if self.span is not None else max(1, math.floor(min(resolution, 0.25) * self.sigma))
        cells = math.ceil((2 * reach + shift + 1) / width)
        k = np.arange(cells * width + (side is Side.UPPER), dtype=np.float64) - float(reach)
        # P(|K| > reach) <= 2 exp(-reach^2/(2 sigma^2)): the discrete Gaussian is sub-Gaussian (Canonne et al.).
        beyond = 2.0 * math.exp(-0.5 * (reach / self.sigma) ** 2)
        log_q = -0.5 * k * k / variance - _log_norm(self.sigma)
        ratio = (2.0 * k - shift) * (shift / (2.0 * variance))
        charged = beyond if side is Side.UPPER else 0.0
        if width > 1:
            ratio, log_p, log_q = (_split if side is Side.UPPER else _merged)(ratio, log_q, width)
        else:
            log_p = log_q + ratio
        return Law(
            ratio,
            log_p,
            log_q,
            side,
            p_inf=charged,
            q_zero=charged,
            mass_error=1e-13 + 1e-15 * width,
            shift_error=4e-16 * float(np.max(np.abs(ratio))),
        )

    @implements("canonne2020:prop5")
    def log_moment_bound(self, order: float, reverse: bool) -> float:
        """At least log E_Q[L^t] for t >= 1: t (t - 1) s^2 / (2 sigma^2)."""
        return order * (order - 1.0) * self.sensitivity**2 / (2.0 * self.sigma**2)


def _log_norm(sigma: float) -> float:
    """log of the sum of exp(-k^2/(2 sigma^2)) over all integers."""
    if sigma > 10.0:  # Poisson summation: sigma sqrt(2 pi) (1 + 2 exp(-2 pi^2 sigma^2) + ...)
        return math.log(sigma) + 0.5 * math.log(2.0 * math.pi)
    whole = np.arange(-40 * math.ceil(sigma) - 40, 40 * math.ceil(sigma) + 41, dtype=np.float64)
    return math.log(float(np.sum(np.exp(-0.5 * whole * whole / sigma**2))))


def _split(ratio: FloatArray, log_q: FloatArray, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Every atom split onto the first atoms of its cell and of the next, P-mass and Q-mass kept: ratios and masses."""
    nodes = ratio[::width]
    cells = log_q[:-1].reshape(-1, width)
    peak = cells.max(axis=1)
    mass = np.exp(cells - peak[:, None])
    up = np.expm1(ratio[:-1].reshape(-1, width) - nodes[:-1, None]) / np.expm1(np.diff(nodes))[:, None]
    log_down, log_up = (np.log((mass * share).sum(axis=1)) + peak for share in (1.0 - up, up))
    masses = np.logaddexp(np.append(log_down, log_q[-1]), np.append(-np.inf, log_up))
    return nodes, masses + nodes, masses


def _merged(ratio: FloatArray, log_q: FloatArray, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Cells of `width` atoms as one observation each: ratios and masses."""
    sums = []
    for logs in (log_q + ratio, log_q):
        cells = logs.reshape(-1, width)
        peak = cells.max(axis=1)
        sums.append(peak + np.log(np.exp(cells - peak[:, None]).sum(axis=1)))
    return sums[0] - sums[1], sums[0], sums[1]
