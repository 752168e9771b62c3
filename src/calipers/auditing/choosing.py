"""Which distinguisher suits which target, by name.

"auto" is the strongest one known for the target, and nothing is hidden about it: its name stands in every report.

| target | "auto" |
|---|---|
| built-in | the exact likelihood ratio; the matched filter where the batches cannot be enumerated |
| a function with an attribute `scores` | that function |
| any other | Gaussians fitted to pilot runs |
"""

from __future__ import annotations

from collections.abc import Callable

from calipers.auditing.builtin import NoisySums
from calipers.auditing.distinguishers import (
    Distinguisher,
    LikelihoodRatio,
    MatchedFilter,
    MaximumTest,
    Plain,
    ScoreFunction,
)
from calipers.auditing.fitted import fit
from calipers.auditing.mixtures import enumerable
from calipers.auditing.normality import NormalityTest
from calipers.auditing.targets import FunctionTarget, Target, described
from calipers.domains import choice
from calipers.errors import InputError

DEFAULT_PILOT = 500
_PILOT_SHARE = 10


def pilot_for(trials: int) -> int:
    """Pilot runs of each hypothesis before so many trials: a tenth as many, and no fewer than 500."""
    return max(DEFAULT_PILOT, trials // _PILOT_SHARE)


def distinguisher_for(
    target: Target,
    name: str = "auto",
    *,
    seed: int = 0,
    pilot: int = DEFAULT_PILOT,
    time_limit: float | None = None,
) -> Distinguisher:
    """The distinguisher of that name for the target, or `InputError` if they do not fit together.

    The keywords matter to "fitted" only: `pilot` runs for each hypothesis are played to fit it, each chunk of them
    within `time_limit` seconds, and never used again.
    """

    def known() -> NoisySums:
        found = _known(target)
        if found is None:
            raise InputError(
                f"distinguisher={name!r} needs a built-in target, whose distribution is known; use 'fitted' or "
                "'scores'."
            )
        return found

    made: dict[str, Callable[[], Distinguisher]] = {
        "likelihood-ratio": lambda: LikelihoodRatio(known()),
        "matched-filter": MatchedFilter,
        "maximum": lambda: MaximumTest(rounds=known().rounds),
        "normality": lambda: NormalityTest(known()),
        "scores": lambda: _own_scores(target),
        "fitted": lambda: fit(target, pilot=pilot, seed=seed, time_limit=time_limit),
        "plain": Plain,
    }
    choice("distinguisher", name, ("auto", *made))
    return made[_strongest(target) if name == "auto" else name]()


def _strongest(target: Target) -> str:
    known = _known(target)
    if known is not None:
        return "likelihood-ratio" if enumerable(known) else "matched-filter"
    return "scores" if _scores_of(target) is not None else "fitted"


def _known(target: Target) -> NoisySums | None:
    """The built-in target, or the one whose noise a device draws."""
    inner = getattr(target, "sums", target)
    return inner if isinstance(inner, NoisySums) else None


def _scores_of(target: Target) -> object:
    return getattr(target.function if isinstance(target, FunctionTarget) else target, "scores", None)


def _own_scores(target: Target) -> ScoreFunction:
    function = _scores_of(target)
    if not callable(function):
        raise InputError(
            f"{target.name} has no attribute `scores`, a function from outputs (count, features) to count scores; add "
            "it, or use 'fitted'."
        )
    return ScoreFunction(function, label=f"scores of {target.name} ({described(function)})")
