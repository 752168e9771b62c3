"""Van Dijk and Ertan (2026): closed-form bounds for DP-SGD with random shuffling, and what they bound.

Everything here is about the isolated view, the paper's own adversary, unless an item says otherwise: each published
number stands next to the certified bracket of the pair it is about, so that the looseness of a bound can be read off.
"""

from __future__ import annotations

from calipers.papers.published import printed_numbers

published = printed_numbers(__name__)
