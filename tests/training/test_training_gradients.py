"""The clipped sum: equal to a plain loop over the records, for every kind of model, and truly clipped."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.errors import InputError  # noqa: E402
from calipers.training import Dataset, build_model  # noqa: E402
from calipers.training.convolutional import residual_network  # noqa: E402
from calipers.training.gradients import GradientSum, bucket, cross_entropy, suitable_micro_batch  # noqa: E402
from calipers.training.layer_products import norms_of  # noqa: E402
from calipers.training.models import parameter_count  # noqa: E402
from calipers.training.transformers import TextTransformer, VisionTransformer  # noqa: E402

pytestmark = pytest.mark.torch

RECORDS = 5


def images(channels, size, count=RECORDS):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, channels, size, size, generator=generator, dtype=torch.float64)


def gray_data():
    records = np.zeros((4, 1, 28, 28), dtype=np.uint8)
    return Dataset("gray", "images", records, np.arange(4), records, np.array([9, 0, 1, 2]))


def models():
    text = torch.randint(3, 40, (RECORDS, 12), generator=torch.Generator().manual_seed(2))
    text[:, 0] = 2
    text[1:3, 7:] = 0
    return {
        "cnn": (build_model("cnn", gray_data(), seed=3), images(1, 28)),
        "residual": (residual_network(3, 10, 8, (8, 16), (1, 1)), images(3, 12)),
        "vision": (VisionTransformer(3, 8, 10, width=16, depth=2, heads=2), images(3, 8)),
        "text": (TextTransformer(40, 12, 10, width=16, depth=2, heads=2, inner=24), text),
        "linear": (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(75, 10)), images(3, 5)),
    }


LABELS = torch.tensor([0, 3, 9, 3, 7])


def exact_square(vector):
    """The squared norm, added in extended precision: good to 1e-13, a millionth of the margin that is checked."""
    return float((vector.numpy().astype(np.longdouble) ** 2).sum())


def naive_sum(model, records, labels, max_grad_norm):
    """One backward pass per record, norms in exact arithmetic as far as Python has it."""
    parameters = list(model.parameters())
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for record, label in zip(records, labels, strict=True):
        loss = torch.nn.functional.cross_entropy(model(record[None]), label[None])
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
        norm = math.sqrt(math.fsum((gradient**2).tolist()))
        total += gradient * min(1.0, max_grad_norm / norm)
    return total


@pytest.mark.parametrize("name", list(models()))
@pytest.mark.parametrize("max_grad_norm", [0.1, 3.0, 1e9])
def test_the_sum_equals_a_loop_over_the_records(name, max_grad_norm) -> None:
    """All clipped, some clipped, none clipped: relative difference below 1e-6 (in fact 1e-12)."""
    model, records = models()[name]
    model = model.double()
    found = GradientSum(model, max_grad_norm=max_grad_norm)(records, LABELS)
    expected = naive_sum(model, records, LABELS, max_grad_norm)
    assert float((found - expected).norm() / expected.norm()) < 1e-10
    half = GradientSum(model, max_grad_norm=max_grad_norm / 2)(records, LABELS)
    assert (float((half - expected).norm() / expected.norm()) > 1e-6) == (max_grad_norm < 1e9)


@pytest.mark.parametrize("micro_batch", [1, 2, 5, 64])
def test_micro_batches_do_not_change_the_sum(micro_batch) -> None:
    model, records = models()["cnn"]
    model = model.double()
    whole = GradientSum(model, max_grad_norm=0.5)(records, LABELS)
    pieces = GradientSum(model, max_grad_norm=0.5, micro_batch=micro_batch)(records, LABELS)
    assert float((pieces - whole).norm() / whole.norm()) < 1e-13


def test_an_empty_batch_has_the_sum_zero() -> None:
    model, records = models()["cnn"]
    for norm in (0.5, None):
        total = GradientSum(model.double(), max_grad_norm=norm)(records[:0], LABELS[:0])
        assert total.shape == (26_010,)
        assert not total.any()


def test_without_clipping_the_sum_is_an_ordinary_gradient() -> None:
    """The gradient of the summed loss, whether the batch is one piece or three."""
    model, records = models()["residual"]
    model = model.double()
    loss = torch.nn.functional.cross_entropy(model(records), LABELS, reduction="sum")
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    for micro_batch in (2, 8):
        found = GradientSum(model, max_grad_norm=None, micro_batch=micro_batch)(records, LABELS)
        assert float((found - expected).norm() / expected.norm()) < 1e-12


@pytest.mark.parametrize("dimension", [1000, 3_000_000])
def test_every_summand_is_within_the_clipping_norm(dimension) -> None:
    """In single precision too: the norm of what one record adds, summed exactly, is at most C. No tolerance."""
    linear = torch.nn.Linear(dimension, 1, bias=False)
    total = GradientSum(linear, max_grad_norm=1.0, loss=lambda outputs, _: outputs.sum())
    rng = torch.Generator().manual_seed(0)
    for scale in (1e-3, 1.0, 1e6):
        record = scale * torch.randn(1, dimension, generator=rng)
        added = total(record, torch.zeros(1))
        assert exact_square(added) <= 1.0
        # Not by giving everything away: a clipped gradient keeps its length up to a millionth.
        assert float(added.double().norm()) > 1 - 1e-6 or float(record.norm()) < 1


@pytest.mark.parametrize("max_grad_norm", [1.0, 1e-3])
def test_gradients_near_the_largest_number_are_within_the_clipping_norm_too(max_grad_norm) -> None:
    """Their factors lie below the smallest normal number, where rounding to nearest would add up to 13 percent."""
    linear = torch.nn.Linear(100_000, 1, bias=False)
    total = GradientSum(linear, max_grad_norm=max_grad_norm, loss=lambda outputs, _: outputs.sum())
    for share in np.geomspace(1e-8, 1.0, 25):
        record = torch.full((1, 100_000), 3e38 * float(share))
        assert exact_square(total(record, torch.zeros(1))) <= max_grad_norm**2


def test_a_single_precision_norm_would_not_do() -> None:
    """The shortcut that the sum avoids: PyTorch's float32 norm on a CPU is too small by more than a millionth."""
    record = torch.randn(1, 3_000_000, generator=torch.Generator().manual_seed(0))
    exact = math.sqrt(exact_square(record))
    clipped = record / torch.linalg.vector_norm(record, dim=1)
    assert exact_square(clipped) > 1 + 1e-6
    assert float(torch.linalg.vector_norm(record, dim=1, dtype=torch.float64)) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("shape", [(3_000_000,), (64, 1_000_000, 65), (63,), (1, 1), (6_400_001,)])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e15])
