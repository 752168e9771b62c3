"""An Opacus training script, described and measured as it ran, beside Opacus's own accountants."""

from __future__ import annotations

import pytest

from calipers.adapters.opacus import attach, run_of
from calipers.adapters.torch_sampler import TorchBatches
from calipers.errors import CalipersWarning, InputError, UnsupportedError
from calipers.run import Run
from calipers.samplers import (
    BallsAndBins,
    CyclicPoisson,
    FixedSize,
    Poisson,
    RandomAllocation,
    Shuffle,
    TruncatedPoisson,
)

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

PARAMETERS = 6 * 3 + 3


@pytest.fixture
def small(script):
    """107 records in batches of 10, divided by their mean as Opacus does by default."""

    def make(size: int = 107, batch: int = 10, **settings):
        return script(size, batch, **({"noise_multiplier": 1.1, "loss_reduction": "mean"} | settings))

    return make


def watched(loop, **settings):
    """The first of the two lines."""
    return attach(loop.engine, loop.optimizer, loop.loader, **({"loss": loop.criterion} | settings))


def test_the_run_is_what_was_configured_and_taken(small) -> None:
    """107 records in batches of 10: rate 1/11, floor 9 for 106, 107 and 108 records, 22 steps in two epochs."""
    loop = small()
    record = watched(loop, batch_size=10)
    loop.train(2)
    (run,) = record.runs()
    assert run == Run(
        dataset_size=107,
        sample_rate=1 / 11,
        steps=22,
        noise_multiplier=1.1,
        normalization="floor",
        dimension=PARAMETERS,
    )
    assert record.steps == 22
    assert loop.engine.accountant.history == [(1.1, 1 / 11, 22)]


def test_a_bracket_at_the_end_and_opacus_inside_its_own_claim(small) -> None:
    """With sums the plain guarantee holds: Opacus's epsilon is not below our lower bound."""
    loop = small(loss_reduction="sum", accountant="prv")
    record = watched(loop, batch_size=10)
    loop.train()
    bracket = record.epsilon(delta=1e-5)
    assert bracket.lower <= bracket.upper
    assert bracket.lower <= loop.engine.get_epsilon(1e-5) <= bracket.upper + 0.02


def test_a_schedule_of_noise_makes_phases(small) -> None:
    """Each stretch of equal noise is a run of its own."""
    loop = small(loss_reduction="sum")
    record = watched(loop, batch_size=10)
    loop.train()
    loop.optimizer.noise_multiplier = 2.0
    loop.train()
    assert [(run.noise_multiplier, run.total_steps) for run in record.runs()] == [(1.1, 11), (2.0, 11)]


def test_without_a_batch_size_every_possible_one_must_agree(small) -> None:
    """11 batches of 110 records: batches of 10 are possible, and with them one more record moves the rate.

    So they are for 107 records, in batches of 9 with the last one dropped: 108 records make 12.
    """
    loop = small(size=106)
    assert run_of(loop.optimizer, loop.loader, steps=5).sample_rate == 1 / 11
    for size, advice in ((110, "of 10, had drop_last=True is not known"), (107, r"say attach\(\.\.\., batch_size")):
        full = small(size=size)
        with pytest.raises(UnsupportedError, match=f"differs between neighbors.*{advice}"):
            run_of(full.optimizer, full.loader, steps=5)
    assert run_of(full.optimizer, full.loader, steps=5, batch_size=10).sample_rate == 1 / 11
    with pytest.raises(InputError, match="batch_size=20 makes 6 batches"):
        run_of(loop.optimizer, loop.loader, steps=5, batch_size=20)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (BallsAndBins(dataset_size=100, batch_size=10, epochs=2), {"batch_size": 10, "sampler": "balls-and-bins"}),
        (BallsAndBins(dataset_size=100, rounds=8, epochs=2), {"sample_rate": 1 / 8, "sampler": "balls-and-bins"}),
        (Shuffle(dataset_size=107, batch_size=10, epochs=2), {"batch_size": 10, "sampler": "shuffle"}),
        (Poisson(dataset_size=107, sample_rate=0.03, steps=66), {"sample_rate": 0.03, "sampler": "poisson"}),
    ],
)
def test_batches_of_our_own_samplers_are_recognized(small, sampler, expected) -> None:
    """The object that draws is the one that is measured: sizes and law come from it, steps from what was taken."""
    size = sampler.dataset_size
    loop = small(size=size, batches=TorchBatches(sampler, seed=1), poisson_sampling=False, loss_reduction="sum")
    record = watched(loop)
    loop.train(2)
    (run,) = record.runs()
    shared = {"dataset_size": size, "noise_multiplier": 1.1, "dimension": PARAMETERS, "normalization": "none"}
    assert run == Run(**shared, **expected, steps=sampler.law().steps)
    assert record.epsilon(delta=1e-5).upper > 0


