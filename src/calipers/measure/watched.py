"""What a record of a watched training adds to the measurement of its runs."""

from __future__ import annotations

from dataclasses import dataclass

from calipers.run import Run


@dataclass(frozen=True)
class OtherNeighbors:
    """The same training for another neighboring relation: the runs whose upper bound holds; none where nothing does.

    Attributes:
        runs: what was executed, or what reveals at least as much.
        attained: whether attacks on `runs` are attacks on what was executed.
        why: why nothing, or only an upper bound, is proven.
    """

    runs: tuple[Run, ...]
    attained: bool
    why: str


@dataclass(frozen=True)
class Watched:
    """That a record saw the training, and what it says of other neighbors, which its runs alone do not.

    Attributes:
        library: in which it saw it, with its version; empty where a part of the training was only described.
        others: by adjacency. A run that is described by its keys has, for example, a divisor that is a constant for
            zeroed-out records, and follows the dataset where one is added.
    """

    library: str
    others: tuple[tuple[str, OtherNeighbors], ...]
