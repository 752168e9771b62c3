"""One function per published statement: conditions checked, direction stated.

`evaluate(name, **parameters)` calls a statement by its name; `THEOREMS` lists them all.
"""

from __future__ import annotations

from calipers.theorems import (
    division_ceilings,
    division_guarantees,
    division_limits,
    division_pairs,
    division_rates,
    gaussian_limits,
    lognormal_ratio,
    poisson_halfspace,
    repeated_test,
    samplers_gap,
    separation,
    separation_to_epsilon,
    shuffle_composition,
    shuffle_conjecture,
    shuffle_limits,
    shuffle_one_epoch,
    shuffle_proof,
)
from calipers.theorems.registry import THEOREMS, Parameter, Relation, Theorem, TheoremValue, evaluate, find, theorem

__all__ = [
    "THEOREMS",
    "Parameter",
    "Relation",
    "Theorem",
    "TheoremValue",
    "division_ceilings",
    "division_guarantees",
    "division_limits",
    "division_pairs",
    "division_rates",
    "evaluate",
    "find",
    "gaussian_limits",
    "lognormal_ratio",
    "poisson_halfspace",
    "repeated_test",
    "samplers_gap",
    "separation",
    "separation_to_epsilon",
    "shuffle_composition",
    "shuffle_conjecture",
    "shuffle_limits",
    "shuffle_one_epoch",
    "shuffle_proof",
    "theorem",
]
