"""Calipers beside the real dp_accounting: agreement where both answer, refusals where neither should.

Its PLD accountant rounds losses up to multiples of 1e-4, so its epsilon may not be below our lower
bound; inequalities have no tolerance.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from calipers.adapters import dp_accounting as adapter
from calipers.adapters.dp_accounting import event_of, measurement_of, neighboring_relation_of
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

library = pytest.importorskip("dp_accounting", reason="dp-accounting comes with the extra of that name")
pytestmark = pytest.mark.dp_accounting

Relation = library.NeighboringRelation
ADD, ZERO, SWAP = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_SPECIAL, Relation.REPLACE_ONE
Composed, Repeated, Sampled = library.ComposedDpEvent, library.SelfComposedDpEvent, library.PoissonSampledDpEvent
Gaussian, Laplace = library.GaussianDpEvent, library.LaplaceDpEvent
DiscreteLaplace, Response = library.dp_event.DiscreteLaplaceDpEvent, library.RandomizedResponseDpEvent
INTERVAL = 1e-4
"""Their lattice. Rounding up moves every loss by less than this; connecting the dots costs its square."""


def their_epsilon(event: Any, relation: Any, delta: float) -> float:
    accountant = library.pld.PLDAccountant(relation, value_discretization_interval=INTERVAL)
    return float(accountant.compose(event).get_epsilon(delta))


AGREEMENT = [
    # event, relation, delta, what their rounding may add to epsilon
    pytest.param(Repeated(Sampled(0.01, Gaussian(1.0)), 1000), ADD, 1e-5, INTERVAL, id="dp-sgd"),
    pytest.param(Repeated(Sampled(0.1, Gaussian(2.0)), 100), SWAP, 1e-5, INTERVAL, id="dp-sgd, replace"),
    pytest.param(Repeated(Sampled(0.1, Gaussian(2.0)), 100), ZERO, 1e-5, INTERVAL, id="dp-sgd, special"),
    pytest.param(Sampled(0.3, Gaussian(1.0)), ADD, 1e-5, INTERVAL, id="one sampled Gaussian"),
    pytest.param(Repeated(Laplace(2.0), 10), ADD, 1e-5, INTERVAL, id="Laplace"),
    pytest.param(Repeated(Sampled(0.05, Laplace(1.0)), 200), ADD, 1e-5, INTERVAL, id="sampled Laplace"),
    pytest.param(Repeated(Sampled(0.05, Laplace(1.0)), 20), ZERO, 1e-5, INTERVAL, id="sampled Laplace, special"),
    # Privacy buckets: every one of the releases is rounded up by as much as one interval.
    pytest.param(Repeated(DiscreteLaplace(0.5, 1), 10), ADD, 1e-5, 11 * INTERVAL, id="discrete Laplace"),
    pytest.param(Repeated(DiscreteLaplace(0.2, 3), 10), ADD, 1e-5, 11 * INTERVAL, id="discrete Laplace, C = 3"),
    pytest.param(Composed([Response(0.5, 4)] * 5), SWAP, 1e-3, 6 * INTERVAL, id="response"),
    pytest.param(Composed([Response(0.5, 4)] * 5), ZERO, 1e-3, 6 * INTERVAL, id="response, special"),
    pytest.param(
        Composed([Repeated(Sampled(0.02, Gaussian(1.2)), 200), Gaussian(5.0), Repeated(Laplace(10.0), 3)]),
        ADD,
        1e-6,
        INTERVAL,
        id="mixture",
    ),
]


@pytest.mark.parametrize(("event", "relation", "delta", "accuracy"), AGREEMENT)
def test_their_epsilon_is_above_our_attack_and_close_to_our_proof(
    event: Any, relation: Any, delta: float, accuracy: float
) -> None:
    """lower <= theirs, without tolerance, and theirs <= upper + their own rounding."""
    theirs = their_epsilon(event, relation, delta)
    bracket = measurement_of(event, adjacency=relation, tolerance=1e-4).epsilon(delta)
    assert bracket.lower <= theirs <= bracket.upper + accuracy
    assert bracket.relative_width <= 1e-4


@pytest.mark.parametrize(
    ("event", "relation"),
    [(Gaussian(1.3), ADD), (Repeated(Gaussian(3.0), 10), ADD), (Composed([Gaussian(2.0), Gaussian(4.0)]), SWAP)],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-8])
def test_closed_forms_are_never_above_their_answer(event: Any, relation: Any, delta: float) -> None:
    """Plain Gaussians: our upper bound is the truth up to 1e-11, theirs is rounded up from it."""
    bracket = measurement_of(event, adjacency=relation).epsilon(delta)
    assert bracket.upper <= their_epsilon(event, relation, delta) <= bracket.upper + INTERVAL


@pytest.mark.parametrize(
    ("rate", "noise", "steps"), [(256 / 60_000, 1.1, 14_040), (0.01, 1.0, 1000), (0.3, 5.0, 10)], ids=str
)
def test_dp_sgd_is_never_above_their_answer(rate: float, noise: float, steps: int) -> None:
    """Where a step's loss is small, our upper bound at default tolerance is below their answer."""
    event = Repeated(Sampled(rate, Gaussian(noise)), steps)
    assert measurement_of(event).epsilon(1e-5).upper <= their_epsilon(event, ADD, 1e-5)


