"""The reference table: every bracket is what it was, or narrower."""

from __future__ import annotations

import json

import pytest
from oracles.make_brackets import DELTA, EPSILON, RUNS, TARGET, line

from calipers.samplers import SAMPLERS

TOLERANCE = 1e-6
"""Relative: more than two machines differ by, less than any change of a proof or an attack."""

LISTED = dict.fromkeys(("zero-out-10", "shuffle-isolated-3", "constant-5", "person-2"), 5e-4)
"""Runs at rates near 1/200 whose large steps are composed apart (`calipers.pld.composition.large_steps`): stored when
three methods did that. Bounds of epsilon moved by 1e-5 of themselves, of delta by 4e-4, and are about 1e-4 apart."""

TABLE = json.loads(TARGET.read_text("utf-8"))


def name(entry: dict[str, object]) -> str:
    keys = entry["run"]
    assert isinstance(keys, dict)
    words = [key for key in keys.values() if isinstance(key, str)]
    return "-".join([*(words or ["poisson"]), f"{keys.get('epochs', keys.get('steps'))}"])


@pytest.mark.parametrize("entry", TABLE, ids=name)
def test_no_bracket_is_wider_than_it_was(entry: dict[str, list[float]]) -> None:
    """And the two have a value in common: both hold the truth."""
    found, tolerance = line(entry["run"]), LISTED.get(name(entry), TOLERANCE)
    for quantity in ("epsilon", "delta"):
        (lower, upper), (least, most) = found[quantity], entry[quantity]
        assert lower >= least * (1 - tolerance)
        assert upper <= most * (1 + tolerance)
        assert lower <= most
        assert least <= upper


def test_the_table_holds_a_run_of_every_sampler_and_its_own_list() -> None:
    """What `make_brackets` would write is what stands there; brackets are proper."""
    assert [entry["run"] for entry in TABLE] == RUNS
    assert {entry["run"].get("sampler", "poisson") for entry in TABLE} == set(SAMPLERS)
    assert (DELTA, EPSILON) == (1e-5, 1.0)
    for entry in TABLE:
        assert all(0 <= entry[quantity][0] <= entry[quantity][1] for quantity in ("epsilon", "delta"))
