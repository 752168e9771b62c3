"""Adaptive runs: steps chosen while training, with a number that holds for every choice."""

from __future__ import annotations

from calipers.adaptive.run import AdaptiveRun as AdaptiveRun
