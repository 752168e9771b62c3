"""From the options of `calipers train` to the plan that is trained: data, sampler, model, noise.

What cannot be measured is refused here, before hours of training; PyTorch is not needed to refuse options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calipers.cli.kinds import picked
from calipers.domains import Domain
from calipers.errors import InputError
from calipers.run import NEEDED, Run
from calipers.samplers import scheme_of

if TYPE_CHECKING:
    from calipers.samplers import Sampler
    from calipers.training.canaries import Canaries, CanaryPairs
    from calipers.training.datasets import Dataset
    from calipers.training.plan import Plan


@dataclass(frozen=True)
class Planned:
    """What is trained on what; `data` has no canaries in it."""

    data: Dataset
    model: Any
    plan: Plan
    canaries: Canaries | CanaryPairs | None = None

    @property
    def rows(self) -> tuple[Any, Any]:
        """Records and labels, with canaries that are examples."""
        own = self.data.records, self.data.labels
        return own if self.canaries is None else self.canaries.added_to(*own)


def planned(chosen: dict[str, Any], delta: float) -> Planned:
    """Everything that `train` needs, or a refusal."""
    from calipers.training.datasets import load_dataset
    from calipers.training.models import build_model, parameter_count
    from calipers.training.plan import sampler_of
    from calipers.training.torch_library import chosen_device

    _check_target(chosen)
    data = load_dataset(chosen["data"], chosen["data_dir"], vocabulary=chosen["vocabulary"])
    data = data if chosen["records"] is None else data.first(chosen["records"])
    data, drawn_from, canaries = with_canaries(data, chosen)
    sampler = sampler_of(
        chosen["sampler"],
        dataset_size=drawn_from,
        **picked(chosen, "batch_size", "epochs", "steps", "last_batch", "reshuffle", *NEEDED),
    )
    model = build_model(chosen["model"], data, seed=chosen["seed"])
    chosen_device(chosen["device"])  # a device that is not there is refused before noise is looked for
    return Planned(data, model, _plan(sampler, parameter_count(model), delta, chosen), canaries)


def with_canaries(data: Dataset, chosen: dict[str, Any]) -> tuple[Dataset, int, Canaries | CanaryPairs | None]:
    """(the records that are none, from how many the sampler draws, the canaries)."""
    from calipers.training.canaries import Canaries, CanaryPairs

    count, kind = chosen["canaries"], chosen["canary_kind"]
    if count is None:
        return data, data.size, None
    if kind == "gradients":
        return data, data.size + count, Canaries(count)
    examples = count if kind == "examples" else 2 * count
    Domain(1, data.size - 1, integer=True).check_int("canaries", examples, f"{data.name} has {data.size} records.")
    rest = data.size - examples
    records, labels = data.records[rest:], (data.labels[rest:] + 1) % data.classes
    real = replace(data, records=data.records[:rest], labels=data.labels[:rest])
    if kind == "examples":
        return real, data.size, Canaries(count, records=records, labels=labels)
    return real, data.size - count, CanaryPairs(records, labels)


def _check_target(chosen: dict[str, Any]) -> None:
    noise, target = chosen["noise_multiplier"], chosen["target_epsilon"]
    if target is not None and noise is not None:
        if noise == 0:
            raise InputError("--noise-multiplier 0 adds no noise and meets no --target-epsilon; leave one of them out.")
        raise InputError("--noise-multiplier and --target-epsilon contradict each other: both set the noise; give one.")
    if target is None and noise is None:
        raise InputError("Nothing says how much noise to add; give --noise-multiplier or --target-epsilon.")


def _plan(sampler: Sampler, dimension: int, delta: float, chosen: dict[str, Any]) -> Plan:
    """The plan, with the noise found if a target was given. What cannot be measured is refused now, not hours later."""
    from calipers.training.plan import Plan, run_of

    noise, norm = chosen["noise_multiplier"], chosen["max_grad_norm"]
    if noise is None or noise > 0:
        described = run_of(
            sampler,
            noise_multiplier=1.0 if noise is None else noise,
            dimension=dimension,
            normalization=chosen["normalization"],
            adjacency=chosen["adjacency"] or "",
        )
        noise = _checked_noise(described, chosen["target_epsilon"], delta)
        norm = 1.0 if norm is None else norm
    settings = ("normalization", "learning_rate", "optimizer", "momentum", "schedule", "micro_batch", "seed")
    return Plan(sampler=sampler, noise_multiplier=noise, max_grad_norm=norm, **picked(chosen, *settings))


def _checked_noise(run: Run, target: float | None, delta: float) -> float:
    """The run's own noise, if it can be measured, or the smallest that meets the target."""
    if target is None:
        from calipers.measure import measure

        measure(run)  # refuses divisors and adjacencies that no theorem covers
        allowed = scheme_of(run).noise_range(run)
        return allowed.check("noise_multiplier", run.noise_multiplier, "Other noise cannot be measured.")
    from calipers.calibrate import solve

    return solve(run, epsilon=target, delta=delta).noise_multiplier
