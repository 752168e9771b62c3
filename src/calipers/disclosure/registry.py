"""An entry for the differential-privacy deployments registry, as YAML.

Calipers fills in what it measured: variant, parameters, unit, composition, mechanism. Everything about the data product
comes from `about`, a table with these keys (a TOML file for `calipers export --about`):

    required  name, data_curators, intended_use, data_product_region, description, publication_date, registry_authors
    optional  data_product_sector, and any text of tiers 2 and 3: data_domain, unprotected_quantities, actors,
              release_type, data_source_type, access_type, post_processing, justification, sources, ...

The tier is 3 only where every text of tier 3 is there, else 2. Status is "Draft": the registry's board decides.
"""

from __future__ import annotations

import re
from datetime import date

from calipers.disclosure.facts import Disclosure
from calipers.disclosure.registry_schema import REVISION, SCHEMA, complaints
from calipers.disclosure.yaml_text import to_yaml
from calipers.errors import InputError

_OURS = {"variant_name", "privacy_unit", "epsilon", "delta", "rho", "composition", "mechanisms", "notes"}
_EVERY_TIER_3 = (
    "data_domain",
    "unprotected_quantities",
    "actors",
    "post_processing",
    "preprocessing_and_hyperparameter_tuning",
    "justification",
)
_DEPLOYMENT = SCHEMA["deployment*"]
assert isinstance(_DEPLOYMENT, dict)
_PLACES = {key.removesuffix("*"): name.removesuffix("*") for name, keys in _DEPLOYMENT.items() for key in keys}
"""The section of every key of a deployment."""
_ELSEWHERE = {"other_releases", "utility", "noise_source", "side_channels", "access_control", "data_collection"}
"""Keys of `about` that only the checklist reads."""


def registry_entry(found: Disclosure) -> dict[str, object]:
    """The entry as plain data, or `InputError` naming everything that is missing or wrong."""
    about = {key: value for key, value in found.about.items() if key not in _ELSEWHERE}
    unknown = [key for key in about if key not in _PLACES or key in _OURS]
    if unknown:
        raise InputError(
            f"An entry of the registry takes no {', '.join(unknown)} from --about; what Calipers measures it writes "
            "itself."
        )
    published = about.get("publication_date")
    if isinstance(published, date):  # TOML has dates of its own
        about["publication_date"] = published.isoformat()
    deployment: dict[str, dict[str, object]] = {section: {} for section in _PLACES.values()}
    for key, value in about.items():
        deployment[_PLACES[key]][key] = value
    deployment["basic"].setdefault("data_product_type", "Machine learning model")
    _measured(found, deployment)
    tier = 3 if all(about.get(key) for key in _EVERY_TIER_3) else 2
    entry: dict[str, object] = {"url_slug": "", "status": "Draft", "tier": tier, "deployment": deployment}
    wrong = list(complaints(entry))
    if wrong:
        raise InputError(f"The registry's schema is not met: {' '.join(wrong)} Say it in --about FILE.toml.")
    entry["url_slug"] = _slug(deployment["basic"])
    return entry


def registry_yaml(found: Disclosure) -> str:
    """The entry as the text of a file for the registry's folder `deployments`."""
    head = f"# Written by Calipers {found.origin['calipers']} for the registry's schema of {REVISION}.\n"
    entry = registry_entry(found)
    # The registry's own tools look for the address on the first line, without quotes.
    return f"url_slug: {entry.pop('url_slug')}\n{to_yaml(entry)}{head}"


def _measured(found: Disclosure, deployment: dict[str, dict[str, object]]) -> None:
    """What the measurement says, in the registry's words."""
    if found.isolated:
        raise InputError(
            "The registry lists differential privacy, and a bound in the isolated view is none; measure the run with "
            "view = 'worst-case'."
        )
    epsilon, _ = found.pair
    about = found.origin
    deployment["dp_variant"] = {"variant_name": "Approximate DP", **deployment["dp_variant"]}
    loss = deployment["privacy_loss"]
    said = str(loss.pop("privacy_unit_details", ""))
    deployment["privacy_loss"] = {
        "privacy_unit": "One training record" if found.unit == "one record" else f"O{found.unit[1:]}",
        "privacy_unit_details": f"{found.neighbors} {said}".strip(),
        "privacy_parameters": {"epsilon": float(epsilon), "delta": found.row.at},
        **loss,
    }
    loss = deployment["privacy_loss"]
    shown = (
        f"An explicit attack reaches an epsilon of at least {found.shown} at the same delta." if found.attained else ""
    )
    given = str(loss.pop("privacy_parameters_details", ""))
    loss["privacy_parameters_details"] = (
        "Epsilon is a proven upper bound for the run described under mechanisms, rounded up. "
        f"{shown} {found.adversary}{found.delta_note} {given}"
    ).strip()
    deployment["deployment_model"].setdefault("model_name", "Central")
    deployment["accounting"]["composition"] = (
        "All steps of the training are composed together by a numerical bound on the whole trade-off curve, with every "
        "rounding and truncation added to the upper bound; it is about this training alone."
    )
    deployment["implementation"]["mechanisms"] = (
        f"DP-SGD (Gaussian mechanism on clipped per-record gradients). {found.training} The run is known {found.known}."
    )
    notes = [f"Measured with Calipers {about['calipers']} on {about['date']}; run SHA-256 {about['run_sha256']}."]
    deployment["administrative"]["notes"] = " ".join([*notes, *found.conditions])


def _slug(basic: dict[str, object]) -> str:
    """The stable address that the registry makes from name, curators and year."""
    curators = basic["data_curators"]
    assert isinstance(curators, list)
    parts = (str(basic["name"]), "-".join(curators), str(basic["publication_date"]).partition("-")[0])
    return "_".join(re.sub(r"\W+", "_", part.lower()) for part in parts).replace("_", "-")
