"""What was executed, fact by fact, each with how it was found out.

    declared   somebody said so: a run file, an option
    attached   a record watched the training (`calipers.adapters.opacus.attach`)
    probed     the implementation was run as a black box (`calipers probe`)
    derived    computed from what was declared: a sample rate B/N

A fact that nobody stated is listed as "not stated": a reader must see the gap. One that the measurement cannot do
without, and for which a default stands in, is listed as "assumed"; so are steps that were computed from epochs by
leaving out what does not fill a batch. A probe shows neither the neighboring relation nor
the length of the training: in its receipts these are declared or assumed.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from calipers.errors import InputError, UnsupportedError
from calipers.gate.receipt_shape import PROBE_FACT, RUN_FACTS, SCOPE_FACTS, STATED_FACTS, WAYS
from calipers.run import Run
from calipers.run_meanings import DEFAULTS
from calipers.scope import (
    FIXED,
    assumed_settings,
    batches_text,
    last_batch_matters,
    leaves_over,
    neighbors_text,
    unit_text,
)

DECLARED, ATTACHED, PROBED = WAYS
UNSTATED, ASSUMED, DERIVED = "not stated", "assumed", "derived"
CLIPPING, NOISE = STATED_FACTS
_MEASURING = ("numpy", "scipy")
_TRAINING = (
    "torch",
    "opacus",
    "jax",
    "jax-privacy",
    "dp-accounting",
    "lightning",
    "transformers",
    "accelerate",
    "keras",
    "flwr",
    "pfl",
)


@dataclasses.dataclass(frozen=True)
class Executed:
    """The run, and what is known about it; `attained` false: the run only bounds what was executed from above."""

    how: str
    runs: tuple[Run, ...]
    attained: bool = True
    reasons: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    facts: tuple[tuple[str, object, str], ...] = ()
    observations: Mapping[str, object] = dataclasses.field(default_factory=dict)
    libraries: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """The key "executed" of a receipt."""
        return {
            "how": self.how,
            "attained": self.attained,
            "reasons": list(self.reasons),
            "conditions": list(self.conditions),
            "facts": [{"fact": fact, "value": value, "how": how} for fact, value, how in self.facts],
            "observations": dict(self.observations),
        }


def run_facts(runs: Sequence[Run], how: str) -> tuple[tuple[str, object, str], ...]:
    """What the run itself says, and in words what its numbers are about; of several phases, one value for each."""
    if not runs:
        return ()
    said: dict[str, list[object]] = {fact: [getattr(run, name) for run in runs] for fact, name in RUN_FACTS.items()}
    for fact, words in zip(SCOPE_FACTS, (batches_text, neighbors_text, unit_text), strict=True):
        said[fact] = [words(run) for run in runs]
    known = dict.fromkeys(derived(runs, how), DERIVED)
    known |= dict.fromkeys({fact for run in runs for fact in _assumed(run)} & set(assumable(runs, how)), ASSUMED)
    return tuple(
        (fact, values[0] if len(values) == 1 else values, known.get(fact, how)) for fact, values in said.items()
    )


_BATCHES, _NEIGHBORS, _UNIT = SCOPE_FACTS
_UNSEEN = ("adjacency", "view", _NEIGHBORS, _UNIT)
"""What nobody can see in a training, watched or probed: it is a choice of whoever reports."""
_LENGTH, _RATE = "steps", "sample rate"
_DRAWN = {"sampler", "reshuffle", "derived_rate"}
"""What the words about batches say, beside what becomes of the last one."""
UNPROBED = (*_UNSEEN, _LENGTH)
"""What a probe does not see; earlier versions called it probed all the same."""


def derived(runs: Sequence[Run], how: str) -> tuple[str, ...]:
    """The facts that were computed from what was declared, and not seen: the rate, where nobody named one."""
    return (_RATE,) * (how == DECLARED and any(run.sample_rate is None for run in runs))


def _assumed(run: Run) -> tuple[str, ...]:
    """The facts for which a default stands in, because nobody named the key."""
    facts = [fact for fact, name in RUN_FACTS.items() if name in run.assumed]
    facts += [_BATCHES] * (last_batch_matters(run) or not _DRAWN.isdisjoint(assumed_settings(run)))
    facts += [_LENGTH] * ("last_batch" in run.assumed and leaves_over(run))
    return (*facts, *[_NEIGHBORS] * ("adjacency" in run.assumed), *[_UNIT] * (run.unit is None))


def assumable(runs: Sequence[Run], how: str) -> tuple[str, ...]:
    """The facts that may be called assumed: in some phase they have the value that a default has.

    Args:
        runs: the phases, which need not know any more which keys were named.
        how: the run was found out.

    Returns:
        Their names; where the training was watched or probed, only those that cannot be seen in it.
    """
    usual = [fact for fact, name in RUN_FACTS.items() if any(getattr(r, name) == DEFAULTS.get(name) for r in runs)]
    near = any(run.adjacency != "substitute" for run in runs)
    drawn = any(
        r.sampler == DEFAULTS["sampler"]
        or ("last_batch" in r.to_dict() and r.last_batch == "drop")
        or ("reshuffle" in r.to_dict() and r.reshuffle == DEFAULTS["reshuffle"])
        for r in runs
    )
    usual += [_LENGTH] * any(map(leaves_over, runs))
    usual += [*("adjacency", _NEIGHBORS) * near, *(_UNIT,) * any(r.unit is None for r in runs), *(_BATCHES,) * drawn]
    return tuple(fact for fact in usual if how == DECLARED or fact in _UNSEEN)


def declared(runs: tuple[Run, ...], **stated: object) -> Executed:
    """A run that somebody describes; `stated` may say clipping, noise_source and libraries."""
    facts = (*run_facts(runs, DECLARED), *_stated(stated))
    return Executed(DECLARED, runs, conditions=(FIXED,), facts=facts, libraries=_named(stated))


def attached(record: Any, **stated: object) -> Executed:
    """A training that was watched: what the record saw comes before what somebody says.

    Raises:
        UnsupportedError: its steps were chosen while training, so there is no run that could be measured again.
    """
    paid_from = getattr(record, "privacy_filter", None)
    if paid_from is not None:
        raise UnsupportedError(
            f"A receipt states a run that can be measured again, and these steps were chosen while training, within a "
            f"privacy filter for {paid_from.target}. Hand over PrivacyFilter.to_dict(), or the filter's file."
        )
    facts = dict(record.facts)
    measured = record.measure()
    runs, reasons = tuple(record.runs()), tuple(record.why_not())
    norms = facts.get("clipping norms realized", [])
    seen = (
        *run_facts(runs, ATTACHED),
        (CLIPPING, norms[0] if len(norms) == 1 else norms, ATTACHED),
        (NOISE, facts.get("noise source", UNSTATED), ATTACHED),
    )
    return Executed(
        ATTACHED, runs, record.attained(), reasons, tuple(measured.conditions), seen, facts,
        {**_imported(), **_named(stated)},
    )  # fmt: skip


def probed(
    report: Mapping[str, Any], length: Mapping[str, object], written: Run | None = None, /, **stated: object
) -> Executed:
    """What `calipers probe --json` found, for a training of this length.

    Args:
        report: what the probe printed.
        length: epochs or steps of the training, if somebody named them; a probe sees one epoch.
        written: the run as a file describes it; without one it is that of the probe.
        stated: as for `declared`.

    Returns:
        The run; what no probe can see (neighbors, adversary, unit, length) is declared or assumed.

    Raises:
        InputError: the report is none of a probe.
    """
    if not isinstance(report.get("findings"), list):
        raise InputError("Expected what `calipers probe --json` prints.")
    found = [finding for finding in report["findings"] if isinstance(finding, dict)]
    facts = tuple((f"{PROBE_FACT}{one.get('subject')}", one.get("verdict"), PROBED) for one in found)
    observed = {key: report.get(key) for key in ("target", "error_probability", "caveats", "unseen")}
    observed["findings"] = found
    if report.get("run") is None:
        why = str(report.get("reason") or "the probe found no run that describes the implementation.")
        return Executed(PROBED, (), False, (why,), (), (*facts, *_stated(stated)), observed, _named(stated))
    run = written or Run.from_dict(report["run"])
    runs = (run.replace(**length) if length else run,)
    # The run of a probe names every key, so there all that may be a default is one.
    by_default = assumable(runs, PROBED) if written is None else _assumed(runs[0])
    unseen = {fact: ASSUMED if fact in by_default else DECLARED for fact in UNPROBED[:-1]}
    unseen[_LENGTH] = DECLARED if length or written is not None else PROBED
    alarms = tuple(f"{one.get('subject')}: {one.get('verdict')}" for one in found if one.get("alarm"))
    own = tuple((fact, value, unseen.get(fact, how)) for fact, value, how in run_facts(runs, PROBED))
    said = (*own, *facts, *_stated(stated))
    return Executed(PROBED, runs, True, (), (*alarms, FIXED), said, observed, _named(stated))


def refuse_contradiction(runs: Sequence[Run], report: Mapping[str, Any]) -> None:
    """A run file and a probe of the same implementation must agree in what both say."""
    if not isinstance(report.get("run"), dict):
        raise InputError("The probe found no run that describes the implementation, so the run file cannot be it.")
    found = Run.from_dict(report["run"])
    for run in runs:
        for name in ("sampler", "normalization", "dataset_size"):
            if getattr(run, name) != getattr(found, name):
                raise InputError(
                    f"The run says {name}={getattr(run, name)!r}, the probe found {getattr(found, name)!r}; write down "
                    "what is executed."
                )
        if abs(run.rate - found.rate) > 1e-9 * found.rate or run.noise_multiplier != found.noise_multiplier:
            raise InputError(
                f"The run says sample rate {run.rate!r} and noise_multiplier {run.noise_multiplier!r}, the probe found "
                f"{found.rate!r} and {found.noise_multiplier!r}; write down what is executed."
            )


def _stated(stated: Mapping[str, object]) -> tuple[tuple[str, object, str], ...]:
    named = ((CLIPPING, stated.get("max_grad_norm")), (NOISE, stated.get("noise_source")))
    return tuple((name, value, UNSTATED if value is None else DECLARED) for name, value in named)


def _named(stated: Mapping[str, object]) -> dict[str, str]:
    libraries = stated.get("libraries") or {}
    assert isinstance(libraries, Mapping)
    return {str(name): str(version) for name, version in libraries.items()}


def _imported() -> dict[str, str]:
    """Versions of training libraries that this very process has imported."""
    found = {}
    for name in _TRAINING:
        if name.replace("-", "_") in sys.modules:
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
    return found


def measuring_libraries() -> dict[str, str]:
    """What the measurement itself was computed with."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {"python": python, **{name: metadata.version(name) for name in _MEASURING}}
