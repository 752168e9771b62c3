"""When to look: a sequential audit, whose confidence holds however often and however long one looks.

An audit of fixed size looks once. Whoever looks again after more trials, or audits again with a new seed because the
claim stood, has two chances to be wrong: ten audits at confidence 0.95 of a true claim falsify it with a probability
of up to 0.4. A sequential audit plans its looks and shares the error 1 - confidence among them:

| look | at | part of the error |
|---|---|---|
| early | the planned trials divided by 3/2, (3/2)^2, ..., down to a hundred | 0.10, in equal parts |
| planned | the planned trials | 0.85 |
| late | 2, 4, 8, ... times the planned trials | 0.025, 0.0125, 0.00625, ... |

Each look is an exact test or bound at its own part of the error (`calipers.auditing.bounds`), so by the union bound the
probability that any of them is ever wrong is at most 1 - confidence: whichever look is the last, whatever decided that,
and however many would have followed. Between two looks nothing is said, so nothing can go wrong there; one may watch.

Three facts make this cheap. The first look at which a claim is exceeded ends the audit, and gross violations end it
after a hundredth of the trials. At the planned trials 0.85 of the error is left, for which an audit of fixed size would
need about 4 % fewer trials. And whoever was not given anything by then may play on with the same ledger, instead of
beginning anew with an error of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from calipers.domains import COUNT
from calipers.errors import InputError

EARLY, PLANNED, LATE = 0.10, 0.85, 0.05
LEAST_TRIALS = 100
_RATIO = 1.5


@dataclass(frozen=True)
class Look:
    """After so many trials for each hypothesis, at this part of the error; `outcome` is the verdict on the claim."""

    trials: int
    spent: float
    outcome: str | None = None


def planned_looks(planned: int, most: int, chunk: int) -> tuple[Look, ...]:
    """The looks of an audit planned for `planned` trials that goes on to `most`, each after a whole number of chunks.

    Post-condition: with `planned` and `chunk` fixed, the looks for a smaller `most` are the first of those for a larger
    one, and the parts of the error of all looks there could ever be add up to at most 1.
    """
    planned, most, chunk = (
        COUNT.check_int(name, value) for name, value in (("trials", planned), ("most_trials", most), ("chunk", chunk))
    )
    if most < planned:
        raise InputError(f"Expected most_trials to be at least trials={planned}, got most_trials={most}.")
    end = _whole(planned, chunk)
    early = []
    trials = planned / _RATIO
    while trials >= LEAST_TRIALS:
        early.append(_whole(trials, chunk))
        trials /= _RATIO
    early = sorted({place for place in early if place < end})
    looks = [Look(place, EARLY / len(early)) for place in early]
    looks.append(Look(end, PLANNED))
    spent = LATE
    while 2 * looks[-1].trials <= _whole(most, chunk):
        spent /= 2
        looks.append(Look(2 * looks[-1].trials, spent))
    return tuple(looks)


def _whole(trials: float, chunk: int) -> int:
    """The least multiple of the chunk that is not below `trials`."""
    return int(-(-trials // chunk)) * chunk
