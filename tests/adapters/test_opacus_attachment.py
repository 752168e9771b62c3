"""An Opacus training script, described and measured as it ran, beside Opacus's own accountants."""

from __future__ import annotations

from typing import Any

import pytest

from calipers.adapters.opacus import attach, run_of
from calipers.adapters.opacus_accountant import register
from calipers.adapters.opacus_library import quiet_engine
from calipers.adapters.torch_sampler import CollateWithEmpty, TorchBatches
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run
from calipers.samplers import BallsAndBins, Poisson, Shuffle

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

PARAMETERS = 6 * 3 + 3


class Script:
    """A training script as people write them."""

    def __init__(self, size: int = 107, batch: int = 10, accountant: str = "rdp", **settings: Any) -> None:
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(size, 6), torch.randint(0, 3, (size,)))
        model = torch.nn.Linear(6, 3)
        self.engine = opacus.PrivacyEngine(accountant=accountant)
        loader = {
            "batch_size": batch,
            "shuffle": settings.pop("shuffle", True),
            "drop_last": settings.pop("drop_last", False),
        }
        if "batches" in settings:
            loader = {"batch_sampler": settings.pop("batches"), "collate_fn": CollateWithEmpty(data)}
        self.reduction = settings.get("loss_reduction", "mean")
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(data, **loader),
            **({"noise_multiplier": 1.1, "max_grad_norm": 1.0} | settings),
        )

    def train(self, epochs: int = 1) -> None:
        criterion = torch.nn.CrossEntropyLoss(reduction=self.reduction)
        with quiet_engine():
            for _ in range(epochs):
                for records, labels in self.loader:
                    self.optimizer.zero_grad()
                    criterion(self.model(records), labels).backward()
                    self.optimizer.step()


def test_the_run_is_what_was_configured_and_taken() -> None:
    """107 records in batches of 10: rate 1/11, floor 9 for 106, 107 and 108 records, 22 steps in two epochs."""
    script = Script()
    record = attach(script.optimizer, script.loader, batch_size=10)
    script.train(2)
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
    assert script.engine.accountant.history == [(1.1, 1 / 11, 22)]


def test_a_bracket_at_the_end_and_opacus_inside_its_own_claim() -> None:
    """With sums the plain guarantee holds: Opacus's epsilon is not below our lower jaw."""
    script = Script(loss_reduction="sum", accountant="prv")
    record = attach(script.optimizer, script.loader, batch_size=10)
    script.train()
    bracket = record.epsilon(delta=1e-5)
    assert bracket.lower <= bracket.upper
    assert bracket.lower <= script.engine.get_epsilon(1e-5) <= bracket.upper + 0.02


def test_a_schedule_of_noise_makes_phases() -> None:
    """Each stretch of equal noise is a run of its own."""
    script = Script(loss_reduction="sum")
    record = attach(script.optimizer, script.loader, batch_size=10)
    script.train()
    script.optimizer.noise_multiplier = 2.0
    script.train()
    assert [(run.noise_multiplier, run.total_steps) for run in record.runs()] == [(1.1, 11), (2.0, 11)]


def test_a_moving_rate_is_refused_after_training_unless_read_as_public() -> None:
    """100 records fill 10 batches; nothing is lost, the question can be asked again."""
    script = Script(size=100)
    record = attach(script.optimizer, script.loader, batch_size=10)
    script.train()
    with pytest.raises(UnsupportedError, match="public_rate=True"):
        record.runs()
    (run,) = record.runs(public_rate=True)
    assert run.sample_rate == 1 / 10


def test_without_a_batch_size_every_possible_one_must_agree() -> None:
    """11 batches of 110 records: batches of 10 are possible, and with them one more record moves the rate."""
    script = Script(size=107)
    assert run_of(script.optimizer, script.loader, steps=5).sample_rate == 1 / 11
    full = Script(size=110)
    with pytest.raises(UnsupportedError, match="differs between neighbors"):
        run_of(full.optimizer, full.loader, steps=5)
    with pytest.raises(InputError, match="batch_size=20 makes 6 batches"):
        run_of(script.optimizer, script.loader, steps=5, batch_size=20)


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (BallsAndBins(dataset_size=100, batch_size=10, epochs=2), {"batch_size": 10, "sampler": "balls-and-bins"}),
        (BallsAndBins(dataset_size=100, rounds=8, epochs=2), {"sample_rate": 1 / 8, "sampler": "balls-and-bins"}),
        (Shuffle(dataset_size=107, batch_size=10, epochs=2), {"batch_size": 10, "sampler": "shuffle"}),
        (Poisson(dataset_size=107, sample_rate=0.03, steps=66), {"sample_rate": 0.03, "sampler": "poisson"}),
    ],
)
def test_batches_of_our_own_samplers_are_recognized(sampler, expected) -> None:
    """The object that draws is the one that is measured: sizes and law come from it, steps from what was taken."""
    size = sampler.dataset_size
    script = Script(size=size, batches=TorchBatches(sampler, seed=1), poisson_sampling=False, loss_reduction="sum")
    record = attach(script.optimizer, script.loader)
    script.train(2)
    (run,) = record.runs()
    shared = {"dataset_size": size, "noise_multiplier": 1.1, "dimension": PARAMETERS, "normalization": "none"}
    assert run == Run(**shared, **expected, steps=sampler.law().steps)
    assert record.epsilon(delta=1e-5).upper > 0


