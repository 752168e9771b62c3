"""A grid without a network, so that Flower's own strategies work in tests; and epsilon of drawn shifts, by hand."""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

# Warnings while Flower is imported are about its own dependencies; a test that imported it first would fail for them.
with contextlib.suppress(ImportError), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    importlib.import_module("flwr.server.workflow")


class Grid:
    """Clients that answer at once: each moves the model by `update`, reports `weight`, and may fail or be silent."""

    def __init__(
        self,
        clients: int | Callable[[int], int],
        *,
        update: Callable[[int], Any] = lambda node: 1.0,
        weight: Callable[[int], float] = lambda node: 1,
        fails: Callable[[int, int], bool] = lambda number, node: False,
        silent: Callable[[int, int], bool] = lambda number, node: False,
    ) -> None:
        self.app = importlib.import_module("flwr.app")
        self.clients, self.update, self.weight, self.fails, self.silent = clients, update, weight, fails, silent
        self.number = 0

    def get_node_ids(self) -> list[int]:
        count = self.clients(self.number + 1) if callable(self.clients) else self.clients
        return list(range(1, count + 1))

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        messages = list(messages)
        if messages and messages[0].metadata.message_type == "train":
            self.number += 1
        heard = [one for one in messages if not self.silent(self.number, one.metadata.dst_node_id)]
        return [self.reply(message) for message in heard]

    def reply(self, message: Any, context: Any = None) -> Any:
        node = message.metadata.dst_node_id
        if self.fails(self.number, node):
            return self.app.Message(self.app.Error(0, "it failed"), reply_to=message)
        (sent,) = message.content.array_records.values()
        moved = self.app.ArrayRecord([array + self.update(node) for array in sent.to_numpy_ndarrays()])
        metrics = self.app.MetricRecord({"num-examples": self.weight(node)})
        return self.app.Message(self.app.RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)


@pytest.fixture
def grid() -> Iterator[type[Grid]]:
    """The class; Flower is quiet, and its messages have the identity that they need outside of a simulation."""
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield Grid
    logger.setLevel(level)


@pytest.fixture
def one_round(grid: type[Grid]) -> Callable[..., Any]:
    """What a strategy releases in one round over a model of zeros, as one array."""
    app = importlib.import_module("flwr.app")

    def released(strategy: Any, clients: Grid, parameters: int = 1) -> Any:
        arrays = app.ArrayRecord([np.zeros(parameters)])
        messages = strategy.configure_train(1, arrays, app.ConfigRecord(), clients)
        found, _ = strategy.aggregate_train(1, clients.send_and_receive(messages))
        return found.to_numpy_ndarrays()[0]

    return released


def mixture_epsilon(
    noise: float, shifts: list[float], chances: list[float], rounds: int, delta: float, side: str
) -> float:
    """epsilon(delta) of sum_j chances[j] N(shifts[j], noise^2) against N(0, noise^2), composed: an oracle of its own.

    The privacy loss is put on a grid, cell of outcomes by cell, upward for side "above" and downward for "below", and
    composed by one power of its Fourier transform.
    """
    step, half = 2e-3, 2**16
    z = np.linspace(-14.0, 14.0 + max(shifts) / noise, 100_001)
    moved = [shift / noise for shift in shifts]
    loss = np.logaddexp.reduce([np.log(p) + m * z - m * m / 2 for m, p in zip(moved, chances, strict=True)], axis=0)
    cells = {
        True: np.diff(sum(p * ndtr(z - m) for m, p in zip(moved, chances, strict=True))),
        False: np.diff(ndtr(z)),
    }
    found = []
    for forward, mass in cells.items():
        ends = (loss[:-1], loss[1:]) if forward else (-loss[1:], -loss[:-1])
        places = np.ceil(ends[1] / step) if side == "above" else np.floor(ends[0] / step)
        # What lies outside of the grid: as good as certain to tell, or not counted.
        far = places >= half // 4
        pmf = np.bincount((places[~far].astype(int)) % (2 * half), weights=mass[~far], minlength=2 * half)
        lost = rounds * (1.0 - pmf.sum()) if side == "above" else 0.0
        composed = np.maximum(np.fft.irfft(np.fft.rfft(pmf) ** rounds), 0.0)
        losses = step * np.where(np.arange(2 * half) < half, np.arange(2 * half), np.arange(2 * half) - 2 * half)

        def excess(epsilon: float, pmf=composed, lost=lost, losses=losses) -> float:
            above = losses > epsilon
            return float(np.sum(pmf[above] * -np.expm1(epsilon - losses[above]))) + lost - delta

        low, high = 0.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        found.append(high if side == "above" else low)
    return max(found)


@pytest.fixture
def oracle() -> Callable[..., float]:
    return mixture_epsilon
