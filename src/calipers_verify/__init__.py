"""Checks Calipers certificates: a small program that trusts neither Calipers nor the file.

    python -m calipers_verify run.cert.json

It depends on python-flint alone (whole numbers, polynomials and Arb balls) and imports nothing of `calipers`. Read it
in this order: `rows` (whole numbers), `calls` (closed forms in balls), `laws` (domination, products, the read-off: the
upper jaw), `steps`, `sums` and `shuffled` (what one step or epoch shows), `attacks` (the lower jaw), `reading` and
`checker` (the file).
"""

from __future__ import annotations

from calipers_verify.checker import Claim, Verdict, verify, verify_file
from calipers_verify.reading import Refused

__all__ = ["Claim", "Refused", "Verdict", "verify", "verify_file"]
