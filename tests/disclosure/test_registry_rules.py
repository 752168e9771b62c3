"""An entry keeps to the rules of the deployments registry itself.

The registry (github.com/opendp/deployments-registry-data, MIT license, commit 3e9c812a of 2026-07-15) has a JSON Schema
and a checker with further rules. What the schema demands is written in `registry_schema` as facts. Here they become a
JSON Schema again, and its fingerprint is that of the registry's file once texts for readers are left out: so not a key,
a word or a demand is missing or invented. The export is then checked by validators that know nothing of Calipers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from disclosure.deployment import ABOUT
from oracles.json_schema import complaints

from calipers.disclosure import disclose
from calipers.disclosure import registry_schema as facts
from calipers.disclosure.registry import registry_yaml
from calipers.measure import measure
from calipers.run import Run

yaml = pytest.importorskip("yaml")

FINGERPRINT = "ed448d8084cf54bd6edad014e3b3f5138d201414555b87e00211d7aefba19ad0"
"""Of schemas/deployments-schema.yaml at that commit, made by `fingerprint` below."""
FOR_READERS = {"description", "description_long", "tier"}
KINDS: dict[object, dict[str, object]] = {
    facts.TEXT: {"type": "string"},
    facts.TEXTS: {"type": "array", "items": {"type": "string"}, "minItems": 1},
    facts.NUMBER: {"type": "number"},
    facts.NUMBER_OR_TEXT: {"type": ["number", "string"]},
    facts.DATE: {"type": "string", "format": "date"},
    facts.ANYTHING: {},
}
TIER_3 = {
    "data_domain": "d",
    "unprotected_quantities": "u",
    "actors": "a",
    "post_processing": "p",
    "justification": "j",
}
TIER_3 |= {"preprocessing_and_hyperparameter_tuning": "t", "access_type": "Non-interactive"}


def json_schema(kind: object = facts.SCHEMA) -> dict[str, object]:
    """The facts in the words of JSON Schema."""
    if isinstance(kind, dict):
        found = {
            "type": "object",
            "additionalProperties": False,
            "properties": {name.removesuffix("*"): json_schema(inner) for name, inner in kind.items()},
        }
        required = [name.removesuffix("*") for name in kind if name.endswith("*")]
        return {**found, "required": required} if required else found
    if isinstance(kind, list):
        return {"type": "string" if isinstance(kind[0], str) else "integer", "enum": list(kind)}
    return KINDS[kind]


def fingerprint(schema: dict) -> str:
    """SHA-256 of the demands: without texts for readers, keys and required names in the order of the alphabet."""

    def demands(node: dict) -> dict:
        kept = {key: value for key, value in node.items() if key not in FOR_READERS}
        if "properties" in kept:
            kept["properties"] = {name: demands(inner) for name, inner in kept["properties"].items()}
        if "required" in kept:
            kept["required"] = sorted(kept["required"])
        return kept

    return hashlib.sha256(json.dumps(demands(schema), sort_keys=True).encode()).hexdigest()


@pytest.fixture(scope="module", params=[2, 3])
def written(request) -> str:
    """The file of an entry of either tier."""
    run = Run(sample_rate=0.1, steps=20, noise_multiplier=2.0)
    return registry_yaml(disclose(measure(run), about=ABOUT | (TIER_3 if request.param == 3 else {})))


def test_the_facts_are_those_of_the_registry() -> None:
    """Keys, required keys, allowed words, kinds: the same demands, to the letter."""
    assert fingerprint(json_schema()) == FINGERPRINT


# Ways in which an entry can be wrong: the registry's own examples of bad entries, and some of ours.
BROKEN = [
    ("status", None),
    ("tier", 0),
    ("surprise", "!"),
    ("deployment.basic.publication_date", "1/1/2026"),
    ("deployment.basic.publication_date", "20260101"),
    ("deployment.basic.data_curators", []),
    ("deployment.basic.data_product_type", "Model"),
    ("deployment.dp_variant.variant_name", "Nearly DP"),
    ("deployment.privacy_loss.privacy_parameters.epsilon", "small"),
    ("deployment.administrative.registry_authors", None),
]


def broken(text: str, place: str, value: object) -> dict:
    """The entry with one thing changed, or taken away."""
    entry = yaml.safe_load(text)
    *path, last = place.split(".")
    node = entry
    for name in path:
        node = node[name]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return entry


@pytest.mark.parametrize(("place", "value"), BROKEN, ids=[place for place, _ in BROKEN])
def test_the_schema_takes_the_entry_and_nothing_broken(written, place, value) -> None:
    """By a validator of our tests, which shares no code with the one that `calipers export` asks; and by that one."""
    schema = json_schema()
    assert complaints(yaml.safe_load(written), schema, schema) == []
    wrong = broken(written, place, value)
    assert complaints(wrong, schema, schema)
    assert list(facts.complaints(wrong))


def test_the_validator_of_the_registry_takes_it(written) -> None:
    """jsonschema, draft 7 with dates checked: what the registry's checker calls."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft7Validator(json_schema(), format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)
    assert [error.message for error in validator.iter_errors(yaml.safe_load(written))] == []
    assert all(not validator.is_valid(broken(written, *wrong)) for wrong in BROKEN)


def test_the_further_rules_of_the_checker_hold(written) -> None:
    """The address is on the first line, made from name, curators and year; no folded text; no doubled escape."""
    first, *_ = written.splitlines()
    assert first == "url_slug: digits-a-small-model-example-lab-another-2026"
    scalars = [token for token in yaml.scan(written) if isinstance(token, yaml.ScalarToken)]
    assert {token.style for token in scalars} <= {None, "|", '"', "'"}
    assert not [token.value for token in scalars if re.search(r"\\\\[^()]", token.value)]


REGISTRY = os.environ.get("CALIPERS_REGISTRY", "")
if REGISTRY:  # a clone of the registry: whether it has moved on, and whether its own program agrees

    def test_the_registry_has_not_moved_on() -> None:
        """The fingerprint is that of its schema today."""
        schema = yaml.safe_load((Path(REGISTRY) / "schemas" / "deployments-schema.yaml").read_text("utf-8"))
        assert fingerprint(schema) == FINGERPRINT

    def test_the_registry_accepts_it_with_its_own_checker(written, tmp_path) -> None:
        """scripts/check.py, every check that needs no network; and it refuses a broken entry."""
        good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
        good.write_text(written)
        bad.write_text(written.replace("Approximate DP", "Nearly DP"))
        command = [sys.executable, "scripts/check.py", "--skip", "check_urls", "--yaml_paths"]
        for place, status in ((good, 0), (bad, 1)):
            result = subprocess.run([*command, str(place)], cwd=REGISTRY, capture_output=True, text=True, check=False)
            assert result.returncode == status, result.stdout + result.stderr
