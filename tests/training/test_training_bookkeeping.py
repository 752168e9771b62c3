"""Clipping without a gradient per record: the rules, when they are given up, and the bound that makes them safe."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers.training import layer_products, layer_rules  # noqa: E402
from calipers.training.gradients import GradientSum  # noqa: E402
from calipers.training.layer_products import Accuracy, EmbeddingProducts, Products, Rewritten  # noqa: E402
from calipers.training.layer_rules import Convolution, rule_for  # noqa: E402

pytestmark = pytest.mark.torch

nn = torch.nn
LABELS = torch.tensor([0, 2, 1, 2])


class Twice(nn.Module):
    """One linear layer, called for two parts of the input and again on their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, rows):
        first, second = self.mix(rows[:, :6]), self.mix(rows[:, 6:])
        return self.head(torch.tanh(self.mix(first + second)))


class Tied(nn.Module):
    """An embedding whose weight is used again as a linear layer: its rule sees half of the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5, padding_idx=0)
        self.head = nn.Linear(7, 3)

    def forward(self, tokens):
        return self.head(torch.tanh(nn.functional.linear(self.embed(tokens).mean(dim=1), self.embed.weight)))


class Unused(nn.Module):
    """Attention of PyTorch reads the weights of an inner layer that it never calls."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def forward(self, rows):
        return self.head(self.attend(rows, rows, rows)[0].mean(dim=1))


class Words(nn.Module):
    """An embedding with padding, and a convolution over what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 64, padding_idx=0), nn.Linear(64, 3)

    def forward(self, tokens):
        return self.head(torch.relu(self.embed(tokens)).sum(dim=1))


class Pyramid(nn.Module):
    """A convolution and a normalization, called for an image and for its half; one output has no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.shrink, self.mix = nn.Conv2d(2, 4, 1, stride=2), nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm, self.head = nn.GroupNorm(2, 4, affine=True), nn.Linear(4, 3, bias=False)

    def forward(self, images):
        self.mix(images + 1)
        large, small = self.norm(self.mix(images)), self.norm(self.mix(images[..., ::2, ::2]) + self.shrink(images))
        return self.head(torch.tanh(large).mean(dim=(-2, -1)) + torch.tanh(small).mean(dim=(-2, -1)))


class Positions(nn.Module):
    """A linear layer and an embedding that read the same for every record: what comes back is still each record's."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(9, 8), nn.Embedding(6, 8)
        self.turn, self.head = nn.Linear(8, 8, bias=False), nn.Linear(8, 3)

    def forward(self, tokens):
        places = self.turn(self.places(torch.arange(6)[None]))
        return self.head(torch.tanh(self.words(tokens) * places).sum(dim=1))


class Normed(nn.Module):
    """One root-mean-square normalization at two places, and a layer normalization without a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.RMSNorm(8), nn.LayerNorm(8, bias=False)
        self.mix, self.head = nn.Linear(8, 8, bias=False), nn.Linear(8, 3)

    def forward(self, rows):
        return self.head(self.last(rows + self.norm(self.mix(self.norm(rows)) ** 2)).mean(dim=1))


def generator(seed):
    return torch.Generator().manual_seed(seed)


def model_cases():
    words = torch.randint(0, 7, (4, 6), generator=generator(1))
    words[:, -2:] = 0
    images = torch.randn(4, 2, 9, 8, generator=generator(2), dtype=torch.float64)
    return {
        "called several times": (Twice(), torch.randn(4, 12, generator=generator(3), dtype=torch.float64), 4),
        "tied": (Tied(), words, 2),
        "weights read elsewhere": (Unused(), torch.randn(4, 5, 8, generator=generator(4), dtype=torch.float64), 2),
        "padding": (Words(), words, 3),
        "stride, padding, dilation": (
            nn.Sequential(
                nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
                nn.Tanh(),
                nn.Flatten(),
                nn.LazyLinear(3),
            ),
            images,
            4,
        ),
        "stride 1": (
            nn.Sequential(
                nn.Conv2d(2, 4, (3, 2), padding=(1, 2), dilation=(2, 1), bias=False),
                nn.GroupNorm(2, 4),
                nn.Tanh(),
                nn.Conv2d(4, 3, 3),
                nn.LayerNorm([3, 5, 9]),
                nn.Flatten(),
                nn.LazyLinear(3),
            ),
            images,
            9,
        ),
        "one convolution, two sizes": (Pyramid(), images, 6),
        "positions that no record changes": (Positions(), words, 5),
        "normalized twice": (Normed(), torch.randn(4, 5, 8, generator=generator(4), dtype=torch.float64), 5),
        "groups": (
            nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.LazyLinear(3)),
            images,
            2,
        ),
    }


