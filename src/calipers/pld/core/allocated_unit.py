"""The records of one unit, allocated to the batches of an epoch: how often several of them meet in one batch.

Whoever learns the whole allocation sees Gaussians: a batch that holds j of the unit's g records moves by at most j r
(r: the shift of one record, in units of the noise), so the epoch is one Gaussian release moved by r sqrt(S), S = sum of
j^2 over its batches. The deal has the same PLD on both datasets, so for t > 1 the epoch's moment is at most E[exp(a
S)], a = t (t - 1) r^2 / 2, and at most exp(a S_max), S_max that of batches filled with the unit (`full`).

Most of the time the records lie apart, and S = g. Deal them one after the other. On the event that no batch gets more
than J of them, the i-th record adds 1 to S, or nothing if it is in the remainder, or at most 1 + 2 (J - 1) if it meets
another one, which has probability at most

    p_i = (i - 1) (B - 1) / (N - i + 1)   (places of batches of B in a random order of N),   (i - 1) / M   (M bins),

whatever happened before: the i - 1 earlier records leave at most B - 1 places each. So, by concavity of the logarithm,

    E[exp(a S); no batch gets more than J] <= exp(a g) (1 + p (exp(2 a (J - 1)) - 1))^(g - 1),

p the mean of p_2, ..., p_g. That some batch gets J + 1 of them has at most the probability, over all choices of J + 1,
that these meet: (B - 1)...(B - J) / ((N - 1)...(N - J)) each, or M^-J. It is added to delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.citations import implements
from calipers.numerics.types import FloatArray

_SLACK = 1.0 + 1e-11
"""Covers products of a few thousand factors, each rounded twice."""


@implements("calipers:dealt-units")
@dataclass(frozen=True)
class AllocatedUnit:
    """`records` records, each of which moves what is released by `shift` in units of the noise.

    `batch_size`: that of batches that are cut from a random order of `places` records; None where every record is
    thrown into one of so many `places`, its bin.
    """

    records: int
    shift: float
    places: int
    batch_size: int | None = None

    @property
    def most(self) -> int:
        """How many of them a batch may get."""
        return self.records if self.batch_size is None else min(self.records, self.batch_size)

    @property
    def full(self) -> float:
        """The root of S_max: full batches of the unit, and what is left."""
        batches, rest = divmod(self.records, self.most)
        return math.sqrt(batches * float(self.most) ** 2 + float(rest) ** 2)

    def _next(self, together: int) -> float:
        """The probability that one more record joins so many that share a batch."""
        if self.batch_size is None:
            return 1.0 / self.places
        return max(self.batch_size - together, 0) / (self.places - together)

    @property
    def meeting(self) -> float:
        """p, rounded up: the mean over all records but the first of the chance to meet an earlier one."""
        before = np.arange(1.0, self.records)
        if len(before) == 0:
            return 0.0
        each = (
            before / self.places if self.batch_size is None else before * (self.batch_size - 1) / (self.places - before)
        )
        return float(np.minimum(each, 1.0).mean()) * _SLACK

    def crowd(self, rare: float) -> tuple[int, float]:
        """The least J such that more than J in one batch are rarer than `rare`, and at least their probability."""
        chance = float(self.records)
        for together in range(1, self.most):
            # Choices of J + 1 records, and that the last of them joins the others.
            chance *= (self.records - together) / (together + 1.0) * self._next(together)
            if chance * _SLACK <= rare:
                return together, chance * _SLACK
        return self.most, 0.0

    def log_moments(self, orders: FloatArray, crowd: int) -> FloatArray:
        """At least log E[exp(t (t - 1) shift^2 S / 2)] where no batch gets more than `crowd`, at orders t > 1."""
        a = 0.5 * orders * (orders - 1.0) * self.shift**2
        farther, meeting = 2.0 * a * (crowd - 1), self.meeting
        with np.errstate(divide="ignore"):
            odds = farther + np.log(-np.expm1(-farther)) + np.log(meeting)
        apart = a * self.records + (self.records - 1) * np.logaddexp(0.0, odds)
        return np.asarray(np.minimum(apart, a * self.full**2) * _SLACK)
