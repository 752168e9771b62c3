"""What each release of Opacus divides the noisy sum by, and the numbers it computes from N and B.

Wang et al. (2026), Table 2, classify the releases by the divisor of the noisy sum: the batch that came
out (ASGM), its expected size N q (EASGM), or floor(N q) (FEASGM). All three depend on the data. The
table here says for each release how that was checked:

- "read and run": the published wheel was read, and one step of it was run with known gradients;
- "read": the wheel was read; it no longer imports next to a current PyTorch.

Both confirm Table 2, and not the paper's introduction, which counts 1.0-1.4 as EASGM. What the table
does not say:

- 0.14 and 0.15 divide by N q only with `poisson=True`, which is not their default; without it they
  divide by the batch that came out. Given `batch_size` and `sample_size` they compute q = B/N and divide
  by q N = B, a constant; the divisor moves with N only if the user fixes `sample_rate`.
- 1.0 and later take nothing from the user but a loader of L = ceil(N/B) batches. They sample at 1/L,
  take L' = int(1/(1/L)) steps per epoch, account at 1/L', and divide by int(N * (1/L')), all in double
  precision. A loader with drop_last=True has L = floor(N/B) batches instead; Opacus forgets that it had.
  So the sample rate, the number of steps *and* the divisor move when N crosses a multiple of B: from N = 1000 to 1001
  with B = 100 the rate falls from 1/10 to 1/11 and the divisor from 100 to 91.
- Rounding: L' = L - 1 for L = 93, 99, 105, ... (N = 50,000, B = 128 samples at 1/391 and accounts at
  1/390), and int(N * (1/L')) loses one for N = 98, B = 2 and is zero for N = 49, B = 1.

1.0.0-1.0.2 were run by `calipers probe` next to PyTorch 2.13, with N = 1000 and B = 100: Poisson batches at 1/10,
divisors 99, 100 and 91 at N = 999, 1000 and 1001. Their step fails on an empty batch there.

A `Run` has one sample rate. Where the rate or the number of steps differs between N and its neighbors
N - 1 and N + 1, no `Run` describes the pair, and `run_keys` refuses, unless given that the rate is to
be read as a public constant.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from calipers.citations import implements
from calipers.domains import Domain, choice
from calipers.errors import CalipersWarning, ConditionError, InputError, UnsupportedError
from calipers.run_keys import known

LOSS_REDUCTIONS = ("mean", "sum")
_SIZE = Domain(1, 2**53, integer=True)
_RATE = Domain(2**-53, 1)


@dataclass(frozen=True)
class Release:
    """Releases that share one rule; `normalization` is for `loss_reduction="mean"` and Poisson sampling.

    They are data (`opacus_releases.json`). One without a `commit` is newer than the paper.
    """

    versions: tuple[str, ...]
    normalization: str
    mechanism: str
    commit: str
    verified: str


RELEASES = tuple(
    Release(**entry | {"versions": tuple(entry["versions"])})
    for entry in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
)
VERSIONS = tuple(version for release in RELEASES for version in release.versions)


@implements("wang2026:tab2")
def release_of(version: str) -> Release:
    """The entry of a release, or `InputError` that lists the known ones."""
    name = "1.5" if version == "1.5.0" else version
    choice("version", name, VERSIONS, "For another release, run `calipers probe opacus` where it is installed.")
    return next(release for release in RELEASES if name in release.versions)


class Loader(TypedDict, total=False):
    """What says how large batches are: `batch_size` or `sample_rate`, and whether a short last batch is dropped."""

    batch_size: int | None
    sample_rate: float | None
    drop_last: bool


@dataclass(frozen=True)
class OpacusNumbers:
    """What a release computes for one dataset size: rates, steps per epoch, and the divisor of the noisy sum.

    `divisor` is None where the batch that came out is the divisor.
    """

    dataset_size: int
    sampled_rate: float
    accounted_rate: float
    steps_per_epoch: int
    divisor: float | None


def opacus_numbers(
    version: str,
    *,
    dataset_size: int,
    batch_size: int | None = None,
    sample_rate: float | None = None,
    drop_last: bool = False,
) -> OpacusNumbers:
    """The numbers of a release for Poisson sampling, in its own floating-point arithmetic.

    Releases from 1.0 on need `batch_size`: they derive the rate from the loader, whose `drop_last` counts. 0.12-0.15
    take either `batch_size` or `sample_rate`.
    """
    release = release_of(version)
    size = _SIZE.check_int("dataset_size", dataset_size)
    if release.mechanism == "not supported":
        raise UnsupportedError(
            f"Opacus {version} refuses batches above batch_size, so it cannot sample by Poisson; describe its "
            "shuffled batches by Run(sampler='shuffle', ...)."
        )
    if (batch_size is None) == (sample_rate is None):
        raise InputError("Give exactly one of batch_size and sample_rate.")
    if release.normalization == "floor":
        if batch_size is None:
            raise InputError(f"Opacus {version} derives its sample rate from the loader; give batch_size instead.")
        return _from_loader(size, _SIZE.check_int("batch_size", batch_size), drop_last)
    if batch_size is None:
        rate = _RATE.check("sample_rate", sample_rate)
        expected = rate * size
    else:
        whole = Domain(1, size, integer=True)
        expected = float(whole.check_int("batch_size", batch_size, "A batch holds at most the whole dataset."))
        rate = expected / size
    return OpacusNumbers(size, rate, rate, int(1 / rate), expected if release.normalization == "expected" else None)


def _from_loader(dataset_size: int, batch_size: int, drop_last: bool) -> OpacusNumbers:
    """The arithmetic of releases 1.0-1.6, rounding included."""
    if drop_last and dataset_size < batch_size:
        raise InputError(
            f"A loader of {dataset_size} records in batches of {batch_size} with drop_last=True is empty; lower "
            "batch_size."
        )
    sampled = 1 / (dataset_size // batch_size if drop_last else math.ceil(dataset_size / batch_size))
    steps = int(1 / sampled)
    accounted = 1 / steps
    return OpacusNumbers(dataset_size, sampled, accounted, steps, int(dataset_size * accounted))


def neighbors(version: str, dataset_size: int, **loader: Unpack[Loader]) -> tuple[OpacusNumbers, ...]:
    """The numbers at N - 1 (where they exist), N and N + 1."""
    found = []
    for size in (dataset_size - 1, dataset_size, dataset_size + 1):
        try:
            found.append(opacus_numbers(version, dataset_size=size, **loader))
        except InputError:
            if size >= dataset_size:
                raise
    return tuple(found)


def quiet_size(version: str, dataset_size: int, **loader: Unpack[Loader]) -> int | None:
    """The largest size at most `dataset_size` at which no number moves between neighbors, if one is near."""
    batch_size = loader.get("batch_size")
    reach = 64 if batch_size is None else 2 * batch_size + 2
    for size in range(dataset_size, max(1, dataset_size - reach), -1):
        found = neighbors(version, size, **loader)
        if len(found) == 3 and len({(_schedule(entry, None), entry.divisor) for entry in found}) == 1:
            return size
    return None


_NEEDED = ("dataset_size", "noise_multiplier")
_SETTINGS = (
    *_NEEDED, "dimension", "batch_size", "sample_rate", "epochs", "steps", "loss_reduction", "drop_last", "public_rate"
)  # fmt: skip


def check_settings(settings: Mapping[str, object]) -> None:
    """Refuse what `Run.from_opacus` does not take, with what to write instead."""
    for key, value in settings.items():
        if key in ("poisson_sampling", "sampler", "shuffle"):
            raise InputError(
                f"Run.from_opacus takes no {key}: it describes Poisson sampling, Opacus's default. For "
                "poisson_sampling=False with a loader that shuffles write Run(sampler='shuffle', last_batch='keep', "
                "normalization='floor', ...); last_batch='drop' for drop_last=True, normalization='none' for "
                "loss_reduction='sum'."
            )
        if key in ("adjacency", "unit", "records_per_unit"):
            more = ", records_per_unit=..." if key == "unit" else ""
            changed = f"Run.from_opacus(...).replace({key}={value!r}{more})"
            raise InputError(f"Run.from_opacus takes no {key}; change what it returns: {changed}.")
        known(key, _SETTINGS)
    missing = [key for key in _NEEDED if settings.get(key) is None]
    if missing:
        raise InputError(f"Run.from_opacus needs {' and '.join(missing)}: add {'them' if missing[1:] else 'it'}.")


def run_keys(
    version: str,
    *,
    dataset_size: int,
    epochs: int | None = None,
    steps: int | None = None,
    loss_reduction: str = "mean",
    public_rate: bool = False,
    **loader: Unpack[Loader],
) -> dict[str, object]:
    """The keys of the `Run` that a release executes: rate, steps, sampler and normalization.

    Post-condition: the rate is the one batches are drawn with, the divisor at N and at both
    neighbors is what `normalization` says; otherwise `UnsupportedError` or `ConditionError`. With
    `public_rate` the rate and the steps at N are taken for constants that the neighbors share.
    """
    choice("loss_reduction", loss_reduction, LOSS_REDUCTIONS)
    if (epochs is None) == (steps is None):
        raise InputError("Nothing says, or two things say, how long the run is; give one of epochs and steps.")
    here = opacus_numbers(version, dataset_size=dataset_size, **loader)
    around = neighbors(version, here.dataset_size, **loader)
    if not public_rate and len({_schedule(entry, steps) for entry in around}) > 1:
        quiet = quiet_size(version, here.dataset_size, **loader)
        raise UnsupportedError(_moving(version, around, quiet, loss_reduction == "mean"))
    total = steps if epochs is None else _SIZE.check_int("epochs", epochs) * here.steps_per_epoch
    return {
        "dataset_size": here.dataset_size,
        "sample_rate": here.sampled_rate,
        "steps": total,
        "sampler": "poisson",
        "normalization": "none" if loss_reduction == "sum" else _normalization(release_of(version), here, around),
    }


def _schedule(entry: OpacusNumbers, steps: int | None) -> tuple[float, int | None]:
    """What a neighbor shares with N if it is described by the same `Run`; given steps do not move."""
    return entry.sampled_rate, entry.steps_per_epoch if steps is None else steps


def _normalization(release: Release, here: OpacusNumbers, around: tuple[OpacusNumbers, ...]) -> str:
    """The word for the divisor, checked against what a `Run` means by it."""
    if here.divisor is None:
        return "realized"
    if here.divisor == 0:
        raise ConditionError(
            f"With dataset_size={here.dataset_size} Opacus divides by int({here.dataset_size} * "
            f"{here.accounted_rate!r}) = 0: its gradients are NaN and nothing is trained. Change the batch size."
        )
    rate = here.sampled_rate
    sizes = [entry.dataset_size for entry in around]
    if release.normalization == "expected":
        # A batch size makes the divisor q N = B whatever N is; a rate makes it q N.
        return "constant" if len({entry.divisor for entry in around}) == 1 else "expected"
    # Neighbors keep this rate when it is read as public; otherwise it is the one they have.
    divisors = [int(size * here.accounted_rate) for size in sizes]
    if divisors == [math.floor(size * rate) for size in sizes]:
        return "floor"
    if len(set(divisors)) == 1:
        warnings.warn(
            f"Opacus divides by {divisors[0]}, which it computes from the size of the dataset: it is a constant for "
            f"{sizes[0]:,} to {sizes[-1]:,} records, and the numbers hold for N = {here.dataset_size:,} only.",
            CalipersWarning,
            stacklevel=4,
        )
        return "constant"
    raise UnsupportedError(
        f"Rounding makes Opacus divide by {divisors} at dataset sizes {sizes}, which is not floor(N q) for the rate "
        f"q = {rate!r} that batches are drawn with; no Run says that. Use loss_reduction='sum' with a criterion that "
        "sums too (reduction='sum'; else gradients are divided before they are clipped), and divide by a public "
        "constant yourself."
    )


def _moving(version: str, around: tuple[OpacusNumbers, ...], quiet: int | None, divided: bool) -> str:
    """Why no single rate describes the neighbors, in numbers; `divided`: by a number that may move too."""
    shown = "; ".join(
        f"N = {entry.dataset_size}: rate 1/{1 / entry.sampled_rate:g}, {entry.steps_per_epoch} steps"
        + (f", divisor {entry.divisor:g}" if divided and entry.divisor is not None else "")
        for entry in around
    )
    advice = f" With {quiet} records (leave out a few, or batch otherwise) nothing moves." if quiet is not None else ""
    divisor = (
        ", except for the divisor int(N times the rate): where that moves, hardly anything is proven, and "
        "loss_reduction='sum' with a criterion that sums has none"
        if divided
        else ""
    )
    return (
        f"Opacus {version} derives the sample rate from the dataset's size, and here it differs between neighbors "
        f"({shown}), so that nothing is proven for adding or removing one record.{advice} Say public_rate=True if "
        "rate and steps are constants that do not follow N: the neighbor then has one record more or less and "
        f"everything else as here{divisor}."
    )
