"""The numbers of Ertan and van Dijk (2026), against oracles that share no code with Calipers."""

from __future__ import annotations

import csv
import io
import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from oracles.written_files import check_files

from calipers.bracket import Bracket, Evidence, Kind
from calipers.papers import registry
from calipers.papers.ertan2026 import claims, figures, published, settings, sizes
from calipers.papers.ertan2026.settings import (
    epoch,
    epochs_of,
    forced_noise,
    isolated,
    poisson,
    poisson_ceiling,
    shuffle,
    worst_case_epsilon,
)
from calipers.papers.items import Agreement

QUICK = ("figure-1", "figure-2", "figure-3", "figure-4", "model-sizes", "utility")
SLOW = (*(f"table-{number}" for number in range(1, 11)), "thresholds", "theorem-6-1", "forced-noise")
WITH_PICTURE = ("figure-1", "figure-2", "figure-3", "figure-4", "theorem-6-1", "utility")


def unheard(done, total):
    assert 0 < done <= total


@pytest.fixture(scope="module")
def result_of(tmp_path_factory):
    """Compute an item of this paper once and read it back."""
    folder = tmp_path_factory.mktemp("ertan2026")
    results = {}

    def get(name):
        if name not in results:
            registry.reproduce(f"ertan2026-{name}", folder, unheard)
            results[name] = registry.load(f"ertan2026-{name}", folder)
        return results[name]

    return get


@pytest.fixture(scope="module")
def rows_of(result_of):
    return lambda name: {row.quantity: row for row in result_of(name).rows}


def by_quantity(outcome):
    return {row.quantity: row for row in outcome.rows}


def threshold(rounds):
    return 1 / mp.sqrt(2 * mp.log(rounds))


def tail(x):
    return mp.ncdf(-x)


# ---------------------------------------------------------------- oracles of the separation


def isolated_separation_of_two_rounds(sigma):
    """One of two observations is shifted by m = 1/sigma; the best event is Y_1 + Y_2 > 2, integrated over x_1.

    Given x_1 the event is x_2 > t(x_1); it is symmetric in the rounds, so P may put the shift on x_1.
    """
    m = 1 / mp.mpf(sigma)
    edge = sigma * mp.log(2) + m / 2  # where Y_1 = 2 and every x_2 will do

    def reject(x):
        rest = 2 - mp.exp(m * x - m * m / 2)
        return tail((mp.log(rest) + m * m / 2) / m) if rest > 0 else mp.mpf(1)

    ends = [-12, -4, 0, edge - mp.mpf("1e-3"), edge]
    below = mp.quad(lambda x: (mp.npdf(x - m) - mp.npdf(x)) * reject(x), ends)
    return (below + tail(edge - m) - tail(edge)) / mp.sqrt(2)


def poisson_separation_of_two_rounds(sigma):
    """Rate 1/2, two rounds: the best event is (1 + Y_1)(1 + Y_2) > 4."""
    m = 1 / mp.mpf(sigma)
    edge = sigma * mp.log(3) + m / 2  # where 1 + Y_1 = 4

    def gain(x):
        rest = 4 / (1 + mp.exp(m * x - m * m / 2)) - 1
        # Rounding may leave nothing at the edge, where every x_2 will do.
        t = (mp.log(rest) + m * m / 2) / m if rest > 0 else -mp.inf
        present = (mp.npdf(x) + mp.npdf(x - m)) / 2 * (tail(t) + tail(t - m)) / 2
        return present - mp.npdf(x) * tail(t)

    beyond = (tail(edge) + tail(edge - m)) / 2 - tail(edge)
    return (mp.quad(gain, [-12, -4, 0, edge - mp.mpf("1e-3"), edge]) + beyond) / mp.sqrt(2)