runs = st.builds(
    Run,
    sample_rate=st.floats(0.002, 0.5),
    steps=st.integers(1, 300),
    noise_multiplier=st.floats(0.8, 5.0),
    adjacency=st.sampled_from(["add-remove", "zero-out", "substitute"]),
)


@settings(max_examples=6, phases=[Phase.generate])  # a second an example: no time to shrink
@given(run=runs, exponent=st.floats(-8.0, -2.0))
def test_random_runs_agree(run: Run, exponent: float) -> None:
    """The same for runs nobody chose, through the event that describes them."""
    delta, event, relation = 10.0**exponent, event_of(run), neighboring_relation_of(run)
    theirs = their_epsilon(event, relation, delta)
    bracket = measurement_of(event, adjacency=relation).epsilon(delta)
    assert bracket.lower <= theirs <= bracket.upper + 2 * INTERVAL


@pytest.mark.parametrize("steps", [10, 1000])
def test_renyi_accounting_is_looser(steps: int) -> None:
    """Their RDP accountant, converted to epsilon, stays above our upper bound by a visible amount."""
    event = Repeated(Sampled(0.01, Gaussian(1.0)), steps)
    theirs = library.rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    assert measurement_of(event).epsilon(1e-5).upper < 0.95 * theirs


def test_renyi_divergences_agree() -> None:
    """Order 4 of a sampled Gaussian: their closed form for integer orders lies in our jaws."""
    accountant = library.rdp.RdpAccountant(orders=[4.0])
    event = Repeated(Sampled(0.02, Gaussian(1.5)), 50)
    accountant.compose(event)
    found = measurement_of(event).rdp(4.0)
    assert found.lower <= accountant._rdp[0] <= found.upper


def test_nested_compositions_are_a_bag_of_releases() -> None:
    """2 x (3 x step, NoOp, [Gaussian, 0 x Laplace]) + step is 7 steps and 2 Gaussians."""
    step, noise = Sampled(0.1, Gaussian(1.0)), Gaussian(4.0)
    inner = Composed([Repeated(step, 3), library.NoOpDpEvent(), Composed([noise, Repeated(Laplace(1.0), 0)])])
    nested = measurement_of(Composed([Repeated(inner, 2), step]))
    flat = measurement_of(Composed([step] * 7 + [noise] * 2))
    fewer = measurement_of(Composed([step] * 6 + [noise] * 2))
    assert nested.epsilon(1e-5) == flat.epsilon(1e-5)
    assert fewer.epsilon(1e-5).upper < nested.epsilon(1e-5).lower


def test_every_repetition_counts() -> None:
    """Five answers repeated as one event are the five answers of a list, for every kind of release."""
    for event, relation in ((Response(0.5, 4), SWAP), (DiscreteLaplace(0.5, 2), ADD), (Laplace(3.0), ADD)):
        repeated = measurement_of(Repeated(event, 5), adjacency=relation).epsilon(1e-3)
        listed = measurement_of(Composed([event] * 5), adjacency=relation).epsilon(1e-3)
        assert repeated == listed
        assert measurement_of(event, adjacency=relation).epsilon(1e-3).upper < repeated.lower


