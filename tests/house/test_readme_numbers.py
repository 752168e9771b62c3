"""The numbers in README's sentences are those that the commands print, as the ones in its examples are."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.numerics.decimals import ceil_digits, floor_digits

README = " ".join((Path(__file__).parents[2] / "README.md").read_text("utf-8").split())
MNIST = "--dataset-size 60000 --epochs 60 --noise-multiplier 1.1 --batch-size"
SMALL = "--sample-rate 0.01 --steps 1000 --noise-multiplier 1 --delta"
# What README says, with the places of the lower and the upper jaw, and how to measure it.
SAID = [
    ("lies in [{low}, {high}], with `--sampler balls-and-bins`", f"{MNIST} 256 --sampler poisson"),
    ("with `--sampler balls-and-bins` in [{low}, {high}]", f"{MNIST} 256 --sampler balls-and-bins"),
    ("(`without-replacement`) in [{low}, {high}]", f"{MNIST} 256 --sampler without-replacement"),
    (
        "all that was proven for this run was {high}, the epsilon of fixed batches",
        f"{MNIST} 256 --sampler deterministic",
    ),
    ("(batches of 240) is at most {high} by a theorem", f"{MNIST} 240 --sampler shuffle"),
    ("[{low}, {high}] at delta = 1e-15", f"{SMALL} 1e-15"),
    ("[{low}, {high}] at 1e-30", f"{SMALL} 1e-30"),
]


def near(printed: str) -> list[str]:
    """The number, and those beside it: processors round exp differently, and bounds are rounded outward after that."""
    last = Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))
    return [f"{(Decimal(printed) + step * last).normalize():f}" for step in (0, -1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("sentence", "options"), SAID, ids=[options[-40:] for _, options in SAID])
def test_a_number_of_the_readme_is_the_one_measured(sentence: str, options: str) -> None:
    """Rounded outward as everywhere, and none is left from an older engine."""
    result = CliRunner().invoke(main, ["measure", *options.split(), "--json"])
    (row,) = json.loads(result.stdout)["epsilon"]
    lows, highs = near(floor_digits(row["lower"])), near(ceil_digits(row["upper"]))
    assert any(sentence.format(low=low, high=high) in README for low in lows for high in highs), (lows[0], highs[0])
