"""What FSDP divides by, read off stand-ins for its groups; the real ones are in `test_opacus_distributed`."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from calipers.adapters.opacus_sharded import Shards, shifted
from calipers.errors import UnsupportedError

pytest.importorskip("opacus", reason="Opacus comes with the extra of that name")
pytestmark = pytest.mark.opacus


class DefaultReduceScatter:
    """Called like PyTorch's own."""


def parameter(dimensions: int = 1, processes: int = 3, sharded: bool = True) -> Any:
    mesh = SimpleNamespace(ndim=dimensions, size=lambda: processes)
    return SimpleNamespace(device_mesh=mesh, placements=[SimpleNamespace(is_shard=lambda: sharded)])


def group(held: Any, factor: float | None = None, **changes: Any) -> Any:
    settings = {
        "fsdp_params": [SimpleNamespace(sharded_param=held)],
        "gradient_divide_factor": factor,
        "reduce_grads": True,
        "_all_reduce_hook": None,
        "_reduce_scatter_comm": DefaultReduceScatter(),
    }
    return SimpleNamespace(**settings | changes)


def shards(*groups: Any, reduction: str = "sum", others: tuple[Any, ...] = ()) -> Shards:
    """Three processes; the optimizer holds what the groups hold, and `others`."""
    parts = [
        SimpleNamespace(_get_fsdp_state=lambda one=one: SimpleNamespace(_fsdp_param_groups=[one])) for one in groups
    ]
    held = [one.fsdp_params[0].sharded_param for one in groups]
    optimizer = SimpleNamespace(params=[*held, *others], world_size=3, loss_reduction=reduction, generator=None)
    return Shards(optimizer, SimpleNamespace(modules=lambda: parts))


@pytest.mark.parametrize(
    ("reduction", "factors", "realized"),
    [
        ("sum", [None, None], Fraction(3)),
        ("mean", [None, None], Fraction(1)),
        ("sum", [1.0], Fraction(1)),
        ("mean", [1.0], Fraction(1, 3)),
        ("sum", [None, 2.0], Fraction(2)),  # where a record's gradient is divided least, it shows most
    ],
)
def test_the_noise_is_compared_with_what_a_record_adds(
    reduction: str, factors: list[float | None], realized: Fraction
) -> None:
    """noise_multiplier x (FSDP's number) / (Opacus's number), never rounded up and by no more than one step down."""
    found = shards(*(group(parameter(), factor) for factor in factors), reduction=reduction)
    for noise in (0.1, 0.7, 1.0, 1.3):
        exact = Fraction(noise) * realized
        assert exact * (1 - Fraction(1, 2**52)) <= Fraction(found.noise(noise)) <= exact


@pytest.mark.parametrize(
    ("groups", "others", "reason"),
    [
        ([group(parameter(dimensions=2))], (), "not sharded once over all processes"),
        ([group(parameter(processes=2))], (), "not sharded once over all processes"),
        ([group(parameter(sharded=False))], (), "not sharded once over all processes"),
        ([group(parameter())], (parameter(),), "not sharded once over all processes"),
        ([group(parameter())], (SimpleNamespace(),), "not sharded once over all processes"),
        ([group(parameter(), reduce_grads=False)], (), "not added up in every step"),
        ([group(parameter(), _all_reduce_hook=print)], (), "hook of the script's own"),
        ([group(parameter(), _reduce_scatter_comm=object())], (), "added up by object"),
    ],
)
def test_what_nobody_can_compare_is_refused(groups: list[Any], others: tuple[Any, ...], reason: str) -> None:
    """Replicas, a part of the processes, layers outside FSDP, sums of somebody's own making."""
    with pytest.raises(UnsupportedError, match=reason):
        shards(*groups, others=others)


def test_a_pytorch_that_keeps_its_numbers_elsewhere_is_refused_by_its_version() -> None:
    """The attributes are inner ones, and may move."""
    moved = group(parameter())
    del moved.gradient_divide_factor
    with pytest.raises(UnsupportedError, match=r"FSDP of PyTorch \d.*gradient_divide_factor"):
        shards(moved)


def test_one_seed_is_harmless_in_step_and_not_otherwise() -> None:
    """Equal states: different entries of one vector. Another state of the same seed: the same numbers again."""
    first = {"seeds": ["s"], "states": ["a", "b"]}
    assert not shifted([first, {"seeds": ["s"], "states": ["a", "b"]}])
    assert not shifted([first, {"seeds": ["t"], "states": ["c", "d"]}])
    assert shifted([first, {"seeds": ["t", "s"], "states": ["c", "d"]}])
    assert not shifted([{"states": ["a"]}, {"states": ["b"]}])
