"""The numbers of Gomez et al. (2025), against oracles that share no code with Calipers."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from oracles import contour
from oracles import pairs as oracle_pairs
from oracles.written_files import check_files
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from calipers.numerics.decimals import setting
from calipers.papers import registry
from calipers.papers.gomez2025 import published
from calipers.papers.gomez2025.desiderata import order_violations
from calipers.papers.gomez2025.settings import dpsgd, fit, fit_run, mu_over_all_alpha, response_curves
from calipers.papers.gomez2025.tables import solved_noise
from calipers.papers.items import Agreement

QUICK = ("table-2", "table-3", "headline", "tpr", "topdown", "figure-2", "figure-5", "figure-6")
FIGURES = ("figure-2", "figure-5", "figure-6")
SLOW_FIGURES = ("figure-1", "figure-7", "figure-8")


def gaussian_profile(mu, epsilon):
    """Phi(-a) - e^eps Phi(-b), in mpmath."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return mp.ncdf(-a) - mp.exp(epsilon) * mp.ncdf(-b)


def test_table_3_to_its_printed_digits(rows_of):
    """The true mu of each pair lies in our bracket, and rounds to what is printed."""
    rows = rows_of("table-3")
    with mp.workdps(40):
        for epsilon, texts in published.TABLE_3.items():
            for delta, text in zip(published.TABLE_3_DELTA, texts, strict=True):
                row = rows[f"μ at ε = {epsilon:g}, δ = {setting(delta)}"]
                # The profile grows with mu, so these two inequalities put the root between the ends.
                assert (
                    gaussian_profile(mp.mpf(row.lower), epsilon)
                    <= delta
                    <= gaussian_profile(mp.mpf(row.upper), epsilon)
                )
                assert f"{row.lower:.2f}" == f"{row.upper:.2f}" == text
                assert row.verdict is Agreement.AGREES


@pytest.fixture(scope="module")
def headline_profile():
    """The exact profile of sigma = 9.4, q = 16384/50000, T = 2000, by contour integration, both directions."""
    pair = oracle_pairs.poisson_gaussian(16384 / 50000, 9.4)
    epsilons = np.concatenate((np.linspace(0.0, 3.0, 7), np.linspace(8.8, 9.8, 11)))
    deltas = [max(contour.delta(pair, 2000, e, "PQ"), contour.delta(pair, 2000, e, "QP")) for e in epsilons]
    return epsilons, np.array(deltas)


def profile_of(mu, epsilon):
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return np.exp(log_ndtr(-a)) - np.exp(epsilon + log_ndtr(-b))


def test_headline_mu_and_regret_against_the_oracle(rows_of, headline_profile):
    """mu up to 1e-10 and its regret, solved from the oracle's profile, lie in our brackets."""
    epsilons, deltas = headline_profile
    delta0 = 1e-10
    touching = [
        brentq(lambda mu, e=e, d=d: delta0 + (1 - delta0) * profile_of(mu, e) - d, 0.5, 4.0)
        for e, d in zip(epsilons, deltas, strict=True)
        if d > 2 * delta0
    ]
    # Over a grid the oracle's mu is at most the true one; the profile is flat there, so it misses less than 1e-5.
    mu = max(touching)
    row = rows_of("headline")["μ up to δ0 = 1e-10"]
    assert mu <= row.upper
    assert row.lower <= mu + 1e-5
    assert row.upper - row.lower < 5e-4
    overstated = max((delta0 + (1 - delta0) * profile_of(mu, epsilons) - deltas) / (1 + np.exp(epsilons)))
    row = rows_of("headline")["regret up to δ0 = 1e-10"]
    assert overstated <= row.upper
    assert row.lower <= overstated + 2e-5
    assert row.upper < 0.0012


def test_headline_agrees_with_the_print_and_says_what_every_alpha_would_need(rows_of):
    rows = rows_of("headline")
    assert rows["μ up to δ0 = 1e-10"].verdict is Agreement.AGREES
    assert rows["regret up to δ0 = 1e-10"].verdict is Agreement.AGREES
    assert rows["μ at every α: √T/σ"].verdict is Agreement.DIFFERS


