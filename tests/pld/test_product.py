"""Whole compositions from both sides, against closed forms, exact enumeration and contour integration.

Inequalities have no tolerance where the truth is known to many digits (mpmath, fractions). The contour oracle is
good to 1e-10, and that is all it is allowed.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
from pathlib import Path

import mpmath as mp
import numpy as np
import oracles
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from oracles import contour, enumeration
from oracles import pairs as oracle_pairs

from calipers.bracket import Side
from calipers.errors import InputError
from calipers.mechanisms.gaussian import poisson_gaussian
from calipers.pld.composition import convolve
from calipers.pld.composition import direction as direction_module
from calipers.pld.composition.product import BoundsWithTest, Product
from calipers.pld.core.gaussian_part import gaussian_mixture_part
from calipers.pld.core.pair import Pair

ORACLE = 1e-9
"""What the contour oracle may be off by in log delta."""


AS_DRAWN = (Phase.explicit, Phase.generate)
"""Failures are shown as drawn: shrinking would repeat compositions for minutes."""


def gaussian(mu: float) -> Pair:
    return Pair("gaussian", (gaussian_mixture_part([1.0], [mu], [1.0], [0.0]),), symmetric=True)


def poisson(q: float, sigma: float) -> Pair:
    return Pair("poisson", (gaussian_mixture_part([1.0 - q, q], [0.0, 1.0 / sigma], [1.0], [0.0]),))


def one_way(source: Pair, count: int, reverse: bool) -> Product:
    """The product in one direction only."""
    product = Product([(source, count)])
    product.directions = [d for d in product.directions if d.reverse == reverse]
    assert len(product.directions) == 1
    return product


def width(bounds: BoundsWithTest) -> float:
    return (bounds.upper - bounds.lower) / bounds.upper if bounds.upper > 0 else 0.0


# Gaussians: T of them are one with mu sqrt(T).


@pytest.mark.parametrize("steps", [1, 2, 10, 1000, 10**4, 10**6])
@pytest.mark.parametrize("total", [0.05, 1.0, 6.0])
def test_delta_of_composed_gaussians(steps: int, total: float) -> None:
    """lower <= exact <= upper at eps from 0 to delta < 1e-30, and the two about 1e-3 apart."""
    step = total / math.sqrt(steps)
    with mp.workdps(40):
        mu = mp.mpf(step) * mp.sqrt(steps)
    product = Product([(gaussian(step), steps)])
    for deviations in (None, 0.0, 2.0, 7.0, 12.0):
        eps = 0.0 if deviations is None else total * total / 2 + deviations * total
        bounds = product.delta(eps)
        assert bounds.lower <= enumeration.gaussian(mu, eps) <= bounds.upper, eps
        assert width(bounds) <= 1e-3, (eps, bounds)


@pytest.mark.parametrize("steps", [1, 2, 10, 1000, 10**4, 10**6])
@pytest.mark.parametrize("total", [0.05, 1.0, 6.0])
def test_epsilon_of_composed_gaussians(steps: int, total: float) -> None:
    """delta at the upper bound is at most delta, at the lower bound at least, and the bounds are 1e-3 apart."""
    step = total / math.sqrt(steps)
    with mp.workdps(40):
        mu = mp.mpf(step) * mp.sqrt(steps)
    product = Product([(gaussian(step), steps)])
    for delta in (0.1, 1e-5, 1e-15, 1e-32):
        bounds = product.epsilon(delta)
        assert enumeration.gaussian(mu, bounds.upper) <= delta
        assert bounds.lower == 0.0 or enumeration.gaussian(mu, bounds.lower) >= delta
        assert width(bounds) <= 1e-3


@pytest.mark.parametrize("mu", [40.0, 50.0])
def test_one_gaussian_that_protects_nothing(mu: float) -> None:
    """Q-masses underflow where P has all its mass; the upper bound must not lose them."""
    product = Product([(gaussian(mu), 1)])
    for eps in (100.0, 600.0, 1000.0, 1400.0):
        bounds = product.delta(eps)
        assert bounds.lower <= enumeration.gaussian(mu, eps) <= bounds.upper, eps
    bounds = product.epsilon(1e-5)
    assert bounds.lower <= enumeration.epsilon(lambda e: enumeration.gaussian(mu, e), 1e-5, 5000) <= bounds.upper


@pytest.mark.parametrize("steps", [1, 5])
def test_delta_near_the_smallest_float(steps: int) -> None:
    """epsilon at delta = 1e-280 is as good as anywhere else."""
    product = Product([(gaussian(10.0), steps)])
    with mp.workdps(40):
        mu = 10 * mp.sqrt(steps)
    bounds = product.epsilon(1e-280)
    assert enumeration.gaussian(mu, bounds.upper) <= mp.mpf(1e-280) <= enumeration.gaussian(mu, bounds.lower)
    assert width(bounds) <= 1e-3


# Poisson-subsampled Gaussians.

REFERENCE = json.loads((Path(oracles.__file__).parent / "reference.json").read_text())["entries"]


@pytest.mark.parametrize(
    "row", REFERENCE, ids=lambda r: f"{r['sample_rate']:g}-{r['noise_multiplier']}-{r['steps']}-{r['delta']:g}"
)
def test_reference_values(row: dict[str, float]) -> None:
    """The stored values of the oracle lie in the bracket: both directions together, then each for itself."""
    source, steps = poisson(row["sample_rate"], row["noise_multiplier"]), int(row["steps"])
    bounds = Product([(source, steps)]).epsilon(row["delta"])
    assert bounds.lower <= bounds.upper
    if row["epsilon"] is not None:  # the oracle has no value where it did not settle, or beyond 700
        assert bounds.lower <= row["epsilon"] * (1 + 1e-10)
        assert bounds.upper >= row["epsilon"] * (1 - 1e-10)
    if row in REFERENCE[:9]:  # the runs people publish
        assert width(bounds) <= 1e-3
    for name, reverse in (("remove", False), ("add", True)):
        if row[name] is not None:
            alone = one_way(source, steps, reverse).epsilon(row["delta"])
            assert alone.lower <= row[name] * (1 + 1e-10)
            assert alone.upper >= row[name] * (1 - 1e-10)


EXTREMES = [
    # (q, sigma, steps, delta)
    (0.01, 10.0, 100, 1e-18),
    (0.01, 100.0, 100, 1e-30),
    (0.01, 10.0, 10**6, 1e-15),
    (0.5, 1.0, 100, 1e-30),
    (0.5, 100.0, 10**6, 1e-18),
    (0.999, 1.0, 100, 1e-15),
    (0.999, 10.0, 100, 1e-30),
    (0.999, 100.0, 10**4, 1e-30),
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("q", "sigma", "steps", "delta"), EXTREMES)
def test_small_deltas_and_extreme_rates_in_each_direction(
    q: float, sigma: float, steps: int, delta: float, reverse: bool
) -> None:
    """The oracle's delta at the upper bound is at most delta, at the lower bound at least."""
    bounds = one_way(poisson(q, sigma), steps, reverse).epsilon(delta)
    pair = oracle_pairs.poisson_gaussian(q, sigma)
    direction = "QP" if reverse else "PQ"
    assert contour.log_delta(pair, steps, bounds.upper, direction) <= math.log(delta) + ORACLE
    assert contour.log_delta(pair, steps, bounds.lower, direction) >= math.log(delta) - ORACLE
    assert width(bounds) <= 2e-3


