"""The terminal says the verdict first, draws what is true, and leaves nothing out without saying so."""

from __future__ import annotations

import math
import os
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers as cp
from calipers.bracket import Bracket, Evidence, Kind
from calipers.errors import InputError
from calipers.reports.answers import Questions, answer, large_deltas, meaningless
from calipers.reports.chart import Interval, Intervals, axis_for
from calipers.reports.files import check_report_path
from calipers.reports.html import to_html
from calipers.reports.markdown import to_markdown
from calipers.reports.naming import names_by_difference
from calipers.reports.paragraph import paragraph, printed_regret, report_this
from calipers.reports.report import brief_measurement
from calipers.reports.ruler import ruler
from calipers.reports.terminal import columns_of, for_stream, to_text
from calipers.run import Run

POISSON = Run(sample_rate=0.1, steps=10, noise_multiplier=1.0)
SHUFFLED = Run(dataset_size=100, batch_size=25, epochs=1, noise_multiplier=1.0, sampler="shuffle")
ENDS = st.floats(1e-6, 1e6)


def test_the_verdict_is_the_first_line_and_evidence_waits_to_be_asked(answers):
    document = brief_measurement(answers(2.0, 3.0, 1.0, notes=("One thing. And another.",)), 1e-3)
    text = to_text(document)
    lines = text.splitlines()
    assert lines[0].startswith("Standard accounting (Poisson) would give epsilon = 1 at delta = 1e-5")
    assert text.index("at least 2  ") < text.index("Report this: (3, 1e-5)") < text.index(" quantity ")
    assert "Gaussian mechanisms compose." not in text
    assert "  - One thing. And another." in text
    assert lines[-1] == "More with --explain: the proofs and attacks behind each number."
    explained = to_text(document, explain=True)
    assert "Gaussian mechanisms compose." in explained
    assert "One thing. And another." in explained
    assert "More with" not in explained


def test_no_verdict_is_further_down_than_ten_lines():
    """Verdict, ruler and what to report of a real run, before anything else."""
    text = to_text(brief_measurement(answer(cp.measure(SHUFFLED), Questions()), 1e-3))
    assert text.splitlines().index(next(line for line in text.splitlines() if line.startswith("Report this"))) <= 10


@given(lower=ENDS, width=st.floats(0.0, 10.0), claim=ENDS)
def test_a_ruler_is_as_wide_as_asked_and_its_numbers_bound(lower, width, claim):
    """Jaws in order, the beam of one width, and numbers rounded outward."""
    upper = lower * (1 + width)
    row = Interval("epsilon", lower, upper, (("standard accounting", "claim", claim),))
    picture = Intervals("r", "epsilon", "", axis_for("epsilon", (row,)), (row,))
    lines = ruler(picture, 92)
    assert all(len(line) <= 92 for line in lines)
    beam = lines[2]
    assert beam.index("▶") < beam.index("◀")
    low, high = re.fullmatch(r" *at least (\S+) +at most (\S+)", lines[1]).groups()
    assert Decimal(low) <= Decimal(lower)
    assert Decimal(high) >= Decimal(upper)


