"""Answers do not depend on the order of questions, to the last bit: each run is asked forward and backward."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from drivers.many import alone

from calipers.errors import CalipersError
from calipers.measure import Measurement, measure
from calipers.run import Run
from calipers.samplers import SAMPLERS

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="asks in a forked process, where nothing is cached"
)

CIFAR: dict[str, Any] = {"dataset_size": 50_000, "batch_size": 2048, "noise_multiplier": 1.6}
SMALL: dict[str, Any] = {"dataset_size": 1_000, "batch_size": 50, "noise_multiplier": 2.0}
FEW: dict[str, Any] = {"dataset_size": 40, "batch_size": 8, "noise_multiplier": 2.0, "steps": 6, "dimension": 20}
DEALT: dict[str, Any] = {"sampler": "shuffle", "epochs": 1}
ALLOCATED: dict[str, Any] = {"sampler": "random-allocation", "participations": 2, "steps": 24, "dataset_size": 50_000}

RUNS: list[dict[str, Any]] = [
    {**CIFAR, "epochs": 1},
    {**CIFAR, "epochs": 1, "adjacency": "substitute"},
    {**CIFAR, "epochs": 2, "sampler": "deterministic"},
    {**CIFAR, "steps": 50, "sampler": "without-replacement"},
    {**CIFAR, "steps": 50, "sampler": "cyclic-poisson", "cycle": 4},
    {**SMALL, "epochs": 2, "unit": "person", "records_per_unit": 3},
    {"sample_rate": 1e-4, "steps": 10_000, "noise_multiplier": 0.5},
    {"sample_rate": 1e-6, "steps": 1_000, "noise_multiplier": 0.3},
    {"sample_rate": 1e-6, "steps": 1_000_000, "noise_multiplier": 2.0},
    *({**CIFAR, **DEALT, "adjacency": adjacency} for adjacency in ("add-remove", "zero-out", "substitute")),
    {**CIFAR, **DEALT, "epochs": 3, "adjacency": "zero-out"},
    {**CIFAR, **DEALT, "epochs": 3, "adjacency": "zero-out", "reshuffle": "once"},
    {**CIFAR, **DEALT, "epochs": 2, "view": "isolated"},
    {**SMALL, **DEALT, "epochs": 2, "adjacency": "zero-out"},
    {**SMALL, **DEALT, "noise_multiplier": 8.0, "adjacency": "zero-out", "unit": "person", "records_per_unit": 3},
    {**CIFAR, "epochs": 2, "sampler": "balls-and-bins"},
    {**CIFAR, "epochs": 1, "sampler": "balls-and-bins", "adjacency": "substitute"},
    {**SMALL, "epochs": 2, "sampler": "balls-and-bins", "adjacency": "zero-out", "reshuffle": "once"},
    {**SMALL, "steps": 10, "sampler": "with-replacement"},
    {**SMALL, "steps": 10, "sampler": "truncated-poisson", "max_batch_size": 60},
    {**ALLOCATED, "noise_multiplier": 1.6},
    {**ALLOCATED, "noise_multiplier": 1.6, "adjacency": "substitute"},
    {**SMALL, "epochs": 2, "normalization": "expected", "dimension": 1_000},
    {**FEW, "normalization": "realized"},
]

QUESTIONS: dict[str, Callable[[Measurement], Any]] = {
    "epsilon(1e-5)": lambda measured: measured.epsilon(1e-5),
    "epsilon(1e-8)": lambda measured: measured.epsilon(1e-8),
    "delta(1)": lambda measured: measured.delta(1.0),
    "advantage": lambda measured: measured.advantage(),
    "mu": lambda measured: measured.gdp().mu,
    "tpr(1e-3)": lambda measured: measured.tpr(1e-3),
    "renyi(4)": lambda measured: measured.rdp(4.0),
    "epsilon(1e-3)": lambda measured: measured.epsilon(1e-3),
}


def _answer(name: str, measured: Measurement) -> list[float] | str:
    try:
        bracket = QUESTIONS[name](measured)
    except CalipersError as error:
        return str(error)
    return [bracket.lower, bracket.upper]


def _answers(asked: tuple[dict[str, Any], Sequence[str]]) -> dict[str, Any]:
    keys, order = asked
    measured = measure(Run(**keys))
    return {"answers": {name: _answer(name, measured) for name in order}}


def _differing(keys: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Questions whose answers differ, with both of them."""
    forward, backward = (alone(_answers, (keys, order))["answers"] for order in (names, names[::-1]))
    return {name: (forward[name], backward[name]) for name in names if forward[name] != backward[name]}


def name_of(keys: dict[str, Any]) -> str:
    words = [value for value in keys.values() if isinstance(value, str)]
    return "-".join([*(words or ["poisson"]), str(keys.get("epochs", keys.get("steps")))])


def test_the_order_of_questions_does_not_matter() -> None:
    """Four questions about a sampled run that is measured quickly."""
    assert _differing({**SMALL, "epochs": 5}, ["epsilon(1e-5)", "delta(1)", "advantage", "epsilon(1e-8)"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("keys", RUNS, ids=name_of)
def test_the_order_of_questions_never_matters(keys: dict[str, Any]) -> None:
    """Every bracket is the same, to the last bit; so is a refusal."""
    assert _differing(keys, list(QUESTIONS)) == {}


@pytest.mark.slow
def test_other_runs_do_not_matter_either() -> None:
    """Two runs of one process, with epochs in common: whichever comes first."""
    runs = [{**CIFAR, **DEALT, "adjacency": "zero-out", "epochs": epochs} for epochs in (1, 2)]
    orders = list(itertools.permutations(range(2)))
    found = [alone(_of_both, [runs[i] for i in order]) for order in orders]
    for which in range(2):
        first, second = (answers["answers"][order.index(which)] for answers, order in zip(found, orders, strict=True))
        assert first == second


def _of_both(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"answers": [_answers((keys, ("tpr(1e-3)", "epsilon(1e-5)")))["answers"] for keys in runs]}


def test_every_sampler_is_asked() -> None:
    """One added later is asked too."""
    assert {keys.get("sampler", "poisson") for keys in RUNS} == set(SAMPLERS)
