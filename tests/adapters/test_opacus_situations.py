"""Situations that were written down before they were run: the table of docs/howto/opacus-loops.md, row by row.

Each situation trains, and names what was expected of `attach` beforehand: "exact", the bounds of the run that it really
is; "nothing", [0, inf] with a reason; or "not seen", the bounds of the plain run where that is not the truth.
N 1050, B 100, sigma 1, sums, delta 1e-5 unless it says otherwise.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calipers.adapters.opacus import attach
from calipers.measure import measure
from calipers.run import Run

opacus = pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.opacus, pytest.mark.filterwarnings("ignore")]

DELTA = 1e-5
CLEAN = Run(dataset_size=1050, sample_rate=1 / 11, noise_multiplier=1.0, steps=22)
SHUFFLED = Run(
    dataset_size=1000, batch_size=100, epochs=2, noise_multiplier=1.0, sampler="shuffle", adjacency="zero-out"
)
Truth = tuple[Run, ...] | None
SITUATIONS: dict[str, tuple[str, Callable[[Any], tuple[Any, Truth]]]] = {}


def situation(name: str, expected: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Write one down."""

    def write(train: Callable[[Any], Any]) -> Callable[[Any], Any]:
        SITUATIONS[name] = (expected, train)
        return train

    return write


def watched(loop: Any, **settings: Any) -> Any:
    return attach(loop.engine, loop.optimizer, loop.loader, **({"loss": loop.criterion} | settings))


def plain(script: Any, between: Callable[[Any], None] = lambda loop: None, **settings: Any) -> tuple[Any, Truth]:
    """Two epochs, with something in between."""
    loop = script(**settings)
    record = watched(loop)
    loop.train()
    between(loop)
    loop.train()
    return record, (CLEAN,)


@situation("the accuracy on the training loader after each epoch", "exact")
def _(script: Any) -> Any:
    def accuracy(loop: Any) -> None:
        loop.model.eval()
        with torch.no_grad():
            for records, labels in loop.loader:
                (loop.model(records).argmax(1) == labels).sum()
        loop.model.train()

    return plain(script, accuracy)


@situation("a scheduler of the learning rate that counts steps", "exact")
def _(script: Any) -> Any:
    return plain(script, lambda loop: torch.optim.lr_scheduler.StepLR(loop.optimizer, 1).step())


