"""A report in HTML is one page that needs nothing else, says what it shows, and shows text as text."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.reports.document import (
    Badge,
    Code,
    Document,
    Items,
    Notice,
    Prose,
    Quote,
    Section,
    Table,
    at_most,
    visible,
)
from calipers.reports.html import slugs, to_html
from calipers.reports.schema import asset

KINDS = ("measure", "open", "train", "calibrate", "compare")
VOID = {"meta", "br", "hr", "line", "rect", "path", "polyline", "polygon"}


class Page(HTMLParser):
    """Elements with their attributes and the text between them; complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute of <{tag}> is given twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def pages(reports):
    return {kind: to_html(reports[kind].document) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_well_formed_and_its_names_are_unique(pages, kind):
    """Tags match, ids are unique, and whatever points at an id finds it."""
    page = Page(pages[kind])
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    pointers = [a["href"].removeprefix("#") for a in page.all("a")]
    pointers += [name for _, a in page.elements for name in (a.get("aria-labelledby") or "").split()]
    pointers += re.findall(r"url\(#([^)]+)\)", pages[kind])
    assert pointers
    assert set(pointers) <= set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_fetched_from_anywhere(pages, kind):
    """No script, no address, no import: the page forbids itself every request."""
    page = Page(pages[kind])
    assert {"script", "link", "img", "iframe", "object", "embed", "form", "base"}.isdisjoint(
        t for t, _ in page.elements
    )
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "srcset", "action", "xlink:href", "style"), (tag, name)
            if name == "href":
                assert value.startswith("#")
    style = asset("report.css")
    assert "@import" not in style
    assert "url(" not in style
    assert "http" not in style
    policies = [a.get("content") for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_comparison_is_complete(pages):
    """Verdicts, then every part of a single report, for all runs together or for each of them."""
    page = Page(pages["compare"])
    headings = [text for tag, text in page.texts if tag == "h2"]
    assert headings == [
        "Side by side",
        "Verdicts",
        "Curves",
        "What standard accounting (Poisson) would have said",
        "What to change",
        "Paragraphs to paste",
        "Run fixed.toml",
        "Run <b>&.toml",
    ]
    captions = [text for tag, text in page.texts if tag == "figcaption"]
    single = ["Trade-off curve", "Low false positive rates"]
    overlaid = ["Trade-off curves", "Low false positive rates", "Privacy profiles"]
    assert captions == ["epsilon at delta = 1e-5", "epsilon at delta = 1e-8", *overlaid, *single, *single]
    words = re.sub(r"<[^>]+>", "\n", pages["compare"].replace('<span class="together">', "").replace("</span>", ""))
    for rate in ("0.1", "0.01", "0.001", "1e-4", "1e-5"):
        assert f"\nTPR at FPR = {rate}\n" in words
    assert "\nregret of that mu, at most\n" in words
    legend = [text for tag, text in page.texts if tag == "li"]
    assert legend.count("mu-GDP bound (delta0 = 1e-10)") == 4


def test_delta0_is_subtracted_from_false_negative_rates_and_added_to_all_else(pages):
    """What may be shown with that probability lowers the attacker's misses."""
    heads = re.findall(r"mu-GDP bound \(([+-]) delta0\)", pages["measure"])
    assert heads == ["-", "+", "+"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_picture_has_words_and_a_table(pages, kind):
    """An image has a title and a description, and its figure a table of numbers."""
    page = Page(pages[kind])
    pictures = [a for a in page.all("svg") if a.get("class") == "picture"]
    assert pictures
    assert all(a["role"] == "img" for a in pictures)
    assert all(len(a["aria-labelledby"].split()) == 2 for a in pictures)
    assert len(page.all("desc")) == len(pictures) == len(page.all("figure"))
    for figure in re.findall(r"<figure>.*?</figure>", pages[kind], flags=re.S):
        assert "<table" in figure
    decorations = [a for a in page.all("svg") if a.get("class") != "picture"]
    assert all(a.get("aria-hidden") == "true" for a in decorations)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_say_what_their_cells_are(pages, kind):
    """Header cells have a scope, regions that scroll have a name and can be reached by keyboard."""
    page = Page(pages[kind])
    assert all(a.get("scope") in ("row", "col") for a in page.all("th"))
    regions = [a for a in page.all("div") if a.get("role") == "region"]
    assert regions
    assert all(a.get("aria-label") and a.get("tabindex") == "0" for a in regions)
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("html")[0]["lang"] == "en"


def test_a_report_is_complete(pages):
    """Run, bracket, curves on both scales, profile, attacker, claim, remedies, paragraph, evidence."""
    page = Page(pages["open"])
    headings = [text for tag, text in page.texts if tag == "h2"]
    assert headings == [
        "How to read this report",
        "All numbers",
        "Epsilon at delta = 1e-5 for each neighboring relation",
        "What an attacker gets",
        "Reconstruction, attribute inference, singling out",
        "What the numbers do not cover",
        "What to change",
        "The run",
        "Curves",
        "What standard accounting (Poisson) would have said",
        "A paragraph to paste",
        "Notes",
        "Proofs and attacks behind each number",
        "To sign",
    ]
    captions = [text for tag, text in page.texts if tag == "figcaption"]
    assert captions == ["epsilon", "Trade-off curve", "Low false positive rates", "Privacy profile"]
    rows = [text for tag, text in page.texts if tag == "th"]
    for odds in ("1 in 10", "1 in 100", "1 in 1,000", "1 in 10,000", "1 in 100,000"):
        assert odds in rows


def test_numbers_keep_their_exact_value_and_direction(fixed_measurement, pages):
    """The tooltip of the first lower bound is the double itself, and its data element reads back as that double."""
    bracket = fixed_measurement.epsilon(1e-5)
    values = [(float(a["value"]), a["title"]) for a in Page(pages["measure"]).all("data")]
    assert (bracket.lower, f"at least {bracket.lower!r}") in values
    assert (bracket.upper, f"at most {bracket.upper!r}") in values


def test_two_reports_of_the_same_numbers_are_the_same_bytes(reports, pages):
    """Nothing depends on when or where the page is made."""
    for kind in KINDS:
        assert to_html(reports[kind].document) == pages[kind]


def _document(text: str) -> Document:
    blocks = (Prose(text), Notice(text), Items((text,)), Quote(text), Code(text), Table(text, (text,), ((text,),)))
    return Document("measure", text, text, text, (Badge(text),), blocks[:4], (Section(text, blocks),))


@given(text=st.text(min_size=1))
def test_whatever_a_name_holds_is_shown_and_never_obeyed(text):
    """Names with <, &, quotes or control characters leave the elements of the page as they are."""
    harmless, page = Page(to_html(_document("x"))), Page(to_html(_document(text)))
    names = lambda found: [tag for tag, _ in found.elements if tag not in ("p", "span")]  # noqa: E731
    assert names(page) == names(harmless)
    shown = "".join(data for tag, data in page.texts if tag == "code")
    assert shown.replace("\r\n", "\n").replace("\r", "\n") == visible(text)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '" onload="x', "&lt;b&gt;", "${title}", "\x00\ud800\u202e"]
)
def test_a_hostile_name_is_shown_letter_by_letter(text):
    """Markup, entities, template signs and unprintable characters come out as text."""
    page = Page(to_html(_document(text)))
    assert visible(text) in [data for tag, data in page.texts if tag == "code"]
    assert "script" not in [tag for tag, _ in page.elements]
    visible(text).encode("utf-8")


