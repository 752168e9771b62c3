"""MNIST with Opacus: train, watch, write a receipt, keep a budget.

    python mnist_opacus.py --data mnist.npz        # x_train and y_train; without it, digits made up here

Exit status 0: the budget is proven to be kept. 3 or 4: it is not.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

import calipers as cp
from calipers.adapters.opacus import attach

# Fixed in advance, without looking at the data: numbers chosen by trying them on the data would be part of the release.
# 1050 records in batches of 100 make 11 batches, and so do 1049 and 1051: the sample rate, 1/11, does not depend on
# whether a record is there.
RECORDS, BATCH, EPOCHS = 1050, 100, 3
NOISE, CLIP, RATE = 1.0, 1.0, 0.005
BUDGET = cp.Budget(epsilon=4, delta=1e-5, adjacency="add-remove")


def digits(path: str | None) -> TensorDataset:
    """The first records of MNIST, or as many made up: a random picture for each digit, and noise."""
    if path is not None:
        with np.load(path) as file:
            images, labels = file["x_train"][:RECORDS] / 255.0, file["y_train"][:RECORDS]
    else:
        rng = np.random.default_rng(0)
        labels = rng.integers(10, size=RECORDS)
        images = rng.random((10, 28, 28))[labels] + 0.3 * rng.normal(size=(RECORDS, 28, 28))
    return TensorDataset(torch.tensor(images, dtype=torch.float32)[:, None], torch.tensor(labels, dtype=torch.int64))


def main() -> int:
    """Train and say what the training leaks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="an .npz file with x_train and y_train")
    data = digits(parser.parse_args().data)
    # No batch normalization: it would let a record act through the gradients of the others.
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 8, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        # A sum is not divided by anything; with "mean", the default, Opacus divides by a number that follows N.
        loss_reduction="sum",
    )
    loss = torch.nn.CrossEntropyLoss(reduction="sum")  # a sum here too: each record by itself
    record = attach(engine, optimizer, loader, loss=loss)

    for _ in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()

    print(f"{record.steps} steps, epsilon at delta = {BUDGET.delta}: {record.epsilon(BUDGET.delta)}")
    receipt = cp.write_receipt(record, "mnist.receipt.json", deltas=[BUDGET.delta])
    print(f"receipt: {cp.verify_receipt(json.loads(receipt.read_text('utf-8'))).standing.value}")
    checked = cp.check(record.measure(), BUDGET)
    print(checked.sentence)
    return checked.outcome.exit_status


if __name__ == "__main__":
    raise SystemExit(main())
