"""Events of Google's dp_accounting as Calipers measurements, and runs as events.

An event describes what was released, an accountant bounds it from above. Calipers reads the same
event and bounds it from both sides::

    import dp_accounting
    from calipers.adapters.dp_accounting import measurement_of

    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    event = dp_accounting.SelfComposedDpEvent(step, 1000)
    bracket = measurement_of(event).epsilon(delta=1e-5)
    assert 1.827 < bracket.lower <= bracket.upper < 1.830

**What is read.** A composition, however nested, is a bag of releases with multiplicities: adaptive
composition is dominated by the product of the releases' pairs, and the product is attained. The
neighboring relation, which an event does not state, is an argument:

| release                     | add-remove, zero-out      | substitute                            |
|-----------------------------|---------------------------|---------------------------------------|
| Gaussian, noise s           | N(1/s, 1)                 | N(2/s, 1)                             |
| Laplace, discrete Laplace   | shift by the L1 norm C    | shift by 2C                           |
| Poisson-sampled Gaussian    | 1 - q + q L, both orders  | opposite gradients, same coin         |
| Poisson-sampled Laplace, .. | 1 - q + q L, both orders  | refused: no pair is proven            |
| randomized response         | zero-out: random bucket   | two buckets                           |

Poisson sampling around a *composition* is refused: one coin then decides about all releases inside,
and they are no product. An event is believed: nothing in it says how batches were really drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from calipers.adapters.event_json import library as library_of_events
from calipers.adapters.event_pairs import Subsampled, bucket_response, discrete_laplace
from calipers.adapters.event_releases import PAIRS, READERS, is_silent, truncated_release
from calipers.bracket import Side
from calipers.citations import implements
from calipers.domains import PROBABILITY, TOLERANCE, Domain, choice
from calipers.errors import InputError, UnsupportedError
from calipers.guarantee import GuaranteeSubject
from calipers.measure.bounds import Bounds, gaussians
from calipers.measure.composed import Composition, composition
from calipers.measure.guarantees import evaluation_of, no_release, stated_measurement
from calipers.measure.measurement import Measurement
from calipers.measure.routes import gaussian_releases
from calipers.measure.selection import selected
from calipers.mechanisms.classic import laplace
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.mechanisms.selection import Trials
from calipers.mechanisms.sided import Sided
from calipers.phases import as_phases
from calipers.pld.composition.product import Product
from calipers.pld.core.pair import Pair
from calipers.pld.core.profile_pmf import pmf_of_curve
from calipers.pld.core.source import KnownPmfs, TwoSidedPair
from calipers.run import ADJACENCIES, Run
from calipers.samplers import scheme_of
from calipers.synonyms import adjacency_named

if TYPE_CHECKING:
    from dp_accounting import DpEvent, NeighboringRelation

COUNT = Domain(0, 2**53, integer=True)
RELATIONS = {"add-remove": "ADD_OR_REMOVE_ONE", "zero-out": "REPLACE_SPECIAL", "substitute": "REPLACE_ONE"}
_LONGEST = 300


class _EventRelease(NamedTuple):
    """One release that cannot be taken apart: its kind, its parameters, and the rate of Poisson sampling."""

    kind: str
    parameters: tuple[float, ...]
    rate: float = 1.0
    inner: tuple[tuple[_EventRelease, int], ...] = ()


_SUPPORTED = (
    "supported are NoOp, Gaussian, Laplace, DiscreteLaplace and RandomizedResponse events, Poisson sampling of one "
    "of the first four, those of calipers.adapters.event_releases, selection (RepeatAndSelect), and "
    "(self-)compositions of all of these"
)
_REFUSALS = {
    "NonPrivateDpEvent": "it releases data without noise, so no finite epsilon holds",
    "SampledWithReplacementDpEvent": "describe the run instead: sampler 'with-replacement' is measured",
    "SampledWithoutReplacementDpEvent": "describe the run instead: sampler 'without-replacement' is measured",
    "UnsupportedDpEvent": "it says nothing about what was released",
}


def _name(event: DpEvent, library: Any) -> str:
    """The class name of a genuine event; a subclass by another author may mean something else."""
    if not isinstance(event, library.DpEvent):
        raise InputError(f"Expected a dp_accounting.DpEvent, got {type(event).__name__}.")
    name = type(event).__name__
    return name if getattr(library.dp_event, name, None) is type(event) else f"{type(event).__module__}.{name}"


def _collected(event: DpEvent, library: Any) -> dict[_EventRelease, int]:
    """The releases of an event with their multiplicities, in order of appearance."""
    found: dict[_EventRelease, int] = {}
    for part, times in _parts(event, library):
        found[part] = found.get(part, 0) + times
    return {release: COUNT.check_int("count", times) for release, times in found.items() if times}


def _parts(event: DpEvent, library: Any) -> list[tuple[_EventRelease, int]]:
    name = _name(event, library)
    if name == "NoOpDpEvent":
        return []
    if name == "ComposedDpEvent":
        return [part for inner in event.events for part in _parts(inner, library)]
    if name == "SelfComposedDpEvent":
        times = COUNT.check_int("count", event.count)
        return [(release, times * count) for release, count in _collected(event.event, library).items()]
    if name == "PoissonSampledDpEvent":
        return _sampled(event, library)
    if name == "RepeatAndSelectDpEvent":
        return _selected(event, library)
    if name not in READERS:
        reason = _REFUSALS.get(name, "no pair is known to Calipers for it")
        raise UnsupportedError(f"{name} cannot be measured: {reason}; {_SUPPORTED}.")
    kind, read = READERS[name]
    parameters = read(event)
    return [] if is_silent(kind, parameters) else [(_EventRelease(kind, parameters), 1)]


def _selected(event: DpEvent, library: Any) -> list[tuple[_EventRelease, int]]:
    """The best of several; selecting among runs that show nothing shows nothing."""
    trials = Trials(float(event.mean), float(event.shape))
    inner = tuple(_collected(event.event, library).items())
    if not inner or trials.single:
        return list(inner)
    return [(_EventRelease("selection", (trials.mean, trials.shape), inner=inner), 1)]


def _sampled(event: DpEvent, library: Any) -> list[tuple[_EventRelease, int]]:
    rate = PROBABILITY.check("sampling_probability", event.sampling_probability)
    inner = list(_collected(event.event, library).items())
    if rate == 0.0 or not inner:
        return []
    if rate == 1.0:
        return inner
    (release, count), *others = inner
    if count != 1 or others:
        raise UnsupportedError(
            "PoissonSampledDpEvent around a composition cannot be measured: one coin decides about all releases "
            "inside, so they are not independent. If every release draws its own batch, sample each of them and "
            "compose outside: SelfComposedDpEvent(PoissonSampledDpEvent(q, event), count)."
        )
    if release.rate != 1.0:
        raise UnsupportedError(
            "PoissonSampledDpEvent inside PoissonSampledDpEvent cannot be measured; multiply the two sampling "
            "probabilities and write one."
        )
    if release.kind in PAIRS or release.kind in ("selection", "randomized response"):
        raise UnsupportedError(
            f"PoissonSampledDpEvent of a release of kind {release.kind!r} cannot be measured: what is shown of a "
            "record that was not drawn is not defined, or no pair is proven."
        )
    return [(release._replace(rate=rate), 1)]


@implements("zhu2022:thm11", "calipers:substitute-pair", "calipers:norm-path")
def _pair_of(release: _EventRelease, adjacency: str) -> TwoSidedPair:
    """The pair that dominates one release, and is attained."""
    kind, parameters, rate, _ = release
    if kind in PAIRS:
        if kind == "mixture" and adjacency == "substitute":
            raise UnsupportedError(
                "MixtureOfGaussiansDpEvent is about adding or removing a record; use 'add-remove' or 'zero-out'."
            )
        return truncated_release(parameters, adjacency) if kind == "truncated" else PAIRS[kind](parameters)
    if kind == "selection":
        found = _selection(release, adjacency)
        known = KnownPmfs({side: pmf_of_curve(found.bound(side).curve(1e-14, 1e-3)) for side in Side}, symmetric=True)
        return Sided(Trials(*parameters).words, known, known)
    reach = 2 if adjacency == "substitute" else 1
    if kind == "Gaussian":
        return poisson_gaussian(rate, parameters[0], adjacency)
    if kind == "randomized response":
        if adjacency == "add-remove":
            raise UnsupportedError(
                "RandomizedResponseDpEvent cannot be measured under add-remove: one record's answer is there or not. "
                "Use 'substitute' (REPLACE_ONE) or 'zero-out' (REPLACE_SPECIAL)."
            )
        return bucket_response(parameters[0], int(parameters[1]), adjacency)
    inner: Pair = (
        laplace(parameters[0] / reach)
        if kind == "Laplace"
        else discrete_laplace(parameters[0], int(parameters[1]) * reach)
    )
    if rate == 1.0:
        return inner
    if adjacency == "substitute":
        raise UnsupportedError(
            f"Poisson sampling of {kind} noise cannot be measured under 'substitute' (REPLACE_ONE): the worst pair of "
            "records is not proven. Use 'add-remove' (ADD_OR_REMOVE_ONE) or 'zero-out' (REPLACE_SPECIAL)."
        )
    return Subsampled(inner, rate)


def _selection(release: _EventRelease, adjacency: str) -> Bounds:
    return selected(_evaluation(dict(release.inner), adjacency), Trials(*release.parameters))


def _evaluation(releases: dict[_EventRelease, int], adjacency: str) -> Bounds:
    if not releases:
        return no_release()
    total = sum(releases.values())
    if all(release.kind == "Gaussian" and release.rate == 1.0 for release in releases):
        reach = 2.0 if adjacency == "substitute" else 1.0
        shifts = [(reach / release.parameters[0], count) for release, count in releases.items()]
        replaced = ", that of its replacement -u" if adjacency == "substitute" else ""
        played = f"The record's clipped gradient is u, a unit vector, in every release{replaced}, all others are zero."
        return gaussians(shifts, f"The record takes part in {gaussian_releases(total)}.", played)
    if total == 1 and next(iter(releases)).kind == "selection":
        return _selection(next(iter(releases)), adjacency)
    factors = [(_pair_of(release, adjacency), count) for release, count in releases.items()]
    if any(release.kind in PAIRS or release.kind == "selection" for release in releases):
        return evaluation_of(Product(factors))
    names = "; ".join(f"{count} x {source.words}" for source, count in factors[:4])
    if len(factors) > 4:
        names += f"; and {len(factors) - 4} more"
    sampled = any(release.rate != 1.0 for release in releases)
    statement = "zhu2022:thm10"
    if sampled:
        statement = "calipers:substitute-pair" if adjacency == "substitute" else "zhu2022:thm11"
    return composition(
        Composition(Product(factors)),
        f"Each release is dominated by its pair ({adjacency}), all of them by the product of {total} pairs: {names}.",
        statement,
        "In every release the record contributes what its pair assumes (full norm along one direction, or its own "
        "bucket) and the others contribute nothing, so each release attains exactly its pair.",
    )


def _adjacency(value: str | NeighboringRelation) -> str:
    remedy = "A dp_accounting.NeighboringRelation is understood as well."
    return choice("adjacency", adjacency_named(value), ADJACENCIES, remedy)


def measurement_of(
    event: DpEvent, *, adjacency: str | NeighboringRelation = "add-remove", tolerance: float = 1e-3
) -> Measurement:
    """Certified brackets of what a dp_accounting event describes: lower <= truth <= upper.

    `adjacency` is one of Calipers' words or a `NeighboringRelation` (REPLACE_SPECIAL is "zero-out",
    REPLACE_ONE is "substitute"). The measurement has no `runs`; its claim is its own upper bound, because
    the event already is what mainstream accounting takes as given.
    """
    library = library_of_events()
    tolerance = TOLERANCE.check("tolerance", tolerance)
    word = _adjacency(adjacency)
    found = _evaluation(_collected(event, library), word)
    notes = (
        f"Read from a dp_accounting event under {word} adjacency ({RELATIONS[word]}). The event is taken at its word: "
        "it does not say how batches were really drawn or what the noisy sum was divided by; a Run does.",
    )
    stated = GuaranteeSubject(f"A dp_accounting event: {_shown(event)}", (("event", _shown(event)),), word, "event")
    return stated_measurement(stated, found, tolerance, notes)


def _shown(event: DpEvent) -> str:
    """The event as it prints itself, cut where it is long."""
    text = str(event)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def event_of(run: Run | Sequence[Run]) -> DpEvent:
    """The event that says about a run (or its phases) what its measurement relies on.

    An event has no neighboring relation; hand `neighboring_relation_of(run)` to the accountant.
    """
    library = library_of_events()
    phases = as_phases(run)
    events = [_phase_event(phase, library) for phase in phases]
    return events[0] if len(events) == 1 else library.ComposedDpEvent(events)


def _phase_event(run: Run, library: Any) -> DpEvent:
    if run.view != "worst-case":
        raise UnsupportedError(f"view={run.view!r} cannot be written as an event: it assumes a weaker adversary.")
    if run.normalization not in ("none", "constant"):
        raise UnsupportedError(
            f"normalization={run.normalization!r} cannot be written as an event: a noisy sum divided by a number that "
            "depends on the data is no Gaussian mechanism. Measure the run itself, or divide by a public constant."
        )
    if run.records_per_unit > 1:
        raise UnsupportedError(
            f"A {run.unit} of {run.records_per_unit} records cannot be written as an event of one record; measure the "
            "run itself."
        )
    noise = library.GaussianDpEvent(run.noise_multiplier)
    if scheme_of(run).independent:
        return library.SelfComposedDpEvent(library.PoissonSampledDpEvent(run.rate, noise), run.total_steps)
    seen = scheme_of(run).analyze(run).proofs[0]
    if seen.shift is not None and scheme_of(run).analyze(run).closes:
        return library.SelfComposedDpEvent(noise, seen.count)
    raise UnsupportedError(
        f"sampler={run.sampler!r} cannot be written as an event: dp_accounting has none for it, and Poisson sampling "
        "would claim too much. Measure the run itself."
    )


def neighboring_relation_of(run: Run | Sequence[Run]) -> NeighboringRelation:
    """The dp_accounting.NeighboringRelation that means the run's adjacency."""
    return getattr(library_of_events().NeighboringRelation, RELATIONS[as_phases(run)[0].adjacency])
