"""`calipers measure` and `calipers calibrate` with a file of [[step]] tables."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from calipers.cli import main

MENU = """
sample_rate = 0.1
steps = 1

[[step]]
name = "quiet"
noise_multiplier = 2.0

[[step]]
name = "sharp"
noise_multiplier = 1.5
"""


@pytest.fixture
def menu(tmp_path):
    path = tmp_path / "menu.toml"
    path.write_text(MENU)
    return path


def said(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, [str(word) for word in words])
    return found.exit_code, found.output


@pytest.mark.slow
def test_calibrated_costs_and_budget_are_measured_within_the_target(menu, tmp_path) -> None:
    """The run file that `calibrate` writes is proven by `measure` to meet the target, and an attack comes near it."""
    code, text = said("calibrate", "--run", menu, "--epsilon", "1", "--delta", "1e-5", "--json")
    assert code == 0, text
    record = json.loads(text)
    assert record["rule"]["kind"] == "menu"
    path = tmp_path / "adaptive.toml"
    path.write_text(record["run_file"])
    code, text = said("measure", "--run", path, "--json")
    assert code == 0, text
    measured = json.loads(text)
    found = measured["epsilon"][0]
    assert 0.9 <= found["lower"] <= found["upper"] <= 1.002
    assert measured["closes"] is True
    described = measured["run"]["adaptive"]
    assert described["budget"] == record["rule"]["budget"]
    assert [(step["name"], step["noise_multiplier"], step["cost"]) for step in described["menu"]] == [
        ("quiet", 2.0, record["rule"]["costs"][0]),
        ("sharp", 1.5, record["rule"]["costs"][1]),
    ]
    code, text = said("measure", "--run", path, "--report", tmp_path / "report.html")
    assert code == 0, text
    page = (tmp_path / "report.html").read_text()
    assert "Privacy of an adaptive run" in page
    assert "bounds agree" in page
    assert "bounds do not meet" not in page
    assert "stated guarantee" not in page


def test_a_menu_without_costs_is_told_what_to_do(menu) -> None:
    """`measure` needs costs and a budget; the refusal names the command that finds them."""
    code, text = said("measure", "--run", menu)
    assert code != 0
    assert "calibrate" in text


def test_options_cannot_change_a_menu(menu) -> None:
    """One option cannot say what all steps of a menu are to become."""
    code, text = said("measure", "--run", menu, "--steps", "7")
    assert code != 0
    assert "--steps" in text


def test_a_budget_is_calibrated_to_epsilon_at_delta_only(menu) -> None:
    """Other targets are refused."""
    code, text = said("calibrate", "--run", menu, "--mu", "1")
    assert code != 0
    assert "--epsilon with --delta" in text


def test_what_needs_a_fixed_schedule_refuses_a_menu(menu) -> None:
    """The refusal says that it is about runs fixed in advance, and which commands read a menu."""
    code, text = said("check", menu, "--epsilon", "3", "--delta", "1e-5")
    assert code != 0
    assert "adaptive run" in text
    assert "fixed in advance" in text