@pytest.mark.parametrize(("q", "sigma"), [(0.01, 1.0), (0.3, 2.0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_two_steps_by_quadrature(q: float, sigma: float, reverse: bool) -> None:
    """Two steps are one integral of the closed form of one; no tolerance."""
    eps = 0.01 if reverse else 0.03
    bounds = one_way(poisson(q, sigma), 2, reverse).delta(eps)
    assert bounds.lower <= enumeration.poisson_two_steps(q, sigma, eps, "QP" if reverse else "PQ") <= bounds.upper
    assert width(bounds) <= 1e-2


@pytest.mark.parametrize("eps", [0.0, 0.05, 1.0, 4.0])
def test_the_larger_direction_counts(eps: float) -> None:
    """delta and epsilon of the product bracket the maximum over the two orders of the pair."""
    q, sigma, steps = 0.05, 1.0, 60
    bounds = Product([(poisson(q, sigma), steps)]).delta(eps)
    truth = contour.delta(oracle_pairs.poisson_gaussian(q, sigma), steps, eps, "max")
    assert bounds.lower <= truth * (1 + ORACLE)
    assert truth * (1 - ORACLE) <= bounds.upper


# Different factors together.


def test_three_kinds_of_steps() -> None:
    """Gaussian x Gaussian x Poisson: the oracle adds log-moments; one factor takes two stages."""
    factors = [(gaussian(0.3), 4), (gaussian(0.02), 250), (poisson(0.01, 1.0), 4000)]
    truth = oracle_pairs.product(
        (oracle_pairs.gaussian(1 / 0.3), 4),
        (oracle_pairs.gaussian(1 / 0.02), 250),
        (oracle_pairs.poisson_gaussian(0.01, 1.0), 4000),
    )
    product = Product(factors)
    for delta in (1e-3, 1e-6, 1e-20):
        bounds = product.epsilon(delta)
        assert max(contour.log_delta(truth, 1, bounds.upper, d) for d in ("PQ", "QP")) <= math.log(delta) + ORACLE
        assert max(contour.log_delta(truth, 1, bounds.lower, d) for d in ("PQ", "QP")) >= math.log(delta) - ORACLE
        assert width(bounds) <= 1e-3


@pytest.mark.parametrize("two_stages", [False, True])
def test_one_stage_and_two_stages_agree_with_the_truth(monkeypatch: pytest.MonkeyPatch, two_stages: bool) -> None:
    """Whichever way a long composition is computed, the bracket holds the truth."""
    for module in (convolve, direction_module):
        monkeypatch.setattr(module, "TWO_STAGE_COUNT", 300 if two_stages else 10**9)
    monkeypatch.setattr(direction_module, "_LONGEST_SINGLE_STAGE", 1.0)
    taken: list[bool] = []
    in_blocks = convolve.LatticePlan.in_blocks

    def watched(plan: convolve.LatticePlan, count: int) -> bool:
        taken.append(in_blocks(plan, count))
        return taken[-1]

    monkeypatch.setattr(convolve.LatticePlan, "in_blocks", watched)
    for q, sigma, steps, delta in ((0.01, 1.0, 5000, 1e-6), (1e-3, 0.8, 20_000, 1e-10)):
        bounds = Product([(poisson(q, sigma), steps)]).epsilon(delta)
        pair = oracle_pairs.poisson_gaussian(q, sigma)
        assert contour.log_delta(pair, steps, bounds.upper, "max") <= math.log(delta) + ORACLE
        assert contour.log_delta(pair, steps, bounds.lower, "max") >= math.log(delta) - ORACLE
        assert width(bounds) <= 2e-3
    assert set(taken) == {two_stages}


# What every run must satisfy.

RUNS = st.tuples(
    st.sampled_from([0.003, 0.05, 0.4, 0.95]),
    st.sampled_from([0.4, 0.9, 2.0, 15.0]),
    st.sampled_from([1, 17, 500, 20_000]),
    st.sampled_from([1e-2, 1e-5, 1e-11]),
)


@settings(max_examples=30, phases=AS_DRAWN)
@given(RUNS)
def test_jaws_are_ordered_and_close(run: tuple[float, float, int, float]) -> None:
    q, sigma, steps, delta = run
    bounds = Product([(poisson(q, sigma), steps)]).epsilon(delta)
    assert 0.0 <= bounds.lower <= bounds.upper < math.inf
    assert bounds.upper - bounds.lower <= 2e-3 * bounds.upper + 2e-3 * delta


@settings(max_examples=15, phases=AS_DRAWN)
@given(RUNS, st.sampled_from(["noise", "rate", "steps", "delta"]))
def test_less_privacy_never_measures_as_more(run: tuple[float, float, int, float], change: str) -> None:
    """More noise, a smaller rate, fewer steps, a larger delta: the lower jaw stays below the other run's upper jaw."""
    q, sigma, steps, delta = run
    better = {
        "noise": (q, 1.02 * sigma, steps, delta),
        "rate": (0.98 * q, sigma, steps, delta),
        "steps": (q, sigma, max(1, int(0.97 * steps)), delta),
        "delta": (q, sigma, steps, 1.1 * delta),
    }[change]

    def bounds(q: float, sigma: float, steps: int, delta: float) -> BoundsWithTest:
        return Product([(poisson(q, sigma), steps)]).epsilon(delta)

    assert bounds(*better).lower <= bounds(*run).upper


def test_a_smaller_tolerance_gives_a_tighter_bracket() -> None:
    """Brackets of different tolerance overlap, and each is as narrow as asked for."""
    product = Product([(poisson(0.02, 1.0), 300)])
    found = [product.epsilon(1e-6, tolerance) for tolerance in (1e-2, 1e-3, 1e-4)]
    for bounds, tolerance in zip(found, (1e-2, 1e-3, 1e-4), strict=True):
        assert width(bounds) <= 1.05 * tolerance
    assert max(j.lower for j in found) <= min(j.upper for j in found)


# Refusals.


@pytest.mark.parametrize("factors", [[], [(gaussian(1.0), 0)], [(gaussian(1.0), -3)]])
def test_products_of_nothing_are_refused(factors: list[tuple[Pair, int]]) -> None:
    with pytest.raises(InputError):
        Product(factors)


@pytest.mark.parametrize("count", [1.5, math.nan, math.inf, True, "3"])
def test_counts_that_count_nothing_are_refused(count: object) -> None:
    with pytest.raises(InputError):
        Product([(gaussian(1.0), count)])  # type: ignore[list-item]


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan, "1e-5", True])
def test_deltas_outside_the_domain_are_refused(delta: object) -> None:
    with pytest.raises(InputError, match="delta"):
        Product([(gaussian(1.0), 2)]).epsilon(delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf, "1", True])
