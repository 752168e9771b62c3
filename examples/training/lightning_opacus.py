"""Lightning with Opacus: watched, and stopped before the budget is passed.

python lightning_opacus.py
"""

from __future__ import annotations

import lightning.pytorch as lightning
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from calipers.adapters.opacus import attach
from calipers.callbacks.lightning import PrivacyBudget

# Fixed in advance, without looking at the data. 1049, 1050 and 1051 records make 11 batches: the rate does not move.
RECORDS, BATCH, MOST_EPOCHS = 1050, 100, 20
NOISE, CLIP, RATE = 1.0, 1.0, 0.005
EPSILON, DELTA = 4.0, 1e-5
LOSS = torch.nn.CrossEntropyLoss(reduction="sum")


class Private(lightning.LightningModule):
    """The usual module; model and optimizer are what `make_private` returned."""

    def __init__(self, model, optimizer):
        super().__init__()
        self.model, self.optimizer = model, optimizer

    def training_step(self, batch, _):
        """The loss is not logged: a logged loss is released without noise."""
        inputs, targets = batch
        return LOSS(self.model(inputs), targets)

    def configure_optimizers(self):
        """Lightning calls zero_grad, backward and step on it, in this order."""
        return self.optimizer


def main() -> None:
    """Train until the budget says no."""
    records = torch.randn(RECORDS, 20)
    data = TensorDataset(records, (records[:, 0] > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        loss_reduction="sum",  # as LOSS: nothing is divided
    )
    record = attach(engine, optimizer, loader, loss=LOSS, adjacency="add-remove")
    trainer = lightning.Trainer(
        max_epochs=MOST_EPOCHS,
        callbacks=[PrivacyBudget(record, epsilon=EPSILON, delta=DELTA)],
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        # Not gradient_clip_val: Opacus clips each record; clipping the noisy sum again would only be post-processing.
    )
    trainer.fit(Private(model, optimizer), loader)
    print(f"{record.steps} steps, epsilon at delta = {DELTA}: {record.epsilon(DELTA)}")
    print(f"not described: {record.why_not() or 'nothing'}")


if __name__ == "__main__":
    main()
