"""The report of an audit: everything that was found, each number with its direction, each verdict with its object."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from calipers.auditing.audit import audit
from calipers.auditing.bounds import SplitScores
from calipers.auditing.builtin import NoisySums
from calipers.auditing.choosing import distinguisher_for
from calipers.auditing.verdict import AuditOutcome
from calipers.measure import measure
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.reports.answers import Questions, answer
from calipers.reports.audit_figures import attacker_table, curve_figures, lowest_counted
from calipers.reports.audited import brief_audit, report_audit
from calipers.reports.document import Figure, Number, Prose, Quote, Table
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.run import Run

# At rate 1 a step is one Gaussian mechanism: every curve of the truth has a closed form.
RUN = Run(dataset_size=5, sample_rate=1.0, steps=1, noise_multiplier=1.0)


@pytest.fixture(scope="module")
def played():
    target = NoisySums.of_run(RUN)
    distinguisher = distinguisher_for(target, "auto", seed=0, pilot=50)
    measurement = measure(RUN)
    result = audit(
        target, distinguisher, trials=2000, seed=0, epsilons=(0.0,), claim=measurement.claim, upper=measurement
    )
    return result, measurement


@pytest.fixture(scope="module")
def report(played):
    result, measurement = played
    return report_audit(result, RUN, measurement)


def headings(report):
    return [section.title for section in report.document.sections]


def test_the_report_is_complete(report):
    """What was played, as which run, what it shows, how that looks, and what to make of it."""
    assert headings(report) == [
        "What it shows",
        "The audit",
        "The run described",
        "Curves",
        "What an attacker gets",
        "What standard accounting (Poisson) would have said",
        "What to change",
        "A paragraph to paste",
        "Notes",
        "Proofs and attacks behind each number",
    ]
    curves = report.document.sections[3].blocks
    assert [block.picture.name for block in curves if isinstance(block, Figure)] == ["tradeoff", "low-rates", "profile"]
    for figure in curves:
        assert any(line.role == "fit" for line in figure.picture.lines)
    assert to_html(report.document).startswith("<!DOCTYPE html>")


def test_without_a_run_nothing_is_said_about_one(played):
    """The bounds and the attack's curve stand alone."""
    result, _ = played
    alone = report_audit(result)
    assert "The run described" not in headings(alone)
    assert "What standard accounting (Poisson) would have said" not in headings(alone)
    roles = {line.role for figure in alone.document.sections[2].blocks for line in figure.picture.lines}
    assert roles == {"attack", "guess"}


@pytest.mark.parametrize("view", ["tradeoff", "low-rates", "profile"])
def test_the_truth_lies_between_attack_and_proof(played, view):
    """With this seed, everywhere: the audit's curve on its side of the Gaussian, the proof on the other."""
    result, measurement = played
    described = measurement, answer(measurement, Questions(epsilons=(0.0,), fprs=(0.1,)))
    (figure,) = [found for found in curve_figures(result, described) if found.picture.name == view]
    lines = {line.role: np.array([line.x, line.y]) for line in figure.picture.lines}
    x, mu = lines["attack"][0], 1.0
    if view == "profile":
        truth = ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)
    elif view == "low-rates":
        truth = ndtr(ndtri(x) + mu)
    else:
        truth = ndtr(-ndtri(x) - mu)
    sign = 1.0 if view == "tradeoff" else -1.0
    assert np.all(sign * (lines["attack"][1] - truth) >= -1e-12)
    assert np.all(sign * (truth - lines["proof"][1]) >= -1e-12)
    assert np.max(np.abs(lines["attack"][1] - truth)) > 1e-3
    below, above = ("at most", "at least") if view == "tradeoff" else ("at least", "at most")
    assert [name.partition(" (")[0] for name in figure.table.columns[1:]] == [below, above]
    for _, of_attack, of_proof in figure.table.rows:
        assert (of_attack.direction, of_proof.direction) == (below, above)
        assert sign * (of_attack.exact - of_proof.exact) >= 0.0


def test_every_number_says_which_way_it_is_a_bound(report):
    """Attacks bound leakage from below and proofs from above, in every table."""
    (shown,) = [block for block in report.document.sections[0].blocks if isinstance(block, Table)]
    for _, at_least, claim, at_most in shown.rows:
        assert at_least.direction == "at least"
        assert at_most.direction == "at most"
        assert at_least.exact <= at_most.exact
        assert claim == "" or isinstance(claim, Number)
    (rates,) = [block for block in report.document.sections[4].blocks if isinstance(block, Table)]
    assert [row[0].exact for row in rates.rows] == [0.1, 0.01, 1e-3, 1e-4, 1e-5]
    for _, found, allowed in rates.rows:
        assert (found.direction, allowed.direction) == ("at least", "at most")
        assert found.exact <= allowed.exact


