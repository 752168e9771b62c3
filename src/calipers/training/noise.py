"""Line 8 of Algorithm B: the Gaussian noise, from a stream that can be taken up again at any step.

The noise of step t is a function of the source's secret and of t alone. A run that is killed and resumed
therefore adds the very noise it would have added, and a step that is done twice releases the same
numbers twice, which tells nobody anything new. With noise drawn afresh, doing a step again would be a second
release of the same sum, and the accounting would have to count it.

Two sources:

- `SeededNoise` is for experiments that must be repeatable. numpy's PCG64 on CPUs, PyTorch's Philox on CUDA, keyed
  by (seed, step): sound statistics, but whoever guesses the seed can subtract the noise. The two kinds of devices
  give different numbers for one seed.
- `SecureNoise` is for data that matters. Its key is 32 bytes of the operating system's entropy; the words of
  step t are SHAKE-256(key, t) on CPUs and ChaCha20's blocks under the key and the nonce t on CUDA
  (`calipers.training.noise_cores`), streams nobody has learnt to tell from uniform without the key. Normal variates
  come by Box and Muller: with U, V independent and uniform, sqrt(-2 log U) (cos 2 pi V, sin 2 pi V) are two
  independent standard normals. U = (k + 1/2) / 2^53 with k of 53 random bits is never 0, so nothing is
  thrown away; the largest variate is sqrt(2 * 54 * log 2) = 8.65, beyond which a normal variable lies with
  probability 5e-18.

What neither does: the theorems speak of real numbers, computers add floating-point ones. Whoever sees the lowest bits
of a noisy sum may learn something from them (Mironov 2012). Secure variates are computed in double precision and
rounded once, to the format of the sum, which makes such an attack harder and not impossible; seeded ones are drawn in
that format.

Layers that draw random numbers (dropout) get a seed for each step from the same secret, for the same reason.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Any

import numpy as np

from calipers.domains import SEED
from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.training.noise_cores import chacha_normals
from calipers.training.torch_library import torch_module

KEY_BYTES = 32
# Words are squeezed out in blocks, each from its own counter, so that memory stays bounded.
_BLOCK = 2**20
# Noise, batches (1, `calipers.training.loop`) and layers of one seed must not share random numbers.
_NOISE, _LAYERS = 0, 2


class SeededNoise:
    """Repeatable noise; the seed must stay secret for as long as the result is to be private."""

    def __init__(self, seed: int) -> None:
        self.seed = SEED.check_int("seed", seed)

    def standard_normal(self, step: int, like: Any) -> Any:
        """N(0, 1) entries for the step."""
        torch = torch_module()
        sequence = np.random.SeedSequence(entropy=self.seed, spawn_key=(_NOISE, step))
        if like.device.type == "cuda":
            key = int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
            generator = torch.Generator(device=like.device).manual_seed(key)
            return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
        rng = np.random.Generator(np.random.PCG64(sequence))
        dtype = np.float64 if like.dtype == torch.float64 else np.float32
        return torch.from_numpy(rng.standard_normal(tuple(like.shape), dtype=dtype)).to(like)

    def layer_seed(self, step: int) -> int:
        """64 bits of the step's own."""
        sequence = np.random.SeedSequence(entropy=self.seed, spawn_key=(_LAYERS, step))
        return int(sequence.generate_state(1, np.uint64)[0])

    def state(self) -> dict[str, Any]:
        """The seed."""
        return {"source": "seeded", "secret": str(self.seed)}


class SecureNoise:
    """Noise that cannot be distinguished from independent normals without the key, which is drawn from the system's
    entropy.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key
        if len(self._key) != KEY_BYTES:
            raise InputError(f"Expected a noise key of {KEY_BYTES} bytes, got {len(self._key)}.")

    def standard_normal(self, step: int, like: Any) -> Any:
        """N(0, 1) entries for the step, computed where `like` is."""
        if like.device.type == "cuda":
            return chacha_normals(self._key, step, like)
        torch = torch_module()
        count = int(like.numel())
        blocks = range(-(-count // _BLOCK))
        parts = [self._normals(step, block, min(_BLOCK, count - block * _BLOCK)) for block in blocks]
        values = np.concatenate(parts) if parts else np.empty(0)
        return torch.from_numpy(values).reshape(like.shape).to(like)

    def layer_seed(self, step: int) -> int:
        """64 bits of the step's own."""
        prefix = b"calipers layers" + step.to_bytes(8, "big")
        return int.from_bytes(hashlib.shake_256(self._key + prefix).digest(8), "big")

    def state(self) -> dict[str, Any]:
        """The key."""
        return {"source": "secure", "secret": self._key.hex()}

    def _normals(self, step: int, block: int, count: int) -> FloatArray:
        pairs = -(-count // 2)
        prefix = b"calipers noise" + step.to_bytes(8, "big") + block.to_bytes(8, "big")
        words = np.frombuffer(hashlib.shake_256(self._key + prefix).digest(16 * pairs), dtype="<u8")
        uniforms = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        radius = np.sqrt(-2.0 * np.log(uniforms[:pairs]))
        angle = 2.0 * math.pi * uniforms[pairs:]
        normals: FloatArray = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]
        return normals


def noise_source(state: dict[str, Any]) -> SeededNoise | SecureNoise:
    """The source that wrote this state."""
    kind, secret = state.get("source"), state.get("secret")
    if kind == "seeded":
        return SeededNoise(int(str(secret)))
    if kind == "secure":
        return SecureNoise(bytes.fromhex(str(secret)))
    raise InputError(f"Expected the state of a noise source, got source={kind!r}.")
