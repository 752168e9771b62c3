"""`calipers audit`: built-in targets, functions of one's own, ledgers, self-tests, and refusals."""

from __future__ import annotations

import json
import re
import sys

import pytest

BUILT_IN = (
    *("builtin", "--normalization", "expected", "--dimension", 10, "--dataset-size", 5, "--sample-rate", 0.05),
    *("--steps", 1, "--noise-multiplier", 10),
)
SHUFFLED = ("builtin", "--sampler", "shuffle", "--dataset-size", 100, "--batch-size", 10, "--epochs", 1)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The current folder holds a module of targets."""
    (tmp_path / "audited_by_cli.py").write_text(
        "import numpy as np\n"
        "def target(present, rng):\n    return rng.normal() + 3.0 * present\n"
        "def scored(present, rng):\n    return rng.normal(size=2) + [0.0, 3.0 * present]\n"
        "def second(outputs):\n    return outputs[:, 1]\n"
        "scored.scores = second\n"
        "def silent(present, rng):\n    rng.normal()\n"
        "def failing(present, rng):\n    raise ValueError('no luck')\n"
        "def leaking(present, rng, count=[0]):\n    count[0] += 1\n    return rng.normal() + count[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("audited_by_cli", None)


def test_a_built_in_audit_falsifies_the_claim(calipers) -> None:
    """N = 4, q = 0.05, n = 10: delta(0) at least 0.30, the accounting of the sum claims 0.002."""
    result = calipers("audit", *BUILT_IN, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    at_zero = next(row for row in found["delta"] if row["epsilon"] == 0)
    assert 0.30 <= at_zero["lower"] <= 0.3759
    assert at_zero["claim"] == pytest.approx(0.0019942, rel=1e-4)
    assert found["verdict"]["outcome"] == "falsified"
    assert found["trials"] == 10_000
    assert found["confidence"] == 0.95
    assert found["target"]["others"] == 4


def test_the_report_says_what_was_played_and_what_it_means(calipers) -> None:
    """Target, trials, distinguisher, bounds, verdict and what an audit cannot say."""
    shown = calipers("audit", *BUILT_IN, "--trials", 1000, "--epsilon", 0, "--delta", 1e-6).stdout
    text = " ".join(shown.split())
    assert "No claim was tested" not in text
    for expected in ("1,000 trials", "exact likelihood ratio", "delta = 1e-6", "Falsified", "proves no privacy"):
        assert expected in text


def test_without_a_claim_the_report_says_that_none_was_tested(calipers, mine) -> None:
    """Neither --claim nor a run: bounds only, and how to get a verdict."""
    shown = calipers("audit", "audited_by_cli:target", "--trials", 200).stdout
    assert "No claim was tested: add --claim EPSILON,DELTA" in shown


def test_a_function_of_ones_own_is_audited(calipers, mine) -> None:
    """A shift of 3: delta(0) is 0.866; the fitted score finds it, and (1, 1e-5) is falsified."""
    result = calipers("audit", "audited_by_cli:target", "--trials", 2000, "--claim", "1,1e-5", "--epsilon", 0, "--json")
    found = json.loads(result.stdout)
    assert 0.75 <= found["delta"][0]["lower"] <= 0.8664
    assert found["verdict"]["outcome"] == "falsified"
    assert found["upper_verdict"] is None


def test_scores_may_come_with_the_target_or_by_name(calipers, mine) -> None:
    """The attribute `scores` and --score find the second feature; the first holds nothing."""
    common = ("audit", "audited_by_cli:scored", "--trials", 1000, "--epsilon", 0, "--json")
    own = json.loads(calipers(*common).stdout)
    named = json.loads(calipers(*common, "--score", "audited_by_cli:second").stdout)
    plain = json.loads(calipers(*common, "--distinguisher", "matched-filter").stdout)
    assert own["delta"][0]["lower"] == named["delta"][0]["lower"] > 0.7
    assert plain["delta"][0]["lower"] < 0.1
    assert own["distinguisher"]["distinguisher"] == "function"


def test_a_described_run_is_tested_beside_its_certified_jaw(calipers, mine) -> None:
    """A shift of 3 is not a Gaussian mechanism with noise 10: the implementation is not the run described."""
    run = ("--sample-rate", 1, "--steps", 1, "--noise-multiplier", 10)
    found = json.loads(calipers("audit", "audited_by_cli:target", *run, "--trials", 1000, "--json").stdout)
    assert found["as_described"] is False
    honest = ("--sample-rate", 1, "--steps", 1, "--noise-multiplier", 0.3)
    found = json.loads(calipers("audit", "audited_by_cli:target", *honest, "--trials", 1000, "--json").stdout)
    assert found["as_described"] is True


def test_a_ledger_is_kept_and_resumed(calipers, refused, mine) -> None:
    """The second audit reads what the first one played; without --resume, or with other trials, it is refused."""
    common = ("audit", "audited_by_cli:target", "--ledger", "mine.ledger", "--epsilon", 0, "--json")
    first = json.loads(calipers(*common, "--trials", 200).stdout)
    again = json.loads(calipers(*common, "--trials", 200, "--resume").stdout)
    assert first.pop("provenance")["command"] != again.pop("provenance")["command"]
    assert first == again
    assert "--resume" in refused(*common, "--trials", 200)
    assert "trials is 200 there and 300 here" in refused(*common, "--trials", 300, "--resume")
    (mine / "notes.txt").write_text("precious")
    assert "not a ledger" in refused("audit", "audited_by_cli:target", "--ledger", "notes.txt", "--resume")
    assert (mine / "notes.txt").read_text() == "precious"


def test_a_self_test_finds_no_false_alarms(calipers, mine) -> None:
    """A sound target passes, in words and in JSON."""
    common = ("audit", "audited_by_cli:target", "--self-test", "--repeats", 10, "--trials", 100)
    assert "false alarms" in calipers(*common).stdout
    assert json.loads(calipers(*common, "--json").stdout)["calibrated"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'TARGET'"),
        (("builtin",), "builtin needs a run"),
        (("builtin", "--sample-rate", 0.1, "--steps", 1, "--noise-multiplier", 1), "--dataset-size"),
        (("audited_by_cli",), "form module:function"),
        (("audited_by_cli:nothing",), "it offers"),
        (("no_such_module:target",), "no module"),
        (("audited_by_cli:failing",), "ValueError: no luck"),
        (("audited_by_cli:leaking",), "played again"),
        (("audited_by_cli:silent",), "returned nothing in run 0"),
        (("audited_by_cli:target", "--vectors"), "built-in"),
        (("audited_by_cli:target", "--other-gradients", 0), "built-in"),
        (("audited_by_cli:target", "--distinguisher", "likelihood-ratio"), "built-in target"),
        (("audited_by_cli:target", "--distinguisher", "best"), "one of 'auto'"),
        (("audited_by_cli:target", "--score", "a:b", "--distinguisher", "plain"), "contradict"),
        (("audited_by_cli:target", "--trials", 0), "trials"),
        (("audited_by_cli:target", "--seed", -1), "seed"),
        (("audited_by_cli:target", "--jobs", 0), "jobs"),
        (("audited_by_cli:target", "--pilot", 1), "pilot"),
        (("audited_by_cli:target", "--confidence", 1), "confidence"),
        (("audited_by_cli:target", "--claim", "1"), "EPSILON,DELTA"),
        (("audited_by_cli:target", "--claim", "one,two"), "EPSILON,DELTA"),
        (("audited_by_cli:target", "--claim", "-1,0.1"), "epsilon"),
        (("audited_by_cli:target", "--resume"), "ledger"),
        (("audited_by_cli:target", "--delta", 2), "delta"),
        (("audited_by_cli:target", "--epsilon", -1), "epsilon"),
        (("audited_by_cli:target", "--self-test", "--claim", "1,0"), "self-test"),
    ],
)
def test_bad_input_is_refused(refused, mine, arguments: tuple, message: str) -> None:
    """Exit status 2, one sentence, nothing on standard output."""
    assert re.search(message, refused("audit", *arguments))


def test_the_help_teaches_how_to_write_a_target(calipers) -> None:
    """The signature, where randomness comes from, and what the verdict can be."""
    text = calipers("audit", "--help").stdout
    for expected in ("def target(present, rng):", "randomness from rng", "target.scores", "--resume", "cannot tell"):
        assert expected in text
    assert "falsify a true claim with a probability of at most about 0.4" in " ".join(text.split())


def test_a_sequential_audit_from_the_command_line(calipers, refused, mine) -> None:
    """It ends early, says so, keeps its looks in JSON, and goes on with the same ledger where nothing was told."""
    common = ("audit", "audited_by_cli:target", "--sequential", "--trials", 1000, "--epsilon", 0)
    shown = " ".join(calipers(*common, "--claim", "0.1,1e-5").stdout.split())
    assert "Sequential: 1 look, the last after" in shown
    assert "the confidence covers all looks" in shown
    assert "Falsified: with confidence 0.95" in shown
    ledger = (*common, "--claim", "12,0.9", "--ledger", "s.ledger")
    assert "--most-trials 2000 with the same ledger goes on" in " ".join(calipers(*ledger).stdout.split())
    more = json.loads(calipers(*ledger, "--resume", "--most-trials", 2000, "--json").stdout)
    assert [look["trials"] for look in more["looks"]][-2:] == [1000, 2000]
    assert more["trials"] == 2000
    assert "ends when a claim falls" in refused(*common)
    assert "--sequential" in refused("audit", "audited_by_cli:target", "--most-trials", 100)
    assert "self-test" in refused(*common, "--self-test")


def test_one_training_run_from_the_command_line(calipers, refused, mine) -> None:
    """Canaries by a function or a file; claims, runs, self-test; options of other audits are refused."""
    (mine / "canaries_by_cli.py").write_text(
        "def train(included, rng):\n    return 2.0 * included + rng.normal(size=included.size)\n"
    )
    train = ("audit", "canaries_by_cli:train", "--canaries", 1000)
    shown = " ".join(calipers(*train, "--claim", "1,1e-5").stdout.split())
    for words in ("one run, 1000 canaries", "Falsified: with confidence 0.95", "fair, independent coins"):
        assert words in shown
    found = json.loads(calipers(*train, "--guesses", "50,50", "--json").stdout)
    assert (found["epsilon"][0]["guesses"], found["verdict"]) == (100, None)
    run = ("--sample-rate", 1, "--steps", 1, "--noise-multiplier", 2)
    assert json.loads(calipers(*train, *run, "--json").stdout)["upper_verdict"]["outcome"] == "falsified"
    assert "false alarms: 0" in calipers(*train, "--self-test", "--repeats", 5).stdout
    (mine / "scores.csv").write_text("included,score\n" + "".join(f"{i % 2},{i % 2}\n" for i in range(100)))
    assert json.loads(calipers("audit", "scores.csv", "--json").stdout)["epsilon"][0]["canaries"] == 100
    for arguments, message in (
        ((*train, "--trials", 10), "--trials is about audits of many runs"),
        ((*train, "--sequential"), "--sequential is about audits of many runs"),
        ((*train, "--guesses", "many"), "IN,OUT"),
        ((*train, "--report", "r.html"), "--report"),
        (("audit", "audited_by_cli:target", "--guesses", "5,5"), "add --canaries"),
        (("audit", "scores.csv", "--self-test"), "name the function"),
        (("audit", "scores.csv", "--canaries", 5), "leave out --canaries"),
        (("audit", "missing.csv"), "missing.csv"),
    ):
        assert message in refused(*arguments)
    sys.modules.pop("canaries_by_cli", None)


def test_a_replaced_record_is_not_held_against_standard_accounting(calipers) -> None:
    """Its claim is about adding or removing one; the proof of the run, about substitution, is tested."""
    keys = ("--dataset-size", 80, "--batch-size", 8, "--epochs", 2, "--noise-multiplier", 1)
    result = calipers("audit", "builtin", *keys, "--adjacency", "substitute", "--trials", 400, "--json")
    record = json.loads(result.stdout)
    assert record["verdict"] is None
    assert record["upper_verdict"]["against"] == "upper bound"
    assert not any("claim" in bound for bound in record["epsilon"])
    said = " ".join(calipers("audit", "builtin", *keys, "--adjacency", "substitute", "--trials", 400).stdout.split())
    assert "This audit of one pair of datasets that differ by substituting one record" in said
    assert "standard accounting" not in said
