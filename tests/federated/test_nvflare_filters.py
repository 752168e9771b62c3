"""NVFlare's filters: SVTPrivacy's own code is what is measured, the others are refused for what they send."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from calipers.adapters.nvflare import read_filter, read_ledger
from calipers.auditing.audit import audit
from calipers.errors import InputError, UnsupportedError

pytest.importorskip("nvflare", reason="NVFlare comes with the extra of that name; run with `make test-federated`")
filters = pytest.importorskip("nvflare.app_common.filters")
dxo = pytest.importorskip("nvflare.apis.dxo")
shareable = pytest.importorskip("nvflare.apis.shareable")
fl_context = pytest.importorskip("nvflare.apis.fl_context")
pytestmark = pytest.mark.nvflare

DELTA = 1e-5


def sent(privacy_filter, **arrays):
    """What a filter of NVFlare makes of an update."""
    update = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, {name: np.array(value) for name, value in arrays.items()})
    return privacy_filter.process_dxo(update, shareable.Shareable(), fl_context.FLContext()).data


def closed_form(count: int, loss: float, delta: float) -> float:
    """epsilon(delta) of `count` Laplace mechanisms, each with this loss, by one Fourier power: an oracle of its own.

    The loss is max(-1, min(1, 1 - 2z)) * loss with z >= 0 exponentially distributed beyond the ends.
    """
    step, size = loss / 2000, 2**20
    inner = np.arange(-2000, 2001) * step
    # P(loss >= x) = 1 - exp((x / loss - 1) / 2 * loss) / 2 between the two atoms, of mass 1/2 and exp(-loss)/2.
    below = 0.5 * np.exp((inner - loss) / 2)
    mass = np.diff(below)
    pmf = np.zeros(size)
    pmf[np.arange(-1999, 2001) % size] = mass
    pmf[2000] += 0.5
    pmf[-2000] += 0.5 * math.exp(-loss)
    composed = np.maximum(np.fft.irfft(np.fft.rfft(pmf) ** count, size), 0.0)
    losses = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
    low, high = 0.0, count * loss
    for _ in range(60):
        middle = (low + high) / 2
        above = losses > middle
        excess = np.sum(composed[above] * -np.expm1(middle - losses[above])) - delta
        low, high = (middle, high) if excess > 0 else (low, middle)
    return high


def test_one_message_of_the_default_filter() -> None:
    """Stated are 10.1 for a thousand parameters: 0.1 for the selection, 0.1 for each of the hundred values."""
    svt = filters.SVTPrivacy(replace=False)
    found = read_filter(svt, parameters=1000, messages=1)
    values = closed_form(100, 0.1, DELTA)
    bracket = found.epsilon(DELTA)
    assert bracket.lower <= values * (1 + 1e-3)
    assert bracket.lower == pytest.approx(values, rel=1e-3)
    # The selection adds its 0.1 at most, and the filter's own statement is a bound too.
    assert values * (1 - 1e-3) <= bracket.upper <= values * (1 + 1e-3) + 0.1
    sent(svt, weights=np.ones(1000))
    assert svt.get_privacy_spent() == pytest.approx(10.1)
    assert found.delta(svt.get_privacy_spent() * (1 + 1e-9)).upper < 1e-12
    assert read_ledger(svt).epsilon(DELTA) == bracket


def test_messages_add_up_and_the_ledger_knows_what_was_sent() -> None:
    svt = filters.SVTPrivacy(replace=False, fraction=0.5, epsilon=0.2, epsilon_release=2.0)
    for size in (20, 20, 40):
        sent(svt, weights=np.ones(size))
    ledger = read_ledger(svt)
    assert svt.get_privacy_spent() == pytest.approx(3 * 2.2)
    fewer = read_filter(svt, parameters=20, messages=2).epsilon(DELTA)
    assert fewer.upper < ledger.epsilon(DELTA).upper <= svt.get_privacy_spent()


def test_with_replacement_one_value_is_all_that_is_certain() -> None:
    """The upper bound stays; a message holds at least one value, and the attack uses one."""
    apart, chosen = (read_filter(filters.SVTPrivacy(replace=one), parameters=1000, messages=1) for one in (False, True))
    assert chosen.epsilon(DELTA).upper == apart.epsilon(DELTA).upper
    assert 0.0999 < chosen.epsilon(DELTA).lower <= 0.1
    assert any("with replacement" in sentence for sentence in chosen.conditions)


def test_the_noise_is_that_of_the_filter() -> None:
    """All parameters are sent; the mean absolute noise of so many Laplace draws is known to 3 %."""
    gamma, release, size = 0.5, 7.0, 20_000
    svt = filters.SVTPrivacy(fraction=1.0, gamma=gamma, epsilon_release=release, replace=False)
    np.random.seed(2)
    noise = sent(svt, weights=np.full(size, 9.0))["weights"] - gamma
    assert np.mean(np.abs(noise)) == pytest.approx(2 * gamma * size / release, rel=0.03)


def survival(x: np.ndarray, scale: float) -> np.ndarray:
    """P(Laplace(scale) >= x)."""
    return np.where(x > 0, 0.5 * np.exp(-np.abs(x) / scale), 1 - 0.5 * np.exp(-np.abs(x) / scale))


def selections(values, upload, threshold, query, replace, passes=5, factor=2.0):
    """P(m passes, chosen set) for parameters with these absolute values (gamma = 1, tau = 0), integrated over rho."""
    rho = np.linspace(-30 / threshold, 30 / threshold, 4001)
    weight = 0.5 * threshold * np.exp(-threshold * np.abs(rho))
    weight /= weight.sum()
    accept = [survival(rho - value, factor * upload / query) for value in values]
    indices = range(len(values))
    subsets = [frozenset(one) for size in range(len(values) + 1) for one in itertools.combinations(indices, size)]
    state = {frozenset(): np.ones_like(rho)}
    found: dict[tuple[int, frozenset[int]], float] = {}
    for number in range(1, passes + 1):
        following: dict[frozenset[int], np.ndarray] = {}
        for before, chance in state.items():
            for after in (one for one in subsets if before <= one):
                moved = chance.copy()
                for index in indices:
                    if index not in before:
                        moved = moved * (accept[index] if index in after else 1 - accept[index])
                following[after] = following.get(after, 0.0) + moved
        for accepted in [one for one in following if len(one) >= upload]:
            chance = float(np.sum(weight * following.pop(accepted)))
            draws = itertools.product(accepted, repeat=upload) if replace else itertools.permutations(accepted, upload)
            listed = [frozenset(draw) for draw in draws]
            for chosen in listed:
                found[number, chosen] = found.get((number, chosen), 0.0) + chance / len(listed)
        state = following
    return found


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("threshold", "query"), [(0.5, 2.0), (2.0, 3.0), (0.1, 0.4)])
def test_selection_keeps_its_epsilon_where_more_are_accepted(replace, threshold, query) -> None:
    """All pairs of three parameters in {0, gamma}, two of which are sent: number of passes and chosen ones together.

    With an eighth of the query noise, which no proof covers, the ratio exceeds the bound.
    """

    def ratio(factor):
        tables = [
            selections(values, 2, threshold, query, replace, factor=factor)
            for values in itertools.product((0.0, 1.0), repeat=3)
        ]
        return max(
            math.log(one[key] / other[key]) for one in tables for other in tables for key in one if other[key] > 1e-12
        )

    assert ratio(2.0) <= threshold + query
    assert ratio(0.25) > threshold + query


def test_the_filter_selects_as_the_proof_says() -> None:
    """One of two parameters is sent, 2000 times; frequency of the larger one, to five deviations.

    With half the noise it would be chosen more often by more than that.
    """
    svt = filters.SVTPrivacy(
        fraction=0.5, epsilon=6.0, epsilon_threshold=4.0, gamma=1.0, tau=1.0, epsilon_release=1.0, replace=False
    )
    np.random.seed(5)
    trials = 2000
    seen = np.mean([sent(svt, weights=[0.0, 1.0])["weights"][1] != 0 for _ in range(trials)])

    def expected(factor):
        table = selections((-1.0, 0.0), 1, 4.0, 2.0, False, passes=60, factor=factor)
        return sum(chance for (_, chosen), chance in table.items() if 1 in chosen)

    deviation = 0.5 / math.sqrt(trials)
    assert abs(seen - expected(2.0)) < 5 * deviation
    assert abs(seen - expected(1.0)) > 5 * deviation


def test_epsilon_is_the_selections_alone() -> None:
    """The game against the filter: an update of +gamma everywhere against -gamma, `epsilon=0.1` taken as the guarantee.

    The certified bound of the same message stands.
    """
    svt = filters.SVTPrivacy(fraction=0.5, noise_var=0.5, gamma=1.0, replace=False)

    def message(present, rng):
        np.random.seed(rng.integers(2**32, dtype=np.uint32))
        values = sent(svt, weights=np.full(40, 1.0 if present else -1.0))["weights"]
        return float(np.sum(np.clip(values[values != 0], -1, 1)))

    found = audit(
        message,
        trials=300,
        seed=3,
        claim=lambda epsilon: 0.0 if epsilon >= 0.1 else 1.0,
        upper=read_filter(svt, parameters=40, messages=1),
        epsilons=(0.1,),
        confidence=0.99,
    )
    assert found.verdict is not None
    assert found.verdict.outcome.value == "falsified"
    assert found.verdict.delta_lower > 0.1
    assert found.as_described


def test_filters_without_noise_are_refused_for_what_they_send() -> None:
    """The same parameters as they are: whoever sees them sees the update, in every run."""
    update = [0.001, -0.02, 0.3, -4.0]
    percentile = filters.PercentilePrivacy(percentile=50, gamma=10.0)
    assert sent(percentile, weights=update)["weights"].tolist() == [0.0, 0.0, 0.3, -4.0]
    excluded = filters.ExcludeVars(exclude_vars=["secret"])
    assert sent(excluded, weights=update, secret=[1.0])["weights"].tolist() == update
    for one in (percentile, excluded):
        with pytest.raises(UnsupportedError, match="the only one of its filters that adds noise"):
            read_filter(one, parameters=4, messages=1)


def test_scalars_are_sent_as_they_are_and_seen() -> None:
    svt = filters.SVTPrivacy()
    out = sent(svt, weights=np.ones(100), temperature=np.float64(36.6))
    assert out["temperature"] == 36.6
    with pytest.raises(UnsupportedError, match="scalar parameter"):
        read_ledger(svt)
    assert any("sends scalars as they are" in one for one in read_filter(svt, parameters=9, messages=1).conditions)


def test_mistakes_are_refused() -> None:
    with pytest.raises(InputError, match="no message yet"):
        read_ledger(filters.SVTPrivacy())
    for settings, match in (
        ({"fraction": 0.0}, "fraction=0"),
        ({"fraction": 1.5}, "fraction"),
        ({"gamma": 0.0}, "gamma"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"noise_var": 0.0}, "noise_var must be > 0"),
    ):
        with pytest.raises(InputError, match=match):
            read_filter(filters.SVTPrivacy(**settings), parameters=10, messages=1)