def test_divisors_that_no_sampler_of_ours_means_are_refused() -> None:
    """Means over batches of random size, and fewer batches than an epoch holds; fixed sizes are a constant."""
    random = BallsAndBins(dataset_size=100, batch_size=10, epochs=1)
    script = Script(size=100, batches=TorchBatches(random), poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="loss_reduction='sum'"):
        run_of(script.optimizer, script.loader, steps=10)
    fixed = Shuffle(dataset_size=100, batch_size=10, epochs=1)
    script = Script(size=100, batches=TorchBatches(fixed), poisson_sampling=False)
    assert run_of(script.optimizer, script.loader, steps=10).normalization == "constant"
    fewer = Shuffle(dataset_size=100, batch_size=10, epochs=1, rounds=7)
    script = Script(size=100, batches=TorchBatches(fewer), poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="leave rounds out"):
        run_of(script.optimizer, script.loader, steps=7)


def test_a_divisor_chosen_by_hand_is_a_constant() -> None:
    """Not the number that make_private computes."""
    script = Script()
    script.optimizer.expected_batch_size = 10
    assert run_of(script.optimizer, script.loader, steps=5).normalization == "constant"


def test_loaders_that_are_not_poisson_are_called_by_their_name() -> None:
    """poisson_sampling=False leaves the script's own loader in place."""
    shuffled = Script(size=100, poisson_sampling=False)
    run = run_of(shuffled.optimizer, shuffled.loader, steps=20)
    assert (run.sampler, run.batch_size, run.normalization) == ("shuffle", 10, "constant")
    ordered = Script(size=100, poisson_sampling=False, shuffle=False)
    assert run_of(ordered.optimizer, ordered.loader, steps=10).sampler == "deterministic"
    ragged = Script(size=107, poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="drop_last=True"):
        run_of(ragged.optimizer, ragged.loader, steps=11)


def test_what_no_run_describes_is_refused() -> None:
    """Adaptive clipping, and an optimizer that is not private."""
    adaptive = Script(
        clipping="adaptive", target_unclipped_quantile=0.5, clipbound_learning_rate=0.1, max_clipbound=2.0,
        min_clipbound=0.1, unclipped_num_std=5.0,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="Adaptive clipping"):
        attach(adaptive.optimizer, adaptive.loader)
    with pytest.raises(InputError, match="make_private"):
        attach(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), adaptive.loader)
    script = Script()
    with pytest.raises(InputError, match="No step"):
        attach(script.optimizer, script.loader).runs()


def test_the_accountant_answers_for_sums() -> None:
    """get_epsilon is the upper jaw of the steps told to it."""
    register()
    register()
    script = Script(loss_reduction="sum", accountant="calipers")
    assert script.engine.get_epsilon(1e-5) == 0.0
    script.train()
    expected = measure(Run(sample_rate=1 / 11, steps=11, noise_multiplier=1.1)).epsilon(1e-5)
    assert script.engine.get_epsilon(1e-5) == expected.upper
    assert script.engine.accountant.bracket(1e-5) == expected
    assert len(script.engine.accountant) == 11


def test_the_accountant_does_not_answer_for_a_divided_sum() -> None:
    """It saw the optimizer divide; describe() makes it measure the run."""
    register()
    script = Script(accountant="calipers")
    script.train()
    with pytest.raises(UnsupportedError, match="loss_reduction='sum'"):
        script.engine.get_epsilon(1e-5)
    with pytest.raises(UnsupportedError, match="too late"):
        script.engine.accountant.describe(script.optimizer, script.loader)
    described = Script(size=100, poisson_sampling=False, accountant="calipers")
    described.engine.accountant.describe(described.optimizer, described.loader)
    described.train()
    own = measure(run_of(described.optimizer, described.loader, steps=10)).epsilon(1e-5)
    assert described.engine.get_epsilon(1e-5) == own.upper


def test_opacus_finds_its_noise_with_this_accountant() -> None:
    """make_private_with_epsilon meets its target by our upper jaw."""
    register()
    noise = opacus.accountants.utils.get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, epochs=1, accountant="calipers"
    )
    assert measure(Run(sample_rate=0.1, steps=10, noise_multiplier=noise)).epsilon(1e-5).upper <= 3.0
