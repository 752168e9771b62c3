"""Random allocation: every record takes part in exactly k of all t steps, drawn uniformly and independently.

The likelihood ratio of a record is an elementary symmetric mean of the steps' ratios
(`calipers.laws.allocated.several_rounds`). With k = 1 it is a record hidden in one of t batches, and the bracket
closes.
"""

from __future__ import annotations

import functools

from calipers.domains import Domain
from calipers.errors import InputError
from calipers.laws.allocated.several_rounds import several_rounds_attack, several_rounds_proof, tilts_for
from calipers.laws.composed.shuffle_product import AttackProduct
from calipers.run_fields import RunFields
from calipers.schemes.dealt import hidden, hidden_noise
from calipers.schemes.exposure import Attack, Exposure, Proof, Proven, Shown, known_times
from calipers.schemes.scheme import Scheme

STATEMENT = "calipers:several-rounds"
_MANY_STEPS, _LOOKED_AT = 20_000, (1e-5, 1e-10)
"""Of so many steps only attacks that look best at one of these deltas are composed; of fewer, all are."""


class RandomAllocationScheme(Scheme):
    """k of t."""

    name = "random-allocation"
    summary = "k of all steps"
    whole_epochs = False
    drawn_by = "RandomAllocation"

    def check(self, run: RunFields) -> None:
        """k of t steps, and a batch size that says the same."""
        if run.steps is None:
            raise InputError(f"sampler={self.name!r} draws participations of all steps; give steps instead of epochs.")
        assert run.participations is not None
        if run.participations > run.steps:
            raise InputError(
                f"Expected participations <= steps, got participations={run.participations} of {run.steps} steps."
            )
        share = run.participations / run.steps
        said = run.sample_rate
        if run.sizes is not None:
            expected = run.sizes[0] * share
            if abs(run.sizes[1] - expected) >= 1.0:
                raise InputError(
                    f"{run.participations} of {run.steps} steps put {expected:.6g} records into a batch on average, "
                    f"got batch_size={run.sizes[1]}; leave batch_size out."
                )
        elif said is not None and abs(said - share) > 1e-9 * share:
            raise InputError(
                f"A record takes part in {run.participations}/{run.steps} = {share:.6g} of all steps, got "
                f"sample_rate={said:g}; leave it out."
            )

    def rounds(self, run: RunFields) -> int:
        """The whole run."""
        return run.total_steps

    def counterpart(self, run: RunFields) -> dict[str, object]:
        """As many participations as epochs."""
        steps = run.total_steps
        chosen = max(1, round(steps * run.mean_rate))
        return {"sampler": self.name, "participations": chosen, "steps": steps, "batch_size": None, "sample_rate": None}

    def batches(self, run: RunFields) -> str:
        """In words."""
        return f"randomly allocated batches (each record is in exactly {run.participations} of the steps)"

    def exposure(self, run: RunFields) -> Exposure:
        """Groups of steps above, summed scores below."""
        assert run.participations is not None
        steps, chosen, noise = run.total_steps, run.participations, run.noise_multiplier
        if chosen == steps:
            return known_times(run, steps)
        if chosen == 1:
            return hidden(noise, [(steps, 1.0, 1)], run.adjacency == "substitute")
        above, below = _factors(noise, steps, chosen, run.adjacency)
        proof = Proof(
            *above[0],
            STATEMENT,
            f"The {chosen} steps of a record are one of each of {chosen} groups of about {steps // chosen} steps, "
            "groups that are drawn and revealed",
            beside=above[1:],
        )
        attacks = [_attack(run, factors) for factors in below]
        return Exposure((proof,), attacks[0], tuple(attacks[1:]))

    def noise_range(self, run: RunFields) -> Domain:
        """Of a hidden record."""
        return hidden_noise(run)

    def notes(self, run: RunFields) -> tuple[str, ...]:
        """Independence, and why the bounds differ."""
        return (
            f"Every record takes part in exactly {run.participations} of {run.total_steps} steps, drawn independently "
            "of all others. The exact pair is an elementary symmetric mean of the steps' ratios; above it stands the "
            "allocation to one step of each group, below it a test that sums scores.",
        )


def _attack(run: RunFields, factors: Shown) -> Attack:
    replaced = run.adjacency == "substitute"
    instead = ", its replacement's the opposite one," if replaced else ""
    mean = "e_k(Y_1, ..., Y_t)"
    score = f"log({mean} / e_k(1/Y_1, ..., 1/Y_t)) - t/(2 sigma^2)" if replaced else f"log({mean} / C(t, k))"
    scene = (
        f"The record's clipped gradient is the same unit vector in every step{instead} and all other gradients are "
        f"zero. With x_i the sum of step i along it over sigma, Y_i = exp(x_i/sigma - 1/(2 sigma^2)) and e_k the "
        f"elementary symmetric polynomial, the score of the run is {score}; the certified figure is that of a weaker "
        "test, a sum of log(1 + c Y_i)."
    )
    scene = scene.replace(" - t/(2 sigma^2)", "") if replaced else scene
    return Attack(*factors[0], STATEMENT, scene, one_sided=True, beside=factors[1:])


@functools.lru_cache(maxsize=16)
def _factors(noise: float, steps: int, chosen: int, adjacency: str) -> tuple[Proven, tuple[Shown, ...]]:
    """Those of the proof, and those of every attack."""
    tilts = tilts_for(noise, steps, chosen)
    attacks = [several_rounds_attack(noise, steps, chosen, adjacency, tilt) for tilt in tilts]
    if len(attacks) > 1 and steps >= _MANY_STEPS:
        products = [AttackProduct(factors) for factors in attacks]
        looked = [[product.rough_epsilon(delta) for product in products] for delta in _LOOKED_AT]
        attacks = [attacks[i] for i in sorted({shown.index(max(shown)) for shown in looked})]
    return tuple(several_rounds_proof(noise, steps, chosen, adjacency)), tuple(tuple(factors) for factors in attacks)


SCHEME = RandomAllocationScheme()
