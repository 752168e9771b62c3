"""What is released beside the gradient: a joint Gaussian, checked by simulation, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import calipers as cp
from calipers.errors import InputError, UnsupportedError
from calipers.measure import JointRelease, count_noise, joint_noise

RUN = cp.Run(sample_rate=0.05, steps=50, noise_multiplier=1.0)


def test_joint_noise_adds_inverse_squares() -> None:
    """3-4-5 the other way round, and Andrew et al.'s correction inverted."""
    assert joint_noise(1 / 3, 1 / 4) == pytest.approx(1 / 5, rel=1e-14)
    gradient = (1.0**-2 - (2 * 12.8) ** -2) ** -0.5
    assert joint_noise(gradient, count_noise(12.8, RUN)) == pytest.approx(1.0, rel=1e-14)
    with pytest.raises(InputError):
        joint_noise()


def test_a_count_costs_and_its_correction_pays_for_it() -> None:
    """A visible count leaks visibly more; gradient noise raised by Theorem 1 brings the run back where it was."""
    alone, joint = cp.measure(RUN).epsilon(1e-5), cp.measure(JointRelease(RUN, (count_noise(1.0, RUN),))).epsilon(1e-5)
    assert joint.lower > alone.upper
    paid = RUN.replace(noise_multiplier=(1.0**-2 - 2.0**-2) ** -0.5)
    back = cp.measure(JointRelease(paid, (count_noise(1.0, paid),))).epsilon(1e-5)
    assert back.lower <= alone.upper
    assert alone.lower <= back.upper


def test_a_zeroed_record_moves_the_count_from_clipped_to_not() -> None:
    """Gradient by 1 and count by 1, each under noise 1: mu = sqrt 2; replaced, by 2 and by 1 under noise 1.

    So is a record of the one batch in whose place another one comes.
    """
    fixed = cp.Run(dataset_size=11, batch_size=10, epochs=1, noise_multiplier=1.0, sampler="deterministic")
    for adjacency, mu in (("zero-out", math.sqrt(2.0)), ("add-remove", math.sqrt(5.0)), ("substitute", math.sqrt(5.0))):
        run = fixed.replace(adjacency=adjacency)
        found = cp.measure(JointRelease(run, (count_noise(1.0, run),))).gdp().mu
        assert found.upper == pytest.approx(mu, rel=1e-11)


def test_simulated_joint_test_agrees() -> None:
    """One Poisson step, the likelihood ratio of (gradient, count) simulated: advantage within five deviations.

    Without the count the advantage is smaller by far more than that.
    """
    rng, trials, rate, noise, deviation = np.random.default_rng(1), 400_000, 0.3, 1.0, 0.5
    drawn = rng.uniform(size=trials) < rate
    gradient = rng.standard_normal(trials) * noise + drawn
    count = rng.standard_normal(trials) * deviation + 0.5 * drawn
    log_joint = (gradient - 0.5) / noise**2 + (0.5 * count - 0.125) / deviation**2
    found = cp.measure(
        JointRelease(cp.Run(sample_rate=rate, steps=1, noise_multiplier=noise), (count_noise(deviation, RUN),))
    ).advantage()
    ratio = 1.0 - rate + rate * np.exp(log_joint)
    gain = np.maximum(1.0 - 1.0 / ratio, 0.0)
    error = 5.0 * float(gain.std()) / math.sqrt(trials)
    assert abs(float(gain.mean()) - found.upper) <= error
    without = cp.measure(cp.Run(sample_rate=rate, steps=1, noise_multiplier=noise)).advantage()
    assert abs(float(gain.mean()) - without.upper) > 4.0 * error


def test_layers_are_releases() -> None:
    """Two layers with their own noise are one Gaussian; every sampler may draw the batches."""
    for sampler in ("poisson", "shuffle", "balls-and-bins", "deterministic"):
        run = cp.Run(dataset_size=1000, batch_size=90, epochs=1, noise_multiplier=3.0, sampler=sampler)
        joint = cp.measure(JointRelease(run, (4.0,)))
        assert joint.run.noise_multiplier == pytest.approx(2.4, rel=1e-11)
        assert joint.epsilon(1e-4) == cp.measure(joint.run).epsilon(1e-4)
        assert "in addition to the gradient" in joint.notes[0].lower()


def test_divisors_that_depend_on_the_data_are_refused() -> None:
    """A realized batch size divides what both releases show."""
    run = cp.Run(
        dataset_size=1000, sample_rate=0.1, steps=5, noise_multiplier=1.0, normalization="realized", dimension=9
    )
    with pytest.raises(UnsupportedError, match="depends on the data"):
        cp.measure(JointRelease(run, (5.0,)))
