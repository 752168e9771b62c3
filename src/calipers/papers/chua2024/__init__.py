"""Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang (2024): how private DP-SGD implementations are.

Seven figures and the numbers quoted with them. The paper has no tables.
"""

from __future__ import annotations

from calipers.papers.published import printed_numbers

published = printed_numbers(__name__)
