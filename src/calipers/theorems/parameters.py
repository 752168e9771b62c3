"""The parameters theorems take, each with its domain and one line of help.

One name per thing: `rounds` is the number of batches in one epoch (T or M in the papers),
`steps` the number of batches of a whole run.
"""

from __future__ import annotations

import math
from typing import Final

from calipers.domains import COUNT, NON_NEGATIVE, OPEN_UNIT, POSITIVE, PROBABILITY, REAL, Domain
from calipers.errors import ConditionError

Described = tuple[Domain, str]

AT_LEAST_TWO: Final = Domain(2, math.inf, integer=True)

NOISE_MULTIPLIER: Final[Described] = (POSITIVE, "standard deviation of the noise divided by the clipping norm")
EPSILON: Final[Described] = (NON_NEGATIVE, "epsilon of (epsilon, delta)-DP")
DELTA: Final[Described] = (OPEN_UNIT, "delta of (epsilon, delta)-DP")
TARGET: Final[Described] = (OPEN_UNIT, "largest allowed distance below the line 1 - a")
ROUNDS: Final[Described] = (AT_LEAST_TWO, "number of batches in one epoch")
STEPS: Final[Described] = (COUNT, "number of batches of the whole run")
EPOCHS: Final[Described] = (COUNT, "number of epochs")
SAMPLE_RATE: Final[Described] = (OPEN_UNIT, "probability that a record enters a batch")
FPR: Final[Described] = (PROBABILITY, "false positive rate of the test")
MU: Final[Described] = (POSITIVE, "parameter of Gaussian differential privacy")
THRESHOLD: Final[Described] = (REAL, "threshold of the event")
SEPARATION: Final[Described] = (
    Domain(0.0, 1.0 / math.sqrt(2.0), high_open=True),
    "largest distance of the trade-off curve from the line 1 - a",
)


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
