"""A training script as people write them with Opacus, for the tests that watch one."""

from __future__ import annotations

import importlib
import inspect
import itertools
from typing import Any

import pytest

from calipers.adapters.opacus_library import quiet_engine
from calipers.adapters.torch_sampler import CollateWithEmpty


class Script:
    """Data, model, engine and loop. `settings` go to `make_private`, those named here to the loader and the engine.

    The numbers of most tests: 1050 records in batches of 100 make 11 batches, and 11 too for 1049 and 1051 records.
    """

    def __init__(
        self,
        size: int = 1050,
        batch: int = 100,
        *,
        accountant: Any = "rdp",
        engine: str = "opacus.PrivacyEngine",
        loader: dict[str, Any] | None = None,
        batches: Any = None,
        order: Any = None,
        dataset: Any = None,
        network: Any = None,
        inner: Any = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        torch, data = importlib.import_module("torch"), importlib.import_module("torch.utils.data")
        torch.manual_seed(seed)
        self.torch = torch
        self.data = data.TensorDataset(torch.randn(size, 6), torch.randint(0, 3, (size,)))
        self.data = self.data if dataset is None else dataset(self.data)
        module, _, name = engine.rpartition(".")
        named = isinstance(accountant, str)
        self.engine = getattr(importlib.import_module(module), name)(accountant=accountant if named else "rdp")
        if not named:
            self.engine.accountant = accountant
        drawing: dict[str, Any] = {"batch_size": batch, "shuffle": True} | (loader or {})
        if order is not None:
            drawing = drawing | {"shuffle": None, "sampler": order(self.data)}
        if batches is not None:
            drawing = {"batch_sampler": batches, "collate_fn": CollateWithEmpty(self.data)}
        self.own_loader = data.DataLoader(self.data, **drawing)
        self.network = torch.nn.Linear(6, 3) if network is None else network()
        settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "loss_reduction": "sum"} | settings
        self.criterion = torch.nn.CrossEntropyLoss(reduction=settings["loss_reduction"])
        self.ghost = settings.get("grad_sample_mode") == "ghost"
        if self.ghost and "criterion" not in inspect.signature(self.engine.make_private).parameters:
            pytest.skip("Ghost clipping by make_private comes with Opacus 1.5.3.")
        if self.ghost:
            settings["criterion"] = self.criterion
        made = self.engine.make_private(
            module=self.network,
            optimizer=(inner or torch.optim.SGD)(self.network.parameters(), lr=0.001),
            data_loader=self.own_loader,
            **settings,
        )
        self.model, self.optimizer, self.loader = made[0], made[1], made[-1]
        if self.ghost:
            self.criterion = made[2]

    def resume(self, path: Any) -> dict[str, Any]:
        """Load a checkpoint of the engine; releases before 1.5.4 do not say that it holds more than weights."""
        trusted = "weights_only=False" in inspect.getsource(self.engine.load_checkpoint)
        return self.engine.load_checkpoint(
            path=path,
            module=self.model,
            optimizer=self.optimizer,
            torch_load_kwargs=None if trusted else {"weights_only": False},
        )

    def step(self, records: Any, labels: Any) -> None:
        """One step as the tutorials write it."""
        self.optimizer.zero_grad()
        self.criterion(self.model(records), labels).backward()
        self.optimizer.step()

    def train(self, epochs: int = 1, *, stop: int | None = None, repeat: int = 1, loader: Any = None) -> None:
        """So many epochs, each broken off after `stop` batches, with `repeat` steps on each batch."""
        with quiet_engine():
            for _ in range(epochs):
                for records, labels in itertools.islice(self.loader if loader is None else loader, stop):
                    for _ in range(repeat):
                        self.step(records, labels)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Opacus before 1.5.4 registers hooks in a way that PyTorch calls deprecated; that is no news here."""
    for item in items:
        if item.get_closest_marker("opacus"):
            item.add_marker(pytest.mark.filterwarnings("ignore:Using a non-full backward hook"))


@pytest.fixture
def script() -> type[Script]:
    """The class, to be called with the settings of one script."""
    return Script