def test_norms_added_in_blocks_are_not_too_small(shape, scale) -> None:
    """(1 - e) ||g|| <= norm for single precision, summed exactly; and within 1e-5 unless squares vanish altogether."""
    rng = torch.Generator().manual_seed(len(shape))
    parts = [scale * torch.randn(1, size, generator=rng) for size in shape]
    norms, error = norms_of(parts, blocks=True)
    exact = math.sqrt(sum(exact_square(part) for part in parts))
    assert (1 - error) * exact <= float(norms[0])
    assert error < 1e-5
    if scale > 1e-13:
        assert float(norms[0]) < (1 + 1e-5) * exact


def test_broken_records_are_left_out_of_every_piece() -> None:
    """Seven pieces, two of them with broken records: the sum is the one over the other records."""
    linear = torch.nn.Linear(4, 1, bias=False).double()
    records = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    records[7, 1], records[19, 0] = float("nan"), float("inf")
    total = GradientSum(linear, max_grad_norm=1.0, loss=lambda outputs, _: (outputs**2).sum() / 2, micro_batch=3)
    kept = [row for row in range(20) if row not in (7, 19)]
    found, expected = total(records, torch.zeros(20)), total(records[kept], torch.zeros(18))
    assert torch.isfinite(found).all()
    assert torch.allclose(found, expected, rtol=1e-13, atol=0)
    everyone = torch.full((3, 4), float("nan"), dtype=torch.float64)
    assert not total(everyone, torch.zeros(3)).any()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_a_record_without_a_finite_gradient_adds_nothing(poison) -> None:
    """The sum is that of the other records; a NaN does not reach the weights. (1e30 is finite, and clipped.)"""
    linear = torch.nn.Linear(4, 1, bias=False).double()
    total = GradientSum(linear, max_grad_norm=1.0, loss=lambda outputs, _: (outputs**2).sum() / 2)
    records = torch.tensor([[0.1, 0.2, 0.0, 0.0], [poison, 0.0, 0.0, 0.0]], dtype=torch.float64)
    alone = total(records[:1], torch.zeros(1))
    both = total(records, torch.zeros(2))
    assert torch.isfinite(both).all()
    if math.isfinite(poison):
        assert float((both - alone).norm()) == pytest.approx(1.0)
    else:
        assert torch.equal(both, alone)


