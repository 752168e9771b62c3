"""Many pairs with the same observation under Q, split onto one set of ratios.

A pair that reveals an index (a batch size) is a mixture of pairs. When all of them observe the same standard normal x
under Q and their likelihood ratios increase with x, cells of x serve all of them: `mixed_pmf` splits every cell of
every pair onto its end ratios and then onto one common set of nodes, two mean preserving spreads, so that the mixture
costs no more than one pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from calipers.errors import CertificationError
from calipers.numerics.elementary import log_complement
from calipers.numerics.types import FloatArray, IntArray
from calipers.pld.core.pmf import ATOM_ROUNDING, PrivacyLossPmf
from calipers.pld.division.folded import cell_width, log_interval_mass

MASS_ERROR = 1e-13
"""Relative error of a cell's mass: quadrature, exponentials, and cell ends known to 1e-15 of their distance."""
SHIFT_ERROR = 5e-12
"""Absolute error of log ratios, the relative errors of P-masses and Q-masses of a cell included (see `split_cells`)."""


def log_normal_cells(x: FloatArray, mean: float = 0.0) -> FloatArray:
    """log of the mass of N(mean, 1) below x[0], in every cell of equal width, and above x[-1]."""
    step = float(x[1] - x[0])
    inner = log_interval_mass(x[:-1] - mean, np.full(len(x) - 1, step))
    return np.concatenate((special.log_ndtr(x[:1] - mean), inner, special.log_ndtr(mean - x[-1:])))


def cell_ends(log_tail: float, mean: float, scale: float, resolution: float) -> FloatArray:
    """Ends of cells of a standard normal observation, from its own tail to that of N(mean, scale^2) and beyond."""
    reach = math.sqrt(-2.0 * log_tail)
    length = 2.0 * reach + mean
    step = scale * cell_width(resolution, (length + reach) / scale)
    return np.asarray(-reach + np.linspace(0.0, length, max(8, math.ceil(length / step)) + 1))


@dataclass(frozen=True)
class MixedCells:
    """Row i: a pair met with probability weights[i]; log ratios at the cell ends, log P-masses of cells and both
    tails.
    """

    weights: FloatArray
    nodes: FloatArray
    log_p: FloatArray


def mixed_pmf(cells: MixedCells, x: FloatArray, outside: float = 0.0, rounding: float = 0.0) -> PrivacyLossPmf:
    """The pessimistic PLD of the mixture on cells of a standard normal observation with the ends x.

    Far tails and the mass `outside` of rows left out are added to 0 and infinity. `rounding` is that of the weights.
    """
    if np.any(np.diff(cells.nodes, axis=1) < -1e-12 * (1.0 + np.abs(cells.nodes[:, 1:]))):
        raise CertificationError("The likelihood ratio does not increase with the observation.")
    nodes = np.maximum.accumulate(cells.nodes, axis=1)
    first, last = float(nodes[:, 0].min()), float(nodes[:, -1].max())
    # The row that matters most: likely, and with a ratio that varies (that of an empty batch may be constant).
    inner = nodes[int(np.argmax(cells.weights * (nodes[:, -1] - nodes[:, 0])))]
    # Rare rows may reach further: beyond the ratios of that row, those of the row with the widest range.
    outer = nodes[int(np.argmax(nodes[:, -1] - nodes[:, 0]))]
    inner = np.concatenate((outer[outer < inner[0]], inner, outer[outer > inner[-1]]))
    common = np.concatenate(([first], inner[(inner > first) & (inner < last)], [last]))
    log_masses = np.log(cells.weights)[:, None] + split_cells(nodes, log_normal_cells(x), cells.log_p)
    log_total = onto(common, nodes.ravel(), log_masses.ravel())
    kept = log_total > -np.inf
    beyond = float(np.sum(cells.weights * np.exp(cells.log_p[:, -1])))
    return PrivacyLossPmf.dominating(
        common[kept],
        log_total[kept],
        p_inf=min(1.0, (outside + beyond) * (1.0 + 1e-9)),
        q_zero=min(1.0, (outside + float(special.ndtr(x[0]))) * (1.0 + 1e-9)),
        mass_error=MASS_ERROR + rounding + ATOM_ROUNDING,
        shift_error=SHIFT_ERROR,
    )


