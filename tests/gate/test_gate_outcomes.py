"""The gate says "within" only by a proof and "exceeded" only by an attack, and every exit status means one thing."""

from __future__ import annotations

import math

import pytest

from calipers.bracket import Bracket, Evidence, Kind
from calipers.calibrate import calibrate
from calipers.errors import CertificationError, InputError, UnsupportedError
from calipers.gate import Budget, Outcome, check, configured
from calipers.measure import measure
from calipers.run import Run

POISSON = Run(sample_rate=0.01, steps=1000, noise_multiplier=1.0)
GAUSSIAN = Run(sample_rate=1.0, steps=1, noise_multiplier=1.0)
EVIDENCE = Evidence(Kind.THEOREM, "a statement", "a source")


def against(lower: float, upper: float, epsilon: float, monkeypatch: pytest.MonkeyPatch, **named: object):
    """The outcome of a made-up bracket."""
    found = Bracket(lower, upper, EVIDENCE, EVIDENCE)
    monkeypatch.setattr("calipers.gate.outcome._narrow_enough", lambda run, budget: found)
    return check(GAUSSIAN, Budget(epsilon=epsilon, delta=1e-5), **named)


@pytest.mark.parametrize(
    ("lower", "upper", "epsilon", "outcome", "status"),
    [
        (1.0, 2.0, 2.0, Outcome.WITHIN, 0),
        (1.0, math.nextafter(2.0, 3.0), 2.0, Outcome.UNPROVEN, 3),
        (2.0, 2.5, 2.0, Outcome.UNPROVEN, 3),
        (math.nextafter(2.0, 3.0), 2.5, 2.0, Outcome.EXCEEDED, 4),
        (0.0, math.inf, 2.0, Outcome.UNPROVEN, 3),
        (3.0, math.inf, 2.0, Outcome.EXCEEDED, 4),
    ],
)
def test_one_double_decides(lower, upper, epsilon, outcome, status, monkeypatch) -> None:
    """A proof at the budget passes and one double above does not; an attack exceeds it one double above, not at it."""
    found = against(lower, upper, epsilon, monkeypatch)
    assert found.outcome is outcome
    assert found.outcome.exit_status == status


def test_an_attack_on_a_run_that_only_bounds_the_execution_does_not_count(monkeypatch) -> None:
    """Where the described run is not what was executed, its lower bound says nothing about the execution."""
    assert against(3.0, 4.0, 2.0, monkeypatch).outcome is Outcome.EXCEEDED
    found = against(3.0, 4.0, 2.0, monkeypatch, attained=False)
    assert found.outcome is Outcome.UNPROVEN
    assert "attack" not in found.sentence


@pytest.mark.parametrize("error", [CertificationError("too deep"), UnsupportedError("no theorem")])
def test_what_cannot_be_certified_does_not_pass(error, monkeypatch) -> None:
    """Neither a failed computation nor a missing theorem lets a run through."""

    def refuse(run, *, tolerance):
        raise error

    monkeypatch.setattr("calipers.gate.outcome.measure", refuse)
    found = check(POISSON, Budget(epsilon=10, delta=1e-5))
    assert (found.outcome, found.outcome.exit_status) == (Outcome.UNCERTIFIED, 1)
    assert str(error) in found.sentence


def test_noise_calibrated_for_a_budget_passes_its_gate() -> None:
    """calibrate and check agree, although the budget lies inside the width of a usual measurement."""
    run = calibrate(POISSON, epsilon=3.0, delta=1e-5)
    assert check(run, Budget(epsilon=3.0, delta=1e-5)).outcome is Outcome.WITHIN
    assert check(run, Budget(epsilon=2.99, delta=1e-5)).outcome is Outcome.EXCEEDED


def test_a_budget_inside_the_numerical_width_is_looked_at_more_narrowly() -> None:
    """A budget just below the truth is exceeded although the first, wide bracket holds it."""
    first = measure(POISSON, tolerance=1e-3).epsilon(1e-5)
    narrow = measure(POISSON, tolerance=1e-5).epsilon(1e-5)
    below = narrow.lower * (1 - 1e-7)
    assert first.lower < below < first.upper
    assert check(POISSON, Budget(epsilon=below, delta=1e-5)).outcome is Outcome.EXCEEDED
    assert check(POISSON, Budget(epsilon=narrow.upper, delta=1e-5)).outcome is Outcome.WITHIN


def test_the_weaker_adversary_passes_only_where_the_budget_says_so() -> None:
    """A run in the isolated view has a smaller epsilon; a budget about every adversary refuses to be met by it."""
    isolated = POISSON.replace(view="isolated")
    with pytest.raises(InputError, match="isolated"):
        check(isolated, Budget(epsilon=10, delta=1e-5))
    assert check(isolated, Budget(epsilon=10, delta=1e-5, view="isolated")).outcome is Outcome.WITHIN


@pytest.mark.parametrize(
    ("view", "remedy"),
    [
        ("isolated", 'leave view out of the run, or say view = "isolated" in the budget'),
        ("worst-case", 'leave view out of the budget, or say view = "isolated" in the run'),
    ],
)
def test_the_remedy_for_another_view_names_the_side_that_lacks_it(view, remedy) -> None:
    """Whoever said view = "isolated" is not asked to say it again."""
    budget = Budget(epsilon=10, delta=1e-5, view="worst-case" if view == "isolated" else "isolated")
    with pytest.raises(InputError, match=remedy):
        budget.about((POISSON.replace(view=view),))


