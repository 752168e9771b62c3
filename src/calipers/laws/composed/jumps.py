"""Sums of a few large steps, of one kind or of several: positive masses on nodes, so nothing cancels.

UPPER: a sum is split onto the two nodes around it, P-mass and Q-mass kept (a mean preserving spread); behind the last
node there is one more, at infinity. LOWER: a sum is told apart by its label only, and the label of a sum is a function
of the labels of its terms, so this is an observation.

`followed` lists them: none, one of each kind where it is, and two or more in one piece.
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


_OF_ONE, _OF_SEVERAL = 0.004, 0.016
"""How far apart nodes are around an epsilon of 1 that is asked about alone, and around each of several."""
DENSE = 80.0
"""At most about so many nodes are as dense as any."""


def nodes_around(first: float, epsilons: Sequence[float], deviation: float, last: float) -> FloatArray:
    """Places for sums of jumps: dense where a jump decides, at the epsilons, and ever coarser away from them.

    Profiles bend there and hardly anywhere else, and what is split where nothing bends shows what it did. So each of
    several epsilons is a node, and the others need not be dense.
    """
    several = len(epsilons) > 1
    finest = finest_nodes(first, epsilons[0], deviation, _OF_SEVERAL if several else _OF_ONE)
    places, before = [first], -math.inf
    for epsilon in (*epsilons, math.inf):
        while places[-1] < min(epsilon, last):
            place = places[-1]
            following = place + finest + 0.04 * min(epsilon - place, place - before)
            # A gap that would be short is none.
            places.append(epsilon if several and following > epsilon - 0.5 * finest else following)
        before = epsilon
    return np.array(places)


def finest_nodes(first: float, epsilon: float, deviation: float, share: float = _OF_SEVERAL) -> float:
    """How far apart the densest nodes are."""
    return max(0.05 * deviation, share * min(1.0, max(epsilon, first)), 1e-9)


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
        self._ends = np.append(nodes, math.inf)
        self._widths = -np.expm1(-np.diff(self._ends))

    @cached_property
    def _table(self) -> tuple[_Pairs, tuple[IntArray, IntArray], FloatArray, FloatArray]:
        """Pairs of nodes whose sums lie before the last node, where the nodes below these sums are, and shares."""
        pairs = _Pairs(self.nodes, float(self.nodes[-1]))
        index, down, up = self._places(pairs.sums)
        return pairs, pairs.keys(index), down, up

    def _places(self, values: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The node below each value, and the shares of P-mass there and one further."""
        index = np.maximum(np.searchsorted(self.nodes, values, side="right") - 1, 0)
        a, b, width = self._ends[index], self._ends[index + 1], self._widths[index]
        inner = np.clip(values, a, b)
        short = -np.expm1(a - inner)
        return index, (1.0 - short) * -np.expm1(inner - b) / width, short / width

    def _placed(self, ratio: FloatArray, p: FloatArray) -> FloatArray:
        index, down, up = self._places(ratio)
        size = len(self._ends)
        return weighted_counts(index, p * down, size) + weighted_counts(index + 1, p * up, size)

    def alone(self, kind: JumpKind) -> Jumps:
        """Where it is, up to the last node."""
        near, p = int(np.searchsorted(kind.ratio, self.nodes[-1])), kind.count * kind.p
        *_, last, certain = self._placed(kind.ratio[near:], p[near:]).tolist()
        return Jumps(np.append(kind.ratio[:near], self.nodes[-1]), np.append(p[:near], last), certain)

    def one(self, kind: JumpKind) -> FloatArray:
        """Split onto the nodes."""
        return self._placed(kind.ratio, kind.p)

    def adding(self, second: FloatArray) -> FloatArray:
        """Split onto the nodes; a sum with a certain jump is certain."""
        nodes, (pairs, keys, down, up) = self.nodes, self._table
        size, last = len(nodes), float(nodes[-1])
        matrix = np.zeros((1, size + 1, size + 1))
        matrix[0, :size, :size] = pairs.matrix(keys, second, down)
        matrix[0, 1:, :size] += pairs.matrix(keys, second, up)
        # Those from some node on lead beyond the last one: their P-mass, and times e^(that node - theirs).
        p, near = np.append(np.cumsum(second[-2::-1])[::-1], 0.0), [0.0]
        for mass, gap in zip(second[-2::-1].tolist(), np.append(math.inf, np.diff(nodes)[::-1]).tolist(), strict=True):
            near.append(mass + near[-1] * math.exp(-gap))
        lead = pairs.beside
        over = self._ends[lead] + nodes - last
        stays = np.array(near[::-1])[lead] * np.exp(-np.maximum(over, 0.0))
        matrix[0, size - 1, :size] += stays
        matrix[0, size, :size] += np.maximum(p[lead] - stays, 0.0) + second[size]
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
        """Pairs of labels whose sums lie before the last node, and where the labels of their sums are."""
        pairs = _Pairs(self._middle, float(self.nodes[-1]))
        return pairs, pairs.keys(self._labels(pairs.sums))

    def _labels(self, values: FloatArray) -> IntArray:
        return np.clip(np.searchsorted(self.nodes, values, side="right") - 1, 0, len(self.nodes) - 1)

    def alone(self, kind: JumpKind) -> Jumps:
        """Told apart as finely as it is known, up to the last node."""
        near, masses = int(np.searchsorted(kind.ratio, self.nodes[-1])), kind.count * np.array((kind.p, kind.q))
        return self.read(np.column_stack((masses[:, :near], masses[:, near:].sum(axis=1))))

    def one(self, kind: JumpKind) -> FloatArray:
        """By the node below."""
        labels, size = self._labels(kind.ratio), len(self.nodes)
        return np.array([weighted_counts(labels, masses, size) for masses in (kind.p, kind.q)])

    def adding(self, second: FloatArray) -> FloatArray:
        """By a label of the two labels."""
        pairs, keys = self._table
        matrices = np.array([pairs.matrix(keys, masses, None) for masses in second])
        rest = np.cumsum(np.column_stack((second, np.zeros(2)))[:, ::-1], axis=1)[:, ::-1]
        matrices[:, -1] += rest[:, pairs.beside]
        return matrices

    def read(self, masses: FloatArray) -> Jumps:
        """What the label says."""
        p, q = masses
        seen = (p > 0.0) & (q > 0.0)
        return Jumps(np.log(p[seen]) - np.log(q[seen]), p[seen])


def followed(sums: JumpSums, kinds: Sequence[JumpKind], most: int) -> list[Jumps]:
    """No jump; one, of each kind; and two or more together, up to `most` of each kind in any of its steps."""
    one: FloatArray | None = None
    more: FloatArray | None = None
    for kind in kinds:
        powers = _powers(sums, kind, most)
        some = np.sum(powers[1:], axis=0)
        beside = [_product(sums, masses, some) for masses in (one, more) if masses is not None]
        more = _total([*([] if more is None else [more]), *powers[2:], *beside])
        one = powers[1] if one is None else one + powers[1]
    found = [Jumps(np.zeros(1), np.ones(1)), *(sums.alone(kind) for kind in kinds)]
    return found if more is None else [*found, sums.read(more)]


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


def _product(sums: JumpSums, first: FloatArray, second: FloatArray) -> FloatArray:
    """The sums of both."""
    return _sums(sums.adding(second), first)
