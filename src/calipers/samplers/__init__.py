"""The samplers Calipers knows: one file each, how it draws and its analysis, registered here and nowhere else.

A sampler that draws is a frozen dataclass. `batches(rng)` yields index arrays one batch at a time, without ever holding
the dataset's indices; `law()` returns the `SamplerLaw` that says what is drawn. Its `Scheme` (`analysis.py`) analyzes a
run that was drawn so: upper bounds and attacks.

| sampler | a record in an epoch of M rounds | batch size | positions revealed by the others |
|---|---|---|---|
| `Poisson` | each round with probability q | Binomial(N, q) | no |
| `BallsAndBins` | exactly one round, uniform | Binomial(N, 1/M), adding up to N | no |
| `Shuffle` | one round, uniform, unless dropped | B | yes |
| `Deterministic` | one round, known beforehand | B | yes |
| `FixedSize` | each round with probability B/N, or B draws | B | yes |
| `TruncatedPoisson` | each round with probability q, unless dropped | Binomial(N, q), at most a limit | if full |
| `CyclicPoisson` | every round of its group with probability q | Binomial(N/groups, q) | no |
| `RandomAllocation` | exactly k of all rounds, uniform | Binomial(N, k/t) | no |

The guarantees hold for a generator whose output the adversary cannot predict. NumPy's default generator is
statistically sound but not cryptographic: keep its seed secret and take it from the operating system's entropy
(`numpy.random.default_rng()`) when privacy and not repetition is the aim.

A file is imported when it is first asked for: it needs numpy and scipy, which a command's help does not.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING

from calipers.run_keys import OWN_KEYS

if TYPE_CHECKING:
    from calipers.run_fields import RunFields
    from calipers.samplers.analysis import Scheme
    from calipers.samplers.balls_and_bins import BallsAndBins as BallsAndBins
    from calipers.samplers.cyclic_poisson import CyclicPoisson as CyclicPoisson
    from calipers.samplers.deterministic import Deterministic as Deterministic
    from calipers.samplers.fixed_size import FixedSize as FixedSize
    from calipers.samplers.law import Sampler as Sampler
    from calipers.samplers.law import SamplerLaw as SamplerLaw
    from calipers.samplers.poisson import Poisson as Poisson
    from calipers.samplers.random_allocation import RandomAllocation as RandomAllocation
    from calipers.samplers.shuffle import Shuffle as Shuffle
    from calipers.samplers.truncated_poisson import TruncatedPoisson as TruncatedPoisson

_SCHEMES = {
    "poisson": "poisson.PoissonScheme",
    "shuffle": "shuffle.ShuffleScheme",
    "balls-and-bins": "balls_and_bins.BallsAndBinsScheme",
    "deterministic": "deterministic.DeterministicScheme",
    "without-replacement": "fixed_size.WithoutReplacementScheme",
    "with-replacement": "fixed_size.WithReplacementScheme",
    "truncated-poisson": "truncated_poisson.TruncatedPoissonScheme",
    "cyclic-poisson": "cyclic_poisson.CyclicPoissonScheme",
    "random-allocation": "random_allocation.RandomAllocationScheme",
}
_DRAWING = {
    "BallsAndBins": "balls_and_bins",
    "CyclicPoisson": "cyclic_poisson",
    "Deterministic": "deterministic",
    "FixedSize": "fixed_size",
    "Poisson": "poisson",
    "RandomAllocation": "random_allocation",
    "Sampler": "law",
    "SamplerLaw": "law",
    "Shuffle": "shuffle",
    "TruncatedPoisson": "truncated_poisson",
}
SAMPLERS = tuple(_SCHEMES)
ASSUMED = "poisson"
"""The sampler that the standard accounting assumes, whatever was executed."""


def __getattr__(name: str) -> object:
    """The classes that draw."""
    if name in _DRAWING:
        return getattr(import_module(f"calipers.samplers.{_DRAWING[name]}"), name)
    raise AttributeError(f"module 'calipers.samplers' has no attribute {name!r}")


@functools.cache
def scheme_named(name: str) -> Scheme:
    """The scheme of a registered sampler.

    Args:
        name: one of `SAMPLERS`.

    Returns:
        What depends on how it draws batches; one object for all runs.
    """
    module, kind = _SCHEMES[name].split(".")
    scheme: Scheme = getattr(import_module(f"calipers.samplers.{module}"), kind)()
    return scheme


def scheme_of(run: RunFields) -> Scheme:
    """The scheme of a run's sampler.

    Args:
        run: any run.

    Returns:
        `scheme_named` of its sampler.
    """
    return scheme_named(run.sampler)


def having(key: str) -> tuple[str, ...]:
    """The samplers to which a key of a run means something.

    Args:
        key: a key of a run, such as "batch_size".

    Returns:
        Their names; none for a key that all samplers have.
    """
    return OWN_KEYS.get(key, ())


def only_for(key: str, meaning: str) -> str:
    """What a key means, behind the samplers that have it.

    Args:
        key: a key that only some samplers have.
        meaning: in words.

    Returns:
        "shuffle, balls-and-bins: ..."
    """
    return f"{', '.join(having(key))}: {meaning}"
