"""Adaptive runs: steps chosen while training, with a number that holds for every choice."""

from __future__ import annotations

from calipers.adaptive.filter import FilterSpent as FilterSpent
from calipers.adaptive.filter import Odometer as Odometer
from calipers.adaptive.filter import PrivacyFilter as PrivacyFilter
from calipers.adaptive.run import AdaptiveRun as AdaptiveRun
from calipers.adaptive.run import load_adaptive as load_adaptive
