"""NVFlare: what the filter `SVTPrivacy` sends of a client's update, for whoever sees the client's messages.

    from calipers.adapters.nvflare import read_filter, read_ledger
    read_filter(SVTPrivacy(), parameters=1000, messages=10).epsilon(1e-5)     # as configured
    read_ledger(svt).epsilon(1e-5)                                            # the messages that were sent

Of NVFlare's filters this is the only one with noise; the others are refused. With f_i the absolute value of parameter
i, clipped to gamma, a message of the filter is made in two steps:

1. **Selection.** The threshold is tau + Laplace(gamma / e1). In every pass each parameter that was not accepted so far
   is accepted where f_i + Laplace(2 gamma c / e2) reaches it; passes end when c = `n_upload` parameters are accepted,
   or more. c of the accepted ones are chosen at random, with or without replacement.
2. **Release.** The chosen parameters are sent, clipped to [-gamma, gamma], with Laplace(2 gamma c / e3).

The filter's own accountant states e1 + e2 + e3 for one message and adds messages up, with delta = 0.

**Selection is (e1 + e2)-DP**, also where more than c are accepted, and if the number of passes is sent along (it is).
Proof. Let the data of a client be replaced, so that every f_i moves by at most gamma. Take the threshold higher by
gamma for the new data: its density changes by at most e^e1. Each trial then accepts with a probability a' <= a, and
a' >= e^(-e2/c) a, since the noise would have to make up for at most 2 gamma. So the new trials are the old ones,
thinned: each acceptance survives with probability at least e^(-e2/c), independently. Let m passes have been made and s
be chosen. There are c accepted parameters, those of s among them; with probability at least e^-e2 the first acceptance
of each survives. Then the new trials also end with pass m (before it fewer than c were accepted, and thinned no more),
s is among the accepted, and as no more are accepted than before, s is chosen with at least the same probability.

**Release** of at most c values, each of which moves by at most 2 gamma: as many Laplace mechanisms with loss e3 / c.
At delta > 0 their composition is far below e3. All of this for replacing a client's whole update by any other.

**The attack** replaces an update of +gamma in all parameters by -gamma: selection stays the same, and every value that
is sent moves by 2 gamma. Without replacement c values are sent; with replacement at least one, which the lower bound
uses.

The installed NVFlare is imported when a function is called. Checked with NVFlare 2.9.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from calipers.adapters.federated import GENERATORS, scaled_noise
from calipers.domains import COUNT, POSITIVE, PROBABILITY
from calipers.errors import InputError, UnsupportedError
from calipers.extras import library
from calipers.measure import Measurement, measure
from calipers.measure.bounds import Bounds
from calipers.mechanisms import compose, laplace, randomized_response

_MISSING = "Reading NVFlare needs NVFlare; install it with: pip install '.[nvflare]'"
_KNOWN = " Calipers reads NVFlare 2.9."

UPDATES = (
    "Neighbors differ in the data of one client, whose update may become any other one. Whoever sees its messages "
    "knows whose they are, and how many it sends."
)
STEPS = (
    "The number of local steps (NUM_STEPS_CURRENT_ROUND), by which the filter divides, does not depend on the data. "
    "What a message holds besides the filtered arrays is not covered."
)
FINITE = "Every update is finite: SVTPrivacy never sends a NaN, so that one shows."
ARRAYS = "All parameters are arrays: SVTPrivacy sends scalars as they are."
REPLACED = "Parameters are chosen with replacement, so that a message may hold a single value: the attack uses one."


def nvflare_module(name: str) -> Any:
    """A module of the installed NVFlare, or `MissingExtraError` with the line to type."""
    return library(name, _MISSING, _KNOWN)


@dataclasses.dataclass(frozen=True)
class _JobMessage:
    """The losses of one message: of the selection, and in sum of the `sent` values."""

    selection: float
    release: float
    sent: int


def read_filter(privacy_filter: Any, *, parameters: int, messages: int) -> Measurement:
    """What `SVTPrivacy` makes of a client's updates, as it is configured.

    Args:
        privacy_filter: an `SVTPrivacy`; filters without noise are refused.
        parameters: how many parameters an update has, in arrays.
        messages: how many updates the client sends.

    Returns:
        The measurement of all messages: lower <= truth <= upper for replacing the client's data, under its
        `conditions`.

    Raises:
        UnsupportedError: nothing is proven for this filter; the message says why.
    """
    COUNT.check_int("parameters", parameters)
    COUNT.check_int("messages", messages)
    svt = _svt(privacy_filter)
    fraction = PROBABILITY.check("fraction", float(svt.fraction), "SVTPrivacy sends this share of the parameters.")
    POSITIVE.check("gamma", float(svt.gamma), "SVTPrivacy clips to it, and its noise is a multiple of it.")
    sent = int(min(math.ceil(float(parameters) * fraction), parameters))
    if not sent:
        raise InputError("fraction=0 sends no parameter at all: nothing is released.")
    module = nvflare_module("nvflare.app_common.filters.svt_privacy")
    try:
        split = module._compute_epsilon_split(svt.epsilon, sent, svt.epsilon_threshold, svt.epsilon_query)
        release = module._compute_release_epsilon(sent, svt.noise_var, svt.epsilon_release)
    except ValueError as error:
        raise InputError(f"SVTPrivacy refuses its own configuration: {error}") from error
    return _measured([_JobMessage(_sum(*split), release, sent)] * messages, bool(svt.replace), (ARRAYS,))


def read_ledger(privacy_filter: Any) -> Measurement:
    """What `SVTPrivacy` sent since its run began, from its own ledger.

    Args:
        privacy_filter: the `SVTPrivacy` that filtered the messages.

    Returns:
        The measurement of these messages: lower <= truth <= upper for replacing the client's data, under its
        `conditions`.

    Raises:
        UnsupportedError: nothing is proven for what was sent; the message says why.
    """
    svt = _svt(privacy_filter)
    ledger = svt.get_privacy_ledger()
    if not ledger:
        raise InputError("The filter has sent no message yet; ask after training, before the next run begins.")
    if any(call["has_scalar_passthrough"] for call in ledger):
        raise UnsupportedError(
            "A message held a scalar parameter, which SVTPrivacy sends as it is, without noise: nothing is proven. "
            "Exclude scalars (ExcludeVars), or send them as arrays of one element."
        )
    sent = [
        _JobMessage(_sum(call["epsilon_threshold"], call["epsilon_query"]), call["epsilon_release"], call["n_upload"])
        for call in ledger
    ]
    return _measured(sent, bool(svt.replace), ())


def _svt(privacy_filter: Any) -> Any:
    module = nvflare_module("nvflare.app_common.filters.svt_privacy")
    if type(privacy_filter) is not module.SVTPrivacy:
        raise UnsupportedError(
            f"{type(privacy_filter).__name__} is not NVFlare's SVTPrivacy, the only one of its filters that adds noise "
            "to an update. PercentilePrivacy and ExcludeVars leave parameters out and send the others as they are, "
            "clipped at most: nothing is proven for them."
        )
    return privacy_filter


def _sum(threshold: float, query: float) -> float:
    return math.nextafter(float(threshold) + float(query), math.inf)


def _measured(messages: Sequence[_JobMessage], replace: bool, conditions: tuple[str, ...]) -> Measurement:
    counts: dict[_JobMessage, int] = {}
    for one in messages:
        counts[one] = counts.get(one, 0) + 1
    factors = [
        factor
        for one, count in counts.items()
        for factor in (
            (laplace(scaled_noise(1.0, one.sent, one.release)), one.sent * count),
            (randomized_response(one.selection), count),
        )
    ]
    above = measure(compose(*factors))
    seen = [
        (laplace(one.sent / one.release * (1.0 + 2.0**-51)), count * (1 if replace else one.sent))
        for one, count in counts.items()
    ]
    below = measure(compose(*seen))
    said = (UPDATES, STEPS, FINITE, *conditions, *((REPLACED,) if replace else ()), GENERATORS)
    return dataclasses.replace(
        above, evaluation=Bounds(above.evaluation.upper, below.evaluation.lower), conditions=said
    )