@situation("clip_grad_norm_ before optimizer.step()", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    for records, labels in itertools.chain(loop.loader, loop.loader):
        loop.optimizer.zero_grad()
        loop.criterion(loop.model(records), labels).backward()
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        loop.optimizer.step()
    return record, (CLEAN,)


@situation("a moving average of the weights, kept aside", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    average = [parameter.detach().clone() for parameter in loop.network.parameters()]
    for records, labels in itertools.chain(loop.loader, loop.loader):
        loop.step(records, labels)
        for mean, parameter in zip(average, loop.network.parameters(), strict=True):
            mean.lerp_(parameter.detach(), 0.1)
    return record, (CLEAN,)


@situation("the best weights loaded back during training", "nothing")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    loop.train(stop=5)
    best = copy.deepcopy(loop.model.state_dict())
    loop.train(stop=5)
    loop.model.load_state_dict(best)
    loop.train(stop=5)
    return record, None


@situation("a maximum number of steps, reached inside the second epoch", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    for records, labels in itertools.chain(loop.loader, loop.loader):
        loop.step(records, labels)
        if record.steps == 15:
            break
    return record, (CLEAN.replace(steps=15),)


@situation("epochs of different length by itertools.islice", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    for stop in (3, 5, 2):
        loop.train(stop=stop)
    return record, (CLEAN.replace(steps=10),)


@situation("workers that live on between the epochs (persistent_workers)", "exact")
def _(script: Any) -> Any:
    return plain(script, loader={"num_workers": 2, "persistent_workers": True})


@situation("SGD with Nesterov momentum and weight decay", "exact")
def _(script: Any) -> Any:
    def inner(parameters: Any, lr: float) -> Any:
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.1)

    return plain(script, inner=inner)


@situation("AdamW with amsgrad", "exact")
def _(script: Any) -> Any:
    return plain(script, inner=lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, amsgrad=True))


@situation("a closure handed to optimizer.step()", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    for records, labels in itertools.chain(loop.loader, loop.loader):

        def closure(records: Any = records, labels: Any = labels) -> Any:
            loop.optimizer.zero_grad()
            loss = loop.criterion(loop.model(records), labels)
            loss.backward()
            return loss

        loop.optimizer.step(closure)
    return record, (CLEAN,)


@situation("the noise halved for the second epoch", "exact")
def _(script: Any) -> Any:
    record, _ = plain(script, lambda loop: setattr(loop.optimizer, "noise_multiplier", 0.5))
    return record, (CLEAN.replace(steps=11), CLEAN.replace(steps=11, noise_multiplier=0.5))


@situation("a seeded generator for the noise (noise_generator)", "exact")
def _(script: Any) -> Any:
    return plain(script, noise_generator=torch.Generator().manual_seed(11))


@situation("a deep copy of the model after each epoch", "exact")
def _(script: Any) -> Any:
    return plain(script, lambda loop: copy.deepcopy(loop.model))


@situation("a sampler that is asked to draw 22 batches in one epoch", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    loop.loader.batch_sampler.steps = 22
    loop.train()
    return record, (CLEAN,)


@situation("shuffled batches, the remainder dropped, zeroed-out records", "exact")
def _(script: Any) -> Any:
    loop = script(1050, poisson_sampling=False, loader={"drop_last": True})
    record = watched(loop, adjacency="zero-out")
    loop.train(2)
    return record, (SHUFFLED.replace(dataset_size=1050),)


@situation("shuffled batches of half the size in the second epoch, zeroed-out records", "exact")
def _(script: Any) -> Any:
    loop = script(1000, poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")
    loop.train()
    loop.loader.batch_sampler.batch_size = 50
    loop.train()
    return record, (SHUFFLED.replace(epochs=1), SHUFFLED.replace(epochs=1, batch_size=50))


@situation("a dataset that grows between two epochs", "nothing")
def _(script: Any) -> Any:
    loop = script(1000, poisson_sampling=False)
    record = watched(loop, adjacency="zero-out")
    loop.train()
    loop.data.tensors = tuple(torch.cat([part, part[:100]]) for part in loop.data.tensors)
    loop.train()
    return record, None


@situation("the clipping norm doubled by hand for the second epoch", "exact")
def _(script: Any) -> Any:
    return plain(script, lambda loop: setattr(loop.optimizer, "max_grad_norm", 2.0))


@situation("two steps on each batch, in the second epoch alone", "nothing")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    loop.train()
    loop.train(repeat=2)
    return record, None


@situation("records of one class left out by the loop", "nothing")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    loop.train(loader=([part[labels != 2] for part in (records, labels)] for records, labels in loop.loader))
    return record, None


@situation("mixup: records of a batch averaged with others", "not seen")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    batches = itertools.chain(loop.loader, loop.loader)
    loop.train(loader=((0.7 * records + 0.3 * records.flip(0), labels) for records, labels in batches))
    return record, (CLEAN,)


@situation("an encoder in front, trained by an optimizer without noise", "not seen")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    encoder = torch.nn.Linear(6, 6)
    other = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for records, labels in itertools.chain(loop.loader, loop.loader):
        other.zero_grad()
        torch.nn.functional.cross_entropy(encoder(records)[:, :3], labels).backward()
        other.step()
        loop.step(encoder(records).detach(), labels)
    return record, (CLEAN,)


@situation("an evaluation whose random numbers are put back (fork_rng)", "exact")
def _(script: Any) -> Any:
    def evaluate(loop: Any) -> None:
        with torch.random.fork_rng(), torch.no_grad():
            for records, _ in loop.loader:
                torch.nn.functional.dropout(loop.model(records))

    return plain(script, evaluate)


@situation("random numbers put back to where the epoch began", "nothing")
def _(script: Any) -> Any:
    loop = script(loader={"generator": torch.Generator().manual_seed(3)})
    record = watched(loop)
    began = torch.get_rng_state()
    loop.train()
    torch.set_rng_state(began)
    loop.train()
    return record, None


@situation("an interrupt in the middle of an epoch, and training goes on with a new one", "exact")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    try:
        for position, (records, labels) in enumerate(loop.loader):
            loop.step(records, labels)
            if position == 4:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        loop.train()
    return record, (CLEAN.replace(steps=16),)


@situation("another loader made from the private loader's sampler", "nothing")
def _(script: Any) -> Any:
    loop = script()
    record = watched(loop)
    other = torch.utils.data.DataLoader(
        loop.data, batch_sampler=loop.loader.batch_sampler, collate_fn=loop.loader.collate_fn
    )
    loop.train(loader=other)
    return record, None


@situation("a learning rate of its own for each layer (parameter groups)", "exact")
def _(script: Any) -> Any:
    def inner(parameters: Any, lr: float) -> Any:
        return torch.optim.SGD([{"params": [each], "lr": lr / (1 + place)} for place, each in enumerate(parameters)])

    return plain(script, inner=inner)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_situation_ends_as_was_expected(script, name) -> None:
    """The bounds of the run that it is, nothing with a reason, or what is known not to be seen."""
    expected, train = SITUATIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record, truth = train(script)
        found = record.epsilon(DELTA)
    if expected == "nothing":
        assert (found.lower, found.upper) == (0.0, math.inf)
        assert record.why_not()
        return
    described = measure(truth).epsilon(DELTA)
    assert record.why_not() == ()
    assert (found.lower, found.upper) == (described.lower, described.upper)


def test_the_table_lists_every_situation() -> None:
    """Name and result, as they are tested."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "opacus-loops.md"
    rows = re.findall(r"^\| ([^|]+) \| (exact|nothing|not seen) \|", page.read_text("utf-8"), re.MULTILINE)
    assert dict(rows) == {name: expected for name, (expected, _) in SITUATIONS.items()}
    assert len(SITUATIONS) >= 25
