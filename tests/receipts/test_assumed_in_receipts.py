"""What nobody stated is named wherever the file is handed on to: the gate, exports, verify-receipt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from calipers.cli import main
from calipers.provenance import digest

SILENT = "dataset_size = 1000\nbatch_size = 10\nsteps = 20\nnoise_multiplier = 2.0\n"
SAID = "sampler = 'poisson'\nnormalization = 'none'\nderived_rate = 'public'\n"
BUDGET = ("--epsilon", "9", "--delta", "1e-5")


def call(*arguments: str):
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("silent", SILENT), ("said", SILENT + SAID)):
        Path(f"{name}.toml").write_text(text)
        Path(f"{name}.json").write_text(CliRunner().invoke(main, ["measure", f"{name}.toml", "--json"]).stdout)
        assert call("receipt", f"{name}.toml", "-o", f"{name}.receipt.json")[0] == 0
    return tmp_path


def test_json_and_receipts_say_what_was_assumed(folder) -> None:
    """As the run file does; the file itself writes defaults down like anything else."""
    everything = "Assumed, because not given: sampler poisson, normalization none, derived_rate public."
    for name in ("silent.toml", "silent.json"):
        assert everything in call("check", name, *BUDGET)[1], name
    for name in ("said.toml", "said.json"):
        assert "Assumed" not in call("check", name, *BUDGET)[1], name
    said = "Assumed in the receipt, because not given: sampler, divisor, batches."
    assert said in call("check", "silent.receipt.json", *BUDGET)[1]
    assert "Assumed in" not in call("check", "said.receipt.json", *BUDGET)[1]


def test_verify_receipt_names_the_facts_that_nobody_declared(folder) -> None:
    """Sampler and divisor among them."""
    known = "declared by whoever trained, but for what nobody stated and is assumed ("
    silent, said = (call("verify-receipt", f"{name}.receipt.json")[1] for name in ("silent", "said"))
    assert f"{known}batches, " in silent or f"{known}sampler, " in silent
    assert "sampler" in silent.partition(known)[2].partition(")")[0]
    assert "sampler" not in said.partition(known)[2].partition(")")[0]


@pytest.mark.parametrize("name", ["silent.toml", "silent.json", "silent.receipt.json"])
def test_an_export_does_not_call_declared_what_was_assumed(name, folder) -> None:
    """It said: as declared by whoever trained, and that the run meets the assumptions of standard accounting."""
    text = call("export", name)[1]
    assert "as declared by whoever trained (assumed, not stated: sampler" in text
    assert "whose assumptions this run, as described, meets." in text
    text = call("export", "said.toml")[1]
    assert "as declared by whoever trained; run SHA-256" in text
    assert "whose assumptions this run meets." in text


def test_an_export_of_a_receipt_that_contradicts_its_run_is_refused(folder) -> None:
    """Its fact says shuffle, its run Poisson, and every hash fits."""
    record = json.loads(Path("silent.receipt.json").read_text())
    (fact,) = [one for one in record["executed"]["facts"] if one["fact"] == "sampler"]
    fact["value"] = "shuffle"
    about = {key: value for key, value in record["provenance"].items() if key != "sha256"}
    record["provenance"] = about | {"sha256": digest({**record, "provenance": about})}
    Path("lie.json").write_text(json.dumps(record))
    assert call("check", "lie.json", *BUDGET)[0] == 1
    status, text, refusal = call("export", "lie.json")
    assert (status, text) == (2, "")
    assert "lie.json: the receipt contradicts its own run: It states sampler = 'shuffle'" in refusal
