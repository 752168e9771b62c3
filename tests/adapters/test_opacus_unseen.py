"""What flatters if nobody looks: learning rates that follow the batch, neighbors of several phases, traces of earlier
steps, weights that moved after the last noisy step.

N 1050, B 100, sigma 1, sums, delta 1e-5 unless a test says otherwise: two plain epochs are [3.4165, 3.4183].
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.errors import CalipersWarning, UnsupportedError
from calipers.measure import measure
from calipers.receipts import read_receipt, verify_receipt, write_receipt
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

DELTA = 1e-5
NOTHING = (0.0, math.inf)
PLAIN = Run(dataset_size=1050, sample_rate=1 / 11, noise_multiplier=1.0, steps=11, dimension=21)
MOMENTUM = functools.partial(torch.optim.SGD, momentum=0.9)
DEALT: dict[str, Any] = {"poisson_sampling": False, "loader": {"drop_last": True}}


def watched(loop: Any, **settings: Any) -> Any:
    """The first of the two lines."""
    return attach(loop.engine, loop.optimizer, loop.loader, **({"loss": loop.criterion} | settings))


def proven(record: Any, **reading: Any) -> tuple[float, float]:
    """The bounds of a record."""
    found = record.epsilon(DELTA, **reading)
    return found.lower, found.upper


def notes(record: Any) -> str:
    """What goes with every number of the record."""
    return " ".join(record.measure().conditions)


def step_with(loop: Any, rate: Any, epochs: int = 1) -> None:
    """Epochs in which the learning rate of every step is computed from its batch and its number."""
    taken = 0
    for _ in range(epochs):
        for records, labels in loop.loader:
            for group in loop.optimizer.param_groups:
                group["lr"] = rate(len(records), taken)
            loop.step(records, labels)
            taken += 1


# ---- Learning rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [torch.optim.SGD, torch.optim.Adam])
def test_a_learning_rate_over_the_realized_size_proves_nothing(script, inner) -> None:
    """lr = 0.1/len(x) divides by the realized batch size: [13.34, 15.27] at least, where [3.4165, 3.4183] was said."""
    loop = script(inner=inner)
    record = watched(loop)
    with pytest.warns(CalipersWarning, match="learning rate times the number of records"):
        step_with(loop, lambda size, _: 0.1 / max(1, size))
    assert proven(record) == NOTHING
    assert any("learning rate times the number of records" in reason for reason in record.why_not())


def test_a_part_of_a_training_is_enough(script) -> None:
    """Four steps that follow their batches, and then a constant rate: it stays said."""
    loop = script()
    record = watched(loop)
    with pytest.warns(CalipersWarning, match="learning rate times the number of records"):
        step_with(loop, lambda size, taken: 0.1 / size if taken < 5 else 0.001)
    assert proven(record) == NOTHING


SCHEDULES = {
    "constant": lambda taken: 0.01,
    "cosine": lambda taken: 0.01 * (1 + math.cos(math.pi * taken / 22)),
    "warm-up": lambda taken: 0.01 * min(1.0, (taken + 1) / 10),
    "steps": lambda taken: 0.01 * 0.1 ** (taken // 5),
    "exponential": lambda taken: 0.01 * 0.5**taken,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("batch", [100, 3])
def test_schedules_that_count_steps_are_no_alarm(script, schedule, batch) -> None:
    """Whatever sizes the batches have, three of a kind in tiny batches included."""
    size = 1050 if batch == 100 else 40
    loop = script(size, batch)
    record = watched(loop, adjacency="zero-out")
    step_with(loop, lambda _, taken: SCHEDULES[schedule](taken), epochs=2)
    assert record.why_not() == ()
    assert proven(record)[1] < math.inf


def test_a_rate_over_the_configured_size_is_no_alarm(script) -> None:
    """Batches of 100, 50, 25, 10 and 5 as configured, remainders dropped, each with lr = 0.1/B: sizes are public."""
    loop = script(1012, 100, **DEALT)
    record = watched(loop, adjacency="zero-out")
    for size in (100, 50, 25, 10, 5):
        loop.loader.batch_sampler.batch_size = size
        step_with(loop, lambda realized, _: 0.1 / realized)
    assert record.why_not() == ()


def test_the_condition_names_learning_rates_and_weight_decay(script) -> None:
    """In the record, in the measurement and in the warning of the accountant."""
    loop = script()
    record = watched(loop)
    loop.train()
    for said in (" ".join(record.conditions), notes(record)):
        assert "learning rates, weight decay" in said
        assert "losses on training records" in said


# ---- Neighbors of several phases -----------------------------------------------------------------------------------


def test_phases_have_one_adjacency_and_say_which(script, tmp_path) -> None:
    """Batches of 100 with a remainder, then of 50 without: both for zeroed-out records, in runs, notes and receipt."""
    loop = script(**DEALT)
    record = watched(loop)
    loop.train()
    loop.loader.batch_sampler.batch_size = 50
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        loop.train()
    assert [(run.batch_size, run.adjacency) for run in record.runs()] == [(100, "zero-out"), (50, "zero-out")]
    assert any("for zeroing one record out" in reason for reason in record.why_not())
    assert "for zeroing one record out" in notes(record)
    assert [run.adjacency for run in record.runs(adjacency="add-remove")] == ["add-remove"] * 2
    (sided,) = record.why_not(adjacency="add-remove")
    assert sided.startswith("The numbers are for adding one record only: removing one changes the number of batches")
    first = Run(dataset_size=1050, batch_size=100, steps=10, noise_multiplier=1.0, sampler="shuffle", dimension=21)
    said = measure([run.replace(adjacency="zero-out") for run in (first, first.replace(batch_size=50, steps=21))])
    assert proven(record) == (said.epsilon(DELTA).lower, said.epsilon(DELTA).upper)
    write_receipt(record, tmp_path / "run.json")
    found = read_receipt(str(tmp_path / "run.json"))
    assert [phase["adjacency"] for phase in found["run"]["phase"]] == ["zero-out"] * 2
    assert verify_receipt(found).standing.value == "confirmed"


@pytest.mark.parametrize(("size", "drops"), [(1000, False), (1000, True), (1099, True)])
def test_one_whole_pass_is_as_long_as_the_loader(script, size, drops) -> None:
    """One record more makes another batch, and the loop takes it: no add-remove neighbors, after one pass or more."""
    loop = script(size, poisson_sampling=False, loader={"shuffle": True, "drop_last": drops})
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        record = watched(loop)
    for _ in range(2):
        loop.train()
        assert {run.adjacency for run in record.runs()} == {"zero-out"}
        sided = record.why_not(adjacency="add-remove")
        assert [f" {word} one record only" in sided[-1] for word in ("adding", "removing")].count(True) == 1
        assert sided[-1] in record.measure(adjacency="add-remove").notes


def test_a_pass_that_breaks_off_is_for_zeroed_out_records_and_warns(script) -> None:
    """The whole run is about adding and removing; what breaks off is not, and says so once, where it is asked."""
    loop = script(1050, poisson_sampling=False)
    record = watched(loop)
    loop.train()
    assert record.runs()[0].adjacency == "add-remove"
    loop.train(stop=4)
    with pytest.warns(CalipersWarning, match=r"for zeroing one record out.*broken off after 4 of 11 batches") as seen:
        assert record.epsilon(DELTA).lower == 0
    assert [warning.filename for warning in seen] == [__file__]
    assert record.runs()[0].adjacency == "zero-out"


def test_sums_are_no_remedy_where_a_record_makes_another_batch(script) -> None:
    """The advice for divided sums says what would help."""
    with pytest.warns(
        CalipersWarning, match="with B = 100 one record more makes another batch, and loss_reduction='sum' helps only"
    ):
        watched(script(1000, poisson_sampling=False, loss_reduction="mean"))
    with pytest.warns(CalipersWarning, match=r"Use loss_reduction='sum'"):
        watched(script(1044, poisson_sampling=False, loss_reduction="mean"))


def test_a_second_loader_in_fixed_order_moves_all_phases(script) -> None:
    """Poisson batches have add-remove neighbors; followed by batches in order, the record is about zeroed-out ones."""
    loop = script()
    record = watched(loop)
    loop.train()
    assert record.why_not() == ()
    other = torch.utils.data.DataLoader(loop.data, batch_size=100, drop_last=True)
    with pytest.warns(CalipersWarning, match="for zeroing one record out"):
        attach(loop.engine, loop.optimizer, other)
    loop.train(loader=other)
    assert [(run.sampler, run.adjacency) for run in record.runs()] == [
        ("poisson", "zero-out"),
        ("deterministic", "zero-out"),
    ]
    assert any("for zeroing one record out" in reason for reason in record.why_not())


# ---- Traces of earlier steps ---------------------------------------------------------------------------------------


def trained(script: Any, **settings: Any) -> tuple[Any, Any]:
    """One epoch that was watched."""
    loop = script(**settings)
    record = watched(loop)
    loop.train()
    return loop, record


def test_momentum_is_a_trace_of_earlier_steps(script) -> None:
    """The state of SGD with momentum, loaded before attach: refused as Adam's is; with the record's state it is not."""
    first, record = trained(script, inner=MOMENTUM)
    loop = script(inner=MOMENTUM, seed=1)
    loop.model.load_state_dict(first.model.state_dict())
    loop.optimizer.load_state_dict(first.optimizer.state_dict())
    with pytest.raises(UnsupportedError, match="momentum"):
        watched(loop)
    resumed = watched(loop, state=record.state_dict())
    loop.train()
    assert (resumed.steps, resumed.why_not()) == (22, ())


def test_momentum_that_is_loaded_after_attach(script) -> None:
    """Seen at the first step: nothing is proven, unless somebody described the steps before."""
    first, _ = trained(script, inner=MOMENTUM)
    loop = script(inner=MOMENTUM, seed=1)
    record = watched(loop)
    loop.optimizer.load_state_dict(first.optimizer.state_dict())
    with pytest.warns(CalipersWarning, match="momentum"):
        loop.train()
    assert proven(record) == NOTHING
    loop = script(inner=MOMENTUM, seed=1)
    record = watched(loop, earlier=[PLAIN])
    loop.optimizer.load_state_dict(first.optimizer.state_dict())
    loop.train()
    assert record.steps == 22
    assert record.why_not() == ()


def test_a_state_that_is_older_than_the_weights_is_refused(script) -> None:
    """Weights after 33 steps with the record's state after 11: [3.4165, 3.4183] for 22 was said of 44."""
    first, record = trained(script)
    old = record.state_dict()
    first.train(2)
    loop = script(seed=1)
    loop.model.load_state_dict(first.model.state_dict())
    resumed = watched(loop, state=old)
    with pytest.warns(CalipersWarning, match="other weights"):
        loop.train()
    assert proven(resumed) == NOTHING
    loop = script(seed=2)
    resumed = watched(loop, state=record.state_dict())
    loop.model.load_state_dict(first.model.state_dict())  # the right weights, after attach
    loop.train()
    assert (resumed.steps, resumed.why_not()) == (44, ())
    assert "before the first step" not in notes(resumed)


