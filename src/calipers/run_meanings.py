"""What every key of a run takes and means, said once for the command line and for the explorer's interface.

Sentences name other keys as run files do ("or give steps"); the command line writes them as options.
"""

from __future__ import annotations

import dataclasses

from calipers.run_fields import RunFields
from calipers.samplers import only_for

_FIELDS = {field.name: field for field in dataclasses.fields(RunFields)}
DEFAULTS = {
    name: field.default
    for name, field in _FIELDS.items()
    if isinstance(field.default, str | int) and field.default and name != "records_per_unit"  # a unit needs its number
}
"""What holds where a run does not say it."""

MEANINGS = {
    "dataset_size": "Number of records in your own dataset.",
    "batch_size": "Records per batch (expected, under Poisson sampling).",
    "sample_rate": "Probability that a record enters a batch, B/N; 0.01, or a fraction such as 1/235.",
    "epochs": "Passes over the data, each floor(N/B) steps, one more if a short last batch is kept; or give steps.",
    "steps": "Number of optimizer steps (noisy sums released); or give epochs.",
    "noise_multiplier": "Standard deviation of the noise / clipping norm.",
    "sampler": "How batches were really drawn; a loader that shuffles is not Poisson.",
    "normalization": "What the noisy sum is divided by: nothing, a public constant, N q, floor(N q), or the batch size "
    "that came out. (Batches of fixed size have q = 1 / number of batches here.)",
    "dimension": "Number of trained parameters (for data-dependent division).",
    "adjacency": "Neighboring datasets: one record more or fewer, zeroed out, or replaced. Where none is named: "
    "zero-out for deterministic, and for shuffle where a record more or fewer changes the number of batches; "
    "add-remove for all others (zero-out if one record fewer could not fill a batch of fixed size). Runs that are "
    "compared get one that all of them have.",
    "view": "worst-case: the adversary may choose all other records and, step by step, all gradients. "
    "isolated: it sees only the differing record's noisy contribution.",
    "last_batch": "What the loader does with records that do not fill a batch: drop (drop_last=True) or keep them as a "
    "short last one (PyTorch's default). Where neither is named, drop is assumed and the report says so.",
    "reshuffle": "Whether the shuffled order, or the bins, are drawn anew every epoch or once for all.",
    "max_batch_size": only_for("max_batch_size", "the largest batch; surplus is dropped."),
    "cycle": only_for("cycle", "how many groups of records take turns."),
    "participations": only_for("participations", "in how many of all steps each record is used."),
    "unit": "What is protected, if it has several records: user, patient, ...",
    "records_per_unit": "The most records that one unit has; needed where a unit is named.",
    "derived_rate": "Whether the Poisson rate B/N is a public number, or moving: computed by the loop from the dataset "
    "it is given, so that one record changes it.",
}


def kind_of(key: str) -> type:
    """float, int or str: what its values are."""
    said = str(_FIELDS[key].type)
    return float if "float" in said else int if "int" in said else str
