"""Sums of a few large steps, of one kind or of several: positive masses on nodes, so nothing cancels.

UPPER: a sum is split onto the two nodes around it, P-mass and Q-mass kept (a mean preserving spread); what lies beyond
the last node counts as certain. LOWER: a sum is told apart by its label only, and the label of a sum is a function of
the labels of its terms, so this is an observation.

`followed` lists the jumps by how many there are of each kind: one by one up to a few in all, since the small steps that
are left are then counted exactly, and everything beyond in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from calipers.laws.composed.lattice import weighted_counts
from calipers.numerics.types import FloatArray, IntArray


@dataclass(frozen=True)
class JumpKind:
    """One jump of a kind, log ratio, P-mass and Q-mass, and how many steps may be one."""

    ratio: FloatArray
    p: FloatArray
    q: FloatArray
    count: int


@dataclass(frozen=True)
class Jumps:
    """Some jumps: P-mass by log ratio, and P-mass that counts as certain."""

    ratio: FloatArray
    p: FloatArray
    certain: float = 0.0


DENSE = 80.0
"""At most about so many nodes are as dense as any."""
Numbers = tuple[int, ...]
"""How many jumps of each kind."""


def nodes_around(first: float, epsilon: tuple[float, float], deviation: float, last: float) -> FloatArray:
    """Places for sums of jumps: dense where a jump decides, between two epsilons, and ever coarser away from them."""
    finest = finest_nodes(first, epsilon[0], deviation)
    middle, half = 0.5 * (epsilon[0] + epsilon[1]), min(0.5 * (epsilon[1] - epsilon[0]), 0.5 * DENSE * finest)
    places = [first]
    while places[-1] < last:
        places.append(places[-1] + finest + 0.04 * max(0.0, abs(places[-1] - middle) - half))
    return np.array(places)


def finest_nodes(first: float, epsilon: float, deviation: float) -> float:
    """How far apart the densest nodes are."""
    return max(0.05 * deviation, 0.004 * min(1.0, max(epsilon, first)), 1e-9)


class _Pairs:
    """Pairs of increasing nodes whose sums are below `last`: of each the two terms, in either order."""

    def __init__(self, nodes: FloatArray, last: float) -> None:
        self.size = len(nodes)
        counts = np.minimum(np.searchsorted(nodes, last - nodes), np.arange(1, self.size + 1))
        first = np.repeat(np.arange(self.size), counts)
        second = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._unlike = second < first
        self._first, self._second = (first, first[self._unlike]), (second, second[self._unlike])
        self.sums = nodes[first] + nodes[second]
        # Beside each node these are the first ones, so many of them.
        self.beside = np.bincount(first, minlength=self.size) + np.bincount(self._second[1], minlength=self.size)

    def keys(self, places: IntArray) -> tuple[IntArray, IntArray]:
        """Where in a matrix, by place of a sum and by one term, each pair is: by its first term, and by its second."""
        rows = places * self.size
        return rows + self._first[0], rows[self._unlike] + self._second[1]

    def matrix(self, keys: tuple[IntArray, IntArray], masses: FloatArray, shares: FloatArray | None) -> FloatArray:
        """The sum over the other term of its mass, times the share of the pair."""
        weights = masses[self._second[0]], masses[self._first[1]]
        if shares is not None:
            weights = weights[0] * shares, weights[1] * shares[self._unlike]
        bins = self.size * self.size
        made = weighted_counts(keys[0], weights[0], bins)
        made += weighted_counts(keys[1], weights[1], bins)
        return made.reshape(self.size, self.size)


class JumpSums(Protocol):
    """Masses of jumps, whatever they are kept by, as an array; equal forms add."""

    def alone(self, kind: JumpKind) -> Jumps:
        """One jump of a kind, where it is, in any of the steps."""

    def one(self, kind: JumpKind) -> FloatArray:
        """One jump in one step."""

    def adding(self, second: FloatArray) -> FloatArray:
        """The matrices that make of masses those of their sums with independent jumps of these masses."""

    def read(self, masses: FloatArray) -> Jumps:
        """Log ratios and P-masses."""


class SplitSums:
    """UPPER: P-masses on the nodes, and last what counts as certain."""

    def __init__(self, nodes: FloatArray) -> None:
        self.nodes = nodes

    @cached_property
    def _table(self) -> tuple[_Pairs, tuple[IntArray, IntArray], FloatArray, FloatArray]:
        """Pairs of nodes whose sums lie before the last node, where the nodes below these sums are, and shares."""
        pairs = _Pairs(self.nodes, float(self.nodes[-1]))
        index, down, up = self._places(pairs.sums)
        # No sum here has the last node below it, but for rounding.
        return pairs, pairs.keys(np.minimum(index, pairs.size - 2)), down, up

    def _places(self, values: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The node below each value (their number for what lies beyond), shares of P-mass there and one further."""
        nodes = self.nodes
        index = np.clip(np.searchsorted(nodes, values, side="right") - 1, 0, len(nodes) - 1)
        beyond = index >= len(nodes) - 1
        a, b = nodes[index], nodes[np.minimum(index + 1, len(nodes) - 1)]
        inner = np.clip(values, a, np.maximum(b, a))
        width = np.append(-np.expm1(-np.diff(nodes)), math.inf)[index]
        short = -np.expm1(a - inner)
        return np.where(beyond, len(nodes), index), (1.0 - short) * -np.expm1(inner - b) / width, short / width

    def _placed(self, places: tuple[IntArray, FloatArray, FloatArray], p: FloatArray) -> FloatArray:
        index, down, up = places
        size = len(self.nodes)
        inside = index < size
        where, weights = index[inside], p[inside]
        placed = weighted_counts(where, weights * down[inside], size)
        placed += weighted_counts(np.minimum(where + 1, size - 1), weights * up[inside], size)
        return np.append(placed, float(p[~inside].sum()))

    def alone(self, kind: JumpKind) -> Jumps:
        """Where it is."""
        return Jumps(kind.ratio, kind.count * kind.p)

    def one(self, kind: JumpKind) -> FloatArray:
        """Split onto the nodes."""
        return self._placed(self._places(kind.ratio), kind.p)

    def adding(self, second: FloatArray) -> FloatArray:
        """Split onto the nodes; a sum with a certain jump is certain."""
        size, (pairs, keys, down, up) = len(self.nodes), self._table
        matrix = np.zeros((1, size + 1, size + 1))
        matrix[0, :size, :size] = pairs.matrix(keys, second, down)
        matrix[0, 1:size, :size] += pairs.matrix(keys, second, up)[:-1]
        matrix[0, size, :size] = np.cumsum(second[::-1])[::-1][pairs.beside]
        matrix[0, size, size] = second.sum()
        return matrix

    def read(self, masses: FloatArray) -> Jumps:
        """At the nodes."""
        return Jumps(self.nodes, masses[:-1], float(masses[-1]))


