"""What a report says follows from what was proven, and no further."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from calipers._version import __version__
from calipers.bracket import Bracket
from calipers.measure import measure
from calipers.measure.composed import sum_rule
from calipers.numerics.decimals import ceil_digits, setting
from calipers.reports.answers import Questions, answer, meaningless
from calipers.reports.attacker import attacker_section
from calipers.reports.document import AT_LEAST, AT_MOST, Figure, Table, visible
from calipers.reports.evidence import evidence_rows, licensed, references
from calipers.reports.figures import profile_figure, rate_figures
from calipers.reports.paragraph import GOOD_REGRET, paragraph, report_this, rounded_regret
from calipers.reports.readings import Standing
from calipers.reports.remedies import remedies
from calipers.reports.report import asked
from calipers.reports.sections import claim_section, numbers_section
from calipers.reports.standing import badges, claim_cell, is_closed, verdict
from calipers.reports.words import describe
from calipers.run import Run
from calipers.scope import ORIENTATIONS, scope_text

TOLERANCE = 1e-3
POISSON = Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)
SHUFFLED = Run(dataset_size=100, batch_size=25, epochs=1, noise_multiplier=1.0, sampler="shuffle")
REPLACED = SHUFFLED.replace(adjacency="substitute")
MU = math.sqrt(5) / 2


def _all_text(*blocks) -> str:
    return " ".join(str(block) for block in blocks)


@pytest.mark.parametrize(
    ("lower", "upper", "claim", "expected"),
    [
        (2.0, 3.0, 1.0, Standing.REFUTED),
        (2.0, 3.0, 2.5, Standing.UNDECIDED),
        (2.0, 3.0, 3.0, Standing.COVERED),
        (2.0, 3.0, 2.0, Standing.UNDECIDED),
        # 1.99999 printed with five digits is 2, which the attack does not exceed.
        (2.0, 3.0, 1.99999, Standing.UNDECIDED),
        (2.0, math.inf, 2.5, Standing.UNDECIDED),
    ],
)
def test_a_claim_falls_only_to_an_attack_and_stands_only_on_a_proof(answers, lower, upper, claim, expected):
    found = answers(lower, upper, claim)
    assert found.epsilon[0].standing is expected
    assert ("refuted" in verdict(found, TOLERANCE) or "but an attack computed for" in verdict(found, TOLERANCE)) is (
        expected in (Standing.REFUTED, Standing.UNDECIDED)
    )
    assert ("proven to hold" in verdict(found, TOLERANCE)) is (expected is Standing.COVERED)


def test_a_claim_about_other_neighbors_is_not_judged(answers):
    """Substitution: neither refuted nor covered, and no factor is printed."""
    found = answers(2.0, 3.0, 1.0, run=REPLACED)
    assert found.epsilon[0].standing is Standing.ELSEWHERE
    words = _all_text(claim_section(found), verdict(found, TOLERANCE), badges(found, TOLERANCE))
    assert "refuted" not in words
    assert "times the epsilon" not in words
    assert "different questions" in words


def test_a_proof_about_a_weaker_adversary_covers_for_that_one_only(answers):
    found = answers(1.0, 1.0, 2.0, run=SHUFFLED.replace(view="isolated"))
    assert "isolated view only" in claim_cell(found, found.epsilon[0]).text
    assert "isolated view only" in verdict(found, TOLERANCE)
    assert "sees only the record's own" in _all_text(attacker_section(found))


@pytest.mark.parametrize(
    ("lower", "upper", "closed"), [(2.0, 2.001, True), (2.0, 2.1, False), (2.0, math.inf, False), (0.0, 0.0, True)]
)
def test_an_open_bracket_is_called_open(answers, lower, upper, closed):
    """In the verdict, in the badges, in a notice of the section, and never elsewhere."""
    found = answers(lower, upper, upper)
    assert is_closed(found.epsilon[0].bracket, TOLERANCE) is closed
    for words in (verdict(found, TOLERANCE), _all_text(*badges(found, TOLERANCE))):
        assert ("do not meet" in words) is not closed
    assert ("The two bounds do not meet" in _all_text(numbers_section(found, TOLERANCE))) is not closed
    assert ("not known" in paragraph(found, TOLERANCE)) is (not closed and math.isfinite(upper))


def test_an_infinite_end_is_said_to_be_unproven(answers):
    found = answers(2.0, math.inf, 1.0, mu=Bracket(0.5, math.inf, *_evidence(answers)), regret=math.inf)
    assert "no finite upper bound is proven" in verdict(found, TOLERANCE)
    words = paragraph(found, TOLERANCE)
    assert "No finite mu-GDP guarantee is proven" in words
    assert "inf" not in words.replace("finite", "")


@pytest.mark.parametrize(("claim", "claimed"), [(1.0, True), (math.inf, False)])
def test_where_an_attack_shows_everything_no_epsilon_is_finite(answers, claim, claimed):
    """Nothing is left to prove, so nothing is open; and no number is printed that is none."""
    found = answers(math.inf, math.inf, claim)
    said = verdict(found, TOLERANCE)
    assert "no epsilon is finite" in said
    assert ("standard accounting (Poisson) would give 1" in said) is claimed
    assert is_closed(found.epsilon[0].bracket, TOLERANCE)
    texts = (said, report_this(found), paragraph(found, TOLERANCE), _all_text(*badges(found, TOLERANCE)))
    assert all("inf" not in text.replace("finite", "") and "open" not in text for text in texts)
    assert any("at a larger delta" in note for note in meaningless(found))


def _evidence(answers):
    bracket = answers(1.0, 2.0, 3.0).mu
    return bracket.lower_evidence, bracket.upper_evidence


def test_the_paragraph_names_everything_a_guarantee_is_about(answers):
    """mu with delta0 and regret, sampler, normalization, adjacency, view, unit, accountant with its version."""
    words = paragraph(answers(2.0, 2.001, 3.0), TOLERANCE)
    for expected in (
        "mu-GDP with mu = 0.5 up to delta0 = 1e-10",
        "regret at most 0.0010001",
        "shuffled batches of fixed size",
        "the noisy sum is not divided",
        "under zero-out adjacency",
        "neighbors differ by zeroing out the gradients of one record",
        "fixed before the run",
        "the adversary may choose all other records and, step by step, all gradients",
        "one record as the privacy unit",
        f"Calipers {__version__}",
        "(2.001, 1e-5)-differentially private",
        "at least 2 at delta = 1e-5",
        "Gomez et al., 2025",
    ):
        assert expected in words
    assert "sums up the trade-off curve" in words
    assert "says little about true positive rates at false positive rates of about 0.01 and below" in words


@pytest.mark.parametrize(("regret", "complete"), [(0.0099, True), (GOOD_REGRET, False), (0.2, False)])
def test_mu_stands_for_the_curve_only_with_small_regret(answers, regret, complete):
    words = paragraph(answers(2.0, 3.0, 3.0, regret=regret), TOLERANCE)
    assert ("sums up the trade-off curve" in words) is complete
    assert ("does not sum up the curve" in words) is not complete


@given(true=st.floats(0.05, 6.0), over=st.floats(0.0, 0.5), digits=st.integers(1, 4))
def test_rounding_mu_up_is_charged_to_the_regret(true, over, digits):
    """For a run that is exactly `true`-GDP: reporting the rounded mu costs no more than is printed.

    Oracle: sup over epsilon of (delta_mu - delta_true)/(1 + e^epsilon) on a fine grid, from the normal distribution.
    """
    from types import SimpleNamespace

    def delta(mu, epsilon):
        return ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)

    epsilon = np.linspace(0.0, 40.0, 4001)
    proven = true + over
    regret = float(np.max((delta(proven, epsilon) - delta(true, epsilon)) / (1 + np.exp(epsilon))))
    text = ceil_digits(proven, digits)
    reported = float(np.max((delta(float(text), epsilon) - delta(true, epsilon)) / (1 + np.exp(epsilon))))
    bracket = SimpleNamespace(upper=proven)
    assert reported <= rounded_regret(SimpleNamespace(mu=bracket, regret=max(regret, 0.0)), text) + 1e-14


def test_every_tabulated_number_bounds_the_truth_in_its_direction(fixed_measurement):
    """Five Gaussian releases are exactly mu-GDP: the tables of all three curves enclose the closed forms."""
    answers, _ = asked(fixed_measurement, Questions())

    def delta(epsilon, mu):
        return ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)

    printed = float(ceil_digits(answers.mu.upper))
    even, rare = rate_figures(fixed_measurement, answers)
    truths = [
        (even, lambda a, mu: ndtr(-ndtri(a) - mu)),
        (rare, lambda a, mu: ndtr(ndtri(a) + mu)),
        (profile_figure(fixed_measurement, answers), delta),
    ]
    for figure, truth in truths:
        for place, low, high, fit in figure.table.rows:
            exact = float(truth(place.exact, MU))
            assert (low.direction, high.direction) == (AT_LEAST, AT_MOST)
            # The closed forms have errors of their own, of about 1e-15 beside numbers up to 1.
            assert float(low.text) <= exact + 1e-15
            assert exact - 1e-15 <= float(high.text)
            assert fit.exact == pytest.approx(float(truth(place.exact, printed)), rel=1e-6, abs=2e-10)


def test_what_an_attacker_gets_is_spelled_as_in_the_table_of_all_numbers(answers):
    """The same share, with the same direction, beside what guessing finds."""
    (table,) = (b for b in attacker_section(answers(1.0, 2.0, 3.0)).blocks if isinstance(b, Table))
    assert [cell.text for cell in table.rows[0][1:]] == ["0.25", "0.5", "0.1"]
    assert [cell.direction for cell in table.rows[0][1:3]] == [AT_LEAST, AT_MOST]
    assert table.rows[1][3].text == "1e-5"


def test_the_remedy_for_shuffled_batches_is_measured(answers):
    """First to leave a record over, then balls-and-bins, then coins; each with the bracket of the changed run."""
    measurement = measure(SHUFFLED)
    found = remedies(measurement, asked(measurement, Questions())[0])
    assert found[0].change == {"last_batch": "drop", "batch_size": 24, "epochs": 1}
    assert found[1].change == {"sampler": "balls-and-bins"}
    assert found[2].change == {"sampler": "poisson"}
    for remedy in found[:3]:
        expected = measure(SHUFFLED.replace(**remedy.change, adjacency=SHUFFLED.adjacency)).epsilon(1e-5)
        assert remedy.epsilon.lower == expected.lower
        # What was asked before decides where the nodes of a shuffled epoch's profile stand: both are bounds.
        assert remedy.epsilon.upper == pytest.approx(expected.upper, rel=5e-3)
    assert found[0].epsilon.upper < measurement.epsilon(1e-5).upper
    assert "calipers calibrate" in found[3].text


def test_a_data_dependent_divisor_is_to_be_made_public(answers, fixed_measurement):
    """Whatever else is wrong, a public constant is the first remedy."""
    divided = Run(
        dataset_size=100, sample_rate=0.1, steps=10, noise_multiplier=1.0, normalization="expected", dimension=5
    )
    from types import SimpleNamespace

    found = answers(2.0, 3.0, 1.0, run=divided)
    measurement = SimpleNamespace(runs=(divided,), tolerance=TOLERANCE)
    first = remedies(measurement, found)[0]
    assert first.change == {"normalization": "constant"}
    plain = measure(divided.replace(normalization="none", dimension=None)).epsilon(1e-5)
    assert first.epsilon.upper == plain.upper


def test_the_remedy_of_varying_sizes_divides_by_a_constant(answers):
    """Balls-and-bins with the realized batch size is refused, so the advice names a divisor and is measured with it."""
    run = SHUFFLED.replace(normalization="realized", dimension=3)
    found = answers(2.0, 3.0, 1.0, run=run)
    from types import SimpleNamespace

    offered = remedies(SimpleNamespace(runs=(run,), tolerance=TOLERANCE), found)
    second = offered[1]
    assert second.change == {"sampler": "balls-and-bins", "normalization": "constant"}
    assert second.epsilon is not None
    assert ", and divide by a public constant: " in second.sentence
    assert offered[2].change == second.change | {"sampler": "poisson"}
    assert offered[2].epsilon is not None
    others = [remedy for remedy in offered if remedy not in offered[1:3]]
    assert not any("normalization" in remedy.change for remedy in others)  # equal batches: dividing changes nothing


def test_evidence_is_listed_once_and_cited_in_full(answers):
    names = ["TPR at FPR = 0.1 (upper)", "TPR at FPR = 0.01 (upper)", "advantage (upper)", "advantage (lower)"]
    assert licensed(names) == "TPR at FPR = 0.1, 0.01 (upper); advantage (upper); advantage (lower)"
    cited = references([reading.bracket.upper_evidence for reading in answers(1.0, 2.0, 3.0).readings])
    assert any("Gaussian Differential Privacy" in text for text in cited)
    assert any("Reporting Differential Privacy" in text for text in cited)


def test_every_theorem_behind_an_upper_value_is_named():
    """What composes epochs, what competes, and what mu is read off by; of a Gaussian mu is its shift."""
    run = Run(sampler="shuffle", dataset_size=205, batch_size=20, epochs=2, noise_multiplier=2.0, adjacency="zero-out")
    shuffled, fixed = (answer(measure(one), Questions()) for one in (run, run.replace(sampler="deterministic")))
    rows = {row.licenses: row.statement for row in evidence_rows(shuffled.evidence().items())}
    proof = rows["every upper value but mu and its regret"]
    assert "(Chua et al. 2024, Lemma B.2)" in proof
    assert "2 dominating pairs are composed (Zhu, Dong, Wang 2022, Theorem 10)" in proof
    assert "Gomez et al. 2025, Proposition C.1" in rows["mu up to delta0 = 1e-10 (upper)"]
    cited = " ".join(references(list(shuffled.evidence()), with_mu=True))
    assert all(
        name in cited for name in ("Characteristic Function", "How Private are DP-SGD", "reported with its regret")
    )
    rows = {row.licenses: row.statement for row in evidence_rows(fixed.evidence().items())}
    assert "Proposition C.1" not in rows["every upper value"]


@pytest.mark.parametrize(("value", "text"), [(1e-5, "1e-5"), (0.01, "0.01"), (3.0, "3"), (2.5e-10, "2.5e-10")])
def test_settings_are_written_as_people_do(value, text):
    assert setting(value) == text
    assert float(setting(value)) == value


def test_what_cannot_be_seen_is_shown():
    assert visible("a\x00\x1b\u202eb\ud800\n") == "a\\x00\\x1b\\u202eb\\ud800\n"
    assert visible("ε ≤ 1, ü") == "ε ≤ 1, ü"


@pytest.mark.parametrize("noise", [1.1, 0.8135880541425148, 2 / 3, 1.00000001])
@pytest.mark.parametrize("rate", [0.01, 256 / 60_000, 1 / 3, 0.0123456])
def test_settings_in_a_sentence_are_rounded_so_that_it_stays_true(noise: float, rate: float) -> None:
    """The run that is printed has no less noise and no larger rate than the run that was measured."""
    run = Run(sample_rate=rate, steps=10, noise_multiplier=noise)
    for sentence in (describe(run), scope_text([run])):
        found = re.search(r"probability ([\d./]+)\).* noise multiplier ([\d.]+)[ ;]", sentence)
        assert found is not None
        assert Fraction(found[1]) <= Fraction(rate) or float(Fraction(found[1])) == rate
        assert Decimal(found[2]) >= Decimal(noise) or float(found[2]) == noise


@pytest.mark.parametrize("kind", ["measure", "open", "train", "calibrate"])
def test_delta_at_epsilon_zero_is_the_advantage_and_printed_once(reports, kind) -> None:
    """One quantity has one bracket in a report: in the table of all numbers, under the curves and for programs."""
    record, document = reports[kind].record, reports[kind].document
    profile, advantage = record["curves"]["profile"], record["measurement"]["advantage"]
    assert (profile["delta_at_least"][0], profile["delta_at_most"][0]) == (advantage["lower"], advantage["upper"])
    rows = {title: blocks for title, blocks in ((s.title, s.blocks) for s in document.sections)}
    numbers = next(row for row in rows["All numbers"][0].rows if str(row[0]).startswith("advantage"))
    zero = next(
        row
        for figure in rows["Curves"]
        if isinstance(figure, Figure) and figure.picture.name == "profile"
        for row in figure.table.rows
        if row[0].exact == 0
    )
    assert [cell.text for cell in zero[1:3]] == [cell.text for cell in numbers[1:3]]


@pytest.mark.parametrize(("fpr", "answer"), [(1e-3, "present"), (0.999, "absent")])
def test_a_true_positive_rate_says_which_answer_it_is_about(fpr, answer) -> None:
    """One step of Poisson sampling at rate q: "present" is the better answer where false positives are rare.

    The pair is (1 - q) N(0) + q N(1/sigma) against N(0); the Gaussian tails give both directed powers.
    """
    q, sigma = 0.5, 0.5
    found = measure(Run(sample_rate=q, steps=1, noise_multiplier=sigma, adjacency="add-remove"))
    above = ndtri(1 - fpr)
    present = (1 - q) * fpr + q * ndtr(1 / sigma - above)
    points = np.linspace(-8, 8, 200_001)
    missed = (1 - q) * ndtr(points) + q * ndtr(points - 1 / sigma)  # "absent" below the point, with the record there
    absent = float(np.interp(fpr, missed, ndtr(points)))
    assert (present > absent) == (answer == "present")
    assert f"looks for '{answer}'" in found.tpr(fpr).lower_evidence.statement


def test_a_test_names_its_answer_and_a_pair_is_written_out():
    """'Present' above the threshold of the ratio of present to absent; both distributions of a step are there."""
    forward, backward = (sum_rule(0.7, order, 0.5) for order in ORIENTATIONS["add-remove"])
    assert forward.startswith("say 'present' when")
    assert (
        "ratios of present to absent exceeds 0.5 (the computation used rounded ratios and the threshold 0.7; this test "
        in forward
    )
    assert backward.startswith("say 'absent' when")
    assert "ratios of absent to present exceeds 0.5 (" in backward
    found = measure(Run(sample_rate=0.1, steps=10, noise_multiplier=2.0))
    lower, upper = found.explain()
    assert "N(0, 1) where the record is absent, (1 - q) N(0, 1) + q N(1/s, 1) where present" in upper.statement
    assert found.gdp().mu.lower_evidence.statement == (
        f"{lower.statement} Of all thresholds the one that shows the largest mu counts."
    )