def one_by_one(model, records, norm):
    parameters, total = list(model.parameters()), 0.0
    for record, label in zip(records, LABELS, strict=True):
        loss = nn.functional.cross_entropy(model(record[None]), label[None])
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        gradient = torch.cat([g.reshape(-1) for g in gradients])
        total = total + gradient * min(1.0, norm / float(gradient.norm()))
    return total


@pytest.mark.parametrize("way", ["tables", "by cost", "written", "spared"])
@pytest.mark.parametrize("name", list(model_cases()))
def test_rules_give_the_gradient_or_are_given_up(name, way, monkeypatch) -> None:
    """By tables, by the choice of cost, written and kept, written and let go, few records at a time: the sum is that of
    a loop over the records."""
    if way != "by cost":
        monkeypatch.setattr(layer_rules, "tables_pay", lambda *_: way == "tables")
        monkeypatch.setattr(layer_rules, "sparing", lambda *_: way == "spared")
        monkeypatch.setattr(layer_products, "_AT_ONCE", 300)
    torch.manual_seed(0)
    model, records, ruled = model_cases()[name]
    model = model.double()
    model(records)  # lazy layers take their sizes
    for norm in (0.05, 1e9):
        found = GradientSum(model, max_grad_norm=norm)
        expected = one_by_one(model, records, norm)
        assert float((found(records, LABELS) - expected).norm()) < 1e-10 * float(expected.norm())
        assert len(found._books.ruled) == ruled


@pytest.mark.parametrize("way", ["tables", "written", "spared"])
def test_a_broken_image_breaks_no_other_record(way, monkeypatch) -> None:
    """Pixels of all records lie in one line; a NaN or an infinity in one of them reaches nobody else's gradient."""
    monkeypatch.setattr(layer_rules, "tables_pay", lambda *_: way == "tables")
    monkeypatch.setattr(layer_rules, "sparing", lambda *_: way == "spared")
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1), nn.Flatten(), nn.Linear(216, 3))
    model, images = nn.Sequential(*layers).double(), torch.randn(4, 2, 9, 8, dtype=torch.float64)
    broken = images.clone()
    broken[1, 0, 0, 0], broken[2, 1, -1, -1] = float("nan"), float("inf")
    whole = torch.tensor([0, 3])
    expected = GradientSum(model, max_grad_norm=0.5)(images[whole], LABELS[whole])
    found = GradientSum(model, max_grad_norm=0.5)(broken, LABELS)
    assert float((found - expected).norm()) < 1e-12


