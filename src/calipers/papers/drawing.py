"""Pictures as views of an item's sheets, as `items.toml` describes them.

A picture has panels; a panel has labels, settings of its axes (`set`) and layers. A layer draws columns of a sheet: `x`
against `y`, or the band between two of them, one line for each value of `by`, in colors that color-blind readers can
tell apart. Its `look` has matplotlib's own words, `label` and `text` name cells of a line's first record. Everything
acts on the axes it is given; nothing global is changed.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calipers.papers.items import Picture
from calipers.papers.sheets import Computed, Names, SheetRecord, entry, worded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008), the yellow left out: it is too high-noise for lines on white.
COLORS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "red": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "gray": "#7f7f7f",
    "black": "black",
}
CYCLE = ("blue", "orange", "green", "red", "purple", "sky")
_KEYS: dict[str, Any] = {"frameon": False, "fontsize": "small"}


def drawn(spec: Mapping[str, Any], found: Computed, names: Names) -> Picture:
    """The picture that an item describes, of what was found."""

    def draw(figure: Figure) -> None:
        panels = spec["panels"]
        rows, columns = spec.get("shape", (1, len(panels)))
        grid = figure.subplots(rows, columns, squeeze=False, **spec.get("grid", {}))
        for ax, panel in zip(np.ravel(grid), panels, strict=True):
            _panel(ax, panel, found, names)
        if "title" in spec:
            figure.suptitle(worded(spec["title"], names))
        if "legend" in spec:
            keys = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in np.ravel(grid)]
            shown = {label: line for key in keys for line, label in key}
            figure.legend(list(shown.values()), list(shown), **(_KEYS | spec["legend"]))

    width, height = spec["size"]
    return Picture(draw, (width, height))


def _panel(ax: Axes, panel: Mapping[str, Any], found: Computed, names: Names) -> None:
    if panel.get("square"):
        # The unit square of a trade-off curve, with a little room around for what lies along its edges.
        ax.plot([0, 1], [1, 0], color=COLORS["gray"], linestyle=":", linewidth=1, label="perfect privacy")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    for layer in panel["draw"]:
        _layer(ax, layer, found, names)
    ax.set(**{name: _settled(value, names) for name, value in panel.get("set", {}).items()})
    for scale, rescaled in ((ax.get_xscale(), ax.set_xscale), (ax.get_yscale(), ax.set_yscale)):
        if scale == "log" and not ax.patches:
            # What is not positive says nothing, and is not drawn; only bars stand on zero.
            rescaled("log", nonpositive="mask")
    ax.set_xlabel(panel.get("xlabel", "false positive rate α"))
    ax.set_ylabel(worded(panel.get("ylabel", "false negative rate β"), names))
    if "title" in panel:
        ax.set_title(worded(panel["title"], names), fontsize="medium")
    ax.grid(True, color="#d9d9d9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if panel.get("legend") == "outside":
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), **_KEYS)
    elif "legend" in panel:
        ax.legend(loc=panel["legend"], **(_KEYS | panel.get("words", {})))


def _layer(ax: Axes, layer: Mapping[str, Any], found: Computed, names: Names) -> None:
    """One layer: bars, lines across, lines of a sheet, or a word of the legend about what others drew."""
    if "bars" in layer:
        _bars(ax, layer, found)
    elif "of" in layer or "y" in layer or "across" in layer:
        for number, lines in enumerate(_lines(layer, found)):
            color = CYCLE[number % len(CYCLE)] if "colors" not in layer else layer["colors"][number]
            _line(ax, layer, lines, color, ChainMap(lines[0], dict(names)))
    else:
        ax.plot([], [], label=worded(layer["label"], names), **_look(layer, "black"))


def _lines(layer: Mapping[str, Any], found: Computed) -> Iterator[list[SheetRecord]]:
    """The records of each line: those that agree in all cells of `by`."""
    lines: dict[tuple[Any, ...], list[SheetRecord]] = {}
    for record in found.sheet(layer).where(**layer.get("where", {})):
        lines.setdefault(tuple(record[name] for name in layer.get("by", ())), []).append(record)
    yield from lines.values()


def _look(layer: Mapping[str, Any], color: str) -> dict[str, Any]:
    look: dict[str, Any] = {"color": color, **layer.get("look", {})}
    return look | {"color": COLORS[look["color"]]}


def _line(ax: Axes, layer: Mapping[str, Any], records: list[SheetRecord], color: str, names: Names) -> None:
    look = _look(layer, color)
    label = worded(layer["label"], names) if "label" in layer else None
    if "across" in layer:
        # A line through the whole panel at a number, a cell of the record or a printed number.
        place = float(worded(str(layer["across"]), names))
        draw = ax.axvline if layer.get("upright") else ax.axhline
        draw(place, label=label, **({"linewidth": 0.8} | look))
        x, y = (place, layer.get("at", 0.28)) if layer.get("upright") else (layer.get("at", 1.0), place)
    else:
        x, *ys = (np.array([entry(r, n) for r in records], dtype=float) for n in (layer["x"], *_several(layer["y"])))
        # To compare with: a power of x, below the line that is named.
        y = ys[0] if "power" not in layer else 0.4 * ys[0][-1] * (x / x[-1]) ** layer["power"]
        if len(ys) == 2:
            ax.fill_between(x, ys[0], ys[1], label=label, **({"alpha": 0.3, "linewidth": 0} | look))
        else:
            ax.plot(x, y, label=label, **look)
        x, y = x[-1], y[-1]
    if "text" in layer:
        where: dict[str, Any] = {"xycoords": ax.get_xaxis_transform() if layer.get("upright") else "data"}
        where |= {"xytext": (6, 3), "textcoords": "offset points", "fontsize": "small", "color": look["color"]}
        ax.annotate(worded(layer["text"], names), (x, y), **(where | layer.get("words", {})))


def _settled(value: Any, names: Names) -> Any:
    if isinstance(value, list):
        return [_settled(entry, names) for entry in value]
    return worded(value, names) if isinstance(value, str) else value


def _several(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _bars(ax: Axes, layer: Mapping[str, Any], found: Computed) -> None:
    """A group of bars for each name of `bars`, one bar of each record in it, with its height in digits."""
    records = found.sheet(layer).records
    width = 0.76 / len(records)
    for number, record in enumerate(records):
        heights = [record[name] for name in layer["bars"]]
        places = np.arange(len(heights)) + width * (number - 0.5 * (len(records) - 1))
        look = {"width": 0.95 * width, "color": COLORS[CYCLE[number]], "label": record[layer["label"]]}
        ax.bar_label(ax.bar(places, heights, **look), [f"{h:.2g}" for h in heights], fontsize="x-small", padding=1)
    ax.set_xticks(np.arange(len(layer["bars"])), layer["names"], fontsize="small")
