"""Auditing one step of the installed Opacus: the claim for the sum is falsified for "mean" and stands for "sum"."""

from __future__ import annotations

import inspect
import json
import pickle

import numpy as np
import pytest
from click.testing import CliRunner

from calipers.adapters.opacus_target import PARAMETERS, OpacusTarget, _engine, _span, network
from calipers.auditing.audit import audit
from calipers.auditing.distinguishers import ScoreFunction
from calipers.auditing.verdict import AuditOutcome
from calipers.cli import main
from calipers.errors import CertificationError, InputError
from calipers.measure import measure
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = pytest.mark.opacus

OFFERED = "criterion" in inspect.signature(opacus.PrivacyEngine.make_private).parameters
GHOST = pytest.param("ghost", marks=pytest.mark.skipif(not OFFERED, reason="comes with Opacus 1.5.3"))

CLAIM = measure(Run(sample_rate=0.5, steps=1, noise_multiplier=10.0)).claim


def audited(target: OpacusTarget, trials: int) -> AuditOutcome:
    verdict = audit(
        target, ScoreFunction(target.scores), trials=trials, seed=1, confidence=0.95,
        deltas=(1e-5,), epsilons=(0.0,), claim=CLAIM,
    ).verdict  # fmt: skip
    assert verdict is not None
    return verdict.outcome


def test_the_network_has_as_many_parameters_as_the_papers() -> None:
    """26,010."""
    assert sum(parameter.numel() for parameter in network().parameters()) == PARAMETERS == 26_010


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", GHOST])
def test_the_mean_falsifies_the_claim(mode: str) -> None:
    """Divisor 1 against 2 in 26,010 coordinates: a hundred trials are plenty."""
    assert audited(OpacusTarget(grad_sample_mode=mode), 100) is AuditOutcome.FALSIFIED


@pytest.mark.parametrize("mode", ["hooks", GHOST])
def test_the_sum_keeps_the_claim(mode: str) -> None:
    """The same step without division."""
    target = OpacusTarget(loss_reduction="sum", grad_sample_mode=mode)
    assert audited(target, 500 if mode == "hooks" else 100) is not AuditOutcome.FALSIFIED
    assert target.notes == ()


@pytest.mark.parametrize("mode", ["functorch", "ew"])
def test_a_step_that_fails_on_an_empty_batch_is_an_output(mode: str) -> None:
    """It has probability 1/8 without the record and 1/16 with it: likelihood ratio 1/2, whatever is divided."""
    target = OpacusTarget(loss_reduction="sum", grad_sample_mode=mode)
    for present, chance in ((False, 1 / 8), (True, 1 / 16)):
        outputs = target.outputs(present, 600, np.random.default_rng(11))
        failed = np.isinf(outputs).all(axis=1)
        assert np.array_equal(failed, np.isinf(outputs).any(axis=1))
        assert abs(failed.mean() - chance) < 5 * np.sqrt(chance * (1 - chance) / 600)
        assert target.scores(outputs[failed]) == pytest.approx(np.log(0.5))
        assert np.isfinite(target.scores(outputs)).all()
    (note,) = target.notes
    assert "fails on an empty batch" in note
    assert "0.125 without the record, 0.0625 with it" in note


def test_the_note_of_a_mode_reaches_the_result() -> None:
    """Who reads the audit reads that Opacus failed, and in which mode."""
    target = OpacusTarget(grad_sample_mode="functorch")
    result = audit(target, ScoreFunction(target.scores), trials=20, seed=1)
    assert target.notes[0] in result.to_dict()["notes"]  # type: ignore[operator]
    assert "functorch" in target.name


def test_the_command_knows_the_modes() -> None:
    """--grad-sample-mode belongs to Opacus; the verdict stands in the output."""
    answered = CliRunner().invoke(main, ["audit", "opacus", "--grad-sample-mode", "ghost", "--trials", "60", "--json"])
    if OFFERED:
        assert json.loads(answered.stdout)["verdict"]["outcome"] == "falsified"
    else:
        assert f"Opacus {opacus.__version__} has no --grad-sample-mode ghost" in answered.stderr
    refused = CliRunner().invoke(main, ["audit", "mine:target", "--grad-sample-mode", "ghost"])
    assert refused.exit_code == 2
    assert "--grad-sample-mode is about opacus" in refused.stderr


def test_outputs_have_the_law_that_the_scores_assume() -> None:
    """Residual: chi-square of 26,010 - 4 coordinates of standard deviation 1 (absent) or 1/2 (present)."""
    target = OpacusTarget()
    for present, scale in ((False, 1.0), (True, 0.5)):
        outputs = target.outputs(present, 60, np.random.default_rng(3))
        assert outputs.shape == (60, 5)
        degrees = 60 * (PARAMETERS - 4)
        deviation = (outputs[:, -1].sum() / scale**2 - degrees) / np.sqrt(2 * degrees)
        assert abs(deviation) < 5


@pytest.mark.parametrize(("mode", "noise"), [("hooks", 2.0), ("functorch", 10.0)])
def test_the_scores_are_the_likelihood_ratio_of_the_sum(mode: str, noise: float) -> None:
    """Neyman-Pearson: E_absent[exp(score)] = 1, here within five standard errors."""
    target = OpacusTarget(loss_reduction="sum", noise_multiplier=noise, grad_sample_mode=mode)
    ratio = np.exp(target.scores(target.outputs(False, 600, np.random.default_rng(5))))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(ratio.size)


def test_gradients_are_clipped_and_batches_are_drawn_at_one_half() -> None:
    """What the likelihood assumes about the engine is what Opacus configured."""
    target = OpacusTarget()
    assert [_engine(target, present).sample_rate for present in (False, True)] == [0.5, 0.5]
    assert [_engine(target, present).divisor for present in (False, True)] == [1.0, 2.0]
    norms = np.linalg.norm(_span(target)[1], axis=1)
    assert norms == pytest.approx(np.full(4, 0.1), rel=1e-4)


def test_equal_seeds_give_equal_outputs_also_in_a_copy() -> None:
    """The generator is the only source of randomness, and a target travels."""
    target = OpacusTarget()
    copy = pickle.loads(pickle.dumps(target))
    first, again = (one.outputs(True, 10, np.random.default_rng(7)) for one in (target, copy))
    assert np.array_equal(first, again)
    assert target == copy
    assert target.identity() == copy.identity()
    assert OpacusTarget(loss_reduction="sum") != target


def test_what_cannot_be_audited_is_refused() -> None:
    """Gradients that are not clipped, images of another shape, too many records."""
    with pytest.raises(CertificationError, match="not clipped"):
        OpacusTarget(max_grad_norm=1e4).outputs(True, 1, np.random.default_rng(0))
    with pytest.raises(InputError, match="shape"):
        OpacusTarget(images=np.zeros((4, 27, 28)), labels=np.zeros(4, dtype=int))
    with pytest.raises(InputError, match="cannot use device"):
        OpacusTarget(device="cuda:99")
    with pytest.raises(InputError, match="dataset_size"):
        OpacusTarget(dataset_size=40)
