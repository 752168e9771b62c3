"""What a command may measure instead of a run: a guarantee that is stated somewhere, or a dp_accounting event."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from calipers.cli.kinds import COUNT, REAL, option, with_options, word
from calipers.domains import Domain
from calipers.errors import InputError
from calipers.guarantee import Guarantee, load_guarantee
from calipers.phases import load_runs
from calipers.run import Run
from calipers.run_keys import STANDARD_INPUT, read_toml

if TYPE_CHECKING:
    from calipers.adaptive import AdaptiveRun
    from calipers.measure import CorrelatedNoise, JointRelease, Measurement, Selection

TREE = "tree"
_NAMES = ("guarantee", "mu", "zcdp", "event", "times")
_MATRIX = ("noise_matrix", "min_separation", "max_participations", "fixed_order")
_QUERIES = ("additional_query", "clip_count_noise")
_LAWS = word(("geometric", "logarithmic", "poisson", "negative-binomial"))
_SELECT = ("selected_mean", "trials", "trials_shape")


@dataclass(frozen=True)
class EventFile:
    """A dp_accounting event written as JSON, and the neighbors it is about."""

    path: str
    adjacency: str = "add-remove"

    def measured(self, tolerance: float) -> Measurement:
        """Its measurement."""
        from calipers.adapters.dp_accounting import measurement_of
        from calipers.adapters.event_json import load_event

        return measurement_of(load_event(self.path), adjacency=self.adjacency, tolerance=tolerance)


@dataclass(frozen=True)
class MenuFile:
    """A run file with [[step]] tables, whose budget is to be found."""

    path: str


Noisy: TypeAlias = "CorrelatedNoise | Selection | JointRelease | MenuFile"
"""What can be calibrated, as a run can."""
Subject: TypeAlias = "tuple[Run, ...] | Guarantee | EventFile | AdaptiveRun | Noisy"


with_noisy_options = with_options(
    option(
        "--noise-matrix",
        None,
        "The noise is correlated between steps by this encoder matrix C: a file (.npy, .csv or .txt) with a "
        "lower triangular matrix or the first column of a Toeplitz one, or 'tree' (DP-FTRL).",
        metavar="FILE",
    ),
    option("--min-separation", COUNT, "Steps between two participations (or groups that take turns).", metavar="B"),
    option("--max-participations", COUNT, "How often a record takes part at most.", metavar="K"),
    option("--fixed-order", bool, "Participations are exactly B steps apart.", show_default=False, default=None),
    option(
        "--additional-query",
        REAL,
        "Noise multiplier of another release of each batch; repeatable.",
        multiple=True,
        metavar="S",
    ),
    option(
        "--clip-count-noise",
        REAL,
        "Adaptive clipping: deviation of the noise on the centered count of unclipped gradients.",
        metavar="SD",
    ),
    option("--selected-mean", REAL, "The best of a random number of runs is released; M is its mean.", metavar="M"),
    option("--trials", _LAWS, "The distribution of the number of runs. [default: geometric]"),
    option("--trials-shape", REAL, "The shape of a negative-binomial distribution.", metavar="ETA"),
)
"""Correlated noise, selection, and what is released with the gradient: what has noise, as a run has."""

with_stated_options = with_options(
    option("--guarantee", None, "Read an (epsilon, delta) guarantee instead of a run: 8,1e-5.", metavar="EPS,DELTA"),
    option("--mu", REAL, "Read a mu-GDP guarantee instead of a run.", metavar="MU"),
    option("--zcdp", REAL, "Read a rho-zCDP guarantee instead of a run.", metavar="RHO"),
    option("--event", None, "Read a dp_accounting event instead of a run.", metavar="FILE.json"),
    option("--times", COUNT, "So many releases, each with the --guarantee or --mu. [default: 1]", metavar="N"),
    with_noisy_options,
)
"""--guarantee, --mu, --zcdp and --event, and what a run may have next to its own options."""


def subject_of(
    values: dict[str, Any],
    given: dict[str, object],
    run_file: str | None,
    runs: Callable[..., tuple[Run, ...]],
    defaults: Mapping[str, object],
    *,
    noisy: bool,
) -> Subject | None:
    """What is to be measured, where it is more or something else than the run that `runs` reads; else None.

    Keys of a run file say the same as options, which replace them; `runs` is given which keys are not the run's, and
    `defaults` stand in for what neither says. What has to be `noisy` is no guarantee, and options that only share the
    name of one stay in `values`.
    """
    names = (() if noisy else _NAMES, _MATRIX, _SELECT, _QUERIES)
    options = [_taken(values, group) for group in names]
    menu = (
        None
        if run_file is None
        else menu_of(run_file, [*given, *(name for group in options for name in group)], to_calibrate=noisy)
    )
    found = menu or _subject(options, given, run_file, runs, defaults)
    if noisy and isinstance(found, Guarantee | EventFile):
        raise InputError("A guarantee has no noise that could be changed; calibrate a run.")
    return found


def menu_of(run_file: str, others: Sequence[str], *, to_calibrate: bool = False) -> AdaptiveRun | MenuFile | None:
    """The adaptive run of a file with [[step]] tables; None for a file of another kind."""
    if run_file == STANDARD_INPUT or "step" not in read_toml(run_file):
        return None
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise InputError(f"{run_file} holds the steps of an adaptive run, which {names} cannot change; edit the file.")
    from calipers.adaptive import load_adaptive

    return MenuFile(run_file) if to_calibrate else load_adaptive(run_file)


def _taken(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Those of the options that were given, taken out of the values."""
    return {name: value for name in names if (value := values.pop(name)) not in (None, ())}


