"""What was seen of a run, in a few words each, and where it was seen."""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_release import WatchedRelease

SEEN_AT = {
    "which records a step used, and at what sample rate": "every draw of the watched loaders' batch samplers",
    "which batch was used, repeated or passed over": "rows behind the gradients of every step, against the deliveries",
    "rows of one record": "Subset and ConcatDataset of the dataset, when attached and when each pass begins",
    "clipping norm": "clip_and_accumulate of every step (ghost clipping: get_clipping_coef of every backward pass)",
    "noise multiplier": "add_noise of every step",
    "reduction and divisor": "scale_grad of every step",
    "noise is new": "the state of its generator at every step and every pass",
    "who moved the parameters": "step of the inner optimizer, and the parameters between two steps",
    "steps that nobody watched": "the accountant's history, the inner optimizer's counter, other private optimizers",
}


def law_words(source: LoaderLaw) -> str:
    """A loader's distribution in a few words."""
    rate = "" if source.sample_rate is None else f", rate {source.sample_rate!r}"
    batch = "" if source.kind != "dealt" else f", batches of {source.batch_size}"
    return f"{source.kind}: {source.name}{rate}{batch}"


def release_words(release: WatchedRelease) -> str:
    """What acted in a release, in a few words."""
    if release.reduction == "sum":
        return f"noise {release.noise!r}, sum"
    divisor = f"{release.divisor:g}" if release.divisor else "its own number of rows"
    return f"noise {release.noise!r}, mean, divided by {divisor}"


def noise_words(optimizer: Any) -> str:
    """Where the noise of the steps comes from, as far as Opacus says."""
    if getattr(optimizer, "secure_mode", False):
        return "Opacus's secure mode: sums of noise from a cryptographic generator"
    own = "a generator that the script chose" if optimizer.generator is not None else "PyTorch's default generator"
    return f"{own}, not a cryptographic one; floating-point Gaussian noise"
