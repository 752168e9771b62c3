"""Linear layers by the kernels of Triton: against products in double precision, and the clipping norm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.training import linear_cores  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402
from calipers.training.layer_products import Accuracy  # noqa: E402

CUDA = torch.cuda.is_available()
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(linear_cores.kernel() is None, reason="Triton is not installed"),
]
SHORT = Accuracy(2.0**-22, 2.0**-10 + 2.0**-22, short=True)

# records, positions, width, depth
SHAPES = [(3, 5, 20, 33), (2, 65, 40, 70), (2, 130, 17, 40), (2, 70, 1100, 16)]


def check(shape) -> None:
    """Squares, sums of lengths, norms and the weighted sum of one linear layer."""
    records, positions, width, depth = shape
    device, rng = "cuda" if CUDA else "cpu", torch.Generator().manual_seed(1)
    rows = torch.randn(records, positions, width, generator=rng)
    back = torch.randn(records, positions, depth, generator=rng)
    factors = torch.rand(records, generator=rng)
    products = linear_cores.LinearProducts(rows.to(device), back.to(device), (depth, width))
    read, came = SHORT.cut(rows).double(), SHORT.cut(back).double()
    each = torch.einsum("ntd,ntw->ndw", came, read).flatten(1)
    squares, sums = (numbers.cpu() for numbers in products.sums())
    assert float((squares / each.norm(dim=1) ** 2 - 1.0).abs().max()) < 2e-5
    lengths = read.norm(dim=2), came.norm(dim=2)
    expected = torch.stack([lengths[0].sum(dim=1), lengths[1].sum(dim=1), (lengths[0] * lengths[1]).sum(dim=1)], dim=1)
    assert float((sums / expected - 1.0).abs().max()) < 2e-5
    norms, small = (numbers.cpu() for numbers in products.norms(SHORT))
    assert bool((norms >= each.norm(dim=1)).all())
    rounding = ((width + depth + 10) * 2.0**-22) ** 0.5 * expected[:, 2]
    assert bool((norms <= torch.hypot(each.norm(dim=1), 1.01 * rounding) + 0.0016 * expected[:, 2]).all())
    for record in range(records):
        alone = torch.zeros_like(factors)
        alone[record] = factors[record]
        summand = products.total(alone.to(device)).double().norm().cpu()
        assert float(summand) <= float(norms[record] * factors[record] + small[record])
    total = products.total(factors.to(device)).double().cpu()
    there = torch.einsum("n,ntd,ntw->dw", factors.double(), back.double(), rows.double()).flatten()
    assert float((total - there).norm() / there.norm()) < 1e-3


def check_worst() -> None:
    """Nothing cancels, and numbers lose most when they are cut: no summand is too long."""
    device, most = "cuda" if CUDA else "cpu", torch.tensor(0x3F801FFF, dtype=torch.int32).view(torch.float32)
    for width, depth in ((16, 32), (32, 16)):  # either side is weighted
        rows, back = (float(most) * torch.ones(1, 2, size, device=device) for size in (width, depth))
        products = linear_cores.LinearProducts(rows, back, (depth, width))
        (norm,), (small,) = products.norms(SHORT)
        for factor in (1.0, 0.7, float(1 + 2.0**-11), float(1 + 2.0**-12)):
            summand = products.total(torch.full((1,), factor, device=device)).double().norm()
            assert float(summand) <= float(norm) * float(np.float32(factor)) + float(small)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("shape", [*SHAPES, (40, 128, 768, 3072), (33, 65, 192, 576), (5, 512, 300, 300)])
def test_norms_and_sums_are_those_of_the_cut_numbers(shape) -> None:
    check(shape)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
def test_what_loses_most_when_it_is_cut_is_not_too_long() -> None:
    check_worst()


@pytest.mark.slow
@pytest.mark.skipif(CUDA, reason="the kernel itself is tested")
def test_the_kernel_as_triton_plays_it_on_a_cpu() -> None:
    """The same, by Triton's interpreter, in a process of its own."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import test_training_linear_cores as t; "
    program += "[*map(t.check, t.SHAPES)]; t.check_worst()"
    source = Path(linear_cores.__file__).parents[2]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", program, str(Path(__file__).parent)], env=environment, check=True)


@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_every_summand_of_linear_layers_is_within_the_clipping_norm(scale) -> None:
    """In extended precision, no tolerance: what one record of 100 positions adds."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 384), torch.nn.ReLU(), torch.nn.Linear(384, 96)).cuda()
    total = GradientSum(model, max_grad_norm=1.0, loss=lambda outputs, _: outputs.square().sum())
    for seed in range(4):
        rng = torch.Generator("cuda").manual_seed(seed)
        record = scale * torch.randn(1, 100, 128, generator=rng, device="cuda")
        added = total(record, torch.ones(1, dtype=torch.long, device="cuda"))
        square = float((added.cpu().numpy().astype(np.longdouble) ** 2).sum())
        assert 0.9 < square <= 1.0
