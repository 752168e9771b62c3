"""Finite pairs of laws in rational arithmetic: the best test, and the profile, by their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

Masses = Sequence[Fraction]


def tradeoff(null: Masses, alternative: Masses, fpr: Fraction) -> Fraction:
    """The smallest false negative rate of a test of level fpr: the likeliest outcomes are rejected first."""
    order = sorted(range(len(null)), key=lambda i: math.inf if null[i] == 0 else alternative[i] / null[i], reverse=True)
    left, missed = fpr, Fraction(1)
    for i in order:
        share = Fraction(1) if null[i] <= left else left / null[i]
        missed -= share * alternative[i]
        left -= share * null[i]
    return missed


def profile(null: Masses, alternative: Masses, odds: Fraction) -> Fraction:
    """sum (alternative - odds null)+, the hockey-stick divergence at e^epsilon = odds."""
    return sum((max(a - odds * b, Fraction(0)) for a, b in zip(alternative, null, strict=True)), Fraction(0))
