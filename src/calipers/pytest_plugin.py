"""A pytest plugin: the training loop of a project, held against its privacy budget by its own test suite.

    @pytest.mark.calipers(epsilon=3, delta=1e-5, epochs=60)
    def test_training_keeps_its_budget(calipers_gate):
        model, optimizer, loader, engine = build()              # the project's own code
        calipers_gate.attach(engine, optimizer, loader)
        train(model, optimizer, loader, steps=3)                # the project's own loop, a few steps of it

After the test, what was seen (how batches are drawn, the noise that was really added, the divisor) is taken to the
length that the marker names, measured, and held against the budget. The budget may stand in pyproject.toml instead
([tool.calipers]). The marker says how long the real training is, by `epochs` or `steps`; `as_executed=True` checks
what the test itself released. A test that is marked and attaches nothing fails: it protects nobody.

The plugin is registered under the name "calipers" when Calipers is installed; it imports nothing heavy before a test
asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from calipers.gate import Budget, Checked
    from calipers.run import Run

_LENGTHS = ("epochs", "steps", "as_executed")
_OPTIONS = ("epsilon", "delta", "adjacency", "view", *_LENGTHS)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "calipers(epsilon, delta, epochs or steps or as_executed): hold the training that the test attaches to "
        "calipers_gate against this privacy budget",
    )


class TrainingGate:
    """What a test hands over: a training to be watched, or a run that it describes."""

    def __init__(self, options: dict[str, Any], budget: Budget) -> None:
        self._options, self.budget = options, budget
        self._record: Any = None
        self._run: Run | None = None
        self.checked: Checked | None = None

    def attach(self, engine: Any, optimizer: Any, data_loader: Any = None, **options: Any) -> Any:
        """Watch an Opacus training from now on; arguments and result are those of `calipers.adapters.opacus.attach`."""
        from calipers.adapters.opacus import attach

        if self.budget.adjacency is not None:
            options.setdefault("adjacency", self.budget.adjacency)
        self._record = attach(engine, optimizer, data_loader, **options)
        return self._record

    def declare(self, run: Run) -> None:
        """The training is this run, as the test vouches for: found by `calipers probe`, or read off the code."""
        self._run = run

    @property
    def used(self) -> bool:
        """Whether anything was handed over."""
        return self._record is not None or self._run is not None

    def check(self) -> Checked:
        """Take what was handed over to its planned length, and hold it against the budget."""
        from calipers.errors import UnsupportedError
        from calipers.gate import check, uncertified

        try:
            runs = self._planned()
        except UnsupportedError as error:
            self.checked = uncertified("the training", (), self.budget, str(error))
        else:
            self.checked = check(runs, self.budget, name="the training")
        return self.checked

    def _planned(self) -> tuple[Run, ...]:
        length = {name: self._options[name] for name in ("epochs", "steps") if self._options.get(name) is not None}
        if self._run is not None:
            return (self._run.replace(**length) if length else self._run,)
        if not self._record.steps:
            pytest.fail("The test attached a training to calipers_gate and took no step.", pytrace=False)
        ahead = self._record.ahead()
        so_far = ahead.position() - 1 if ahead.source.by_coins else ahead.position()
        if not length:
            return tuple(ahead.runs(so_far))
        batches = ahead.source.batches
        if ahead.source.by_coins:
            planned = length.get("steps", length.get("epochs", 0) * batches)
        else:
            planned = length.get("epochs", -(-length.get("steps", 0) // batches))
        return tuple(ahead.runs(max(int(planned), so_far)))


@pytest.fixture
def calipers_gate(request: pytest.FixtureRequest) -> TrainingGate:
    """Where a test hands its training over; the marker `calipers` says the budget and the length."""
    from calipers.errors import InputError
    from calipers.gate import configured, find_settings

    marker = request.node.get_closest_marker("calipers")
    options = {} if marker is None else dict(marker.kwargs)
    try:
        if marker is None:
            raise InputError("a test that uses calipers_gate is marked @pytest.mark.calipers(epochs=...).")
        if marker.args or set(options) - set(_OPTIONS):
            raise InputError(f"the marker takes {', '.join(_OPTIONS)} by name.")
        if len([name for name in _LENGTHS if options.get(name)]) != 1:
            raise InputError(
                "the marker must say how long the real training is: give exactly one of epochs, steps, as_executed."
            )
        _, settings = find_settings(request.config.rootpath)
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
    if checked.bracket is not None:
        item.user_properties.append(("calipers_epsilon_at_least", checked.bracket.lower))
        item.user_properties.append(("calipers_epsilon_at_most", checked.bracket.upper))
    if checked.outcome.exit_status:
        pytest.fail(f"{checked.sentence}\n\n{_described(checked.runs)}", pytrace=False)
    return result


def _described(runs: tuple[Run, ...]) -> str:
    """The run that was measured, as the text of a run file."""
    return "\n".join(run.to_toml() for run in runs).rstrip() or "No run describes what was executed."
