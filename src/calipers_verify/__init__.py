"""Checks Calipers certificates: a small program that trusts neither Calipers nor the file.

    python -m calipers_verify run.cert.json

It depends on python-flint alone (whole numbers, polynomials and Arb balls) and imports nothing of `calipers`. Read it
in this order: `rows` (whole numbers), `stop_losses` (closed forms in balls), `pmfs` (domination, products, the
read-off: the upper bound), `neighbors` (which datasets are compared), `steps`, `sums` and `shuffled` (what one step or
epoch shows), `attacks` (the lower bound), `adaptive` (steps chosen while the run goes on), `reading`, `checker` and
`wording` (the file, and what is said of it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calipers_verify.checker import Claim, Verdict, verify, verify_file
    from calipers_verify.reading import Refused

__all__ = ["Claim", "Refused", "Verdict", "verify", "verify_file"]


def __getattr__(name: str) -> Any:
    """The names above, once they are asked for: `python -m calipers_verify` can then say that flint is missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from calipers_verify import checker

    return getattr(checker, name)
