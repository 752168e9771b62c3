"""A verdict names run, neighbors, view and theorem; what is added or removed is what is proven; no file is a bomb."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

import mpmath
import numpy as np

from calipers.certificates import Certificate, certify
from calipers.errors import UnsupportedError
from calipers.run import Run
from calipers_verify import Refused, reading, verify
from calipers_verify.neighbors import cut, neighbors_of
from calipers_verify.reading import MOST_EFFORT, digest
from calipers_verify.rows import ONE
from calipers_verify.wording import decimal

Altered = Callable[[Certificate, Callable[[dict[str, Any]], object]], bytes]
ROOT = Path(__file__).parents[2]


def sealed(run: dict[str, Any], proof: object = "fixed-batches", epsilon: str = "900", delta: str = "1/2") -> bytes:
    """A certificate with one upper claim and a digest that fits."""
    claim = {"jaw": "upper", "epsilon": epsilon, "delta": delta, "direction": "both", "proof": proof}
    record = {"format": "calipers-certificate", "version": 5, "run": run, "claims": [claim], "made_by": "a test"}
    return json.dumps(record | {"digest": digest(record)}).encode()


def phase(sampler: str = "shuffle", **keys: Any) -> dict[str, Any]:
    shared = {"sampler": sampler, "noise_multiplier": "8", "dataset_size": 43, "batch_size": 10, "last_batch": "drop"}
    own = {"order": "every-epoch", "view": "worst-case"} if sampler == "shuffle" else {}
    return shared | own | {"epochs": 1} | keys


def of(adjacency: str, *phases: dict[str, Any]) -> dict[str, Any]:
    return {"adjacency": adjacency, "phases": list(phases)}


def batches(size: int, batch: int, last: str) -> int:
    """How many a loader yields, counted by cutting a list."""
    pieces = [range(size)[start : start + batch] for start in range(0, size, batch)]
    return len([piece for piece in pieces if last == "keep" or len(piece) == batch])


def test_neighbors_exist_where_a_loader_yields_as_many_batches() -> None:
    """Every small size: N - 1 and N + 1 count as neighbors exactly if cutting them gives as many batches."""
    for size, batch, last in itertools.product(range(1, 25), range(1, 9), ("drop", "keep")):
        if batch > size:
            continue
        found = cut(size, batch, last)
        same = {n for n in (size - 1, size + 1) if batches(n, batch, last) == batches(size, batch, last)}
        assert found.neighbors == same, (size, batch, last)
        assert found.rounds + (last == "keep") == batches(size, batch, last)
        assert found.rounds * batch + found.rest == size


def shown(eps: float, sigma: float, last: str, size: int, batch: int) -> float:
    """delta of the attack on a real loader with and without the record, by counting permutations, two batches.

    The record has u in full batches, all others -u; in a last batch that is kept everybody has v.
    """

    def mixture(members: int, member: bool) -> dict[tuple[float, ...], float]:
        found: dict[tuple[float, ...], float] = {}
        for order in itertools.permutations(range(members)):
            cut_up = [order[i * batch : (i + 1) * batch] for i in range(2)]
            full = cut_up if last == "drop" else cut_up[:1]
            place = [sum(1.0 if member and j == 0 else -1.0 for j in one) for one in full]
            place += [] if last == "drop" else [float(len(cut_up[1]))]
            found[tuple(place)] = found.get(tuple(place), 0.0) + 1 / math.factorial(members)
        return found

    grid = np.linspace(-8 * sigma - 4, 8 * sigma + 4, 1201)
    step = (grid[1] - grid[0]) ** 2 / (2 * math.pi * sigma**2)

    def density(found: dict[tuple[float, ...], float]) -> Any:
        along = [np.exp(-((grid - at) ** 2) / (2 * sigma**2)) for at in range(-batch, batch + 1)]
        return sum(w * np.outer(along[int(a) + batch], along[int(b) + batch]) for (a, b), w in found.items())

    p, q = density(mixture(size, True)), density(mixture(size - 1, False))
    k = math.exp(eps)
    return float(max(np.sum(np.maximum(p - k * q, 0.0)), np.sum(np.maximum(q - k * p, 0.0))) * step)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "last"), [(5, "drop"), (4, "keep")])
def test_tiny_loaders_show_what_is_certified(size: int, last: str, coarse: None) -> None:
    """All permutations of a loader with and without the record: between both bounds."""
    keys = {"dataset_size": size, "batch_size": 2, "epochs": 1, "noise_multiplier": 2.0, "sampler": "shuffle"}
    run = Run(**keys, last_batch=last, adjacency="add-remove")
    low, high = certify(run, epsilon=0.5).delta
    truth = shown(0.5, 2.0, last, size, 2)
    assert low is not None
    assert high is not None
    assert 0.8 * truth < low <= truth + 1e-9
    assert truth - 1e-9 <= high < 1.25 * truth
    assert last == "keep" or abs(truth - 0.10216) < 1e-4  # printed as add-remove before: 0.02374


def test_numbers_of_the_first_screen() -> None:
    """60,000 records, batches of 256, 60 epochs, sigma 1.1: fixed batches 54.046, really removed [14.172, 14.177]."""
    keys = {"dataset_size": 60000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1}
    fixed = certify(Run(**keys, sampler="deterministic", adjacency="zero-out"), delta=1e-5)
    assert all(end is not None and abs(end - Fraction("54.046")) < Fraction("0.0005") for end in fixed.epsilon)
    mu, eps = math.sqrt(60) / 1.1, 54.046
    delta = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
    assert abs(delta / 1e-5 - 1) < 1e-3
    example = json.loads((ROOT / "examples" / "certificates" / "shuffle.cert.json").read_text("utf-8"))
    assert example["run"] == of("add-remove", example["run"]["phases"][0])
    stated = {"dataset_size": 60000, "batch_size": 256, "epochs": 60, "noise_multiplier": "1.1", "last_batch": "drop"}
    assert stated.items() <= example["run"]["phases"][0].items()
    high, low = (Fraction(claim["epsilon"]) for claim in example["claims"])
    assert 14 < low <= Fraction("14.177")
    assert Fraction("14.172") <= high < Fraction("14.25")


def test_a_zeroed_out_proof_is_not_one_of_a_removed_record(altered: Altered) -> None:
    """What was certified as add-remove before: refused by its version, and by the mathematics if sealed anew."""
    keys = {"dataset_size": 43, "batch_size": 10, "epochs": 2, "noise_multiplier": 8.0}
    zeroed = certify(Run(**keys, sampler="deterministic", adjacency="zero-out"), delta=1e-3)

    def relabelled(record: dict[str, Any]) -> None:
        record["run"]["adjacency"] = "add-remove"

    with pytest.raises(Refused, match="zeroed out is adjacency zero-out"):
        verify(altered(zeroed, relabelled))
    with pytest.raises(Refused, match=r"version 5: certify the run again.*meant a record zeroed out"):
        verify(altered(zeroed, lambda record: record.update(version=3)))


@pytest.mark.slow
def test_a_zeroed_out_proof_of_a_shuffled_run_is_refused(altered: Altered, coarse: None) -> None:
    """Laws of a shuffled run whose record is zeroed out prove less than a removed one shows."""
    keys = {"dataset_size": 43, "batch_size": 10, "epochs": 1, "noise_multiplier": 4.0, "sampler": "shuffle"}
    zeroed = certify(Run(**keys, adjacency="zero-out"), delta=1e-3)
    assert verify(altered(zeroed, lambda record: None)).claims
    with pytest.raises(Refused, match="really added or removed"):
        verify(altered(zeroed, lambda record: record["run"].update(adjacency="add-remove")))


@pytest.mark.parametrize(
    "change",
    [
        {"dataset_size": 41},
        {"dataset_size": 53},
        {"batch_size": 7},
        {"last_batch": "keep"},
        {"order": "once"},
        {"epochs": 3},
        {"noise_multiplier": "7.9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_sizes_of_a_removed_record_cannot_be_bent(
    change: dict[str, Any], removed: Certificate, altered: Altered
) -> None:
    """M, R and participation are derived from the sizes: every change for the worse is refused."""
    assert verify(altered(removed, lambda record: None)).claims
    with pytest.raises(Refused):
        verify(altered(removed, lambda record: record["run"]["phases"][0].update(change)))


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({}, "adding or removing one record (add-remove, N = 43)"),
        ({"dataset_size": 40}, "adding one record (add-remove, N against N+1: 40 records against 41"),
        ({"dataset_size": 49}, "removing one record (add-remove, N against N-1: 49 records against 48"),
        ({"dataset_size": 41, "last_batch": "keep"}, "N against N+1: 41 records against 42"),
        ({"dataset_size": 40, "last_batch": "keep"}, "N against N-1: 40 records against 39"),
    ],
)
@pytest.mark.parametrize("sampler", ["shuffle", "deterministic"])
def test_the_neighbor_that_exists_is_named(keys: dict[str, Any], named: str, sampler: str) -> None:
    """In the sentence and in the block."""
    verdict = verify(sealed(of("add-remove", phase(sampler, **keys))))
    assert named in verdict.sentences()[0]
    assert any(line.startswith("neighbors: ") and named in line for line in verdict.scope)


def test_participation_is_that_of_the_larger_dataset() -> None:
    """MB/N where a record can be removed, MB/(N + 1) where one can only be added; the common neighbor of phases."""
    for size, share in ((43, Fraction(40, 43)), (40, Fraction(40, 41))):
        scope = "\n".join(verify(sealed(of("add-remove", phase(dataset_size=size)))).scope)
        assert f"M = 4, participation {share}" in scope
    both = neighbors_of("add-remove", (("shuffle", 8, 43, 10, "drop"), ("deterministic", 8, 43, 2, "drop")))
    assert both.others == {42}
    assert both.larger == 43


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ([phase(batch_size=1)], "no dataset with one record more or less"),
        ([phase(), phase(dataset_size=44)], "dataset_size differs between phases"),
        (
            [phase(dataset_size=40), phase(dataset_size=40, batch_size=3), phase(dataset_size=40, batch_size=41)],
            "batch_size 41",
        ),
        ([phase(dataset_size=39, batch_size=10), phase(dataset_size=39, batch_size=13)], "no dataset with one record"),
    ],
)
def test_phases_without_a_common_neighbor_are_refused(phases: list[dict[str, Any]], says: str) -> None:
    """Nothing finite holds where no neighbor has as many batches; zeroed out it may."""
    with pytest.raises(Refused, match=says):
        verify(sealed(of("add-remove", *phases)))


def test_what_has_no_neighbor_or_no_sizes_gets_no_certificate() -> None:
    """A batch of one record, a rate without sizes."""
    single = Run(
        dataset_size=1000, batch_size=1, epochs=1, noise_multiplier=1.0, sampler="shuffle", adjacency="zero-out"
    )
    with pytest.raises(UnsupportedError, match="1,000 shuffled batches of one record"):
        certify(single, delta=1e-5)
    with pytest.raises(UnsupportedError, match="dataset_size and batch_size"):
        certify(
            Run(sample_rate=0.25, epochs=1, noise_multiplier=8.0, sampler="shuffle", adjacency="zero-out"), delta=1e-3
        )


POISSON = {"sampler": "poisson", "noise_multiplier": "1.50", "sample_rate": "1/8", "steps": 20}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (of("add-remove", POISSON), ["Poisson sampling at the public rate 0.125", "20 steps", "noise multiplier 1.5"]),
        (of("substitute", POISSON), ["replacing one record"]),
        (of("zero-out", phase()), ["zeroing out one record", "N = 43", "4 batches of 10", "1 epoch,"]),
        (of("add-remove", POISSON, phase()), ["20 steps, noise multiplier 1.5; then batches shuffled", "N = 43"]),
    ],
)
def test_every_verdict_says_which_run_is_meant(run: dict[str, Any], words: list[str]) -> None:
    """Sampler, sizes, length, noise and neighbors in the sentence; view, release, condition and theorem beside it."""
    verdict = verify(sealed(run))
    assert all(word in verdict.sentences()[0] for word in words)
    lines = verdict.lines()
    assert lines[0].startswith("proven: The run is differentially private with epsilon = 900 and delta = 0.5, for ")
    heads = [line.partition(":")[0] for line in lines]
    assert heads[1:6] == ["run", "neighbors", "view", "released", "conditions"]
    assert set(heads[6:]) == {"trusted"}
    text = "\n".join(lines)
    assert "undivided; dividing it by public constants is post-processing" in text
    assert "noise, rate and number of steps were fixed in advance" in text


def test_an_isolated_view_is_not_called_differentially_private() -> None:
    """Neither alone nor among other phases."""
    for phases in ([phase(view="isolated")], [POISSON, phase(view="isolated")]):
        verdict = verify(sealed(of("add-remove", *phases)))
        assert "is differentially private" not in "\n".join(verdict.lines())
        assert verdict.sentences()[0].startswith("In the isolated view, which is not differential privacy, ")


def test_numbers_are_printed_from_their_value() -> None:
    """However they are written."""
    written = {"0.0000000001e10": "1", "0.0001e10": "1000000", "0.00001": "1e-5", "1/3": "1/3", "12.50": "12.5"}
    written |= {"0.00012345": "1.2345e-4", "0": "0", "1e-60": "1e-60", "0.001": "0.001", "-0.5": "-0.5", "3/8": "0.375"}
    for text, shown in written.items():
        assert decimal(Fraction(text)) == shown
    (sentence,) = verify(sealed(of("add-remove", POISSON), epsilon="0.000009e8", delta="0.00005e4")).sentences()
    assert "with epsilon = 900 and delta = 0.5," in sentence


def law(places: list[int], masses: list[int]) -> dict[str, Any]:
    return {"law": {"places": places, "masses": masses, "infinity": ONE}, "sums": [None]}


HUGE = {"noise_multiplier": "1", "dataset_size": 99_999_999}
BOMBS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "all but certain": (
        {"sampler": "poisson-realized", **HUGE, "sample_rate": f"{2**53 - 1}/{2**53}"},
        [law([0, 1], [1, 1])],
    ),
    "realized": ({"sampler": "poisson-realized", **HUGE, "sample_rate": "1/2"}, [law([0, 1], [1, 1])]),
    "moving": ({"sampler": "poisson-moving", **HUGE, "batch_size": 5 * 10**7}, [law([0, 1], [1, 1])] * 2),
    "growing": ({"sampler": "poisson", "noise_multiplier": "1", "sample_rate": "1/2"}, [law([0, 1], [ONE, ONE])]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("stated", "factors"), BOMBS.values(), ids=BOMBS.keys())
def test_work_is_charged_before_it_is_done(stated: dict[str, Any], factors: list[Any]) -> None:
    """Small files about huge datasets, and masses that double their length with every doubling: little work each."""
    steps = 2**52 if stated["sampler"] == "poisson" else 1
    proof = [{"spacing": "1", "factors": factors}] * (4 if stated["sampler"] == "poisson-moving" else 2)
    with pytest.raises(Refused):
        verify(sealed(of("add-remove", stated | {"steps": steps}), proof))
    assert MOST_EFFORT - reading._LEFT.get() < 1_500_000


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("law", "masses", 0), -1, "masses should be a whole number from 0 to about 2.32e"),
        (("law", "infinity"), -1, "infinity should be a whole number"),
        (("sums", 0, "plan", "high"), -1, "low and high of a plan leave no node"),
        (("sums", 0, "plan", "high"), 2**255, "high should be a whole number"),
        (("sums", 0, "plan", "centers"), [0], "centers and lowest of a plan should have 2 entries"),
        (("law", "places"), [0, 1], "masses of a distribution should be as many as its places"),
        (("sums",), [None, None], "sums should be one for all places"),
    ],
)
def test_refusals_name_the_field(
    path: tuple[Any, ...], value: Any, says: str, removed: Certificate, altered: Altered
) -> None:
    """No "does not fit together": which field, and what it should be."""

    def change(record: dict[str, Any]) -> None:
        at = record["claims"][0]["proof"][0]["factors"][0]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    with pytest.raises(Refused, match=says):
        verify(altered(removed, change))


def test_without_flint_the_checker_says_what_to_install() -> None:
    """One sentence with the command, exit status 2, no traceback."""
    code = (
        "import runpy, sys; sys.modules['flint'] = None; sys.argv = ['calipers_verify', 'run.cert.json']; "
        "runpy.run_module('calipers_verify', run_name='__main__')"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.strip().endswith("pip install python-flint")
    assert "Traceback" not in found.stderr
