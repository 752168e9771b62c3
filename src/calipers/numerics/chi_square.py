"""The test of two scales, by chi-square distributions in logarithms.

The sum of d squared standard normals is twice a gamma variable of shape d/2, so both tails are those of
`numerics.gamma`. To tell N(0, I_d) from N(0, s^2 I_d) with s < 1 the likelihood ratio falls with |x|^2: reject for
|x|^2 < t. With F the chi-square distribution, the errors are alpha = F(t) and beta = 1 - F(t/s^2). In y = log(t/d) the
second is the upper tail at y - log s^2: no subtraction of nearby numbers, whatever d is and however near 1 the scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calipers.domains import REAL, Domain
from calipers.numerics.elementary import checked
from calipers.numerics.gamma import gamma_quantile, log_gamma_tail
from calipers.numerics.types import FloatArray

LARGEST_DEGREES = 1e15
_DEGREES = Domain(1.0, LARGEST_DEGREES)


def log_scale_test_error(log_alpha: ArrayLike, degrees: ArrayLike, log_variance_ratio: ArrayLike) -> FloatArray:
    """log T(N(0, I_d), N(0, s^2 I_d))(alpha) with log s^2 = `log_variance_ratio` of either sign; exact for every d.

    s < 1 rejects for small norms, s > 1 for large ones. log s^2 = -2 log1p(1/K) for s = K/(K + 1).
    Post-condition: with e = 3 GAMMA_LOG_ERROR, up to e max(1, |value|) the value is the true one at an alpha near the
    one asked for: the logarithm of min(alpha, 1 - alpha), l say, is met within e max(1, |l|).
    """
    half, shift, logs = np.broadcast_arrays(
        0.5 * checked(_DEGREES, "degrees", degrees),
        checked(REAL, "log_variance_ratio", log_variance_ratio),
        np.asarray(log_alpha, dtype=np.float64),
    )
    result = np.empty(logs.shape)
    for lower in (True, False):  # the null is rejected where it has this tail
        part = (shift <= 0.0) == lower
        rejected = gamma_quantile(half[part], logs[part], lower)
        result[part] = log_gamma_tail(half[part], rejected - shift[part], not lower)
    return result
