"""Every number that Ertan and van Dijk (2026) print and Calipers computes again, with the place where it stands.

Numbers are kept as text, because "0.2" and "0.200" claim different things. Of the accuracies in Tables 1 to 9, which
are measured by training, those of Tables 1 and 3 are here.
"""

from __future__ import annotations

from dataclasses import dataclass

EPOCHS = (1, 10, 25)
"""Section 7: the epoch budgets, and the rows of every batch size in Tables 1 to 9."""

SAMPLERS = ("shuffle", "poisson")
"""Section 7: the samplers trained with, in the order of the columns."""


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

# Tables 1 and 3, accuracies in percent by (batch size, epochs): shuffling without noise and with the σ above, Poisson
# likewise.
TABLE_1_ACCURACIES = {
    (128, 1): ("48.0", "38.0", "47.9", "38.9"),
    (128, 10): ("80.1", "40.4", "79.4", "40.5"),
    (128, 25): ("82.2", "43.4", "81.8", "45.7"),
    (256, 1): ("44.9", "40.8", "47.6", "39.7"),
    (256, 10): ("68.6", "50.0", "77.8", "46.4"),
    (256, 25): ("78.7", "41.7", "79.2", "46.4"),
    (512, 1): ("39.9", "35.3", "42.6", "36.2"),
    (512, 10): ("70.5", "59.8", "71.9", "60.3"),
    (512, 25): ("79.5", "61.9", "79.0", "62.7"),
    (1024, 1): ("29.5", "28.6", "32.6", "28.7"),
    (1024, 10): ("60.4", "56.7", "61.2", "57.5"),
    (1024, 25): ("77.9", "67.0", "72.8", "65.7"),
    (2048, 1): ("27.8", "23.2", "29.0", "23.5"),
    (2048, 10): ("53.7", "47.6", "55.3", "46.9"),
    (2048, 25): ("71.4", "61.9", "69.2", "61.9"),
    (4096, 1): ("15.6", "14.4", "15.1", "14.5"),
    (4096, 10): ("45.9", "38.3", "46.9", "40.9"),
    (4096, 25): ("54.5", "48.3", "57.6", "50.0"),
}
TABLE_3_ACCURACIES = {
    (128, 1): ("87.5", "77.3", "86.5", "76.1"),
    (128, 10): ("90.9", "83.3", "90.2", "83.6"),
    (128, 25): ("91.2", "81.1", "90.3", "79.3"),
    (256, 1): ("87.0", "79.1", "87.3", "78.0"),
    (256, 10): ("91.2", "83.6", "90.3", "80.6"),
    (256, 25): ("90.2", "85.8", "91.4", "85.2"),
    (512, 1): ("85.3", "80.1", "84.1", "78.5"),
    (512, 10): ("90.3", "84.2", "87.6", "84.3"),
    (512, 25): ("91.1", "85.2", "90.0", "85.4"),
    (1024, 1): ("80.5", "75.1", "81.9", "74.8"),
    (1024, 10): ("87.3", "86.4", "86.7", "85.8"),
    (1024, 25): ("90.4", "86.3", "90.1", "87.0"),
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
