"""The ways a loop can treat its loader and optimizer, and what of each is seen."""

from __future__ import annotations

import itertools
import math

import pytest

from calipers.adapters.opacus import attach
from calipers.adapters.torch_sampler import TorchBatches
from calipers.errors import CalipersWarning, UnsupportedError
from calipers.measure import measure
from calipers.run import Run
from calipers.samplers import BallsAndBins, Shuffle

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
memory = pytest.importorskip("opacus.utils.batch_memory_manager")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

DELTA = 1e-5
TWO_EPOCHS = Run(dataset_size=1050, sample_rate=1 / 11, noise_multiplier=1.0, steps=22, dimension=21)


def watched(loop, **settings):
    """Attached with the batch size of the script."""
    return attach(loop.engine, loop.optimizer, loop.loader, **({"loss": loop.criterion} | settings))


def proven(record) -> tuple[float, float]:
    """The bounds as they are."""
    bracket = record.epsilon(DELTA)
    return bracket.lower, bracket.upper


def gaussian(count: int, noise: float = 1.0) -> float:
    """The upper bound of so many releases at known times."""
    run = Run(dataset_size=10, batch_size=10, steps=count, noise_multiplier=noise, sampler="deterministic")
    return measure(run).epsilon(DELTA).upper


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pieces", [None, 30])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_workers_and_pieces_change_nothing(script, workers, pieces, mode) -> None:
    """Workers draw ahead, BatchMemoryManager splits batches: the run is the same."""
    loop = script(loader={"num_workers": workers}, grad_sample_mode=mode)
    record = watched(loop)
    if pieces is None:
        loop.train(2)
    else:
        settings = {"data_loader": loop.loader, "max_physical_batch_size": pieces, "optimizer": loop.optimizer}
        with memory.BatchMemoryManager(**settings) as loader:
            loop.train(2, loader=loader)
    assert record.why_not() == ()
    assert record.runs() == (TWO_EPOCHS,)
    assert record.facts["batches used"] == 22


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_leaves_pieces_behind_has_no_upper_jaw(script, workers) -> None:
    """Opacus's queue of held-back steps is out of order after a break."""
    loop = script(loader={"num_workers": workers})
    record = watched(loop)
    settings = {"data_loader": loop.loader, "max_physical_batch_size": 30, "optimizer": loop.optimizer}

    def train() -> None:
        with memory.BatchMemoryManager(**settings) as loader:
            for position, (records, labels) in enumerate(loader):
                if position == 5:
                    break
                loop.step(records, labels)
            loop.train(loader=loader)

    with pytest.warns(CalipersWarning) as seen:
        train()
    assert any("unfinished" in str(warning.message) for warning in seen)
    assert proven(record) == (0.0, math.inf)


def test_looking_at_the_data_releases_nothing(script) -> None:
    """A first batch for its shapes, a pass for the accuracy, a break: draws without steps."""
    loop = script()
    record = watched(loop)
    next(iter(loop.loader))
    loop.train(stop=3)
    for _ in loop.loader:
        pass
    loop.train()
    assert record.why_not() == ()
    assert record.runs() == (TWO_EPOCHS.replace(steps=14),)


@pytest.mark.parametrize("skipped", [4, 10])
def test_a_batch_passed_over_for_what_is_in_it_blinds(script, skipped) -> None:
    """As with a gradient scaler that skips steps: the missing step tells on the batch, also on the last one."""
    loop = script()
    record = watched(loop)

    def train() -> None:
        for position, (records, labels) in enumerate(loop.loader):
            if position != skipped:
                loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="passed over"):
        train()
    assert proven(record) == (0.0, math.inf)


def test_empty_batches_passed_over_leave_the_batches_as_observed(script) -> None:
    """That a batch is empty does not depend on what is in the records: fixed batches bound the run."""
    loop = script(11, 1, loss_reduction="sum")
    record = watched(loop, public_rate=True)

    def train() -> None:
        for records, labels in itertools.chain.from_iterable([loop.loader] * 4):
            if len(records):
                loop.step(records, labels)

    with pytest.warns(CalipersWarning, match="passes over empty batches"):
        train()
    assert proven(record) == (0.0, gaussian(record.facts["most participations of a record"]))


@pytest.mark.parametrize("change", [lambda rows: torch.cat([rows, rows]), lambda rows: rows[:-3]])
def test_records_repeated_or_dropped_on_the_way_blind(script, change) -> None:
    """Two views of each record are two rows; some of them dropped by some rule are too few."""
    loop = script()
    record = watched(loop)
    changed = ([change(part) for part in batch] for batch in loop.loader)
    with pytest.warns(CalipersWarning, match="gradients for a batch of"):
        loop.train(loader=changed)
    assert proven(record) == (0.0, math.inf)


