"""What Calipers found in Opacus 1.5 and 1.6, one short demonstration each.

    python examples/opacus_findings.py

Every function shows one finding with the library's own objects and returns the numbers that prove it. The page "What
we found in libraries" of the documentation says what they mean.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from typing import Any

import opacus
import torch
from opacus.schedulers import ExponentialGradClip
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler
from torch.utils.data import DataLoader, TensorDataset


def private(engine: Any = None, size: int = 1050, drop_last: bool = False, **settings: Any) -> tuple[Any, ...]:
    """Model, optimizer, (criterion,) loader of a linear model on random records."""
    data = TensorDataset(torch.randn(size, 6), torch.randint(0, 3, (size,)))
    model = torch.nn.Linear(6, 3)
    made: tuple[Any, ...] = (engine or opacus.PrivacyEngine()).make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.001),
        data_loader=DataLoader(data, batch_size=100, drop_last=drop_last),
        criterion=torch.nn.CrossEntropyLoss(reduction="sum"),
        **({"noise_multiplier": 1.0, "max_grad_norm": 1.0, "loss_reduction": "sum"} | settings),
    )
    return made


def norms_of_ghost_clipping() -> tuple[float, float]:
    """(norm of the noise, norm of the clipping) after ExponentialGradClip(gamma=0.5) took a step."""
    model, optimizer, _, _ = private(grad_sample_mode="ghost")
    ExponentialGradClip(optimizer, gamma=0.5).step()
    return float(optimizer.max_grad_norm), float(model.max_grad_norm)


def norms_of_per_layer_clipping() -> tuple[float, float]:
    """The same with clipping="per_layer", whose norms are a list that the scheduler does not know."""
    _, optimizer, _ = private(clipping="per_layer", max_grad_norm=[0.6, 0.8])
    ExponentialGradClip(optimizer, gamma=0.5).step()
    return float(optimizer.max_grad_norm), float(torch.tensor(optimizer.max_grad_norms).norm())


def noise_of_adaptive_ghost_clipping() -> list[tuple[int, float]]:
    """(records in the batch, noise multiplier) of three Poisson batches: the noise tells the size."""
    model, optimizer, criterion, loader = private(PrivacyEngineAdaptiveClipping(), grad_sample_mode="ghost")
    found = []
    for (records, labels), _ in zip(loader, range(3), strict=False):
        optimizer.zero_grad()
        criterion(model(records), labels).backward()
        # 1.6 keeps the noise in an attribute of its own, which accountants do not see; 1.5 overwrites the multiplier.
        found.append(
            (len(records), float(getattr(optimizer, "_adjusted_noise_multiplier", optimizer.noise_multiplier)))
        )
        optimizer.step()
    return found


def flags_left_by_a_break() -> int:
    """Flags for steps to hold back that are still queued after a loop over BatchMemoryManager breaks off."""
    _, optimizer, loader = private()
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=30, optimizer=optimizer) as pieces:
        for _ in pieces:
            break
    return len(optimizer._step_skip_queue)


def batches_of_two_processes(size: int = 1000, rate: float = 0.1, seed: int = 0) -> tuple[list[list[int]], int]:
    """(positions that both processes draw first, batches of an epoch of ten when a process has six records).

    Two processes with one seed draw with the same random numbers: equal positions. Empty batches are left out, so that
    one process runs out of batches before the other.
    """
    firsts, lengths = [], []
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        for rank in range(2):
            torch.manual_seed(seed)
            sampler = DistributedUniformWithReplacementSampler(total_size=size, sample_rate=rate, shuffle=False)
            # As the constructor would set them in a group of two.
            sampler.rank, sampler.num_replicas, sampler.num_samples = rank, 2, size // 2
            firsts.append([(int(index) - rank) // 2 for index in next(iter(sampler))])
        small = DistributedUniformWithReplacementSampler(total_size=6, sample_rate=rate)
        lengths.append(len(list(small)))
        torch.distributed.destroy_process_group()
    return firsts, lengths[0]


def rates_of_loaders_that_drop() -> list[tuple[int, int]]:
    """(records, one over the sample rate) with batches of 100 and drop_last=True: a record more, another rate."""
    return [(size, round(1 / private(size=size, drop_last=True)[-1].sample_rate)) for size in (1399, 1400)]


def main() -> None:
    """Print all of it."""
    print(f"Opacus {opacus.__version__}")
    print(
        "ghost clipping after ExponentialGradClip: noise for norm {}, clipped to norm {}".format(
            *norms_of_ghost_clipping()
        )
    )
    print(
        "per-layer clipping after the same:        noise for norm {:.4f}, clipped to norm {:.4f}".format(
            *norms_of_per_layer_clipping()
        )
    )
    for size, noise in noise_of_adaptive_ghost_clipping():
        print(f"adaptive ghost clipping: {size} records in the batch, noise multiplier {noise:.6f}")
    print(f"flags left by a break inside BatchMemoryManager: {flags_left_by_a_break()}")
    (first, second), length = batches_of_two_processes()
    print(f"two processes, one seed: the same {len(first)} positions drawn on both: {first == second}")
    print(f"an epoch of 10 batches on a process with 6 records: {length} batches")
    for size, batches in rates_of_loaders_that_drop():
        print(f"{size} records, drop_last=True: sampled at 1/{batches}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook")
    logging.getLogger("opacus.data_loader").disabled = True
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.manual_seed(0)
    main()
