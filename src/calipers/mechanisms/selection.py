"""How many runs are tried before the best is released, and what that does to a profile and to a test.

Private selection (Papernot and Steinke 2022, after Liu and Talwar 2019): draw a number K of trials, run the mechanism K
times, release the output with the best score. K follows a truncated negative binomial PLD of shape eta > -1 (geometric
for 1, logarithmic for 0) with parameter gamma, or a Poisson PLD (nothing is released if K = 0). Let f be its generating
function, m = f'(1) its mean.

**Above.** *Lemma.* If one trial has profile D(eps), in both orders, selection has at most m D(eps - r) at eps >= r,

    negative binomial: r = (eta + 1) log max(e^a, 1 + (1/gamma - 1) D(a)) for any a >= 0,     Poisson: r = m D(0).

*Proof.* Break ties at random, let F, G be the distribution functions of the score under P and Q. The selected output
has densities p f'(F) and q f'(G). For the negative binomial PLD f'(x) is proportional to (1 - (1 - gamma) x)^-(eta+1),
so f'(F)/f'(G) is the power eta + 1 of (gamma + (1 - gamma)(1 - G)) / (gamma + (1 - gamma)(1 - F)); as
1 - G <= e^a (1 - F) + D(a), this mediant is at most the maximum above. For the Poisson PLD f'(F)/f'(G) =
e^(m (F - G)) <= e^(m D(0)). So f'(F) <= e^r f'(G), and for any set S

    integral over S of p f'(F) - e^eps q f'(G)  <=  integral over S of f'(F) (p - e^(eps - r) q)  <=  m D(eps - r).

**Above, a mean of profiles.** *Lemma.* For every a > 0 and eps >= 0 selection has at most m E[D(log R)], where the odds
R are drawn: with V in [0, 1], P(V <= v) = v^c, and B = 1 + (1/gamma - 1) D(a) < e^a,

    negative binomial: c = eta + 1, R = e^(eps + a) (e^a - (e^a - B) V)^-(c + 1);
    Poisson:           c = 1/(e^a - 1), R = e^(eps - m D(a) + a) V.

*Proof.* Let u = 1 - F and v = 1 - G, so that v <= e^a u + D(a); f' increases, and so does its formula below 0. For any
set S of outputs of a trial (where none was run, e^eps >= 1 of Q is no less than P)

    integral over S of p f'(1 - u) - e^eps q f'(1 - v)  <=  m E_Q[h(L)],
    m h(L) = sup over u >= 0 of L f'(1 - u) - e^eps f'(1 - e^a u - D(a)).

As a supremum of lines h is convex. h(0) = 0 and the slope, that of the best line, rises from 0 to 1: it is the
distribution function of some R >= 0, and h(L) = E[(L - R)+]. For the negative binomial PLD let w = (B + (1/gamma - 1)
e^a u) / (1 + (1/gamma - 1) u), between B and e^a. The best u has w = (e^(eps + a)/L)^(1/(c + 1)), if that is between,
and the slope is ((e^a - w)/(e^a - B))^c; for larger L it is u = 0, for smaller ones h = 0. For the Poisson PLD h(L) is
(1 - e^-a) e^(-c x) L at L = e^(eps - m D(a) + a - x), x >= 0, and L - e^(eps - m D(a)) above. With B = e^a, or with a
-> 0 under the Poisson PLD, this is the lemma before.

Neither lemma is above what follows from the bounds of Papernot and Steinke on Renyi divergences (their Theorems 2 and
6), delta = (1 - 1/t)^(t-1) / t e^((t-1)(D_t' - eps)) with D_t' = D_t + log(m)/(t - 1) + r_t, D_t that of one trial.
Poisson: r_t is m D(a) at a = -log(1 - 1/t), and h(L) is at most the power of L that it is for small ones, whose mean is
that delta. Negative binomial: r_t = (eta + 1) min over s of (1 - 1/s) D_s - log(gamma)/s. Let a be this minimum. One
trial has D(a) <= e^((s-1)(D_s - a))/s = gamma e^a/s, and e^-a <= gamma^(1/s) <= 1 - (1 - gamma)/s. So 1 + (1/gamma - 1)
D(a) <= e^a, hence r <= r_t, and m D(eps - r) is at most that delta.

**Large deltas, Poisson.** m E_Q[h(L)] forgets that no mass exceeds 1, which the two-point inequality of a moment does
not. Let phi(x) = x^t up to some k, and its tangent beyond. Given u, m e^(-m v) phi(L e^(m (v - u))) increases with v,
because phi(x) < x phi'(x). At v = e^a u + D(a), a = -log(1 - 1/t), it is at most m e^((t-1) m D(a)) L^t and at most m t
k^(t-1) L, and its supremum over u is convex in L. So the selected pair has E_Q[phi(L)] <= M = e^-m + m e^((t-1) m D(a))
E_Q[L^t, L finite] + m t k^(t-1) P(L infinite), which may be computed with a pair that dominates one trial. By convexity
a test of selection with rates (alpha, b) has alpha phi(b/alpha) + (1 - alpha) phi((1 - b)/(1 - alpha)) <= M. If b <= k
alpha, that is what D_t = log(M)/(t - 1) asks of it. If not, t k^(t-1) b - (t - 1) k^t alpha <= M, so b - k alpha <=
M/(t k^(t-1)), and coins make a test with rates (alpha, k alpha) of it, which is one of the first kind. So the profile
is at most what that divergence implies, and M/(t k^(t-1)) more; with several orders, each with its k, the least k says
which tests are of the first kind for all.

**Near eps = 0.** Couple the trials one by one: what is released differs only where one of K trials does, so the total
variation distance is at most 1 - f(1 - D(0)).

**Below.** The score may be anything, so let it be the likelihood ratio of one trial: a test that claims the record when
the score exceeds a threshold, with error rate alpha and power b on one trial, has 1 - f(1 - alpha) and 1 - f(1 - b) on
the best of K. If the score is the reciprocal, f(alpha) and f(b). Better still is to rank outcomes of both extremes
first, interleaved (`calipers.measure.selection_order`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from calipers.domains import Domain, choice
from calipers.errors import InputError
from calipers.numerics.elementary import bisect_ratio
from calipers.numerics.types import FloatArray

MEAN = Domain(1.0, 1e6)
SHAPE = Domain(-1.0, 1000.0, low_open=True)
KINDS = ("geometric", "logarithmic", "poisson", "negative-binomial")
_LEAST_SHAPE = 1e-9
"""Closer to 0 the formulas lose their digits."""

_SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}
_ROUNDING = 1e-11
"""Relative error of gamma (found by bisection) and of what is computed from it, charged to the right side."""
_SLACK, _NEARLY = 1e-14, 1e-6
"""Rounding of sums of logs, a share of what is added up; and how near to e^a its log makes B as good as that."""


@dataclass(frozen=True)
class Trials:
    """The distribution of the number of trials: its mean, and its shape (infinite for Poisson)."""

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        MEAN.check("mean", self.mean, "It is the mean number of runs that are tried.")
        if self.shape != math.inf:
            SHAPE.check("shape", self.shape, "1 is geometric, 0 logarithmic, infinity Poisson.")
            if 0.0 < abs(self.shape) < _LEAST_SHAPE:
                near = f"at least {_LEAST_SHAPE:g} from it"
                raise InputError(f"Expected shape to be 0 (logarithmic) or {near}, got shape={self.shape:g}.")

    @classmethod
    def of(cls, kind: str, mean: float, shape: float | None = None) -> Trials:
        """The PLD with the given name; a shape belongs to negative-binomial only."""
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
        """The PLD in words."""
        names = {value: name for name, value in _SHAPES.items()}
        kind = names.get(self.shape, f"negative binomial (shape {self.shape:g})")
        return f"the best of a {kind} number of trials with mean {self.mean:.12g}"

    @property
    def single(self) -> bool:
        """Whether exactly one trial is run."""
        return self.mean == 1.0 and self.shape != math.inf

    @functools.cached_property
    def gamma(self) -> float:
        """The parameter of the negative binomial PLD that gives the mean."""
        low, high = 1e-18, 1.0  # the mean falls from infinity to 1
        if self._mean(low) < self.mean:
            raise InputError(f"No negative binomial distribution of shape {self.shape:g} has mean {self.mean:g}.")
        return bisect_ratio(low, high, lambda at: self._mean(at) > self.mean, 200)[0]

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

    def spread(self, log_ratio: FloatArray, at: float, delta_at: float, epsilon: float) -> FloatArray:
        """At least h(L)/L of the mean of profiles, for a = `at` with D(a) <= delta_at; by the lemma where B >= e^a."""
        shape = self.shape + 1.0
        if self.shape == math.inf:
            moved = self.mean * delta_at * (1.0 + _ROUNDING)
            below = epsilon - moved + at - log_ratio - _SLACK * (1.0 + epsilon + moved + np.abs(log_ratio))
            power = -math.expm1(-at) * np.exp(-np.maximum(below, 0.0) / math.expm1(at))
            return np.asarray(np.where(below > 0.0, power, -np.expm1(np.minimum(below - at, 0.0))))
        log_b = math.log1p((1.0 / (self.gamma * (1.0 - _ROUNDING)) - 1.0) * delta_at) * (1.0 + _ROUNDING)
        least = log_b - at * (1.0 - 1e-15)  # of log(w e^-a)
        if least > -_NEARLY:  # then the lemma before has the larger of both; a larger B is allowed
            least = max(least, 0.0)
        slack = _SLACK * (1.0 + epsilon + shape * at + np.abs(log_ratio))
        log_w = (epsilon - shape * at - log_ratio - slack) / (shape + 1.0)
        straight = -np.expm1(np.minimum((shape + 1.0) * log_w - shape * least, 0.0))
        if least >= 0.0:
            return np.asarray(straight)
        bent = -np.expm1(np.minimum(log_w, 0.0))
        return np.asarray(np.where(log_w < least, straight, bent * np.minimum(bent / -math.expm1(least), 1.0) ** shape))

    def moment(
        self, order: float, masses: FloatArray, log_ratio: FloatArray, beyond: float, near: float
    ) -> tuple[float, float]:
        """At least log(M)/(t - 1) of large deltas under the Poisson PLD, t = `order`, and M/(t k^(t-1)), for some k.

        `masses` are the P-masses of one trial at log ratios, `beyond` that at infinity; D(-log(1 - 1/t)) <= near.
        """
        logs = np.log(masses) + (order - 1.0) * log_ratio
        peak = float(logs.max())
        whole = (
            peak + math.log(float(np.sum(np.exp(logs - peak)))) + math.log(self.mean) + (order - 1.0) * self.mean * near
        )
        whole = float(np.logaddexp(whole, -self.mean))
        # log k^(t-1) such that what lies beyond adds a thousandth; k >= 1, the most that what is not claimed has.
        steep = whole + min(math.log(1e-3 / (self.mean * order * max(beyond, 1e-300))), 60.0)
        whole = (whole + 1e-3) * (1.0 + _ROUNDING) + _ROUNDING
        return whole / (order - 1.0), math.exp(whole - math.log(order) - steep) * (
            1.0 + _ROUNDING
        ) if steep >= 0.0 else 1.0

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
