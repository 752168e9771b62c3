"""Accuracy of private training beside Opacus: same run, same model, same initial weights, same number of seeds.

The small CNN on the first records of MNIST, Poisson batches, SGD, constant divisor and rate. Calipers and Opacus draw
batches and noise of their own, so that single trainings differ; means over seeds are compared, with their spread.

    python -m benchmarks.accuracy --data ../shared/data/mnist.npz --seeds 20 --jobs 8
"""

from __future__ import annotations

import argparse
import datetime
import math
import multiprocessing
import statistics
from typing import Any

import numpy as np

BATCH, STEPS, NOISE, NORM, RATE = 256, 120, 1.0, 1.0, 0.5


def digits(path: str, records: int) -> Any:
    """The first records of MNIST and 2,000 test records, from an archive with x_train, y_train, x_test, y_test."""
    from calipers.training import Dataset

    with np.load(path) as file:
        parts = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    images, tests = (parts[name][:, None].astype(np.uint8) for name in ("x_train", "x_test"))
    answers, expected = (parts[name].astype(np.int64) for name in ("y_train", "y_test"))
    return Dataset("mnist", "images", images[:records], answers[:records], tests[:2000], expected[:2000])


def by_calipers(data: Any, seed: int) -> float:
    """Accuracy on the test records."""
    from calipers.samplers import Poisson
    from calipers.training import Plan, build_model, train
    from calipers.training.evaluation import accuracy

    sampler = Poisson(dataset_size=data.size, batch_size=BATCH, steps=STEPS)
    plan = Plan(sampler=sampler, noise_multiplier=NOISE, max_grad_norm=NORM, learning_rate=RATE, seed=seed)
    model = build_model("cnn", data, seed=seed)
    train(plan, model, data.records, data.labels, prepare=data.prepare, device="cpu")
    return float(accuracy(model, data.test_records, data.test_labels, prepare=data.prepare, device="cpu"))


def by_opacus(data: Any, seed: int) -> float:
    """The same run by Opacus's optimizer on Poisson batches."""
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    from calipers.adapters.opacus_library import quiet_engine
    from calipers.training import build_model
    from calipers.training.evaluation import accuracy

    inner, rng = build_model("cnn", data, seed=seed), np.random.default_rng(seed)
    noise = torch.Generator().manual_seed(seed)
    with quiet_engine():
        model = GradSampleModule(inner)
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=RATE),
            noise_multiplier=NOISE,
            max_grad_norm=NORM,
            expected_batch_size=BATCH,
            generator=noise,
        )
        for _ in range(STEPS):
            drawn = np.flatnonzero(rng.random(data.size) < BATCH / data.size)
            records, labels = torch.from_numpy(data.records[drawn]), torch.from_numpy(data.labels[drawn])
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data.prepare(records)), labels).backward()
            optimizer.step()
    return float(accuracy(inner, data.test_records, data.test_labels, prepare=data.prepare, device="cpu"))


PEERS = {"Calipers": by_calipers, "Opacus": by_opacus}


def _job(job: tuple[str, str, int, int]) -> float:
    """One training, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    name, path, records, seed = job
    return 100.0 * PEERS[name](digits(path, records), seed)


def main() -> None:
    """One row of a table for each, and what the means differ by."""
    import opacus
    import torch

    parser = argparse.ArgumentParser(description="Accuracy of private training beside Opacus.")
    parser.add_argument("--data", required=True, metavar="FILE.npz")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{datetime.date.today()}, PyTorch {torch.__version__}, Opacus {opacus.__version__}: cnn, {options.records} "
        f"records, B = {BATCH}, {STEPS} steps, sigma = {NOISE}, C = {NORM}, rate {RATE}"
    )
    jobs = [(name, options.data, options.records, seed) for name in PEERS for seed in range(options.seeds)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        found = pool.map(_job, jobs, chunksize=1)
    ours, theirs = found[: options.seeds], found[options.seeds :]
    for name, own in zip(PEERS, (ours, theirs), strict=True):
        spread = f"{min(own):.2f} to {max(own):.2f}; {len(own)} seeds"
        print(f"{name}: {statistics.fmean(own):.2f} ({spread})")
    if options.seeds > 1:
        error = math.sqrt(sum(statistics.variance(own) for own in (ours, theirs)) / options.seeds)
        print(f"difference: {statistics.fmean(ours) - statistics.fmean(theirs):+.2f}, standard error {error:.2f}")


if __name__ == "__main__":
    main()
