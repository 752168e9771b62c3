"""What one round adds to a divergence when it may hide a record.

A record sits in one of M rounds, nobody knows which. Relative to a run in which it sits nowhere, round t contributes
the likelihood ratio A_t if it is there, and B_t if its neighbor (zeroed out, replaced) is there; so the divergence at
k is the expected positive part of a sum of terms X_t = A_t - k B_t, with

    A = exp(<a, z> - |a|^2/2),      B = exp(<b, z> - |b|^2/2),      z standard normal.

An adversary chooses the shifts a and b, adaptively, within bounds that depend on the sampler. The lemma of
docs/theory/shuffling.md (section 7) says which choice is worst: for thresholds c >= 0 of the stop-loss
transform E[(X - c)+] one pair of collinear shifts, for c <= 0 another one, and the two stop-loss transforms agree at c
= 0. So there is a variable X* that lies above every term in convex order: on (0, inf) it is distributed as A - k B with
the first shifts, on (-inf, 0) as A - k B with the second ones, and it is 0 with the probability that is left. It is an
increasing function of one standard normal z:

    X*(z) = e^(alpha z - alpha^2/2) - k e^(beta z - beta^2/2)        right of the point where that is 0,
    X*(z) = e^(alpha' u - alpha'^2/2) - k e^(beta' u - beta'^2/2)    with u = -z, left of the point where that is 0,

and 0 in between. (Where both branches belong to one pair of shifts there is nothing in between.)

| neighbor | sampler | right (alpha, beta) | left (alpha', beta') |
|---|---|---|---|
| replaced | balls-and-bins | (r, -r) | (-r, r) |
| zeroed out | shuffle, a record dropped: present against zeroed out | (2r, r) | (0, r) |
| zeroed out | the same: zeroed out against present | (r, 0) | (r, 2r) |
| replaced | shuffle, a record dropped | (2r, 0) | (0, 2r) |

with r = 1/sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.numerics.types import FloatArray


@dataclass(frozen=True)
class Branch:
    """w(u) = e^(first u - first^2/2 + log_first) - e^(second u - second^2/2 + log_second), first > second, u > root."""

    first: float
    second: float
    log_first: float
    log_second: float

    @property
    def root(self) -> float:
        """Where w is 0."""
        level = self.log_second - self.log_first + 0.5 * (self.first**2 - self.second**2)
        return level / (self.first - self.second)

    def value(self, u: FloatArray) -> FloatArray:
        """w(u) >= 0 for u >= root, without cancellation."""
        lead = np.exp(self.second * u - 0.5 * self.second**2 + self.log_second)
        return np.asarray(lead * np.expm1((self.first - self.second) * np.maximum(u - self.root, 0.0)))

    def preimage(self, s: FloatArray) -> FloatArray:
        """The u with w(u) = s > 0: a quadratic equation in e^((first - second) u / m) for the shifts of the table."""
        gap = self.first - self.second
        log_p, log_q = self.log_first - 0.5 * self.first**2, self.log_second - 0.5 * self.second**2
        if self.second == 0.0:
            return np.asarray((np.log(s + math.exp(log_q)) - log_p) / gap)
        if math.isclose(self.first, 2.0 * self.second):  # p y^2 - q y = s, y = e^(gap u)
            half = 0.5 * math.exp(log_q - log_p)
            return np.asarray(np.log(half + np.sqrt(half * half + s * math.exp(-log_p))) / gap)
        assert math.isclose(self.first, -self.second)  # p y - q/y = s, y = e^(first u)
        half_s = 0.5 * s * math.exp(-log_p)
        return np.asarray(np.log(half_s + np.sqrt(half_s * half_s + math.exp(log_q - log_p))) / self.first)


@dataclass(frozen=True)
class WorstCaseTerm:
    """The worst-case term at k = e^epsilon; `right` and `left` are the shifts (of A, of B) of its two parts."""

    right: tuple[float, float]
    left: tuple[float, float]
    epsilon: float

    @property
    def branches(self) -> tuple[Branch, Branch]:
        """The positive part as a function of z, the negative part as one of -z."""
        return (
            Branch(self.right[0], self.right[1], 0.0, self.epsilon),
            Branch(self.left[1], self.left[0], self.epsilon, 0.0),
        )

    @property
    def farthest_shift(self) -> float:
        """The largest |shift|."""
        return max(map(abs, (*self.right, *self.left)))

    @property
    def replaced(self) -> bool:
        """Whether a record is replaced, and a displaced one is dropped and never observed."""
        return self.right[1] == self.left[0] == 0.0

    @property
    def width(self) -> float:
        """How fast the log ratio of A and B moves with z: the shift of the record seen alone."""
        return self.right[0] - self.right[1]

    @property
    def crossing(self) -> float:
        """A = k B where the positive part begins."""
        return math.exp(self.right[0] * self.branches[0].root - 0.5 * self.right[0] ** 2)

    @property
    def flat(self) -> tuple[float, float]:
        """The interval of z on which the term is 0."""
        right, left = self.branches
        return -left.root, right.root

    def value(self, z: FloatArray) -> FloatArray:
        """X*(z), increasing."""
        right, left = self.branches
        found: FloatArray = np.zeros(z.shape)
        above, below = z > right.root, -z > left.root
        found[above] = right.value(z[above])
        found[below] = -left.value(-z[below])
        return found

    def preimages(self, s: FloatArray) -> FloatArray:
        """The z with X*(z) = s, for increasing s; those with s = 0 are left out."""
        right, left = self.branches
        return np.concatenate((-left.preimage(-s[s < 0]), right.preimage(s[s > 0])))


def opposite(sigma: float, epsilon: float) -> WorstCaseTerm:
    """Replaced by the opposite gradient, the round drawn independently of all other records."""
    r = 1.0 / sigma
    return WorstCaseTerm((r, -r), (-r, r), epsilon)


def zeroed_out(sigma: float, epsilon: float, reverse: bool) -> WorstCaseTerm:
    """Present against zeroed out (or `reverse`), where a displaced record is dropped and never observed."""
    r = 1.0 / sigma
    return WorstCaseTerm((r, 0.0), (r, 2.0 * r), epsilon) if reverse else WorstCaseTerm((2.0 * r, r), (0.0, r), epsilon)


def replaced(sigma: float, epsilon: float) -> WorstCaseTerm:
    """Replaced by another record, where a displaced record is dropped and never observed."""
    r = 1.0 / sigma
    return WorstCaseTerm((2.0 * r, 0.0), (0.0, 2.0 * r), epsilon)
