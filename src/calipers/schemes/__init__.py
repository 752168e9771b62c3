"""The samplers Calipers knows: one file each, registered here and nowhere else.

To add one: a file whose name is the sampler's and whose `SCHEME` describes it, a word in `SAMPLERS` (and in
`calipers.schemes.own_keys`, where it needs keys that others do not), and, where Calipers should draw such batches
itself, a class in `calipers.samplers`. A scheme is imported when it is first asked for: its laws need numpy and scipy,
which a command's help does not.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from calipers.schemes.own_keys import OWN_KEYS

if TYPE_CHECKING:
    from calipers.run_fields import RunFields
    from calipers.schemes.scheme import Scheme

SAMPLERS = (
    "poisson",
    "shuffle",
    "balls-and-bins",
    "deterministic",
    "without-replacement",
    "with-replacement",
    "truncated-poisson",
    "cyclic-poisson",
    "random-allocation",
)
ASSUMED = "poisson"
"""The sampler that the usual accounting assumes, whatever was executed."""


@functools.cache
def scheme_named(name: str) -> Scheme:
    """The scheme of a registered sampler."""
    assert name in SAMPLERS
    module = importlib.import_module(f"calipers.schemes.{name.replace('-', '_')}")
    scheme: Scheme = module.SCHEME
    return scheme


def scheme_of(run: RunFields) -> Scheme:
    """The scheme of a run's sampler."""
    return scheme_named(run.sampler)


def having(key: str) -> tuple[str, ...]:
    """The samplers to which a key of a run means something."""
    return OWN_KEYS.get(key, ())


def only_for(key: str, meaning: str) -> str:
    """What a key means, behind the samplers that have it."""
    return f"{', '.join(having(key))}: {meaning}"
