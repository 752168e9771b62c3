"""Really adding or removing a record of shuffled batches: exhaustive adaptive adversaries, simulation, closed forms.

The adversaries here are played on the loaders themselves, with and without the record, and share no code with the
bounds. Whoever sees a release only to within a cell sees less than the release, so their divergence, a finite sum of
normal probabilities, is at most the true one: it is compared with the upper bound without tolerance.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtr

import calipers as cp
from calipers.curves.gdp import gaussian_delta
from calipers.errors import UnsupportedError
from calipers.samplers import scheme_of
from calipers.scope import sums_text

SIGN = (-1.0, 1.0)


def _cells(sigma: float, reach: float, width: float) -> np.ndarray:
    """Edges of the cells in which a release is seen, the last ones open."""
    inner = np.arange(-reach - 9.0 * sigma, reach + 9.0 * sigma, width * sigma)
    return np.concatenate(([-np.inf], inner, [np.inf]))


def _arrangements(records: int, sizes: tuple[int, ...]):
    """Every way to fill the batches, as tuples of sets; all are equally likely under a uniform order."""

    def fill(left: frozenset[int], sizes: tuple[int, ...]):
        if not sizes:
            yield ()
            return
        for batch in itertools.combinations(sorted(left), sizes[0]):
            for rest in fill(left - set(batch), sizes[1:]):
                yield (batch, *rest)

    return list(fill(frozenset(range(records)), sizes))


def _gradients(records: int):
    """Gradients of the record (number 0) and of all others, up to the order of the others: it is exchangeable."""
    for own in SIGN:
        for ups in range(records):
            yield (own, *(1.0 for _ in range(ups)), *(-1.0 for _ in range(records - 1 - ups)))


def _all_gradients(records: int):
    return itertools.product(SIGN, repeat=records)


def _one_release(size: int, batch: int, sigma: float, k: float, without: int | None = None) -> float:
    """The largest sum of (p - k q)+ over cells, of one batch, over all gradients of +-1."""
    return _two_releases([((batch,), (batch if without is None else without,))], size, sigma, k)


def _two_releases(parts, size: int, sigma: float, k: float, width: float = 0.08) -> float:
    """The best adaptive adversary: gradients of the second release are chosen after the first was seen.

    `parts`: for every order that is drawn, the sizes of its batches with the record and without it. Either one order
    with up to two batches, or two orders (epochs) with one batch each.
    """
    best = 0.0
    edges = _cells(sigma, size + 1.0, width)

    def seen(sums):
        return np.diff(ndtr((edges[None, :] - np.asarray(sums)[:, None]) / sigma), axis=1)

    with_x, without_x = zip(*[(_arrangements(size, a), _arrangements(size - 1, b)) for a, b in parts], strict=True)
    joint = len(parts) == 1
    first_p, first_q = with_x[0], [tuple(tuple(j + 1 for j in b) for b in one) for one in without_x[0]]
    if joint and len(first_p[0]) == 1:
        for gradients in _gradients(size):
            p, q = (
                seen([sum(gradients[j] for j in one[0]) for one in arranged]).mean(axis=0)
                for arranged in (first_p, first_q)
            )
            best = max(best, float(np.maximum(p - k * q, 0.0).sum()))
        return best
    for first in _gradients(size):
        rows = []  # for every arrangement of the first release: its cells, and where the second one stands
        for arranged in (first_p, first_q):
            cells = seen([sum(first[j] for j in one[0]) for one in arranged])
            rows.append(cells / len(arranged))
        best = max(best, _second(rows, first, size, k, seen, joint, (first_p, first_q), (with_x, without_x)))
    return best


def _second(rows, first, size, k, seen, joint, arranged, drawn) -> float:
    total = np.zeros(rows[0].shape[1])
    tried = set()
    for second in _all_gradients(size):
        # Others with the same first gradient are alike, so only their numbers count.
        key = (second[0], *sorted(Counter(zip(first[1:], second[1:], strict=True)).items()))
        if key in tried:
            continue
        tried.add(key)
        values = []
        for side in (0, 1):
            if joint:
                sums = [sum(second[j] for j in one[1]) for one in arranged[side]]
                cells = rows[side].T @ seen(sums)
            else:
                orders = drawn[side][1]
                shift = 0 if side == 0 else 1
                fresh = seen([sum(second[j + shift] for j in one[0]) for one in orders]).mean(axis=0)
                cells = rows[side].sum(axis=0)[:, None] * fresh[None, :]
            values.append(cells)
        total = np.maximum(total, np.maximum(values[0] - k * values[1], 0.0).sum(axis=1))
    return float(total.sum())


def _run(size: int, batch: int, sigma: float, epochs: int = 1, **keys: object) -> cp.Run:
    keys = {"last_batch": "drop", "adjacency": "add-remove"} | keys
    return cp.Run(dataset_size=size, batch_size=batch, epochs=epochs, noise_multiplier=sigma, sampler="shuffle", **keys)


TINY = [
    # size, batch size, last batch, sizes of the batches with the record and without it
    (3, 2, "drop", [((2,), (2,))]),
    (5, 2, "drop", [((2, 2), (2, 2))]),
    (5, 3, "drop", [((3,), (3,))]),
    (4, 2, "keep", [((2, 2), (2, 1))]),
    (5, 3, "keep", [((3, 2), (3, 1))]),
]


@pytest.mark.parametrize(("size", "batch", "last", "parts"), TINY)
@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 0.5), (2.0, 0.5), (0.8, 2.0)])
def test_no_adversary_on_a_tiny_loader_is_above_the_bound_and_the_attack_reaches_it(
    size, batch, last, parts, sigma, epsilon
):
    """Both orders of the datasets; the attack is one of the adversaries, so the best of them reaches the bound."""
    measured = cp.measure(_run(size, batch, sigma, last_batch=last)).delta(epsilon)
    k = math.exp(epsilon)
    forward = _two_releases(parts, size, sigma, k)
    assert forward <= measured.upper
    assert forward >= measured.lower * (1.0 - 4e-3)  # cells of 0.08 sigma cost some thousandths


@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 0.5), (2.0, 0.7)])
def test_two_epochs_of_a_tiny_loader(sigma, epsilon):
    """Gradients of the second epoch are chosen after the first was seen."""
    measured = cp.measure(_run(3, 2, sigma, epochs=2)).delta(epsilon)
    played = _two_releases([((2,), (2,)), ((2,), (2,))], 3, sigma, math.exp(epsilon))
    assert played <= measured.upper
    assert played >= measured.lower * (1.0 - 4e-3)


def test_the_zeroed_out_number_is_exceeded_by_removing_the_record():
    """What was printed as add-remove once: N 5 against 4, B 2, sigma 2, delta(0.5)."""
    zeroed = cp.measure(_run(5, 2, 2.0, adjacency="zero-out")).delta(0.5)
    removed = _two_releases([((2, 2), (2, 2))], 5, 2.0, math.exp(0.5))
    assert zeroed.upper < 0.03 < 0.10 < removed


@pytest.mark.parametrize(
    ("keys", "bracket"),
    [
        ({}, (14.172, 14.177)),
        ({"noise_multiplier": 2.0}, (2.7603, 2.7616)),
        ({"noise_multiplier": 5.0}, (0.76727, 0.76781)),
        ({"last_batch": "keep"}, (58.56, 58.591)),
        ({"last_batch": "keep", "noise_multiplier": 5.0}, (7.406, 7.4104)),
    ],
)
def test_values_that_others_computed(keys, bracket):
    """From a derivation and a composition of their own (sixty epochs of 60,000 records, delta 1e-5)."""
    described = {"dataset_size": 60_000, "batch_size": 256, "epochs": 60, "noise_multiplier": 1.1, "last_batch": "drop"}
    found = cp.measure(cp.Run(**(described | keys), sampler="shuffle")).epsilon(1e-5)
    assert found.lower == pytest.approx(bracket[0], rel=4e-4)
    assert found.upper == pytest.approx(bracket[1], rel=4e-4)


def test_zeroed_out_numbers_are_had_by_name():
    """What was printed as add-remove once, [11.4508, 11.6669], or narrower."""
    found = cp.measure(_run(60_000, 256, 1.1, epochs=60, adjacency="zero-out")).epsilon(1e-5)
    assert found.lower == pytest.approx(11.4508, abs=1e-3)
    assert 11.4508 <= found.upper <= 11.6669


@pytest.mark.slow
def test_a_simulated_loader_without_the_record_agrees_and_rejects_the_old_number():
    """N = 1,001 against 1,000, batches of 30, sigma 1.1: orders are shuffled, cut and summed record by record."""
    size, batch, sigma, epsilon, trials = 1001, 30, 1.1, 0.5, 30_000
    rounds, rng = size // batch, np.random.default_rng(20)
    shift = 2.0 / sigma

    def rejected(records: int, first: float) -> float:
        count = 0
        for _ in range(trials // 1000):
            gradients = np.full((1000, records), -1.0)
            gradients[:, 0] = first
            shuffled = rng.permuted(gradients, axis=1)[:, : rounds * batch].reshape(1000, rounds, batch)
            seen = (shuffled.sum(axis=2) + sigma * rng.standard_normal((1000, rounds)) + batch) / sigma
            ratio = 1.0 - rounds * batch / size + batch / size * np.exp(shift * seen - shift**2 / 2).sum(axis=1)
            count += int((np.log(ratio) > epsilon).sum())
        return count / trials

    with_record, without = rejected(size, 1.0), rejected(size - 1, -1.0)
    found = with_record - math.exp(epsilon) * without
    error = math.sqrt((with_record + math.exp(2 * epsilon) * without) / trials)
    bracket = cp.measure(_run(size, batch, sigma)).delta(epsilon)
    zeroed = cp.measure(_run(size, batch, sigma, adjacency="zero-out")).delta(epsilon)
    assert abs(found - bracket.upper) < 4 * error
    assert found - zeroed.upper > 10 * error


def test_one_order_for_all_epochs_is_one_epoch_with_a_longer_gradient():
    """With one batch per order the pair is a Poisson-subsampled Gaussian of shift 2 sqrt(E)/sigma."""
    size, batch, sigma, epochs, epsilon = 5, 3, 4.0, 4, 0.8
    found = cp.measure(_run(size, batch, sigma, epochs=epochs, reshuffle="once")).delta(epsilon)
    rate, shift, k = batch / size, 2.0 * math.sqrt(epochs) / sigma, math.exp(epsilon)
    # H_k((1-q) Q + q P, Q) = q H_k'(P, Q) with k' = (k - 1 + q)/q; the other order is no larger for k > 1.
    expected = rate * float(gaussian_delta(shift, math.log((k - 1.0 + rate) / rate)))
    assert found.lower <= expected <= found.upper
    assert found.upper == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("keys", "theorem"),
    [
        ({"last_batch": "drop"}, "Theorem 5.1 (remainder dropped)"),
        ({"last_batch": "keep"}, "Theorem 5.2 (last batch kept)"),
        ({"last_batch": "keep", "reshuffle": "once"}, "Theorem 5.3 (one order for all epochs)"),
    ],
)
def test_both_bounds_name_the_theorem_of_their_case(keys, theorem):
    """A dropped remainder, a kept last batch and one order each have their own."""
    found = cp.measure(_run(5, 3, 4.0, epochs=2, **keys)).delta(0.8)
    assert found.upper_evidence.source.endswith(theorem)
    assert found.lower_evidence.source.endswith(theorem)


def test_one_order_with_the_last_batch_kept():
    """Every epoch shows the size of the last batch again, so the Gaussian grows with sqrt(E) as well."""
    run = _run(60_000, 256, 20.0, epochs=16, reshuffle="once", last_batch="keep")
    assert run.adjacency == "add-remove"
    found = cp.measure(run).epsilon(1e-5)
    shown = cp.measure(cp.Run(sampler="deterministic", dataset_size=256, batch_size=256, epochs=16,
                              noise_multiplier=20.0, adjacency="zero-out")).epsilon(1e-5)  # fmt: skip
    assert found.lower >= shown.lower  # the last batch alone is that Gaussian
    assert found.upper <= 1.002 * found.lower


def test_less_noise_than_can_be_measured_is_refused_by_the_analysis_itself():
    """Whoever asks the sampler without `measure` gets no proof of a run with more noise."""
    run = _run(61, 10, 0.05)
    with pytest.raises(cp.InputError, match="sigma"):
        scheme_of(run).analyze(run)


@pytest.mark.parametrize(
    ("size", "batch", "last", "removing", "adding"),
    [
        (60, 10, "drop", False, True),
        (61, 10, "drop", True, True),
        (68, 10, "drop", True, True),
        (69, 10, "drop", True, False),
        (60, 10, "keep", True, False),
        (61, 10, "keep", False, True),
        (62, 10, "keep", True, True),
        (69, 10, "keep", True, True),
        (7, 1, "drop", False, False),
        (7, 1, "keep", False, False),
    ],
)
def test_a_neighbor_exists_where_the_number_of_batches_stays(size, batch, last, removing, adding):
    """Counted with a loader of PyTorch's rule; the default is add-remove only where both exist."""

    def batches(records: int) -> int:
        return math.ceil(records / batch) if last == "keep" else records // batch

    assert (batches(size - 1) == batches(size), batches(size + 1) == batches(size)) == (removing, adding)
    plain = cp.Run(
        dataset_size=size, batch_size=batch, epochs=2, noise_multiplier=1.0, sampler="shuffle", last_batch=last
    )
    assert plain.adjacency == ("add-remove" if removing and adding else "zero-out")
    named = plain.replace(adjacency="add-remove")
    if not removing and not adding:
        with pytest.raises(UnsupportedError, match=r"zero-out [0-9.]+ to [0-9.]+, substitute"):
            cp.measure(named)
        return
    text = str(cp.measure(named))
    if removing and adding:
        assert "adding or removing one record" in text
    elif removing:
        assert f"removing one record ({size} records against {size - 1}" in " ".join(text.split())
    else:
        assert f"adding one record ({size} records against {size + 1}" in " ".join(text.split())


