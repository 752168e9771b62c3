"""What was seen of a run, in a few words each, and where it was seen."""

from __future__ import annotations

from typing import Any

from calipers.adapters.opacus_loaders import LoaderLaw
from calipers.adapters.watched_record import Seen
from calipers.adapters.watched_release import WatchedRelease
from calipers.numerics.decimals import claim_digits
from calipers.run_keys import rate_text

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


def executed_words(seen: Seen, steps: int, planned: int | None) -> str:
    """What was executed, for a report whose runs only bound it; `steps` counts those before that were described."""
    if not seen.steps:
        return f"{steps:,} steps that were described"
    noises = sorted(seen.noises)
    noise = " to ".join(claim_digits(one, 8) for one in dict.fromkeys((noises[0], noises[-1])))
    drawn = " and ".join(dict.fromkeys(map(_drawn, seen.draws.sources)))
    count = f"{seen.steps:,} step{'s' * (seen.steps > 1)}"
    if planned is not None and planned > steps:
        count += f" (at most {planned:,} were possible)"
    found = f"{count} on {drawn}, with noise multiplier{'s' * (len(noises) > 1)} {noise}"
    return f"{found}, after {steps - seen.steps:,} that were described" if steps > seen.steps else found


def _drawn(source: LoaderLaw) -> str:
    """How a loader drew its batches, in the words of reports."""
    if source.sample_rate is not None:
        return f"Poisson batches at the rate {rate_text(source.sample_rate)}"
    if source.kind == "dealt" and source.whole:
        cut = f"batches of {source.batch_size:,}"
        return f"shuffled {cut}" if source.shuffled else f"{cut} in a fixed order"
    return f"batches drawn by {source.name}"


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
