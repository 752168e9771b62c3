"""The gradients of a few records, kept with a checkpoint: code that gives others is not the code that began.

Texts can be compared (`calipers.training.fingerprint`, `calipers.user_code`), and do not show everything: data that a
function reads, another release of a library, a setting of the model. So a checkpoint keeps what the gradients of its
first records come to at its weights, as a norm and a few sums, and a training that is resumed computes them again. Like
everything in a checkpoint they are secret: no noise is in them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calipers.errors import InputError
from calipers.training.gradients import GradientSum
from calipers.training.records import Records
from calipers.training.torch_library import random_layers

_RECORDS, _SUMS = 2, 8
# Other machines add in another order, and round factors to 11 bits (TF32) or to 8 (bf16).
_SAME = {"full": 1e-2, "bf16": 1e-1}


def sampled_gradients(gradients: GradientSum, records: Records, device: Any) -> str:
    """The norm of the clipped sum of the first records' gradients, and the sums of some stretches of it, as JSON."""
    rows = np.arange(min(_RECORDS, records.size), dtype=np.int64)
    with random_layers(0, device):
        found = gradients(*records.look(rows)).detach()
    numbers = [float(number) for number in (found.norm(), *(stretch.sum() for stretch in found.chunk(_SUMS)))]
    found.zero_()  # on CUDA it may lie where the parameters' `grad` does, and has no noise
    return json.dumps(numbers)


def refuse_other_gradients(path: Path, kept: str, now: str, precision: str) -> None:
    """Refuse to go on where the first records no longer give the gradients that the checkpoint has.

    Raises:
        InputError: They differ by more than rounding explains.
    """
    before, after = (_numbers(text) for text in (kept, now))
    if before is None or after is None or len(before) != len(after):
        raise InputError(f"{path} is damaged: it does not say what its first records gave; move it away to begin anew.")
    scale = max(abs(before[0]), abs(after[0]))
    if any(not abs(one - other) <= _SAME[precision] * scale for one, other in zip(before, after, strict=True)):
        raise InputError(
            f"{path} was begun with other code or data: at its weights the first records no longer give the gradients "
            "that they gave. Put back what the model, loss and prepare use, or name another file."
        )


def _numbers(text: str) -> Sequence[float] | None:
    try:
        found = json.loads(text)
        return [float(number) for number in found]
    except (TypeError, ValueError):
        return None
