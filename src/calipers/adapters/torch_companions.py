"""Records to put into a batch with others: those that a loss or a model would treat most unlike the rest.

Taken from all over the dataset (the first records are often alike), and for classes that none of them shows a label is
planted. For sequences the texts with most and fewest tokens that count are taken, and one with a single such token.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from calipers.adapters.opacus_library import torch_module
from calipers.errors import InputError

# Records that are read to choose from; every dataset can afford as many.
READ = 64
# Every companion costs a few steps. Labels beyond these are not tried unless a weight of the loss singles them out.
MOST_LABELS = 16

LossAlone = Callable[[Any, Any], tuple[Any, Any]]


def spread_numbers(dataset_size: int, first: int) -> list[int]:
    """Up to `READ` numbers of records from `first` to the last one, evenly spread."""
    if dataset_size <= first:
        return []
    return sorted({int(number) for number in np.linspace(first, dataset_size - 1, READ)})


def chosen_companions(inputs: Any, targets: Any, loss_alone: LossAlone, weight: Any = None) -> tuple[Any, Any]:
    """Inputs and targets of the companions; each has a finite loss by itself.

    `loss_alone` gives loss and output of a batch of one; `weight` holds the classes' weights, where the loss has any.
    """
    torch = torch_module()
    picked = _unlike(targets)
    pairs = [(inputs[number], targets[number]) for number in picked]
    pairs += [(inputs[0], target) for target in (*_labels(inputs, targets, loss_alone, weight), *_shortened(targets))]
    found = [pair for pair in pairs if _finite(loss_alone, *pair)]
    if not found:
        return inputs[:0], targets[:0]
    return torch.stack([one for one, _ in found]), torch.stack([one for _, one in found])


def refuse_mixing(collate: Callable[[list[Any]], Any], items: list[Any]) -> None:
    """`InputError` if the row of a record changes when another record of its batch is exchanged."""
    if len(items) < 3:
        return
    torch = torch_module()
    one, again, other = (_collated(torch, collate, [items[0], item]) for item in (items[1], items[1], items[2]))
    if one.shape != other.shape or not torch.equal(one, again):
        return  # padded to another length, or random in a way that no seed governs
    # The second record may look back: mixing goes both ways round.
    turned = [_collated(torch, collate, [item, items[0]])[1] for item in (items[1], items[2])]
    if not torch.equal(one[0], other[0]) or (turned[0].shape == turned[1].shape and not torch.equal(*turned)):
        raise InputError(
            "The loader's collate_fn mixes records: a record's row changes when another record of the batch is "
            "exchanged (mixup, normalization over the batch?). A record is then in several rows, and clipping each "
            "row does not bound what it does; let every row hold one record."
        )


def _collated(torch: Any, collate: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """The inputs of a batch, with all usual generators seeded for a while."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  # the generator that scripts use
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            return collate(items)[0]
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _unlike(targets: Any) -> list[int]:
    """A record of each target among them, and those with most and fewest negative entries (ignored tokens)."""
    flat = targets.reshape(len(targets), -1)
    first: dict[tuple[float, ...], int] = {}
    for number, row in enumerate(flat[:, :1].tolist()):
        first.setdefault(tuple(row), number)
    ignored = (flat < 0).sum(dim=1)
    size = flat.double().norm(dim=1).nan_to_num()
    extremes = [int(place) for values in (ignored, size) for place in (values.argmin(), values.argmax())]
    return list(dict.fromkeys([*list(first.values())[:MOST_LABELS], *extremes, len(flat) - 1]))


def _labels(inputs: Any, targets: Any, loss_alone: LossAlone, weight: Any) -> list[Any]:
    """Labels of a classifier that no record shows or that weigh most and least.

    Targets must be whole numbers below the number of outputs; else nothing is known of what they mean.
    """
    if targets.dim() != 1 or targets.is_floating_point() or not len(targets):
        return []
    outputs = loss_alone(inputs[:1], targets[:1])[1]
    if outputs.dim() != 2 or int(targets.min()) < 0 or int(targets.max()) >= outputs.shape[1]:
        return []
    seen = set(targets.tolist())
    missing = [label for label in range(outputs.shape[1]) if label not in seen]
    spread = {missing[int(place)] for place in np.linspace(0, len(missing) - 1, MOST_LABELS)} if missing else set()
    if weight is not None:
        spread |= {int(weight.argmin()), int(weight.argmax())}
    return [targets.new_tensor(label) for label in sorted(spread)]


def _shortened(targets: Any) -> list[Any]:
    """A sequence of which a single token counts, where some records have tokens that do not."""
    if targets.dim() < 2 or targets.is_floating_point() or not bool((targets < 0).any()):
        return []
    ignored = targets[targets < 0].min()
    row = targets[0].clone().reshape(-1)
    counted = (row >= 0).nonzero().reshape(-1)
    row[counted[:-1]] = ignored
    return [row.reshape(targets[0].shape)]


def _finite(loss_alone: LossAlone, inputs: Any, target: Any) -> bool:
    """Whether the loss takes this record; one that it refuses says nothing."""
    try:
        value, _ = loss_alone(inputs[None], target[None])
    except (IndexError, RuntimeError, ValueError):
        return False
    return bool(torch_module().isfinite(value))