def test_where_only_adding_is_possible_the_larger_dataset_counts():
    """60 records in batches of 10 against 61, of which one is dropped."""
    alone = cp.measure(_run(60, 10, 1.0)).epsilon(1e-5)
    larger = cp.measure(_run(61, 10, 1.0)).epsilon(1e-5)
    assert (alone.lower, alone.upper) == (larger.lower, larger.upper)


def test_the_smaller_neighbor_is_the_worse_one():
    """Participation M B / N falls with N."""
    assert cp.measure(_run(62, 10, 1.0)).epsilon(1e-5).upper < cp.measure(_run(61, 10, 1.0)).epsilon(1e-5).lower * 1.001


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "substitute"])
def test_a_run_that_ends_inside_an_epoch_lies_between_its_whole_epochs(adjacency):
    """A longer prefix of the same mechanism shows at least as much."""
    keys = {"dataset_size": 1001, "batch_size": 100, "noise_multiplier": 1.5, "sampler": "shuffle"}
    found = [
        cp.measure(cp.Run(**keys, steps=steps, adjacency=adjacency, last_batch="drop")).epsilon(1e-5)
        for steps in (20, 25, 30)
    ]
    assert found[0].lower <= found[1].upper
    assert found[1].lower <= found[2].upper
    assert found[0].upper < found[1].upper < found[2].upper


