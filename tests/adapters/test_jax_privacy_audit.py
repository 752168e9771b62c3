"""Auditing the installed JAX-Privacy: a public divisor keeps the claim, one that is computed from N does not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calipers.adapters.jax_privacy_target import DEFAULT_RUN, JaxPrivacyTarget
from calipers.auditing.audit import audit
from calipers.auditing.choosing import distinguisher_for
from calipers.auditing.distinguishers import LikelihoodRatio
from calipers.auditing.game import play
from calipers.auditing.verdict import AuditOutcome, Verdict
from calipers.cli import main
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra jax-privacy")
pytestmark = [
    pytest.mark.jax_privacy,
    # JAX-Privacy calls a function of optax by its old name.
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning"),
]


def described(**changes: Any) -> Run:
    return Run(
        **{"dataset_size": 5, "sample_rate": 0.5, "steps": 1, "noise_multiplier": 10.0, "dimension": 100} | changes
    )


def verdict_on(run: Run, trials: int, violation: float) -> Verdict:
    target = JaxPrivacyTarget.of_run(run)
    result = audit(
        target, distinguisher_for(target), trials=trials, seed=1, epsilons=(0.0,), claim=measure(run).claim,
        violation=violation,
    )  # fmt: skip
    assert result.verdict is not None
    return result.verdict


def test_a_divisor_written_down_once_keeps_the_claim() -> None:
    """normalize_by is q times the size with the record, for both datasets."""
    assert verdict_on(DEFAULT_RUN, 3000, 0.08).outcome is AuditOutcome.CONSISTENT


@pytest.mark.parametrize("normalization", ["expected", "floor"])
def test_a_divisor_computed_from_the_size_falsifies_it(normalization: str) -> None:
    """normalize_by = N q is 2 without the record and 2.5 with it (floor, N = 3: 1 and 2); the noise is scaled along."""
    run = described(normalization=normalization, dataset_size=5 if normalization == "expected" else 4)
    assert verdict_on(run, 300, 0.05).outcome is AuditOutcome.FALSIFIED


def test_outputs_have_the_law_that_the_likelihood_assumes() -> None:
    """The squared rest is chi-square of n - 1 coordinates with deviation sigma over normalize_by."""
    target = JaxPrivacyTarget.of_run(described(normalization="expected", steps=3))
    for present, divisor in ((False, 2.0), (True, 2.5)):
        assert target.normalize_by(present) == divisor
        outputs = target.outputs(present, 100, np.random.default_rng(4))
        assert outputs.shape == (100, 3, 2)
        degrees = 300 * 99
        deviation = (outputs[..., 1].sum() * (divisor / 10.0) ** 2 - degrees) / np.sqrt(2 * degrees)
        assert abs(deviation) < 5
        # Steps of one run have noise of their own.
        along = outputs[..., 0] - outputs[..., 0].mean()
        assert abs((along[:, 0] * along[:, 1]).mean()) < 5 * along.var() / 10


def test_records_are_clipped_and_drawn_at_the_stated_rate() -> None:
    """Gradients of norm 2 arrive with norm 1: +1 with probability 1/2, and -1 for each of four others."""
    run = described(noise_multiplier=1e-3, normalization="none")
    alone = JaxPrivacyTarget.of_run(run, gradient=0).outputs(True, 400, np.random.default_rng(5))[:, 0, 0]
    rounded = np.round(alone)
    assert np.abs(alone - rounded).max() < 0.01
    assert set(rounded) == {0.0, 1.0}
    assert abs(rounded.mean() - 0.5) < 5 * 0.5 / 20
    crowd = np.round(JaxPrivacyTarget.of_run(run, gradient=-1).outputs(False, 400, np.random.default_rng(5))[:, 0, 0])
    assert set(crowd) == {0.0, -1.0, -2.0, -3.0, -4.0}
    assert abs(crowd.mean() + 2.0) < 5 / 20


def test_the_likelihood_ratio_has_mean_one_without_the_record() -> None:
    """E_absent[exp(score)] = 1 within five standard errors, over two steps."""
    target = JaxPrivacyTarget.of_run(described(noise_multiplier=2.0, steps=2, normalization="constant"))
    ratio = np.exp(distinguisher_for(target).scores(target.outputs(False, 1500, np.random.default_rng(6))))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(ratio.size)


def test_vectors_and_two_numbers_are_one_output() -> None:
    """With the same seed, projection and squared rest are those of the vectors."""
    run = described(dimension=20)
    pairs, vectors = (
        JaxPrivacyTarget.of_run(run, vectors=form).outputs(True, 5, np.random.default_rng(2)) for form in (False, True)
    )
    assert vectors.shape == (5, 1, 20)
    assert np.array_equal(pairs[..., 0], vectors[..., 0])
    assert pairs[..., 1] == pytest.approx(np.square(vectors[..., 1:]).sum(axis=2), rel=1e-12)


def test_processes_of_their_own_give_the_same_scores() -> None:
    """JAX does not survive a fork; joblib's workers are started afresh, and compile for themselves."""
    target = JaxPrivacyTarget.of_run(described(normalization="expected"))
    assert pickle.loads(pickle.dumps(target)) == target
    here, there = (
        play(target, LikelihoodRatio(target.sums), trials=60, seed=3, chunk=20, jobs=jobs) for jobs in (1, 2)
    )
    assert np.array_equal(here.absent, there.absent)
    assert np.array_equal(here.present, there.present)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalization": "realized"}, "cannot be the size of the batch"),
        ({"adjacency": "substitute"}, "adjacency='substitute' cannot be played"),
        ({"sampler": "balls-and-bins", "sample_rate": None, "batch_size": 1, "steps": 5}, "draws Poisson batches"),
        ({"normalization": "floor", "sample_rate": 0.2}, "normalize_by would be 0"),
        ({"dataset_size": 1, "normalization": "expected"}, "normalize_by would be 0"),
    ],
)
def test_what_the_plan_cannot_express_is_refused(changes: dict[str, Any], message: str) -> None:
    """Batch sizes as divisors, other samplers and adjacencies, a divisor of zero."""
    with pytest.raises((UnsupportedError, InputError), match=message):
        JaxPrivacyTarget.of_run(described(**changes))


