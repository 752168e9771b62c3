"""A sharded model (FSDP2 of PyTorch, `grad_sample_mode="ghost_fsdp"` of Opacus): how its noise compares with a record.

Every process holds a part of each parameter and draws records of its own. In a step

- each process clips its records by their whole gradients, as ghost clipping does on one process, and sums them;
- FSDP adds these sums up over the processes, divides them by a number (how many processes there are, unless somebody
  set another), and leaves every process its own part;
- every process draws noise for the *whole* of a parameter, of deviation noise_multiplier x max_grad_norm, divided by
  the number of processes where the loss is a mean, and adds the entries of its own part.

Each coordinate so gets noise once. What a record adds to it was divided by FSDP's number and not by Opacus's, so the
realized noise multiplier is noise_multiplier x (FSDP's number) / (Opacus's number): as it was set where the loss is a
mean, and as many times larger as there are processes where it is a sum.

Processes whose generators are in one state draw one vector and take different entries of it, which is as good as
noise of their own. Generators that began with one seed and are not in one state draw the same numbers for
different coordinates: these are not independent, and nothing is proven.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from calipers.adapters.opacus_library import installed_opacus, torch_module
from calipers.errors import UnsupportedError

SHARDED = "FSDPOptimizerFastGradientClipping"
SHIFTED = (
    "Two processes of a sharded model took their noise from generators with one seed that were in different states: "
    "the same random numbers may be the noise of different coordinates. Seed every process by itself: "
    "torch.manual_seed(seed + rank)."
)


class Shards:
    """The parameter groups of FSDP behind one optimizer; `module` is the one of Opacus that clips.

    Refused: parameters that FSDP does not shard, or not over all processes once, and ways to add up gradients
    that are not FSDP's own.
    """

    def __init__(self, optimizer: Any, module: Any) -> None:
        self._optimizer = optimizer
        held: dict[int, Any] = {}
        for part in module.modules():
            for group in _groups(part):
                held.update({id(parameter.sharded_param): group for parameter in group.fsdp_params})
        if any(id(parameter) not in held or not self._once(parameter) for parameter in optimizer.params):
            raise _refused(
                "some parameters are not sharded once over all processes (replicas, a mesh of several dimensions, or "
                "layers outside fully_shard), so that a coordinate gets noise several times or not from all records"
            )
        self._members = list({id(held[id(parameter)]): held[id(parameter)] for parameter in optimizer.params}.values())
        self.noise(1.0)

    def _once(self, parameter: Any) -> bool:
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is None or mesh.ndim != 1:
            return False
        return bool(parameter.placements[0].is_shard()) and mesh.size() == self._optimizer.world_size

    def noise(self, noise_multiplier: float) -> float:
        """The realized multiplier of noise that Opacus calls `noise_multiplier`; never rounded up."""
        divided = min(self._divisor(group) for group in self._members)
        own = Fraction(self._optimizer.world_size if self._optimizer.loss_reduction == "mean" else 1)
        exact = Fraction(noise_multiplier) * divided / own
        found = float(exact)
        return found if Fraction(found) <= exact else math.nextafter(found, 0.0)

    def _divisor(self, group: Any) -> Fraction:
        """What FSDP divides the sum over processes by."""
        if not group.reduce_grads or group._all_reduce_hook is not None:
            raise _refused("its gradients are not added up in every step, or by a hook of the script's own")
        if type(group._reduce_scatter_comm).__name__ != "DefaultReduceScatter":
            raise _refused(f"its gradients are added up by {type(group._reduce_scatter_comm).__name__}")
        factor = group.gradient_divide_factor
        return Fraction(self._optimizer.world_size if factor is None else float(factor))

    def seed(self) -> str:
        """A short name for the seed that this process's noise comes from."""
        torch = torch_module()
        generator, device = self._optimizer.generator, self._optimizer.params[0].device
        if generator is None:
            generator = torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]
        return hashlib.blake2b(str(generator.initial_seed()).encode(), digest_size=8).hexdigest()


def shifted(states: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two processes drew noise from one seed, and not in step with each other."""
    return any(
        set(one.get("seeds", ())) & set(other.get("seeds", ())) and one["states"] != other["states"]
        for position, one in enumerate(states)
        for other in states[:position]
    )


def _groups(module: Any) -> list[Any]:
    """FSDP's groups of one module: inner attributes of PyTorch, read where they are and refused where they are not."""
    state = getattr(module, "_get_fsdp_state", None)
    if state is None:
        return []
    found = state()
    several = getattr(found, "_fsdp_param_groups", None)
    groups = several if several is not None else [getattr(found, "_fsdp_param_group", None)]
    groups = [group for group in groups if group is not None]
    needed = ("fsdp_params", "gradient_divide_factor", "reduce_grads", "_all_reduce_hook", "_reduce_scatter_comm")
    missing = [name for group in groups for name in needed if not hasattr(group, name)]
    if missing:
        raise _refused(f"FSDP of PyTorch {torch_module().__version__} does not say what it divides by ({missing[0]})")
    return groups


def _refused(why: str) -> UnsupportedError:
    return UnsupportedError(
        f"A sharded model ({SHARDED}, {installed_opacus()}): {why}. Nothing is proven for it; use FSDP2Wrapper of "
        "Opacus as it is, or DifferentiallyPrivateDistributedDataParallel."
    )