def test_weights_that_are_loaded_before_the_first_step_are_a_condition(script) -> None:
    """They may be public ones: no refusal, but the number holds only if they saw none of these records."""
    first, _ = trained(script)
    loop = script(seed=1)
    record = watched(loop)
    loop.model.load_state_dict(first.model.state_dict())
    loop.train()
    assert record.why_not() == ()
    assert "changed after attach and before the first step" in notes(record)
    again = script(seed=2)
    more = watched(again, state=record.state_dict())
    again.model.load_state_dict(loop.model.state_dict())
    again.train()
    assert "changed after attach and before the first step" in notes(more)


# ---- After the last noisy step -------------------------------------------------------------------------------------


def test_weights_that_moved_after_the_last_noisy_step_are_a_condition(script) -> None:
    """An epoch of plain SGD at the end, as an average of weights: the number is about the noisy steps alone."""
    loop, record = trained(script)
    before = proven(record)
    said = "Parameters have changed since the last noisy step"
    assert said not in notes(record)
    plain = torch.optim.SGD(loop.network.parameters(), lr=0.1)
    for parameter in loop.network.parameters():
        parameter.grad = torch.ones_like(parameter)
    plain.step()
    assert said in notes(record)
    assert said in " ".join(record.conditions)
    assert proven(record) == before
    assert record.why_not() == ()
