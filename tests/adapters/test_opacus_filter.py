"""A real Opacus training whose steps are paid from a privacy filter, by `attach` and by the accountant."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import calipers as cp
from calipers.adaptive import FilterSpent
from calipers.adaptive.filter import LICENSE
from calipers.callbacks import BudgetGuard
from calipers.errors import CalipersWarning, InputError, UnsupportedError
from calipers.receipts import receipt, verify_receipt
from calipers.reports.answers import Questions
from calipers.reports.html import to_html
from calipers.reports.report import report_measurement

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
attach = pytest.importorskip("calipers.adapters.opacus").attach
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")]

RATE, DELTA, EPSILON = 1 / 11, 1e-5, 4.0
QUIET, SHARP = (cp.Run(sample_rate=RATE, steps=1, noise_multiplier=sigma) for sigma in (2.0, 1.0))
MENU = {"quiet": QUIET, "sharp": SHARP}


def small(path=None, epsilon: float = EPSILON) -> cp.PrivacyFilter:
    return cp.PrivacyFilter(MENU, epsilon, DELTA, rule="renyi", path=path)  # which filter it is does not matter here


def noise_of(loop, sigma: float) -> None:
    loop.optimizer.noise_multiplier = sigma


def test_a_scheduler_that_changes_the_noise_pays_for_what_is_executed(script) -> None:
    """Opacus's own scheduler halves the noise: the same loop is charged the sharper step, and the number holds."""
    loop, keep = script(noise_multiplier=2.0), small()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, privacy_filter=keep)
    scheduler = opacus.schedulers.StepNoise(loop.optimizer, step_size=1, gamma=0.5)
    loop.train(stop=3)
    scheduler.step()
    loop.train(stop=2)
    assert keep.spent == {"quiet": 3, "sharp": 2}
    assert record.licensed_by == LICENSE
    found = record.epsilon(DELTA)
    assert found.upper == EPSILON
    assert found.lower == 0.0
    assert LICENSE in found.upper_evidence.statement
    assert record.epsilon(DELTA / 2).upper == math.inf
    assert any(LICENSE in sentence for sentence in record.measure().conditions)
    assert not any("fixed in advance, or follow" in sentence for sentence in record.measure().conditions)
    with pytest.raises(UnsupportedError, match="chosen while training"):
        receipt(record)
    page = to_html(report_measurement(record.measure(), Questions(deltas=(DELTA,))).document)
    assert "Privacy of a training within a privacy filter" in page
    assert "no attack is claimed" in page
    assert LICENSE in page


def test_noise_between_two_steps_of_the_menu_is_charged_as_the_sharper(script) -> None:
    """1.7 lies between: it pays for 1.0, since 2.0 would cost less than what is executed."""
    loop, keep = script(noise_multiplier=1.7), small()
    attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=keep)
    loop.train(stop=1)
    assert keep.spent == {"quiet": 0, "sharp": 1}


def test_the_step_that_does_not_fit_is_refused_before_it_is_taken(script) -> None:
    """No parameter moves, no noise is released, the accountant is not told; a cheaper step may follow."""
    loop, keep = script(noise_multiplier=1.0), small()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, privacy_filter=keep)
    keep.spend("sharp", keep.remaining["sharp"])
    assert keep.remaining["sharp"] == 0 < keep.remaining["quiet"]
    before = [parameter.detach().clone() for parameter in loop.network.parameters()]
    batches = iter(loop.loader)
    with pytest.raises(FilterSpent, match="no room for 1 x 'sharp'"):
        loop.step(*next(batches))
    assert all(bool((a == b).all()) for a, b in zip(before, loop.network.parameters(), strict=True))
    assert loop.engine.accountant.history == []
    assert record.steps == 0
    noise_of(loop, 2.0)
    loop.step(*next(batches))
    assert record.steps == keep.spent["quiet"] == 1
    assert record.why_not() == ()
    assert record.epsilon(DELTA).upper == EPSILON


def test_noise_that_is_not_on_the_menu_is_refused(script) -> None:
    """At attach, and before the step where a schedule leaves the menu."""
    loop = script(noise_multiplier=0.5)
    with pytest.raises(InputError, match="not on the menu"):
        attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=small())
    loop, keep = script(noise_multiplier=2.0), small()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, privacy_filter=keep)
    loop.train(stop=1)
    noise_of(loop, 0.9)
    with pytest.raises(InputError, match=r"noise multiplier 0\.9.*not on the menu"):
        loop.train(stop=1)
    assert record.steps == 1
    assert keep.spent == {"quiet": 1, "sharp": 0}


def test_a_rate_that_changes_while_training_is_not_paid_as_the_old_one(script) -> None:
    """The sampler draws twice as many records from the second pass on: no step of the menu has that rate."""
    loop, keep = script(noise_multiplier=2.0), small()
    record = attach(
        loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, privacy_filter=keep, public_rate=True
    )
    loop.train(stop=1)
    loop.loader.batch_sampler.sample_rate *= 2
    with pytest.raises(InputError, match=r"rate 0\.181818.*not on the menu"):
        loop.train(stop=1)
    assert record.steps == sum(keep.spent.values()) == 1


