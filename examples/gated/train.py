"""A small training with Opacus that ends with a receipt: `python train.py run.receipt.json`."""

from __future__ import annotations

import sys

import torch
from opacus import PrivacyEngine

from calipers.adapters.opacus import attach
from calipers.callbacks import BudgetGuard
from calipers.receipts import write_receipt

RECORDS, BATCH, EPOCHS = 1050, 100, 5
# Set this to False and the loader shuffles: a common shortcut, refused by ci.sh.
POISSON_SAMPLING = True
LOSS = torch.nn.CrossEntropyLoss(reduction="sum")


def build():
    """The model, its optimizer and its loader, made private."""
    records, labels = torch.randn(RECORDS, 20), torch.randint(2, (RECORDS,))
    data = torch.utils.data.TensorDataset(records, labels)
    model = torch.nn.Linear(20, 2)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
        loss_reduction="sum",
        poisson_sampling=POISSON_SAMPLING,
    )
    return engine, model, optimizer, loader


def train(model, optimizer, batches, steps=None):
    """One pass over the batches, or its first few steps."""
    for number, (inputs, targets) in enumerate(batches, start=1):
        optimizer.zero_grad()
        LOSS(model(inputs), targets).backward()
        optimizer.step()
        if number == steps:
            return


def main(receipt):
    """The whole training, within the budget, and its receipt."""
    engine, model, optimizer, loader = build()
    record = attach(engine, optimizer, loader, loss=LOSS)
    guard = BudgetGuard(record, epsilon=2.5, delta=1e-5, log=lambda values, step: print(step, values))
    for _ in range(EPOCHS):
        train(model, optimizer, guard.batches(loader))
    print(guard.reason or f"{record.steps} steps, within the budget.")
    write_receipt(record, receipt)


if __name__ == "__main__":
    main(sys.argv[1])
