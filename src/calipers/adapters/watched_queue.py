"""Which of the batches that a loop holds a step used.

A loop receives batches and takes steps; in between it may hold several (it fetches the next batch before it uses this
one, or walks through two loaders at once), use one several times, or pass one over. The rows behind a step's gradients
tell which: the oldest held batch of that size, held ones put together, or the last one again. A loop that fetches ahead
holds as many batches after every step of a pass; one that passes over a batch holds more afterwards than before.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from calipers.adapters.watched_release import WatchedRelease
from calipers.numerics.types import IntArray

UNSEEN = (
    "A step used a batch that no watched loader delivered: the loop iterates another loader than the one that was "
    "attached. Iterate the loader that make_private returned, or attach the other one too, before its first batch."
)
STALE = (
    "The loop left a batch of BatchMemoryManager unfinished: the flags by which Opacus holds steps back are out of "
    "order from here on, and steps mix pieces of several batches. Let the loop run to the end, or call "
    "optimizer.step() for every piece."
)
SKIPPED = (
    "The loop passed over a batch that was not empty and went on. If that depends on what is in the batch (a loss that "
    "is not finite, a gradient scaler), the step that is missing tells on it, and nothing is proven. Train on every "
    "batch, or draw fewer (itertools.islice)."
)
SKIPPED_EMPTY = (
    "The loop passes over empty batches. Poisson sampling releases noise alone for them: skipping tells that no record "
    "was drawn, and no Run describes that."
)


@dataclass(eq=False)
class Group:
    """The draws among which a record comes at most once, if its loader deals; `releases` counts the uses of draws."""

    loader: int
    delivered: int = 0
    releases: Counter[tuple[WatchedRelease, ...]] = field(default_factory=Counter)
    order: str = ""
    ended: bool = False

    @property
    def uses(self) -> dict[tuple[WatchedRelease, ...], int]:
        """How many of its batches were used in which releases, one after the other."""
        return {releases: count for releases, count in self.releases.items() if releases and count}

    def used(self) -> int:
        """Draws that at least one step used."""
        return sum(self.uses.values())


@dataclass(eq=False)
class LoaderPass:
    """One iteration over a batch sampler: draws that wait for delivery, and whether a loader delivers them.

    `lagging` says whether the loop held further batches after its last step; `delivered` and `used` count batches,
    `ended` says that the loop went through to the end.
    """

    loader: int
    waiting: deque[Draw] = field(default_factory=deque)
    followed: bool = False
    lagging: bool = False
    delivered: int = 0
    used: int = 0
    ended: bool = False


@dataclass(eq=False)
class Draw:
    """One batch, and the releases that used it."""

    group: Group
    origin: LoaderPass
    indices: IntArray
    digest: str = ""
    releases: tuple[WatchedRelease, ...] = ()

    def use(self, release: WatchedRelease) -> None:
        """One more step with this batch."""
        counts = self.group.releases
        counts[self.releases] -= 1
        self.releases = (*self.releases, release)
        counts[self.releases] += 1


class Queue:
    """The batches that the loop holds, oldest first; see the module."""

    def __init__(self, complain: Callable[[str, bool], None]) -> None:
        self._complain = complain
        self._held: list[Draw] = []
        self._current: Draw | None = None
        self._signalled: deque[Draw] = deque()
        self._lag: dict[int, int] = {}  # for each loader, how many batches the loop held after its first step
        self.resumed: Group | None = None
        """The pass that a loaded checkpoint was taken in; who resumes inside it passes over as many batches."""
        self.same_order = False

    def receive(self, draw: Draw) -> None:
        """The loop is handed a batch; batches of an earlier pass over the same loader it will not come back to."""
        for held in list(self._held):
            earlier = held.origin is not draw.origin and held.origin.loader == draw.origin.loader
            if earlier and not held.origin.lagging:
                self._held.remove(held)
                if held.group is draw.group or held.origin.delivered == 1 or held.origin.used:
                    self._left(held, held.group is draw.group or held.origin.ended)
        if not any(held.origin.loader == draw.origin.loader for held in self._held) and not draw.origin.delivered:
            self._lag.pop(draw.origin.loader, None)
        draw.origin.delivered += 1
        self._held.append(draw)

    def _left(self, draw: Draw, inside: bool) -> None:
        """A batch without a step; `inside`: the loop went on in its pass, and did not just break off there."""
        if not draw.indices.size:
            self._complain(SKIPPED_EMPTY, False)
        elif inside:
            self._complain(SKIPPED, True)

    def end(self, origin: LoaderPass) -> None:
        """The loop went through to the end of a pass. One without any step looked at the data and released nothing."""
        origin.ended = True
        if origin.used and not origin.lagging:
            for held in [held for held in self._held if held.origin is origin]:
                self._held.remove(held)
                self._left(held, True)

    def unsettled(self) -> list[tuple[str, bool]]:
        """What is to be said of the batches that the loop holds now, if it takes no further step."""
        found = []
        for held in self._held:
            single = held.origin.delivered == 1 or held.origin.used > 0
            if not held.indices.size and single:
                found.append((SKIPPED_EMPTY, False))
            elif held.origin.ended and held.origin.used:
                found.append((SKIPPED, True))
        return found

    def signal(self, draw: Draw) -> None:
        """BatchMemoryManager made a piece of this batch."""
        self._signalled.append(draw)

    def interrupted(self) -> bool:
        """Whether pieces of a batch are left when another pass begins; they are forgotten."""
        left = bool(self._signalled)
        self._signalled.clear()
        return left

    def taken(self, rows: list[int]) -> list[tuple[Draw, int]]:
        """The draws behind the gradients of some backward passes, with the rows of each; [] if they cannot be known."""
        if self._signalled:
            found = [(self._signalled.popleft(), count) for count in rows if self._signalled]
            if len(found) == len(rows):
                return found
        self._skip_resumed()
        if len(rows) > 1:
            whole = self._find(sum(rows))
            if whole is not None:
                return [(whole, count) for count in rows]
        pieces: list[tuple[Draw, int]] = []
        for count in rows:
            draws = self._behind(count)
            if not draws:
                self._complain(UNSEEN, True)
                return []
            pieces += [(draw, draw.indices.size if len(draws) > 1 else count) for draw in draws]
        return pieces

    def _behind(self, count: int) -> list[Draw]:
        """The draws behind so many rows of one backward pass."""
        found = self._find(count)
        if found is not None:
            return [found]
        total = 0
        for number, held in enumerate(self._held, start=1):
            total += held.indices.size
            if total == count and number > 1:
                return [self._take(draw) for draw in self._held[:number]]
        if self._held:
            return [self._take(self._held[-1])]
        return [] if self._current is None else [self._current]

    def _find(self, count: int) -> Draw | None:
        """The oldest held batch of this size, else the last one that was used if it has it."""
        for held in self._held:
            if held.indices.size == count:
                return self._take(held)
        again = self._current is not None and self._current.indices.size == count
        return self._current if again and not self._held else None

    def _take(self, draw: Draw) -> Draw:
        """A step uses this batch; older ones of its pass were passed over, and so was one if more are held now."""
        origin = draw.origin
        place = self._held.index(draw)
        before = [held for held in self._held[:place] if held.origin is origin]
        after = [held for held in self._held[place + 1 :] if held.origin.loader == origin.loader]
        for held in before:
            self._held.remove(held)
            self._left(held, True)
        self._held.remove(draw)
        if len(after) > self._lag.setdefault(origin.loader, len(after)):
            self._left(after[0], True)
        origin.lagging = bool(after)
        origin.used += 1
        self._current = draw
        return draw

    def _skip_resumed(self) -> None:
        """The first step after a checkpoint: as many batches passed over as its last pass had used are no news."""
        earlier, self.resumed = self.resumed, None
        mine = [held for held in self._held if held.origin is self._held[-1].origin] if self._held else []
        if earlier is None or len(mine) != earlier.used() + 1:
            return
        for held in mine[:-1]:
            self._held.remove(held)
        group = mine[-1].group
        if self.same_order:
            # The same order again: this pass is the rest of the one that was interrupted.
            group.releases.update(earlier.uses)
            earlier.releases.clear()
