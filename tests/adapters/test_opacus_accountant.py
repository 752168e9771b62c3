"""Calipers as Opacus's accountant: what it says of a run is what attach proves of it, or nothing."""

from __future__ import annotations

import importlib.util
import math

import pytest

from calipers.adapters.opacus import attach
from calipers.adapters.opacus_accountant import accountant_class, register
from calipers.errors import CalipersWarning, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
data = pytest.importorskip("torch.utils.data")
CONDITION = "ignore:The epsilon holds under a condition"
"""tests/adapters/test_opacus_filter.py is about this warning."""
pytestmark = [
    pytest.mark.opacus,
    pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook", CONDITION),
]

DELTA = 1e-5


@pytest.fixture
def told(script):
    """A script whose engine has this accountant: by its name, or replaced where the release knows no names."""
    named = importlib.util.find_spec("opacus.accountants.registry") is not None
    if named:
        register()
        register()
    else:
        with pytest.raises(UnsupportedError, match=rf"Opacus {opacus.__version__} .* accountant_class\(\)\(\)"):
            register()
    return lambda *sizes, **settings: script(
        *sizes, accountant="calipers" if named else accountant_class()(), **settings
    )


def halved(loop) -> None:
    """A scheduler halves the norm after the first epoch."""
    scheduler = opacus.schedulers.ExponentialGradClip(loop.optimizer, gamma=0.5)
    loop.train()
    scheduler.step()
    loop.train()


def replaced(loop) -> None:
    """Another hook after the first epoch."""
    loop.train()
    loop.optimizer.attach_step_hook(lambda optimizer: None)
    loop.train()


def halves(records):
    """An order in which a pass holds half of the records."""
    return data.RandomSampler(records, num_samples=500)


def another_size(loop) -> None:
    """A loader of the script's own with batches of 500, after the first epoch."""
    loop.train()
    loop.train(loader=data.DataLoader(loop.data, batch_size=500))


SITUATIONS = {
    "as configured": ({}, lambda loop: loop.train(2)),
    "own loader": ({}, lambda loop: loop.train(2, loader=loop.own_loader)),
    "three steps a batch": ({}, lambda loop: loop.train(repeat=3)),
    "shuffled, last batch kept": ({"poisson_sampling": False}, lambda loop: loop.train(1)),
    "shuffled, broken off": ({"poisson_sampling": False, "size": 1000}, lambda loop: loop.train(4, stop=5)),
    "fixed, broken off": (
        {"poisson_sampling": False, "size": 1000, "loader": {"shuffle": False}},
        lambda loop: loop.train(4, stop=5),
    ),
    "half of the records a pass": (
        {
            "poisson_sampling": False,
            "size": 1000,
            "order": lambda records: data.RandomSampler(records, num_samples=500),
        },
        lambda loop: loop.train(4),
    ),
    "larger batches in the second epoch": ({}, another_size),
    "hook replaced": ({}, replaced),
    "ghost clipping, norm halved": ({"grad_sample_mode": "ghost"}, halved),
    "mean": ({"loss_reduction": "mean"}, lambda loop: loop.train()),
}


@pytest.mark.filterwarnings("ignore::calipers.errors.CalipersWarning")
@pytest.mark.parametrize("name", list(SITUATIONS))
def test_the_accountant_is_never_below_the_upper_jaw(script, told, name) -> None:
    """The same script, watched from outside and from inside."""
    settings, train = SITUATIONS[name]
    outside, inside = script(**settings), told(**settings)
    record = attach(outside.engine, outside.optimizer, outside.loader)
    train(outside)
    train(inside)
    assert inside.engine.get_epsilon(DELTA) >= record.epsilon(DELTA).upper


def test_shuffled_batches_are_not_answered_for_poisson_ones(told) -> None:
    """The number of the history alone would be 3.591."""
    loop = told(1000, poisson_sampling=False)
    assert loop.engine.get_epsilon(DELTA) == 0.0
    loop.train(2)
    alone = measure(Run(sample_rate=0.1, steps=20, noise_multiplier=1.0)).epsilon(DELTA).upper
    assert loop.engine.get_epsilon(DELTA) > 6.3 > alone
    assert len(loop.engine.accountant) == 20


def test_what_attach_refuses_is_a_warning_before_training_and_no_number_after(told) -> None:
    """Adaptive clipping, and a rate that moves; the second can be described."""
    with pytest.warns(CalipersWarning, match="No epsilon will be given. Adaptive clipping"):
        loop = told(
            clipping="adaptive", target_unclipped_quantile=0.5, clipbound_learning_rate=0.1, max_clipbound=2.0,
            min_clipbound=0.1, unclipped_num_std=5.0,
        )  # fmt: skip
    loop.train()
    with pytest.raises(UnsupportedError, match="Adaptive clipping"):
        loop.engine.get_epsilon(DELTA)
    with pytest.raises(UnsupportedError, match="too late"):
        loop.engine.accountant.describe(loop.optimizer, loop.loader)
    with pytest.warns(CalipersWarning, match="it differs between neighbors"):
        told(1399, loader={"drop_last": True})
    with pytest.warns(CalipersWarning, match="public_rate=True"):
        full = told(1000)
    full.engine.accountant.describe(full.optimizer, full.loader, public_rate=True)
    full.train(2)
    expected = measure(Run(sample_rate=0.1, steps=20, noise_multiplier=1.0, dataset_size=1000)).epsilon(DELTA)
    assert full.engine.get_epsilon(DELTA) == expected.upper


def test_a_checkpoint_of_the_engine_carries_the_record(told, tmp_path) -> None:
    """44 steps, whether the checkpoint is loaded after make_private or the accountant's state before it."""
    path = tmp_path / "checkpoint.pt"
    first = told()
    first.train(2)
    first.engine.save_checkpoint(path=path, module=first.model, optimizer=first.optimizer)
    expected = measure(Run(sample_rate=1 / 11, steps=44, noise_multiplier=1.0, dataset_size=1050)).epsilon(DELTA)
    later = told(seed=1)
    later.resume(path)
    later.train(2)
    assert later.engine.get_epsilon(DELTA) == expected.upper
    bare = told(seed=2)
    state = first.engine.accountant.state_dict()
    del state["calipers"]
    bare.engine.accountant.load_state_dict(state)
    bare.train(2)
    assert bare.engine.get_epsilon(DELTA) == math.inf


def test_attach_beside_the_accountant_is_one_record(told) -> None:
    """The loader is watched once."""
    loop = told()
    record = attach(loop.engine, loop.optimizer, loop.loader)
    loop.train(2)
    assert record.steps == 22
    assert record.epsilon(DELTA).upper == loop.engine.get_epsilon(DELTA)


def test_a_history_by_hand_is_a_question(told) -> None:
    """Opacus finds its noise multiplier so."""
    pytest.importorskip("opacus.accountants.registry", reason="accountants have names since Opacus 1.6")
    noise = opacus.accountants.utils.get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, epochs=1, accountant="calipers"
    )
    assert measure(Run(sample_rate=0.1, steps=10, noise_multiplier=noise)).epsilon(1e-5).upper <= 3.0