def test_verdicts_name_what_they_are_about(report):
    """Standard accounting and the upper bound are judged in sentences that say so; equal sentences are said once."""
    prose = [block.text for block in report.document.sections[0].blocks if isinstance(block, Prose)]
    assert prose
    assert all(text.startswith("Against ") for text in prose)
    named = " ".join(text.partition(" the audit says: ")[0] for text in prose)
    assert "standard accounting" in named
    assert "the proof" in named
    assert len({text.partition(" the audit says: ")[2] for text in prose}) == len(prose)


def test_the_paragraph_names_the_terms(report):
    """Sampler, normalization, adjacency, view, privacy unit and version stand in the paragraph to paste."""
    (quote,) = [block for section in report.document.sections for block in section.blocks if isinstance(block, Quote)]
    for words in (
        "Poisson batches",
        "the noisy sum is not divided",
        "add-remove adjacency",
        "the adversary may choose all other records and, step by step, all gradients",
        "privacy unit",
        "Calipers",
    ):
        assert words in quote.text


def test_a_result_shows_itself(played):
    """print(result) opens with the verdict and has no number beyond what the audit shows; a notebook gets the same."""
    result, _ = played
    text, page = str(result), result._repr_html_()
    assert text.splitlines()[0].strip()
    assert "--explain" not in text
    shown = floor_digits(result.epsilon[0].value)
    assert shown in text
    assert shown in page
    assert page.startswith('<div class="calipers"><style>')
    assert page.count("<div") == page.count("</div>")
    assert "<script" not in page
    assert "AuditResult(" in repr(result)


def test_a_result_says_in_words_what_was_played(played):
    """Not the records by which a ledger knows target and score."""
    result, _ = played
    assert result.target_name
    assert result.scored_by
    assert f"{result.target_name}: " in " ".join(str(result).split())
    assert f"Scored by: {result.scored_by}." in " ".join(str(result).split())


def without(result, name):
    """The result with nothing of that name beside its bounds."""
    bounds = {
        key: tuple(dataclasses.replace(bound, **{name: None}) for bound in getattr(result, key))
        for key in ("epsilon", "delta")
    }
    return dataclasses.replace(result, **bounds, mu=dataclasses.replace(result.mu, **{name: None}))


def test_a_table_has_no_empty_column(played):
    """Without a run nothing is proven, without a claim nothing is claimed; the columns for it are left out."""
    result, _ = played
    bare = without(result, "upper")
    (shown,) = [block for block in brief_audit(bare).sections[0].blocks if isinstance(block, Table)]
    assert shown.columns[2:] == ("standard accounting",)
    bare = without(bare, "claim")
    (shown,) = [block for block in brief_audit(bare).sections[0].blocks if isinstance(block, Table)]
    assert len(shown.columns) == 2
    assert all(len(row) == 2 for row in shown.rows)


def test_code_that_exceeds_the_proof_is_another_run(played):
    """A proof is not falsified; what is not about the implementation says of what it is; mu's proof is everywhere."""
    result, _ = played
    beyond = dataclasses.replace(result.upper_verdict, outcome=AuditOutcome.FALSIFIED)
    page = to_html(report_audit(dataclasses.replace(result, upper_verdict=beyond), RUN, measure(RUN)).document)
    assert "not the run described</span>" in page
    assert "upper bound: falsified" not in page
    assert "applicable to the run described" in page
    assert "applicable to this run" not in page
    assert "bounds the code only if the code is that run" in page
    for wrong in ("The truth lies between", "The upper bound is a proof", "hold only if the noise"):
        assert wrong not in page
    assert result.mu.upper == measure(RUN).gdp(result.mu.at).mu.upper


def test_standard_accounting_is_no_claim(played):
    """Where nobody claimed anything, what is judged is called what it is; a pair that was given is a claim."""
    result, _ = played
    assert "standard accounting (Poisson)" in result.verdict.message
    assert "claim" not in result.verdict.message
    assert result.verdict.to_dict()["against"] == "claim"
    assert "words" not in result.verdict.to_dict()
    assert dataclasses.replace(result.verdict, words="").judged == "the claim"


def test_an_audit_finds_no_less_than_guessing(played):
    """The attacker may toss a coin: no row of the attack is below its false positive rate."""
    result, _ = played
    for row in attacker_table(result, None).rows:
        assert row[1].exact >= row[0].exact


def test_what_counts_only_part_of_the_trials_is_told_from_what_counts_all(played, report):
    """Bounds count the trials that did not choose their test; the band of curves and 'consistent' has no choice."""
    result, _ = played
    assert result.trials == 2000
    assert {bound.trials for bound in (*result.epsilon, *result.delta, result.mu)} == {(1500, 1500)}
    rng = np.random.default_rng(7)
    absent, present = rng.normal(size=100), rng.normal(1.0, size=100)
    one, other = SplitScores(absent, present), SplitScores(absent[::-1], present[::-1])  # others choose
    assert one.delta(0.0).value != other.delta(0.0).value
    assert np.array_equal(one.band.absent_above, other.band.absent_above)
    assert one.band.absent_above.size == 200
    section = next(section for section in report.document.sections if section.title == "The audit")
    words = next(block.text for block in section.blocks if isinstance(block, Prose))
    assert (
        "the tests of the table 'What it shows' and of a rejection, and those bounds count only the others; " in words
    )
    assert "'consistent' hold at all thresholds at once and count every trial." in words