def test_divisors_that_no_sampler_of_ours_means_are_refused(small) -> None:
    """Means over batches of random size, and fewer batches than an epoch holds; fixed sizes are a constant."""
    random = BallsAndBins(dataset_size=100, batch_size=10, epochs=1)
    loop = small(size=100, batches=TorchBatches(random), poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="loss_reduction='sum'"):
        run_of(loop.optimizer, loop.loader, steps=10)
    fixed = Shuffle(dataset_size=100, batch_size=10, epochs=1)
    loop = small(size=100, batches=TorchBatches(fixed), poisson_sampling=False)
    assert run_of(loop.optimizer, loop.loader, steps=10).normalization == "constant"
    fewer = Shuffle(dataset_size=100, batch_size=10, epochs=1, rounds=7)
    loop = small(size=100, batches=TorchBatches(fewer), poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="leave rounds out"):
        run_of(loop.optimizer, loop.loader, steps=7)


def test_a_divisor_chosen_by_hand_is_a_constant(small) -> None:
    """Not the number that make_private computes."""
    loop = small()
    loop.optimizer.expected_batch_size = 10
    assert run_of(loop.optimizer, loop.loader, steps=5, batch_size=10).normalization == "constant"


def test_loaders_that_are_not_poisson_are_called_by_their_name(small) -> None:
    """poisson_sampling=False leaves the script's own loader in place."""
    shuffled = small(size=100, poisson_sampling=False)
    run = run_of(shuffled.optimizer, shuffled.loader, steps=20, adjacency="zero-out")
    assert (run.sampler, run.batch_size, run.normalization) == ("shuffle", 10, "constant")
    ordered = small(size=100, poisson_sampling=False, loader={"shuffle": False})
    assert run_of(ordered.optimizer, ordered.loader, steps=10, adjacency="zero-out").sampler == "deterministic"
    for dropping, last, steps in ((False, "keep", 11), (True, "drop", 10)):
        ragged = small(size=107, poisson_sampling=False, loader={"drop_last": dropping})
        run = run_of(ragged.optimizer, ragged.loader, steps=steps, adjacency="zero-out")
        assert (run.last_batch, run.total_epochs) == (last, 1)


def test_what_is_no_private_optimizer_is_refused(small) -> None:
    """And there is nothing to say before the first step."""
    loop = small()
    with pytest.raises(InputError, match="make_private"):
        attach(loop.engine, torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), loop.loader)
    with pytest.raises(InputError, match="No step"):
        watched(loop, batch_size=10).runs()


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Shuffle(dataset_size=100, batch_size=10, epochs=2, reshuffle="once"), {"batch_size": 10, "reshuffle": "once"}),
        (BallsAndBins(dataset_size=100, batch_size=10, epochs=2, reshuffle="once"), {"reshuffle": "once"}),
        (Shuffle(dataset_size=105, batch_size=10, epochs=2, last_batch="keep"), {"last_batch": "keep"}),
        (FixedSize(dataset_size=100, batch_size=10, steps=4), {"batch_size": 10, "sampler": "without-replacement"}),
        (FixedSize(dataset_size=100, batch_size=10, steps=4, replacement=True), {"sampler": "with-replacement"}),
        (TruncatedPoisson(dataset_size=100, batch_size=10, steps=4, max_batch_size=12), {"max_batch_size": 12}),
    ],
)
def test_what_our_own_samplers_say_of_themselves_is_measured(small, sampler, expected) -> None:
    """An order that is kept shows more than a new one in every epoch, and a full batch more than coins."""
    drawn = {"batches": TorchBatches(sampler, seed=1), "poisson_sampling": False, "loss_reduction": "sum"}
    loop = small(size=sampler.dataset_size, **drawn)
    record = watched(loop, adjacency="zero-out")
    while record.steps < sampler.law().steps:
        loop.train(1)
    (run,) = record.runs()
    assert run.total_steps == sampler.law().steps
    assert run.sampler == sampler.law().sampler
    assert {key: getattr(run, key) for key in expected} == expected


@pytest.mark.parametrize(
    "sampler",
    [
        CyclicPoisson(dataset_size=100, sample_rate=0.2, cycle=2, steps=10),
        RandomAllocation(dataset_size=100, steps=10, participations=2),
    ],
)
def test_samplers_that_tie_all_their_steps_together_are_refused(small, sampler) -> None:
    """Who watches the first steps cannot know that the last ones are taken."""
    loop = small(size=100, batches=TorchBatches(sampler), poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="ties all of its steps together"):
        run_of(loop.optimizer, loop.loader, steps=10)


def test_a_shuffled_loader_whose_divisor_moves_says_that_records_are_zeroed_out(small) -> None:
    """107 records in 10 batches divide by 10, as 106 and 108 do; 110 in one batch divide by 110, and 109 by 109."""
    for size, moves in ((107, False), (110, True)):
        loop = small(size=size, batch=10 if size == 107 else 100, poisson_sampling=False, loader={"drop_last": True})
        if moves:
            with pytest.warns(CalipersWarning, match="for zeroing one record out"):
                record = watched(loop)
        else:
            record = watched(loop)
        loop.train(1)
        assert (record.runs()[0].adjacency == "zero-out") is moves
        assert bool(record.why_not()) is moves