def test_mu_over_all_alpha_is_needed_and_enough():
    """Deep in the tail the test that sums up the outputs beats a mu just below sqrt(T)/sigma, and not that one."""
    setting = dpsgd(2.0, 3, 0.1)
    m = mu_over_all_alpha(setting)
    assert m == pytest.approx(math.sqrt(3) / 2)
    with mp.workdps(60):
        power = lambda x, q: q**3 * mp.ncdf(m - x)  # noqa: E731  # the run's power is at least this
        assert power(mp.mpf(200), mp.mpf("0.1")) > mp.ncdf(0.95 * m - 200)
        assert power(mp.mpf(200), mp.mpf("0.1")) < mp.ncdf(m - 200)


def test_quoted_true_positive_rates(rows_of, headline_profile):
    """61 percent and 99.95 percent, and the oracle's bound 1 - f(0.1) = min over eps of delta + e^eps 0.1."""
    rows = rows_of("tpr")
    assert all(row.verdict is Agreement.AGREES for row in rows.values())
    epsilons, deltas = headline_profile
    line = 100 * np.min(deltas + np.exp(epsilons) * 0.1)
    assert rows["TPR at FPR 10 %, the run (%)"].lower <= line


def test_table_2_holds_for_sixty_thousand_records_only(rows_of):
    """Every printed mu agrees with the rate 16384/60000 and none with 16384/50000."""
    rows = {name: row for name, row in rows_of("table-2").items() if "rate" in name}
    assert len(rows) == 16
    for name, row in rows.items():
        assert row.verdict is (Agreement.AGREES if name.endswith("60000") else Agreement.DIFFERS), name


@pytest.mark.parametrize(("name", "mu"), [("ρ = 3.65", 2.701851), ("ρ = (485/254)²", 2.700368)])
def test_topdown_lies_in_its_bracket(rows_of, name, mu):
    """sqrt(2 rho), which the discrete noise attains to all shown digits, lies in a bracket four digits tight."""
    row = rows_of("topdown")[f"μ, {name}"]
    assert row.lower <= mu <= row.upper
    assert (row.upper - row.lower) / mu < 1e-4


def test_topdown_print_is_that_of_the_rounded_budget(rows_of):
    rows = rows_of("topdown")
    assert rows["μ, ρ = 3.65"].verdict is Agreement.AGREES
    assert rows["μ, ρ = (485/254)²"].verdict is Agreement.DIFFERS
    assert sum(published.TOPDOWN_SHARES.values()) == 1000


def test_randomized_response_regret(rows_of):
    """Its profile is (1 - e^(eps - 1))/(1 + 1/e): the regret of Proposition 6.1's mu is 0.0575."""
    mu = -2 * ndtri(1 / (math.e + 1))
    epsilons = np.linspace(0.0, 1.0, 20001)
    exact = (math.e - np.exp(epsilons)) / (math.e + 1)
    oracle = np.max((profile_of(mu, epsilons) - exact) / (1 + np.exp(epsilons)))
    found = fit(response_curves())
    assert found.mu[0] <= mu + 1e-9
    assert found.mu[1] >= mu - 1e-9
    assert found.regret[1] == pytest.approx(oracle, abs=1e-8)
    assert rows_of("figure-5")["randomized response: regret"].verdict is Agreement.AGREES


def test_order_marks_come_from_both_answers():
    """One-parameter families show no violation, the others at least one."""
    found = order_violations()
    assert {name for name, count in found.items() if count == 0} == {"ε-DP", "ρ-zCDP", "μ-GDP"}


def test_the_rule_of_thumb_is_refuted_at_its_corner():
    """At sigma = 2, T = 400, q = 0.18 the lower jaw of the regret exceeds 0.01; at sigma = 3 the upper one does not."""
    assert fit_run(dpsgd(2.0, 400, 0.18)).regret[0] > 0.01
    assert fit_run(dpsgd(3.0, 400, 0.26)).regret[1] < 0.01


