"""Gomez, Kulynych, Kaissis, Calmon, Hayes, Balle, Honkela (2025): Gaussian DP for reporting guarantees.

Figure 3 is a listing of the procedure and has nothing to compute: `calipers.curves.gdp_mu` and `regret` are it.
"""

from __future__ import annotations

from calipers.papers.published import printed_numbers

published = printed_numbers(__name__)
