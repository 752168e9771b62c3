"""A body is read as the command line reads its options, and refused with the same sentences."""

from __future__ import annotations

import json

import pytest

from calipers.errors import InputError
from calipers.explorer.requests import MOST_POINTS, read_asked, read_asked_together, read_object
from calipers.run import Run

RUN = {"dataset_size": 1000, "batch_size": 10, "epochs": 3, "noise_multiplier": 1.5, "sampler": "shuffle"}


def test_options_and_run_file_describe_the_same() -> None:
    """The run may stand at the top or under "run"; either way it is the run of these keys."""
    flat, nested = read_asked({**RUN, "delta": 1e-6}), read_asked({"run": RUN, "delta": [1e-6]})
    assert flat.runs == nested.runs == (Run(**RUN),)
    assert flat.questions.deltas == (1e-6,)
    assert flat == nested


def test_what_is_left_out_takes_the_defaults_of_the_command_line() -> None:
    """delta = 1e-5, three false positive rates, delta0 = 1e-10, tolerance = 1e-3, and no epsilons."""
    asked = read_asked(RUN)
    questions = asked.questions
    assert (questions.deltas, questions.epsilons, questions.fprs) == ((1e-5,), (), (0.1, 0.01, 0.001))
    assert (questions.delta0, asked.tolerance) == (1e-10, 1e-3)


@pytest.mark.parametrize(
    "change",
    [{"delta": 1e-6}, {"epsilon": 1}, {"fpr": 0.2}, {"delta0": 1e-9}, {"tolerance": 0.01}, {"noise_multiplier": 1.6}],
)
def test_different_requests_are_not_equal(change: dict[str, object]) -> None:
    """Nothing that changes an answer is left out of what it is remembered by."""
    assert read_asked({**RUN, **change}) != read_asked(RUN)


def test_phases_follow_one_another() -> None:
    """{"phase": [...]} is what the record of several phases looks like, and is read back."""
    phases = [RUN, {**RUN, "noise_multiplier": 2.0}]
    assert [run.noise_multiplier for run in read_asked({"run": {"phase": phases}}).runs] == [1.5, 2.0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[1]", "one JSON object, got list"),
        (b"null", "one JSON object"),
        (b'{"noise_multiplier": NaN}', "NaN, which is no number"),
        (b'{"noise_multiplier": -Infinity}', "-Infinity"),
        (b'{"steps": 1, "steps": 2}', "given twice"),
        (b"[" * 20_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "not valid JSON"),
    ],
)
def test_what_is_not_one_sound_object_is_refused(body: bytes, reason: str) -> None:
    """Python's JSON reader is laxer than JSON; the explorer is not."""
    with pytest.raises(InputError, match=reason):
        read_object(body)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"noise_multiplier": "1"}, "noise_multiplier"),
        ({"noise_multiplier": True}, "noise_multiplier"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"dataset_size": 10**400}, "dataset_size"),
        ({"sampler": "roulette"}, "sampler"),
        ({"noise_multipler": 1}, "did you mean 'noise_multiplier'"),
        ({"sample_rate": 0.1}, "contradict"),
        ({"delta": 0}, "delta"),
        ({"delta": ["1e-5"]}, "delta"),
        ({"delta": [[1e-5]]}, "delta"),
        ({"delta": 10**400}, "delta"),
        ({"delta": [1e-5] * (MOST_POINTS + 1)}, "at most"),
        ({"delta0": None}, "delta0"),
        ({"tolerance": 1}, "tolerance"),
        ({"run": dict(RUN)}, "contradict"),
    ],
)
def test_bad_values_are_refused_by_name(change: dict[str, object], reason: str) -> None:
    """The sentence names the key or says what is wrong with it."""
    with pytest.raises(InputError, match=reason):
        read_asked({**RUN, **change})


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"runs": [RUN]}, "2 to 4"),
        ({"runs": [RUN] * 5}, "2 to 4"),
        ({"runs": "many"}, "2 to 4"),
        ({"runs": [RUN, 7]}, "JSON object, got int"),
        ({"runs": [RUN, RUN], "names": ["A", "A"]}, "2 different names"),
        ({"runs": [RUN, RUN], "names": ["A", "B", "C"]}, "2 different names"),
        ({"runs": [RUN, RUN], "names": ["A", ""]}, "1 to 40 characters"),
        ({"runs": [RUN, RUN], "noise_multiplier": 1}, "inside its own object"),
        ({"runs": [RUN, {"phase": []}]}, "1 to 8"),
        ({"runs": [RUN, {"phase": [RUN], "steps": 1}]}, "Unknown key 'steps'"),
    ],
)
def test_bad_comparisons_are_refused(record: dict[str, object], reason: str) -> None:
    """Two to four runs, each whole, each with a name of its own."""
    with pytest.raises(InputError, match=reason):
        read_asked_together(record)


def test_runs_to_compare_get_letters() -> None:
    """Without names the runs are called A, B and so on, and all are asked the same."""
    together = read_asked_together({"runs": [RUN, {**RUN, "epochs": 4}], "delta": 1e-7})
    assert together.names == ("A", "B")
    assert [asked.runs[0].epochs for asked in together.each] == [3, 4]
    assert {asked.questions.deltas for asked in together.each} == {(1e-7,)}


def test_a_record_of_the_command_line_can_be_sent_back() -> None:
    """The "run" of `measure --json` is a run to measure."""
    record = json.loads(json.dumps(Run(**RUN).to_dict()))
    assert read_asked({"run": record}).runs == (Run(**RUN),)
