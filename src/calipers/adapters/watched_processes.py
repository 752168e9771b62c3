"""What several processes of one training saw, each by itself, put together."""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_sharded import SHIFTED, shifted
from calipers.adapters.watched_record import Seen

TWINS = (
    "Two processes drew batches from the same random numbers: whether a record is in a batch shows in a record of the "
    "other process, and hides nothing. Seed every process by itself: torch.manual_seed(seed + rank)."
)


def joined(seen: Seen, states: list[dict[str, Any]]) -> Seen:
    """What all processes saw of one run."""
    whole, drawn = Seen(seen.records), set[str]()
    whole.draws.sources = list(seen.draws.sources)
    whole.load_state_dict(states[0])
    for state in states:
        whole.reasons |= state["reasons"]
        if any(state[key] != states[0][key] for key in ("steps", "releases", "norms", "passes")):
            whole.reasons["The processes took different numbers of steps, or with different noise or norms."] = True
        if drawn & set(state["drawn from"]):
            whole.reasons[TWINS] = True
        drawn |= set(state["drawn from"])
    if shifted(states):
        whole.reasons[SHIFTED] = True
    for state in states[1:]:
        whole.participation.merge(state["participation"])
    return whole