def reported(result) -> str:
    (line,) = (block.text for block in report_audit(result, RUN).document.opening if isinstance(block, Quote))
    return line


def test_an_audit_reports_what_it_tested_and_what_it_could_not_have_seen(played):
    """Of a result without any lower bound: no leakage shown, and how large an excess the audit would have missed."""
    result, _ = played
    sure = f"{result.target_name}, 2,000 trials for each hypothesis"
    pair = "one pair of datasets that differ by adding or removing one record in Calipers' own simulation of a run"
    assert f"{pair} ({sure}" in reported(result)
    assert (
        f"shows, with confidence 0.95, that epsilon at delta = 1e-5 is at least {floor_digits(result.epsilon[0].value)}"
        in (reported(result))
    )
    nothing = {
        name: tuple(dataclasses.replace(bound, value=0.0) for bound in getattr(result, name))
        for name in ("epsilon", "delta")
    }
    empty = dataclasses.replace(result, **nothing, mu=dataclasses.replace(result.mu, value=0.0))
    widest = max((empty.verdict, empty.upper_verdict), key=lambda found: found.excluded)
    assert widest.excluded > 0
    said = reported(empty)
    assert "demonstrated no leakage, which does not show that there is none. For this score an excess of more" in said
    excess = float(said.partition("an excess of more than ")[2].split()[0])
    assert widest.excluded <= excess <= 1.01 * widest.excluded
    over = f"in delta over what {widest.judged} allows at epsilon = 0 is excluded with confidence 0.95"
    assert f"{over}, a smaller one is not (verdict: {widest.outcome.value}). An audit proves no privacy." in said
    unheld = dataclasses.replace(empty, verdict=None, upper_verdict=None)
    assert "an excess" not in reported(unheld)


def test_what_an_audit_was_blind_to_is_not_said_of_a_stronger_attack(played):
    """Whoever reads "a stronger attack might. It was blind" takes the attack for blind."""
    result, _ = played
    stands = dataclasses.replace(result.verdict, outcome=AuditOutcome.CONSISTENT)
    assert "a better score, might exceed it by more. This audit was blind to" in stands.message


def test_a_simulation_is_no_training_code(played):
    """Verdict, line to report, what was played and paragraph say so of a built-in target, and of no other."""
    result, measurement = played
    simulated = report_audit(result, RUN, measurement)
    own = report_audit(dataclasses.replace(result, target={"target": "function"}), RUN, measurement)
    said = (
        "Calipers' own simulation was audited, not your training code. ",
        "one pair of datasets that differ by adding or removing one record in Calipers' own simulation of a run (",
        "Calipers' own simulation, not your training code, was run many times",
        "Not training code but Calipers' own simulation was audited (noisy sums",
        "It simulates this run: ",
    )
    pages = [to_markdown(found.document).replace("\\", "") for found in (simulated, own)]
    for words in said:
        assert words in pages[0]
        assert words not in pages[1]
    assert simulated.document.verdict.startswith(said[0])
    assert "4 other records with gradient zero" in pages[0]
    assert "It is said to be this run: " in pages[1]
    assert NoisySums(others=4, sample_rate=1, noise_multiplier=1, gradient=-1).name.count("-1 times the record's") == 1


def fresh(trials):
    """An audit of the same run with so many trials."""
    target = NoisySums.of_run(RUN)
    return audit(target, distinguisher_for(target, "auto", seed=0, pilot=50), trials=trials, seed=0)


def test_rows_below_the_lowest_counted_rate_are_said_to_mix_guessing(played):
    """That rate is the first vertex after 0; below it the true positive rate is proportional to the false one."""
    result, _ = played
    curve = result.band.curve
    first = curve.alpha[1]
    assert f"of its own is {ceil_digits(first, 2)}; a row below it lies on" in lowest_counted(result)
    found, (half, quarter) = 1.0 - curve.beta[1], curve.rates(np.array([first / 2, first / 4]))[1]
    assert (half, quarter) == pytest.approx((found / 2, found / 4))
    page = to_markdown(report_audit(result, RUN).document)
    assert page.count(lowest_counted(result)) == 3
    assert "one false alarm in all" not in page
    assert "No threshold was shown to do better than guessing" in lowest_counted(fresh(10))


def test_an_attack_misses_no_more_than_guessing_as_printed():
    """Where few trials show nothing, the false negative rate at 0.01 is printed as 0.99, never as 0.99001."""
    figure = curve_figures(fresh(10), None)[0]
    assert [row[1].text for row in figure.table.rows] == ["0.99", "0.95", "0.9", "0.75", "0.5", "0.25", "0.1"]
