"""Why no amount of noise meets a target, what is not searched, and the phases of a run with other noise."""

from __future__ import annotations

from collections.abc import Callable

from calipers.errors import CalipersError, InputError, UnsupportedError
from calipers.run import DATA_DEPENDENT, Run
from calipers.samplers import scheme_of
from calipers.samplers.shuffle import MOST_OF_ONE_RECORD
from calipers.scope import only_side, other_side

_MOST_BATCHES = 1_000_000
"""Of a shuffled epoch that uses every record: beyond it one measurement takes some ten seconds, and a search makes up
to ten."""


def out_of_reach(phases: tuple[Run, ...], most: float, meets: Callable[[tuple[Run, ...]], bool]) -> InputError:
    """The refusal of a target that the most noise does not meet.

    Args:
        phases: of the run, none where more than a run is calibrated.
        most: the largest noise multiplier that was tried.
        meets: whether the target is proven for these phases.

    Returns:
        An error that blames the divisor where the same noise meets the target without one, and the target elsewhere.
    """
    reason = "it is too strict."
    divided = [run.normalization for run in phases if run.normalization in DATA_DEPENDENT]
    if divided and meets(tuple(run.replace(normalization="none") for run in with_noise(phases, most))):
        reason = (
            f"the reason is the divisor. With normalization={divided[0]!r} one record changes the number that sum and "
            "noise are divided by, and the scale of the noise shows that however much noise there is. Divide by a "
            "public constant (normalization='constant'), and the target can be met."
        )
    return InputError(f"No noise_multiplier up to {most:g} meets the target; {reason}")


def searchable(phases: tuple[Run, ...]) -> tuple[Run, ...]:
    """The phases, if a search for their noise ends within minutes.

    Raises:
        UnsupportedError: Shuffled epochs of too many batches, with every record used.
    """
    for run in phases:
        size, batch = run.sizes or (1, 1)
        whole = (
            run.sampler == "shuffle"
            and run.adjacency != "add-remove"
            and (not size % batch or run.last_batch == "keep")
        )
        if whole and size // batch > (MOST_OF_ONE_RECORD if batch == 1 else _MOST_BATCHES):
            raise UnsupportedError(
                f"No search for noise is made where an epoch has {size // batch:,} shuffled batches and uses every "
                "record: it would take too long. Use larger batches, or measure a few values of noise_multiplier."
            )
    return phases


def refuse_one_sided(calibrated: object) -> None:
    """Refuse to look for noise under add-remove where only one of adding and removing a record has a finite epsilon.

    `solve` finds noise for that one alone, and says so. Whoever asks for add-remove, as a budget does, has asked for
    both, and there is no such noise.

    Args:
        calibrated: phases, or what is released in addition to them.

    Raises:
        UnsupportedError: no noise is enough; it says why, and what to change.
    """
    of = getattr(calibrated, "of", calibrated)
    runs: tuple[Run, ...] = (of,) if isinstance(of, Run) else of if isinstance(of, tuple) else ()
    if not (side := only_side(runs)):
        return
    other = other_side(side)
    count = f"one {runs[0].unit_name} {'fewer' if other == 'removing' else 'more'} changes the number of batches"
    raise UnsupportedError(
        f"No noise is enough for adjacency 'add-remove': for {other} one {runs[0].unit_name} no epsilon is finite, "
        f"however much noise there is ({count}, which anybody can count).{_finite_for_both(runs)} Where it is known "
        "whose data were used and only what they say has to stay secret, name adjacency 'substitute'; 'zero-out' only "
        "if a policy or a library asks for that one, which promises less."
    )


def _finite_for_both(runs: tuple[Run, ...]) -> str:
    """The first change of the run, if it is one, that leaves epsilon finite for adding and for removing."""
    if len(runs) > 1:
        return ""
    for text, change in scheme_of(runs[0]).remedies(runs[0]):
        try:
            changed = runs[0].replace(**change, adjacency="add-remove")
        except CalipersError:
            continue
        if not only_side((changed,)):
            return f" What to change: {text}"
    return ""


def with_noise(phases: tuple[Run, ...], noise: float) -> tuple[Run, ...]:
    """The phases with that noise in the first, and in the others the same multiple of it as before."""
    first = phases[0].noise_multiplier
    return tuple(
        phase.replace(noise_multiplier=noise if phase is phases[0] else noise * (phase.noise_multiplier / first))
        for phase in phases
    )