def test_a_view_that_nobody_named_is_said_to_be_assumed() -> None:
    """It was called described."""
    budget = Budget(epsilon=10, delta=1e-5, view="isolated")
    with pytest.raises(InputError, match="nobody named a view of the run, so 'worst-case' is assumed"):
        budget.about((POISSON,))
    with pytest.raises(InputError, match="the run is described with view='worst-case'"):
        budget.about((POISSON.replace(view="worst-case"),))


def test_a_budget_about_substitution_refuses_other_neighbors() -> None:
    """Epsilon under add-remove is about half of that under substitution: one budget must not be met by the other."""
    budget = Budget(epsilon=10, delta=1e-5, adjacency="substitute")
    with pytest.raises(InputError, match="adjacency"):
        check(POISSON.replace(adjacency="add-remove"), budget)
    unnamed = check(POISSON, budget)
    assert [run.adjacency for run in unnamed.runs] == ["substitute"]
    assert unnamed.bracket == check(POISSON.replace(adjacency="substitute"), budget).bracket
    assert check(POISSON.replace(adjacency="substitute"), budget).outcome is Outcome.WITHIN


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": -1, "delta": 1e-5},
        {"epsilon": math.nan, "delta": 1e-5},
        {"epsilon": math.inf, "delta": 1e-5},
        {"epsilon": 1, "delta": 0},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": 1e-5, "view": "mine"},
        {"epsilon": "3", "delta": 1e-5},
        {"epsilon": True, "delta": 1e-5},
        {"epsilon": 3},
        {"delta": 1e-5},
    ],
)
def test_a_budget_that_means_nothing_is_refused(wrong) -> None:
    """No default delta, no infinite budget, no text for a number."""
    with pytest.raises(InputError):
        configured(wrong)


def test_what_is_said_nearest_wins_key_by_key() -> None:
    """Options before the run file before pyproject.toml; a key that is left out comes from farther away."""
    found = configured({"epsilon": 1.0, "delta": None}, {"delta": 1e-6}, {"epsilon": 9.0, "delta": 1e-2})
    assert (found.epsilon, found.delta) == (1.0, 1e-6)


def test_add_remove_is_not_proven_where_only_one_side_has_a_finite_epsilon() -> None:
    """10,000 = 100 x 100: a record fewer takes a batch away, and whoever counts batches sees it."""
    run = Run(
        dataset_size=10_000,
        batch_size=100,
        epochs=1,
        noise_multiplier=2.0,
        sampler="shuffle",
        last_batch="drop",
        adjacency="add-remove",
    )
    found = check(run, Budget(epsilon=3.0, delta=1e-5))
    assert found.outcome.exit_status == 3
    said = "Not within the budget of epsilon = 3 at delta = 1e-5 for add-remove: for removing one record no epsilon is "
    said += "finite (one record fewer changes the number of batches); for adding one at most 0.62089 is proven, and an "
    assert found.sentence.startswith(said)
    assert found.sentence.count("no finite epsilon") == 1
    assert "The numbers promise nothing to the 10,000 whose records were used." in found.sentence
    assert check(run.replace(dataset_size=10_050), Budget(epsilon=3.0, delta=1e-5)).outcome.exit_status == 0
    fewer = check(run.replace(dataset_size=9_999), Budget(epsilon=0.1, delta=1e-5))
    assert fewer.outcome.exit_status == 4
    said = "exceeded for add-remove: for adding one record no epsilon is finite (one record more changes the number of "
    assert f"{said}batches); for removing one an explicit attack shows at least 0.61965" in fewer.sentence


def test_of_a_run_that_only_bounds_the_execution_it_is_not_certain(monkeypatch) -> None:
    """What was executed may have a finite epsilon where the run that bounds it has none."""
    found = Bracket(0.5, 1.0, EVIDENCE, EVIDENCE)
    monkeypatch.setattr("calipers.gate.outcome._narrow_enough", lambda run, budget: found)
    sizes = {"dataset_size": 40, "batch_size": 10, "epochs": 1, "noise_multiplier": 2.0, "last_batch": "drop"}
    run = Run(**sizes, sampler="shuffle", adjacency="add-remove")
    said = check(run, Budget(epsilon=3.0, delta=1e-5), attained=False).sentence
    assert said.startswith(
        "Not proven to be within the budget of epsilon = 3 at delta = 1e-5 for add-remove: for removing"
    )
    assert check(run, Budget(epsilon=3.0, delta=1e-5)).sentence.startswith("Not within the budget")


def test_a_last_batch_that_only_a_neighbor_has_is_said_to_be_one() -> None:
    """10,000 records fill 100 batches; 10,050 do not."""
    sizes = {"batch_size": 100, "epochs": 1, "noise_multiplier": 2.0, "adjacency": "add-remove"}
    for size in (10_000, 10_050):
        run = Run(dataset_size=size, sampler="shuffle", **sizes)
        said = check(run, Budget(epsilon=3.0, delta=1e-6)).sentence
        assert "Nobody said what becomes of a last, shorter batch" in said
        assert ("(there is none here, but one record more or fewer makes one)" in said) is (size == 10_000)
