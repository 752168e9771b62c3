"""The parameters theorems take, each with its domain and one line of help.

One name per thing: `rounds` is the number of batches in one epoch (T or M in the papers),
`steps` the number of batches of a whole run.
"""

from __future__ import annotations

import math
from typing import Final

from calipers.domains import COUNT, NON_NEGATIVE, OPEN_UNIT, POSITIVE, POSITIVE_PROBABILITY, PROBABILITY, Domain
from calipers.errors import ConditionError

Described = tuple[Domain, str]

AT_LEAST_TWO: Final = Domain(2, math.inf, integer=True)
AT_LEAST_THREE: Final = Domain(3, math.inf, integer=True)

DESCRIBED: Final[dict[str, Described]] = {
    "alignment": (
        Domain(-1.0, 1.0),
        "every other record's clipped gradient is this multiple of the new record's, which has full length",
    ),
    "dataset_size": (Domain(1, 1e10, integer=True), "number N of records of the smaller dataset"),
    "delta": (PROBABILITY, "delta of (epsilon, delta)-DP"),
    "dimension": (Domain(1, 1e12, integer=True), "number of coordinates of the output"),
    "epochs": (COUNT, "number of epochs"),
    "epsilon": (NON_NEGATIVE, "epsilon of (epsilon, delta)-DP"),
    "fpr": (PROBABILITY, "false positive rate of the test"),
    "mu": (POSITIVE, "parameter of Gaussian differential privacy"),
    "noise_multiplier": (POSITIVE, "standard deviation of the noise divided by the clipping norm"),
    "rounds": (AT_LEAST_TWO, "number of batches in one epoch"),
    "sample_rate": (POSITIVE_PROBABILITY, "probability q that a record enters a batch"),
    "scale": (OPEN_UNIT, "standard deviation of the second law"),
    "separation": (
        Domain(0.0, 1.0 / math.sqrt(2.0), high_open=True),
        "largest distance of the trade-off curve from the line 1 - a",
    ),
    "steps": (COUNT, "number of batches of the whole run"),
}
"""What a parameter of this name is, unless its theorem says otherwise."""

TARGET: Final[Described] = (OPEN_UNIT, "largest allowed distance below the line 1 - a")


def ratio_variance(noise_multiplier: float, power: int = 1) -> float:
    """e^(1/sigma^2) - 1: the variance of the likelihood ratio of N(1/sigma, 1) to N(0, 1) under the latter.

    Raises `ConditionError` if `power` times the exponent leaves double precision, where `power`
    is the highest power of e^(1/sigma^2) the caller is going to form.
    """
    sigma = POSITIVE.check("noise_multiplier", noise_multiplier)
    exponent = (1.0 / sigma) ** 2
    if power * exponent > 700.0:
        raise ConditionError(
            f"e^({power}/noise_multiplier^2) must be representable, got noise_multiplier={sigma:g}. "
            f"Use noise_multiplier >= {math.sqrt(power / 700.0):.4f}."
        )
    return math.expm1(exponent)