class LabelledSums:
    """LOWER: P-masses and Q-masses by the node below, the last of which stands for all beyond."""

    def __init__(self, nodes: FloatArray) -> None:
        self.nodes = nodes
        self._middle = np.append(0.5 * (nodes[1:] + nodes[:-1]), nodes[-1])

    @cached_property
    def _table(self) -> tuple[_Pairs, tuple[IntArray, IntArray]]:
        """All pairs of labels, and where the labels of their sums are."""
        pairs = _Pairs(self._middle, math.inf)
        return pairs, pairs.keys(self._labels(pairs.sums))

    def _labels(self, values: FloatArray) -> IntArray:
        return np.clip(np.searchsorted(self.nodes, values, side="right") - 1, 0, len(self.nodes) - 1)

    def alone(self, kind: JumpKind) -> Jumps:
        """Told apart as finely as it is known."""
        return self.read(kind.count * np.array((kind.p, kind.q)))

    def one(self, kind: JumpKind) -> FloatArray:
        """By the node below."""
        labels, size = self._labels(kind.ratio), len(self.nodes)
        return np.array([weighted_counts(labels, masses, size) for masses in (kind.p, kind.q)])

    def adding(self, second: FloatArray) -> FloatArray:
        """By a label of the two labels."""
        pairs, keys = self._table
        return np.array([pairs.matrix(keys, masses, None) for masses in second])

    def read(self, masses: FloatArray) -> Jumps:
        """What the label says."""
        p, q = masses
        seen = (p > 0.0) & (q > 0.0)
        return Jumps(np.log(p[seen]) - np.log(q[seen]), p[seen])


@dataclass(frozen=True)
class Followed:
    """Jumps by their numbers, and those of all larger numbers together (None if there are none)."""

    exactly: dict[Numbers, Jumps]
    beyond: Jumps | None


def followed(sums: JumpSums, kinds: Sequence[JumpKind], most: int, exact: int) -> Followed:
    """Up to `most` jumps of each kind in any of its steps; `exact` and fewer in all are kept apart."""
    exactly: dict[Numbers, FloatArray | None] = {(): None}
    beyond: FloatArray | None = None
    for kind in kinds:
        powers = _powers(sums, kind, most)
        grown: dict[Numbers, FloatArray | None] = {}
        rest = _added(beyond, _product(sums, beyond, _total(powers[1:])) if beyond is not None else None)
        for numbers, masses in exactly.items():
            left = exact - sum(numbers)
            for number in range(min(left, len(powers) - 1) + 1):
                grown[*numbers, number] = masses if number == 0 else _product(sums, masses, powers[number])
            more = _total(powers[left + 1 :])
            rest = _added(rest, None if more is None else _product(sums, masses, more))
        exactly, beyond = grown, rest
    named = {}
    for numbers, masses in exactly.items():
        if masses is None:
            named[numbers] = Jumps(np.zeros(1), np.ones(1))
        else:
            named[numbers] = sums.alone(kinds[numbers.index(1)]) if sum(numbers) == 1 else sums.read(masses)
    return Followed(named, None if beyond is None else sums.read(beyond))


def _powers(sums: JumpSums, kind: JumpKind, most: int) -> list[FloatArray]:
    """k jumps in any k of the steps, k = 0 .. most; the first entry means nothing."""
    one = sums.one(kind)
    found, last = [one, kind.count * one], min(most, kind.count)
    adding = sums.adding(one) if last >= 2 else one
    for k in range(2, last + 1):
        found.append(_sums(adding, found[-1]) * ((kind.count - k + 1) / k))
    return found


def _sums(adding: FloatArray, masses: FloatArray) -> FloatArray:
    """Masses of sums; each a sum of positive products."""
    return np.asarray(adding @ masses.reshape(len(adding), -1, 1)).reshape(masses.shape)


def _total(masses: Sequence[FloatArray]) -> FloatArray | None:
    return np.sum(masses, axis=0) if masses else None


def _added(first: FloatArray | None, second: FloatArray | None) -> FloatArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _product(sums: JumpSums, first: FloatArray | None, second: FloatArray | None) -> FloatArray | None:
    """The sums of both; None stands for no jump."""
    if first is None or second is None:
        return second if first is None else first
    return _sums(sums.adding(second), first)
