"""How many runs are tried before the best is released, and what that does to a profile and to a test.

Private selection (Papernot and Steinke 2022, after Liu and Talwar 2019): draw a number K of trials, run the mechanism K
times, release the output with the best score. K follows a truncated negative binomial law of shape eta > -1 (geometric
for 1, logarithmic for 0) with parameter gamma, or a Poisson law (nothing is released if K = 0). Let f be its generating
function, m = f'(1) its mean.

**Above.** *Lemma.* If one trial has profile D(eps), in both orders, selection has at most m D(eps - r) at eps >= r,

    negative binomial: r = (eta + 1) log max(e^a, 1 + (1/gamma - 1) D(a)) for any a >= 0,     Poisson: r = m D(0).

*Proof.* Break ties at random, let F, G be the distribution functions of the score under P and Q. The selected output
has densities p f'(F) and q f'(G). For the negative binomial law f'(x) is proportional to (1 - (1 - gamma) x)^-(eta+1),
so f'(F)/f'(G) is the power eta + 1 of (gamma + (1 - gamma)(1 - G)) / (gamma + (1 - gamma)(1 - F)); as
1 - G <= e^a (1 - F) + D(a), this mediant is at most the maximum above. For the Poisson law f'(F)/f'(G) =
e^(m (F - G)) <= e^(m D(0)). So f'(F) <= e^r f'(G), and for any set S

    integral over S of p f'(F) - e^eps q f'(G)  <=  integral over S of f'(F) (p - e^(eps - r) q)  <=  m D(eps - r).

The bound of Papernot and Steinke on Renyi divergences (their Theorems 2 and 6) is used beside it.

**Below.** The score may be anything, so let it be the likelihood ratio of one trial: a test that claims the record when
the score exceeds a threshold, with error rate alpha and power b on one trial, has 1 - f(1 - alpha) and 1 - f(1 - b) on
the best of K. If the score is the reciprocal, f(alpha) and f(b). Between both lie orders that are turned: outcomes that
a test A (error rate a, power c) does not claim come first, what is claimed is a part S of A (alpha, b), and the rest of
A comes last. The released outcome is in S with probability f(a) - f(a - alpha) and f(c) - f(c - b): what is left out of
S has more mass under P, which lifts f'(F) above f'(G). A = everything and A = S are the two scores above.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from calipers.domains import Domain, choice
from calipers.errors import InputError
from calipers.numerics.elementary import halved_ratio
from calipers.numerics.types import FloatArray

MEAN = Domain(1.0, 1e6)
SHAPE = Domain(-1.0, 1000.0, low_open=True)
KINDS = ("geometric", "logarithmic", "poisson", "negative-binomial")
_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}
_ROUNDING = 1e-11
"""Relative error of gamma (found by bisection) and of what is computed from it, charged to the right side."""


@dataclass(frozen=True)
class Trials:
    """The law of the number of trials: its mean, and its shape (infinite for Poisson)."""

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        MEAN.check("mean", self.mean, "It is the mean number of runs that are tried.")
        if self.shape != math.inf:
            SHAPE.check("shape", self.shape, "1 is geometric, 0 logarithmic, infinity Poisson.")

    @classmethod
    def of(cls, kind: str, mean: float, shape: float | None = None) -> Trials:
        """The law with the given name; a shape belongs to negative-binomial only."""
        choice("trials", kind, KINDS)
        if (kind == "negative-binomial") != (shape is not None):
            raise InputError("trials='negative-binomial' needs a shape, and only that one has it.")
        return cls(mean, _SHAPES[kind] if shape is None else shape)

    @property
    def poisson(self) -> bool:
        """Whether the number of trials is Poisson."""
        return self.shape == math.inf

    @property
    def words(self) -> str:
        """The law in words."""
        names = {value: name for name, value in _SHAPES.items()}
        kind = names.get(self.shape, f"negative binomial (shape {self.shape:g})")
        return f"the best of a {kind} number of trials with mean {self.mean:.12g}"

    @property
    def single(self) -> bool:
        """Whether exactly one trial is run."""
        return self.mean == 1.0 and self.shape != math.inf

    @functools.cached_property
    def gamma(self) -> float:
        """The parameter of the negative binomial law that gives the mean."""
        low, high = 1e-18, 1.0  # the mean falls from infinity to 1
        if self._mean(low) < self.mean:
            raise InputError(f"No negative binomial law of shape {self.shape:g} has mean {self.mean:g}.")
        return halved_ratio(low, high, lambda at: self._mean(at) > self.mean, 200)[0]

    def _mean(self, gamma: float) -> float:
        if gamma == 1.0:
            return 1.0
        if self.shape == 0.0:
            return math.expm1(-math.log(gamma)) / -math.log(gamma)
        return self.shape * (1.0 - gamma) / (gamma * -math.expm1(self.shape * math.log(gamma)))

    def missed(self, y: FloatArray) -> FloatArray:
        """1 - f(1 - y), the chance that at least one of K trials does what one does with chance y; accurate near 0."""
        return self.within(np.zeros_like(y), y)

    def within(self, y: FloatArray | float, mass: FloatArray) -> FloatArray:
        """f(1 - y) - f(1 - y - mass): the best of K trials is one of a set of this mass, below outcomes of mass y."""
        if self.shape == math.inf:
            return np.exp(-self.mean * y) * -np.expm1(-self.mean * mass)
        if self.single:
            return np.asarray(mass, dtype=np.float64)
        # f(x) = ((1 - (1-gamma) x)^-shape - 1)/(gamma^-shape - 1), and 1 - (1 - gamma)(1 - y) = gamma (1 + odds y).
        gamma, shape = self.gamma, self.shape
        odds = 1.0 / gamma - 1.0
        above, added = np.log1p(odds * y), np.log1p(odds * mass / (1.0 + odds * y))
        if shape == 0.0:
            return added / -math.log(gamma)
        return np.exp(-shape * above) * np.expm1(-shape * added) / math.expm1(shape * math.log(gamma))

    def log_shift(self, delta_at: float, at: float, total_variation: float) -> float:
        """r of the lemma, for the choice a = `at` with D(a) <= delta_at and D(0) <= total_variation."""
        if self.single:
            return 0.0
        if self.shape == math.inf:
            return self.mean * total_variation * (1.0 + _ROUNDING)
        grown = math.log1p((1.0 / (self.gamma * (1.0 - _ROUNDING)) - 1.0) * delta_at)
        return (self.shape + 1.0) * max(at, grown) * (1.0 + _ROUNDING)

    def renyi(self, order: float, base: FloatArray, orders: FloatArray, best: float) -> float:
        """At least the divergence of order `order`, given those of one trial at `orders`, `order` among them.

        `best` is, for Poisson, D(log(1 + 1/(order - 1))) of one trial from above.
        """
        own = float(base[orders == order][0])
        added = math.log(self.mean) / (order - 1.0)
        if self.shape == math.inf:
            return (own + self.mean * best + added) * (1.0 + _ROUNDING)
        gamma = self.gamma * (1.0 - _ROUNDING)
        hidden = float(np.min((1.0 - 1.0 / orders) * base - math.log(gamma) / orders))
        return (own + added + (1.0 + self.shape) * hidden) * (1.0 + _ROUNDING)