def test_one_batch_of_an_epoch_is_one_draw_without_replacement():
    """A run of a single step: B of N records, anew; the same pair that the other sampler has in closed form."""
    shuffled = cp.Run(dataset_size=1001, batch_size=100, steps=1, noise_multiplier=1.0, sampler="shuffle",
                      last_batch="drop", adjacency="add-remove")  # fmt: skip
    drawn = shuffled.replace(sampler="without-replacement", adjacency="add-remove")
    first, second = (cp.measure(run).epsilon(1e-6) for run in (shuffled, drawn))
    assert first.lower <= second.upper
    assert second.lower <= first.upper
    assert first.upper == pytest.approx(second.upper, rel=2e-3)


def test_steps_that_fit_only_a_kept_last_batch_are_asked_about():
    """Sixty epochs of a PyTorch loader with its defaults are 60 times ceil(N/B) steps."""
    keys = {"dataset_size": 60_000, "batch_size": 256, "noise_multiplier": 1.1, "sampler": "shuffle", "steps": 14_100}
    with pytest.raises(cp.InputError, match="say which"):
        cp.Run(**keys)
    assert cp.Run(**keys, last_batch="keep").total_epochs == 60


def test_a_kept_last_batch_divided_by_its_own_size_is_refused():
    """Its size tells one record more or fewer, and so does the scale of its noise."""
    run = _run(60_000, 256, 1.1, last_batch="keep", normalization="realized", dimension=100)
    with pytest.raises(UnsupportedError, match="rescales its noise"):
        cp.measure(run)
    assert cp.measure(run.replace(adjacency="zero-out")).epsilon(1e-5).upper < 5.0