def split_cells(nodes: FloatArray, log_q: FloatArray, log_p: FloatArray) -> FloatArray:
    """Per row, cells with ratios between consecutive nodes split onto the nodes: log Q-masses there.

    log_q (common to all rows) and log_p hold the tails at both ends: the Q-mass beyond the last node stays there (its
    P-mass is the caller's to charge to infinity), and the P-mass below the first node stays there (its Q-mass is added
    to zero).

    The share moved up, (P - e^a Q)/(e^b - e^a), loses digits in narrow cells, but only as if all ratios were shifted by
    the relative error of P/Q, which `shift_error` covers; a share outside [0, 1] is such a shift too.
    """
    a, b = nodes[:, :-1], nodes[:, 1:]
    width = -np.expm1(a - b)
    wide = width > 2e-12  # where the ratio is constant to working precision the split has no content
    up = (np.exp(log_p[:, 1:-1] - log_q[1:-1] - b) - np.exp(a - b)) / np.where(wide, width, 1.0)
    share = np.where(wide, np.clip(up, 0.0, 1.0), 1.0)
    result = np.full(nodes.shape, -np.inf)
    with np.errstate(divide="ignore"):
        result[:, 1:] = log_q[1:-1] + np.log(share)
        result[:, :-1] = np.logaddexp(result[:, :-1], log_q[1:-1] + np.log1p(-share))
    result[:, -1] = np.logaddexp(result[:, -1], log_q[-1])
    result[:, 0] = np.logaddexp(result[:, 0], log_p[:, 0] - nodes[:, 0])
    return result


def onto(common: FloatArray, nodes: FloatArray, log_masses: FloatArray) -> FloatArray:
    """log Q-masses at `nodes` split onto the nodes of `common`, which spans them: a mean preserving spread.

    In logarithms, because an atom whose Q-mass no float can hold may carry most of the P-mass.
    """
    below = np.clip(np.searchsorted(common, nodes, side="right") - 1, 0, len(common) - 2)
    a, b = common[below], common[below + 1]
    x = np.clip(nodes, a, b)
    width = log_complement(common[:-1] - common[1:])[below]
    up = log_masses + (x - b) + log_complement(a - x) - width
    down = log_masses + log_complement(x - b) - width
    return _log_sums(np.concatenate((below + 1, below)), np.concatenate((up, down)), len(common))


def _log_sums(index: IntArray, log_weights: FloatArray, size: int) -> FloatArray:
    """log of the sum of exp(log_weights) at every index 0 .. size-1."""
    peak = np.full(size, -np.inf)
    np.maximum.at(peak, index, log_weights)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.bincount(index, weights=np.exp(log_weights - safe[index]), minlength=size)))


def thinned_product(first: PrivacyLossPmf, second: PrivacyLossPmf, factor_nodes: int, nodes: int) -> PrivacyLossPmf:
    """The pessimistic PLD of two independent observations, each split onto about `factor_nodes` ratios, then onto
    `nodes`.
    """
    left, right = (thinned(pmf.log_ratio, pmf.log_q, factor_nodes) for pmf in (first, second))
    ratio = (left[0][:, None] + right[0][None, :]).ravel()
    common, log_total = thinned(ratio, (left[1][:, None] + right[1][None, :]).ravel(), nodes)
    return PrivacyLossPmf.dominating(
        common,
        log_total,
        p_inf=min(1.0, first.p_inf + second.p_inf),
        q_zero=min(1.0, first.q_zero + second.q_zero),
        mass_error=first.mass_error + second.mass_error + 1e-14,
        shift_error=first.shift_error + second.shift_error + SHIFT_ERROR,
    )


def thinned(ratio: FloatArray, log_masses: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Atoms split onto about `most` of their own ratios: dense where atoms are, which is where the PLD has mass."""
    ordered = np.sort(ratio)
    common = np.unique(np.append(ordered[:: max(1, len(ordered) // most)], ordered[-1]))
    log_total = onto(common, ratio, log_masses)
    return common[log_total > -np.inf], log_total[log_total > -np.inf]