def _subject(
    options: list[dict[str, Any]],
    given: dict[str, object],
    run_file: str | None,
    runs: Callable[..., tuple[Run, ...]],
    defaults: Mapping[str, object],
) -> Subject | None:
    record = {} if run_file is None else read_toml(run_file)
    written = [{name: record[name] for name in names if name in record} for names in (_MATRIX, _SELECT, _QUERIES)]
    stated, matrix, chosen, queries = options[0], *({**w, **o} for w, o in zip(written, options[1:], strict=True))
    if queries:
        if stated or matrix or chosen:
            raise InputError(
                "--additional-query and --clip-count-noise are about a run alone; leave the other options out."
            )
        from calipers.measure import JointRelease, count_noise

        phases = runs(*written[2])
        counted = (count_noise(_count(queries["clip_count_noise"]), phases),) if "clip_count_noise" in queries else ()
        return JointRelease(phases, (*_several(queries.get("additional_query", ())), *counted))
    if matrix:
        others = {**stated, **chosen}
        if run_file is not None and "noise_matrix" in written[0]:
            keys = _correlated_file(run_file, record, {**matrix, **given}, others)
        else:
            keys = _correlated(matrix, others, given, run_file)
        from calipers.measure.correlated import correlated_of

        return correlated_of({**defaults, **keys})
    found = _stated(stated, given, run_file)
    if not chosen:
        return found
    if "selected_mean" not in chosen or isinstance(found, EventFile):
        raise InputError("--trials is about --selected-mean, the mean number of runs; an event selects by itself.")
    mean, kind = chosen["selected_mean"], chosen.get("trials", "geometric")
    base = found if found is not None else runs(*written[1])
    from calipers.measure import Selection

    return Selection(base, mean, kind, chosen.get("trials_shape"))


def _count(deviation: object) -> float:
    """Of the noise on the count; a record that is added or removed moves the count by 1/2."""
    from calipers.mechanisms.gaussian import NOISE

    least = Domain(NOISE.low / 2.0, math.inf)
    return least.check("clip_count_noise", deviation, "With less noise on the count nothing is private.")


def _several(value: object) -> tuple[float, ...]:
    """One number of a file, or several."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)  # type: ignore[return-value]  # checked later


def _correlated_file(
    run_file: str, record: dict[str, Any], changed: dict[str, Any], others: dict[str, Any]
) -> dict[str, Any]:
    """The keys of a run file with a noise matrix, which is looked for next to the file."""
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise InputError(f"{run_file} describes correlated noise, and {names} mean nothing there; leave them out.")
    keys = {key: value for key, value in record.items() if key != "calipers"} | changed
    if isinstance(keys["noise_matrix"], str) and keys["noise_matrix"] != TREE and run_file != STANDARD_INPUT:
        keys["noise_matrix"] = str(Path(run_file).parent / keys["noise_matrix"])
    return keys


def _correlated(
    matrix: dict[str, Any], others: dict[str, Any], given: dict[str, object], run_file: str | None
) -> dict[str, Any]:
    names = [f"--{name.replace('_', '-')}" for name in others] + (["RUN"] if run_file is not None else [])
    if names or "noise_matrix" not in matrix:
        raise InputError(
            f"--noise-matrix describes a run together with --noise-multiplier and --steps; got {', '.join(names)}."
            if names
            else "--min-separation, --max-participations and --fixed-order are about --noise-matrix; name the file."
        )
    return {**matrix, **given}


def _stated(stated: dict[str, Any], given: dict[str, object], run_file: str | None) -> Guarantee | EventFile | None:
    if not stated:
        return None if run_file is None or given else load_guarantee(run_file)
    stated = dict(stated)
    times = stated.pop("times", 1)
    if not stated or ("event" in stated and times > 1):
        raise InputError("--times says how many releases each have the --guarantee or the --mu that is given.")
    others = [f"--{name.replace('_', '-')}" for name in given if name != "adjacency"]
    others += ["RUN"] if run_file is not None else []
    if len(stated) > 1 or others:
        names = ", ".join([*(f"--{name}" for name in stated), *others])
        raise InputError(f"{names} contradict each other: state one guarantee, or describe a run.")
    named = {"adjacency": str(given["adjacency"])} if "adjacency" in given else {}
    if "event" in stated:
        return EventFile(stated["event"], **named)
    if "guarantee" in stated:
        return Guarantee.parse(stated["guarantee"], named.get("adjacency"), times)
    kind, value = next(iter(stated.items()))
    try:
        said = {"mu" if kind == "mu" else "rho": value, "times": times} | named
        return Guarantee(**said)
    except InputError as error:
        raise InputError(str(error).replace("rho=", "--zcdp ").replace("rho in", "--zcdp in")) from error


def load_subject(name: str) -> Subject:
    """What a file describes: a run, with correlated noise or what is selected too, a guarantee, or an event (JSON)."""
    if name.lower().endswith(".json"):
        return EventFile(name)
    return (
        menu_of(name, ())
        or _subject([{}, {}, {}, {}], {}, name, lambda *keys: load_runs(name, other_keys=keys), {})
        or load_runs(name)
    )
