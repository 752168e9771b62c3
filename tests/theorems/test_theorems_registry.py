"""The registry: every statement can be found, called and refused by name."""

from __future__ import annotations

import ast
import importlib
import math
import re
import string
import tomllib
from importlib import resources

import pytest

from calipers.citations import IMPLEMENTATIONS, STATEMENTS
from calipers.errors import CalipersError, ConditionError, InputError
from calipers.theorems import THEOREMS, Relation, evaluate, find, theorem
from calipers.theorems.registry import CONDITIONS

# A run whose noisy sum is divided by 3.5, by its floor, or by the size of the batch.
DIVIDED: dict[str, float] = {"dimension": 100, "dataset_size": 7, "sample_rate": 0.5, "noise_multiplier": 10.0}

# One point inside the conditions of every statement.
INSIDE: dict[str, dict[str, float]] = {
    "bu-clt-mu": {"sample_rate": 0.01, "steps": 1000, "noise_multiplier": 1.0},
    "dong-cor-5.4": {"sample_rate": 0.01, "steps": 1000, "noise_multiplier": 1.0},
    "gomez-prop-6.1": {"epsilon": 1.0},
    "vandijk-prop-c.2": {"noise_multiplier": 1.0},
    "vandijk-prop-c.3": {"noise_multiplier": 1.0, "rounds": 100},
    "chua-prop-3.1": {"epsilon": 1.0, "noise_multiplier": 1.0},
    "chua-prop-3.1-epsilon": {"delta": 1e-5, "noise_multiplier": 1.0},
    "chua-thm-4.1": {"epsilon": 1.0, "noise_multiplier": 1.0, "rounds": 10},
    "chua-conj-3.2-counterexample": {"epsilon": 0.5, "noise_multiplier": 2.0},
    "chua-eq-3-event": {"epsilon": 1.0, "noise_multiplier": 0.8, "rounds": 1000, "threshold": 3.43},
    "chua-eq-3": {"epsilon": 1.0, "noise_multiplier": 0.8, "rounds": 1000},
    "chua-eq-3-reversed": {"epsilon": 0.1, "noise_multiplier": 5.0, "rounds": 10},
    "chua-eq-3-epsilon": {"delta": 1e-5, "noise_multiplier": 0.7, "rounds": 1000},
    "chua-prop-c.2": {"noise_multiplier": 1.0, "rounds": 10},
    "chua-thm-4.2a": {"noise_multiplier": 0.3, "rounds": 10},
    "chua-thm-4.2b": {"epsilon": 1.0, "noise_multiplier": 0.3, "rounds": 10},
    "chua-thm-4.2b-beyond": {"noise_multiplier": 0.3, "rounds": 10},
    "chua-thm-4.2b-event": {"epsilon": 1.0, "noise_multiplier": 0.3, "rounds": 10},
    "ertan-eq-17": {"fpr": 0.1, "noise_multiplier": 0.3, "rounds": 1000},
    "ertan-eq-21": {"noise_multiplier": 0.3, "rounds": 1000},
    "ertan-noise-threshold": {"rounds": 1000},
    "ertan-lemma-6.2": {"noise_multiplier": 0.2, "rounds": 1000},
    "ertan-thm-6.1": {"noise_multiplier": 0.2, "rounds": 1000},
    "ertan-eq-30": {"noise_multiplier": 0.2, "rounds": 1000},
    "ertan-lemma-6.4": {"fpr": 0.1, "shuffle_fnr": 0.5, "sample_rate": 0.01, "rounds": 100},
    "ertan-poisson-transfer": {"separation": 0.3, "rounds": 100},
    "ertan-thm-6.3": {"noise_multiplier": 0.2, "rounds": 1000},
    "ertan-lemma-e.1": {"mu": 1.0},
    "ertan-lemma-e.2": {"epsilon": 1.0, "delta": 1e-5},
    "ertan-lemma-e.3": {"separation": 0.3, "delta": 1e-8},
    "ertan-eq-46": {"rounds": 1000, "epochs": 3, "noise_multiplier": 1.0},
    "ertan-eq-47": {"rounds": 1000, "epochs": 3, "noise_multiplier": 1.0},
    "ertan-eq-48": {"mu": 3.0},
    "ertan-eq-51": {"rounds": 1000, "s": 0.7},
    "ertan-eq-52": {"rounds": 1000, "s": 0.7},
    "vandijk-thm-4.1": {"noise_multiplier": 1.0, "rounds": 10**6},
    "vandijk-eq-53": {"noise_multiplier": 1.0, "rounds": 10**6},
    "vandijk-thm-4.1-rounds": {"delta": 0.01, "noise_multiplier": 1.0},
    "vandijk-eq-53-rounds": {"delta": 0.01, "noise_multiplier": 1.0},
    "vandijk-thm-4.1-dataset-size": {"delta": 0.01, "noise_multiplier": 1.0},
    "vandijk-eq-2": {"noise_multiplier": 1.0, "rounds": 10**6},
    "vandijk-eq-3": {"delta": 0.01, "noise_multiplier": 1.0},
    "vandijk-eq-4": {"noise_multiplier": 1.0},
    "vandijk-epochs": {"delta": 0.01, "epochs": 4, "fpr": 0.1},
    "vandijk-thm-5.1": {"noise_multiplier": 1.0, "rounds": 10**4, "x": 1.0},
    "vandijk-thm-5.2": {"noise_multiplier": 1.0, "rounds": 1000},
    "vandijk-thm-5.2-coefficients": {"noise_multiplier": 1.0},
    "vandijk-thm-5.2-epochs": {"noise_multiplier": 1.0, "c": 0.1},
    "vandijk-cor-5.3": {"noise_multiplier": 1.0, "rounds": 1000, "epochs": 3},
    "vandijk-cor-5.3-proven": {"noise_multiplier": 1.0, "rounds": 10**6, "epochs": 3},
    "vandijk-prop-d.2": {"noise_multiplier": 1.0, "rounds": 1000, "delta": 0.01},
    "vandijk-prop-d.4": {"noise_multiplier": 1.0, "rounds": 1000, "threshold": 1.0},
    "vandijk-prop-d.5": {"noise_multiplier": 1.0, "rounds": 1000, "fpr": 0.45},
    "vandijk-prop-d.6": {"noise_multiplier": 1.0, "rounds": 1000, "delta": 0.01},
    "vandijk-prop-d.7": {"noise_multiplier": 1.0, "rounds": 1000, "fpr": 0.45},
    "vandijk-prop-g.6": {"mu": 0.1},
    "vandijk-thm-5.2-delta-hat": {"mu": 0.1, "shift": 0.001},
    "vandijk-lemma-g.5": {"fpr": 0.1, "mu": 0.1, "shift": 0.001},
    "vandijk-sec-4.1-limit": {"fpr": 0.1, "delta_factor": 1.0, "epochs_factor": 0.5},
    "chua-prop-c.1": {"mean": 1.0, "threshold": 2.0, "noise_multiplier": 0.5},
    "chua-prop-c.3": {"delta": 0.1, "epsilon": 1.0, "smaller_epsilon": 0.9},
    "ertan-lemma-5.3": {"fixed_point": 0.3},
    "wang-lemma-2.6": {"fpr": 0.1, "copies": 20, "single_fpr": 0.2, "single_fnr": 0.3},
    "wang-eq-1": {"fpr": 0.1, "epsilon": 1.0, "delta": 1e-5},
    "wang-eq-2": {"fpr": 0.1, "fnr": 0.2, "delta": 1e-5},
    "wang-eq-3": {"fpr": 0.1, "fnr": 0.2, "epsilon": 1.0},
    "wang-thm-3.4": {"fpr": 0.1, "shift": 0.5, "scale": 0.9},
    "wang-thm-3.5": {"fpr": 0.1, "scale": 0.9},
    "wang-eq-4": {**DIVIDED, "fpr": 0.1, "alignment": 0.5},
    "wang-thm-3.6": {**DIVIDED, "fpr": 0.1},
    "wang-thm-3.6-delta": {**DIVIDED, "epsilon": 0.5},
    "wang-eq-7": {**DIVIDED, "fpr": 0.1, "alignment": 0.5},
    "wang-thm-3.7": {**DIVIDED, "fpr": 0.1},
    "wang-thm-3.7-delta": {**DIVIDED, "epsilon": 0.5},
    "wang-thm-3.8": {"fpr": 0.1, "dimension": 100, "dataset_size": 7},
    "wang-thm-3.9": {"fpr": 0.1, "fnr": 0.5, "dataset_size": 7},
    "wang-thm-3.10": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5},
    "wang-thm-3.11": {"fpr": 0.1, "dataset_size": 7, "sample_rate": 0.5},
    "wang-thm-3.12": {"fpr": 0.1, "copies": 10**4, "kl": 0.01, "kappa2": 0.02, "kappa3": 0.003},
    "wang-thm-3.13": {"fpr": 0.1, "dimension": 26010, "dataset_size": 999},
    "wang-thm-3.13-batch": {"fpr": 0.1, "dimension": 26010, "dataset_size": 999, "sample_rate": 0.7},
    "wang-lemma-3.14": {"fpr": 0.1, "dimension": 100, "dataset_size": 7},
    "wang-lemma-3.15": {"fpr": 0.1, "dimension": 100, "dataset_size": 7},
    "wang-lemma-3.15-batch": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5},
    "wang-lemma-3.16": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5},
    "wang-thm-a.2": {**DIVIDED, "fpr": 0.1, "alignment": 0.5},
    "wang-thm-a.3": {**DIVIDED, "fpr": 0.1},
    "wang-thm-a.3-delta": {**DIVIDED, "epsilon": 0.5},
    "wang-thm-a.4": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5},
    "wang-thm-a.6": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5, "steps": 3},
    "wang-thm-a.7": {"fpr": 0.1, "dimension": 26010, "dataset_size": 140199, "sample_rate": 0.005, "steps": 200},
    "wang-thm-b.1": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "steps": 3},
    "wang-thm-b.1-batch": {"fpr": 0.1, "dimension": 100, "dataset_size": 7, "sample_rate": 0.5, "steps": 3},
    "wang-cor-b.2": {"fpr": 0.1, "dimension": 26010, "dataset_size": 999, "steps": 200},
}


