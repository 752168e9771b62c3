"""`calipers certify`, `calipers verify` and `measure --certificate`."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("flint", reason="python-flint comes with the extra test")

from click.testing import CliRunner, Result

from calipers.certificates import Certificate
from calipers.cli import main
from calipers.provenance import is_intact

RUN = ("--sample-rate", "0.1", "--steps", "20", "--noise-multiplier", "2")


def calipers(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_certificate_is_written_and_verified(tmp_path: Path, coarse: None) -> None:
    """From a run file to the verdict; the certificate is the file, the sentences are the output."""
    run_file, path = tmp_path / "run.toml", tmp_path / "run.cert.json"
    run_file.write_text("sample_rate = 0.1\nsteps = 20\nnoise_multiplier = 2\n")
    made = calipers("certify", run_file, "--delta", "1e-3", "-o", path)
    assert made.exit_code == 0, made.output
    assert "differentially private with epsilon = 0.6" in made.stdout
    assert "python -m calipers_verify" in made.stdout
    checked = calipers("verify", path)
    assert checked.exit_code == 0
    assert "proven: The run is differentially private" in checked.stdout
    (record,) = json.loads(calipers("verify", path, "--json").stdout)
    assert {claim["jaw"] for claim in record["claims"]} == {"upper", "lower"}
    assert record["run"]["phases"][0]["noise_multiplier"] == "2"
    assert is_intact(record)
    assert record["provenance"]["command"] == f"calipers verify {path} --json"


def test_a_damaged_certificate_is_refused_with_status_one(tmp_path: Path, small: Certificate) -> None:
    """One sentence on standard error, nothing on standard output."""
    path = tmp_path / "run.cert.json"
    path.write_text(small.to_json().replace('"steps":20', '"steps":21'))
    refused = calipers("verify", path)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "digest" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("certify", *RUN), "exactly one of --epsilon and --delta"),
        (("certify", *RUN, "--delta", "1e-3", "--epsilon", "1"), "exactly one of --epsilon and --delta"),
        (("certify", "--delta", "1e-3"), "Expected a run"),
        (("certify", "absent.toml", "--delta", "1e-3"), "absent.toml"),
        (("certify", *RUN, "--delta", "1e-3", "-o", "no/such/folder/x.json"), "no folder"),
        (("certify", *RUN, "--delta", "2"), "delta"),
    ],
)
def test_what_is_mistyped_is_refused_with_status_two(arguments: tuple[str, ...], says: str) -> None:
    """Bad input ends before anything is computed."""
    refused = calipers(*arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert says in refused.stderr


@pytest.mark.parametrize("ending", ["md", "html", "json"])
def test_measure_attaches_a_certificate(ending: str, tmp_path: Path, coarse: None) -> None:
    """The file is written, the notes name it, and the report links to it or holds it, with the hash of its bytes."""
    (tmp_path / "out").mkdir()
    path, report = tmp_path / "run.cert.json", tmp_path / "out" / f"report.{ending}"
    shown = calipers("measure", *RUN, "--delta", "1e-3", "--certificate", path, "--report", report, "--json")
    assert shown.exit_code == 0, shown.output
    digest = json.loads(path.read_text("utf-8"))["digest"][:16]
    assert any(digest in note and "differentially private" in note for note in json.loads(shown.stdout)["notes"])
    assert calipers("verify", path).exit_code == 0
    text, sha256 = report.read_text("utf-8"), hashlib.sha256(path.read_bytes()).hexdigest()
    if ending == "md":
        assert f"](<../run.cert.json>), SHA-256 `{sha256}`" in text
    elif ending == "html":
        (inside,) = re.findall(r'<a download="run.cert.json" href="data:application/json;base64,([^"]+)"', text)
        assert base64.b64decode(inside) == path.read_bytes()
        assert sha256 in text
    else:
        entry = json.loads(text)["certificate"]
        assert (entry["file"], entry["sha256"]) == ("../run.cert.json", sha256)
        assert "differentially private" in entry["proves"][0]


def test_a_report_without_a_certificate_has_no_such_section(tmp_path: Path) -> None:
    """Nothing is attached that was not asked for."""
    report = tmp_path / "report.md"
    assert calipers("measure", *RUN, "--delta", "1e-3", "--report", report).exit_code == 0
    assert "Certificate" not in report.read_text("utf-8")


def test_a_certificate_is_not_about_a_range_of_sizes(tmp_path: Path) -> None:
    """A measurement of the worst of many dataset sizes is not certified by one of them."""
    keys = ("--dataset-size", "500", "--sample-rate", "0.05", "--steps", "5", "--noise-multiplier", "4")
    divided = ("--normalization", "realized", "--dimension", "10", "--dataset-size-range", "100", "500")
    path = tmp_path / "run.cert.json"
    refused = calipers("measure", *keys, *divided, "--certificate", path)
    assert refused.exit_code == 2
    assert "range of dataset sizes" in refused.stderr
    assert not path.exists()
