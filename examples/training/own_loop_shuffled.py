"""A loop of one's own with an ordinary shuffled DataLoader, measured afterwards.

    python own_loop_shuffled.py

No library for private training: per-record gradients by `torch.func`, clipping and noise by hand. The loader is
PyTorch's with `shuffle=True` and everything else left at its default, so the last batch of an epoch is kept.
"""

from __future__ import annotations

import torch
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

import calipers as cp

# Fixed in advance, without looking at the data.
RECORDS, BATCH, EPOCHS = 1050, 100, 3
NOISE, CLIP, RATE = 2.0, 1.0, 0.005
DELTA = 1e-5


def main() -> None:
    """Train, then describe what was executed."""
    torch.manual_seed(0)  # for the made-up records only
    records = torch.randn(RECORDS, 20)
    data = TensorDataset(records, (records[:, 0] > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    weights = {name: value.detach() for name, value in model.named_parameters()}
    torch.seed()  # order and noise come from a seed that nobody knows

    def loss_of_one(weights, inputs, target):
        outputs = functional_call(model, weights, (inputs[None],))
        return torch.nn.functional.cross_entropy(outputs, target[None])

    gradients_of_each = vmap(grad(loss_of_one), in_dims=(None, 0, 0))
    steps = 0
    for _ in range(EPOCHS):
        for inputs, targets in DataLoader(data, batch_size=BATCH, shuffle=True):
            each = gradients_of_each(weights, inputs, targets)
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in each.values()]).norm(dim=0)
            factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
            for name, part in each.items():
                total = torch.einsum("i,i...->...", factors, part)
                noisy = total + NOISE * CLIP * torch.randn_like(total)
                weights[name] = weights[name] - RATE * noisy  # not divided by the batch, whose size may be secret
            steps += 1

    # What was executed. Neighbors: adjacency="zero-out" says that the record's gradients become zero and everybody
    # else keeps their place; the number of records is the same. It is NOT adding or removing a record: without the
    # record the others would be cut into batches differently, and the last, smaller batch would show it in every epoch.
    run = cp.Run(
        dataset_size=RECORDS, batch_size=BATCH, epochs=EPOCHS, noise_multiplier=NOISE,
        sampler="shuffle", last_batch="keep", adjacency="zero-out",
    )  # fmt: skip
    assert run.total_steps == steps
    print(f"{steps} steps, zero-out neighbors, epsilon at delta = {DELTA}: {cp.measure(run).epsilon(DELTA)}")
    better = run.replace(sampler="balls-and-bins", last_batch=None)
    print(f"the same with balls-and-bins batches: {cp.measure(better).epsilon(DELTA)}")


if __name__ == "__main__":
    main()
