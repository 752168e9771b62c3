"""The words of papers and other libraries, and what Calipers calls the same.

A word whose meaning is identical is accepted where it is a value (`adjacency="replace-one"`). Where one word has two
meanings, or names what is no part of a run, the refusal says precisely what to write.
"""

from __future__ import annotations

ADJACENCIES = {
    "add-remove": ("unbounded", "add-or-remove-one", "add-or-remove", "add/remove", "addremove", "add-remove-one"),
    "substitute": ("bounded", "replace-one", "replace", "replacement", "swap", "substitution", "change-one"),
    "zero-out": ("replace-special", "zeroed-out", "zeroout", "null-record"),
}
"""Each neighboring relation and its other names, hyphens for underscores, in small letters."""

KEYS = {
    "noise_multiplier": ("sigma", "noise", "s", "noise_scale", "noise_std"),
    "sample_rate": ("q", "rate", "sampling_rate", "sampling_probability", "sampling_prob", "subsampling_rate"),
    "dataset_size": ("n", "size", "records", "num_examples", "number_of_examples", "num_samples", "n_samples"),
    "batch_size": ("b", "lot_size", "expected_batch_size", "logical_batch_size"),
    "steps": ("t", "iterations", "num_steps", "num_updates", "max_steps", "num_compositions"),
    "epochs": ("e", "num_epochs", "num_train_epochs"),
    "adjacency": ("neighboring_relation", "neighbors", "neighboring", "relation"),
    "sampler": ("sampling", "sampling_method", "sampling_scheme", "batch_sampler"),
    "normalization": ("loss_reduction", "reduction", "divisor"),
    "max_batch_size": ("truncated_batch_size", "maximum_batch_size"),
    "dimension": ("num_params", "n_params", "num_parameters", "parameters"),
    "unit": ("privacy_unit",),
    "records_per_unit": ("group_size", "records_per_user"),
    "additional_query": ("beside",),
    # What commands and `calibrate` take, and a run does not.
    "epsilon": ("eps", "target_epsilon"),
    "delta": ("d", "target_delta"),
    "fpr": ("alpha", "target_fpr"),
    "tpr": ("power",),
    "learning_rate": ("lr",),
    "max_grad_norm": ("clip", "c", "clip_norm", "clipping_norm", "l2_norm_clip", "l2_clip_norm", "clipping_threshold"),
    "run": ("file", "config", "run_file"),
    "report": ("output",),
    "explain": ("verbose", "v"),
    "overwrite": ("force",),
}
"""Each key or option and its other names."""
_CALLED = {other: key for key, names in KEYS.items() for other in names}

_CLIPPING = (
    "The clipping norm is no part of a run: noise_multiplier is the standard deviation of the noise divided by it; "
    "leave it out."
)
_AFTERWARDS = (
    "What is done with a noisy gradient afterwards (post-processing) does not change its privacy; leave it out."
)
_TARGET = "The noise for a target epsilon is found by `calipers calibrate`, in Python by calipers.calibrate."
_ASKED = "A run has no delta: ask its measurement, measure(run).epsilon(delta=1e-5)."
_LAST = "Write last_batch='drop' for drop_last=True, and last_batch='keep' for drop_last=False."
SENTENCES = {
    **dict.fromkeys(("max_grad_norm", *KEYS["max_grad_norm"]), _CLIPPING),
    **dict.fromkeys(("lr", "learning_rate", "optimizer", "momentum", "weight_decay"), _AFTERWARDS),
    **dict.fromkeys(("epsilon", "eps", "target_epsilon"), _TARGET),
    **dict.fromkeys(("delta", "target_delta"), _ASKED),
    "drop_last": _LAST,
    "keep_last": _LAST,
    "poisson_sampling": "Write sampler='poisson', or sampler='shuffle' for a loader that shuffles.",
    "poisson": "Write sampler='poisson'.",
    "shuffle": "Write sampler='shuffle'.",
}
"""Names that no key has, and what to write instead."""

_MEAN = (
    "Say what the mean is divided by: normalization='realized', the records that the batch really has; "
    "normalization='floor' or normalization='expected', N q rounded down or not (Opacus's loss_reduction=\"mean\" is "
    "'floor'); normalization='constant', a number that does not depend on the data."
)
_VALUES = {
    "normalization": {"mean": _MEAN, "average": _MEAN, "sum": "Write normalization='none'."},
    "sampler": {
        **dict.fromkeys(("shuffled", "shuffling", "random-reshuffling"), "Write sampler='shuffle'."),
        **dict.fromkeys(("sequential", "fixed", "full-batch"), "Write sampler='deterministic'."),
        **dict.fromkeys(("balls-in-bins", "bnb"), "Write sampler='balls-and-bins'."),
        **dict.fromkeys(("swor", "fixed-size", "sampled-without-replacement"), "Write sampler='without-replacement'."),
        **dict.fromkeys(("poisson-subsampling", "poisson-sampling"), "Write sampler='poisson'."),
    },
}


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(" ", "-")


def adjacency_named(value: object) -> object:
    """What Calipers calls a neighboring relation that has another name elsewhere; anything else as it is.

    Understood are the names above with hyphens or underscores in letters of any size, and members of dp_accounting's
    `NeighboringRelation`.
    """
    name = value.name if type(value).__name__ == "NeighboringRelation" and hasattr(value, "name") else value
    if not isinstance(name, str):
        return value
    plain = _plain(name)
    return next((here for here, names in ADJACENCIES.items() if plain == here or plain in names), value)


def key_named(name: str) -> str | None:
    """The key or option that has this other name."""
    return _CALLED.get(name.strip().lower().replace("-", "_"))


def advice_on_key(name: str) -> str:
    """What to write instead of a name that no key has; empty where nothing is known."""
    return SENTENCES.get(name.strip().lower().replace("-", "_"), "")


def advice_on_value(key: str, value: object) -> str:
    """What to write instead of a value that another library has for the key; empty where nothing is known."""
    if key == "adjacency":
        named = adjacency_named(value)
        return f"Write adjacency={named!r}." if isinstance(named, str) and named in ADJACENCIES else ""
    return _VALUES.get(key, {}).get(_plain(value), "") if isinstance(value, str) else ""