def test_the_rule_is_refuted_by_the_oracle_too():
    """The same from the exact profile: no reported mu that is valid up to 1e-10 keeps the regret below 0.01."""
    pair = oracle_pairs.poisson_gaussian(0.18, 2.0)
    epsilons = np.linspace(0.0, 24.0, 9)
    deltas = np.array([max(contour.delta(pair, 400, e, "PQ"), contour.delta(pair, 400, e, "QP")) for e in epsilons])
    delta0 = 1e-10
    deep = deltas > 2 * delta0
    mu = max(
        brentq(lambda mu, e=e, d=d: delta0 + (1 - delta0) * profile_of(mu, e) - d, 0.5, 6.0)
        for e, d in zip(epsilons[deep], deltas[deep], strict=True)
    )
    assert max((delta0 + (1 - delta0) * profile_of(mu, epsilons) - deltas) / (1 + np.exp(epsilons))) > 0.01


def test_a_lost_run_is_bounded_instead_of_fitted():
    """Where the attacker wins almost surely there is no mu, and (1 - advantage)/2 bounds every regret."""
    (mu, most), (least, bound) = fit_run(dpsgd(2.0, 2000, 0.9))
    assert math.isnan(mu)
    assert (most, least) == (math.inf, 0.0)
    # sqrt(T) q / sigma = 20 deviations apart: the exact error is far below what is certified.
    assert 0.5 * ndtr(-10.0) <= bound <= 1e-3


@pytest.mark.parametrize("name", QUICK)
def test_files_are_written(reproduced, name):
    check_files(reproduced(name), figure=name in FIGURES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SLOW_FIGURES, "figure-4"])
def test_more_figures_are_written(reproduced, name):
    check_files(reproduced(name), figure=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-1", "table-4", "table-5", "rdp-minimum", "rule-of-thumb"])
def test_more_tables_are_written(reproduced, name):
    check_files(reproduced(name), figure=False)


@pytest.mark.slow
def test_table_1_marks_agree(rows_of):
    rows = rows_of("table-1")
    assert len(rows) == 18
    assert {row.verdict for row in rows.values()} == {Agreement.AGREES}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-4", "table-5"])
def test_hyperparameters_give_the_printed_epsilon_by_renyi_accounting_only(rows_of, name):
    for quantity, row in rows_of(name).items():
        if "Rényi" in quantity:
            assert row.verdict is Agreement.AGREES
        elif "ε at" in quantity:
            assert row.verdict is Agreement.DIFFERS
            assert row.upper < row.published.low


@pytest.mark.slow
def test_the_minimum_over_orders_is_the_weaker_curve(rows_of):
    rows = rows_of("rdp-minimum")
    for alpha in ("0.01", "0.1", "0.3"):
        weakest, best, run = (
            rows[f"β at α = {alpha}: {what}"] for what in ("minimum over orders", "maximum over orders", "the run")
        )
        assert weakest.upper < best.upper < run.upper


def test_no_item_is_left_out_of_these_checks():
    tested = {*QUICK, *SLOW_FIGURES, "figure-4", "table-1", "table-2-solved", "table-4", "table-5"}
    tested |= {"rdp-minimum", "rule-of-thumb"}
    assert {
        item.name.removeprefix("gomez2025-") for item in registry.list_items() if item.source == "gomez2025"
    } == tested


def test_solving_by_renyi_accounting_gives_back_the_printed_noise():
    """epsilon, delta and updates of Table 5 give its sigma to half a percent; a tight accountant would not."""
    column = published.TABLE_5[3]
    found = solved_noise(float(column.epsilon), published.DELTA, column.steps, 16384 / 50000)
    assert found == pytest.approx(column.noise_multiplier, rel=5e-3)
    assert abs(8.838 / 9.4 - 1.0) > 5e-2  # what `calibrate` gives at epsilon = 8


@pytest.mark.slow
def test_the_rows_without_a_printed_noise(reproduced, rows_of):
    """Row 4 has row 3's sigma and mu; at delta = 8e-7 and many updates mu is 1.44."""
    rows = rows_of("table-2-solved")
    for column in published.TABLE_5:
        noise = rows[f"row 4, ε = {column.epsilon[0]}, T = {column.steps:,}: σ"]
        assert noise.lower == pytest.approx(column.noise_multiplier, rel=1e-2)
    for where in ("rows 2 and 5", "row 6"):
        row = rows[f"{where}, ε = 8, T = 100,000: μ"]
        assert (row.verdict, round(row.lower, 2)) == (Agreement.DIFFERS, 1.44)
    assert any("neither σ nor batch size nor updates" in remark for remark in reproduced("table-2-solved").remarks)
