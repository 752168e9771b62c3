"""Short names for runs that are compared: what differs between them, in the words of a run file.

    poisson | shuffle            sigma 1 | sigma 2            shuffle, batch size 256 | poisson, batch size 512

Runs that differ in nothing, or whose differences would not tell them apart, are numbered.
"""

from __future__ import annotations

from collections.abc import Sequence

from calipers.numerics.decimals import setting
from calipers.run import KEYS, Run

_WORDS = {"noise_multiplier": "sigma", "sampler": "", "adjacency": "", "view": "", "normalization": "divided by"}
_OF_A_SAMPLER = ("last_batch", "reshuffle", "derived_rate")
LONGEST = 40


def names_by_difference(described: Sequence[Sequence[Run]]) -> tuple[str, ...]:
    """One name for each run, no two alike."""
    columns = _columns(described) or [["" for _ in described]]
    names = tuple(", ".join(filter(None, parts)) for parts in zip(*columns, strict=True))
    usable = len(set(names)) == len(names) and all(0 < len(name) <= LONGEST for name in names)
    return names if usable else tuple(f"run {number}" for number in range(1, len(described) + 1))


def _columns(described: Sequence[Sequence[Run]]) -> list[list[str]]:
    """For every key in which the runs differ, its value in each of them."""
    if len({len(phases) for phases in described}) > 1:
        return [[f"{len(phases)} phase{'s' if len(phases) > 1 else ''}" for phases in described]]
    columns = []
    for key in KEYS:
        values = [tuple(run.to_dict().get(key) for run in phases) for phases in described]
        # What only some samplers have is given by the sampler.
        reported = {value for value in values if key not in _OF_A_SAMPLER or None not in value}
        if len(reported) > 1:
            columns.append([_said(key, value) for value in values])
    return columns


def _said(key: str, values: tuple[object, ...]) -> str:
    """A key with its value; phases that differ are joined."""
    given = (value for value in values if value is not None)
    texts = dict.fromkeys(setting(value) if isinstance(value, int | float) else str(value) for value in given)
    return f"{_WORDS.get(key, key.replace('_', ' '))} {' then '.join(texts)}".strip() if texts else ""
