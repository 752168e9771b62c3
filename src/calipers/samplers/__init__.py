"""Batch samplers that draw, and state the law they draw from.

Each sampler is a frozen dataclass. `batches(rng)` yields index arrays one batch at a time, without
ever holding the dataset's indices; `law()` returns the `SamplerLaw` that the accounting reads.

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

The guarantees hold for a generator whose output the adversary cannot predict. NumPy's default
generator is statistically sound but not cryptographic: keep its seed secret and take it from the
operating system's entropy (`numpy.random.default_rng()`) when privacy and not repetition is the aim.
"""

from __future__ import annotations

from calipers.samplers.balls_and_bins import BallsAndBins
from calipers.samplers.cyclic_poisson import CyclicPoisson
from calipers.samplers.deterministic import Deterministic
from calipers.samplers.fixed_size import FixedSize
from calipers.samplers.law import Sampler, SamplerLaw
from calipers.samplers.poisson import Poisson
from calipers.samplers.random_allocation import RandomAllocation
from calipers.samplers.shuffle import Shuffle
from calipers.samplers.truncated_poisson import TruncatedPoisson

__all__ = [
    "BallsAndBins",
    "CyclicPoisson",
    "Deterministic",
    "FixedSize",
    "Poisson",
    "RandomAllocation",
    "Sampler",
    "SamplerLaw",
    "Shuffle",
    "TruncatedPoisson",
]