@given(titles=st.lists(st.text(max_size=8), max_size=6))
def test_section_names_never_collide(titles):
    """Two runs of the same name get different anchors."""
    names = slugs(titles)
    assert len(set(names)) == len(titles)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)


def test_numbers_are_spelled_as_everywhere():
    """1e-5 is 1e-5 on a page too, and no finite bound is said in words."""
    table = Table("t", ("a", "b", "c"), (("x", at_most(2**-20), at_most(math.inf)),))
    page = to_html(Document("measure", "t", "", "v", (), (), (Section("s", (table,)),)))
    assert ">9.5368e-7</data>" in page
    assert ">none proven</data>" in page


# ---------------------------------------------------------------- colours


def _luminance(color: str) -> float:
    """Relative luminance of #rrggbb after WCAG 2.2."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> dict[str, dict[str, str]]:
    """The custom properties of light, dark and print."""
    blocks = re.findall(r":root \{(.*?)\}", asset("report.css"), flags=re.S)
    found = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]+);", block)) for block in blocks]
    assert len(found) == 3
    light, dark, paper = found
    assert set(dark) == set(light)
    return {"light": light, "dark": dark, "print": light | paper}


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_and_lines_stand_out(theme):
    """Every colour that text or a line is drawn in has a contrast of at least 4.5 on both backgrounds."""
    colors = themes()[theme]
    drawn = [name for name in colors if name not in ("paper", "card", "rule", "truth")]
    assert {"ink", "soft", "proof", "attack", "claim", "good", "bad", "open"} <= set(drawn)
    weak = {(n, b): contrast(colors[n], colors[b]) for n in drawn for b in ("paper", "card")}
    assert {name: ratio for name, ratio in weak.items() if ratio < 4.5} == {}


def test_the_contrast_formula_knows_black_on_white():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5


def test_jaws_differ_in_more_than_colour():
    """The proof is drawn through, the attack dashed; on paper in grey they are still two lines."""
    style = asset("report.css")
    (proof,) = re.findall(r"\.line\.proof \{(.*?)\}", style)
    (attack,) = re.findall(r"\.line\.attack \{(.*?)\}", style)
    assert "dasharray" not in proof
    assert "dasharray" in attack
    assert "@media print" in style
    assert "prefers-color-scheme: dark" in style


def test_a_claim_has_one_spelling_everywhere():
    """As it was typed, where it was; rounded up where an accountant computed it."""
    from calipers.numerics.decimals import claim_digits

    assert [claim_digits(value) for value in (0.001, 1e-5, 3.0, 0.3)] == ["0.001", "1e-5", "3", "0.3"]
    assert claim_digits(0.01436212) == "0.014363"