def test_sampling_with_rate_zero_or_one_is_no_sampling() -> None:
    """Rate 0 and an empty event release nothing; rate 1 is the event itself, a composition included."""
    for silent in (Sampled(0.0, Gaussian(1.0)), Sampled(0.5, library.NoOpDpEvent()), Composed([]), Response(1.0, 3)):
        measured = measurement_of(silent)
        assert measured.epsilon(1e-5).upper == 0.0
        assert measured.gdp().mu.upper == 0.0
    whole = Repeated(Gaussian(2.0), 3)
    assert measurement_of(Sampled(1.0, whole)).epsilon(1e-5) == measurement_of(whole).epsilon(1e-5)
    alone = Sampled(0.2, Repeated(Composed([Gaussian(2.0)]), 1))
    assert measurement_of(alone).epsilon(1e-5) == measurement_of(Sampled(0.2, Gaussian(2.0))).epsilon(1e-5)


@pytest.mark.parametrize(
    ("event", "relation", "reason"),
    [
        (Sampled(0.1, Repeated(Gaussian(1.0), 2)), ADD, "one coin decides about all releases.*compose outside"),
        (Sampled(0.1, Composed([Gaussian(1.0), Laplace(1.0)])), ADD, "one coin decides"),
        (Sampled(0.1, Sampled(0.1, Gaussian(1.0))), ADD, "multiply the two sampling probabilities"),
        (Sampled(0.1, Response(0.5, 3)), SWAP, "not drawn is not defined"),
        (Sampled(0.1, Laplace(1.0)), SWAP, "worst pair of records is not proven"),
        (Sampled(0.1, DiscreteLaplace(1.0, 1)), SWAP, "worst pair of records is not proven"),
        (Response(0.5, 3), ADD, "REPLACE_ONE"),
        (library.NonPrivateDpEvent(), ADD, "no finite epsilon.*supported are"),
        (library.UnsupportedDpEvent(), ADD, "says nothing"),
        (library.SampledWithoutReplacementDpEvent(100, 10, Gaussian(1.0)), ADD, "without-replacement"),
        (library.SampledWithReplacementDpEvent(100, 10, Gaussian(1.0)), ADD, "with-replacement"),
        (Composed([Gaussian(1.0), Repeated(library.NonPrivateDpEvent(), 2)]), ADD, "NonPrivateDpEvent"),
    ],
)
def test_what_has_no_proven_pair_is_refused_with_the_reason(event: Any, relation: Any, reason: str) -> None:
    """UnsupportedError, before anything is computed."""
    with pytest.raises(UnsupportedError, match=reason):
        measurement_of(event, adjacency=relation)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (Gaussian(0.0), "noise_multiplier.*Without noise"),
        (Sampled(0.1, Gaussian(0.0)), "noise_multiplier"),
        (Laplace(0.0), "noise_multiplier"),
        (Laplace(float("nan")), "noise_multiplier"),
        (DiscreteLaplace(0.0, 1), "noise_parameter"),
        (DiscreteLaplace(1.0, 0), "sensitivity"),
        (Response(0.0, 3), "noise_parameter"),
        (Sampled(1.5, Gaussian(1.0)), "sampling_probability"),
        (Repeated(Gaussian(1.0), -1), "count"),
        (Repeated(Gaussian(1.0), 2.5), "count"),
        ("GaussianDpEvent(1.0)", "DpEvent"),
    ],
)
def test_bad_values_are_refused_by_name(event: Any, named: str) -> None:
    """InputError with the name of the offending field."""
    with pytest.raises(InputError, match=named):
        measurement_of(event)


def test_a_subclass_may_mean_something_else() -> None:
    """An event of an unknown class is not read as its base class, not even under the same name."""
    for name in ("Louder", "GaussianDpEvent"):
        foreign = type(name, (Gaussian,), {"__module__": "elsewhere"})
        with pytest.raises(UnsupportedError, match=f"elsewhere.{name} cannot be measured"):
            measurement_of(foreign(1.0))


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 0.9])
def test_replacing_a_record_doubles_the_shift_of_laplace_noise(epsilon: float) -> None:
    """Their accountant refuses; the closed form for scale 2 and shift 2 is 1 - exp((epsilon - 1)/2)."""
    found = measurement_of(Laplace(2.0), adjacency=SWAP).delta(epsilon)
    assert found.lower <= 1.0 - math.exp(0.5 * (epsilon - 1.0)) <= found.upper
    assert found.relative_width < 2e-3