def called(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", "jax-privacy", *arguments])


OPTIONS = ("--normalization", "expected", "--dimension", "100", "--dataset-size", "5", "--sample-rate", "0.5")


def test_the_command_audits_resumes_and_reports(tmp_path: Path) -> None:
    """The run's options reach the plan; a ledger continues; the report is one file."""
    ledger, report = tmp_path / "jax.ledger", tmp_path / "jax.html"
    arguments = (*OPTIONS, "--steps", "1", "--noise-multiplier", "10", "--trials", "100", "--json")
    first = called(*arguments, "--ledger", str(ledger), "--report", str(report))
    record = json.loads(first.stdout)
    assert record["verdict"]["outcome"] == "falsified"
    assert record["target"]["jax_privacy"]
    assert "JAX-Privacy" in report.read_text(encoding="utf-8")
    again = called(*arguments, "--ledger", str(ledger), "--resume")
    resumed = json.loads(again.stdout)
    assert resumed.pop("provenance")["command"] != record.pop("provenance")["command"]
    assert resumed == record


def test_the_command_tests_itself() -> None:
    """Without the record nothing is found more often than it may be."""
    record = json.loads(called("--self-test", "--repeats", "10", "--trials", "60", "--json").stdout)
    assert record["calibrated"] is True


@pytest.mark.parametrize("arguments", [("--device", "cuda"), ("--grad-sample-mode", "ghost")])
def test_options_of_other_targets_are_refused(arguments: tuple[str, ...]) -> None:
    """JAX chooses its device by itself; modes are Opacus's."""
    refused = called(*arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "leave it out with jax-privacy" in refused.stderr