class TestFixedOrder:
    """Batches in a fixed order, out of which a record is really removed."""

    def test_all_later_records_move_up(self):
        """Alternating gradients on the first records of the batches, summed record by record."""
        size, batch, sigma, epochs = 11, 3, 2.0, 2
        gradients = np.zeros(size)
        gradients[::batch] = [(-1.0) ** t for t in range(len(gradients[::batch]))]
        batches = size // batch

        def sums(records):
            return records[: batches * batch].reshape(batches, batch).sum(axis=1)

        moved = sums(gradients) - sums(gradients[1:])
        mu = math.sqrt(epochs * float(np.square(moved).sum())) / sigma
        found = cp.measure(cp.Run(dataset_size=size, batch_size=batch, epochs=epochs, noise_multiplier=sigma,
                                  sampler="deterministic", adjacency="add-remove", last_batch="drop"))  # fmt: skip
        assert found.delta(1.0).lower == pytest.approx(float(gaussian_delta(mu, 1.0)), rel=1e-9)
        assert found.delta(1.0).upper == pytest.approx(float(gaussian_delta(mu, 1.0)), rel=1e-9)

    def test_a_kept_last_batch_loses_one_record(self):
        """mu^2 = E (4 M + 1) / sigma^2."""
        found = cp.measure(cp.Run(dataset_size=11, batch_size=3, epochs=2, noise_multiplier=2.0,
                                  sampler="deterministic", adjacency="add-remove", last_batch="keep"))  # fmt: skip
        mu = math.sqrt(2 * (4 * 3 + 1)) / 2.0
        assert found.delta(1.0).upper == pytest.approx(float(gaussian_delta(mu, 1.0)), rel=1e-9)

    def test_nothing_named_is_zero_out(self):
        """And says so."""
        run = cp.Run(dataset_size=11, batch_size=3, epochs=2, noise_multiplier=2.0, sampler="deterministic")
        assert (run.adjacency, "adjacency" in run.assumed) == ("zero-out", True)


