"""No change passes: accidents by the digest, lies by the mathematics, whatever else by the reader."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from calipers.certificates import Certificate
from calipers.measure import measure
from calipers.run import Run
from calipers_verify import Refused, Verdict, verify
from calipers_verify.reading import MOST_BYTES, digest

Altered = Callable[[Certificate, Callable[[dict[str, Any]], object]], bytes]
Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the numbers, strings and other ends of a record are."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list):
        yield path
    for key, child in children:
        yield from leaves(child, (*path, key))


def put(record: Any, path: Path, value: object) -> None:
    for key in path[:-1]:
        record = record[key]
    record[path[-1]] = value


def get(record: Any, path: Path) -> Any:
    for key in path:
        record = record[key]
    return record


def nudged(value: Any) -> Any:
    """The value with its last digit or letter changed."""
    if isinstance(value, int):
        return value + 1 if value % 10 < 9 else value - 1
    if isinstance(value, str):
        last = value[-1]
        return value[:-1] + (str((int(last) + 1) % 10) if last.isdigit() else "x")
    return 0


@pytest.mark.parametrize("kind", ["small", "hidden"])
def test_every_changed_digit_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    """Every end of the record, with its last digit or letter changed, fails the digest."""
    record = json.loads(request.getfixturevalue(kind).to_json())
    paths = list(leaves(record))
    assert len(paths) > 100
    for path in paths:
        before = get(record, path)
        put(record, path, nudged(before))
        assert record["digest"] != digest(record), path
        put(record, path, before)
    for path in random.Random(1).sample(paths, 25):
        damaged = copy.deepcopy(record)
        put(damaged, path, nudged(get(record, path)))
        with pytest.raises(Refused):
            verify(json.dumps(damaged).encode())
    assert verify(json.dumps(record).encode()).claims


def proof_of(record: dict[str, Any], direction: str = "present-absent") -> dict[str, Any]:
    way = ["present-absent", "absent-present"].index(direction)
    found: dict[str, Any] = record["claims"][0]["proof"][way]
    return found


def law_of(record: dict[str, Any], direction: str = "present-absent") -> dict[str, Any]:
    found: dict[str, Any] = proof_of(record, direction)["factors"][0]["law"]
    return found


def move_left(record: dict[str, Any]) -> None:
    law = law_of(record)
    middle = len(law["places"]) // 2
    law["masses"][middle - 1] += law["masses"][middle]
    law["masses"][middle] = 0


def drop_node(record: dict[str, Any]) -> None:
    law = law_of(record)
    middle = len(law["places"]) // 2
    del law["places"][middle], law["masses"][middle]


def shift_all(record: dict[str, Any]) -> None:
    law = law_of(record)
    law["places"] = [place - 1 for place in law["places"]]


def scale_down(record: dict[str, Any]) -> None:
    law = law_of(record)
    law["masses"] = [mass * 999 // 1000 for mass in law["masses"]]


def drop_the_first_mass(record: dict[str, Any]) -> None:
    """No place sees it, but between 0 and the first place the law falls below 1 - k."""
    law_of(record)["masses"][0] = 0


def swap_directions(record: dict[str, Any]) -> None:
    proof = record["claims"][0]["proof"]
    for key in ("spacing", "factors"):
        proof[0][key], proof[1][key] = proof[1][key], proof[0][key]


def only_one_direction(record: dict[str, Any]) -> None:
    del record["claims"][0]["proof"][0]


def claim_a_bit_less(record: dict[str, Any]) -> None:
    claim = record["claims"][0]
    claim["epsilon"] = str(Fraction(claim["epsilon"]) * Fraction(999, 1000))


def claim_smaller_delta(record: dict[str, Any]) -> None:
    claim = record["claims"][0]
    claim["delta"] = str(Fraction(claim["delta"]) * Fraction(99, 100))


def claim_more_from_below(record: dict[str, Any]) -> None:
    claim = record["claims"][1]
    claim["epsilon"] = str(Fraction(claim["epsilon"]) * Fraction(1001, 1000))


def attack_the_other_way(record: dict[str, Any]) -> None:
    claim = record["claims"][1]
    claim["direction"] = {"present-absent": "absent-present", "absent-present": "present-absent"}[claim["direction"]]


def more_steps(record: dict[str, Any]) -> None:
    record["run"]["phases"][0]["steps"] += 1


def more_sampling(record: dict[str, Any]) -> None:
    record["run"]["phases"][0]["sample_rate"] = "101/1000"


def less_noise(record: dict[str, Any]) -> None:
    record["run"]["phases"][0]["noise_multiplier"] = "199/100"


def coarser_lattice_same_places(record: dict[str, Any]) -> None:
    for direction in ("present-absent", "absent-present"):
        proof = proof_of(record, direction)
        proof["spacing"] = str(Fraction(proof["spacing"]) / 2)


def no_infinity(record: dict[str, Any]) -> None:
    law_of(record)["infinity"] = 0


def negative_mass(record: dict[str, Any]) -> None:
    law_of(record)["masses"][0] = -law_of(record)["masses"][0]


def closed_form_of_sampling(record: dict[str, Any]) -> None:
    record["claims"][1]["attack"] = "fixed-batches"


def substituted_neighbors(record: dict[str, Any]) -> None:
    record["run"]["adjacency"] = "substitute"


LIES = [
    move_left,
    drop_node,
    shift_all,
    scale_down,
    drop_the_first_mass,
    swap_directions,
    only_one_direction,
    claim_a_bit_less,
    claim_smaller_delta,
    claim_more_from_below,
    attack_the_other_way,
    more_steps,
    more_sampling,
    less_noise,
    coarser_lattice_same_places,
    no_infinity,
    negative_mass,
    closed_form_of_sampling,
    substituted_neighbors,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_lies_are_refused_though_their_digest_fits(
    lie: Callable[[dict[str, Any]], object], small: Certificate, altered: Altered
) -> None:
    """What a dishonest producer might try, each by itself."""
    with pytest.raises(Refused):
        verify(altered(small, lie))
    assert verify(altered(small, lambda record: None)).claims


def not_refuted(verdict: Verdict) -> bool:
    """Whether the run that the certificate now speaks of has the numbers claimed, as far as `measure` can tell."""
    for phase in verdict.run["phases"]:
        sigma = float(Fraction(phase["noise_multiplier"]))
        if phase["sampler"] == "poisson":
            rate, steps = float(Fraction(phase["sample_rate"])), phase["steps"]
            run = Run(sample_rate=rate, steps=steps, noise_multiplier=sigma, adjacency=verdict.run["adjacency"])
        else:
            rate = 1 / phase["batches"]
            run = Run(sample_rate=rate, epochs=phase["epochs"], noise_multiplier=sigma, sampler="balls-and-bins")
    for claim in verdict.claims:
        measured = measure(run, tolerance=1e-2).epsilon(float(claim.delta))
        if claim.side == "upper" and float(claim.epsilon) < measured.lower:
            return False
        if claim.side == "lower" and float(claim.epsilon) > measured.upper:
            return False
    return True


@pytest.mark.parametrize("kind", ["small", "hidden"])
def test_whatever_is_changed_and_sealed_anew_is_refused_or_true(kind: str, request: pytest.FixtureRequest) -> None:
    """Random changes of random numbers: a verdict, if there is one, is not refuted by `measure`."""
    record = json.loads(request.getfixturevalue(kind).to_json())
    paths = [path for path in leaves(record) if path[0] in ("run", "claims")]
    # Long lists of numbers would crowd out everything else.
    scarce = [path for path in paths if not isinstance(path[-1], int)]
    rng, passed = random.Random(7), 0
    for trial in range(30):
        damaged = copy.deepcopy(record)
        path = scarce[trial % len(scarce)] if trial % 2 else rng.choice(paths)
        before = get(record, path)
        numbers = [0, 1, -1, 10**9, 2**300] + ([before * 2, before // 2, before - 1] if isinstance(before, int) else [])
        words: list[Any] = ["1/3", "1", "0", "upper", "lower", "both", "fixed-batches", "x"]
        put(damaged, path, rng.choice(numbers if isinstance(before, int) else words))
        damaged["digest"] = digest(damaged)
        try:
            verdict = verify(json.dumps(damaged).encode())
        except Refused:
            continue
        passed += 1
        assert not_refuted(verdict), path
    assert passed < 15


HOSTILE = {
    "nothing": b"",
    "not JSON": b"{",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "deep lists": b"[" * 1_000_000,
    "deep objects": b'{"a":' * 500_000,
    "NaN": b'{"format": NaN}',
    "infinity": b'{"format": -Infinity}',
    "a float": b'{"version": 1.0}',
    "a huge float": b'{"version": 1e999999}',
    "a huge number": b'{"version": ' + b"9" * 5_000_000 + b"}",
    "a key twice": b'{"version": 1, "version": 1}',
    "too long": b" " * (MOST_BYTES + 1),
    "code": b'__import__("os").system("true")',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_input_is_survived(data: bytes) -> None:
    """`Refused`, and nothing else."""
    with pytest.raises(Refused):
        verify(data)


@pytest.mark.parametrize("kind", ["small", "hidden"])
def test_wrong_kinds_of_values_are_refused_everywhere(kind: str, request: pytest.FixtureRequest) -> None:
    """null, true, lists, objects, strings, huge numbers, in place of ends of the record and of its inner objects."""
    record = json.loads(request.getfixturevalue(kind).to_json())
    ends = list(leaves(record))
    inner = {path[:depth] for path in ends for depth in range(1, len(path))}
    chosen = [path for path in (*ends, *sorted(inner, key=str)) if path[0] != "digest"]
    rng = random.Random(3)
    wrong: list[Any] = [None, True, [], {}, "text", -(10**99), [[]] * 3, "1/0"]
    for path in [*rng.sample(chosen, 40), *sorted((path for path in inner if len(path) < 4), key=str)]:
        for value in rng.sample(wrong, 3):
            if value == get(record, path):
                continue
            damaged = copy.deepcopy(record)
            put(damaged, path, value)
            damaged["digest"] = digest(damaged)
            if path == ("made_by",) and isinstance(value, str):
                continue
            if value is None and "sums" in path[-2:]:  # the closed form, which is another proof
                continue
            with pytest.raises(Refused):
                verify(json.dumps(damaged).encode())


def test_a_file_that_asks_for_endless_work_is_refused(small: Certificate, altered: Altered) -> None:
    """More steps than fit into the lattice, or more doublings than the checker spends on."""

    def endless(record: dict[str, Any]) -> None:
        record["run"]["phases"][0]["steps"] = 2**52
        for direction in ("present-absent", "absent-present"):
            proof = proof_of(record, direction)
            proof["factors"][0]["law"]["places"][-1] += 50_000  # a longer law, so that a few doublings are enough
        record["claims"][0]["delta"] = "1/1" + "0" * 59  # so that nothing is cut

    with pytest.raises(Refused, match=r"too many places|operations"):
        verify(altered(small, endless))


@pytest.mark.parametrize(
    "change",
    [
        {"centers": [0, 2**199, -(2**199)]},
        {"high": 2**200, "low": -(2**200), "reach": 20_000, "tail": 20_000},
        {"unit": "1/" + "9" * 60},
        {"unit": "1" + "0" * 30},
        {"lowest": [200, 0, 200]},
        {"lowest": [0], "centers": [0]},
        {"low": 10, "high": -10},
        {"blocks": {"unit": "1/8", "places": 100}},
        {"blocks": {"unit": "1/8", "places": 10**9}},
        {"blocks": []},
        {"cover": {}},
    ],
    ids=[
        "centers far apart",
        "endless rungs",
        "tiny unit",
        "huge unit",
        "rungs up and down",
        "too few centers",
        "no places",
        "blocks where none are proven",
        "endless blocks",
        "blocks that are none",
        "a cover that is none",
    ],
)
def test_wild_plans_are_refused_in_time(change: dict[str, Any], hidden: Certificate, altered: Altered) -> None:
    """A plan can waste, not harm: a wild one is refused, without a list or a loop that grows with its numbers."""

    def wild(record: dict[str, Any]) -> None:
        (how,) = proof_of(record)["factors"][0]["sums"]
        (how if "blocks" in change or "cover" in change else how["plan"]).update(change)

    with pytest.raises(Refused):
        verify(altered(hidden, wild))


def test_a_moving_rate_needs_both_pairs_of_neighbors(moving: Certificate, altered: Altered) -> None:
    """One pair proves nothing about the other: neither left out, nor given twice, nor with a factor missing."""
    assert verify(altered(moving, lambda record: None)).claims

    def proof(record: dict[str, Any]) -> Any:
        return record["claims"][0]["proof"]

    def one_pair(record: dict[str, Any]) -> None:
        del proof(record)[2:]

    def larger_pair_twice(record: dict[str, Any]) -> None:
        proof(record)[:2] = proof(record)[2:]

    def no_size_factor(record: dict[str, Any]) -> None:
        for direction in proof(record):
            del direction["factors"][1]

    def public_rate(record: dict[str, Any]) -> None:
        phase = record["run"]["phases"][0]
        phase["batch_size"] += 1

    def fixed(record: dict[str, Any]) -> None:
        record["claims"][0]["proof"] = "fixed-batches"
        record["claims"][0]["epsilon"] = "100"

    for lie in (one_pair, larger_pair_twice, no_size_factor, public_rate, fixed):
        with pytest.raises(Refused):
            verify(altered(moving, lie))


@pytest.mark.slow
def test_where_nothing_is_left_over_the_theorem_cannot_be_bent(kept: Certificate, altered: Altered) -> None:
    """No cover, one that covers less than it says, smaller batches, another order, less noise."""
    assert isinstance(kept.record["claims"][0]["proof"], list)
    assert verify(altered(kept, lambda record: None)).claims

    def phase(record: dict[str, Any]) -> Any:
        return record["run"]["phases"][0]

    def sums(record: dict[str, Any]) -> list[Any]:
        proof = record["claims"][0]["proof"]
        return [how for direction in proof for how in direction["factors"][0]["sums"] if how is not None]

    def without_cover(record: dict[str, Any]) -> None:
        for how in sums(record):
            how["cover"] = None

    def fewer_heavy_batches(record: dict[str, Any]) -> None:
        for how in sums(record):
            how["cover"]["few"] -= 1

    def one_batch_more(record: dict[str, Any]) -> None:
        for how in sums(record):
            how["cover"]["many"] += 2

    def smaller_exponent(record: dict[str, Any]) -> None:
        for how in sums(record):
            how["cover"]["exponent"] = "1/2"

    def smaller_batches(record: dict[str, Any]) -> None:
        phase(record)["dataset_size"] //= 10
        phase(record)["batch_size"] //= 10

    def once(record: dict[str, Any]) -> None:
        phase(record)["order"] = "once"

    def less_noise(record: dict[str, Any]) -> None:
        phase(record)["noise_multiplier"] = "29/10"

    lies = (without_cover, fewer_heavy_batches, one_batch_more, smaller_exponent, smaller_batches, once, less_noise)
    for lie in lies:
        with pytest.raises(Refused):
            verify(altered(kept, lie))
