"""Calipers measures the privacy of a DP-SGD run from both sides: a proof above, an attack below."""

from __future__ import annotations

from calipers._version import __version__

__all__ = ["__version__"]
