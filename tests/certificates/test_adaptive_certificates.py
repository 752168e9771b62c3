"""Certificates of adaptive runs: what is proven for every choice, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from click.testing import CliRunner
from drivers.certified_runs import wide_cells
from flint import ctx, fmpz

import calipers as cp
from calipers.certificates import Certificate, certify
from calipers.cli import main
from calipers_verify import Refused, verify
from calipers_verify.__main__ import main as checker
from calipers_verify.adaptive import all_policies
from calipers_verify.pmfs import LatticePmf
from calipers_verify.rows import ONE, Row

Change = Callable[[dict[str, Any]], object]


def poisson(rate: float, steps: int, noise: float, **more: Any) -> cp.Run:
    return cp.Run(sample_rate=rate, steps=steps, noise_multiplier=noise, **more)


def best(laws: list[dict[int, float]], costs: list[int], budget: int, h: float, x: float) -> float:
    """W at e^x over all policies, by the definition: no lattice, no window."""
    found = max(-math.expm1(x), 0.0)
    for law, cost in zip(laws, costs, strict=True):
        if cost <= budget:
            rest = math.fsum(p * best(laws, costs, budget - cost, h, x - i * h) for i, p in law.items())
            found = max(found, rest + max(0.0, 1.0 - math.fsum(law.values())))
    return found


@pytest.mark.parametrize("window", [(-60, 60), (-3, 4), (0, 2)])
def test_the_checkers_recursion_bounds_every_policy(window: tuple[int, int]) -> None:
    """Laws with two or three atoms: never below the best policy, and equal to it where the window is wide."""
    laws = [{-1: 0.25, 1: 0.75}, {-2: 0.125, 0: 0.5, 3: 0.34375}]
    costs, h = [1, 2], Fraction(1, 4)
    rows = []
    for law in laws:
        low, high = min(law), max(law)
        masses = [fmpz(int(Fraction(law.get(i, 0)) * ONE)) for i in range(low, high + 1)]
        rows.append(LatticePmf(h, Row(low, masses), ONE - int(sum(masses))))
    with ctx.workprec(320):
        for budget, epsilon in itertools.product((1, 2, 3, 5), (0.0, 0.25, 0.3, 1.0)):
            truth = best(laws, costs, budget, float(h), epsilon)
            curve = all_policies(rows, costs, budget, window)
            assert curve.delta(Fraction(epsilon)) >= truth - 1e-15
            if window[0] == -60 and epsilon != 0.3:  # a lattice point, and nothing leaves the window
                assert curve.delta(Fraction(epsilon)) <= truth + 1e-15


@pytest.mark.slow
def test_the_published_attack_does_not_exceed_what_is_certified() -> None:
    """Twenty steps, then 400 or one, chosen by what was released: epsilon 3.007 is attacked, both paths say 2.855."""
    menu = {"start": poisson(0.05, 20, 1.0), "many": poisson(0.05, 400, 2.0), "one": poisson(0.05, 1, 0.699)}
    run = cp.AdaptiveRun(menu, {"start": 1, "many": 2, "one": 2}, 3)
    measured = cp.measure(run).epsilon(1e-5)
    proven = certify(run, delta=1e-5).epsilon[1]
    assert proven is not None
    assert 3.007 <= measured.lower <= float(proven) <= 1.01 * measured.upper
    asked = certify(run, epsilon=3.0).delta[1]
    assert asked is not None
    assert cp.measure(run).delta(3.0).lower <= float(asked) <= 1.05e-5


def test_the_verdict_says_for_which_choices_it_holds(chosen: Certificate) -> None:
    """Menu, costs, budget, neighbors, view, condition and theorem, made from the values that were checked."""
    text = "\n".join(chosen.verdict.lines())
    assert text.startswith("proven: Whatever was chosen, the run is differentially private with epsilon = ")
    for said in (
        "run: steps chosen while it ran, 4 units of budget spent at most: for 2 units Poisson sampling at the public "
        "rate 0.1, 4 steps, noise multiplier 2; for 1 unit Gaussian releases that one record shifts by at most 1, "
        "unsampled, 1 step, noise multiplier 8",
        "neighbors: adding or removing one record (add-remove)",
        "view: worst case",
        "conditions: menu, costs and budget were fixed in advance",
        "chosen by what had been released and by nothing else of the data",
        "trusted: the recursion over the remaining budget",
        "trusted: the theorem of a record drawn into a step with probability q",
    ):
        assert said in text
    assert "noise, rate and number of steps were fixed in advance" not in text


def claim_of(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["claims"][0]
    return found


def times(key: str, factor: Fraction) -> Change:
    def change(record: dict[str, Any]) -> None:
        claim_of(record)[key] = str(Fraction(claim_of(record)[key]) * factor)

    return change


def law_of(record: dict[str, Any], way: int, step: int) -> dict[str, Any]:
    found: dict[str, Any] = claim_of(record)["proof"][way]["steps"][step]["factors"][0]["law"]
    return found


def lighter(way: int, step: int) -> Change:
    def change(record: dict[str, Any]) -> None:
        law = law_of(record, way, step)
        law["masses"] = [mass * 999 // 1000 for mass in law["masses"]]

    return change


def moved_left(way: int, step: int) -> Change:
    def change(record: dict[str, Any]) -> None:
        law = law_of(record, way, step)
        law["places"] = [place - 1 for place in law["places"]]

    return change


def other_spacing(record: dict[str, Any]) -> None:
    claim_of(record)["proof"][0]["steps"][0]["spacing"] = "1/1024"


def one_direction(record: dict[str, Any]) -> None:
    del claim_of(record)["proof"][1]


def one_step_unproven(record: dict[str, Any]) -> None:
    for proof in claim_of(record)["proof"]:
        del proof["steps"][0]


def set_step(place: int, key: str, value: object) -> Change:
    def change(record: dict[str, Any]) -> None:
        record["run"]["menu"][place]["step"][key] = value

    return change


LIES: dict[str, Change] = {
    "epsilon": times("epsilon", Fraction(999, 1000)),
    "delta": times("delta", Fraction(99, 100)),
    "budget": lambda record: record["run"].update(budget=5),
    "cost": lambda record: record["run"]["menu"][0].update(cost=1),
    "cost of the release": lambda record: record["run"]["menu"].append({**record["run"]["menu"][1]}),
    "noise": set_step(0, "noise_multiplier", "199/100"),
    "noise of the release": set_step(1, "noise_multiplier", "799/100"),
    "rate": set_step(0, "sample_rate", "101/1000"),
    "steps": set_step(0, "steps", 5),
    "releases": set_step(1, "steps", 2),
    "neighbors": lambda record: record["run"].update(adjacency="substitute"),
    "own neighbors": lambda record: record["run"].update(adjacency="own"),
    "sampler": set_step(0, "sampler", "poisson-moving"),
    "masses": lighter(0, 0),
    "masses of the release": lighter(1, 1),
    "places": moved_left(1, 0),
    "places of the release": moved_left(0, 1),
    "lattice": other_spacing,
    "direction": one_direction,
    "step without proof": one_step_unproven,
    "window": lambda record: claim_of(record)["proof"][0].update(last=2),
    "known batches": lambda record: claim_of(record).update(proof="fixed-batches"),
    "lower bound": lambda record: claim_of(record).update(jaw="lower"),
}


@pytest.mark.parametrize("lie", LIES)
def test_no_number_can_be_made_more_flattering(lie: str, chosen: Certificate, altered: Any) -> None:
    """Every number of claim, menu and proof, changed in the flattering direction, with a digest that fits."""
    assert verify(altered(chosen, lambda record: None)).claims
    with pytest.raises(Refused):
        verify(altered(chosen, LIES[lie]))


@pytest.mark.parametrize("budget", [10**5, 10**7])
@pytest.mark.parametrize("cost", [1, 10**6])
@pytest.mark.parametrize("proof", ["laws", "fixed-batches"])
def test_a_file_cannot_keep_the_checker_busy(
    budget: int, cost: int, proof: str, chosen: Certificate, altered: Any
) -> None:
    """Work is counted before it begins: a huge budget, or costs that would keep all levels, is refused at once."""

    def bomb(record: dict[str, Any]) -> None:
        record["run"]["budget"] = budget
        record["run"]["menu"] = [{**one, "cost": min(cost, budget)} for one in record["run"]["menu"]]
        if proof == "fixed-batches":
            claim_of(record)["proof"] = proof
        else:
            for one in claim_of(record)["proof"]:
                one.update(first=-60_000, last=60_000)

    data, began = altered(chosen, bomb), time.process_time()
    with pytest.raises(Refused):
        verify(data)
    assert time.process_time() - began < 3.0


def test_gaussian_releases_alone_have_a_closed_form() -> None:
    """The largest sum of mu^2 that the budget admits: three times 1/4 and not 3.5 times."""
    run = cp.AdaptiveRun([cp.Guarantee(mu=0.25), cp.mechanisms.gaussian(0.5)], [1, 2], 7)
    certificate = certify(run, delta=1e-5)
    assert claim_of(certificate.record)["proof"] == "fixed-batches"
    proven, measured = certificate.epsilon[1], cp.measure(run).epsilon(1e-5)
    assert proven is not None
    assert measured.lower <= float(proven) <= 1.001 * measured.upper
    assert "any two datasets between which every release shifts by at most 1" in certificate.verdict.sentences()[0]
    fixed = cp.measure(cp.Guarantee(mu=math.sqrt(3 * 0.25 + 0.0625))).epsilon(1e-5)
    assert fixed.lower <= float(proven) <= 1.001 * fixed.upper


def test_steps_that_the_checker_does_not_know_are_refused_with_a_sentence() -> None:
    """A stated (epsilon, delta), and a divisor that depends on the data."""
    with pytest.raises(cp.UnsupportedError, match="runs and Gaussian releases"):
        certify(cp.AdaptiveRun([cp.Guarantee(epsilon=1.0, delta=1e-6)], [1], 2), delta=1e-5)
    shuffled = cp.Run(
        dataset_size=103, batch_size=10, epochs=1, noise_multiplier=4.0, sampler="shuffle", view="isolated",
        adjacency="zero-out",
    )  # fmt: skip
    with pytest.raises(cp.UnsupportedError, match="isolated"):
        certify(cp.AdaptiveRun([shuffled], [1], 2), delta=1e-5)


@pytest.mark.slow
def test_epochs_of_other_samplers_are_certified() -> None:
    """Balls-and-bins epochs with a Gaussian release, and replaced records (one direction)."""
    bins = cp.Run(sample_rate=0.25, epochs=1, noise_multiplier=4.0, sampler="balls-and-bins")
    replaced = poisson(0.1, 4, 2.0, adjacency="substitute")
    for menu in ([bins, cp.mechanisms.gaussian(0.125)], [replaced]):
        run = cp.AdaptiveRun(menu, [1] * len(menu), 3)
        with wide_cells():
            proven = certify(run, delta=1e-3).epsilon[1]
        measured = cp.measure(run).epsilon(1e-3)
        assert proven is not None
        assert measured.lower <= float(proven) <= 1.2 * measured.upper


def test_the_command_writes_what_the_checker_accepts(tmp_path: Path, capsys: Any, coarse: None) -> None:
    """`calipers certify --run adaptive.toml`, then `python -m calipers_verify`."""
    menu, proof = tmp_path / "adaptive.toml", tmp_path / "adaptive.cert.json"
    run = cp.AdaptiveRun({"a": poisson(0.1, 1, 2.0), "b": poisson(0.1, 1, 3.0)}, {"a": 2, "b": 1}, 4)
    menu.write_text(run.to_toml())
    found = CliRunner().invoke(main, ["certify", "--run", str(menu), "--delta", "1e-3", "-o", str(proof)])
    assert found.exit_code == 0, found.output
    assert "Whatever was chosen" in found.output
    assert "No attack is certified from below here." in found.output
    assert checker([str(proof)]) == 0
    assert "run: steps chosen while it ran" in capsys.readouterr().out
    record = json.loads(proof.read_text())
    assert [one["cost"] for one in record["run"]["menu"]] == [2, 1]
    refused = CliRunner().invoke(main, ["certify", str(menu), "--delta", "1e-3", "--steps", "3"])
    assert refused.exit_code != 0
    assert "--steps" in refused.output
