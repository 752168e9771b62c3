"""What is released with the gradient, from the same batch: one joint Gaussian.

A step releases the noisy sum of clipped gradients and, from the same batch, further noisy sums: adaptive clipping
counts how many gradients were not clipped (Andrew et al. 2021), per-layer clipping treats each layer as a release.
In units of each release's own noise a record moves the joint release by a vector of length at most

    1 / sigma_joint = sqrt(1 / sigma_0^2 + 1 / sigma_1^2 + ...),     sigma_i = deviation / sensitivity of release i,

and the noise is a standard Gaussian vector, so the step is one Gaussian of noise multiplier sigma_joint: whatever is
proven about batches drawn by some sampler with that multiplier holds, and it is attained by a record that moves every
release by its full sensitivity.

**Adaptive clipping's count.** Each record adds 1/2 or -1/2 (unclipped or clipped) to a sum with noise of deviation s:
sensitivity 1/2, sigma_1 = 2 s, where a record is added or removed; replaced, it moves gradient and count by twice
that, and so does one that takes the place of another. A record that is zeroed out has a gradient that is not clipped:
it moves the count from -1/2 to 1/2, sensitivity 1 and sigma_1 = s. A gradient whose norm is exactly the clipping norm
is unclipped and has full norm, so the pair is attained; and an attack that plays u against -u plays
1/2 against -1/2 as well, with norms at and above the clipping norm.

**Opacus divides the count by the batch size that came out** (`AdaClipDPOptimizer`), and its ghost clipping with
adaptive norms draws count noise of deviation n/20 and derives the gradient's noise from it, n being that batch size.
Neither is a joint Gaussian: under Poisson sampling the scale of what is released depends on whether the record was
drawn. No pair is proven, so such runs are refused; give the count a fixed deviation and a public divisor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from calipers.citations import implements
from calipers.domains import POSITIVE
from calipers.errors import InputError, UnsupportedError
from calipers.measure.measurement import Measurement
from calipers.measure.routes import measure
from calipers.mechanisms.gaussian import NOISE
from calipers.phases import as_phases
from calipers.run import DATA_DEPENDENT, Run


@implements("andrew2021:thm1")
def joint_noise(*noise_multipliers: float) -> float:
    """The noise multiplier of releases from one batch together: (sum of sigma_i^-2)^(-1/2), rounded down.

    Args:
        noise_multipliers: of each release, its deviation over its sensitivity.

    Returns:
        At most the true joint multiplier, by a relative 1e-15: less noise never leaks less.

    Raises:
        InputError: there is none, or one is not positive.
    """
    checked = [POSITIVE.check("noise_multiplier", noise) for noise in noise_multipliers]
    if not checked:
        raise InputError("Expected at least one noise multiplier, got none.")
    least = min(checked)
    return least / math.sqrt(math.fsum((least / noise) ** 2 for noise in checked)) * (1.0 - 1e-15)


def count_noise(deviation: float, run: Run | Sequence[Run]) -> float:
    """The noise multiplier of adaptive clipping's count next to a run: each record adds 1/2 or -1/2.

    Args:
        deviation: of the noise on the count.
        run: the run, or the phases, whose gradients are clipped.

    Returns:
        Deviation over sensitivity. A record that is zeroed out moves the count by 1, any other by 1/2 for each unit
        that it moves the gradient by.
    """
    zeroed = as_phases(run)[0].adjacency == "zero-out"
    return (1.0 if zeroed else 2.0) * POSITIVE.check("deviation", deviation)


@dataclass(frozen=True)
class JointRelease:
    """A run that releases more from every batch than the gradient; `measure` takes it as it takes a run.

    `noises` are the noise multipliers (deviation / sensitivity) of the other releases.
    """

    of: Run | tuple[Run, ...]
    noises: tuple[float, ...]

    def __post_init__(self) -> None:
        for noise in self.noises:
            POSITIVE.check("additional_query", noise)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The phases, each as one joint Gaussian release per batch."""
        phases = as_phases(self.of)
        for run in phases:
            if run.normalization in DATA_DEPENDENT:
                raise UnsupportedError(
                    f"normalization={run.normalization!r} with something released in addition to the gradient: what "
                    "both are divided by depends on the data, and no pair is proven. Divide by public constants."
                )
        return tuple(run.replace(noise_multiplier=self._joint(run.noise_multiplier)) for run in phases)

    def _joint(self, noise: float) -> float:
        """The joint noise multiplier; one that is too small is refused by the name of what makes it so."""
        joint, least = joint_noise(noise, *self.noises), min(self.noises, default=noise)
        if joint < NOISE.low <= noise:
            raise InputError(
                f"Expected additional_query in [{NOISE.low:g}, inf), and large enough for a joint noise multiplier in "
                f"{NOISE}, got additional_query={least:g}: with the gradient's {noise:g} it is {joint:.3g}, and "
                "nothing is private."
            )
        return joint

    def measured(self, tolerance: float) -> Measurement:
        """The measurement of the joint release, which says so."""
        measurement = measure(self.runs, tolerance=tolerance)
        listed = ", ".join(f"{noise:g}" for noise in self.noises)
        note = (
            f"In addition to the gradient every batch shows {len(self.noises)} more noisy "
            f"sum{'s' * (len(self.noises) > 1)} "
            f"(noise multiplier {listed}): together one Gaussian, whose noise multiplier is the one of the run shown "
            "(Andrew et al. 2021, Theorem 1). A count that is divided by the realized batch size is not covered."
        )
        return dataclasses.replace(measurement, conditions=(note, *measurement.conditions), others_zero=False)
