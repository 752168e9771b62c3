"""What is minimized, for one record: cross-entropy, a function of one's own, or what the model itself computes.

A loss is called with the outputs of the model for one record (a batch of one) and that record's label. Outputs of
Hugging Face models are objects with `logits`; for `cross_entropy` these are the outputs. `own_loss` stands for models
that are given the labels with their inputs and return an object with `loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calipers.errors import InputError
from calipers.training.torch_library import torch_module

Loss = Callable[[Any, Any], Any]


def scores(outputs: Any) -> Any:
    """Class scores: the outputs themselves, or their `logits`."""
    return getattr(outputs, "logits", outputs)


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """The mean cross-entropy of class scores; of one record, its own."""
    return torch_module("torch.nn.functional").cross_entropy(scores(outputs), labels)


def own_loss(outputs: Any, labels: Any) -> Any:
    """The loss that the model has computed of a record and its labels, in single precision at least."""
    found = getattr(outputs, "loss", None)
    if found is None:
        raise InputError(
            "The model returned no loss of its own; give it labels (a dictionary with the key labels), or name a loss."
        )
    return found
