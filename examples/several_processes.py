"""One private training by several processes; the bracket is that of one.

    torchrun --nproc-per-node 2 examples/several_processes.py --checkpoint run.checkpoint

Killed at any moment and started again, with as many processes as you like, it goes on from the checkpoint. Rank 0
prints the number of processes, the steps and the bracket of epsilon.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from calipers.measure import measure
from calipers.samplers import Poisson
from calipers.training import Plan, joined_ranks, train

DELTA = 1e-5


def main() -> None:
    """Train a small classifier on records made up here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    # Every rank has all records, in the same order.
    rng = np.random.default_rng(0)
    records = rng.normal(size=(2000, 20)).astype(np.float32)
    labels = (records[:, 0] > 0).astype(np.int64)
    plan = Plan(
        sampler=Poisson(dataset_size=len(records), batch_size=100, steps=50),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        learning_rate=0.5,
    )
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    with joined_ranks(device=chosen.device, timeout=300) as ranks:
        trained = train(plan, model, records, labels, device=chosen.device, checkpoint=chosen.checkpoint)
    if ranks.leads:
        epsilon = measure(trained.run()).epsilon(delta=DELTA)
        print(f"{ranks.size} processes, {plan.steps} steps, epsilon at delta = {DELTA}: {epsilon}")


if __name__ == "__main__":
    main()
