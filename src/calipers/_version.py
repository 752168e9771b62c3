"""The version, in the one place that the build, the command and the citation read."""

from __future__ import annotations

__version__ = "0.1.0"