@pytest.mark.parametrize("sigma", [None, 0.6, 1.5])
def test_two_rounds_are_bracketed_by_quadrature(sigma):
    """The exact separations of M = 2 lie in the brackets, without tolerance."""
    setting = epoch(2, sigma)
    with mp.workdps(20):
        exact = isolated_separation_of_two_rounds(setting.noise_multiplier)
        assert isolated(setting).separation().lower <= exact <= isolated(setting).separation().upper
        exact = poisson_separation_of_two_rounds(setting.noise_multiplier)
        assert poisson(setting).separation().lower <= exact <= poisson(setting).separation().upper


@pytest.mark.parametrize(("batch", "records"), [(4096, 50_000), (1024, 50_000)])
def test_table_runs_agree_with_simulation(batch, records):
    """E[(1 - L)+] over 200,000 simulated epochs is within five standard errors of the brackets of one epoch."""
    setting = epochs_of(records, batch, 1)
    m, rng = 1 / setting.noise_multiplier, np.random.default_rng(20260)
    noise = rng.standard_normal((200_000, setting.steps_per_epoch))
    ratios = np.exp(m * noise - m * m / 2)
    share, rate = setting.steps_per_epoch * batch / records, batch / records
    losses = {
        isolated: share * np.maximum(1 - ratios.mean(axis=1), 0),
        poisson: np.maximum(1 - np.prod(1 - rate + rate * ratios, axis=1), 0),
    }
    for measured, loss in losses.items():
        mean, error = loss.mean() / math.sqrt(2), 5 * loss.std() / math.sqrt(2 * len(loss))
        found = measured(setting).separation()
        assert found.lower - error <= mean <= found.upper + error
        assert found.upper - found.lower < 0.002


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("number", published.TABLES)
def test_every_printed_sigma_follows_from_the_formula(number):
    """1/sqrt(2 ln floor(N/b)) rounds to the print, for SVHN with the extra images only."""
    table = published.TABLES[number]
    for batch, text in table.noise.items():
        stated = mp.nstr(threshold(table.dataset.records // batch), 2)
        if not table.dataset.everything:
            assert float(stated) == float(text)
        else:
            assert float(stated) != float(text)
            assert float(mp.nstr(threshold(table.dataset.everything // batch), 2)) == float(text)


def test_no_single_split_of_svhn_gives_the_printed_sigma():
    """Neither the 73,257 training nor the 531,131 extra images do; the interval of N that does holds their sum."""
    noise = published.TABLES[9].noise
    for records in (73_257, 531_131):
        assert any(f"{float(threshold(records // batch)):.2f}" != text for batch, text in noise.items())
    low = max(batch * math.exp(1 / (2 * (float(text) + 0.005) ** 2)) for batch, text in noise.items())
    high = min(batch * math.exp(1 / (2 * (float(text) - 0.005) ** 2)) for batch, text in noise.items())
    assert 73_257 < low < 73_257 + 531_131 < high


def one_epoch(monkeypatch, number, *batches):
    """The table with one epoch and these batch sizes only, for speed."""
    table = published.TABLES[number]
    shorter = SimpleNamespace(dataset=table.dataset, noise={batch: table.noise[batch] for batch in batches})
    monkeypatch.setitem(published.TABLES, number, shorter)
    monkeypatch.setattr(published, "EPOCHS", (1,))
    return registry.find_item(f"ertan2026-table-{number}").compute(unheard)


def test_svhn_rows_say_which_reading_holds(monkeypatch):
    rows = by_quantity(one_epoch(monkeypatch, 9, 512))
    assert rows["batch 512, 1 epoch: σ"].verdict is Agreement.AGREES
    assert rows["batch 512, 1 epoch: σ, stated N"].verdict is Agreement.DIFFERS


def test_runs_at_the_threshold_leak_what_the_theorems_force_and_far_more(monkeypatch):
    """Separations are above Theorems 6.1 and 6.3, and ε is far above what Lemma E.3 concludes from them."""
    outcome = one_epoch(monkeypatch, 1, 128, 1024, 4096)
    assert any("training" in remark for remark in outcome.remarks)
    (runs,) = outcome.data
    for line in (dict(zip(runs.header, row, strict=True)) for row in runs.rows):
        bound = (1 - 1 / mp.sqrt(4 * mp.pi * mp.log(line["rounds"]))) / mp.sqrt(8)
        assert line["theorem_6_1"] == pytest.approx(float(bound), rel=1e-14)
        # The theorem is about a record that takes part; this run drops it with probability 1 - participation.
        assert line["shuffle_separation_isolated_lower"] > bound * line["participation"]
        assert line["poisson_separation_lower"] > bound * (1 - mp.exp(-1))
        assert line["shuffle_epsilon_lower"] > 10
        assert line["poisson_epsilon_lower"] > line["shuffle_epsilon_upper"]


def test_the_proof_for_shuffling_is_next_to_the_gaussian_of_fixed_batches():
    """Next to no noise: ε of G_mu at 1/N, mu = sqrt(E)/σ, is at most a thousandth larger."""
    setting = epochs_of(50_000, 4096, 10)
    upper = shuffle(setting).epsilon(1 / 50_000).upper
    with mp.workdps(40):
        mu = mp.sqrt(10) / mp.mpf(setting.noise_multiplier)
        profile = lambda e: mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)  # noqa: E731
        assert profile(mp.mpf(upper) * (1 + mp.mpf("1e-3"))) <= mp.mpf(1) / 50_000
        assert profile(mp.mpf(upper) * (1 - mp.mpf("1e-9"))) >= mp.mpf(1) / 50_000


def test_the_quick_route_to_epsilon_is_wider_than_the_attack_and_holds_it(monkeypatch):
    """Without the attack the proof is that of fixed batches and the lower bound falls, and the row says so."""
    run, delta = epochs_of(50_000, 4096, 10), 1 / 50_000
    low, high, note = worst_case_epsilon(run, delta)
    monkeypatch.setattr(settings, "_LONGEST_ATTACKED", 1)
    quick_low, quick_high, quick_note = worst_case_epsilon(run, delta)
    assert quick_low < low <= high <= quick_high <= high * (1 + 1e-3)
    assert note == ""
    assert "isolated" in quick_note


@pytest.mark.parametrize("line", published.TABLE_10, ids=lambda line: str(line.rounds))
def test_table_10_to_its_printed_digits(line):
    """All thirty-six numbers, from the formulas in 30 digits."""
    with mp.workdps(30):
        kappa = (1 - 1 / mp.sqrt(4 * mp.pi * mp.log(line.rounds))) / mp.sqrt(8)
        delta = mp.mpf(10) ** -8
        for value, printed_kappa, printed_epsilon in (
            (kappa, line.shuffle_separation, line.shuffle_epsilon),
            ((1 - mp.exp(-1)) * kappa, line.poisson_separation, line.poisson_epsilon),
        ):
            epsilon = mp.log((1 + value * mp.sqrt(2) - 2 * delta) / (1 - value * mp.sqrt(2)))
            assert f"{float(value):.3f}" == printed_kappa
            assert f"{float(epsilon):.2f}" == printed_epsilon


def compare_with_the_truth(rows, name):
    """κ of the isolated view, ε of the worst case: two views, and no label for both."""
    for sampler, share, view, worst in (
        ("shuffling", 0.94, "isolated view", "shuffling, worst case"),
        ("Poisson", 0.76, "Poisson", "Poisson"),
    ):
        assert rows[f"{name}: κ, {sampler}"].lower > share * rows[f"{name}: true κ, {view}"].upper
        assert rows[f"{name}: true ε, {worst}"].lower > 27


def test_table_10_compares_its_bounds_with_the_truth(monkeypatch):
    """The first line: everything agrees, κ is within 6 and 24 percent of the truth, ε is not within a factor of 20."""
    monkeypatch.setattr(published, "TABLE_10", published.TABLE_10[:1])
    outcome = registry.find_item("ertan2026-table-10").compute(unheard)
    assert len(outcome.rows) == 8
    assert {row.verdict for row in outcome.rows} == {Agreement.AGREES}
    rows = by_quantity(outcome)
    compare_with_the_truth(rows, "M = 1,000")
    assert rows["M = 1,000: true ε, Poisson"].lower > rows["M = 1,000: true ε, shuffling, worst case"].upper


@pytest.mark.slow
@pytest.mark.parametrize("number", published.TABLES)
def test_whole_tables(rows_of, number):
    """Three epoch budgets per batch size: σ agrees, and nothing but the stated N of SVHN differs."""
    rows = rows_of(f"table-{number}")
    sigmas = [row for name, row in rows.items() if name.endswith(": σ")]
    assert len(sigmas) == 3 * len(published.TABLES[number].noise)
    assert {row.verdict for row in sigmas} == {Agreement.AGREES}
    differing = [name for name, row in rows.items() if row.verdict is Agreement.DIFFERS]
    assert len(differing) == (9 if number == 9 else 0)
    assert all(name.endswith("stated N") for name in differing)


@pytest.mark.slow
def test_whole_table_10_agrees(rows_of):
    rows = rows_of("table-10")
    assert len(rows) == 72
    assert {row.verdict for row in rows.values()} == {Agreement.AGREES}
    for line in published.TABLE_10:
        compare_with_the_truth(rows, f"M = {line.rounds:,}")


# ---------------------------------------------------------------- quoted numbers


def test_quoted_thresholds(monkeypatch):
    """ImageNet's line agrees; LAION's numbers follow from the formula."""
    for quoted, rounds, digits in zip(published.THRESHOLDS, (5_078, 22_656_250), (0, 1), strict=True):
        assert quoted.records // 256 == rounds
        assert float(f"{rounds:.{digits}e}") == float(quoted.rounds)
        assert f"{float(threshold(rounds)):.2f}" == quoted.noise
    monkeypatch.setattr(published, "THRESHOLDS", published.THRESHOLDS[:1])
    rows = by_quantity(registry.find_item("ertan2026-thresholds").compute(unheard))
    assert rows["ImageNet-1k: M"].verdict is rows["ImageNet-1k: σ"].verdict is Agreement.AGREES
    assert rows["ImageNet-1k: separation, isolated"].lower > rows["ImageNet-1k: κ of Theorem 6.1"].upper


def test_theorem_6_1_holds_as_stated(monkeypatch):
    """x' exceeds the bound without the factor of the proof, and falls short of nothing for M = 2, 3, ..., 2000."""
    monkeypatch.setattr(claims, "ROUNDS", (2, 12, 390))
    monkeypatch.setattr(claims, "EVERY_ROUND_UP_TO", 2_000)
    outcome = registry.find_item("ertan2026-theorem-6-1").compute(unheard)
    rows = by_quantity(outcome)
    assert {row.verdict for row in rows.values()} == {Agreement.AGREES, Agreement.NOT_PRINTED}
    with mp.workdps(30):
        for rounds in (2, 3, 12, 390, 2_000, 10**10):
            sigma, level = threshold(rounds), 1 / mp.sqrt(4 * mp.pi * mp.log(rounds))
            above = mp.ncdf(1 / sigma) ** rounds
            point = (above - above ** (1 - mp.mpf(1) / rounds) / 2) / mp.sqrt(2)
            assert point > (1 - level) / mp.sqrt(8)
            if rounds == 10**10:
                least = rows["x'/(bound of Theorem 6.1), least"].lower
                assert least == pytest.approx(float(point / ((1 - level) / mp.sqrt(8))), rel=1e-9)
    assert rows["M = 12: κ, isolated"].upper * 0.91 < rows["M = 12: κ, isolated"].published.low
    assert rows["M = 390: κ, shuffling in the worst case"].lower < 2 * rows["M = 390: κ, isolated"].upper


@pytest.mark.slow
def test_whole_dichotomies_and_thresholds(rows_of):
    for name in ("theorem-6-1", "thresholds"):
        assert {row.verdict for row in rows_of(name).values()} == {Agreement.AGREES, Agreement.NOT_PRINTED}


def test_forced_noise_brackets_a_known_root():
    """For G_mu, mu = 1/σ, blurred by one percent, the returned values enclose the root and certify what they say."""
    evidence = Evidence.of(Kind.THEOREM, "ertan2026:lemmaE.1")

    def separation(sigma):
        exact = math.erf(1 / (sigma * math.sqrt(8))) / math.sqrt(2)
        return Bracket(0.99 * exact, 1.01 * exact, evidence, evidence)

    for target in (0.3, 0.1, 0.01):
        root = float(1 / (mp.sqrt(8) * mp.erfinv(target * mp.sqrt(2))))
        low, high = forced_noise(separation, target, 3.0, 1.3)
        assert low < root < high < 1.05 * low
        assert separation(low).lower > target >= separation(high).upper


@pytest.mark.slow
def test_small_separation_takes_far_more_noise_than_the_threshold(rows_of):
    rows = rows_of("forced-noise")
    assert {row.verdict for row in rows.values()} == {Agreement.AGREES}
    for rounds in claims.FORCED_ROUNDS:
        for sampler in ("isolated", "Poisson"):
            ratio = rows[f"M = {rounds}, κ = 0.01: σ, {sampler}"]
            assert ratio.lower / float(threshold(rounds)) > 5
            assert ratio.upper / float(threshold(rounds)) < 12
            assert ratio.upper < 1.03 * ratio.lower


def test_model_sizes_against_known_counts(rows_of):
    """WideResNet-28-10 has 36,479,194 parameters, twelve ViT-Base blocks 85,054,464: both are in every framework."""
    wide = sizes.wide_residual_network()
    assert wide[0] <= 36_479_194 <= wide[1]
    rest = (3 * 16 + 1) * 768 + 66 * 768 + 2 * 768 + (768 + 1) * 10
    assert sizes.vision_transformer(768)[1] == 85_054_464 + rest
    tokens, block = 30_000 * 256, 4 * 256**2 + 3 * 256 * 1024
    assert sizes.text_transformer(256, 4, 1024, 128)[0] == tokens + 4 * block + 128 * 256 + 4 * 256
    differing = {name.split(":")[0] for name, row in rows_of("model-sizes").items() if row.verdict is Agreement.DIFFERS}
    assert differing == {"Transformer-Tiny", "ViT-Tiny", "ViT-Small"}


# ---------------------------------------------------------------- figures


def test_figure_2_orders_its_three_distances(rows_of):
    """x' from the formula, κ_sub from the errors of the test on a fine grid of thresholds."""
    rows, rounds = rows_of("figure-2"), figures.DRAWN_ROUNDS
    assert {row.verdict for row in rows.values()} == {Agreement.AGREES, Agreement.NOT_PRINTED}
    shift = float(1 / threshold(rounds))
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    h = np.linspace(-2, 6, 8001)
    best = np.max(cdf(h) ** rounds - cdf(h - shift) * cdf(h) ** (rounds - 1)) / math.sqrt(2)
    assert rows["κ_sub"].upper == pytest.approx(best, abs=1e-7)
    at_shift = float(cdf(shift)) ** rounds - 0.5 * float(cdf(shift)) ** (rounds - 1)
    assert rows["x'"].lower == pytest.approx(at_shift / math.sqrt(2), rel=1e-12)
    assert 0.975 < rows["κ_sub"].upper / rows["κ_shuf"].lower < 0.985
    assert 0.935 < rows["x'"].upper / rows["κ_shuf"].lower < 0.945


def predicted(rounds, epochs, s):
    """Equations (47) and (49) at σ = s/sqrt(ln M)."""
    shift = mp.sqrt(mp.log(rounds)) / s
    inside = mp.exp(shift**2) * mp.ncdf(1.5 * shift) + 3 * mp.ncdf(-shift / 2) - 2
    return mp.erf(mp.sqrt(2 * mp.mpf(epochs) / rounds * inside) / mp.sqrt(8)) / mp.sqrt(2)


def test_figure_3_and_the_limits_of_its_prediction(rows_of):
    """Equation (52) from its own text, and the prediction at M = 10^4000 for s below, at and above 1."""
    rows = rows_of("figure-3")
    with mp.workdps(30):
        for label, s in figures.SCHEDULES.items():
            for rounds in (100, 1_000_000):
                power = mp.mpf(rounds) ** (1 / mp.mpf(s) ** 2 - 1)
                bound = 1 / mp.sqrt(2) - 2 / mp.sqrt(mp.pi) * mp.exp(-power / 16) / (mp.sqrt(power) / mp.sqrt(2))
                assert rows[f"Equation (52), s = {label}, M = {rounds:,}"].lower == pytest.approx(
                    float(bound), abs=1e-13
                )
                assert bound <= predicted(rounds, 1, s)
        far = mp.mpf(10) ** 4000
        limits = {"s < 1": predicted(far, 1, mp.mpf("0.9")), "s = 1": predicted(far, 1, 1)}
        limits["s > 1"] = predicted(far, 1, mp.mpf("1.1"))
        for name, value in limits.items():
            row = rows[f"predicted separation as M → ∞, {name}"]
            assert row.lower == pytest.approx(float(value), abs=1e-12)
            assert row.verdict is (Agreement.AGREES if name == "s < 1" else Agreement.DIFFERS)


def test_figure_4_predicts_more_than_any_noise_can_give(result_of):
    """The prediction exceeds the truth on the whole grid, and for one epoch from M = 4 on the ceiling as well."""
    (path,) = [file for file in result_of("figure-4").files if file.name.endswith("measured.csv")]
    with mp.workdps(40):
        for line in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
            rounds, epochs = int(line["rounds"]), int(line["epochs"])
            ceiling = (1 - (1 - mp.mpf(1) / rounds) ** (rounds * epochs)) / mp.sqrt(2)
            assert float(line["ceiling"]) == pytest.approx(float(ceiling), rel=1e-12)
            forecast = predicted(rounds, epochs, mp.sqrt(mp.mpf(1) / 2))
            assert float(line["predicted"]) == pytest.approx(float(forecast), rel=1e-12)
            assert float(line["separation_upper"]) < min(forecast, ceiling)
            if epochs == 1:
                assert (forecast > ceiling) == (rounds >= 4)


def test_the_ceiling_is_reached_as_the_noise_vanishes():
    """At σ = 0.1 one epoch of two rounds nearly attains it: the bound is not vacuous."""
    ceiling = poisson_ceiling(2)
    found = poisson(epoch(2, 0.1)).separation()
    assert ceiling == pytest.approx(0.75 / math.sqrt(2))
    assert 0.999 * ceiling < found.upper
    assert found.lower <= ceiling


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", QUICK)
def test_files_are_written(result_of, name):
    check_files(result_of(name), figure=name in WITH_PICTURE)
    assert result_of(name).remarks


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_files_are_written(result_of, name):
    check_files(result_of(name), figure=name in WITH_PICTURE)


def test_no_item_is_left_out_of_these_checks():
    items = {item.name.removeprefix("ertan2026-"): item for item in registry.list_items() if item.source == "ertan2026"}
    assert set(items) == {*QUICK, *SLOW}
    assert {name for name, item in items.items() if item.cost == "quick"} == set(QUICK)
