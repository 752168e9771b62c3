"""Both bounds arrive in the real trackers: read back from the files that TensorBoard, W&B and MLflow write.

TensorBoard is required where the callbacks are tested; the other two are tried where they are installed. None of them
is known to Calipers: values go through the logger that the user has.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from calipers.callbacks import BudgetGuard
from calipers.run import Run

pytestmark = [
    pytest.mark.callbacks,
    # What other libraries warn of is theirs to mend.
    pytest.mark.filterwarnings("ignore"),
]
LOW, HIGH = (f"calipers/epsilon_at_{end}_if_length_fixed" for end in ("least", "most"))
RUN = Run(sample_rate=0.25, steps=1, noise_multiplier=2.0)


def trained(log) -> BudgetGuard:
    """A loop of three passes of four steps, told by the guard."""
    guard = BudgetGuard(RUN, epsilon=50, delta=1e-5, log=log)
    for _ in range(3):
        for _ in guard.batches(range(4)):
            pass
    return guard


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every jaw in the newest event files, by TensorBoard's own reader."""
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.rglob("events.*")):
        events = reader.EventAccumulator(str(file))
        events.Reload()
        for name in events.Tags()["scalars"]:
            found.setdefault(name, []).extend((event.step, event.value) for event in events.Scalars(name))
    return found


def check(low: list[tuple[int, float]], high: list[tuple[int, float]], guard: BudgetGuard) -> None:
    """One value at the end of each pass, growing, and the last is what the guard says."""
    assert [step for step, _ in low] == [step for step, _ in high] == [4, 8, 12]
    assert all(a <= b for (_, a), (_, b) in zip(low, high, strict=True))
    assert high[0][1] < high[1][1] < high[2][1]
    assert high[-1][1] == pytest.approx(guard.values()[HIGH], rel=1e-6)  # TensorBoard keeps single precision


def test_a_plain_loop_and_tensorboard(tmp_path) -> None:
    """`SummaryWriter.add_scalar`, as the page on callbacks shows it."""
    pytest.importorskip("tensorboard")
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path))
    guard = trained(lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()])
    writer.close()
    found = scalars(tmp_path)
    check(found[LOW], found[HIGH], guard)


def test_lightning_and_tensorboard(tmp_path) -> None:
    """The callback knows nothing of the logger: Lightning passes the values on."""
    pytest.importorskip("tensorboard")
    torch, lightning = pytest.importorskip("torch"), pytest.importorskip("lightning.pytorch")
    loggers = importlib.import_module("lightning.pytorch.loggers")
    from calipers.callbacks.lightning import PrivacyBudget

    class Linear(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1], reduction="sum")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    records = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))
    run = Run(dataset_size=40, batch_size=10, epochs=1, noise_multiplier=4.0, sampler="deterministic")
    callback = PrivacyBudget(run, epsilon=50, delta=1e-5)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, logger=loggers.TensorBoardLogger(str(tmp_path)),
        callbacks=[callback], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(tmp_path), log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(Linear(), torch.utils.data.DataLoader(records, batch_size=10))
    trainer.loggers[0].finalize("success")
    found = scalars(tmp_path)
    check(found[LOW], found[HIGH], callback.guard)


def test_a_plain_loop_and_mlflow(tmp_path, monkeypatch) -> None:
    """`mlflow.log_metrics` takes values and step as the guard gives them."""
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'tracked.db'}")
    with mlflow.start_run() as started:
        guard = trained(mlflow.log_metrics)
    client = mlflow.MlflowClient()
    low, high = (
        [(one.step, one.value) for one in client.get_metric_history(started.info.run_id, name)] for name in (LOW, HIGH)
    )
    check(low, high, guard)


def test_a_plain_loop_and_weights_and_biases(tmp_path, monkeypatch) -> None:
    """`wandb.log` takes values and step as the guard gives them; offline, it keeps them in a file of its own."""
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="calipers", mode="offline", dir=str(tmp_path))
    guard = trained(wandb.log)
    run.finish()
    wandb.teardown()  # the process that writes the file ends when it is written
    (file,) = (tmp_path / "wandb").rglob("*.wandb")
    found = history(file)
    check(found[LOW], found[HIGH], guard)


def history(file: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every name in the file that W&B keeps, whose records are messages of W&B's own."""
    record_type = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    found: dict[str, list[tuple[int, float]]] = {}
    for data in logged(file.read_bytes()):
        record = record_type()
        record.ParseFromString(data)
        for item in record.history.item:
            value = json.loads(item.value_json)
            if isinstance(value, float):
                found.setdefault(item.key or ".".join(item.nested_key), []).append((record.history.step.num, value))
    return found


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a log of 32 KiB blocks: seven bytes of head, then pieces with checksum, length and kind."""
    assert content.startswith(b":W&B")
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # no head fits into the rest of a block
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield record
            record = b""
