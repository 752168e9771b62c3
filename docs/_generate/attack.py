"""The picture of an adaptive attack, from values that are kept beside it and compared by a test.

    python docs/_generate/attack.py

It needs the extra plots. The values are in `_static/adaptive-attack.json`; the picture carries them in its description.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import calipers as cp
from calipers.numerics.decimals import ceil_digits, floor_digits

STATIC = Path(__file__).parents[1] / "_static"
EPSILONS = tuple(round(2.2 + 0.1 * place, 1) for place in range(13))


def values() -> dict[str, object]:
    """Epsilon of each path at delta = 1e-5, and deltas of what the curves show, bounds rounded outward."""
    start, many, one = (
        cp.Run(sample_rate=0.05, steps=steps, noise_multiplier=noise)
        for steps, noise in ((20, 1.0), (400, 2.0), (1, 0.699))
    )
    chosen = cp.AdaptiveRun({"start": start, "many": many, "one": one}, {"start": 1, "many": 2, "one": 2}, budget=3)
    paths = [cp.measure([start, path]) for path in (many, one)]
    adaptive = cp.measure(chosen)
    curves = {
        "20, then 400 steps (fixed)": [ceil_digits(paths[0].delta(epsilon).upper) for epsilon in EPSILONS],
        "20, then 1 step (fixed)": [ceil_digits(paths[1].delta(epsilon).upper) for epsilon in EPSILONS],
        "adaptive: attack": [floor_digits(adaptive.delta(epsilon).lower) for epsilon in EPSILONS],
        "adaptive: certified": [ceil_digits(adaptive.delta(epsilon).upper) for epsilon in EPSILONS],
    }
    alone = [f"{math.ceil(1000 * path.epsilon(1e-5).upper) / 1000:.3f}" for path in paths]
    return {"path alone": alone, "curves": curves}


def draw(found: dict[str, object], place: Path) -> None:
    """A tree on the left, delta over epsilon on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8))
    tree, plot = figure.subplots(1, 2, width_ratios=(0.8, 1))
    tree.set(xlim=(0, 1), ylim=(0, 1))
    tree.axis("off")
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#555"}
    alone = found["path alone"]
    tree.text(0.12, 0.5, "20 steps\nnoise 1", ha="center", va="center", bbox=box)
    for name, said, height, words in (
        ("400 steps, noise 2", alone[0], 0.82, "released\nratio one way"),  # type: ignore[index]
        ("1 step, noise 0.699", alone[1], 0.18, "the other way"),  # type: ignore[index]
    ):
        tree.text(0.76, height, f"{name}\npath alone: {said}", ha="center", va="center", bbox=box)
        tree.annotate("", (0.48, 0.5 + 0.9 * (height - 0.5)), (0.26, 0.5), arrowprops={"arrowstyle": "->"})
        tree.text(0.33, 0.78 if height > 0.5 else 0.22, words, ha="right", va="center", fontsize=9)
    looks = (
        {"color": "tab:blue"},
        {"color": "tab:green"},
        {"color": "black", "ls": "--"},
        {"color": "tab:red", "lw": 1.2},
    )
    for (name, deltas), look in zip(found["curves"].items(), looks, strict=True):  # type: ignore[attr-defined]
        plot.semilogy(EPSILONS, [float(delta) for delta in deltas], label=name, **look)
    plot.axhline(1e-5, color="#999", lw=0.8)
    plot.set(xlabel="epsilon", ylabel="delta", title="delta at each epsilon")
    plot.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(place, dpi=100, metadata={"Description": json.dumps(found)})


def main() -> None:
    """Measure, keep the values, draw."""
    found = values()
    (STATIC / "adaptive-attack.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    draw(found, STATIC / "adaptive-attack.png")


if __name__ == "__main__":
    main()
