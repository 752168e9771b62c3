"""The page can be read: text and lines stand out from what they are drawn on, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import calipers

STYLE = (Path(calipers.__file__).parent / "explorer" / "assets" / "style.css").read_text("utf-8")
TEXT = ("ink", "soft", "accent", "bad")
LINES = ("run-0", "run-1", "run-2", "run-3", "claim")


def luminance(color: str) -> float:
    """Relative luminance of #rrggbb or #rgb after WCAG 2.2."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """1 for equal colors, 21 for black on white."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, flags=re.S)
    light, dark = (dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]+);", block)) for block in blocks)
    assert set(light) == set(dark)
    return {"light": light, "dark": dark}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out(theme: str) -> None:
    """At least 4.5 on the page, on cards, in fields; error text on its own ground; chosen buttons on the accent."""
    colors = themes()[theme]
    pairs = [(name, ground) for name in TEXT for ground in ("paper", "card", "field")]
    pairs += [("ink", "bad-paper"), ("card", "accent")]
    weak = {pair: contrast(colors[pair[0]], colors[pair[1]]) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_stand_out(theme: str) -> None:
    """At least 3, what WCAG asks of graphics, for the lines and marks of every run on a card."""
    colors = themes()[theme]
    weak = {name: contrast(colors[name], colors["card"]) for name in LINES}
    assert {name: ratio for name, ratio in weak.items() if ratio < 3.0} == {}


def test_the_formula_knows_black_on_white() -> None:
    """The two ends of the scale, and a gray that fails."""
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") < 4.5