def test_replacing_a_record_doubles_the_shift_of_integer_noise() -> None:
    """C = 1: the event {x >= 1} has probability P(K >= -1) against P(K >= 1), so delta(0) is P(K = 0) + P(K = -1)."""
    a = 0.6
    found = measurement_of(DiscreteLaplace(a, 1), adjacency=SWAP).delta(0.0)
    truth = math.tanh(0.5 * a) * (1.0 + math.exp(-a))
    assert found.lower <= truth <= found.upper
    assert found.relative_width < 2e-3


def test_adjacency_has_a_word_for_every_relation() -> None:
    """The three relations of the library are the three adjacencies, and nothing else is understood."""
    assert set(adapter.RELATIONS.values()) == {relation.name for relation in Relation}
    event = Repeated(Sampled(0.1, Gaussian(1.0)), 5)
    for word, name in adapter.RELATIONS.items():
        by_word, by_relation = measurement_of(event, adjacency=word), measurement_of(event, adjacency=Relation[name])
        assert by_word.epsilon(1e-5) == by_relation.epsilon(1e-5)
        assert name in by_word.notes[0]
    with pytest.raises(InputError, match="adjacency"):
        measurement_of(event, adjacency="erase")


RUNS = [
    Run(dataset_size=1000, batch_size=100, steps=25, noise_multiplier=1.5),
    Run(sample_rate=0.05, epochs=1, noise_multiplier=0.9, adjacency="substitute", normalization="constant"),
    Run(
        dataset_size=1000, batch_size=100, epochs=3, noise_multiplier=1.5, sampler="deterministic", adjacency="zero-out"
    ),
    (
        Run(dataset_size=80, sample_rate=0.1, steps=5, noise_multiplier=2.0),
        Run(dataset_size=80, batch_size=10, epochs=2, noise_multiplier=5.0, sampler="deterministic"),
    ),
]


@pytest.mark.parametrize("run", RUNS)
def test_a_run_and_its_event_measure_alike(run: Any) -> None:
    """Round trip: the event says all that the measurement of the run relies on."""
    event, relation = event_of(run), neighboring_relation_of(run)
    assert measurement_of(event, adjacency=relation).epsilon(1e-5).upper == measure(run).epsilon(1e-5).upper
    assert measure(run).epsilon(1e-5).lower <= their_epsilon(event, relation, 1e-5)
    assert library.DpEvent.from_named_tuple(event.to_named_tuple()) == event


def test_events_are_the_textbook_ones() -> None:
    """Poisson: T sampled steps. Fixed batches: one Gaussian per epoch. Phases: a composition of both."""
    poisson = Repeated(Sampled(0.1, Gaussian(2.0)), 5)
    fixed = Repeated(Gaussian(5.0), 2)
    assert event_of(RUNS[3]) == Composed([poisson, fixed])
    assert event_of(RUNS[3][0]) == poisson
    assert neighboring_relation_of(RUNS[2]) is ZERO


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampler": "shuffle"}, "sampler='shuffle'.*claim too much"),
        ({"sampler": "balls-and-bins"}, "sampler='balls-and-bins'"),
        ({"normalization": "realized"}, "normalization='realized'.*public constant"),
        ({"normalization": "expected"}, "normalization='expected'"),
        ({"view": "isolated"}, "weaker adversary"),
    ],
)
def test_runs_that_no_event_describes_are_refused(changes: dict[str, str], reason: str) -> None:
    """UnsupportedError rather than the event of a different run."""
    run = Run(dataset_size=100, batch_size=10, epochs=1, noise_multiplier=1.0).replace(**changes)
    with pytest.raises(UnsupportedError, match=reason):
        event_of(run)


def test_the_example_in_the_docstring_runs() -> None:
    """The indented lines after '::' are a program, and what it asserts is true."""
    text = adapter.__doc__ or ""
    example = text.split("::\n", 1)[1].split("\n**", 1)[0]
    assert "assert" in example
    exec(textwrap.dedent(example), {})


def test_a_measurement_of_an_event_claims_its_own_upper_jaw() -> None:
    """There is no run, and the claim adds nothing to what the event says."""
    measured = measurement_of(Repeated(Sampled(0.1, Gaussian(1.0)), 5))
    assert measured.runs == ()
    assert measured.claim.epsilon(1e-5) == measured.epsilon(1e-5).upper