def test_a_second_step_on_a_batch_is_refused(script) -> None:
    """The filter's steps draw afresh; a batch that is used again is no such step."""
    loop, keep = script(noise_multiplier=2.0), small()
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, privacy_filter=keep)
    with pytest.raises(UnsupportedError, match="one fresh batch"):
        loop.train(stop=1, repeat=2)
    assert record.steps == keep.spent["quiet"] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"poisson_sampling": False, "size": 1000}, "deals whole passes"),
        ({"loss_reduction": "mean", "size": 1056}, "divisor"),
    ],
)
def test_trainings_that_no_filter_covers_are_refused_at_once(script, settings, said) -> None:
    """Shuffled passes are no fresh batches; a divisor that depends on the data has no dominating pair."""
    loop = script(noise_multiplier=2.0, **settings)
    with pytest.raises(UnsupportedError, match=said):
        attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=small(), adjacency="add-remove")


def test_steps_before_the_filter_and_resumed_without_it_are_refused(script, tmp_path) -> None:
    """Steps that it did not pay for, a checkpoint without the filter, a filter that forgot: none gets its number."""
    loop = script(noise_multiplier=2.0)
    attach(loop.engine, loop.optimizer, loop.loader)
    loop.train(stop=1)
    with pytest.raises(InputError, match="1 steps were taken before, 0 of them paid"):
        attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=small())
    first, keep = script(noise_multiplier=2.0), small(tmp_path / "run.filter")
    record = attach(first.engine, first.optimizer, first.loader, loss=first.criterion, privacy_filter=keep)
    first.train(stop=2)
    saved = record.state_dict()
    later = script(noise_multiplier=2.0, seed=1)
    with pytest.raises(InputError, match="this one knows of 0"):
        attach(later.engine, later.optimizer, later.loader, state=saved, privacy_filter=small())
    later = script(noise_multiplier=2.0, seed=1)
    bare = attach(later.engine, later.optimizer, later.loader, state=saved)
    assert bare.epsilon(DELTA).upper == math.inf
    assert "privacy filter" in bare.why_not()[0]
    later = script(noise_multiplier=2.0, seed=1)
    later.model.load_state_dict(first.model.state_dict())
    again = attach(
        later.engine, later.optimizer, later.loader, state=saved, privacy_filter=small(tmp_path / "run.filter")
    )
    later.train(stop=1)
    assert again.steps == 3
    assert again.epsilon(DELTA).upper == EPSILON


def test_a_guard_stops_before_the_record_must_refuse(script) -> None:
    """Both ask the same filter, and each step is paid once."""
    loop, keep = script(noise_multiplier=1.0), small()
    allowed = keep.remaining["sharp"]
    guard = BudgetGuard(attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=keep))
    while not guard.stopped:
        loop.train(loader=guard.batches(loop.loader))
    assert keep.spent == {"quiet": 0, "sharp": allowed}
    assert guard.step == "sharp"
    assert guard.licensed_by == LICENSE
    assert guard.values()["calipers/epsilon_at_most"] == EPSILON
    with pytest.raises(InputError, match="noise_multiplier"):
        guard.step = "quiet"


def test_the_accountant_pays_and_its_number_is_the_filters(script) -> None:
    """`describe(..., privacy_filter=...)`: get_epsilon is the target, without a warning about conditions."""
    from calipers.adapters.opacus_accountant import accountant_class

    loop, keep = script(noise_multiplier=2.0, accountant=accountant_class()()), small()
    loop.engine.accountant.describe(loop.optimizer, loop.loader, privacy_filter=keep)
    loop.train(stop=2)
    noise_of(loop, 1.0)
    loop.train(stop=1)
    assert keep.spent == {"quiet": 2, "sharp": 1}
    assert loop.engine.get_epsilon(DELTA) == EPSILON
    assert loop.engine.accountant.licensed_by == LICENSE


def test_a_plan_gives_the_number_of_the_longest_run(script) -> None:
    """Stopped after 4 of at most 22 steps: epsilon, receipt and get_epsilon are those of 22, and say so."""
    from calipers.adapters.opacus_accountant import accountant_class

    loop = script(noise_multiplier=2.0, accountant=accountant_class()())
    loop.engine.accountant.describe(loop.optimizer, loop.loader, planned_steps=22)
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion)
    loop.train(stop=4)
    longest = cp.measure(QUIET.replace(steps=22)).epsilon(DELTA)
    found = record.epsilon(DELTA)
    assert longest.lower <= found.upper <= longest.upper * (1 + 1e-9)
    assert found.upper > cp.measure(QUIET.replace(steps=4)).epsilon(DELTA).upper
    assert found.lower == 0.0  # where it stops may depend on what was released
    assert "at most 22 steps" in record.licensed_by
    assert loop.engine.get_epsilon(DELTA) == found.upper
    made = receipt(record, deltas=[DELTA])
    assert made["measurement"]["epsilon"][0]["upper"] == found.upper
    assert any("22 steps" in sentence for sentence in made["executed"]["conditions"])
    assert verify_receipt(made).standing.value == "confirmed"
    loop.train()
    loop.train(stop=7)
    assert record.attained()
    loop.train(stop=1)
    assert any("extended later is none" in sentence for sentence in record.conditions)
    with pytest.raises(InputError, match="not extended"):
        attach(loop.engine, loop.optimizer, loop.loader, planned_steps=30)


