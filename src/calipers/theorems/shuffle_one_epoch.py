"""One epoch of random allocation, bounded by Berry-Esseen (van Dijk and Ertan 2026, Section 4).

The pair: M rounds of N(0, 1) against the same with one round, chosen uniformly, shifted by
1/sigma. Theorem 4.1 bounds its trade-off curve by f(a) >= 1 - a - delta, that is, its total
variation by delta, with mu = sqrt((e^(1/sigma^2) - 1)/(M-1)), e of Equation (21) at n = M - 1, and

    delta = 2 e + mu/sqrt(2 pi) + {1/(4 sqrt(2 pi)) + (1 + e^v/(1 - e^-v))/(2 sqrt(2 e pi))} mu^2
            + mu^3/(4 sqrt(2 e pi)) + mu^4/(32 sqrt(2 e pi)) + tail,         v = 1/sigma^2,
    tail  = 4.52 / (2.88 sqrt(ln M) - 2.41/sqrt(ln M)) M^(-25/24),

provided (1): delta + e <= 1/2 - Phi(-(e^v - 1)/2). Three remarks, on the proof and its reach:

*Symmetry.* Lemma D.1 passes from a in [1/2 - delta, 1/2 + delta] to all a for a *symmetric*
curve, and this curve is not symmetric. The conclusion stands all the same: 1 - a - f(a) is
largest where the likelihood ratio crosses 1, that is at a = P(mean > 1), which Berry-Esseen puts
within e < delta of 1/2, inside the interval on which the proof bounds f directly.

*Whose guarantee it is.* The pair is what an adversary sees who isolates the differing record's
own contribution and looks at nothing else; it is also tight for balls-and-bins sampling. With
shuffled batches of fixed size the other records give the round away (Chua et al. 2024), and the
bound fails for the worst case: at sigma = 0.5 and M = 1e10 it is 0.003968, while Equation (3)
there proves delta_S(0) >= 0.004156. So read it with view = "isolated", never "worst-case".

*Slack.* Any e at least as large as (19) serves; the proof itself works with (53), where e is
free. (21) exceeds (19) by a factor 17 at sigma = 2, so Equation (53) with (19) needs
M = 59,097 instead of 1.49e7 there for delta = 0.01; the pair itself needs far less still.

The paper's Table 1 comes out to its printed digits, but for one: at sigma = 0.75 Equation (3)
gives 3.715e6 rounds, printed as 3.72e6 like the exact solution next to it (3.716e6).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import erf

from calipers.numerics.elementary import fewest
from calipers.theorems.lognormal_ratio import berry_esseen_distance, berry_esseen_distance_low_noise, ratio_variance
from calipers.theorems.registry import theorem, unmet

_ROOT_2PI = math.sqrt(2.0 * math.pi)
_ROOT_2EPI = math.sqrt(2.0 * math.e * math.pi)


class OneEpochBound(NamedTuple):
    """delta of Theorem 4.1, its six terms, and how much room condition (1) leaves (never negative)."""

    delta: float
    berry_esseen_term: float
    first_order: float
    second_order: float
    third_order: float
    fourth_order: float
    tail: float
    slack: float


def _one_epoch(noise_multiplier: float, rounds: int, sharp: bool) -> OneEpochBound:
    """The six terms and the slack of condition (1), which may come out negative."""
    w = ratio_variance(noise_multiplier, power=3)
    error = (berry_esseen_distance if sharp else berry_esseen_distance_low_noise)(noise_multiplier, rounds - 1)
    mu = math.sqrt(w / (rounds - 1))
    root_log = math.sqrt(math.log(rounds))
    # e^v / (1 - e^-v) = (1 + w)^2 / w
    second = (0.25 / _ROOT_2PI + 0.5 * (1.0 + (1.0 + w) ** 2 / w) / _ROOT_2EPI) * mu**2
    terms = (
        2.0 * error,
        mu / _ROOT_2PI,
        second,
        mu**3 / (4.0 * _ROOT_2EPI),
        mu**4 / (32.0 * _ROOT_2EPI),
        4.52 / (2.88 * root_log - 2.41 / root_log) * rounds ** (-25.0 / 24.0),
    )
    delta = math.fsum(terms)
    # 1/2 - Phi(-x) = erf(x / sqrt 2) / 2
    slack = 0.5 * float(erf(0.5 * w / math.sqrt(2.0))) - delta - error
    return OneEpochBound(delta, *terms, slack)


@theorem("vandijk-eq-53")
@theorem("vandijk-thm-4.1")
def shuffle_delta(noise_multiplier: float, rounds: int, sharp: bool = False) -> OneEpochBound:
    """The delta of Theorem 4.1, all six terms, with condition (1) checked.

    `sharp`: the bound as the proof has it, (52) under (53), with the Berry-Esseen distance of Equation (19); not above
    the other where both exist. Post-condition: the total variation of the pair is at most `delta`.
    """
    bound = _one_epoch(noise_multiplier, rounds, sharp)
    # The third condition, M >= 8 kappa^3 = (e^v - 1)^3, follows from the second.
    if noise_multiplier**2 * math.log(rounds) < 3.0:
        raise unmet("enough-noise", least=math.sqrt(3.0 / math.log(rounds)), noise=noise_multiplier)
    if bound.slack < 0.0:
        raise unmet("condition-1", missing=-bound.slack, noise=noise_multiplier, rounds=rounds)
    return bound


@theorem("vandijk-eq-53-rounds")
@theorem("vandijk-thm-4.1-rounds")
def shuffle_rounds(delta: float, noise_multiplier: float, sharp: bool = False) -> int:
    """The smallest M for which Theorem 4.1 gives at most delta (column M_exact of the paper's Table 1).

    `sharp`: for which Equation (53) with Equation (19) does. Bound and conditions get easier as M grows.
    """

    def suffices(rounds: int) -> bool:
        bound = _one_epoch(noise_multiplier, rounds, sharp)
        # sigma >= sqrt(3 / ln M) follows from (1) with Equation (21), but need not from (53) with (19).
        return bound.delta <= delta and bound.slack >= 0.0 and noise_multiplier**2 * math.log(rounds) >= 3.0

    return fewest(suffices, 2, 4)


@theorem("vandijk-thm-4.1-dataset-size")
def shuffle_dataset_size(delta: float, noise_multiplier: float, noise_per_round: float = 0.1) -> int:
    """N = ceil(sigma M / noise_per_round) with M of `shuffle_rounds` (last column of the paper's Table 1)."""
    return math.ceil(noise_multiplier * shuffle_rounds(delta, noise_multiplier) / noise_per_round)


def _leading(noise_multiplier: float, multiple: float) -> float:
    """sqrt(M - 1) times the terms `multiple` * e + mu / sqrt(2 pi)."""
    error = berry_esseen_distance_low_noise(noise_multiplier, 1)
    return multiple * error + math.sqrt(ratio_variance(noise_multiplier)) / _ROOT_2PI


@theorem("vandijk-eq-2")
def shuffle_delta_two_terms(noise_multiplier: float, rounds: int) -> float:
    """2 e + mu/sqrt(2 pi), the terms of Theorem 4.1 of order 1/sqrt(M)."""
    return _leading(noise_multiplier, 2.0) / math.sqrt(rounds - 1)


@theorem("vandijk-eq-3")
def shuffle_rounds_two_terms(delta: float, noise_multiplier: float) -> float:
    """1 + ((2 e + mu/sqrt(2 pi)) sqrt(M-1) / delta)^2: the solution M of Equation (2)."""
    return 1.0 + (_leading(noise_multiplier, 2.0) / delta) ** 2


@theorem("vandijk-eq-4")
def shuffle_condition_rounds(noise_multiplier: float) -> float:
    """1 + ((3 e + mu/sqrt(2 pi)) sqrt(M-1) / (1/2 - Phi(-(e^v - 1)/2)))^2."""
    w = ratio_variance(noise_multiplier)
    room = 0.5 * float(erf(0.5 * w / math.sqrt(2.0)))
    return 1.0 + (_leading(noise_multiplier, 3.0) / room) ** 2


@theorem("vandijk-epochs")
def epochs_tradeoff(delta: float, epochs: int, fpr: float) -> float:
    """max{(1 - delta)^E - a, 0}: the E-fold composition of max{1 - a - delta, 0}, exactly.

    Post-condition: the E-fold composition of any curve >= 1 - a - delta is at least this.
    """
    kept = math.exp(epochs * math.log1p(-delta))
    return max(kept - fpr, 0.0)
