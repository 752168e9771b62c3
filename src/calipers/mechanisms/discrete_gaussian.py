"""The discrete Gaussian mechanism (Canonne, Kamath, Steinke 2020), as used by the 2020 US Census.

Integer noise with P(k) proportional to exp(-k^2 / (2 sigma^2)) on an integer query of sensitivity s.
The pair is Q(k) against P(k) = Q(k - s), so log L = (2 k s - s^2)/(2 sigma^2): all ratios lie on the
lattice s/(2 sigma^2) Z (s^2 k/..., an odd or even multiple), and a product of equal factors rounds
nothing. Atoms far out are charged (UPPER: to mass at infinity and zero) or never rejected (LOWER).

With a large sigma there are millions of atoms, which are taken together in cells. The sum over the atoms of a cell is
computed by Gauss's rule for sums over 0 .. w - 1 (the nodes are roots of the discrete Chebyshev polynomial of degree m,
whose recurrence has b_n = n^2 (w^2 - n^2)/(4 (4 n^2 - 1))): exact for polynomials of degree 2m - 1, and since b_n is at
most what it is for Gauss's rule on an interval of length w, so is the error. With a = slope times half width at most
9 that is e^-32 for 16 nodes (`calipers.pld.division.folded`), and far less for 24, a factor that is nearly linear
across the cell included.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import COUNT, Domain
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import PrivacyLossPmf
from calipers.pld.core.source import TwoSidedPair

SIGMA = Domain(0.05, 1e5)
_MOST_ATOMS = 2000.0
"""Above this sigma atoms are taken together in cells."""
_RULE, _STEEPEST = 24, 9.0
"""Nodes of the rule for sums, and the largest slope times half width of a cell."""


@implements("canonne2020:def1")
@dataclass(frozen=True)
class DiscreteGaussian(TwoSidedPair):
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
    def span(self) -> float | None:  # type: ignore[override]
        """Every log ratio is a multiple of s/(2 sigma^2); None where the atoms are too many to be kept apart."""
        return self.sensitivity / (2.0 * self.sigma**2) if self.sigma <= _MOST_ATOMS else None

    def upper(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The atoms, or cells of them split onto their ends; what is cut off is charged."""
        return self._cut(Side.UPPER, resolution, log_tail)

    def lower(self, resolution: float = 0.05, log_tail: float = -40.0) -> PrivacyLossPmf:
        """The atoms, or cells of them observed as one."""
        return self._cut(Side.LOWER, resolution, log_tail)

    def _cut(self, side: Side, resolution: float, log_tail: float) -> PrivacyLossPmf:
        """The atoms, cut where the remaining mass is below e^log_tail.

        With a large sigma there are too many: then cells of about `resolution` sigma are split onto their ends (UPPER),
        or observed as one (LOWER).
        """
        variance, shift = self.sigma**2, self.sensitivity
        reach = math.ceil(self.sigma * math.sqrt(-2.0 * log_tail + 4.0)) + 2
        # P(|K| > reach) <= 2 exp(-reach^2/(2 sigma^2)): the discrete Gaussian is sub-Gaussian (Canonne et al.).
        beyond = 2.0 * math.exp(-0.5 * (reach / self.sigma) ** 2) if side is Side.UPPER else 0.0
        if self.span is not None:
            k = np.arange(2 * reach + shift + 1 + (side is Side.UPPER), dtype=np.float64) - float(reach)
            log_q, ratio = self._log_q(k), (2.0 * k - shift) * (shift / (2.0 * variance))
            log_p = log_q + ratio
        else:
            steep = 2.0 * _STEEPEST * variance / (reach + shift)
            width = max(1, math.floor(min(min(resolution, 0.25) * self.sigma, steep)))
            first = np.arange(math.ceil((2 * reach + shift + 1) / width), dtype=np.float64) * width - reach
            ratio, log_p, log_q = (self._split if side is Side.UPPER else self._merged)(first, width)
        return PrivacyLossPmf(
            ratio,
            log_p,
            log_q,
            side,
            p_inf=beyond,
            q_zero=beyond,
            mass_error=1e-13 + 1e-15 * float(np.max(np.abs(log_q))),
            shift_error=4e-16 * float(np.max(np.abs(ratio))),
        )

    def _log_q(self, k: FloatArray) -> FloatArray:
        return np.asarray(-0.5 * (k / self.sigma) ** 2 - _log_norm(self.sigma))

    def _split(self, first: FloatArray, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Every atom split onto the first atoms of its cell and of the next, P-mass and Q-mass kept."""
        offset, weight = _rule_for_sums(width)
        ends = np.append(first, first[-1] + width)
        slope = self.sensitivity / self.sigma**2
        nodes = (ends - 0.5 * self.sensitivity) * slope
        share = np.expm1(offset * slope) / math.expm1(width * slope)
        log_q = self._log_q(first[:, None] + offset)
        log_down, log_up = (_log_sums(log_q, weight * part) for part in (1.0 - share, share))
        masses = np.logaddexp(np.append(log_down, self._log_q(ends[-1:])), np.append(-np.inf, log_up))
        return nodes, masses + nodes, masses

    def _merged(self, first: FloatArray, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cells of `width` atoms as one observation each."""
        offset, weight = _rule_for_sums(width)
        k = first[:, None] + offset
        log_q, log_p = (_log_sums(self._log_q(place), weight) for place in (k, k - self.sensitivity))
        return log_p - log_q, log_p, log_q

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


def _log_sums(logs: FloatArray, weight: FloatArray) -> FloatArray:
    """log of the weighted sum of exp(logs) in every row."""
    peak = logs.max(axis=1)
    return np.asarray(peak + np.log(np.exp(logs - peak[:, None]) @ weight))


@functools.lru_cache(maxsize=32)
def _rule_for_sums(width: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights whose weighted sum is that over 0 .. width - 1 for polynomials of degree below 2 `_RULE`."""
    if width <= _RULE:
        return np.arange(width, dtype=np.float64), np.ones(width)
    n = np.arange(1.0, _RULE)
    off_diagonal = np.sqrt(n * n * (float(width) ** 2 - n * n) / (4.0 * (4.0 * n * n - 1.0)))
    # Symmetric around the middle of the cell, which is added last: nodes keep their digits.
    nodes, vectors = np.linalg.eigh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    return nodes + 0.5 * (width - 1.0), width * vectors[0] ** 2
