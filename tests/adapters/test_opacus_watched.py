"""Loops that do something else than they were configured to do: each gives the truth, a wider bracket, or a refusal.

N 1050, B 100, sigma 1, sums, delta 1e-5 unless a test says otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.errors import CalipersWarning, InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

DELTA = 1e-5


def poisson(noise: float = 1.0, steps: int = 22, batches: int = 11, size: int = 1050) -> Run:
    """Opacus's own sampling."""
    return Run(dataset_size=size, sample_rate=1 / batches, noise_multiplier=noise, steps=steps)


def epsilon(*runs: Run) -> Any:
    """The bracket of a description by hand."""
    return measure(runs).epsilon(DELTA)


def gaussian(count: int, noise: float = 1.0) -> Any:
    """So many releases at known times."""
    return epsilon(Run(dataset_size=10, batch_size=10, steps=count, noise_multiplier=noise, sampler="deterministic"))


def same(found: Any, expected: Any) -> bool:
    """Equal jaws."""
    return (found.lower, found.upper) == (expected.lower, expected.upper)


def test_the_configured_loop_is_the_configured_run(script) -> None:
    """Nothing to complain about, and the facts say why."""
    loop = script()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(2)
    assert same(record.epsilon(DELTA), epsilon(poisson()))
    assert record.why_not() == ()
    facts = record.facts
    assert (
        facts["steps"]
        == facts["batches drawn"]
        == facts["batches used"]
        == facts["steps counted by the accountant"]
        == 22
    )
    assert (facts["passes begun"], facts["passes finished"], facts["most steps on one batch"]) == (2, 2, 1)
    assert facts["library"] == f"Opacus {opacus.__version__}"
    assert not facts["step hook replaced"]


def test_a_loop_over_its_own_loader_has_no_upper_jaw(script) -> None:
    """The returned loader draws nothing: the first step is a warning, and nothing is proven."""
    loop = script()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    with pytest.warns(CalipersWarning, match="no watched loader delivered"):
        loop.train(2, loader=loop.own_loader)
    bracket = record.epsilon(DELTA)
    assert (bracket.lower, bracket.upper) == (0.0, math.inf)
    assert "Iterate the loader that make_private returned" in record.why_not()[0]
    assert record.runs() == ()
    measured = record.measure()
    assert measured.delta(1.0).upper == 1.0
    assert measured.tpr(0.1).upper == 1.0
    assert measured.gdp().mu.upper == math.inf


def test_a_second_loader_that_is_not_watched_has_no_upper_jaw_and_one_that_is_has(script) -> None:
    """B = 500 in the second epoch samples at 1/3."""
    for watched in (False, True):
        loop = script()
        record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
        other = opacus.data_loader.DPDataLoader.from_data_loader(
            torch.utils.data.DataLoader(loop.data, batch_size=500, shuffle=True)
        )
        loop.train()
        if watched:
            assert attach(loop.engine, loop.optimizer, other, batch_size=500) is record
            loop.train(loader=other)
            expected = epsilon(poisson(steps=11), poisson(steps=3, batches=3))
            assert same(record.epsilon(DELTA), expected)
            assert (expected.lower, expected.upper) == pytest.approx((4.969, 4.972), abs=5e-4)
        else:
            with pytest.warns(CalipersWarning, match="clipped"):
                loop.train(loader=other)
            assert record.epsilon(DELTA).upper == math.inf


def test_three_steps_on_each_batch_are_one_with_less_noise(script) -> None:
    """The batch is drawn once: sqrt(3) times the signal, for 11 draws."""
    loop = script()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(repeat=3)
    bracket = record.epsilon(DELTA)
    assert bracket.lower <= 8.813
    assert bracket.upper >= 8.809
    assert same(bracket, epsilon(*record.runs()))
    assert record.runs()[0].noise_multiplier == pytest.approx(1 / math.sqrt(3), rel=1e-12)
    assert record.runs()[0].noise_multiplier < 1 / math.sqrt(3)
    assert (record.steps, record.facts["most steps on one batch"]) == (33, 3)


def test_a_fixed_order_broken_off_repeats_its_first_batches(script) -> None:
    """Four epochs of 5 of 10 batches: the first 500 records took part four times, and everybody knows when."""
    loop = script(1000, loader={"shuffle": False}, poisson_sampling=False)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, adjacency="zero-out")
    loop.train(4, stop=5)
    assert same(record.epsilon(DELTA), gaussian(4))
    assert record.epsilon(DELTA).upper >= 9.997
    assert "5 of 10 batches" in record.why_not()[0]
    assert record.facts["most participations of a record"] == 4


def test_a_shuffled_order_broken_off_is_bounded_by_one_participation_a_pass(script) -> None:
    """Every pass draws anew, so a record can be in all four; no attack is claimed."""
    loop = script(1000, poisson_sampling=False)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, adjacency="zero-out")
    loop.train(4, stop=5)
    bracket = record.epsilon(DELTA)
    assert (bracket.lower, bracket.upper) == (0.0, gaussian(4).upper)
    assert any("once in every pass" in note for note in record.measure().notes)


