"""The noise: standard normal, one vector a step, the same for the same step, and keyed by a secret."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import chdtrc, ndtr
from scipy.stats import kstest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.training import noise_cores  # noqa: E402
from calipers.training.noise import SecureNoise, SeededNoise, noise_source  # noqa: E402
from calipers.training.noise_cores import chacha_blocks, chacha_normals  # noqa: E402

pytestmark = pytest.mark.torch

# Fixed secrets; each acceptance would raise a false alarm with this probability.
LEVEL = 1e-6
COUNT = 200_000
SOURCES = {"seeded": SeededNoise(11), "secure": SecureNoise(bytes(range(32)))}


@pytest.fixture(params=list(SOURCES))
def source(request):
    return SOURCES[request.param]


def drawn(source, step, count=COUNT, dtype=torch.float32):
    return source.standard_normal(step, torch.empty(count, dtype=dtype)).double().numpy()


def variance_p(values, deviation):
    """Two-sided p-value of the chi-square test for this standard deviation."""
    upper = float(chdtrc(values.size, float((values**2).sum()) / deviation**2))
    return 2 * min(upper, 1 - upper)


def kolmogorov_p(values):
    """Asymptotic p-value of the distance to the normal distribution function."""
    ordered = ndtr(np.sort(values))
    steps = np.arange(1, ordered.size + 1) / ordered.size
    distance = max(float((steps - ordered).max()), float((ordered - steps + 1 / ordered.size).max()))
    return min(1.0, 2 * math.exp(-2 * ordered.size * distance**2))


def test_the_variance_is_one_and_neither_two_percent_less_nor_more(source) -> None:
    values = drawn(source, 3)
    assert variance_p(values, 1.0) > LEVEL
    assert variance_p(values, 0.98) < LEVEL
    assert variance_p(values, 1.02) < LEVEL


def test_the_distribution_is_normal_and_not_uniform(source) -> None:
    """A uniform variable of the same variance is rejected by the same test."""
    values = drawn(source, 0)
    assert kolmogorov_p(values) > LEVEL
    assert abs(values.mean()) < 5 / math.sqrt(COUNT)
    uniform = np.random.default_rng(0).uniform(-math.sqrt(3), math.sqrt(3), COUNT)
    assert kolmogorov_p(uniform) < LEVEL


def test_steps_are_uncorrelated_with_each_other_and_with_themselves_shifted(source) -> None:
    first, second = drawn(source, 1), drawn(source, 2)
    for one, other in ((first, second), (first[1:], first[:-1]), (first[: COUNT // 2], first[COUNT // 2 :])):
        assert abs(float(one @ other)) / math.sqrt(one.size) < 5
    assert abs(float(first @ first)) / math.sqrt(COUNT) > 5


def test_a_step_has_one_noise_and_every_step_its_own(source) -> None:
    again = noise_source(source.state())
    for step in (0, 1, 2**40):
        assert np.array_equal(drawn(source, step, 1000), drawn(again, step, 1000))
    assert not np.array_equal(drawn(source, 0, 1000), drawn(source, 1, 1000))


def test_layers_get_a_seed_of_their_own_in_every_step(source) -> None:
    """64 bits, the same for the same secret and step, and different from step to step and from secret to secret."""
    seeds = [source.layer_seed(step) for step in range(100)]
    assert seeds == [noise_source(source.state()).layer_seed(step) for step in range(100)]
    assert len(set(seeds)) == 100
    assert 2**60 < max(seeds) < 2**64
    others = [SeededNoise(12).layer_seed(step) for step in range(100)]
    others += [SecureNoise(bytes(32)).layer_seed(step) for step in range(100)]
    assert not set(seeds) & set(others)


def test_secrets_matter() -> None:
    assert not np.array_equal(drawn(SeededNoise(1), 0, 100), drawn(SeededNoise(2), 0, 100))
    assert not np.array_equal(drawn(SecureNoise(), 0, 100), drawn(SecureNoise(), 0, 100))
    assert len(SecureNoise().state()["secret"]) == 64


def test_shape_type_and_place_follow_the_sum(source) -> None:
    for dtype in (torch.float32, torch.float64):
        like = torch.zeros(3, 5, dtype=dtype)
        noise = source.standard_normal(0, like)
        assert (noise.shape, noise.dtype, noise.device) == (like.shape, dtype, like.device)
    assert source.standard_normal(0, torch.empty(0)).numel() == 0


def test_secure_noise_is_box_and_muller_on_shake_256() -> None:
    """Three pairs computed by hand from the bytes of the hash."""
    key = bytes(range(32))
    content = hashlib.shake_256(key + b"calipers noise" + (9).to_bytes(8, "big") + bytes(8)).digest(6 * 8)
    words = [int.from_bytes(content[8 * i : 8 * i + 8], "little") >> 11 for i in range(6)]
    uniforms = [(word + 0.5) / 2**53 for word in words]
    radius = [math.sqrt(-2 * math.log(u)) for u in uniforms[:3]]
    expected = [r * f(2 * math.pi * v) for f in (math.cos, math.sin) for r, v in zip(radius, uniforms[3:], strict=True)]
    found = drawn(SecureNoise(key), 9, 6, torch.float64)
    assert found == pytest.approx(expected, rel=1e-12)


def test_long_vectors_are_made_of_different_blocks() -> None:
    """Two million entries come from two counters: the halves are not equal, and not correlated."""
    values = drawn(SecureNoise(bytes(32)), 0, 2**21, torch.float64)
    assert variance_p(values, 1.0) > LEVEL
    assert abs(float(values[: 2**20] @ values[2**20 :])) / 2**10 < 5


@pytest.mark.parametrize("seed", [-1, 0.5, True, "7", 2**60, float("nan")])
def test_bad_seeds_are_refused(seed) -> None:
    with pytest.raises(InputError, match="seed"):
        SeededNoise(seed)


def test_bad_keys_and_states_are_refused() -> None:
    with pytest.raises(InputError, match="32 bytes"):
        SecureNoise(b"short")
    with pytest.raises(InputError, match="noise source"):
        noise_source({"source": "dice"})


def test_chacha_is_that_of_the_standard() -> None:
    """RFC 8439, section 2.3.2: the block of the key 00 01 .. 1f with counter 1."""
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), dtype="<u4")
    (found,) = chacha_blocks(bytes(range(32)), nonce, np.array([1], dtype=np.uint32))
    expected = "e4e7f11015593bd11fdd0f50c47120a3c7f4d1c70368c0339aaa22044e6cd4c3"
    expected += "466482d209aa9f0705d7c214a2028bd9d19c12b5b94e16dee883d0cb4e3c50a2"
    assert "".join(f"{word:08x}" for word in found) == expected


def test_noise_of_chacha_is_normal_and_its_own_for_every_step() -> None:
    first, second, other = (
        chacha_normals(key, step, torch.empty(100_001, dtype=torch.float64)).numpy()
        for key, step in ((b"k" * 32, 3), (b"k" * 32, 2**33 + 3), (b"l" * 32, 3))
    )
    for sample in (first, second, other):
        assert kstest(sample, "norm").pvalue > 1e-4
    for one, two in ((first, second), (first, other), (first[1:], first[:-1])):
        assert abs(np.corrcoef(one, two)[0, 1]) < 5 / math.sqrt(100_000)
    again = chacha_normals(b"k" * 32, 3, torch.empty(50, dtype=torch.float64)).numpy()
    assert np.array_equal(again, first[:50])


def kernel_like_numpy() -> None:
    """On a GPU, or by Triton's interpreter."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nonce = np.array([int.from_bytes(b"nois", "little"), 7, 1], dtype=np.uint32)
    for count in (1, 8, 1003):
        found = chacha_normals(b"k" * 32, 2**32 + 7, torch.empty(count, dtype=torch.float64, device=device))
        assert np.allclose(found.cpu().numpy(), noise_cores._normals(b"k" * 32, nonce, count), rtol=1e-12, atol=1e-14)
    single = chacha_normals(b"k" * 32, 2**32 + 7, torch.empty(1003, device=device))
    assert torch.equal(single.double(), found.to(torch.float32).double())


@pytest.mark.skipif(not torch.cuda.is_available() or noise_cores.kernel() is None, reason="no CUDA device or no Triton")
def test_the_kernels_noise_is_that_of_numpy() -> None:
    kernel_like_numpy()


@pytest.mark.slow
@pytest.mark.skipif(
    torch.cuda.is_available() or noise_cores.kernel() is None, reason="the kernel is tested, or no Triton"
)
def test_the_kernels_noise_as_triton_plays_it_on_a_cpu() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_training_noise as t; t.kernel_like_numpy()"
    source = Path(noise_cores.__file__).parents[2]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", program, str(Path(__file__).parent)], env=environment, check=True)