def test_without_a_plan_every_number_names_its_condition(script) -> None:
    """The bracket's evidence, the conditions, the receipt; and get_epsilon, a bare number, warns once."""
    from calipers.adapters.opacus_accountant import accountant_class

    loop = script(noise_multiplier=2.0, accountant=accountant_class()())
    record = attach(loop.engine, loop.optimizer, loop.loader, loss=loop.criterion, adjacency="add-remove")
    loop.train(stop=2)
    noise_of(loop, 1.0)
    loop.train(stop=1)
    assert "fixed in advance" in record.epsilon(DELTA).upper_evidence.statement
    said = " ".join(record.measure().conditions)
    assert "if the length was fixed in advance" in said
    assert "noise multipliers 1, 2" in said
    assert "if the length was fixed in advance" in " ".join(receipt(record)["executed"]["conditions"])
    with pytest.warns(CalipersWarning, match="number of steps were fixed in advance"):
        first = loop.engine.get_epsilon(DELTA)
    assert loop.engine.get_epsilon(DELTA) == first


def test_a_plan_and_a_filter_exclude_each_other(script) -> None:
    """A filter holds for stopping at any time; a plan besides it would be a second number."""
    loop = script(noise_multiplier=2.0)
    with pytest.raises(InputError, match="leave planned_steps out"):
        attach(loop.engine, loop.optimizer, loop.loader, privacy_filter=small(), planned_steps=5)


TRAINER = textwrap.dedent(
    """
    import sys, warnings
    warnings.simplefilter("ignore")
    import torch
    from opacus import PrivacyEngine
    from calipers.adapters.opacus import attach
    from calipers.adaptive import FilterSpent, PrivacyFilter
    from calipers.run import Run

    path, seed = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(seed)
    menu = {
        "quiet": Run(sample_rate=1 / 11, steps=1, noise_multiplier=2.0),
        "sharp": Run(sample_rate=1 / 11, steps=1, noise_multiplier=1.0),
    }
    keep = PrivacyFilter(menu, 4.0, 1e-5, rule="renyi", path=path)
    data = torch.utils.data.TensorDataset(torch.randn(1050, 4), torch.randint(2, (1050,)))
    model = torch.nn.Linear(4, 2)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), noise_multiplier=2.0, max_grad_norm=1.0,
        data_loader=torch.utils.data.DataLoader(data, batch_size=100), loss_reduction="sum",
    )
    record = attach(engine, optimizer, loader, privacy_filter=keep)
    loss = torch.nn.CrossEntropyLoss(reduction="sum")
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()
            try:
                optimizer.step()
            except FilterSpent:
                print("spent", record.steps, record.epsilon(1e-5).upper, flush=True)
                raise SystemExit
            print(record.steps, flush=True)
            optimizer.noise_multiplier = 1.0 if record.steps % 3 == 0 else 2.0
    """
)


def trainer(path: Path, seed: int) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(path), str(seed)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert made.stdout is not None
    assert made.stdout.readline() == "ready\n"
    return made


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.slow
def test_trainings_in_several_processes_share_one_budget_and_a_killed_one_has_paid(tmp_path: Path) -> None:
    """kill -9 in the middle of one training, then two at once: all steps that were taken are paid, none too many."""
    path = tmp_path / "run.filter"
    victim = trainer(path, 1)
    begin(victim)
    assert victim.stdout is not None
    for _ in range(2):
        victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    rest = victim.communicate(timeout=60)[0].split()
    taken = int(rest[-1]) if rest else 2
    keep = small(path)
    assert taken <= sum(keep.spent.values()) <= taken + 1
    before = sum(keep.spent.values())
    racers = [trainer(path, seed) for seed in (2, 3)]
    for racer in racers:
        begin(racer)
    words = [racer.communicate(timeout=200)[0].split() for racer in racers]
    assert all(word[-3] == "spent" and float(word[-1]) == EPSILON for word in words)
    assert before + sum(int(word[-2]) for word in words) == sum(keep.spent.values())
    counts = keep.spent
    assert keep.rule.fits((counts["quiet"], counts["sharp"]))
    assert min(keep.remaining.values()) == 0