def test_every_statement_has_a_point_here():
    assert set(INSIDE) == set(THEOREMS)


@pytest.mark.parametrize("name", sorted(INSIDE))
def test_evaluating_gives_finite_values_with_their_meaning(name):
    """A value comes with its statement, its direction and a line that says how to read it."""
    result = evaluate(name, **INSIDE[name])
    assert all(math.isfinite(value) for value in result.values.values())
    assert result.value == next(iter(result.values.values()))
    assert result.statement.key == find(name).statement
    assert f"calipers.theorems.{find(name).function.__module__.rsplit('.', 1)[1]}" in " ".join(
        IMPLEMENTATIONS[result.statement.key]
    )
    assert result.direction in Relation
    # A reader looks for the number by the name that is printed before it.
    first = next(iter(result.values))
    words = set(re.findall(r"[A-Za-z_]+", result.reads.replace("G_", "G ")))
    assert {first, "value"} & words == {first}


@pytest.mark.parametrize("name", sorted(INSIDE))
@pytest.mark.parametrize("bad", [math.nan, math.inf, "1", True, None], ids=str)
def test_no_parameter_accepts_what_is_not_a_number(name, bad):
    """NaN, infinity, text, booleans and None are outside every domain, through the registry and directly."""
    for parameter in find(name).parameters:
        arguments = {**INSIDE[name], parameter.name: bad}
        with pytest.raises(InputError, match=parameter.name):
            evaluate(name, **arguments)
        with pytest.raises(InputError, match=parameter.name):
            find(name).function(**arguments, **find(name).at)


