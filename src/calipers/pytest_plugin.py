"""A pytest plugin: the training loop of a project, held against its privacy budget by its own test suite.

    @pytest.mark.calipers(epsilon=3, delta=1e-5, epochs=60)
    def test_training_keeps_its_budget(calipers_gate):
        model, optimizer, loader, engine = build()              # the project's own code
        calipers_gate.attach(engine, optimizer, loader)
        train(model, optimizer, loader, steps=3)                # the project's own loop, a few steps of it

After the test, what was seen (how batches are drawn, the noise that was really added, the divisor) is taken to the
length that the marker names, measured, and held against the budget. The budget may stand in pyproject.toml instead
([tool.calipers]); beside one there, a marker may only be stricter. The marker says how long the real training is, by
`epochs` or `steps`; `as_executed=True` checks what the test itself released. A test that is marked and attaches nothing
fails: it protects nobody. Where it hands over several trainings, each is checked by itself and all must be within the
budget; their sum is not asked for. Noise that changes after the steps of the test is not seen: a schedule has to be
declared, phase by phase. Of a declared run nothing is watched: the test vouches for it.

The plugin is registered under the name "calipers" when Calipers is installed; it imports nothing heavy before a test
asks for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from calipers.gate import Budget, Checked
    from calipers.run import Run

_LENGTHS = ("epochs", "steps", "as_executed")
_FOR_WHOM = "calipers_within_budget_for"
_OPTIONS = ("epsilon", "delta", "adjacency", "view", *_LENGTHS)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "calipers(epsilon, delta, epochs or steps or as_executed): hold the training that the test attaches to "
        "calipers_gate against this privacy budget",
    )


class TrainingGate:
    """What a test hands over: trainings to be watched, and runs that it describes; each is checked by itself."""

    def __init__(self, options: dict[str, Any], budget: Budget) -> None:
        self._options, self.budget = options, budget
        self._records: list[Any] = []
        self._declared: list[tuple[Run, ...]] = []

    def attach(self, engine: Any, optimizer: Any, data_loader: Any = None, **options: Any) -> Any:
        """Watch an Opacus training from now on; arguments and result are those of `calipers.adapters.opacus.attach`.

        What it refuses fails the test with the sentence alone.
        """
        from calipers.adapters.opacus import attach
        from calipers.errors import CalipersError

        if self.budget.adjacency is not None:
            options.setdefault("adjacency", self.budget.adjacency)
        try:
            record = attach(engine, optimizer, data_loader, **options)
        except CalipersError as error:
            pytest.fail(str(error), pytrace=False)
        if not any(record is known for known in self._records):  # a second loader of a training has the same record
            self._records.append(record)
        return record

    def declare(self, run: Run | Sequence[Run]) -> None:
        """The training is this run, or these phases; the test vouches for that (`calipers probe` finds runs)."""
        from calipers.phases import as_phases

        runs = as_phases(run)
        if len(runs) > 1 and not self._options.get("as_executed"):
            pytest.fail("Phases have their own lengths: give as_executed=True, not epochs or steps.", pytrace=False)
        self._declared.append(runs)

    @property
    def used(self) -> bool:
        """Whether anything was handed over."""
        return bool(self._records or self._declared)

    def check(self) -> tuple[Checked, ...]:
        """Take each training that was handed over to its planned length, and hold it against the budget by itself."""
        found = [("attached", functools.partial(self._extended, record)) for record in self._records]
        found += [("declared", functools.partial(self._replaced, runs)) for runs in self._declared]
        several = len(found) > 1
        names = [
            f"training {number} of {len(found)} ({how})" if several else "the training"
            for number, (how, _) in enumerate(found, start=1)
        ]
        return tuple(self._checked(name, planned) for name, (_, planned) in zip(names, found, strict=True))

    def _checked(self, name: str, planned: Callable[[str], tuple[Run, ...]]) -> Checked:
        from calipers.errors import UnsupportedError
        from calipers.gate import check, uncertified

        try:
            runs = planned(name)
        except UnsupportedError as error:
            return uncertified(name, (), self.budget, str(error))
        return check(runs, self.budget, name=name)

    @property
    def _length(self) -> dict[str, Any]:
        return {name: self._options[name] for name in ("epochs", "steps") if self._options.get(name) is not None}

    def _replaced(self, runs: tuple[Run, ...], name: str) -> tuple[Run, ...]:
        """A declared run with the length that the marker names."""
        return tuple(run.replace(**self._length) for run in runs) if self._length else runs

    def _extended(self, record: Any, name: str) -> tuple[Run, ...]:
        """A watched training, taken to that length; whatever is not whole counts as begun."""
        if not record.steps:
            pytest.fail(f"{_begun(name)} took no step: nothing was seen of it.", pytrace=False)
        from calipers.run_keys import whole

        ahead = record.ahead()
        least = ahead.position() - 1 if ahead.source.by_coins else ahead.position()
        if record.planned_steps is not None:  # the longest training that was possible, also where it stops earlier
            least = max(least, ahead.position_of(record.planned_steps))
        length, batches = self._length, ahead.source.batches
        if not length:
            return tuple(ahead.runs(least))
        if ahead.source.by_coins:
            planned = length.get("steps", length.get("epochs", 0) * batches)
        else:
            planned = length.get("epochs", -(-length.get("steps", 0) // batches))
        return tuple(ahead.runs(max(whole(planned) or math.ceil(planned), least)))


@pytest.fixture
def calipers_gate(request: pytest.FixtureRequest) -> TrainingGate:
    """Where a test hands its training over; the marker `calipers` says the budget and the length."""
    from calipers.errors import InputError
    from calipers.gate import configured, find_settings, refuse_looser

    marker = request.node.get_closest_marker("calipers")
    options = {} if marker is None else dict(marker.kwargs)
    try:
        if marker is None:
            raise InputError("a test that uses calipers_gate must be marked @pytest.mark.calipers(epochs=...).")
        if marker.args or set(options) - set(_OPTIONS):
            raise InputError(f"the marker takes {', '.join(_OPTIONS)} by name.")
        if len([name for name in _LENGTHS if options.get(name)]) != 1:
            raise InputError(
                "the marker must say how long the real training is: give exactly one of epochs, steps, as_executed."
            )
        _, settings = find_settings(request.config.rootpath)
        refuse_looser(options, {}, settings, speaker=("the marker", "A marker"))
        return TrainingGate(options, configured(options, settings))
    except InputError as error:
        pytest.fail(f"{request.node.name}: {error}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """After the test itself, the budget: what fails here is the test, not its teardown."""
    result = yield
    if item.get_closest_marker("calipers") is None:
        return result
    gate = getattr(item, "funcargs", {}).get("calipers_gate")
    if gate is None or not gate.used:
        pytest.fail(
            f"{item.name} is marked calipers and hands no training over: take the fixture calipers_gate and call its "
            "attach(engine, optimizer, loader) or declare(run).",
            pytrace=False,
        )
    checked = gate.check()
    brackets = [one.bracket for one in checked if one.bracket is not None]
    if len(brackets) == len(checked):  # of several trainings the largest
        item.user_properties.append(("calipers_epsilon_at_least", max(bracket.lower for bracket in brackets)))
        item.user_properties.append(("calipers_epsilon_at_most", max(bracket.upper for bracket in brackets)))
    item.user_properties += [(_FOR_WHOM, one.sentence) for one in checked if _for_whom(one)]
    failed = [one for one in checked if one.outcome.exit_status]
    if failed:
        pytest.fail("\n\n".join(_failure(one, len(checked)) for one in failed), pytrace=False)
    return result


def _for_whom(checked: Checked) -> bool:
    """Whether a run is within a budget that names no adjacency, for another relation than adding or removing."""
    unnamed = checked.budget.adjacency is None and any(run.adjacency != "add-remove" for run in checked.runs)
    return unnamed and not checked.outcome.exit_status


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A test that passes prints nothing: under a relation that nobody named, say which."""
    passed = [report for report in terminalreporter.stats.get("passed", []) if report.when == "call"]
    said = [f"{one.nodeid}: {text}" for one in passed for key, text in one.user_properties if key == _FOR_WHOM]
    if said:
        terminalreporter.section("calipers: within the budget, which names no adjacency")
        for sentence in said:
            terminalreporter.write_line(sentence)


def _failure(checked: Checked, count: int) -> str:
    """What is not within the budget, which training it is, and the run that was measured as the text of a run file."""
    which, alone = "", ""
    if count > 1:
        which = f"{_begun(checked.name)}: "
        alone = " The test hands over several trainings: each is checked by itself, their sum on the same data is not."
    runs = "\n".join(run.to_toml() for run in checked.runs).rstrip() or "No run describes what was executed."
    return f"{which}{checked.sentence}{alone}\n\n{runs}"


def _begun(name: str) -> str:
    """The name at the beginning of a sentence."""
    return f"{name[0].upper()}{name[1:]}"