def products(kind, rng, positions=7):
    """Products of three records."""
    back = torch.from_numpy(rng.normal(size=(3, positions, 30)) * 10.0 ** rng.integers(-6, 6)).float()
    if kind == "embedding":
        rows = torch.from_numpy(rng.integers(5, size=(3, positions)))
        return EmbeddingProducts(rows, back, (5, 30))
    rows = torch.from_numpy(rng.normal(size=(3, positions, 12 if kind == "narrow" else 40))).float()
    rows[1] = rows[1, :1]  # one row again and again, and gradients that nearly cancel
    back[1, 1:] = -back[1, :1] / (positions - 1) * (1 + 1e-4 * torch.arange(positions - 1)[:, None])
    return Products(rows, back, (30, rows.shape[2]))


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("kind", ["linear", "narrow", "embedding"])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_covers_what_is_summed(kind, seed, short) -> None:
    """At least the norm of the summand as it is stored, in exact terms; cancelling rows included, and not by much.

    Tensor cores are played by the cut: they read 11 bits of what is weighted.
    """
    accuracy = Accuracy.of(torch.float32, short)
    made = products(kind, np.random.default_rng(seed))
    made.rows, made.back = accuracy.cut(made.rows), accuracy.cut(made.back)
    norms, small = made.norms(accuracy)
    for factor in (1.0, 0.37, 1e-3):
        rows, back = made._weighted(torch.full((3,), factor))
        if kind != "embedding":
            rows, back = accuracy.cut(rows), accuracy.cut(back)
        read = np.eye(5)[rows.numpy()] if kind == "embedding" else rows.double().numpy()
        for i in range(3):
            summand = np.linalg.norm(back[i].double().numpy().T @ read[i])
            limit = factor * float(norms[i]) + float(small[i])
            assert summand <= limit
            if i != 1 or kind == "embedding":
                assert limit <= 1.02 * summand


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("way", ["tables", "rewritten"])
def test_the_bound_of_a_convolution_covers_the_gradient(way, stride, monkeypatch) -> None:
    """Also of two calls, a few records at a time: at least the norm that autograd finds in double precision, and
    hardly more."""
    monkeypatch.setattr(layer_products, "_AT_ONCE", 2000)
    torch.manual_seed(3)
    layer = nn.Conv2d(3, 5, 3, stride=stride, padding=1, bias=False)
    for calls in (1, 2):
        read = [torch.randn(4, 1, 3, 8, 7) for _ in range(calls)]
        back = [torch.randn(4, 1, *layer(images[:, 0]).shape[1:]) for images in read]
        made = Convolution(layer).products(list(zip(read, back, strict=True)))
        norms, small = (made if way == "tables" else Rewritten(made)).norms(Accuracy.of(torch.float32, False))
        exact = nn.Conv2d(3, 5, 3, stride=stride, padding=1, bias=False).double()
        for i in range(4):
            pairs = zip(read, back, strict=True)
            exact.zero_grad()
            sum((exact(images[i].double()) * came[i].double()).sum() for images, came in pairs).backward()
            norm = float(exact.weight.grad.norm())
            assert norm <= float(norms[i]) + float(small[i]) <= norm * 1.001


@pytest.mark.parametrize("way", ["tables", "rewritten"])
def test_squares_too_small_for_the_format_are_counted(way) -> None:
    """Rows whose squares vanish in single precision, and what came back large: the norm is not taken for zero."""
    rows, back = torch.full((1, 3, 40), 1e-25), torch.full((1, 3, 30), 1e15)
    made = Products(rows, back, (30, 40))
    norms, small = (made if way == "tables" else Rewritten(made)).norms(Accuracy.of(torch.float32, False))
    summand = np.linalg.norm(back[0].double().numpy().T @ rows[0].double().numpy())
    assert summand <= float(norms[0]) + float(small[0])
    assert not torch.any(rows @ rows.mT > 0)


@pytest.mark.parametrize("scale", [1.0, 1e-46])
def test_what_is_lost_in_writing_a_gradient_is_added_to_its_norm(scale) -> None:
    """Large terms that cancel swallow the small ones between them, in whichever order a processor adds, and products
    below the format vanish: the gradient that is written is too short, its norm is not."""
    back = torch.full((1, 4096, 1), scale**0.5)
    if scale == 1.0:
        back.view(16, 256)[:, :64], back.view(16, 256)[:, 192:] = 3e8, -3e8
    made = Products(torch.full((1, 4096, 1), scale**0.5), back, (1, 1))
    exact = abs(float(made.rows.double().flatten() @ back.double().flatten()))
    assert abs(float(made.each())) < 0.99 * exact
    norms, _ = Rewritten(made).norms(Accuracy.of(torch.float32, False))
    assert exact <= float(norms[0])


