"""Noise matrices of JAX-Privacy as `calipers.mechanisms.NoiseMatrix`.

JAX-Privacy names the encoder (strategy) C and adds noise C^-1 Z. Understood are

- `ColumnNormalizedBanded` and whatever else has `materialize()`: the encoder itself;
- `BufferedToeplitz`: `buf_decay` and `output_scale`;
- arrays: two dimensions are C, one is the first column of a Toeplitz C;
- a `StreamingMatrix`, or an array with `noising=True`: C^-1, as given to `matrix_factorization_privatizer`, which is
  inverted here.

The objects are read by their attributes, in double precision; JAX itself need not be imported here.

`correlated_of` reads a configuration (`BandMFConfig`) with several bands: groups that take turns, Poisson sampling
inside the group, and noise of deviation noise_multiplier x clipping norm x length of the strategy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calipers.adapters.jax_privacy import configuration_of, noise_of, plan_and_adjacency
from calipers.errors import InputError, UnsupportedError
from calipers.measure.correlated import CorrelatedNoise, matrix_of
from calipers.mechanisms.noise_matrix import STEPS, NoiseMatrix, Patterns


def noise_matrix_of(strategy: Any, steps: int | None = None, *, noising: bool = False) -> NoiseMatrix:
    """The encoder that an object of JAX-Privacy, or an array, stands for."""
    name = type(strategy).__name__
    if hasattr(strategy, "buf_decay") and hasattr(strategy, "output_scale"):
        return NoiseMatrix.blt(strategy.buf_decay, strategy.output_scale, _needed(steps, name))
    if hasattr(strategy, "multiply_next") and hasattr(strategy, "materialize"):
        return _inverted(np.asarray(strategy.materialize(_needed(steps, name)), dtype=np.float64), name)
    if hasattr(strategy, "materialize"):
        return matrix_of(np.asarray(strategy.materialize(), dtype=np.float64), steps, name)
    array = np.asarray(strategy, dtype=np.float64)
    return _inverted(array, name) if noising else matrix_of(array, steps, name)


def _needed(steps: int | None, name: str) -> int:
    if steps is None:
        raise InputError(f"{name} does not say how many steps there are; add steps.")
    return STEPS.check_int("steps", steps)


def _inverted(noising: Any, name: str) -> NoiseMatrix:
    """C of a lower triangular C^-1."""
    if noising.ndim != 2 or noising.shape[0] != noising.shape[1] or np.any(np.triu(noising, 1) != 0.0):
        raise InputError(f"Expected {name} as a square lower triangular matrix C^-1, got shape {noising.shape}.")
    return NoiseMatrix.of(np.tril(np.linalg.inv(noising)), f"inverse of {name}")


def correlated_of(config: Any) -> CorrelatedNoise:
    """What a configuration of JAX-Privacy with several bands executes; `calipers.measure` takes it as it takes a run.

    Refused: truncated batches, columns that the library normalizes itself, and replacing a record.
    """
    config = configuration_of(config)
    plan, adjacency = plan_and_adjacency(config)
    strategy = np.asarray(config.strategy, dtype=np.float64)
    batches = plan.batch_selection_strategy
    if config.column_normalize or batches.truncated_batch_size is not None or adjacency == "substitute":
        raise UnsupportedError(
            "With column_normalize, truncated_batch_size or REPLACE_ONE nothing is proven here for noise that is "
            "correlated between rounds; leave them out."
        )
    # The library scales the noise to the longest column. Rounding to single precision inside it is not counted.
    deviation = noise_of(plan.dp_event) * float(np.linalg.norm(strategy))
    return CorrelatedNoise(
        noise_matrix_of(strategy, int(config.iterations)),
        deviation,
        Patterns(int(batches.cycle_length)),
        sample_rate=float(batches.sampling_prob),
        adjacency=adjacency,
    )