def test_half_a_dataset_a_pass_is_no_epoch(script) -> None:
    """RandomSampler(num_samples=500): known when attached, and measured like a pass that breaks off."""
    loop = script(
        1000, order=lambda data: torch.utils.data.RandomSampler(data, num_samples=500), poisson_sampling=False
    )
    with pytest.warns(CalipersWarning, match="no permutation"):
        record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(4)
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        assert (record.epsilon(DELTA).lower, record.epsilon(DELTA).upper) == (0.0, gaussian(4).upper)


def test_draws_with_replacement_are_measured_as_they_came(script) -> None:
    """A record m times in a batch moves the sum by m clipping norms: the counts are added up by hand here."""
    loop = script(
        40, 10, order=lambda data: torch.utils.data.RandomSampler(data, replacement=True), poisson_sampling=False
    )
    with pytest.warns(CalipersWarning, match="no permutation"):
        record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    shown = torch.zeros(40)
    batches = iter(loop.loader)
    for records, labels in batches:
        indices = [int((loop.data.tensors[0] == row).all(dim=1).nonzero()) for row in records]
        times = torch.bincount(torch.tensor(indices), minlength=40)
        shown += times**2
        loop.step(records, labels)
    assert shown.max() > 1
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        (run,) = record.runs()
    assert run.total_steps == int(shown.max())
    bracket = record.epsilon(DELTA)
    assert (bracket.lower, bracket.upper) == (0.0, gaussian(int(shown.max())).upper)
    assert any("given the batches that it drew" in note for note in record.measure().notes)


def test_a_hook_attached_later_takes_nothing_away(script) -> None:
    """It replaces the accountant's hook, which stops counting; the record does not."""
    loop = script()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train()
    loop.optimizer.attach_step_hook(lambda optimizer: None)
    loop.train()
    assert same(record.epsilon(DELTA), epsilon(poisson()))
    assert record.facts["step hook replaced"]
    assert (record.steps, record.facts["steps counted by the accountant"]) == (22, 11)


def checkpoint(script: Any, path: Any, accountant: str = "rdp") -> Any:
    """Two epochs, saved as Opacus saves."""
    loop = script(accountant=accountant)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(2)
    saved = {"calipers": record.state_dict()}
    loop.engine.save_checkpoint(path=path, module=loop.model, optimizer=loop.optimizer, checkpoint_dict=saved)
    return loop


def test_a_checkpoint_goes_on_with_its_record_or_is_refused(script, tmp_path) -> None:
    """44 steps are known only to who watched the first 22, or vouches for them."""
    path = tmp_path / "checkpoint.pt"
    checkpoint(script, path)
    expected = epsilon(poisson(steps=44))
    loop = script(seed=1)
    loaded = loop.resume(path)
    with pytest.raises(UnsupportedError, match=r"history counts 22 steps, and 0 .*state=saved"):
        attach(loop.engine, loop.optimizer, loop.loader)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, state=loaded["calipers"])
    loop.train(2)
    assert same(record.epsilon(DELTA), expected)
    assert (expected.lower, expected.upper) == pytest.approx((4.454, 4.456), abs=5e-4)
    assert (record.steps, record.facts["passes finished"]) == (44, 4)

    vouched = script(seed=1)
    vouched.resume(path)
    record = attach(vouched.engine, vouched.optimizer, vouched.loader, loss=vouched.criterion, earlier=[poisson()])
    vouched.train(2)
    assert same(record.epsilon(DELTA), epsilon(poisson(), poisson()))
    assert any("22 steps were not watched" in note for note in record.measure().notes)
    loop = script(batch=90)
    loop.resume(path)
    with pytest.raises(InputError, match="another loader"):
        attach(loop.engine, loop.optimizer, loop.loader, state=loaded["calipers"])


def test_a_checkpoint_loaded_after_attaching_is_noticed(script, tmp_path) -> None:
    """The history jumps by steps that nobody watched; with the record's own state it does not."""
    path = tmp_path / "checkpoint.pt"
    checkpoint(script, path)
    loop = script(seed=1)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loaded = loop.resume(path)
    record.load_state_dict(loaded["calipers"])
    loop.train(2)
    assert same(record.epsilon(DELTA), epsilon(poisson(steps=44)))
    blind = script()
    record = attach(blind.engine, blind.optimizer, blind.loader, loss=blind.criterion)
    blind.resume(path)
    blind.train(2)
    assert record.epsilon(DELTA).upper == math.inf
    assert "history counts 44 steps, and 22" in record.why_not()[0]


