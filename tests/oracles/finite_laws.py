"""The law of a finite pair that is given by its probabilities, as the product expects one."""

from __future__ import annotations

import numpy as np

from calipers.bracket import Side
from calipers.numerics.types import FloatArray
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf


def law_of(p: FloatArray, q: FloatArray, side: Side) -> PrivacyLossPmf:
    """Entries with q = 0 are mass at infinity, entries with p = 0 mass at zero."""
    assert abs(p.sum() - 1.0) <= 1e-9
    assert abs(q.sum() - 1.0) <= 1e-9
    both = (p > 0) & (q > 0)
    log_p, log_q = np.log(p[both]), np.log(q[both])
    order = np.argsort(log_p - log_q, kind="stable")
    ratio = (log_p - log_q)[order]
    return PrivacyLossPmf(
        ratio,
        log_p[order],
        log_q[order],
        side,
        p_inf=float(p[q == 0].sum()),
        q_zero=float(q[p == 0].sum()),
        mass_error=ATOM_ROUNDING,
        shift_error=8e-16 * float(np.max(np.abs(ratio), initial=0.0)) + 4e-16,
    )
