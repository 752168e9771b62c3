"""What the page's form is made of, as the registry of samplers has it (GET /api/form).

The page knows the fields of every run. Which samplers there are, and which keys each of them has besides, it is given
here: a sampler that is registered appears on the page, and its keys with it.
"""

from __future__ import annotations

from calipers.explorer.requests import MOST_PHASES, MOST_RUNS
from calipers.run import CHOICES, OPTIONAL
from calipers.samplers import ASSUMED, SAMPLERS, scheme_named

FormField = dict[str, object]

# The label of a key, and the words next to its values; a key that is not listed is shown by its own name.
_LABELS: dict[str, tuple[str, dict[str, str]]] = {
    "last_batch": ("Last batch", {"drop": "drop what does not fill one", "keep": "keep it, shorter"}),
    "reshuffle": ("Order", {"every-epoch": "drawn anew every epoch", "once": "drawn once and kept"}),
    "derived_rate": ("Rate B/N", {"public": "a public number", "moving": "moves with the dataset's size"}),
    "max_batch_size": ("Largest batch", {}),
    "cycle": ("Groups that take turns", {}),
    "participations": ("Steps that use each record", {}),
}
# Keys that say how large a batch is by themselves, and keys that mean something next to another one only.
_SIZING = ("participations",)
_WITH_KEY = {"derived_rate": "batch_size"}
# Keys about which a report says that nobody said them.
_ASKED = ("last_batch",)


def form_record() -> FormField:
    """The samplers, the keys that some of them have, and how many runs and phases the page may ask for."""
    schemes = [scheme_named(name) for name in SAMPLERS]
    return {
        "samplers": [
            {
                "name": scheme.name,
                "summary": scheme.summary,
                "keys": list(scheme.keys),
                "sized": not any(key in scheme.keys for key in _SIZING),
            }
            for scheme in schemes
        ],
        "assumed": ASSUMED,
        "fields": [_field(key) for key in OPTIONAL if any(key in scheme.keys for scheme in schemes)],
        "most_runs": MOST_RUNS,
        "most_phases": MOST_PHASES,
    }


def _field(key: str) -> FormField:
    label, words = _LABELS.get(key, (key.replace("_", " ").capitalize(), {}))
    field: FormField = {"key": key, "label": label, "beside": _WITH_KEY.get(key)}
    if key not in CHOICES:
        return field
    choices = [{"value": value, "words": words.get(value, value)} for value in CHOICES[key]]
    if key not in _ASKED:
        return {**field, "choices": choices, "default": OPTIONAL[key]}
    unsaid = {"value": "", "words": f"not said ({OPTIONAL[key]} is assumed)"}
    return {**field, "choices": [unsaid, *choices], "default": ""}