def test_cutting_keeps_eleven_bits_and_what_is_no_number() -> None:
    """Nothing grows, nothing moves by a share of 2^-10, and infinities and NaN are still there to be found."""
    numbers = torch.from_numpy(np.random.default_rng(1).normal(size=1000)).float()
    cut = Accuracy(2.0**-22, 2.0**-10, short=True).cut(torch.cat([numbers, torch.tensor([np.inf, -np.inf, np.nan])]))
    assert bool((cut[:1000].abs() <= numbers.abs()).all())
    assert bool(((cut[:1000] - numbers).abs() <= 2.0**-10 * numbers.abs()).all())
    assert bool(((cut[:1000] - numbers).abs() > 2.0**-12 * numbers.abs()).any())
    mantissa = np.frexp(cut[:1000].double().numpy())[0] * 2**11
    assert np.array_equal(mantissa, np.round(mantissa))
    assert cut[1000:].tolist()[:2] == [np.inf, -np.inf]
    assert bool(cut[1002].isnan())


def test_layers_without_a_rule() -> None:
    """Sparse and renormalized embeddings, grouped and reflecting convolutions, subclasses, layers whose function
    somebody replaced: mapped like any other."""

    class Own(nn.Linear):
        pass

    replaced = nn.Linear(2, 2)
    replaced.forward = lambda rows: rows
    refused = [
        Own(2, 2),
        replaced,
        nn.Embedding(3, 2, max_norm=1.0),
        nn.Embedding(3, 2, sparse=True),
        nn.Embedding(3, 2, scale_grad_by_freq=True),
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.InstanceNorm2d(3, affine=True),
    ]
    assert [rule_for(layer) for layer in refused] == [None] * len(refused)


def test_the_choice_of_rules_does_not_look_at_the_records() -> None:
    """A weight used twice, where the records show nothing of its second use: the rule is given up all the same."""
    torch.manual_seed(2)
    model = Tied().double()
    found = GradientSum(model, max_grad_norm=1.0)
    found(torch.zeros(4, 6, dtype=torch.int64), LABELS)  # padding only: the embedding gives zeros
    other = GradientSum(model, max_grad_norm=1.0)
    other(torch.randint(1, 7, (4, 6), generator=generator(5)), LABELS)
    assert found._books.ruled == other._books.ruled == {"head.weight", "head.bias"}


def test_a_model_that_reads_only_some_records_is_trained_without_rules() -> None:
    """The made-up record is refused by the model; the mapped gradients are there."""

    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 3)

        def forward(self, rows):
            if rows.shape[-1] != 5:
                raise ValueError("Five numbers, please.")
            return self.head(rows)

    torch.manual_seed(3)
    model, records = Picky().double(), torch.randn(4, 5, generator=generator(6), dtype=torch.float64)
    found = GradientSum(model, max_grad_norm=0.1)
    found._books._made_up = lambda rows, _: rows[:1, :4]  # of another shape, which the model refuses
    expected = one_by_one(model, records, 0.1)
    assert float((found(records, LABELS) - expected).norm()) < 1e-10 * float(expected.norm())
    assert not found._books


def test_dropout_is_drawn_per_record_and_checked_alike() -> None:
    """Random layers do not cost a rule: both ways of the check draw the same numbers."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.5), nn.Linear(40, 3)).train()
    found = GradientSum(model, max_grad_norm=1.0)
    found(torch.randn(4, 5), LABELS)
    assert len(found._books.ruled) == 4


def test_groups_of_many_records_are_normalized_in_pieces(monkeypatch) -> None:
    """PyTorch launches a grid as high as there are groups; the sums do not show it."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LazyLinear(3)).double()
    records, labels = torch.randn(7, 2, 5, 5, dtype=torch.float64), torch.arange(7) % 3
    layers(records)
    whole = GradientSum(layers, max_grad_norm=0.3)(records, labels)
    groups = []
    normalize = nn.functional.group_norm
    monkeypatch.setattr(nn.functional, "group_norm", lambda x, n, *rest: groups.append(n) or normalize(x, n, *rest))
    monkeypatch.setattr(layer_rules, "_LAUNCHED", 6)
    pieces = GradientSum(layers, max_grad_norm=0.3)(records, labels)
    assert {6, 2} <= set(groups)
    assert max(groups) <= 6
    assert torch.allclose(whole, pieces, rtol=1e-12, atol=1e-14)
