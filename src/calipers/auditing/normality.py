"""The normality-test distinguisher of Wang et al. (2026), Section 4 and Algorithm 1.

Given the batch B and whether the record is in it (i = 1: no, i = 2: yes), the output is Gaussian under both datasets:
P_B under D, Q_B^i under D'. The map Proc that subtracts the mean and divides by the deviation turns the right one
into a vector of independent standard normal numbers. So the distinguisher A_B^i asks of both standardised outputs
whether they look standard normal, and votes when exactly one does. B is not observed; all A_B^i vote and A_*
aggregates.

**What the paper leaves open, and what stands here.**

- The test. `test="variance"` (default) refers |z|^2 to the chi-square distribution with n degrees, two-sided; since the
  divisor changes the scale of all coordinates alike, this is the direction in which the hypotheses differ.
  `test="kolmogorov-smirnov"` refers the largest distance between the empirical distribution of the coordinates and Phi
  to Kolmogorov's limit distribution with Stephens' correction (sqrt(n) + 0.12 + 0.11/sqrt(n)) D. Both pass a vector
  when its p-value is at least `level`.
- The vote. The paper lets A_B^i toss a coin when both or neither pass. A coin only adds noise to the score; its mean,
  one half, stands in for it. (The text lets A_B^i say 1 for "only P passes", that is, for D; a score must be larger
  for D', so our votes are the other way round.)
- The aggregation. `aggregation="vote"` is the mean of all votes, each with the probability of its (B, i) under D'.
  `aggregation="best-fit"` takes the largest p-value over the batches on either side, and the score is log p_Q - log
  p_P: which dataset has a batch that explains the output better? It ignores `level`.

By Neyman and Pearson none of this can beat `LikelihoodRatio`. How far behind it is depends on the choices: for
"expected", N = 4, q = 0.05, n = 10, sigma = 10, where the largest TPR - FPR of any score is 0.376, it is about 0.02
with Kolmogorov-Smirnov votes, 0.19 with variance votes, 0.24 and 0.37 with best fit; for "realized", N = 4, q = 0.7,
n = 100 (0.284), best fit does worse than votes. It is here so that the paper's audits can be repeated. It needs full
vectors, and costs (batches) x (coordinates) for every output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from calipers.auditing.builtin import NoisySums
from calipers.auditing.mixtures import Mixture
from calipers.citations import implements
from calipers.domains import OPEN_UNIT, choice
from calipers.errors import InputError
from calipers.numerics.types import FloatArray, IntArray

TESTS = ("variance", "kolmogorov-smirnov")
AGGREGATIONS = ("vote", "best-fit")


def normal_distance(values: FloatArray) -> FloatArray:
    """The greatest distance between the distribution function of each row and that of N(0, 1)."""
    ordered = special.ndtr(np.sort(values, axis=-1))
    n = ordered.shape[-1]
    above = np.arange(1, n + 1) / n - ordered
    below = ordered - np.arange(n) / n
    return np.asarray(np.maximum(above.max(axis=-1), below.max(axis=-1)), dtype=np.float64)


def kolmogorov_smirnov(values: FloatArray) -> FloatArray:
    """p-values that each row of `values` comes from independent standard normal numbers.

    An estimate: Kolmogorov's limit distribution with Stephens' (1970) correction for finite n, accurate to about 0.02
    at n = 30. A score needs no more; no bound rests on it.
    """
    root = np.sqrt(values.shape[-1])
    return np.asarray(special.kolmogorov((root + 0.12 + 0.11 / root) * normal_distance(values)), dtype=np.float64)


def variance_test(values: FloatArray) -> FloatArray:
    """Two-sided p-values of |row|^2 under the chi-square distribution with as many degrees as there are columns."""
    half = 0.5 * np.einsum("...n,...n->...", values, values)
    degrees = 0.5 * values.shape[-1]
    lower, upper = special.gammainc(degrees, half), special.gammaincc(degrees, half)
    return np.asarray(2.0 * np.minimum(lower, upper), dtype=np.float64)


@implements("wang2026:alg1")
@dataclass(frozen=True)
class NormalityTest:
    """Algorithm 1 of Wang et al. against a built-in target with full vectors; see the module for what was chosen.

    Scores of several rounds are added. Post-condition: with "vote" the score of one round lies in [0, 1], larger where
    fewer of the batches of D than of those of D' make the output look standard normal.
    """

    target: NoisySums
    test: str = "variance"
    aggregation: str = "vote"
    level: float = 0.05

    def __post_init__(self) -> None:
        choice("test", self.test, TESTS)
        choice("aggregation", self.aggregation, AGGREGATIONS)
        OPEN_UNIT.check("level", self.level)
        if not self.target.vectors:
            raise InputError("The normality test looks at coordinates; build the target with vectors=True.")
        if self.target.rounds != 1 or self.target.adjacency != "add-remove":
            raise InputError(
                "The normality test is defined for Poisson batches under add-remove adjacency, got "
                f"sampler={self.target.sampler!r}, adjacency={self.target.adjacency!r}; use the likelihood ratio."
            )

    @property
    def name(self) -> str:
        """Test and aggregation."""
        return f"normality test ({self.test}, {self.aggregation})"

    def identity(self) -> dict[str, object]:
        """Everything chosen."""
        chosen = {"test": self.test, "aggregation": self.aggregation, "level": self.level}
        return {"distinguisher": "normality", **chosen, "of": self.target.identity()}

    @cached_property
    def _explanations(self) -> tuple[Mixture, Mixture, IntArray]:
        """The batches of D, those of D' with the record's inclusion, and to which of D each of the latter belongs."""
        absent, present = Mixture(self.target, False), Mixture(self.target, True)
        batches = {float(size): row for row, size in enumerate(absent.crowd[:, 0])}
        return absent, present, np.array([batches[float(size)] for size in present.crowd[:, 0]])

    def scores(self, outputs: FloatArray) -> FloatArray:
        """One score for each run, the sum over its rounds."""
        found = np.asarray(outputs, dtype=np.float64)
        if found.ndim != 3 or found.shape[2] != self.target.dimension:
            raise InputError(f"Expected outputs of shape (count, rounds, {self.target.dimension}), got {found.shape}.")
        absent, present, partner = self._explanations
        fits_absent, fits_present = (
            np.stack([self._p_value(found, *row) for row in zip(side.sums[:, 0], side.divisors[:, 0], strict=True)])
            for side in (absent, present)
        )
        if self.aggregation == "best-fit":
            tiny = np.finfo(np.float64).tiny
            best = [np.log(np.maximum(fits.max(axis=0), tiny)) for fits in (fits_present, fits_absent)]
            return np.asarray((best[0] - best[1]).sum(axis=1), dtype=np.float64)
        passes_absent = (fits_absent >= self.level).astype(np.float64)[partner]
        passes_present = (fits_present >= self.level).astype(np.float64)
        votes = 0.5 + 0.5 * (passes_present - passes_absent)
        return np.asarray(np.einsum("j,jcr->c", np.exp(present.log_weight), votes), dtype=np.float64)

    def _p_value(self, outputs: FloatArray, total: float, divisor: float) -> FloatArray:
        """The test's p-value that the outputs are (total e + sigma Z)/divisor."""
        standardized = outputs * (divisor / self.target.noise_multiplier)
        standardized[..., 0] -= total / self.target.noise_multiplier
        return variance_test(standardized) if self.test == "variance" else kolmogorov_smirnov(standardized)
