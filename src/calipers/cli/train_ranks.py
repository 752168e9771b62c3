"""`calipers train` by several processes: what `torchrun` started joins, and one of them speaks.

Refusals that all ranks share are printed by rank 0; the others end with the same status and say nothing. That a rank is
gone is said by all that are left, since it may be rank 0 that is. `torchrun` ends them with SIGTERM soon after; that is
answered with the same sentence, so that nobody is left without one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from calipers.errors import CalipersError

if TYPE_CHECKING:
    from calipers.training.distributed import Ranks


@contextmanager
def together(device: str, timeout: float) -> Iterator[Ranks]:
    """The processes that train together; this one alone if it was not started by `torchrun`."""
    from calipers.training.distributed import RankError, Ranks, joined_ranks

    if "TORCHELASTIC_RUN_ID" not in os.environ or os.environ.get("WORLD_SIZE", "1") == "1":
        yield Ranks.alone()
        return

    def ended(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise RankError(
            "Another process of this training has ended, and torchrun ends this one. Start all again; a training goes "
            "on from its checkpoint."
        )

    before = signal.signal(signal.SIGTERM, ended)
    with joined_ranks(device=device, timeout=timeout) as ranks:
        try:
            yield ranks
        except RankError:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process ends by itself, and speaks first
            raise
        except CalipersError as error:
            if ranks.leads:
                raise
            raise click.exceptions.Exit(2) from error
    signal.signal(signal.SIGTERM, before)
