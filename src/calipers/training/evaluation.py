"""How good a trained model is, on records that are not protected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calipers.domains import COUNT
from calipers.errors import InputError
from calipers.training.torch_library import as_used, torch_module


def accuracy(
    model: Any,
    records: Any,
    labels: Any,
    *,
    prepare: Callable[[Any], Any] | None = None,
    device: Any,
    chunk: int = 1000,
) -> float:
    """The share of records whose highest score is their label.

    Evaluate on held-out records: the accuracy on the training records is a function of them that no noise protects.
    """
    torch = torch_module()
    COUNT.check_int("chunk", chunk)
    if len(records) == 0 or len(records) != len(labels):
        raise InputError(f"Expected as many records as labels, and some, got {len(records)} and {len(labels)}.")
    right = 0
    with as_used(model):
        for start in range(0, len(records), chunk):
            rows = torch.as_tensor(records[start : start + chunk]).to(device)
            answers = torch.as_tensor(labels[start : start + chunk]).to(device)
            scores = model(rows if prepare is None else prepare(rows))
            right += int((scores.argmax(dim=1) == answers).sum())
    return right / len(records)
