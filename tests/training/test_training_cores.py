"""Convolutions by the kernel of Triton: against PyTorch's own gradients in double precision, and the clipping norm."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.training import convolution_cores  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402
from calipers.training.layer_products import Accuracy  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(convolution_cores.kernel() is None, reason="Triton is not installed"),
]
SHORT = Accuracy(2.0**-22, 2.0**-10 + 2.0**-22, short=True)

# channels, depth, height, width, kernel, stride, padding, dilation, records
SHAPES = [
    (3, 20, 9, 9, 3, 1, 1, 1, 5),
    (18, 66, 4, 4, 3, 1, 1, 1, 2),
    (5, 8, 8, 7, 3, 2, 1, 1, 4),
    (4, 8, 8, 8, 1, 2, 0, 1, 4),
    (2, 16, 9, 9, 4, 2, 1, 1, 3),
    (3, 4, 9, 9, 3, 1, 2, 2, 3),
    (3, 4, 6, 6, 3, 1, 2, 1, 2),
]


def check(shape) -> None:
    """Gradients, norms and the weighted sum of one convolution."""
    channels, depth, high, wide, kernel, stride, padding, spread, records = shape
    device, rng = "cuda" if CUDA else "cpu", torch.Generator().manual_seed(0)
    layer = torch.nn.Conv2d(channels, depth, kernel, stride=stride, padding=padding, dilation=spread, bias=False)
    images = torch.randn(records, channels, high, wide, generator=rng)
    back = torch.randn(layer(images).shape, generator=rng)
    factors = torch.rand(records, generator=rng)
    core = convolution_cores.CoreProducts(layer.to(device), [(images[:, None].to(device), back[:, None].to(device))])
    # Tensor cores read 11 bits of the images, a CPU all.
    read, came = (SHORT.cut(images) if CUDA else images).double(), SHORT.cut(back).double()
    expected = torch.stack(
        [
            torch.nn.grad.conv2d_weight(a[None], layer.weight.shape, b[None], stride, padding, spread).flatten()
            for a, b in zip(read, came, strict=True)
        ]
    )
    found = torch.stack([core.arranged(gradient) for gradient in core.each()]).cpu()
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    total = core.total(factors.to(device)).cpu()
    weighted = SHORT.cut(back) * factors[:, None, None, None]
    rounded = ((weighted.view(torch.int32) + 4096) & -8192).view(torch.float32).double()
    summed = torch.nn.grad.conv2d_weight(read, layer.weight.shape, rounded, stride, padding, spread).flatten()
    assert float((total - summed).norm() / summed.norm()) < 1e-5
    norms, small = (numbers.cpu() for numbers in core.norms(SHORT))
    for record in range(records if CUDA else 1):
        alone = torch.zeros_like(factors)
        alone[record] = factors[record]
        summand = core.total(alone.to(device)).double().norm().cpu()
        assert float(summand) <= float(norms[record] * factors[record] + small[record])
    assert bool((norms >= expected.norm(dim=1)).all())
    assert bool((norms <= 1.03 * expected.norm(dim=1)).all())  # 2^-11 of the sum of |a_t| |b_t|, 32 times the norm


def check_worst() -> None:
    """One position, where nothing cancels, and numbers that lose most when they are cut: no summand is too long."""
    device, most = "cuda" if CUDA else "cpu", torch.tensor(0x3F801FFF, dtype=torch.int32).view(torch.float32)
    layer = torch.nn.Conv2d(16, 16, 1, bias=False).to(device)
    ones = torch.ones(1, 1, 16, 1, 1, device=device)
    for factor in (1.0, 0.7, float(1 + 2.0**-11), float(1 + 2.0**-12)):
        core = convolution_cores.CoreProducts(layer, [(ones, float(most) * ones)])
        (norm,), (small,) = core.norms(SHORT)
        summand = core.total(torch.full((1,), factor, device=device)).double().norm()
        assert float(summand) <= float(norm) * float(np.float32(factor)) + float(small)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_what_loses_most_when_it_is_cut_is_not_too_long() -> None:
    check_worst()


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("shape", [*SHAPES, (64, 64, 32, 32, 3, 1, 1, 1, 40), (256, 512, 8, 8, 3, 2, 1, 1, 33)])
def test_gradients_norms_and_sums_are_those_of_the_cut_numbers(shape) -> None:
    check(shape)


@pytest.mark.slow
@pytest.mark.skipif(CUDA, reason="the kernel itself is tested")
def test_the_kernel_as_triton_plays_it_on_a_cpu() -> None:
    """The same, by Triton's interpreter, in a process of its own."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_training_cores as t; "
    program += "[*map(t.check, t.SHAPES)]; t.check_worst()"
    source = Path(convolution_cores.__file__).parents[2]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", program, str(Path(__file__).parent)], env=environment, check=True)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_every_summand_of_a_convolution_is_within_the_clipping_norm(scale) -> None:
    """In extended precision, no tolerance: what one record adds; three layers, of which each takes another way."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.Conv2d(64, 256, 3, 2), torch.nn.Conv2d(256, 256, 3)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(256 * 5 * 5, 3)).cuda()
    total = GradientSum(model, max_grad_norm=1.0, loss=lambda outputs, _: outputs.sum())
    for seed in range(4):
        rng = torch.Generator("cuda").manual_seed(seed)
        record = scale * torch.randn(1, 16, 16, 16, generator=rng, device="cuda")
        added = total(record, torch.ones(1, dtype=torch.long, device="cuda"))
        square = float((added.cpu().numpy().astype(np.longdouble) ** 2).sum())
        assert 0.95 < square <= 1.0


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_the_sum_is_that_of_the_cpu_up_to_what_is_cut() -> None:
    """Clipping by the norms of numbers of 11 bits moves a sum by little, with a broken record among the others."""
    torch.manual_seed(1)
    layers = [torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.GroupNorm(8, 64), torch.nn.ReLU()]
    layers += [torch.nn.Conv2d(64, 256, 3, 2, bias=False), torch.nn.ReLU(), torch.nn.Conv2d(256, 128, 3)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128 * 5 * 5, 3))
    records, labels = torch.randn(48, 16, 16, 16), torch.arange(48) % 3
    records[5, 0, 0, 0] = math.nan
    expected = GradientSum(model, max_grad_norm=1.0)(records, labels)
    found = GradientSum(model.cuda(), max_grad_norm=1.0)
    for _ in range(3):
        here = found(records.cuda(), labels.cuda()).cpu()
        assert float((here - expected).norm() / expected.norm()) < 1e-2
