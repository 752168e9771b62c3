"""Which keys an entry of the differential-privacy deployments registry has, and what they may hold.

The registry is kept by OpenDP (github.com/opendp/deployments-registry-data) and proposed to be hosted by NIST. Its
schema has no version number; the facts here are those of its commit 3e9c812a of 2026-07-15. A test writes them as a
JSON Schema again, whose fingerprint must be that of the registry's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date

REVISION = "3e9c812a (2026-07-15)"
TEXT, TEXTS, NUMBER, NUMBER_OR_TEXT, DATE = "text", "texts", "number", "number or text", "date"
ANYTHING = "anything"
"""What the schema leaves open; here too it is a text."""
STATUSES = (
    "Converted",
    "Draft",
    "Pending",
    "Changes Required",
    "Approved",
    "Approved (Update Requested)",
    "Approved (Pending)",
)
PRODUCTS = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
VARIANTS = ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom")
MODELS = ("Local", "Central", "Shuffle", "Federated", "Varies")

# Formulas begin with \\( and end with \\); any other doubled backslash is one escaped twice.
_DOUBLED = re.compile(r"\\\\[^()]")

# A tuple lists what is allowed, a dictionary holds further keys, a word names a kind; "*" marks what is required.
SCHEMA: dict[str, object] = {
    "url_slug*": TEXT,
    "status*": STATUSES,
    "tier*": (1, 2, 3),
    "deployment*": {
        "basic*": {
            "name*": TEXT,
            "data_curators*": TEXTS,
            "intended_use*": TEXT,
            "data_product_type*": PRODUCTS,
            "data_product_region*": TEXT,
            "description*": TEXT,
            "publication_date*": DATE,
            "data_product_sector": SECTORS,
        },
        "dp_variant": {"variant_name": VARIANTS, "data_domain": TEXT, "unprotected_quantities": TEXT},
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": NUMBER, "delta": NUMBER_OR_TEXT, "rho": NUMBER},
            "privacy_parameters_details": ANYTHING,
        },
        "deployment_model": {
            "model_name": MODELS,
            "model_name_details": TEXT,
            "actors": TEXT,
            "release_type": ("One release", "Many releases"),
            "release_type_details": TEXT,
            "data_source_type": ("Static", "Dynamic"),
            "data_source_type_details": ANYTHING,
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": TEXT,
        },
        "accounting": {"post_processing": TEXT, "composition": TEXT},
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TEXT,
            "mechanisms": TEXT,
            "justification": TEXT,
        },
        "administrative": {"sources": TEXT, "notes": TEXT, "registry_authors*": TEXTS},
    },
}


def complaints(value: object, kind: object = SCHEMA, place: str = "entry") -> Iterator[str]:
    """Where an entry departs from the schema, a sentence each."""
    if isinstance(kind, dict):
        yield from _object(value, kind, place)
    elif isinstance(kind, tuple):
        if isinstance(value, bool) or value not in kind:
            yield f"{place} is one of {', '.join(map(str, kind))}, got {value!r}."
    elif kind == TEXTS:
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            yield f"{place} is a list of at least one text, got {value!r}."
    elif kind in (NUMBER, NUMBER_OR_TEXT):
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric and not (kind == NUMBER_OR_TEXT and isinstance(value, str)):
            yield f"{place} is a {kind}, got {value!r}."
    elif not isinstance(value, str):
        yield f"{place} is a text, got {value!r}."
    elif kind == DATE and not _is_date(value):
        yield f"{place} is a date as YYYY-MM-DD, got {value!r}."
    elif _DOUBLED.search(value):
        yield f"{place} has two backslashes in a row, which the registry refuses; write formulas with one."


def file_name_complaints(name: str) -> Iterator[str]:
    """The registry's checker looks at the name of the file as well."""
    if not re.fullmatch(r"[a-z0-9_]+\.yaml", name):
        yield f"The registry takes files named with small letters, digits and underscores (my_model.yaml), not {name}."


def _object(value: object, kind: dict[str, object], place: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{place} holds further keys, got {value!r}."
        return
    known = {name.removesuffix("*"): inner for name, inner in kind.items()}
    for name in kind:
        if name.endswith("*") and name.removesuffix("*") not in value:
            yield f"{place} needs {name.removesuffix('*')}."
    for name, inner in value.items():
        if name not in known:
            yield f"{place} knows no {name}."
        else:
            yield from complaints(inner, known[name], f"{place}.{name}")


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
