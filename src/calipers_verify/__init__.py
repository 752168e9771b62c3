"""Checks Calipers certificates: a small program that trusts neither Calipers nor the file.

    python -m calipers_verify run.cert.json

It depends on python-flint alone (whole numbers, polynomials and Arb balls) and imports nothing of `calipers`. Read it
in this order: `calls` (one step in closed form), `lattice` (laws, products, the read-off: the upper jaw), `attacks`
(the lower jaw), `sums` and `epochs` (records hidden in one of many rounds), `reading` and `checker` (the file).
"""

from __future__ import annotations

from calipers_verify.checker import Claim, Verdict, verify, verify_file
from calipers_verify.reading import Refused

__all__ = ["Claim", "Refused", "Verdict", "verify", "verify_file"]
