"""What happened to an optimizer's parameters before it was attached, and what the loss does to gradients.

Both are read where they can be: steps that nobody watched show in the counter of Adam, in momentum that is there before
the first step, and in other private optimizers of the same parameters; a criterion says how it reduces.
"""

from __future__ import annotations

import gc
from typing import Any

from calipers.adapters.opacus_library import opacus_module, torch_module
from calipers.adapters.opacus_loaders import SUMMED
from calipers.errors import InputError, UnsupportedError

_OWN_MEAN = ("CrossEntropyLoss", "NLLLoss", "NLLLoss2d")
"""Criteria whose mean is over targets that are not ignored, weighted by class: other records change its divisor."""
NOT_IGNORED = -100
"""What these criteria ignore unless given otherwise."""
MOMENTUM = (
    "The inner optimizer had momentum before the first step that was watched: it is left from earlier steps, and how "
    "many they were and how they drew their batches nobody can tell. After a checkpoint hand the record of its steps "
    "on, attach(..., state=saved), where saved is what record.state_dict() gave; or describe them yourself, "
    "attach(..., earlier=[Run(...)])."
)
UNCHECKED_LOSS = (
    "attach was not given the criterion (loss=criterion): that it reduces as the optimizer does (loss_reduction), and "
    "that the loss of a record does not depend on other records, is assumed."
)

UNKNOWN_SUM = (
    "Not known: whether the criterion sums, as loss_reduction='sum' assumes. PyTorch's criteria take the mean unless "
    "another reduction is chosen; gradients are then scaled before they are clipped, a step moves by more than the "
    "clipping norm, and the numbers do not hold. attach(..., loss=criterion) checks it."
)


def updates_counted(optimizer: Any) -> int:
    """Updates that the inner optimizer counts itself (Adam and its kin do); 0 where it does not."""
    counts = [state["step"] for state in optimizer.original_optimizer.state.values() if "step" in state]
    return max((int(float(count)) for count in counts), default=0)


def keeps_traces(optimizer: Any) -> bool:
    """Whether the inner optimizer holds what only a step leaves, and does not count steps: the momentum of SGD."""
    states = optimizer.original_optimizer.state.values()
    return any("step" not in state and any(map(_is_filled, state.values())) for state in states)


def _is_filled(kept: Any) -> bool:
    return hasattr(kept, "shape") and bool(kept.any())


def accountant_behind(optimizer: Any) -> Any:
    """The accountant whose hook `make_private` attached; None where it is another hook."""
    for cell in getattr(getattr(optimizer, "step_hook", None), "__closure__", None) or ():
        if hasattr(cell.cell_contents, "history"):
            return cell.cell_contents
    return None


def steps_elsewhere(optimizer: Any, accountant: Any) -> int:
    """Steps that other private optimizers took on the same parameters, by the accountants that they report to."""
    kind = opacus_module("opacus.optimizers").DPOptimizer
    own = {id(parameter) for parameter in optimizer.params}
    found: dict[int, int] = {}
    for other in [thing for thing in gc.get_objects() if issubclass(type(thing), kind) and thing is not optimizer]:
        if own & {id(parameter) for parameter in other.params}:
            behind = accountant_behind(other)
            record = getattr(other, "_calipers_record", None)
            reported = 0 if behind is None or behind is accountant else steps_reported(behind)
            found[id(behind)] = max(reported, 0 if record is None else record.steps, found.get(id(behind), 0))
    return sum(found.values())


def steps_reported(accountant: Any) -> int:
    """Steps in an accountant's history."""
    return sum(int(steps) for _, _, steps in accountant.history)


def check_loss(criterion: Any, optimizer: Any) -> str:
    """What a criterion was seen to do, in a few words; refuses one that does not fit the optimizer.

    Raises:
        InputError: the criterion does not say how it reduces, or reduces otherwise than the optimizer expects.
        UnsupportedError: its mean depends on which other records are in the batch.
    """
    criterion = getattr(criterion, "criterion", criterion)  # ghost clipping wraps it
    nn = torch_module("torch.nn")
    reduction, expected = getattr(criterion, "reduction", None), str(optimizer.loss_reduction)
    name = type(criterion).__name__
    if not isinstance(reduction, str):
        raise InputError(
            f"Expected loss= to be a criterion with a reduction, such as torch.nn.CrossEntropyLoss(), got {name}; "
            "leave loss out for another function, and check yourself that it reduces as the optimizer does."
        )
    reduction = "mean" if reduction == "batchmean" else reduction
    if reduction in ("mean", "sum") and reduction != expected:
        raise InputError(
            f"{name} has reduction={reduction!r} and the optimizer loss_reduction={expected!r}: gradients are then "
            f"scaled before they are clipped, and a step moves by more than the clipping norm. Give {name}("
            f"reduction={expected!r}), or make_private(loss_reduction={reduction!r})."
        )
    if reduction == "mean" and any(isinstance(criterion, getattr(nn, kind, ())) for kind in _OWN_MEAN):
        weighted, ignored = criterion.weight is not None, criterion.ignore_index != NOT_IGNORED
        if weighted or ignored:
            which = "weights of the other records' classes" if weighted else "number of targets that are not ignored"
            raise UnsupportedError(
                f"{name} divides by the {which} in the batch, so that one record changes the gradients of all others "
                f"before they are clipped: a step moves by many clipping norms. {SUMMED}."
            )
    return f"{name}(reduction={reduction!r})"


def unexplained(reported: int, described: int, who: str = "The accountant's history counts") -> str:
    """Why a history cannot be taken over, and what to do."""
    return (
        f"{who} {reported} steps, and {described} of them are known here; how the others drew "
        "their batches nobody can tell. After a checkpoint hand the record of its steps on, "
        "attach(..., state=saved), where saved is what record.state_dict() gave; or describe them yourself, "
        "attach(..., earlier=[Run(...)])."
    )
