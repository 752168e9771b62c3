"""probe.jax on steps of JAX: a right one, mistakes, and a step written like JAX-Privacy's own example."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from calipers.adapters import probe
from calipers.errors import InputError
from calipers.probing.probe import ProbeReport

library = pytest.importorskip("jax_privacy", reason="JAX-Privacy comes with the extra jax-privacy")
jax = pytest.importorskip("jax")
pytestmark = [
    pytest.mark.jax_privacy,
    # JAX-Privacy calls a function of optax by its old name.
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning"),
]

NOISE, NORM, BATCH = 2.0, 0.5, 10
# Compiled once for each batch size: the loss is one function for all steps.
compiled = functools.partial(jax.jit, static_argnums=0)


def drawn(key: Any, tree: Any, *, one_key: bool = False) -> Any:
    leaves, shape = jax.tree.flatten(tree)
    keys = [key] * len(leaves) if one_key else list(jax.random.split(key, len(leaves)))
    return jax.tree.unflatten(shape, [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)])


def released(total: Any, noise: Any) -> Any:
    return jax.tree.map(lambda a, b: (a + NOISE * NORM * b) / BATCH, total, noise)


@compiled
def right(loss: Any, params: Any, batch: Any, key: Any, is_padding_example: Any) -> Any:
    total = library.clipped_grad(loss, l2_clip_norm=NORM, batch_argnums=1)(
        params, batch, is_padding_example=is_padding_example
    )
    return released(total, drawn(key, total))


@compiled
def one_key(loss: Any, params: Any, batch: Any, key: Any, is_padding_example: Any) -> Any:
    total = library.clipped_grad(loss, l2_clip_norm=NORM, batch_argnums=1)(
        params, batch, is_padding_example=is_padding_example
    )
    return released(total, drawn(key, total, one_key=True))


@compiled
def fixed_key(loss: Any, params: Any, batch: Any, key: Any, is_padding_example: Any) -> Any:
    return right(loss, params, batch, jax.random.key(0), is_padding_example)


@compiled
def clips_mean(loss: Any, params: Any, batch: Any, key: Any) -> Any:
    mean = jax.tree.map(lambda leaf: leaf / max(1, len(jax.tree.leaves(batch)[0])), jax.grad(loss)(params, batch))
    norm = jax.numpy.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(mean)))
    clipped = jax.tree.map(lambda leaf: leaf * jax.numpy.minimum(1.0, NORM / (norm + 1e-12)), mean)
    return jax.tree.map(lambda a, b: a + NOISE * NORM / BATCH * b, clipped, drawn(key, mean))


@compiled
def silent(loss: Any, params: Any, batch: Any, key: Any) -> Any:
    return jax.grad(loss)(params, batch)


def probed(step: Any, **settings: Any) -> ProbeReport:
    return probe.jax(step, **({"noise_multiplier": NOISE, "max_grad_norm": NORM, "batch_size": BATCH} | settings))


def test_a_right_step_is_left_alone() -> None:
    """Clipped sums by JAX-Privacy, noise with a key for each leaf; batches that are not shown are not guessed."""
    report = probed(right)
    assert report.alarms == ()
    assert report.finding("sampler").verdict == "not seen: no batches were shown"
    assert report.run is None


def test_with_batches_and_a_plain_sum_there_is_a_run() -> None:
    """Nothing is divided, so one dataset size is enough; that it was one is said beside the run."""

    def step(loss: Any, params: Any, batch: Any, key: Any, is_padding_example: Any) -> Any:
        return jax.tree.map(lambda leaf: BATCH * leaf, right(loss, params, batch, key, is_padding_example))

    def batches(epochs: int, rng: np.random.Generator) -> Any:
        return (np.flatnonzero(rng.random(60) < 1 / 6) for _ in range(6 * epochs))

    report = probed(step, batches=batches, dataset_size=60)
    assert report.run is not None
    assert (report.run.sample_rate, report.run.noise_multiplier, report.run.normalization) == (1 / 6, NOISE, "none")
    assert "one dataset size" in report.caveats[0]


@pytest.mark.parametrize(
    ("step", "subject", "says"),
    [
        (one_key, "noise correlation", "receive the same noise"),
        (fixed_key, "noise", "every step of every run adds the same vector"),
        (clips_mean, "clipping", "clips the averaged gradient of the batch"),
        (silent, "noise", "none: steps on zero gradients return zeros"),
    ],
)
def test_mistakes_are_named(step: Any, subject: str, says: str) -> None:
    """One key for all leaves, one key for ever, the clipped mean, no noise and no clipping."""
    report = probed(step)
    assert says in report.finding(subject).verdict
    assert report.run is None


def test_the_noise_of_the_raw_example_is_larger_than_accounted() -> None:
    """Like the library's example in raw JAX, which adds noise of deviation multiplier x 2 C to the clipped *mean*.

    Against the sum that is twice the batch size times what was calibrated.
    """
    step_noise = library.noise_addition.gaussian_privatizer(stddev=1.5 * 2 * NORM, prng_key=jax.random.key(0))

    @compiled
    def example(loss: Any, params: Any, batch: Any, key: Any, is_padding_example: Any) -> Any:
        total = library.clipped_grad(loss, l2_clip_norm=NORM, batch_argnums=1)(
            params, batch, is_padding_example=is_padding_example
        )
        mean = jax.tree.map(lambda leaf: leaf / BATCH, total)
        _, *rest = state if isinstance(state := step_noise.init(params), tuple) else (state,)
        return step_noise.update(mean, (key, *rest))[0]

    verdict = probed(example, noise_multiplier=1.5).finding("noise").verdict
    assert verdict.startswith("Gaussian, but not of multiplier 1.5: estimated")
    assert float(verdict.split("estimated ")[1].split()[0]) == pytest.approx(1.5 * 2 * BATCH, rel=0.02)


def test_a_step_that_returns_something_else_is_refused() -> None:
    """The released gradient is a tree like params."""
    with pytest.raises(InputError, match="a tree of the shapes of params"):
        probed(lambda loss, params, batch, key: 0.0)