def test_layers_that_mix_records_are_refused() -> None:
    mixing = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
    with pytest.raises(InputError, match="use GroupNorm instead"):
        GradientSum(mixing, max_grad_norm=1.0)
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(InputError, match="nothing to train"):
        GradientSum(frozen, max_grad_norm=1.0)


class Remembering(torch.nn.Module):
    """Adds every record it reads to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 3)
        self.register_buffer("read", torch.zeros(64))

    def forward(self, images):
        self.read += images.flatten(1).sum(0)
        return self.inner(images.flatten(1))


def test_models_that_keep_something_of_a_record_are_refused() -> None:
    """Statistics that run along carry records, without noise, into other gradients and into the finished model."""
    norm = torch.nn.InstanceNorm2d(1, track_running_stats=True)
    model = torch.nn.Sequential(norm, torch.nn.Flatten(), torch.nn.Linear(64, 3))
    records, labels = torch.randn(5, 1, 8, 8), torch.arange(5) % 3
    with pytest.raises(InputError, match=r"writes to its buffers while it runs \(0.running_mean, 0.running_var\)"):
        GradientSum(model, max_grad_norm=1.0)(records, labels)
    model[0].eval()  # as they are, and they stay so
    assert bool(GradientSum(model, max_grad_norm=1.0)(records, labels).any())
    spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(64, 3))
    with pytest.raises(InputError, match="put them into eval mode"):
        GradientSum(torch.nn.Sequential(torch.nn.Flatten(), spectral), max_grad_norm=1.0)(records, labels)
    with pytest.raises(InputError, match="gradient of one record by itself"):
        GradientSum(Remembering(), max_grad_norm=1.0)(records, labels)


def test_what_pytorch_cannot_do_is_said_in_one_sentence() -> None:
    """Weights of another format than the records."""
    model = torch.nn.Linear(4, 3).double()
    with pytest.raises(InputError, match=r"gradient of one record by itself: .*dtype"):
        GradientSum(model, max_grad_norm=1.0)(torch.randn(2, 4), torch.arange(2))


def test_frozen_parameters_are_left_out() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 10)).double()
    model[0].requires_grad_(False)
    total = GradientSum(model, max_grad_norm=1.0)
    assert total.dimension == 60
    records = torch.randn(RECORDS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert total(records, LABELS).shape == (60,)


def test_models_have_the_published_sizes() -> None:
    """Counted by hand: 26,010 for the small network; the others within rounding of the usual figures."""
    colors = np.zeros((2, 3, 32, 32), dtype=np.uint8)
    data = Dataset("colors", "images", colors, np.array([0, 9]), colors, np.array([0, 9]))
    tokens = np.zeros((2, 128), dtype=np.int64)
    text = Dataset("text", "text", tokens, np.array([0, 3]), tokens, np.array([0, 3]), vocabulary_size=30_003)
    with torch.device("meta"):
        sizes = {
            "cnn": 26_010,
            "resnet18": 11_173_962,
            "resnet34": 21_282_122,
            "wideresnet-28-10": 36_489_290,
            "vit-tiny": 5_362_762,
        }
        for name, size in sizes.items():
            shown = gray_data() if name == "cnn" else data
            assert parameter_count(build_model(name, shown, seed=0)) == pytest.approx(size, rel=2e-3)
        # 30,003 x 256 tokens, 128 x 256 positions, 4 blocks of 4 x 256^2 + 3 x 256 x 1024 and small change.
        blocks = 4 * (4 * 256**2 + 4 * 256 + 3 * 256 * 1024 + 2 * 256)
        count = 30_003 * 256 + 128 * 256 + blocks + 256 + 257 * 4
        assert parameter_count(build_model("transformer-tiny", text, seed=0)) == count


def test_models_refuse_what_they_cannot_read() -> None:
    with pytest.raises(InputError, match="reads text, but gray holds images"):
        build_model("transformer-tiny", gray_data())
    with pytest.raises(InputError, match="model"):
        build_model("alexnet", gray_data())
    for size, name in ((13, "cnn"), (14, "cnn"), (13, "resnet18"), (14, "vit-tiny")):
        pictures = np.zeros((2, 1, size, size), dtype=np.uint8)
        data = Dataset("small", "images", pictures, np.arange(2), pictures, np.arange(2))
        if (size, name) in ((14, "cnn"), (13, "resnet18")):
            assert build_model(name, data, seed=0)(data.prepare(torch.as_tensor(pictures))).shape == (2, 2)
        else:
            with pytest.raises(InputError, match=f"got images of 14 x 14|needs images of 14 x 14 at least, got {size}"):
                build_model(name, data, seed=0)
    with pytest.raises(InputError, match="seed"):
        build_model("cnn", gray_data(), seed=2**64)


def test_weights_depend_on_the_seed_and_on_nothing_else() -> None:
    torch.manual_seed(5)
    first = build_model("cnn", gray_data(), seed=1)
    torch.randn(7)
    second, third = build_model("cnn", gray_data(), seed=1), build_model("cnn", gray_data(), seed=2)
    flat = [torch.cat([p.flatten() for p in model.parameters()]) for model in (first, second, third)]
    assert torch.equal(flat[0], flat[1])
    assert not torch.equal(flat[0], flat[2])


def test_micro_batches_fit_the_memory() -> None:
    """Powers of two: 8 records of 11 million parameters are 360 MB. (GPUs: `test_training_cuda`.)"""
    assert suitable_micro_batch(26_010, torch.device("cpu")) == 512
    assert suitable_micro_batch(11_173_962, torch.device("cpu")) == 8
    assert suitable_micro_batch(10**10, torch.device("cpu")) == 1


def test_cross_entropy_is_minus_the_log_of_the_softmax() -> None:
    scores = torch.tensor([[1.0, 2.0, 0.5]], dtype=torch.float64)
    expected = -math.log(math.exp(2.0) / (math.exp(1.0) + math.exp(2.0) + math.exp(0.5)))
    assert float(cross_entropy(scores, torch.tensor([1]))) == pytest.approx(expected, rel=1e-12)


def test_sizes_are_rounded_up_by_little() -> None:
    """By less than 1/8 from 36 records on; and the sizes within four deviations of a mean are a few dozen at most."""
    for count in range(1, 5000):
        assert count <= bucket(count) <= count + max(1, count // 8) - 1 + (count < 36)
    for mean in (64, 256, 2048, 10_000):
        around = range(mean - 4 * math.isqrt(mean), mean + 4 * math.isqrt(mean))
        assert len({bucket(count) for count in around}) <= 24
