"""The forms say what the measurement says, rounded the honest way, and keep to the schemas of those who ask."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from disclosure.deployment import ABOUT

from calipers.bracket import Bracket
from calipers.cli import main
from calipers.disclosure import FORMS, disclose, render
from calipers.disclosure.registry import registry_entry, registry_yaml
from calipers.disclosure.registry_schema import complaints
from calipers.disclosure.yaml_text import to_yaml
from calipers.errors import InputError, UnsupportedError
from calipers.measure import measure
from calipers.run import Run

RUN = Run(sample_rate=0.1, steps=20, noise_multiplier=2.0)


@pytest.fixture(scope="module")
def measurement():
    return measure(RUN)


@pytest.fixture(scope="module")
def found(measurement):
    return disclose(measurement, about=ABOUT)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_form_states_the_proof_rounded_up(form, found, measurement) -> None:
    """The printed epsilon is not below the upper bound; version and hash of the run are there."""
    text, bracket = render(found, form), measurement.epsilon(1e-5)
    (printed,) = set(re.findall(r"(?:\(|at most |epsilon: )(\d\.\d+)(?=,| at delta|\n)", text))
    assert Decimal(printed) >= Decimal(bracket.upper)
    assert Decimal(printed) < Decimal(bracket.upper) * Decimal("1.001")
    if form != "checklist":
        assert str(found.origin["run_sha256"]) in text


def test_the_short_form_has_ten_lines(found) -> None:
    """Ten, each a list item of its own."""
    lines = render(found, "short").splitlines()
    assert len(lines) == 10
    assert all(line.startswith("- ") for line in lines)


@pytest.mark.parametrize("form", ["short", "model-card", "checklist"])
def test_mu_is_not_said_to_sum_up_small_rates(form) -> None:
    """As docs/howto/report.md says, of a run whose regret is below 0.01 and of one where it is not."""
    for run, said in ((RUN.replace(steps=500, noise_multiplier=8.0), True), (RUN.replace(noise_multiplier=0.7), False)):
        text = render(disclose(measure(run), about=ABOUT), form)
        assert ("sums up the curve, except at false positive rates of about 0.01 and below." in text) is said
        assert ("mu does not sum up the curve." in text) is not said


def test_no_attack_is_claimed_where_the_run_only_bounds(measurement) -> None:
    """A lower bound of the description is none of the training."""
    bound = disclose(measurement, attained=False, how="attached", conditions=["The loop broke off."], about=ABOUT)
    for form in FORMS:
        text = render(bound, form)
        assert "reaches an epsilon" not in text
        assert "The loop broke off." in text


def test_the_checklist_asks_back_what_no_measurement_knows(found, measurement) -> None:
    """Side channels are asked for until somebody answers."""
    asked = render(found, "checklist")
    assert asked.count("To be answered by the deployer") >= 6
    answered = disclose(measurement, about={"side_channels": "None: the machine is | locked."})
    text = render(answered, "checklist")
    assert "locked" in text
    assert text.count("To be answered by the deployer") == asked.count("To be answered by the deployer") - 1
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in text.splitlines() if line.startswith("|"))


def test_the_checklist_says_what_each_answer_is_based_on(found, measurement) -> None:
    """Epsilon on the measurement, the loop on who looked, an unnamed unit on nothing, what was told on the teller."""
    told = {"side_channels": "None."}
    text = render(disclose(measurement, about=told, how="probed"), "checklist")
    basis = {row.split(" | ")[0][2:]: row.split(" | ")[-1].rstrip("| ") for row in text.splitlines() if row[:2] == "| "}
    assert basis["Privacy parameter"] == "the measurement"
    assert "as its receipt says, from running the implementation as a black box" in basis["Algorithm"]
    assert basis["Unit of privacy"] == "assumed: nobody stated it"
    assert basis["Side channels"] == "the deployer's word"
    assert basis["Data collection exposure"] == "nothing yet"


def test_an_entry_meets_the_schema_and_lies_do_not(found) -> None:
    """Our own validator accepts the entry and refuses a missing key, a wrong word, an unknown key, a wrong date."""
    entry = registry_entry(found)
    assert list(complaints(entry)) == []
    assert entry["tier"] == 2
    basic = entry["deployment"]["basic"]
    for wrong in (
        {"publication_date": "2026-13-01"},
        {"data_curators": []},
        {"data_product_type": "Model"},
        {"x": "y"},
    ):
        broken = {**entry, "deployment": {**entry["deployment"], "basic": {**basic, **wrong}}}
        assert len(list(complaints(broken))) == 1, wrong
    assert list(complaints({**entry, "tier": 4}))
    assert list(complaints({key: entry[key] for key in ("url_slug", "tier", "deployment")}))


def test_tier_three_needs_everything_of_tier_three(measurement) -> None:
    """One text missing, and it is tier 2."""
    keys = ("data_domain", "unprotected_quantities", "actors", "post_processing", "justification")
    whole = ABOUT | {key: "said" for key in keys} | {"preprocessing_and_hyperparameter_tuning": "none"}
    assert registry_entry(disclose(measurement, about=whole))["tier"] == 3
    assert registry_entry(disclose(measurement, about={**whole, "actors": ""}))["tier"] == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "name"),
        ({"epsilon": 0.1}, "epsilon"),
        ({"composition": "small"}, "composition"),
        ({"nmae": "x"}, "nmae"),
        ({"data_product_sector": "Sports"}, "Technology"),
        ({"publication_date": "15.11.2026"}, "YYYY-MM-DD"),
        ({"data_domain": r"\\\\epsilon"}, "two backslashes"),
        ({"data_source_type_details": ["a", "b"]}, "is a text"),
    ],
)
def test_what_the_registry_would_refuse_is_refused_here(change, said, measurement) -> None:
    """And nobody may overwrite what was measured."""
    about = {key: value for key, value in (ABOUT | change).items() if value is not None}
    with pytest.raises(InputError, match=said):
        registry_entry(disclose(measurement, about=about))


def test_nothing_finite_is_nothing_to_disclose(measurement, monkeypatch) -> None:
    """An infinite upper bound is no guarantee."""
    proof = measurement.epsilon(1e-5)
    unbounded = Bracket(0.0, float("inf"), proof.lower_evidence, proof.upper_evidence)
    monkeypatch.setattr(type(measurement), "epsilon", lambda self, delta: unbounded)
    with pytest.raises(UnsupportedError, match="No finite epsilon"):
        disclose(measurement)


def test_yaml_reads_back(found) -> None:
    """Colons, quotes, line ends and hashes in a text, and small numbers, survive a real YAML parser."""
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(registry_yaml(found))
    assert read == registry_entry(found)
    assert isinstance(read["deployment"]["privacy_loss"]["privacy_parameters"]["delta"], float)
    odd = {"a": "x\u2028y\x85z: # - '\"", "b": [str(number) for number in range(3)], "c": 1e-05, "d": 3e22, "e": 5}
    assert yaml.safe_load(to_yaml(odd)) == odd
    front = render(found, "model-card").split("---\n")[1]
    assert yaml.safe_load(front) == {"tags": ["differential-privacy", "dp-sgd"]}


def test_the_command_reads_dates_and_receipts(tmp_path, monkeypatch) -> None:
    """A TOML date is a date; a receipt brings how the run is known."""
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(RUN.to_toml())
    Path("about.toml").write_text(
        "".join(
            f"{key} = {value!r}\n" for key, value in ABOUT.items() if key not in ("publication_date", "description")
        )
        + "publication_date = 2026-11-15\ndescription = 'short'\n"
    )
    invoke = CliRunner().invoke
    result = invoke(main, ["export", "run.toml", "--form", "registry", "--about", "about.toml", "-o", "x.yaml"])
    assert result.exit_code == 0, result.output
    assert 'publication_date: "2026-11-15"' in Path("x.yaml").read_text()
    invoke(main, ["receipt", "run.toml", "-o", "r.json"])
    assert "as declared by" in invoke(main, ["export", "r.json"]).stdout
    result = invoke(main, ["export", "run.toml", "--form", "registry"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--about" in result.stderr


def test_a_unit_of_several_records_is_what_is_disclosed() -> None:
    """No form calls it one record, and each says how many records are covered."""
    run = Run(sample_rate=0.01, steps=20, noise_multiplier=2.0, unit="patient", records_per_unit=3)
    found = disclose(measure(run), about=ABOUT)
    for form in FORMS:
        text = render(found, form).lower()
        assert "one patient with up to 3 records" in text
        assert "one record" not in text.replace("which is about adding or removing one record", "")  # the claim is
        assert "one training record" not in text
    assert "has more records than that" in render(found, "checklist")
    assert "neither seen nor endorsed" in render(found, "checklist")
