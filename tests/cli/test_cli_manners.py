"""What a command does to a terminal, and how it spells what was typed."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from calipers.cli import main
from calipers.cli.failures import naming_options
from calipers.domains import Domain
from calipers.run import KEYS

CURVE = ("curve", "--sample-rate", "1", "--steps", "4", "--noise-multiplier", "2")


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """Exit status, what the terminal shows, and standard error."""
    own, other = pty.openpty()
    command = [sys.executable, "-m", "calipers", *arguments]
    with subprocess.Popen(command, stdout=other, stderr=subprocess.PIPE, text=True) as process:
        os.close(other)
        shown = b""
        while True:
            try:
                shown += os.read(own, 65536)
            except OSError:  # the terminal is closed at the other end
                break
            if process.poll() is not None and not shown:
                break
        _, errors = process.communicate()
    os.close(own)
    return process.returncode, shown.decode(), errors


@pytest.mark.slow
def test_a_curve_is_not_poured_into_a_terminal():
    """Thousands of rows are refused in one sentence; a pipe gets them all."""
    status, shown, errors = on_a_terminal(*CURVE)
    assert (status, shown) == (2, "")
    assert "--output curve.csv" in errors
    piped = subprocess.run([sys.executable, "-m", "calipers", *CURVE], capture_output=True, text=True, check=True)
    assert len(piped.stdout.splitlines()) > 100


@pytest.mark.slow
def test_a_few_points_of_the_profile_are_shown_on_a_terminal():
    status, shown, _ = on_a_terminal(*CURVE, "--profile", "--epsilon", "1")
    assert status == 0
    assert "epsilon,delta" in shown


def test_a_unit_needs_its_number_of_records(refused, tmp_path):
    options = ("--dataset-size", 100, "--batch-size", 10, "--epochs", 1, "--noise-multiplier", 4)
    assert "Add --records-per-unit, the largest" in refused("measure", *options, "--unit", "user")
    (tmp_path / "run.toml").write_text("dataset_size = 100\nbatch_size = 10\nepochs = 1\nnoise_multiplier = 4.0\n")
    assert "--unit user leaves open how many" in refused("measure", "--run", tmp_path / "run.toml", "--unit", "user")


def test_a_unit_of_a_file_needs_it_too_and_may_have_it_from_an_option(calipers, refused, tmp_path):
    text = 'dataset_size = 100\nbatch_size = 10\nepochs = 1\nnoise_multiplier = 4.0\nunit = "user"\n'
    (tmp_path / "run.toml").write_text(text)
    open_unit = "unit='user' leaves open how many records one user has. Add records_per_unit, the largest number"
    for command in ("measure", "compare", "receipt", "certify"):
        assert open_unit in refused(command, "--run", tmp_path / "run.toml"), command
    assert open_unit in refused("check", tmp_path / "run.toml", "--epsilon", 3, "--delta", 1e-5)
    result = calipers("measure", "--run", tmp_path / "run.toml", "--records-per-unit", 1)
    assert result.exit_code == 0
    assert "One user is read as one example" in " ".join(result.stdout.split())
    (tmp_path / "run.toml").write_text(f"{text}records_per_unit = 2\n")
    assert "--unit client leaves open" in refused("measure", "--run", tmp_path / "run.toml", "--unit", "client")


def test_notes_spell_options_for_options_and_keys_for_files(calipers, tmp_path):
    options = ("--dataset-size", 100, "--batch-size", 10, "--epochs", 1, "--noise-multiplier", 4)
    typed = " ".join(calipers("measure", *options).stdout.split())
    assert "say --sampler shuffle" in typed
    assert "no epsilon is finite: fix both beforehand" in typed
    of_steps = ("--dataset-size", 100, "--batch-size", 10, "--steps", 10, "--noise-multiplier", 4)
    assert "describe it with --derived-rate moving" in " ".join(calipers("measure", *of_steps).stdout.split())
    assert "derived_rate" not in typed
    (tmp_path / "run.toml").write_text("dataset_size = 100\nbatch_size = 10\nepochs = 1\nnoise_multiplier = 4.0\n")
    read = " ".join(calipers("measure", "--run", tmp_path / "run.toml").stdout.split())
    assert "say sampler = 'shuffle'" in read
    assert "--derived-rate" not in read


def test_ordinary_words_stay_what_they_are():
    text = "The number of steps = 12 is public; say unit = 'user'."
    assert naming_options(text, KEYS) == "The number of steps = 12 is public; say --unit user."


def test_help_points_to_what_stands_above_the_options(calipers):
    """The text of a command stands above its options, so options never say that something is below."""
    for name in main.list_commands(None):
        shown = calipers(name, "--help").stdout
        assert not re.search(r"see\s+below", shown), name


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (Domain(1, 2**53, integer=True), "the whole numbers from 1 to 9,007,199,254,740,992"),
        (Domain(0, 2**53, low_open=True), "(0, 9,007,199,254,740,992]"),
        (Domain(1e-300, 1.0, high_open=True), "[1e-300, 1)"),
        (Domain(0.0, float("inf")), "[0, inf)"),
    ],
)
def test_large_ends_of_a_domain_have_all_their_digits(domain, words):
    assert str(domain) == words
