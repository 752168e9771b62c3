"""One step of a loop, repeated at will with equal noise.

Let u(G) be what a step returns for per-record gradients G (one row a record). With equal seeds the noise is equal, so

    u(G) - u(0, ..., 0) = (what the gradients do) / divisor

holds up to rounding, and no statistics is needed. That is the lens through which the other files of this room look.

A loop may carry state from step to step. `Lens` looks for it: a step is repeated after one with large gradients. If
the answer changes, every look starts from a loop set up anew, and `memory` says what was carried: "shift" if the past
only adds to the answer (momentum: what was released before, released again), "rule" if it changes what a gradient does
(clipping that follows earlier gradients).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.probing.protocol import Configuration, Configure

# Single precision carries 24 bits; a step adds, scales and subtracts a handful of numbers of like size.
LOST = 2.0**-22
# Relative errors of a divisor or of a clipped norm.
ROUNDING = 1e-5
MOST_LAYERS = 8


def close(measured: float, exact: float) -> bool:
    """Whether two numbers agree up to the rounding of a step in single precision."""
    return abs(measured - exact) <= ROUNDING * max(abs(exact), 1.0)


class Lens:
    """Steps with chosen gradients and chosen seeds of the loop that `configure` sets up."""

    def __init__(self, configure: Configure, dataset_size: int, batch_size: int, seed: int) -> None:
        self._configure: Callable[[], Configuration] = functools.partial(configure, dataset_size, batch_size)
        self.configuration: Configuration = self._configure()
        self.dimension = int(self.configuration.dimension)
        self.bound = float(self.configuration.max_grad_norm)
        self.seed = seed
        self.layers = _layers(self.configuration, self.dimension)
        self._fresh = False
        self._still: dict[tuple[int, int], FloatArray] = {}
        quiet = np.abs(self.update(np.zeros((2, self.dimension))))
        self.directions = _directions(self.configuration, self.layers, quiet)
        # Whether any gradient can be planted, or only multiples of the directions.
        self.mixes = getattr(self.configuration, "directions", None) is None
        self.memory = self._remembered()

    def update(self, gradients: FloatArray, seed: int | None = None) -> FloatArray:
        """What one step returns, as a vector."""
        loop = self._configure() if self._fresh else self.configuration
        return _answer(loop, gradients, np.random.default_rng(self.seed if seed is None else seed))

    def still(self, records: int, seed: int | None = None) -> FloatArray:
        """A step on that many zero gradients."""
        key = (records, self.seed if seed is None else seed)
        if key not in self._still:
            if len(self._still) > 64:
                self._still.clear()
            self._still[key] = self.update(np.zeros((records, self.dimension)), key[1])
        return self._still[key]

    def moved(self, gradients: FloatArray, seed: int | None = None) -> FloatArray:
        """What the gradients do: u(G) - u(0) with equal noise and equally many records."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self.update(gradients, seed) - self.still(len(gradients), seed)

    def among(self, gradients: FloatArray, companion: int) -> tuple[FloatArray, Mapping[str, FloatArray]]:
        """A step on these gradients and a companion of gradient zero; what it returns, and what else it changes."""
        loop = self._configure() if self._fresh else self.configuration
        released, changed = cast(Any, loop).update_among(gradients, companion, np.random.default_rng(self.seed))
        return np.asarray(released, dtype=np.float64), changed

    def successive(self, steps: int, records: int, seed: int) -> FloatArray:
        """Steps on zero gradients that follow each other in one run: shape (steps, dimension)."""
        loop = self._configure() if self._fresh else self.configuration
        rng = np.random.default_rng(seed)
        still = np.zeros((records, self.dimension))
        return np.stack([_answer(loop, still, rng) for _ in range(steps)])

    def _remembered(self) -> str:
        """What a step keeps of the steps before it."""
        large = np.stack([8 * self.bound * self.directions[0]] * 2)
        first, again = self.update(large), self.update(large)
        self.update(8 * large)
        after = self.update(large)
        if _same(first, again) and _same(first, after):
            return ""
        self._fresh = True
        self._still.clear()
        if not _same(*(self.update(large) for _ in range(2))):
            raise InputError(
                "Two steps with the same seed differ: draw all randomness of update() from the generator it is given, "
                "and carry no state from step to step that setting the loop up anew does not clear."
            )
        responses = []
        for past in (np.zeros_like(large), 8 * large):
            found = []
            for present in (np.zeros_like(large), large):
                loop = self._configure()
                rng = np.random.default_rng(self.seed)
                _answer(loop, past, rng)
                found.append(_answer(loop, present, rng))
            responses.append(found[1] - found[0])
        size = max(float(np.linalg.norm(value)) for value in responses)
        agree = float(np.linalg.norm(responses[0] - responses[1])) <= 1e-3 * size
        return "shift" if agree else "rule"


def _answer(loop: Configuration, gradients: FloatArray, rng: np.random.Generator) -> FloatArray:
    found: ArrayLike = loop.update(gradients, rng)
    vector = np.asarray(found, dtype=np.float64)
    if vector.shape != (loop.dimension,):
        raise InputError(f"update() returned shape {vector.shape}, expected ({loop.dimension},).")
    return vector


def _same(first: FloatArray, second: FloatArray) -> bool:
    return bool(np.array_equal(first, second, equal_nan=True))


def _layers(configuration: Configuration, dimension: int) -> tuple[slice, ...]:
    """The coordinates of each layer; one layer if the loop does not say."""
    sizes = [int(size) for size in getattr(configuration, "layers", ())] or [dimension]
    if min(sizes) < 1 or sum(sizes) != dimension:
        raise InputError(f"layers must be positive sizes that sum to dimension={dimension}, got {sizes}.")
    ends = np.cumsum(sizes)
    return tuple(slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True))


def _directions(configuration: Configuration, layers: tuple[slice, ...], quiet: FloatArray) -> FloatArray:
    """Unit gradients to plant: those the loop offers, or the least noisy coordinate of each layer and a spread one.

    Coordinates that a gradient does not touch cancel exactly, so a quiet coordinate shows most digits.
    """
    offered = getattr(configuration, "directions", None)
    if offered is not None:
        found = np.atleast_2d(np.asarray(offered, dtype=np.float64))
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        if found.shape[1] != quiet.size or not np.isfinite(norms).all() or not (norms > 0).all():
            raise InputError("directions must be finite, nonzero gradients, one row each.")
        unit: FloatArray = found / norms
        return unit
    shown = layers if len(layers) > 1 else (slice(0, max(1, quiet.size // 2)), slice(quiet.size // 2, quiet.size))
    rows = []
    for layer in shown[:MOST_LAYERS]:
        row = np.zeros(quiet.size)
        row[layer.start + int(np.argmin(np.where(np.isfinite(quiet[layer]), quiet[layer], np.inf)))] = 1.0
        rows.append(row)
    rows.append(np.full(quiet.size, quiet.size**-0.5))
    return np.stack(rows)
