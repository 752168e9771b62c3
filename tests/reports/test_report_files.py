"""A report is written whole, where it was asked for, or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import stat

import pytest

from calipers.errors import InputError
from calipers.measure import measure
from calipers.measure.watched import OtherNeighbors, Watched
from calipers.reports.answers import Questions
from calipers.reports.files import check_report_path, write_report, write_whole
from calipers.reports.report import report_measurement
from calipers.run import ADJACENCIES, Run


@pytest.mark.parametrize("name", ["out.html", "out.MD", "out.json", "a.b.html", "with space.md"])
def test_the_ending_chooses_the_form(reports, tmp_path, name):
    path = write_report(reports["measure"], tmp_path / name)
    text = path.read_text("utf-8")
    start = {"html": "<!DOCTYPE html>", "md": "## ", "json": "{"}[name.rpartition(".")[2].lower()]
    assert text.startswith(start)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.pdf", r"end it in \.html, \.md or \.json"),
        ("out", r"end it in"),
        (".html", r"end it in"),
        ("folder", "it is a folder; name a file in it"),
        ("folder.html", "it is a folder"),
        ("nowhere/out.html", "make it first"),
        ("pipe.html", "not a regular file"),
        ("a\0.html", "NUL"),
    ],
)
def test_a_bad_path_is_refused_with_a_remedy(tmp_path, name, message):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(InputError, match=message):
        check_report_path(f"{tmp_path}/{name}")


def test_the_record_of_a_training_is_measured_and_other_things_are_refused_in_a_sentence(tmp_path):
    """It was an AttributeError, though write_receipt takes a record."""

    class Record:
        def why_not(self):
            return ()

        def measure(self):
            measured = measure(Run(sample_rate=0.1, steps=3, noise_multiplier=2.0))
            unknown = OtherNeighbors((), False, "nothing is proven of that")
            others = tuple((adjacency, unknown) for adjacency in ADJACENCIES)
            return dataclasses.replace(measured, watched=Watched("Opacus 1.6.0", others))

    text = write_report(Record(), tmp_path / "out.md").read_text("utf-8")
    assert "Known from a record attached to the training" in text
    assert "ask for one" in text
    assert "Calipers can also test the code" not in text
    with pytest.raises(InputError, match=r"record of attach, got Run; measure it first"):
        write_report(Run(sample_rate=0.1, steps=3, noise_multiplier=2.0), tmp_path / "run.md")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_arguments, **_options: False)
    with pytest.raises(InputError, match="not writable; choose another"):
        check_report_path(tmp_path / "out.html")


def test_a_failure_leaves_the_old_report_and_no_rest(tmp_path, monkeypatch):
    """The disk fills up half way: the file is as it was before, and nothing lies beside it."""
    path = tmp_path / "out.md"
    path.write_text("precious")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device; choose another place"):
        write_whole(path, "new")
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["out.md"]


def test_the_old_file_is_never_written_into(tmp_path):
    """The new report takes the name; whoever holds the old file, here by a second name, keeps it whole."""
    path = tmp_path / "out.md"
    path.write_text("old")
    os.link(path, tmp_path / "held")
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert (tmp_path / "held").read_text() == "old"


def test_modes_and_links_are_kept(tmp_path):
    """A new file has the mode the umask leaves, a replaced one its own; a link still points at the file."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "new.md", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.md").stat().st_mode) == 0o640
    target = tmp_path / "target.md"
    target.write_text("old")
    target.chmod(0o600)
    (tmp_path / "link.md").symlink_to(target)
    write_whole(tmp_path / "link.md", "ε\n")
    assert (tmp_path / "link.md").is_symlink()
    assert target.read_bytes() == "ε\n".encode()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_name_as_long_as_the_disk_allows_works(tmp_path):
    name = "n" * 250 + ".html"
    write_whole(tmp_path / name, "x")
    assert os.listdir(tmp_path) == [name]


def test_a_measurement_is_written_in_one_call(tmp_path, monkeypatch) -> None:
    """The usual questions unless others are asked; a report that is made already is written as it is."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    import calipers as cp

    measurement = cp.measure(cp.Run(sample_rate=1.0, steps=5, noise_multiplier=2.0))
    assert cp.write_report(measurement, tmp_path / "usual.json") == tmp_path / "usual.json"
    usual = json.loads((tmp_path / "usual.json").read_text())
    asked = Questions(deltas=(1e-7,))
    cp.write_report(measurement, tmp_path / "asked.json", asked)
    assert [row["delta"] for row in usual["measurement"]["epsilon"]] == [1e-5]
    assert [row["delta"] for row in json.loads((tmp_path / "asked.json").read_text())["measurement"]["epsilon"]] == [
        1e-7
    ]
    made = report_measurement(measurement, Questions())
    cp.write_report(made, tmp_path / "made.json")
    assert (tmp_path / "made.json").read_bytes() == (tmp_path / "usual.json").read_bytes()
    with pytest.raises(InputError, match="Leave them out"):
        cp.write_report(made, tmp_path / "made.md", asked)
    cp.write_report(measurement, tmp_path / "short.json", delta=1e-7)
    assert json.loads((tmp_path / "short.json").read_text())["measurement"]["epsilon"][0]["delta"] == 1e-7
    with pytest.raises(InputError, match="Give delta or questions"):
        cp.write_report(measurement, tmp_path / "both.json", asked, delta=1e-7)


def test_a_calibration_is_reported_at_the_delta_of_its_target(tmp_path) -> None:
    """Measured by itself its run would be read at the usual delta, which nobody calibrated for."""
    import calipers as cp
    from calipers.calibrate import solve

    found = solve(cp.Run(sample_rate=1.0, steps=5, noise_multiplier=2.0), epsilon=3, delta=1e-7)
    text = cp.write_report(found, tmp_path / "noise.md").read_text("utf-8")
    assert ", 1e-7)-differentially private" in text
    assert "1e-5)-differentially" not in text
    assert "nothing was trained with it here" in text
    with pytest.raises(InputError, match="delta of its target"):
        cp.write_report(found, tmp_path / "other.md", delta=1e-5)