def test_epsilons_outside_the_domain_are_refused(eps: object) -> None:
    with pytest.raises(InputError, match="epsilon"):
        Product([(gaussian(1.0), 2)]).delta(eps)  # type: ignore[arg-type]


@pytest.mark.parametrize("tolerance", [0.0, -1e-3, math.nan, "1e-3"])
def test_tolerances_outside_the_domain_are_refused(tolerance: object) -> None:
    with pytest.raises(InputError, match="tolerance"):
        Product([(gaussian(1.0), 2)]).epsilon(1e-5, tolerance)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tolerance"):
        Product([(gaussian(1.0), 2)]).delta(1.0, tolerance)  # type: ignore[arg-type]


# Resources.


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of a process's memory")
def test_memory_of_a_run_with_little_noise() -> None:
    """sigma = 0.1, 1000 steps: log ratios of hundreds, and still below 300 MB for the whole process."""
    code = """
        from pathlib import Path
        from calipers.pld.core.gaussian_part import gaussian_mixture_part
        from calipers.pld.core.pair import Pair
        from calipers.pld.composition.product import Product
        pair = Pair("poisson", (gaussian_mixture_part([0.9, 0.1], [0.0, 10.0], [1.0], [0.0]),))
        jaws = Product([(pair, 1000)]).epsilon(1e-5)
        assert 0 < jaws.lower <= jaws.upper <= 1.002 * jaws.lower, jaws
        # Not getrusage: its ru_maxrss still holds the size of the process that started this one.
        print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300_000


@pytest.mark.parametrize(("q", "steps", "delta"), [(1e-4, 100, 1e-5), (1e-4, 1000, 1e-8), (1e-6, 10_000, 1e-12)])
def test_memory_of_runs_that_rarely_see_a_record(q: float, steps: int, delta: float) -> None:
    """Small steps and rare large ones: a lattice that resolves the former must not span the latter. 2 GB are enough."""
    code = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        from calipers.pld.core.gaussian_part import gaussian_mixture_part
        from calipers.pld.core.pair import Pair
        from calipers.pld.composition.product import Product
        pair = Pair("poisson", (gaussian_mixture_part([1.0 - {q}, {q}], [0.0, 1.0], [1.0], [0.0]),))
        jaws = Product([(pair, {steps})]).epsilon({delta})
        assert 0 <= jaws.lower <= jaws.upper < 1.0, jaws
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-400:]


@pytest.mark.parametrize("steps", [10**12, 10**13, 10**20])
def test_more_steps_than_can_be_charged_are_refused(steps: int) -> None:
    """In one sentence about the number of steps, not by an error from inside an array library."""
    with pytest.raises(InputError, match="composed steps"):
        Product([(poisson_gaussian(1e-6, 1.0), steps)])


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.03, 0.41, 40_000_000), (0.1, 0.5, 10_000_000)])
def test_where_nothing_is_hidden_after_millions_of_steps(q: float, sigma: float, steps: int) -> None:
    """The central limit of log L under P, by a sum over a fine grid; the bracket was [8e5, 9.9e8]."""
    z = np.linspace(-12.0, 12.0 + 1.0 / sigma, 400_001)
    ratio = np.log1p(q * np.expm1(z / sigma - 0.5 / sigma**2))
    p = np.exp(ratio - 0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    mean = float(np.sum(p * ratio))
    deviation = math.sqrt(float(np.sum(p * (ratio - mean) ** 2)))
    expected = steps * mean + 4.2649 * math.sqrt(steps) * deviation  # Phi(-4.2649) = 1e-5
    found = Product([(poisson_gaussian(q, sigma), steps)]).epsilon(1e-5)
    assert found.lower <= found.upper <= (1.0 + 2e-3) * found.lower
    assert found.lower <= (1.0 + 1e-5) * expected
    assert found.upper >= (1.0 - 1e-5) * expected


def test_delta_far_beyond_what_a_million_rare_steps_reach() -> None:
    """The tilt of shallow laws made deep ones prove no more than delta <= 1; one moment in closed form proves 1e-44."""
    rate, sigma, steps, order = 1e-6, 2.0, 1_000_000, 105
    logs = [
        math.lgamma(order + 1.0) - math.lgamma(k + 1.0) - math.lgamma(order - k + 1.0)
        + (order - k) * math.log1p(-rate) + k * math.log(rate) + k * (k - 1) / (2.0 * sigma**2)
        for k in range(order + 1)
    ]  # fmt: skip
    moment = steps * float(np.logaddexp.reduce(logs)) - (order - 1.0)
    assert moment < math.log(1e-44)
    found = Product([(poisson_gaussian(rate, sigma), steps)]).delta(1.0)
    assert 0.0 <= found.lower <= found.upper <= 1e-40


def test_cells_of_the_other_order_are_placed_for_the_mirrored_tilt():
    """L^t under Q is (1/L)^(1-t) under P: what the swapped direction asks for at t is built at 1 - t, and swapped."""
    asked = []

    def build(source, resolution, log_tail, tilt):
        asked.append(tilt)
        return source.upper(resolution, log_tail)

    pair = poisson_gaussian(0.1, 1.0)
    shelf = direction_module.PmfCache([(pair, 3)], build, Side.UPPER)
    (forward, times), (backward, again) = (shelf.pmfs(0.2, -40.0, 0.25, swapped)[0] for swapped in (False, True))
    assert asked == [0.25, 0.75]
    assert times == again == 3
    # Whoever has the record leaves more behind when it is there: at rate 1/10 the two orders differ.
    assert forward.delta(0.5) > 2 * backward.delta(0.5) == 2 * forward.reverse().delta(0.5)
