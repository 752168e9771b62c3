"""LiRA: shadow models, black-box and white-box, in ledgers that go on where they were."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.auditing.distinguishers import Plain  # noqa: E402
from calipers.auditing.game import play  # noqa: E402
from calipers.auditing.ledger import LedgerError  # noqa: E402
from calipers.errors import InputError  # noqa: E402
from calipers.samplers import Poisson  # noqa: E402
from calipers.training import shadows  # noqa: E402
from calipers.training.plan import Plan  # noqa: E402
from calipers.training.shadows import ShadowTraining, lira  # noqa: E402

pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
RECORDS = RNG.normal(size=(39, 6)).astype(np.float32)
LABELS = (RECORDS[:, 0] > 0).astype(np.int64)
OUTLIER = np.full(6, 4.0, dtype=np.float32)


def build(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(6, 2)


def target(noise=0.6, label=0, batch_size=20, steps=4, **settings):
    sampler = Poisson(dataset_size=40, batch_size=batch_size, steps=steps)
    plan = Plan(sampler=sampler, noise_multiplier=noise, learning_rate=2.0, seed=0)
    return ShadowTraining(plan, build, RECORDS, LABELS, record=OUTLIER, label=label, **settings)


def test_the_record_is_in_or_out_and_nothing_else_differs() -> None:
    """One step on everybody with the same noise: the sums differ by the record's gradient, which is clipped to 1."""
    watched = target(noise=0.1, batch_size=40, steps=1, white_box=True)
    seen = [watched._one(present, 7) for present in (False, True)]
    assert seen[1] - seen[0] == pytest.approx(1 / 0.1**2, rel=1e-3)
    assert target()._one(True, 7) == target()._one(True, 7) != target()._one(False, 7)


def test_what_the_others_give_is_subtracted() -> None:
    """Out and in, white-box evidence of a step is that of the noise and the record, whoever the others are."""
    seen = []
    for others, answers in ((RECORDS, LABELS), (-9.0 * RECORDS[::-1].copy(), 1 - LABELS)):
        plan = Plan(sampler=Poisson(dataset_size=40, batch_size=30, steps=1), noise_multiplier=0.5, seed=0)
        watched = ShadowTraining(plan, build, others, answers, record=OUTLIER, label=0, white_box=True)
        seen.append([watched._one(present, seed) for present in (False, True) for seed in range(4)])
    assert seen[0] == pytest.approx(seen[1], rel=1e-4)
    assert np.ptp(seen[0]) > 0.1  # and it is evidence, not a constant


def test_evidence_is_the_log_likelihood_ratio() -> None:
    """With everybody in every batch: out it is normal around -1/(2 sigma^2), in around +1/(2 sigma^2)."""
    watched = target(noise=1.5, batch_size=40, steps=1, white_box=True)
    for present, mean in ((False, -0.5), (True, 0.5)):
        found = np.array([watched._one(present, seed) for seed in range(60)])
        assert abs(found.mean() - mean / 1.5**2) < 4 / 1.5 / np.sqrt(60)
        assert 0.6 < found.std() * 1.5 < 1.5


@pytest.mark.slow
def test_lira_ends_with_three_numbers_and_goes_on_from_its_ledgers(tmp_path, monkeypatch) -> None:
    """An outlier with the wrong label is seen, white-box and black-box, and never beyond what is certified."""
    path = tmp_path / "lira.ledger"
    settings = {"shadows": 20, "trials": 80, "seed": 1, "delta": 1e-3}
    everybody = {"noise": 0.15, "batch_size": 40}
    white = lira(target(**everybody, white_box=True), **settings)
    black = lira(target(**everybody), **settings, ledger=path)
    for found in (white, black):
        assert 0.2 < found.observed.epsilon[0].value <= found.certified.lower <= found.certified.upper
    assert "LiRA with 20 shadow models each way saw at least" in black.sentence()
    path.unlink()  # the shadows are still there
    again = lira(target(**everybody), **settings, ledger=path, resume=True)
    trained, train = [], shadows.train
    monkeypatch.setattr(shadows, "train", lambda *given, **named: trained.append(train(*given, **named)))
    complete = lira(target(**everybody), **settings, ledger=path, resume=True)
    assert 0 < len(trained) <= 50  # of 200: one stored chunk of each ledger is played again
    assert again.sentence() == complete.sentence() == black.sentence()
    with pytest.raises(LedgerError, match="another game"):
        lira(target(noise=0.7), **settings, ledger=path, resume=True)


@pytest.mark.slow
def test_a_record_that_hardly_counts_is_not_seen() -> None:
    """With much noise 60 trainings each way show nothing: the observed bound is 0."""
    found = lira(target(noise=20.0), shadows=10, trials=60, seed=2, delta=1e-3)
    assert found.observed.epsilon[0].value == 0.0


def test_what_cannot_be_played_is_refused() -> None:
    """A sampler of another size, no noise, a divisor that counts, too few shadows."""
    plan = Plan(sampler=Poisson(dataset_size=39, batch_size=20, steps=4), noise_multiplier=1.0)
    with pytest.raises(InputError, match="there are 40"):
        ShadowTraining(plan, build, RECORDS, LABELS, record=OUTLIER, label=0)
    with pytest.raises(InputError, match="public divisor"):
        target(noise=0.0)
    with pytest.raises(InputError, match="Too few fit nothing"):
        lira(target(), shadows=3, trials=20, seed=0)


def test_runs_do_not_depend_on_how_they_are_shared_out() -> None:
    """Chunks have seeds of their own."""
    first = play(target(), Plain(), trials=4, seed=3, chunk=4)
    assert np.array_equal(first.present, play(target(), Plain(), trials=4, seed=3, chunk=4).present)
    assert not np.array_equal(first.present, first.absent)
