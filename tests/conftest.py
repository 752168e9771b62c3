"""Shared test settings, and which tests run when.

Hypothesis runs the same examples everywhere, without deadlines on slow machines. The suite is shared out so that every
test runs somewhere regularly (`tests/house/test_suite_split.py` checks that none is forgotten):

    make test           what needs no foreign library and little time
    make test-adapters  what needs one
    make test-explorer  what needs a browser
    make test-share     a fifth of what is slow or heavy; the commit says which, so each has its turn
    make test-slow      all of that

A test is slow because it is marked so, or because `durations.txt` says that it took `QUICK_SECONDS` of one core
or more; `make durations` measures anew. Both are the mark `slow` to pytest.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "calipers", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("calipers")

SHARES = 5
QUICK_SECONDS = 0.4
KEPT_SECONDS = 0.3  # what takes less is not worth a line in the file
DURATIONS = Path(__file__).with_name("durations.txt")

MARKS = pytest.StashKey[dict[str, frozenset[str]]]()
LEFT_OUT = pytest.StashKey[Counter[str]]()
SECONDS = pytest.StashKey[dict[str, float]]()
BEGAN = pytest.StashKey[float]()
STARTED = pytest.StashKey[float]()


def share_of(seed: str) -> int:
    """The share that a commit (or any hexadecimal number) asks for."""
    return int(seed, 16) % SHARES


def group_of(test: str) -> int:
    """The share a test belongs to; the same on every machine and whatever else is in the suite."""
    return zlib.crc32(test.encode()) % SHARES


def turn(item: pytest.Item) -> int:
    """Where a test stands in its share, another place with every commit: time may be up before all have run."""
    return zlib.crc32(f"{os.environ.get('CALIPERS_TURN', '')} {item.nodeid}".encode())


def read_durations(path: Path = DURATIONS) -> dict[str, float]:
    """Seconds of one core by test, as `make durations` left them."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {test: float(seconds) for seconds, test in (line.split(" ", 1) for line in lines)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="COMMIT", type=share_of, help=f"run one of {SHARES} shares of the tests")
    parser.addoption("--share-seconds", metavar="SECONDS", type=float, help="begin no test of the share later")
    parser.addoption("--write-durations", metavar="FILE", type=Path, help="write what each test takes of one core")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()
    config.stash[SECONDS] = {}
    config.stash[STARTED] = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before pytest reads `-m`: mark what was measured as slow, and keep the share that was asked for."""
    durations = read_durations()
    for item in items:
        if durations.get(item.nodeid, 0.0) >= QUICK_SECONDS:
            item.add_marker("slow")
    config.stash[MARKS] = {item.nodeid: frozenset(mark.name for mark in item.iter_markers()) for item in items}
    share = config.getoption("share")
    if share is not None:
        items[:] = sorted((item for item in items if group_of(item.nodeid) == share), key=turn)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count what `-m` leaves out by the marks that are the reason."""
    for item in items:
        marks = item.config.stash[MARKS].get(item.nodeid, frozenset())
        item.config.stash[LEFT_OUT][", ".join(name for name in registered(item.config) if name in marks)] += 1


def registered(config: pytest.Config) -> dict[str, str]:
    """The suite's own marks and what they mean, in the order of pyproject.toml."""
    lines = (line.split(":", 1) for line in config.getini("markers"))
    return {name: text.strip() for name, text in lines if "run with" in text}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """The seconds of one core that a test took with its processes, fixtures included, travel with its last report."""
    if call.when == "teardown" and BEGAN in item.stash:
        item.user_properties.append(("core_seconds", core_seconds() - item.stash[BEGAN]))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = core_seconds()
    limit = item.config.getoption("share_seconds")
    if limit is not None and time.monotonic() - item.config.stash[STARTED] > limit:
        pytest.skip("the time of this share is up; another commit begins with other tests")


def core_seconds() -> float:
    """Time that this process and those it has waited for have had of a core."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_report_header(config: pytest.Config) -> str | None:
    share = config.getoption("share")
    return None if share is None else f"share {share + 1} of {SHARES}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out and how to run it; write the durations where asked."""
    path = config.getoption("write_durations")
    if path is not None:
        write_durations(path, terminalreporter)
    left_out, meanings = config.stash[LEFT_OUT], registered(config)
    named = {label: count for label, count in left_out.items() if label}
    if named:
        terminalreporter.section("left out")
    for label, count in sorted(named.items(), key=lambda pair: -pair[1]):
        terminalreporter.write_line(f"{count:5d} {label}: {meanings[label.split(', ')[0]]}")


def write_durations(path: Path, terminalreporter: pytest.TerminalReporter) -> None:
    """One line per test that took `KEPT_SECONDS` or more; what was not run keeps the line that it had."""
    found = read_durations(path)
    for report in terminalreporter.getreports(""):
        seconds = dict(report.user_properties).get("core_seconds")
        if seconds is not None:
            found[report.nodeid] = float(str(seconds))
    kept = sorted((test, seconds) for test, seconds in found.items() if seconds >= KEPT_SECONDS)
    path.write_text("".join(f"{seconds:.1f} {test}\n" for test, seconds in kept), encoding="utf-8")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells the process that prints what it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Every worker collects the same tests, so the word of the last one stands for all."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = Counter(output.get("left_out", {}))  # type: ignore[attr-defined]
