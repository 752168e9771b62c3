"""Built-in audit targets on a PyTorch device: whole vectors of noise, reduced where they are drawn.

`calipers.auditing.builtin.NoisySums` draws its sufficient statistic, two numbers whatever the dimension. That is
exact in distribution, but it is a theorem about the mechanism, not the mechanism. `TorchSums` adds the noise to all n
coordinates on a device, divides, and only then computes the projection on e and the squared rest: on a GPU ten
thousand runs of 1.5 million coordinates take seconds. Batches come from the same code as before; noise comes from the
device's generator, seeded from the game's own, so a chunk gives the same scores on the same device. The likelihood
ratio of the underlying `NoisySums` reads the outputs.

Noise is drawn in single precision, as training loops draw it, and summed in double precision. A coordinate then has a
relative rounding error near 6e-8; the squared rest of n coordinates inherits no more than that, far below its own
relative deviation sqrt(2/n) for every n up to 1e12.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from calipers.adapters.opacus_library import check_device, torch_module
from calipers.auditing.builtin import NoisySums
from calipers.domains import COUNT
from calipers.numerics.types import FloatArray

_BLOCK_NUMBERS = 2**28
"""Coordinates held on the device at a time: 1 GiB in single precision."""


@dataclass(frozen=True)
class TorchSums:
    """`sums` with its noise drawn in all coordinates on `device` ("cpu", "cuda", "cuda:1", ...)."""

    sums: NoisySums
    device: str = "cuda"
    block: int = _BLOCK_NUMBERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", dataclasses.replace(self.sums, vectors=False))
        COUNT.check_int("block", self.block)
        check_device(self.device)

    @property
    def name(self) -> str:
        """The sums' name, and where they are drawn."""
        return f"{self.sums.name}, on {self.device}"

    @property
    def chunk(self) -> int:
        """Runs in a chunk."""
        return self.sums.chunk

    def identity(self) -> dict[str, object]:
        """All fields; the kind of device, because its generator decides which numbers are drawn."""
        return {**self.sums.identity(), "target": "torch-sums", "device": self.device.split(":")[0]}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """`count` runs: for every round the projection on e and the squared length of the rest."""
        torch = torch_module()
        sums, divisors = self.sums.releases(present, count, rng)
        generator = torch.Generator(device=self.device)
        generator.manual_seed(int(rng.integers(2**62)))
        found = np.zeros((sums.size, 2))
        rows = max(1, self.block // self.sums.dimension)
        flat_sums, flat_divisors = sums.ravel(), divisors.ravel()
        for start in range(0, sums.size, rows):
            part = slice(start, min(start + rows, sums.size))
            shape = (part.stop - start, self.sums.dimension)
            noisy = torch.randn(shape, generator=generator, device=self.device, dtype=torch.float32)
            noisy *= self.sums.noise_multiplier
            noisy[:, 0] += torch.as_tensor(flat_sums[part], dtype=torch.float32, device=self.device)
            noisy /= torch.as_tensor(flat_divisors[part], dtype=torch.float32, device=self.device)[:, None]
            along = noisy[:, 0].double()
            noisy[:, 0] = 0.0
            # Squares are added in double precision; the vector itself stays in single precision.
            rest = torch.linalg.vector_norm(noisy, dim=1, dtype=torch.float64).square()
            found[part, 0], found[part, 1] = along.cpu().numpy(), rest.cpu().numpy()
        return found.reshape((*sums.shape, 2))
