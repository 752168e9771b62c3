"""Numbers in the documentation that no single command prints, computed again to their last digit.

`docs_numbers.toml` names this file for them: what stands here in digits is what the pages say.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
import scipy.stats
from click.testing import CliRunner
from oracles.shuffled_recursion import exact_divergence

import calipers as cp
from calipers.certificates.certify import _CLEARLY
from calipers.cli import main
from calipers.numerics.decimals import ceil_digits, floor_digits
from calipers.pld.allocation.recursion import FINE
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MENUS = {
    (0.01, 3, "0.8, 0.85, 0.9"): ("893, 1290, 1720", "808, 1213, 1617", "0.90 to 0.94", "512, 805, 1081"),
    (0.01, 3, "0.7, 0.8, 1.0"): ("271, 893, 2659", "199, 665, 1995", "0.73 to 0.75", "67, 285, 765"),
    (0.01, 3, "0.7, 0.74, 0.78, 0.82, 0.84"): (
        "271, 482, 746, 1048, 1208",
        "202, 365, 608, 912, 912",
        "0.75 to 0.87",
        "67, 150, 240, 329, 374",
    ),
    (0.001, 1, "0.8, 0.9"): ("16, 27", "16491, 27689", "15968, 26946", "0.97", "0, 6232"),
    (0.001, 1, "0.6, 0.8, 1.0"): (
        "1, 16, 40",
        "237, 16491, 40272",
        "177, 12288, 30720",
        "0.75 to 0.76",
        "0, 0, 17762",
    ),
    (0.0001, 0.2, "0.8, 0.9"): ("94, 150", "94582, 150320", "92214, 147150", "0.97 to 0.98", "none"),
    (0.0001, 0.2, "0.6, 0.8, 1.0"): (
        "4, 94, 215",
        "4191, 94582, 215235",
        "3268, 76798, 175655",
        "0.78 to 0.82",
        "none",
    ),
}
EPOCHS = {
    (1, 50, 1.5): ("1.227e-2", "1.013", "1.001"),
    (1.1, 234, 3): ("9.481e-6", "1.002", "1.001"),
    (2, 234, 0.1): ("1.201e-3", "1.364", "1.001"),
    (2, 234, 0.2): ("4.890e-5", "1.343", "1.001"),
    (2, 1000, 0.15): ("3.342e-7", "1.215", "1.002"),
    (5, 500, 0.03): ("3.176e-6", "2.889", "1.005"),
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", MENUS, ids=str)
def test_what_a_menu_costs(asked: tuple[float, float, str]) -> None:
    """Steps of each kind alone: fixed in advance, by the menu filter and its share of that, by the Renyi filter."""
    rate, epsilon, noises = asked
    menu = {noise: cp.Run(sample_rate=rate, steps=1, noise_multiplier=float(noise)) for noise in noises.split(", ")}

    def written(numbers: Iterable[int]) -> str:
        return ", ".join(map(str, numbers))

    def allowed(rule: str) -> str:
        try:
            keep = cp.PrivacyFilter(menu, epsilon=epsilon, delta=1e-5, rule=rule)
        except cp.CalipersError:
            return "none"
        return written(keep.remaining[noise] for noise in menu)

    keep = cp.PrivacyFilter(menu, epsilon=epsilon, delta=1e-5, rule="menu")
    chosen = [keep.remaining[noise] for noise in menu]
    shares = sorted(f"{one / fixed:.2f}" for one, fixed in zip(chosen, keep.rule.alone, strict=True))
    share = shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
    blocks = [written(keep.rule.blocks)] if rate < 0.01 else []
    assert (*blocks, written(keep.rule.alone), written(chosen), share, allowed("renyi")) == MENUS[asked]
    first = f"{rate:.4g}, {epsilon} | {noises}".replace("1e-04", "0.0001") if rate < 0.01 else noises
    assert f"| {first} | {' | '.join(MENUS[asked])} |" in (DOCS / "adaptive.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("epoch", EPOCHS, ids=str)
def test_one_shuffled_epoch_over_its_exact_value(epoch: tuple[float, int, float]) -> None:
    """The worst-case sum U, and the finest recursion; half a batch is left over."""
    sigma, batches, epsilon = epoch
    share = 2 * batches / (2 * batches + 1)
    exact = exact_divergence(sigma, batches, epsilon, share)
    shuffled = ShuffledEpoch(sigma, batches, share, fine=True)
    worst, finest = shuffled.node(epsilon, False, 0.04, -60.0)[1], shuffled.delta(epsilon)
    said = f"{exact:.3e}".replace("e-0", "e-"), f"{worst / exact:.3f}", f"{finest / exact:.3f}"
    assert said == EPOCHS[epoch]
    row = f"| σ {sigma:g}, M {batches}, ε {epsilon:g} | {' | '.join(EPOCHS[epoch])} |"
    assert row in (DOCS / "theory" / "shuffling.md").read_text("utf-8")


@pytest.fixture
def attack(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that draws the adaptive attack."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("_generate.attack")


@pytest.mark.slow
def test_the_picture_of_the_attack_shows_the_numbers_of_today(attack: ModuleType) -> None:
    """`docs/_generate/attack.py` takes it anew; the last of five digits may differ by one on another processor."""
    kept, today = json.loads((DOCS / "_static" / "adaptive-attack.json").read_text("utf-8")), attack.values()
    assert today["path alone"] == kept["path alone"] == ["2.855", "2.855"]
    assert set(today["curves"]) == set(kept["curves"])
    for name, deltas in today["curves"].items():
        for one, other in zip(deltas, kept["curves"][name], strict=True):
            assert abs(float(one) - float(other)) <= 2e-4 * float(other)


def test_the_picture_of_the_attack_was_drawn_from_what_is_kept() -> None:
    """It carries the values in its description."""
    picture = (DOCS / "_static" / "adaptive-attack.png").read_bytes()
    kept = json.loads((DOCS / "_static" / "adaptive-attack.json").read_text("utf-8"))
    assert json.dumps(kept).encode() in picture


@pytest.mark.slow
def test_the_attack_by_choosing_the_path() -> None:
    """Epsilon 3.01 at delta 1e-5, and delta 1.7e-5 at the epsilon 2.855 of either path."""
    runs = [cp.Run(sample_rate=0.05, steps=s, noise_multiplier=n) for s, n in ((20, 1.0), (400, 2.0), (1, 0.699))]
    chosen = cp.AdaptiveRun(dict(zip("abc", runs, strict=True)), {"a": 1, "b": 2, "c": 2}, budget=3)
    measured = cp.measure(chosen)
    assert f"{measured.epsilon(1e-5).lower:.2f}" == "3.01"
    assert f"{measured.delta(2.855).lower:.1e}" == "1.7e-05"


@pytest.mark.slow
def test_a_rate_that_is_multiplied_by_four() -> None:
    """[8.7033, 8.7081] for eleven steps at 1/11 and eleven at 4/11; five digits, give or take one in the last."""
    runs = [cp.Run(sample_rate=rate, steps=11, noise_multiplier=1.0) for rate in (1 / 11, 4 / 11)]
    bracket = cp.measure(runs).epsilon(1e-5)
    assert abs(float(floor_digits(bracket.lower)) - 8.7033) < 1.5e-4
    assert abs(float(ceil_digits(bracket.upper)) - 8.7081) < 1.5e-4


def test_the_hull_is_above_the_best_attack() -> None:
    """At q = sigma = 0.3 and a false positive rate of 0.41 the best attack gets 0.5867."""
    found = cp.measure(cp.Run(sample_rate=0.3, steps=1, noise_multiplier=0.3)).tpr(fpr=0.41)
    assert f"{found.lower:.4f}" == f"{found.upper:.4f}" == "0.5867"


@pytest.mark.slow
def test_two_batches_refute_the_conjecture() -> None:
    """Opposing throughout is at most 0.033329, changing sides at least 0.035287."""
    result = CliRunner().invoke(
        main, ["theorem", "chua-conj-3.2-counterexample", "--epsilon", "0.5", "--noise-multiplier", "2"]
    )
    assert result.exit_code == 0, result.stderr
    attack, conjectured = (float(found) for found in re.findall(r"^\w+ = ([\d.]+)$", result.stdout, flags=re.M))
    assert 0.035287 <= attack < 0.035288
    assert 0.033328 < conjectured <= 0.033329


def test_a_change_of_scale_in_many_coordinates() -> None:
    """200 rounds of 26,010 coordinates, 700 against 701: a false negative rate of 0.000444."""
    squares = scipy.stats.chi2(200 * 26_010)
    missed = squares.sf(squares.ppf(0.1) / (700 / 701) ** 2)
    assert f"{missed:.6f}" == "0.000444"


def test_counts_of_the_pages() -> None:
    """Situations, planted bugs, cells of the finest recursion; when `certify` complains: more than 1 %."""
    loops = (DOCS / "howto" / "opacus-loops.md").read_text("utf-8")
    before = loops.partition("## Loops that change")[0]
    assert len(re.findall(r"^\| .* \| (?:exact|nothing|not seen) \|", before, flags=re.M)) == 28
    bugs = (DOCS / "howto" / "planted-bugs.md").read_text("utf-8")
    verdicts = [row.rstrip(" |").rpartition("| ")[2] for row in bugs.splitlines() if row.startswith("| ")][1:]
    assert len(verdicts) == 66
    assert verdicts.count("falsifies the claim") == 39
    assert len(FINE.cells) - 1 == 26
    assert _CLEARLY == 1.01
    assert re.search(r"confidence: float = 0\.95", (ROOT / "src/calipers/auditing/audit.py").read_text("utf-8"))  # 95 %


def test_the_table_of_the_protocol_is_made_of_the_rows_that_are_kept() -> None:
    """`experiments/protocol/README.md`, line by line."""
    views = importlib.import_module("benchmarks.protocol_views")
    rows = views.kept(ROOT / "src/calipers/papers/ertan2026/trained.csv")
    page = (ROOT / "experiments/protocol/README.md").read_text("utf-8").splitlines()
    assert [line for line in page if line.startswith("|")] == views.table(rows)


def test_the_settings_of_the_rare_grid_are_counted() -> None:
    """Its first lines say 1,680."""
    grid = importlib.import_module("drivers.rare_grid")
    assert len(grid.settings()) == 1680
    assert "1,680 settings" in grid.__doc__
