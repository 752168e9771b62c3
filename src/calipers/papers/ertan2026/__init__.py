"""Ertan and van Dijk (2026): the noise that a small separation forces.

Everything that a formula gives is computed here. The accuracies of Tables 1 to 9 come from training; those of
Tables 1 and 3 were trained again, with the rows kept (`utility`).
"""

from __future__ import annotations

from calipers.papers.published import printed_numbers

published = printed_numbers(__name__)
