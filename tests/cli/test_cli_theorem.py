"""`calipers theorem`: a published number from its name, printed in the statement's own direction."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from mpmath import mp, mpf

PROP = ("theorem", "chua-prop-3.1")


def test_a_statement_is_evaluated_by_its_name(calipers):
    """Proposition 3.1 of Chua et al. 2024, recomputed here with 50 digits."""
    with mp.workdps(50):
        sigma, eps = mpf("0.4"), mpf(4)
        truth = mp.ncdf(-sigma * eps + 1 / (2 * sigma)) - mp.exp(eps) * mp.ncdf(-sigma * eps - 1 / (2 * sigma))
    for arguments in (("--epsilon", 4, "--noise-multiplier", 0.4), ("--noise_multiplier=0.4", "--epsilon=4.0")):
        result = calipers(*PROP, *arguments, "--json")
        record = json.loads(result.stdout)
        assert record["theorem"] == "chua-prop-3.1"
        assert record["direction"] == "exact value"
        assert abs(record["values"]["value"] - float(truth)) < 1e-13
    assert calipers(*PROP, *arguments).stdout.startswith(f"value = {mp.nstr(truth, 10)}\n")


@pytest.mark.parametrize(
    ("name", "arguments", "outwards"),
    [
        ("chua-eq-3", ("--epsilon", 4, "--noise-multiplier", 0.4, "--rounds", 1000), -1),
        ("chua-thm-4.1", ("--epsilon", 4, "--noise-multiplier", 0.4, "--rounds", 1000), 1),
    ],
)
def test_a_bound_is_printed_in_its_own_direction(calipers, name, arguments, outwards):
    values = json.loads(calipers("theorem", name, *arguments, "--json").stdout)["values"]
    exact = Decimal(next(iter(values.values())))
    printed = Decimal(calipers("theorem", name, *arguments).stdout.splitlines()[0].partition(" = ")[2])
    assert (printed - exact) * outwards >= 0
    assert abs(printed - exact) <= Decimal("1e-9")


def test_names_and_parameters_can_be_asked_for(calipers):
    listed = calipers("theorem", "--list").stdout.splitlines()
    assert "chua-prop-3.1 delta_D(epsilon) = value" in [" ".join(line.split()[:4]) for line in listed]
    assert {line[:30].rstrip() + "  " for line in listed} == {line.split()[0] + "  " for line in listed}, "one column"
    explained = calipers(*PROP, "--explain").stdout
    assert "--noise-multiplier in (0, inf)" in explained
    assert "Proposition 3.1" in explained


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Name the statement first"),
        (("--epsilon", 4), "Name the statement first"),
        (("banana",), "No theorem is called 'banana'"),
        (("chua-prop-31",), "did you mean chua-prop-3.1"),
        (("banana", "--explain"), "No theorem is called 'banana'"),
        (("chua-prop-3.1",), "also needs"),
        (("chua-prop-3.1", "--epsilon"), "--epsilon needs a value"),
        (("chua-prop-3.1", "4"), "Expected --PARAM VALUE, got '4'"),
        (("chua-prop-3.1", "--epsilon", 4, "--epsilon", 5), "--epsilon is given twice"),
        (("chua-prop-3.1", "--epsilon", 4, "--explain"), "takes no parameters"),
        (("chua-prop-3.1", "--epsilon", "four", "--noise-multiplier", 1), "epsilon in [0, inf), got epsilon='four'"),
        (("chua-prop-3.1", "--epsilon", -4, "--noise-multiplier", 1), "epsilon in [0, inf), got epsilon=-4"),
        (("chua-prop-3.1", "--epsilon", "nan", "--noise-multiplier", 1), "got epsilon=nan"),
        (("chua-prop-3.1", "--epsilon", 4, "--noise-multiplier", 1, "--sigma", 3), "no parameter sigma"),
        (("chua-prop-3.1", "--list"), "--list and chua-prop-3.1 contradict"),
    ],
)
def test_theorem_refuses(refused, words, message):
    assert message in refused("theorem", *words)