def test_batches_of_another_loader_of_the_same_size_are_not_taken_for_the_last_one(script) -> None:
    """A first look at the watched loader, then an epoch of another one: ten steps, as it seems, on one batch."""
    loop = script(1000, loader={"shuffle": False}, poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")
    next(iter(loop.loader))
    other = torch.utils.data.DataLoader(loop.data, batch_size=100, shuffle=True)
    loop.train(loader=other)
    assert proven(record) == (0.0, math.inf)
    assert "more steps than others" in record.why_not()[0]


def test_an_update_without_noise_blinds(script) -> None:
    """The inner optimizer moves the parameters by what the gradients are."""
    loop = script()
    record = watched(loop)
    loop.train()
    with pytest.warns(CalipersWarning, match="without new noise"):
        loop.optimizer.original_optimizer.step()
    assert proven(record) == (0.0, math.inf)


def test_no_noise_is_no_privacy(script) -> None:
    """noise_multiplier = 0."""
    loop = script(noise_multiplier=0.0)
    record = watched(loop)
    with pytest.warns(CalipersWarning, match="without noise"):
        loop.train()
    assert proven(record) == (0.0, math.inf)


def test_a_seed_inside_the_loop_repeats_draws_and_noise(script) -> None:
    """Every epoch begins with the same seed: its batches and its noise are those of the first."""
    loop = script()
    record = watched(loop)

    def train() -> None:
        for _ in range(2):
            torch.manual_seed(7)
            loop.train()

    with pytest.warns(CalipersWarning) as seen:
        train()
    assert {str(warning.message)[:20] for warning in seen} == {"A batch was drawn tw", "The random generator"}
    assert proven(record) == (0.0, math.inf)


def test_batches_accumulated_into_one_step(script) -> None:
    """Fixed order, two batches a step: a record is still once in a pass. Under Poisson sampling Opacus forbids it."""
    loop = script(1000, loader={"shuffle": False}, poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")

    def train() -> None:
        for position, (records, labels) in enumerate(itertools.chain.from_iterable([loop.loader] * 3)):
            loop.criterion(loop.model(records), labels).backward()
            if position % 2:
                loop.optimizer.step()
                loop.optimizer.zero_grad()

    with pytest.warns(CalipersWarning, match="several batches"):
        train()
    assert (record.steps, record.facts["most participations of a record"]) == (15, 3)
    assert proven(record)[1] == gaussian(3)


def test_a_noise_that_changes_inside_an_epoch_counts_the_least(script) -> None:
    """Shuffled: a record may have been in the noisiest batch or in the other; the upper bound takes the worse."""
    loop = script(1000, poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")
    for position, (records, labels) in enumerate(loop.loader):
        loop.optimizer.noise_multiplier = 2.0 if position < 5 else 1.0
        loop.step(records, labels)
    assert proven(record) == (0.0, gaussian(1))
    ordered = script(1000, loader={"shuffle": False}, poisson_sampling=False)
    record = watched(ordered, adjacency="zero-out")
    for _ in range(2):
        for position, (records, labels) in enumerate(ordered.loader):
            ordered.optimizer.noise_multiplier = 2.0 if position < 5 else 1.0
            ordered.step(records, labels)
    # Two releases with noise 1, added up in floating point: a little above, never below.
    assert gaussian(2) <= proven(record)[1] <= gaussian(2) * (1 + 1e-9)


@pytest.mark.parametrize("size", [1000, 1050])
def test_an_order_that_is_drawn_once_is_told_from_one_of_every_epoch(script, size) -> None:
    """A generator set back before every pass deals the same permutation; so does no noise, which has its own.

    The loader keeps a last, shorter batch, also where there is none: one record more would make one.
    """
    for again in (False, True):
        generator, noise = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
        loop = script(size, loader={"generator": generator}, poisson_sampling=False, noise_generator=noise)
        record = watched(loop, adjacency="zero-out")
        for _ in range(3):
            if again:
                generator.manual_seed(5)
            loop.train()
        (run,) = record.runs()
        assert (run.reshuffle, run.last_batch) == ("once" if again else "every-epoch", "keep")
        assert (run.total_epochs, record.why_not()) == (3, ())


@pytest.mark.parametrize("workers", [0, 1])
def test_shuffled_passes_go_on_after_a_checkpoint(script, workers) -> None:
    """The passes of the first part and of the second are different ones, and a worker does not count twice."""
    first = script(1000, poisson_sampling=False)
    record = watched(first, adjacency="zero-out")
    first.train()
    later = script(1000, loader={"num_workers": workers}, poisson_sampling=False, seed=1)
    later.model.load_state_dict(first.model.state_dict())
    record = watched(later, state=record.state_dict(), adjacency="zero-out")
    later.train(2)
    (run,) = record.runs()
    assert (run.sampler, run.total_epochs, record.why_not()) == ("shuffle", 3, ())
    assert (record.facts["passes begun"], record.facts["passes finished"]) == (3, 3)


def test_one_order_with_two_noises_is_counted_once_a_pass(script) -> None:
    """Phases would be measured as if each had an order of its own."""
    generator, noise = torch.Generator(), torch.Generator().manual_seed(2)
    loop = script(1000, loader={"generator": generator}, poisson_sampling=False, noise_generator=noise)
    record = watched(loop, adjacency="zero-out")
    for multiplier in (1.0, 2.0):
        generator.manual_seed(5)
        loop.optimizer.noise_multiplier = multiplier
        loop.train()
    assert "with another noise" in record.why_not()[0]
    fixed = [
        Run(dataset_size=9, batch_size=9, steps=1, noise_multiplier=s, sampler="deterministic") for s in (1.0, 2.0)
    ]
    assert proven(record) == (0.0, measure(fixed).epsilon(DELTA).upper)


@pytest.mark.parametrize("sampler", [BallsAndBins, Shuffle])
def test_our_own_samplers_broken_off_go_on_with_their_epoch(script, sampler) -> None:
    """Whole epochs in several passes are whole epochs; an epoch that is not finished counts once."""
    drawing = sampler(dataset_size=1000, batch_size=100, epochs=3)
    loop = script(1000, batches=TorchBatches(drawing, seed=1), poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")
    for stop in (4, None, 7, None):
        loop.train(stop=stop)
    (run,) = record.runs()
    assert (run.sampler, run.total_steps, record.facts["passes begun"]) == (drawing.law().sampler, 20, 4)
    loop.train(stop=3)
    assert proven(record) == (0.0, gaussian(3))


def test_unknown_draws_are_refused_unless_somebody_vouches(script) -> None:
    """Weights may come from labels; a stream has no indices."""

    def weighted(data):
        return torch.utils.data.WeightedRandomSampler(torch.ones(len(data)), len(data))

    loop = script(1000, order=weighted, poisson_sampling=False)
    with pytest.raises(UnsupportedError, match=rf"Opacus {opacus.__version__}.*WeightedRandomSampler.*observed=True"):
        watched(loop)
    with pytest.warns(CalipersWarning, match="no permutation"):
        record = watched(loop, observed=True)
    loop.train()
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        assert 0.0 < proven(record)[1] < math.inf

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(UnsupportedError, match="no batches of indices"):
        attach(loop.engine, loop.optimizer, torch.utils.data.DataLoader(Stream(), batch_size=10))


def test_optimizers_nobody_has_read_are_refused_by_name(script) -> None:
    """A subclass may clip or not; a method replaced on the object likewise."""
    loop = script()

    class Own(type(loop.optimizer)):
        pass

    loop.optimizer.__class__ = Own
    with pytest.raises(UnsupportedError, match=rf"Own \(Opacus {opacus.__version__}\)"):
        watched(loop)
    replaced = script()
    replaced.optimizer.add_noise = lambda: None
    with pytest.raises(UnsupportedError, match="add_noise was replaced"):
        watched(replaced)


def test_a_sharding_optimizer_without_shards_is_refused_by_name(script, tmp_path) -> None:
    """How much a record weighs is FSDP's to choose: of parameters that it does not hold nothing is known."""
    fsdp = pytest.importorskip("opacus.optimizers.fsdpoptimizer_fast_gradient_clipping", reason="comes with 1.6")
    loop = script(grad_sample_mode="ghost")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1)
    try:
        optimizer = fsdp.FSDPOptimizerFastGradientClipping(
            loop.optimizer.original_optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=95
        )
        with pytest.raises(
            UnsupportedError, match=rf"sharded model \(FSDPOptimizerFast\w+, Opacus {opacus.__version__}\)"
        ):
            attach(loop.engine, optimizer, loop.loader)
    finally:
        torch.distributed.destroy_process_group()


def test_the_form_without_the_engine_still_reads_the_history(script) -> None:
    """Found through the hook of make_private; refused where that is gone."""
    loop = script()
    record = attach(loop.optimizer, loop.loader)
    loop.train(2)
    assert record.runs() == (TWO_EPOCHS,)
    assert record.facts["steps counted by the accountant"] == 22
    other = script()
    other.optimizer.attach_step_hook(lambda optimizer: None)
    with pytest.raises(ValueError, match=r"attach\(engine, optimizer, data_loader\)"):
        attach(other.optimizer, other.loader)
