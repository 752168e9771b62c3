"""The words of other libraries in Python: understood where they mean the same, else answered precisely."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import calipers as cp
from calipers.domains import choice
from calipers.errors import InputError
from calipers.run import ADJACENCIES, CHOICES, KEYS
from calipers.synonyms import ADJACENCIES as NAMES
from calipers.synonyms import KEYS as OTHER_KEYS
from calipers.synonyms import SENTENCES

RUN = {"sample_rate": 0.01, "steps": 100, "noise_multiplier": 1.0}


@pytest.mark.parametrize(("adjacency", "name"), [(here, name) for here, names in NAMES.items() for name in names])
def test_neighbors_have_one_name_once_they_are_read(adjacency: str, name: str) -> None:
    """A run, a guarantee and a budget hold the word of Calipers, whichever was written: nobody compares another."""
    for written in (name, name.upper().replace("-", "_")):
        assert cp.Run(**RUN, adjacency=written) == cp.Run(**RUN, adjacency=adjacency)
        assert cp.Run(**RUN).replace(adjacency=written).adjacency == adjacency
        assert cp.Guarantee(epsilon=1.0, delta=1e-5, adjacency=written).adjacency == adjacency
        assert cp.Budget(epsilon=1.0, delta=1e-5, adjacency=written).adjacency == adjacency


def test_no_name_has_two_meanings() -> None:
    """Neither of neighbors nor of keys, and none is a word of Calipers with another meaning."""
    assert set(NAMES) == set(ADJACENCIES)
    names = [name for listed in NAMES.values() for name in listed]
    assert len(names) == len(set(names))
    assert not set(names) & set(ADJACENCIES)
    others = [name for listed in OTHER_KEYS.values() for name in listed]
    assert len(others) == len(set(others))
    assert not set(others) & set(KEYS)
    assert not set(SENTENCES) & set(KEYS)


def test_a_function_that_takes_only_the_words_of_calipers_says_which() -> None:
    """It does not let another word pass unread, which would be taken for none of the three."""
    with pytest.raises(InputError, match=r"Write adjacency='substitute'\."):
        choice("adjacency", "replace-one", ADJACENCIES)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("sigma", "did you mean 'noise_multiplier'"),
        ("noise", "did you mean 'noise_multiplier'"),
        ("q", "did you mean 'sample_rate'"),
        ("sampling_probability", "did you mean 'sample_rate'"),
        ("num_steps", "did you mean 'steps'"),
        ("neighboring_relation", "did you mean 'adjacency'"),
        ("loss_reduction", "did you mean 'normalization'"),
        ("max_grad_norm", "noise_multiplier is the standard deviation of the noise divided by it"),
        ("l2_norm_clip", "noise_multiplier is the standard deviation of the noise divided by it"),
        ("drop_last", "Write last_batch='drop' for drop_last=True"),
        ("target_epsilon", "calipers.calibrate"),
        ("delta", r"measure\(run\)\.epsilon\(delta=1e-5\)"),
        ("lr", "leave it out"),
        ("noise_multiplyer", "did you mean 'noise_multiplier'"),
    ],
)
def test_a_key_from_elsewhere_is_answered_with_what_to_write(key: str, said: str) -> None:
    """By the constructor, by a mapping and by `replace` alike."""
    for build in (lambda: cp.Run(**RUN, **{key: 1}), lambda: cp.Run.from_dict(RUN | {key: 1})):
        with pytest.raises(InputError, match=said):
            build()
    with pytest.raises(InputError, match=said):
        cp.Run(**RUN).replace(**{key: 1})


def test_a_mean_is_asked_what_it_is_divided_by() -> None:
    """Three divisors are called a mean, with different privacy."""
    with pytest.raises(InputError, match=r"realized.*floor.*expected.*constant"):
        cp.Run(**RUN, normalization="mean")
    assert "mean" not in CHOICES["normalization"]


def test_the_constructor_still_shows_its_keys_and_runs_are_copied() -> None:
    """Editors read its signature; `copy` and `pickle` build runs without it."""
    assert set(inspect.signature(cp.Run).parameters) == set(KEYS)
    run = cp.Run(**RUN)
    assert copy.copy(run) == copy.deepcopy(run) == pickle.loads(pickle.dumps(run)) == run


def test_a_target_by_another_name_is_named() -> None:
    """As `target_epsilon` of Opacus."""
    with pytest.raises(TypeError, match="Did you mean 'epsilon'"):
        cp.calibrate(cp.Run(**RUN), target_epsilon=3.0)


def test_what_is_no_run_is_refused_in_a_sentence() -> None:
    """A number, for one."""
    with pytest.raises(InputError, match="Expected a Run, or several in a list, got int"):
        cp.measure(5)


@pytest.mark.dp_accounting
def test_an_event_is_answered_with_how_it_is_measured() -> None:
    """Alone or in a list; and its relation is understood as an adjacency."""
    library = pytest.importorskip("dp_accounting")
    event = library.GaussianDpEvent(1.0)
    for given in (event, [event]):
        with pytest.raises(InputError, match="measurement_of"):
            cp.measure(given)
    from calipers.adapters.dp_accounting import RELATIONS, measurement_of

    for adjacency, name in RELATIONS.items():
        relation = library.NeighboringRelation[name]
        assert cp.Run(**RUN, adjacency=relation).adjacency == adjacency
        found = (measurement_of(event, adjacency=word).epsilon(1e-5).upper for word in (adjacency, relation, name))
        assert len(set(found)) == 1