class TestUnits:
    """Several records of one user, removed from shuffled batches."""

    def test_an_exhaustive_removal_of_two_stays_below(self):
        """N 5 against 3, one batch of 3... two records removed at once; the chain must cover it."""
        size, batch, sigma, epsilon = 6, 4, 2.0, 0.8
        run = _run(size, batch, sigma, unit="user", records_per_unit=2)
        bracket = cp.measure(run).delta(epsilon)
        edges, k, best = _cells(sigma, size + 1.0, 0.05), math.exp(epsilon), 0.0

        def seen(arranged, gradients):
            sums = np.array([sum(gradients[j] for j in one) for one in arranged])
            return np.diff(ndtr((edges[None, :] - sums[:, None]) / sigma), axis=1).mean(axis=0)

        with_unit = list(itertools.combinations(range(size), batch))
        without = list(itertools.combinations(range(2, size), batch))
        for gradients in itertools.product(SIGN, repeat=size):
            p, q = seen(with_unit, gradients), seen(without, gradients)
            best = max(best, float(np.maximum(p - k * q, 0.0).sum()))
        assert bracket.lower <= best <= bracket.upper

    def test_a_chain_starts_from_the_smallest_dataset_that_still_has_one_of_the_records(self):
        """Removing the last of three records of 62 is removing one of 60, where participation is the largest."""
        run = _run(68, 10, 1.0, unit="user", records_per_unit=3)
        assert scheme_of(run).sizes_of_units(run) == (68, 66)
        last = _run(66, 10, 1.0)
        assert cp.measure(last).delta(0.5).lower > cp.measure(_run(68, 10, 1.0)).delta(0.5).upper

    @pytest.mark.parametrize("sampler", ["shuffle", "deterministic"])
    def test_the_pair_of_one_record_is_not_given_out_for_several(self, sampler):
        """Whoever asks the sampler without `measure` is refused."""
        run = _run(68, 10, 1.0, unit="user", records_per_unit=3)
        with pytest.raises(UnsupportedError):
            scheme_of(run.replace(sampler=sampler)).analyze(run.replace(sampler=sampler))

    def test_a_unit_that_does_not_fit_the_remainder_is_refused(self):
        """Removing three records of 62 in batches of 10 removes a batch; adding three does not."""
        run = _run(62, 10, 1.0, unit="user", records_per_unit=3)
        assert "62 records against 65" in " ".join(str(cp.measure(run)).split())
        with pytest.raises(UnsupportedError, match="changes the number of batches"):
            cp.measure(_run(68, 10, 1.0, unit="user", records_per_unit=9))


