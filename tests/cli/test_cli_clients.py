"""Rounds of federated learning from the command line: `--unit client`."""

from __future__ import annotations

import json

import pytest

ROUNDS = (
    "--dataset-size",
    12,
    "--batch-size",
    4,
    "--steps",
    5,
    "--noise-multiplier",
    2,
    "--records-per-unit",
    1,
    "--unit",
    "client",
)


@pytest.mark.parametrize("sampler", ["without-replacement", "with-replacement"])
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "substitute"])
def test_a_client_is_called_a_client(calipers, sampler, adjacency):
    """Every record of such a run is the update of one client; no text speaks of records."""
    result = calipers("measure", *ROUNDS, "--sampler", sampler, "--adjacency", adjacency, "--explain")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "12 clients, batch size 4" in text
    assert "one client" in text
    assert "one client with" not in text
    summary = text[text.index("5 steps of") :]
    assert "record" not in summary[: summary.index("gradients.") + 10]
    assert "so a client that is drawn displaces another one" in text


def test_several_records_of_a_unit_stay_records(calipers):
    result = calipers(
        "measure", *ROUNDS[:-4], "--unit", "patient", "--records-per-unit", 3, "--sampler", "without-replacement"
    )
    assert "one patient with up to 3 records" in " ".join(result.stdout.split())


def test_the_bracket_is_that_of_the_same_run(calipers):
    given = calipers("measure", *ROUNDS, "--sampler", "without-replacement", "--json")
    plain = calipers("measure", *ROUNDS[:-4], "--sampler", "without-replacement", "--json")
    found, expected = (json.loads(one.stdout)["epsilon"][0] for one in (given, plain))
    assert (found["lower"], found["upper"]) == (expected["lower"], expected["upper"])
