"""Chi-square laws in logarithms, and the test of two scales.

**Central.** The sum of d squared standard normals is twice a gamma variable of shape d/2, so both tails are those of
`numerics.gamma`.

**Two scales.** To tell N(0, I_d) from N(0, s^2 I_d) with s < 1 the likelihood ratio falls with |x|^2: reject for
|x|^2 < t. With F the chi-square law, the errors are alpha = F(t) and beta = 1 - F(t/s^2). In y = log(t/d) the second is
the upper tail at y - log s^2: no subtraction of nearby numbers, whatever d is and however near 1 the scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calipers.errors import InputError
from calipers.numerics.gamma import (
    gamma_lower_quantile_at,
    gamma_upper_quantile_at,
    log_gamma_lower_at,
    log_gamma_upper_at,
)
from calipers.numerics.types import FloatArray

LARGEST_DEGREES = 1e15


def _half(degrees: ArrayLike) -> FloatArray:
    count = np.asarray(degrees, dtype=np.float64)
    if not np.all((count >= 1.0) & (count <= LARGEST_DEGREES)):
        raise InputError(f"Expected degrees in [1, {LARGEST_DEGREES:g}], got degrees={degrees!r}.")
    return 0.5 * count


def log_scale_test_error(log_alpha: ArrayLike, degrees: ArrayLike, log_variance_ratio: ArrayLike) -> FloatArray:
    """log T(N(0, I_d), N(0, s^2 I_d))(alpha) with log s^2 = `log_variance_ratio` of either sign; exact for every d.

    s < 1 rejects for small norms, s > 1 for large ones. log s^2 = -2 log1p(1/K) for s = K/(K + 1).
    Post-condition: with e = 3 GAMMA_LOG_ERROR, up to e max(1, |value|) the value is the true one at an alpha near the
    one asked for: the logarithm of min(alpha, 1 - alpha), l say, is met within e max(1, |l|).
    """
    half = _half(degrees)
    shift = np.asarray(log_variance_ratio, dtype=np.float64)
    if not np.all(np.isfinite(shift)):
        raise InputError(f"Expected log_variance_ratio in (-inf, inf), got {log_variance_ratio!r}.")
    logs = np.asarray(log_alpha, dtype=np.float64)
    half, shift, logs = np.broadcast_arrays(half, shift, logs)
    result = np.empty(logs.shape)
    small = shift <= 0.0
    result[small] = log_gamma_upper_at(half[small], gamma_lower_quantile_at(half[small], logs[small]) - shift[small])
    large = ~small
    result[large] = log_gamma_lower_at(half[large], gamma_upper_quantile_at(half[large], logs[large]) - shift[large])
    return result
