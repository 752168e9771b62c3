"""Reading a noise matrix and what is said beside it: from a file, an array, or an object of JAX-Privacy.

A file holds numbers: .npy as numpy writes it, .csv or .txt as text. Two dimensions are a lower triangular encoder
matrix C; one dimension is the first column of a Toeplitz one, padded with zeros to `steps`. The word "tree" stands for
tree aggregation over `steps` steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calipers.domains import POSITIVE_PROBABILITY
from calipers.errors import InputError
from calipers.measure.correlated import CorrelatedNoise
from calipers.mechanisms.gaussian import NOISE
from calipers.mechanisms.noise_matrix import STEPS, NoiseMatrix, Patterns

TREE = "tree"
_KEYS = (
    "noise_matrix",
    "noise_multiplier",
    "steps",
    "min_separation",
    "max_participations",
    "fixed_order",
    "sample_rate",
    "adjacency",
)


def load_matrix(name: str, steps: int | None = None) -> NoiseMatrix:
    """The matrix of a file, or of tree aggregation over `steps` steps."""
    if name == TREE:
        if steps is None:
            raise InputError(f"noise_matrix = {TREE!r} needs steps.")
        return NoiseMatrix.tree(steps)
    path = Path(name)
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        else:
            array = np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=1)
    except OSError as error:
        raise InputError(f"Cannot read the noise matrix {name}: {error.strerror or error}.") from error
    except ValueError as error:
        raise InputError(f"{name} holds no matrix of numbers: {' '.join(str(error).split())}.") from error
    return matrix_of(array, steps, path.name)


def matrix_of(array: object, steps: int | None = None, name: str = "matrix") -> NoiseMatrix:
    """A matrix from numbers: one dimension is Toeplitz, two are dense and have `steps` columns if that is given."""
    numbers = np.asarray(array, dtype=np.float64)
    if numbers.ndim == 1:
        return NoiseMatrix.of_toeplitz(numbers, numbers.size if steps is None else steps, name)
    found = NoiseMatrix.of(numbers, name)
    if steps is not None and steps != found.steps:
        raise InputError(f"{name} has {found.steps} columns, and steps is {steps}; they are the same number.")
    return found


def correlated_of(keys: Mapping[str, object]) -> CorrelatedNoise:
    """The run that the keys describe, or `InputError` for what means nothing beside a noise matrix."""
    extra = [key for key in keys if key not in _KEYS]
    if extra:
        raise InputError(
            f"{', '.join(extra)} mean nothing beside noise_matrix; give {', '.join(_KEYS[1:-1])} and adjacency."
        )
    if "noise_multiplier" not in keys:
        raise InputError("A run with correlated noise needs noise_multiplier: the deviation of the noise Z in C X + Z.")
    if "min_separation" not in keys:
        raise InputError(
            "A run with correlated noise needs min_separation: how many steps lie between two participations of a "
            "record (1 if it may take part in every step)."
        )
    steps, most = (
        None if keys.get(name) is None else STEPS.check_int(name, keys[name])
        for name in ("steps", "max_participations")
    )
    fixed, rate = keys.get("fixed_order", False), keys.get("sample_rate")
    if not isinstance(fixed, bool):
        raise InputError(f"Expected fixed_order to be true or false, got {fixed!r}.")
    return CorrelatedNoise(
        load_matrix(str(keys["noise_matrix"]), steps),
        NOISE.check("noise_multiplier", keys["noise_multiplier"]),
        Patterns(STEPS.check_int("min_separation", keys["min_separation"]), most, fixed),
        None if rate is None else POSITIVE_PROBABILITY.check("sample_rate", rate),
        str(keys.get("adjacency", "add-remove")),
    )
