"""Accelerate with Opacus: the loop of its tutorials, watched.

accelerate launch --num_processes 1 accelerate_opacus.py      # or: python accelerate_opacus.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

from calipers.adapters.opacus import attach

# Fixed in advance, without looking at the data. 1049, 1050 and 1051 records make 11 batches: the rate does not move.
RECORDS, BATCH, EPOCHS = 1050, 100, 2
NOISE, CLIP, RATE = 1.0, 1.0, 0.005
DELTA = 1e-5


def main() -> None:
    """Train with Accelerate's backward."""
    accelerator = Accelerator(cpu=True)
    records = torch.randn(RECORDS, 20)
    data = TensorDataset(records, (records[:, 0] > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    model = model.to(accelerator.device)  # before the optimizer is made, as always
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        loss_reduction="sum",
    )
    loss = torch.nn.CrossEntropyLoss(reduction="sum")
    record = attach(engine, optimizer, loader, loss=loss, adjacency="add-remove")
    # The loader is left as it is: prepared, it would be another loader around the same batch sampler, and `attach`
    # watches the one it was given. What Accelerate would do, moving batches to the device, is one line below.
    model, optimizer = accelerator.prepare(model, optimizer)

    for _ in range(EPOCHS):
        for inputs, targets in loader:
            inputs, targets = inputs.to(accelerator.device), targets.to(accelerator.device)
            optimizer.zero_grad()
            accelerator.backward(loss(model(inputs), targets))
            optimizer.step()
    # No accelerator.clip_grad_norm_: that would clip the whole batch, and Opacus clips each record.
    print(f"{record.steps} steps, epsilon at delta = {DELTA}: {record.epsilon(DELTA)}")
    print(f"not described: {record.why_not() or 'nothing'}")


if __name__ == "__main__":
    main()
