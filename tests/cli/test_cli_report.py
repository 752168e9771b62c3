"""`--report FILE` beside measure, calibrate, compare and audit."""

from __future__ import annotations

import json
import os

import pytest

FIXED = (
    *("--dataset-size", 1000, "--batch-size", 100, "--epochs", 5, "--noise-multiplier", 2),
    *("--sampler", "deterministic"),
)
AUDIT = (
    *("audit", "builtin", "--dataset-size", 5, "--sample-rate", 0.5, "--steps", 1),
    *("--noise-multiplier", 1, "--trials", 200),
)


@pytest.fixture
def run_file(tmp_path):
    path = tmp_path / "<i>&quot;run.toml"
    path.write_text(
        'dataset_size = 1000\nbatch_size = 100\nepochs = 5\nnoise_multiplier = 2.0\nsampler = "deterministic"\n'
    )
    return path


def commands(run_file):
    return {
        "measure": ("measure", *FIXED, "--delta", 1e-6),
        "calibrate": ("calibrate", *FIXED[:-4], "--sampler", "deterministic", "--epsilon", 3, "--delta", 1e-5),
        "compare": ("compare", run_file, run_file),
        "audit": AUDIT,
    }


@pytest.mark.parametrize("kind", ["measure", "calibrate", "compare", "audit"])
def test_every_command_writes_every_form_and_prints_what_it_always_prints(calipers, tmp_path, run_file, kind):
    command = commands(run_file)[kind]
    plain = calipers(*command)
    assert plain.exit_code == 0
    for ending in ("html", "md", "json"):
        result = calipers(*command, "--report", tmp_path / f"out.{ending}")
        assert (result.exit_code, result.stdout) == (0, plain.stdout)
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["schema"], record["kind"]) == ("calipers-report/1", kind)
    for ending in ("html", "md"):
        assert "Calipers" in (tmp_path / f"out.{ending}").read_text("utf-8")


def test_a_run_file_with_signs_in_its_name_is_shown_by_its_name(calipers, tmp_path, run_file):
    calipers("compare", run_file, run_file, "--report", tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "&lt;i&gt;&amp;quot;run.toml" in page
    assert "<i>" not in page


def test_a_calibration_is_reported_at_its_own_target(calipers, tmp_path, run_file):
    """epsilon = 3 at delta = 1e-5: the proven value of the reported run does not exceed it."""
    calipers(*commands(run_file)["calibrate"], "--report", tmp_path / "out.json")
    record = json.loads((tmp_path / "out.json").read_text())
    (row,) = record["measurement"]["epsilon"]
    assert row["delta"] == 1e-5
    assert row["upper"] <= 3
    assert record["calibration"]["noise_multiplier"] == record["measurement"]["run"]["noise_multiplier"]


def test_the_rates_from_a_tenth_to_a_hundred_thousandth_are_always_in(calipers, tmp_path):
    calipers("measure", *FIXED, "--fpr", 0.2, "--report", tmp_path / "out.json")
    rates = [row["fpr"] for row in json.loads((tmp_path / "out.json").read_text())["measurement"]["tpr"]]
    assert rates == [0.2, 0.1, 0.01, 1e-3, 1e-4, 1e-5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.txt", "end it in .html, .md or .json"),
        ("folder", "name a file in it"),
        ("nowhere/out.html", "make it first"),
    ],
)
def test_a_bad_path_is_refused_before_anything_is_measured(refused, tmp_path, monkeypatch, name, message):
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("calipers.cli.measure.measured", lambda *_: pytest.fail("measured"))
    assert message in refused("measure", *FIXED, "--report", tmp_path / name)


def test_a_disk_that_fills_up_leaves_the_output_empty(refused, tmp_path, monkeypatch):
    """The report is written before anything is printed."""

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in refused("measure", *FIXED, "--report", tmp_path / "out.html")
    assert os.listdir(tmp_path) == []


def test_a_self_test_has_no_report(refused, tmp_path):
    assert "--report has no meaning" in refused(*AUDIT, "--self-test", "--report", tmp_path / "out.html")


def test_a_report_has_the_title_and_the_model_that_were_given(calipers, tmp_path):
    place = tmp_path / "out.md"
    result = calipers("measure", *FIXED, "--report", place, "--report-title", "Card", "--report-model", "triage-7")
    assert result.exit_code == 0
    assert place.read_text("utf-8").startswith("## Card\n\nModel: triage-7\n")


@pytest.mark.parametrize("option", ["--report-title", "--report-model"])
def test_a_title_without_a_report_is_refused_before_anything_is_computed(calipers, option):
    result = calipers("measure", *FIXED, option, "Card")
    assert result.exit_code == 2
    assert f"{option} is about the report; name its file with --report." in " ".join(result.stderr.split())