@pytest.mark.parametrize("columns", [60, 70, 80, 110])
def test_a_table_keeps_to_the_terminal(answers, monkeypatch, columns):
    """No line is longer than it is wide, and "delta = 1e-5" stands on one."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((columns, 50)))
    lines = to_text(brief_measurement(answers(2.0, 3.0, 1.0), 1e-3), terminal=True).splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.startswith(" quantity")]
    table = [re.sub("\x1b.*?m", "", line) for line in lines[head : lines.index("", head)]]
    assert max(map(len, table)) <= columns
    assert any("delta = 1e-5" in line for line in table)


def test_a_ruler_without_a_proof_stays_open():
    row = Interval("epsilon", 2.0, math.inf)
    lines = ruler(Intervals("r", "epsilon", "", axis_for("epsilon", (row,)), (row,)), 60)
    assert "no finite upper bound" in lines[1]
    assert lines[2].rstrip().endswith("▷")


def test_signs_that_a_stream_cannot_write_are_drawn_in_ascii(monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert for_stream("▶━◀ ◇ é") == ">=< * \\xe9"


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("日本", 4), ("é", 1), ("e\u0301", 1)])
def test_columns_are_those_of_a_terminal(text, columns):
    assert columns_of(text) == columns


# One number, one spelling.


def test_mu_and_its_regret_are_the_same_everywhere(answers):
    """Table, paragraph, line to report, HTML and Markdown print one mu and one regret."""
    evidence = Evidence(Kind.THEOREM, "x", "y")
    found = answers(2.0, 2.0001, 3.0, mu=Bracket(11.0, 11.11151, evidence, evidence), regret=0.004345)
    document = brief_measurement(found, 1e-3)
    regret = re.search(r"regret at most (\S+?)[;)]", paragraph(found, 1e-3)).group(1)
    for text in (
        to_text(document),
        to_html(document),
        to_markdown(document),
        report_this(found),
        paragraph(found, 1e-3),
    ):
        assert "11.112" in text
        assert regret in text
        assert "11.12 " not in text
    assert Decimal(regret) >= Decimal(printed_regret(found)) >= Decimal(found.regret)


@pytest.mark.parametrize("kind", ["measure", "open", "train", "calibrate", "compare"])
def test_powers_and_letters_have_one_spelling(reports, kind):
    """No 1e-05, no 10^-5, no Greek letter beside the words, in any form of any report."""
    document = reports[kind].document
    for text in (to_text(document, explain=True), to_markdown(document), to_html(document)):
        seen = re.sub(r'(value|title|points|d|[xy]\d?)="[^"]*"', "", text)
        assert not re.search(r"\de[-+]0\d", seen)
        assert not re.search(r"10\^-|×|[εδμσ⁻]", seen)
        assert not re.search(r"0\.000\d", seen)


# What says little is said to say little.


def test_a_delta_that_lets_records_out_is_noted():
    run = Run(dataset_size=10_000_000, batch_size=1000, steps=10, noise_multiplier=5.0)
    notes = list(meaningless(answer(cp.measure(run), Questions())))
    assert notes[0].startswith("delta = 1e-5 is not below 1/N = 1/10,000,000")
    assert "delta = 1e-8" in notes[0]
    assert not list(meaningless(answer(cp.measure(run), Questions(deltas=(1e-8,)))))


@pytest.mark.parametrize(
    ("size", "delta", "said"),
    [
        (60_000, 1e-5, "delta = 1e-5 is not far below 1/N = 1/60,000"),
        (60_000, 1e-6, ""),  # what the note asks for: 0.1/N, rounded down
        (60_000, 2e-6, "such as delta = 1e-6."),
        (10_000, 1e-5, ""),
        (10_050, 1e-5, ""),  # a tenth of 1/N but for half a percent
        (11_001, 1e-5, "is not far below 1/N = 1/11,001"),
    ],
)
def test_a_delta_above_a_tenth_of_one_in_n_is_noted(size, delta, said):
    """As the report advises: much smaller than 1/N."""
    runs = (cp.Run(dataset_size=size, batch_size=100, steps=10, noise_multiplier=5.0),)
    found = list(large_deltas(runs, [delta]))
    assert len(found) == bool(said)
    assert said in "".join(found)


def test_an_epsilon_beyond_meaning_and_nothing_hidden_are_noted():
    run = Run(dataset_size=100, batch_size=100, epochs=50, noise_multiplier=0.5, sampler="deterministic")
    notes = " ".join(meaningless(answer(cp.measure(run), Questions())))
    assert "An epsilon above 20 says next to nothing" in notes
    assert "Next to nothing is hidden: on data that suit it, an attack tells whether a record was used with" in notes
    assert "Every record is in every batch" in notes
    unit = answer(cp.measure(run.replace(unit="user", records_per_unit=2)), Questions())
    assert "tells whether the records of a user were used with" in " ".join(meaningless(unit))


# Objects show themselves.


def test_objects_show_themselves(fixed_measurement):
    """print(m) is what the command prints; a notebook gets a piece of a page, with ids of its own."""
    m = fixed_measurement
    assert str(m).startswith("Standard accounting (Poisson) would give epsilon = 1.6526 at delta = 1e-5, but")
    assert "--explain" not in str(m)
    shown = [thing._repr_html_() for thing in (m, m.epsilon(1e-5), m.run, cp.compare(m.run, POISSON))]
    for page in shown:
        assert page.startswith('<div class="calipers"><style>')
        assert page.count("<div") == page.count("</div>")
        assert "<script" not in page
    ids = [name for page in shown for name in re.findall(r' id="([^"]+)"', page)]
    assert len(set(ids)) == len(ids)
    assert "Report this" in shown[0]


def test_runs_are_compared_and_named_in_python():
    quiet, loud = POISSON.replace(noise_multiplier=2.0), POISSON
    found = cp.compare(quiet, loud)
    assert (found.names, found.winner) == (("sigma 2", "sigma 1"), "sigma 2")
    assert str(found).startswith("sigma 2 is certainly more private than sigma 1")
    assert cp.compare(mine=quiet, theirs=loud).winner == "mine"
    with pytest.raises(InputError, match="at least two runs"):
        cp.compare(quiet)
    with pytest.raises(InputError, match="different names"):
        cp.compare(quiet, loud, names=["a", "a"])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (({"sampler": "poisson"}, {"sampler": "shuffle"}), ("poisson", "shuffle")),
        (({}, {"noise_multiplier": 2.0}), ("sigma 1", "sigma 2")),
        (({"batch_size": 5}, {"sampler": "shuffle"}), ("batch size 5, poisson", "batch size 25, shuffle")),
        (({}, {}), ("run 1", "run 2")),
    ],
)
def test_runs_are_called_by_what_differs(changes, names):
    base = SHUFFLED.replace(sampler="poisson", adjacency="zero-out")
    assert names_by_difference([(base.replace(**change),) for change in changes]) == names


def test_a_file_of_somebody_else_is_not_replaced(tmp_path):
    path = tmp_path / "thesis.html"
    path.write_text("<p>mine")
    with pytest.raises(InputError, match="was not written by Calipers"):
        check_report_path(path)
    assert check_report_path(path, overwrite=True) == path
    path.write_text("")
    assert check_report_path(path) == path