def test_an_unknown_name_is_told_with_those_most_like_it():
    with pytest.raises(InputError, match=r"did you mean .*chua-prop-3\.1"):
        evaluate("chua-prop-3.2")
    with pytest.raises(InputError, match="--list"):
        evaluate("banana")


def test_unknown_parameter_lists_what_exists():
    with pytest.raises(InputError, match=r"no parameter sigma.*noise_multiplier in \(0, inf\)"):
        evaluate("chua-prop-3.1", epsilon=1.0, sigma=1.0)


def test_missing_parameter_is_named_with_its_domain():
    with pytest.raises(InputError, match=r"also needs: noise_multiplier in \(0, inf\)"):
        evaluate("chua-prop-3.1", epsilon=1.0)


def test_whole_floats_are_accepted_as_counts():
    """A command line reads 1e6 as a float; a count written so is still a count."""
    whole = evaluate("vandijk-thm-4.1", noise_multiplier=1.0, rounds=1e6).value
    assert whole == evaluate("vandijk-thm-4.1", noise_multiplier=1.0, rounds=10**6).value
    with pytest.raises(InputError, match="the whole numbers from 3 on"):
        evaluate("vandijk-thm-4.1", noise_multiplier=1.0, rounds=1e6 + 0.5)


def test_a_name_cannot_be_taken_twice_and_parameters_must_match():
    register = theorem("chua-prop-3.1")
    with pytest.raises(InputError, match="registered twice"):
        register(lambda epsilon: epsilon)
    with pytest.raises(InputError, match="but takes"):
        register(lambda y: y)