@pytest.mark.parametrize(
    ("size", "normalization", "moves"),
    [(1050, "floor", True), (1055, "floor", False), (1055, "expected", True), (1055, "constant", False)],
)
def test_a_divisor_that_moves_with_the_number_of_records_is_refused(size, normalization, moves):
    """Of 10 batches: floor(1050 / 10) = 105 and floor(1049 / 10) = 104; of 1054 to 1056 records all make 105."""
    run = cp.Run(
        dataset_size=size, batch_size=100, epochs=1, noise_multiplier=1.1, sampler="shuffle", last_batch="drop",
        normalization=normalization, dimension=10, adjacency="add-remove",
    )  # fmt: skip
    if moves:
        with pytest.raises(UnsupportedError, match="changes the scale of all noise"):
            scheme_of(run).analyze(run)
    else:
        scheme_of(run).analyze(run)


def test_a_divisor_that_happens_to_stay_is_no_public_constant():
    """floor(1055 / 10) = 105 of 1,054 to 1,056 records is luck; one batch size, or a size that stays, is none."""
    run = cp.Run(
        dataset_size=1055, batch_size=100, epochs=1, noise_multiplier=1.1, sampler="shuffle", last_batch="drop",
        normalization="floor", dimension=10, adjacency="add-remove",
    )  # fmt: skip
    stays = "floor(N / number of batches) = 105 is the same for 1,054, 1,055 and 1,056 records, so here the plain"
    public = "a public number that is the same for both datasets"
    assert stays in " ".join(cp.measure(run).notes)
    assert public not in " ".join(cp.measure(run).notes)
    assert sums_text(run) == "noisy sums divided by floor(N / number of batches) = 105, the same for both neighbors"
    assert sums_text(run.replace(dataset_size=1050)) == "noisy sums divided by floor(N / number of batches) = 105"
    for other in (run.replace(adjacency="zero-out"), run.replace(normalization="realized")):
        assert public in " ".join(cp.measure(other).notes)


def test_mu_is_as_narrow_as_epsilon_where_an_epoch_hides_nearly_all() -> None:
    """100 batches, ten epochs: rare large losses are no reason for an upper mu of 8."""
    run = cp.Run(
        dataset_size=1_001,
        batch_size=10,
        epochs=10,
        noise_multiplier=2.0,
        sampler="shuffle",
        last_batch="drop",
        adjacency="add-remove",
    )
    found = cp.measure(run).gdp().mu
    assert found.lower <= found.upper <= 1.001 * found.lower
