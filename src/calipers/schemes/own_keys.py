"""The keys of a run that only some samplers have."""

from __future__ import annotations

OWN_KEYS = {
    "last_batch": ("shuffle", "deterministic"),
    "reshuffle": ("shuffle", "balls-and-bins"),
    "max_batch_size": ("truncated-poisson",),
    "cycle": ("cyclic-poisson",),
    "participations": ("random-allocation",),
    "derived_rate": ("poisson",),
}
"""The keys of a run that mean something to some samplers only: here, so that a help page can say to which."""
