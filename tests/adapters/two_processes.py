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
    "per layer": {"clipping": "per_layer", "max_grad_norm": [0.5, 0.5, 0.5, 0.5]},
    "mean": {"loss_reduction": "mean"},
    # 80 records on each process at rate 1/8 leave a process empty-handed once in 40,000 steps.
    "small": {"size": 160, "batch": 20},
    "uneven": {},
    "twins": {},
    "sharded": {"grad_sample_mode": "ghost_fsdp"},
    "sharded mean": {"grad_sample_mode": "ghost_fsdp", "loss_reduction": "mean"},
    "sharded shifted": {"grad_sample_mode": "ghost_fsdp"},
    "sharded thirds": {"grad_sample_mode": "ghost_fsdp"},
    "sharded in part": {"grad_sample_mode": "ghost_fsdp"},
}


def main(rank: int, meeting: str, situation: str) -> None:
    """Two epochs, and what was seen of them."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "loss_reduction": "sum"} | SITUATIONS[situation]
    size, batch = settings.pop("size", 1050), settings.pop("batch", 100)
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(size, 6), torch.randint(0, 3, (size,)))
    network = torch.nn.Sequential(torch.nn.Linear(6, 60), torch.nn.Tanh(), torch.nn.Linear(60, 3))
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
    try:
        record = attach(engine, optimizer, loader, batch_size=batch, public_rate=situation == "small", loss=criterion)
    except UnsupportedError as refusal:
        print(json.dumps({"refused": str(refusal)}))
        torch.distributed.destroy_process_group()
        return
    torch.manual_seed(100 + (0 if situation in ("twins", "sharded shifted") else rank))
    if situation == "sharded shifted":
        torch.rand(rank)  # one number further on the second process
    if situation == "sharded thirds":
        for part in model.modules():
            if hasattr(part, "set_gradient_divide_factor"):
                part.set_gradient_divide_factor(3.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo adds up and does not multiply
    shown = _Shown(optimizer, model) if situation.startswith("sharded") else None
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        for position, (records, labels) in enumerate(loader):
            optimizer.zero_grad()
            if shown is not None:
                shown.expect(records, labels)
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
                "released": shown.told() if shown is not None else None,
            }
        )
    )
    torch.distributed.destroy_process_group()


def _wrapped(network: Any, situation: str) -> Any:
    if situation == "sharded in part":
        return torch.distributed.fsdp.fully_shard(torch.nn.Sequential(network), ignored_params={network[2].bias})
    if situation.startswith("sharded"):
        return importlib.import_module("opacus.utils.fsdp_utils").FSDP2Wrapper(network)
    if situation == "per layer":
        return torch.nn.parallel.DistributedDataParallel(network)
    return DifferentiallyPrivateDistributedDataParallel(network)


class _Shown:
    """What a sharded step released beside what it should: gradients of the batch one by one, without Opacus or FSDP."""

    def __init__(self, optimizer: Any, model: Any) -> None:
        self.model, self.ratios, self.noises = model, [], []
        add_noise = optimizer.add_noise

        def overheard() -> None:
            for parameter in optimizer.params:
                self.gradient.append(optimizer.grad_state[parameter]["summed_grad"].full_tensor().flatten())
            add_noise()
            for parameter in optimizer.params:
                own = parameter.grad.to_local() - optimizer.grad_state[parameter]["summed_grad"].to_local()
                self.noises.append(own.flatten())
            sums = torch.cat(self.gradient)
            self.ratios.append(float(sums.norm() / self.wanted.norm()))
            assert torch.allclose(sums / sums.norm(), self.wanted / self.wanted.norm(), atol=1e-5)

        optimizer.add_noise = overheard

    def expect(self, records: Any, labels: Any) -> None:
        """The sum of all processes' clipped gradients, computed on a copy of the whole model."""
        whole = [parameter.detach().full_tensor().requires_grad_() for parameter in self.model.parameters()]
        total = torch.zeros(sum(parameter.numel() for parameter in whole))
        for record, label in zip(records, labels, strict=True):
            hidden = torch.tanh(record @ whole[0].T + whole[1])
            loss = torch.nn.functional.cross_entropy(hidden @ whole[2].T + whole[3], label)
            gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, whole)])
            total += gradient / max(1.0, float(gradient.norm()))
        torch.distributed.all_reduce(total)
        self.wanted, self.gradient = total, []

    def told(self) -> dict[str, float]:
        noises = torch.cat(self.noises)
        return {"sum": self.ratios[0], "deviation": float(noises.std()), "count": noises.numel()}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook")
        main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