def test_direct_calls_are_checked_like_calls_by_name():
    """Positions, names and whole numbers given as floats; what is too much is no call at all."""
    function = find("chua-thm-4.1").function
    assert function(1.0, 0.5, rounds=10.0) == evaluate("chua-thm-4.1", epsilon=1, noise_multiplier=0.5, rounds=10).value
    for wrong in ((-1.0, 0.5, 10), (1.0, 0.0, 10), (1.0, 0.5, 10.5)):
        with pytest.raises(InputError, match="Expected"):
            function(*wrong)
    with pytest.raises(TypeError):
        function(1.0, 0.5, 10, 7)


def test_conditions_are_errors_of_input():
    """A violated condition is refused with the condition's value, never answered."""
    with pytest.raises(ConditionError, match=r"0\.26904") as caught:
        evaluate("ertan-thm-6.1", noise_multiplier=0.3, rounds=1000)
    assert isinstance(caught.value, CalipersError)


def test_every_statement_of_these_papers_is_implemented():
    """No statement is registered and then left without a function, a theorem's or a sampler's."""
    for room in ("measure", "samplers", "training.loop", "training.gradients", "auditing.choosing"):
        importlib.import_module(f"calipers.{room}")
    for key in STATEMENTS:
        if key.split(":")[0] in ("chua2024", "vandijk2026", "ertan2026"):
            assert key in IMPLEMENTATIONS, key


def test_every_theorem_that_is_stated_has_a_function():
    """The files of statements name nothing that cannot be evaluated."""
    files = (resources.files("calipers.theorems") / "statements").iterdir()
    stated = [name for file in files for name in tomllib.loads(file.read_text("utf-8"))["theorems"]]
    assert sorted(stated) == sorted(THEOREMS)


def test_every_condition_is_refused_somewhere_with_the_values_that_it_names():
    """The files of statements say nothing that nobody raises, and leave no place empty."""
    raised: dict[str, set[str]] = {}
    for file in (resources.files("calipers.theorems")).iterdir():
        if file.name.endswith(".py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unmet":
                    raised[node.args[0].value] = {keyword.arg for keyword in node.keywords}
    named = {
        name: {field.split(".")[0] for _, field, _, _ in string.Formatter().parse(text) if field}
        for name, text in CONDITIONS.items()
    }
    assert raised == named
