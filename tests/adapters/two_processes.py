"""One of two processes that train together with Opacus, each with its own draws; run by `test_opacus_distributed`.

    python two_processes.py RANK MEETING SITUATION

MEETING is a file that the processes meet at. Prints one JSON object with what the record of this process says.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import warnings
from typing import Any

import opacus
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

from calipers.adapters.opacus import attach
from calipers.errors import UnsupportedError

SITUATIONS: dict[str, dict[str, Any]] = {
    "flat": {},
    "ghost": {"grad_sample_mode": "ghost"},
    "per layer": {"clipping": "per_layer", "max_grad_norm": [0.6, 0.8]},
    "mean": {"loss_reduction": "mean"},
    # 80 records on each process at rate 1/8 leave a process empty-handed once in 40,000 steps.
    "small": {"size": 160, "batch": 20},
    "uneven": {},
    "twins": {},
    "sharded": {"grad_sample_mode": "ghost_fsdp"},
}


def main(rank: int, meeting: str, situation: str) -> None:
    """Two epochs, and what was seen of them."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "loss_reduction": "sum"} | SITUATIONS[situation]
    size, batch = settings.pop("size", 1050), settings.pop("batch", 100)
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(size, 6), torch.randint(0, 3, (size,)))
    network = torch.nn.Linear(6, 3)
    module = _wrapped(network, situation)
    criterion = torch.nn.CrossEntropyLoss(reduction=settings["loss_reduction"])
    engine = opacus.PrivacyEngine()
    made = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.001),
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
        **({"criterion": criterion} if "grad_sample_mode" in settings else {}),
        **settings,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else criterion
    if situation == "sharded":
        _refused(engine, optimizer, loader)
        return
    record = attach(engine, optimizer, loader, batch_size=batch, public_rate=situation == "small")
    torch.manual_seed(100 + (0 if situation == "twins" else rank))
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        for position, (records, labels) in enumerate(loader):
            optimizer.zero_grad()
            criterion(model(records), labels).backward()
            if situation == "uneven" and position == 5:
                optimizer.noise_multiplier = 1.0 + rank
            optimizer.step()
    alone = record.epsilon(1e-5)
    together = record.gather().epsilon(1e-5)
    print(
        json.dumps(
            {
                "alone": [alone.lower, alone.upper],
                "together": [together.lower, together.upper],
                "runs": [run.to_dict() for run in record.runs()],
                "why_not": record.why_not(),
                "drawn here": record.facts["batches drawn"],
                "steps": record.steps,
            }
        )
    )
    torch.distributed.destroy_process_group()


def _wrapped(network: Any, situation: str) -> Any:
    if situation == "sharded":
        return importlib.import_module("opacus.utils.fsdp_utils").FSDP2Wrapper(torch.nn.Sequential(network))
    if situation == "per layer":
        return torch.nn.parallel.DistributedDataParallel(network)
    return DifferentiallyPrivateDistributedDataParallel(network)


def _refused(engine: Any, optimizer: Any, loader: Any) -> None:
    try:
        attach(engine, optimizer, loader)
    except UnsupportedError as refusal:
        print(json.dumps({"refused": str(refusal)}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook")
        main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