def test_a_resumed_script_that_seeds_again_repeats_its_noise(script, tmp_path) -> None:
    """The same seed at the beginning of both parts: the second part's first step has the noise of the first."""
    path = tmp_path / "checkpoint.pt"
    checkpoint(script, path)
    loop = script()
    loaded = loop.resume(path)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, state=loaded["calipers"])
    with pytest.warns(CalipersWarning, match="generator"):
        loop.train()
    assert record.epsilon(DELTA).upper == math.inf
    assert any("noise of an earlier step was added again" in reason for reason in record.why_not())


@pytest.mark.parametrize("mode", ["ghost", "per_layer"])
def test_a_norm_that_the_clipping_does_not_follow_is_measured_as_realized(script, mode) -> None:
    """ExponentialGradClip halves the norm of the noise and not that of the clipping: noise 1, then 1/2."""
    settings = (
        {"grad_sample_mode": "ghost"} if mode == "ghost" else {"clipping": "per_layer", "max_grad_norm": [0.6, 0.8]}
    )
    loop = script(**settings)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    scheduler = opacus.schedulers.ExponentialGradClip(loop.optimizer, gamma=0.5)
    loop.train()
    scheduler.step()
    loop.train()
    noises = record.facts["noise multipliers realized"]
    assert noises == pytest.approx([0.5, 1.0], rel=1e-6)
    bracket = record.epsilon(DELTA)
    # With per-layer norms Opacus rounds their total to single precision, and so does the noise.
    assert bracket.lower <= 12.16
    assert bracket.upper >= 12.15
    if mode == "ghost":
        assert same(bracket, epsilon(poisson(steps=11), poisson(0.5, 11)))


def test_flat_clipping_follows_its_scheduler(script) -> None:
    """The optimizer clips by the norm that the scheduler changes: the noise multiplier stays."""
    loop = script()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    scheduler = opacus.schedulers.ExponentialGradClip(loop.optimizer, gamma=0.5)
    loop.train()
    scheduler.step()
    loop.train()
    assert same(record.epsilon(DELTA), epsilon(poisson()))
    assert record.facts["clipping norms realized"] == [0.5, 1.0]


def test_poisson_loaders_made_from_dropping_ones(script) -> None:
    """drop_last=True makes floor(N/B) batches: 10 of 1050 records; from 1399 to 1400 records 13 become 14."""
    loop = script(loader={"drop_last": True})
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, batch_size=100)
    loop.train(2)
    assert same(record.epsilon(DELTA), epsilon(poisson(batches=10, steps=20)))
    for size in (1399, 1400):
        moving = script(size, loader={"drop_last": True})
        for settings in ({}, {"batch_size": 100}):
            with pytest.raises(UnsupportedError, match="it differs between neighbors"):
                attach(moving.engine, moving.optimizer, moving.loader, adjacency="add-remove", **settings)
    moving = script(1399, loader={"drop_last": True})
    with pytest.raises(UnsupportedError, match=r"N = 1399: rate 1/13.*N = 1400: rate 1/14"):
        attach(moving.engine, moving.optimizer, moving.loader, batch_size=100, adjacency="add-remove")


@pytest.mark.parametrize("size", [1000, 500])
def test_a_multiple_of_the_batch_size_has_an_answer(script, size) -> None:
    """Refused before training for add-remove; with a rate that is a constant, or with one zeroed out, it is plain."""
    loop = script(size)
    with pytest.raises(UnsupportedError, match="public_rate=True if rate and steps are constants"):
        attach(loop.engine, loop.optimizer, loop.loader, adjacency="add-remove")
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, public_rate=True)
    loop.train(2)
    batches = size // 100
    assert same(record.epsilon(DELTA), epsilon(poisson(steps=2 * batches, batches=batches, size=size)))
    assert record.epsilon(DELTA, public_rate=False, adjacency="add-remove").upper == math.inf
    zeroed = record.epsilon(DELTA, public_rate=False, adjacency="zero-out")
    assert same(zeroed, epsilon(poisson(steps=2 * batches, batches=batches, size=size).replace(adjacency="zero-out")))


@pytest.mark.parametrize("engine", ["plain", "ghost"])
def test_adaptive_clipping_is_refused_before_training(script, engine) -> None:
    """Its norm is learned from the data; the ghost engine's noise follows the realized batch size. By release."""
    if engine == "plain":
        loop = script(
            clipping="adaptive", target_unclipped_quantile=0.5, clipbound_learning_rate=0.1, max_clipbound=2.0,
            min_clipbound=0.1, unclipped_num_std=5.0,
        )  # fmt: skip
    else:
        pytest.importorskip("opacus.utils.adaptive_clipping", reason="comes with Opacus 1.5.3")
        loop = script(
            engine="opacus.utils.adaptive_clipping.adaptive_clipping_utils.PrivacyEngineAdaptiveClipping",
            grad_sample_mode="ghost",
        )
    with pytest.raises(UnsupportedError, match=rf"Adaptive clipping in Opacus {opacus.__version__}"):
        attach(loop.engine, loop.optimizer, loop.loader)
