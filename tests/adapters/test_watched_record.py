"""What is added up for every record, what is kept in a checkpoint, and what is said where nothing is proven."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.adapters.opacus_attachment import unproven
from calipers.adapters.watched_record import Participation
from calipers.adapters.watched_run import together

RECORDS = 7
STEPS = st.lists(
    st.tuples(
        st.lists(st.lists(st.integers(0, RECORDS - 1), max_size=6), min_size=1, max_size=2),
        st.integers(1, 2),
        st.sampled_from([0.5, 1.0, 1.1, 3.0]),
    ),
    min_size=1,
    max_size=12,
)


def exact(steps) -> Fraction:
    """The largest sum of (times in the step / noise)^2, in rationals."""
    sums = [Fraction(0)] * RECORDS
    for batches, times, noise in steps:
        for record in range(RECORDS):
            count = sum(times * batch.count(record) for batch in batches)
            sums[record] += Fraction(count) ** 2 / Fraction(noise) ** 2
    return max(sums)


def added(steps) -> Participation:
    """The same by the class."""
    found = Participation(RECORDS)
    for batches, times, noise in steps:
        found.add([(np.array(batch, dtype=np.int64), times) for batch in batches], noise)
    return found


@given(STEPS)
def test_the_record_that_shows_most_is_never_understated(steps) -> None:
    """Against rationals: at least the truth, and at most a rounding above it; exact where the noise never changed."""
    truth = exact(steps)
    noise, count = added(steps).largest()
    shown = Fraction(count) / Fraction(noise) ** 2
    assert shown >= truth
    assert shown <= truth * (1 + Fraction(1, 10**12))
    if len({noise for _, _, noise in steps}) == 1:
        assert shown == truth


@given(STEPS, st.integers(0, 12))
def test_a_checkpoint_in_between_changes_nothing(steps, cut) -> None:
    """Through JSON and back."""
    resumed = Participation(RECORDS)
    resumed.load_state_dict(json.loads(json.dumps(added(steps[:cut]).state_dict())))
    for batches, times, noise in steps[cut:]:
        resumed.add([(np.array(batch, dtype=np.int64), times) for batch in batches], noise)
    assert resumed.largest() == added(steps).largest()


@given(STEPS, STEPS)
def test_what_two_processes_saw_adds_up(first, second) -> None:
    """Their steps are the same ones, on different records: sums add."""
    whole = added(first)
    whole.merge(added(second).state_dict())
    noise, count = whole.largest()
    shown = Fraction(count) / Fraction(noise) ** 2 if count else Fraction(0)
    assert shown >= exact([*first, *second])
    assert shown <= exact([*first, *second]) * (1 + Fraction(1, 10**12))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_several_releases_are_never_called_noisier_than_they_are(noises) -> None:
    """1/s^2 of the one release is at least the sum, and at most a rounding above it."""
    total = sum(1 / Fraction(noise) ** 2 for noise in noises)
    shown = 1 / Fraction(together(tuple(noises))) ** 2
    assert total <= shown <= total * (1 + Fraction(1, 10**12))


def test_where_nothing_is_proven_everything_is_possible() -> None:
    """Between guessing and a perfect attack, with the reason in both pieces of evidence."""
    nothing = unproven("Because.")
    below, above = nothing.lower.epsilon(1e-5, 1e-3), nothing.upper.epsilon(1e-5, 1e-3)
    assert (below.value, above.value) == (0.0, math.inf)
    assert (nothing.upper.delta(50.0, 1e-3).value, nothing.upper.renyi(2.0).value) == (1.0, math.inf)
    assert float(nothing.upper.curve(1e-12, 1e-3)(0.1)) == 0.0
    assert float(nothing.lower.curve(1e-12, 1e-3)(0.1)) == pytest.approx(0.9)
    assert "Because." in above.evidence.statement
    assert "Because." in below.evidence.statement
