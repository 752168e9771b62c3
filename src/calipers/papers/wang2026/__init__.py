"""Wang, Cui, Cui, Yuan (2026): the privacy of DP-SGD whose noisy sum is divided by a number that depends on the data.

Figures 2 to 7 (Figure 1 is a diagram), Table 2 (Table 1 is notation), the limit theorem next to the exact test, and the
numbers and relations of the text. Items whose name ends in "normality" audit by the paper's own Algorithm 1 with its
number of trials; those in "opacus" run the installed Opacus (`pip install '.[opacus]' in the clone`).
"""

from __future__ import annotations

from calipers.papers.published import printed_numbers

published = printed_numbers(__name__)
