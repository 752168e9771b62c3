"""Every number that Ertan and van Dijk (2026) print and Calipers computes again, with the place where it stands.

Numbers are kept as text, because "0.2" and "0.200" claim different things. The accuracies of Tables 1 to 9 are
measured by training and are not here.
"""

from __future__ import annotations

from dataclasses import dataclass

EPOCHS = (1, 10, 25)
"""Section 7: the epoch budgets, and the rows of every batch size in Tables 1 to 9."""


@dataclass(frozen=True)
class Dataset:
    """A training set: its name and number of records; `everything`: with records the paper does not mention."""

    name: str
    records: int
    everything: int | None = None


# Appendix B.1: 50k, 120k and about 73k training examples.
CIFAR_10 = Dataset("CIFAR-10", 50_000)
CIFAR_100 = Dataset("CIFAR-100", 50_000)
AG_NEWS = Dataset("AG News", 120_000)
# The third split of SVHN, "extra", has 531,131 images; the paper does not mention it.
SVHN = Dataset("SVHN", 73_257, 73_257 + 531_131)


@dataclass(frozen=True)
class Table:
    """One of Tables 1 to 9: by batch size, the σ printed beside both samplers' accuracies for every epoch budget."""

    dataset: Dataset
    model: str
    noise: dict[int, str]


_OF_50_000 = {128: "0.29", 256: "0.31", 512: "0.33", 1024: "0.36"}
_OF_120_000 = {128: "0.27", 256: "0.29", 512: "0.30", 1024: "0.32"}

TABLES = {
    1: Table(CIFAR_10, "ResNet-18", _OF_50_000 | {2048: "0.40", 4096: "0.45"}),
    2: Table(AG_NEWS, "Transformer-Base", {batch: _OF_120_000[batch] for batch in (128, 256, 512)}),
    3: Table(AG_NEWS, "Transformer-Tiny", _OF_120_000),
    4: Table(AG_NEWS, "Transformer-Small", _OF_120_000),
    5: Table(CIFAR_10, "ViT-Tiny", _OF_50_000),
    6: Table(CIFAR_10, "ViT-Small", _OF_50_000),
    7: Table(CIFAR_10, "ViT-Base", _OF_50_000),
    8: Table(CIFAR_100, "ResNet-34", _OF_50_000),
    9: Table(SVHN, "WideResNet-28x10", {128: "0.24", 256: "0.25", 512: "0.27"}),
}

# Captions of Tables 2 to 7 and 9: "≈" so many million parameters.
MODEL_SIZES = {
    "Transformer-Base": 136,
    "Transformer-Tiny": 3,
    "Transformer-Small": 40,
    "ViT-Tiny": 12,
    "ViT-Small": 19,
    "ViT-Base": 85,
    "WideResNet-28x10": 36,
}


@dataclass(frozen=True)
class Line:
    """One line of Table 10."""

    rounds: int
    shuffle_separation: str
    shuffle_epsilon: str
    poisson_separation: str
    poisson_epsilon: str


# Table 10: δ = 1/N with N = 10^8.
TABLE_10_DELTA = 1e-8
TABLE_10 = (
    Line(1_000, "0.316", "0.96", "0.200", "0.58"),
    Line(3_000, "0.318", "0.97", "0.201", "0.59"),
    Line(10_000, "0.321", "0.98", "0.203", "0.59"),
    Line(30_000, "0.322", "0.98", "0.204", "0.59"),
    Line(100_000, "0.324", "0.99", "0.205", "0.60"),
    Line(300_000, "0.325", "1.00", "0.206", "0.60"),
    Line(1_000_000, "0.327", "1.00", "0.207", "0.60"),
    Line(3_000_000, "0.328", "1.00", "0.207", "0.60"),
    Line(5_000_000, "0.328", "1.01", "0.207", "0.60"),
)


@dataclass(frozen=True)
class Threshold:
    """Section 6.2, "Interpretation": a dataset in batches of 256, its number of rounds and the noise it forces."""

    name: str
    records: int
    rounds: str
    noise: str


QUOTED_BATCH_SIZE = 256
THRESHOLDS = (
    Threshold("ImageNet-1k", 1_300_000, "5E+3", "0.24"),
    Threshold("LAION-5B", 5_800_000_000, "2.3E+7", "0.17"),
)

# Proof of Theorem 6.1: 1/sqrt(4 pi ln M) stays below this for every M >= 2.
PROOF_LARGEST_LEVEL = "< 0.5"

# Section F.1: at σ = s/sqrt(ln M) "for a fixed constant s > 0" the predicted separation tends to 1/sqrt 2.
FIGURE_3_CLAIM = "→ 1/√2"
