"""Which batch sizes a script's own loader may have had, where Opacus keeps the number of batches alone."""

from __future__ import annotations

import math


def batch_count(size: int, batch_size: int, drop_last: bool) -> int:
    """Batches in one pass over so many records."""
    return size // batch_size if drop_last else math.ceil(size / batch_size)


def batch_sizes(size: int, count: int) -> list[tuple[int, bool]]:
    """(batch size, drop_last) of loaders with `count` batches: the extreme ones, at which a neighbor's count differs.

    ceil(size/b) = count for b from ceil(size/count) to ceil(size/(count-1)) - 1. A record more makes another batch
    only at b = size/count, the least; a record fewer saves one only at b = (size-1)/(count-1), the greatest.
    floor(size/b) = count for b from floor(size/(count+1)) + 1 to floor(size/count). A record more makes another
    batch only at b = (size+1)/(count+1), the least; a record fewer saves one only at b = size/count, the greatest.
    """
    kept = {math.ceil(size / count), size if count == 1 else math.ceil(size / (count - 1)) - 1}
    dropped = {size // (count + 1) + 1, size // count}
    found = [(given, False) for given in sorted(kept)] + [(given, True) for given in sorted(dropped)]
    return [(given, drop) for given, drop in found if given >= 1 and batch_count(size, given, drop) == count]


def forgotten(candidates: list[tuple[int, bool]]) -> str:
    """These batch sizes as a sentence, and what to say."""
    kept, dropped = (sorted({size for size, drop in candidates if drop is wanted}) for wanted in (False, True))
    spans = [" to ".join(dict.fromkeys((str(sizes[0]), str(sizes[-1])))) for sizes in (kept, dropped) if sizes]
    if spans[1:] == spans[:1]:
        return f"Whether the script's own loader, with batches of {spans[0]}, had drop_last=True is not known."
    said = f"{spans[0]} ({spans[1]} with drop_last=True)" if len(spans) > 1 else spans[0] if kept else ""
    said = said or f"{spans[0]} with drop_last=True"
    return f"The script's own loader may have had batches of {said}: say attach(..., batch_size=...)."
