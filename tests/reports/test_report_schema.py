"""A report for programs keeps to the schema that is shipped with it."""

from __future__ import annotations

import copy
import json

import pytest
from oracles.json_schema import complaints

from calipers.auditing.audit import audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import distinguisher_for
from calipers.measure import measure
from calipers.reports.audited import report_audit
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.records import to_json
from calipers.reports.schema import SCHEMA, schema_of
from calipers.run import Run

KINDS = ("measure", "open", "train", "calibrate", "compare", "audit")


def undeclared(value, schemas, root, path="$"):
    """Keys of objects for which no schema that applies has a word."""
    seen, queue = [], list(schemas)
    while queue:
        schema = queue.pop()
        seen.append(schema)
        if "$ref" in schema:
            queue.append(root["$defs"][schema["$ref"].removeprefix("#/$defs/")])
        queue += [part for part in schema.get("oneOf", ()) if not complaints(value, part, root)]
    found = []
    if isinstance(value, dict):
        for key, item in value.items():
            parts = [schema["properties"][key] for schema in seen if key in schema.get("properties", {})]
            free = any("properties" not in s and s.get("type") in ("object", ["object", "null"]) for s in seen)
            found += undeclared(item, parts, root, f"{path}.{key}") if parts else [] if free else [f"{path}.{key}"]
    if isinstance(value, list):
        parts = [schema["items"] for schema in seen if "items" in schema]
        found += [text for item in value for text in undeclared(item, parts, root, f"{path}[]")]
    return sorted(set(found))


@pytest.fixture(scope="module")
def audited():
    run = Run(normalization="expected", dimension=10, dataset_size=5, sample_rate=0.05, steps=1, noise_multiplier=10.0)
    target = NoisySums.of_run(run)
    distinguisher = distinguisher_for(target, "auto", seed=0, pilot=50)
    measurement = measure(run)
    result = audit(
        target, distinguisher, trials=2000, seed=0, epsilons=(0.0,), claim=measurement.claim, upper=measurement
    )
    return report_audit(result, run, measurement)


@pytest.fixture(scope="module")
def records(reports, audited):
    return {kind: json.loads(to_json((reports | {"audit": audited})[kind].record)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_keeps_to_its_schema(records, kind):
    schema = schema_of("report")
    assert complaints(records[kind], schema, schema) == []
    assert next(iter(records[kind])) == "schema"
    assert records[kind]["schema"] == SCHEMA == schema["properties"]["schema"]["const"]


@pytest.mark.parametrize("kind", ["measure", "open", "train", "calibrate"])
def test_every_key_is_declared(records, kind):
    """A key that the schema does not mention is a key nobody promised."""
    schema = schema_of("report")
    own = next(
        part
        for part in schema["$defs"].values()
        if not complaints(records[kind], part, schema) and "required" in part and "kind" in part["required"]
    )
    assert undeclared(records[kind], [schema, own], schema) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.update(schema="calipers-report/2"),
        lambda r: r.update(kind="guess"),
        lambda r: r.pop("verdict"),
        lambda r: r.pop("evidence"),
        lambda r: r["evidence"][0].update(kind="belief"),
        lambda r: r["evidence"][0].pop("licenses"),
        lambda r: r["measurement"]["epsilon"][0].update(lower="4.9"),
        lambda r: r["measurement"]["gdp"].pop("regret"),
        lambda r: r["claims"][0].update(standing="fine"),
        lambda r: r["curves"]["tradeoff"]["fpr"].append(None),
    ],
)
def test_a_spoiled_report_is_refused(records, spoil):
    """The validator finds a wrong version, kind, number, and every missing part."""
    schema, record = schema_of("report"), copy.deepcopy(records["measure"])
    spoil(record)
    assert complaints(record, schema, schema)


def test_every_end_has_evidence(records):
    """Each bracket's ends appear exactly once among the licensed ones, and no conjecture licenses anything."""
    record = records["open"]
    assert all(entry["kind"] != "conjecture" for entry in record["evidence"])
    licensed = [name for entry in record["evidence"] for name in entry["licenses"]]
    assert len(licensed) == len(set(licensed))
    rows = record["measurement"]
    ends = 2 * (len(rows["epsilon"]) + len(rows["delta"]) + len(rows["tpr"]) + 3)
    assert len(licensed) == ends


def test_an_audit_says_what_it_shows_and_what_it_cannot(audited):
    """The claim of the sum falls; the words say how sure that is, and that an audit proves no privacy."""
    for text in (to_html(audited.document), to_markdown(audited.document)):
        assert "Falsified" in text
        assert "confidence 0.95" in text
        assert "does not prove privacy" in text
    assert audited.document.badges[0].mood == "bad"


def test_json_is_the_same_every_time(reports):
    assert to_json(reports["open"].record) == to_json(reports["open"].record)
