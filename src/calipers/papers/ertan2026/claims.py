"""Numbers quoted in the text: the noise thresholds, the dichotomies they belong to, and what small separation costs.

Theorem 6.1 says: σ >= 1/sqrt(2 ln M), or the separation is at least (1 - 1/sqrt(4 pi ln M))/sqrt 8. It can be
checked, because the separation itself can be measured: at the threshold it must not be below the bound, and below the
threshold it is larger still. And it can be sharpened: for any separation one wants, `forced_noise` brackets the noise
that it really takes.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from calipers.bracket import Bracket
from calipers.papers.ertan2026 import drawing, published
from calipers.papers.ertan2026.settings import epoch, forced_noise, leaks
from calipers.papers.items import Outcome, Picture, Progress, Row, Table, watched
from calipers.theorems.separation import (
    max_test_separation,
    noise_threshold,
    poisson_separation_lower,
    shuffle_separation_lower,
    tractable_point,
)

ROUNDS = (2, 4, 12, 48, 390, 1_000, 10_000, 100_000, 1_000_000)
EVERY_ROUND_UP_TO = 20_000
FORCED_ROUNDS = (48, 390)
"""CIFAR-10 in batches of 1024 and of 128."""
FORCED_SEPARATIONS = (0.1, 0.03, 0.01)


def thresholds(progress: Progress) -> Outcome:
    """The number of rounds and the noise quoted for ImageNet and LAION, and what such an epoch leaks."""
    rows, table = [], Table()
    for quoted in watched(published.THRESHOLDS, progress):
        rounds, delta = quoted.records // published.QUOTED_BATCH_SIZE, 1.0 / quoted.records
        sigma, found = noise_threshold(rounds), leaks(epoch(rounds))
        bound = shuffle_separation_lower(sigma, rounds)
        isolated, poisson = found.isolated.separation(), found.poisson.separation()
        shuffle, epsilon = found.shuffle.epsilon(delta), found.poisson.epsilon(delta)
        rows += [
            Row.of(f"{quoted.name}: M", quoted.rounds, rounds, "exact check", "batches of 256"),
            Row.of(f"{quoted.name}: σ", quoted.noise, sigma, "closed form"),
            Row.of(f"{quoted.name}: κ of Theorem 6.1", None, bound, "closed form"),
            Row.of(f"{quoted.name}: separation, isolated", None, isolated),
            Row.of(f"{quoted.name}: separation, Poisson", None, poisson),
            Row.of(f"{quoted.name}: ε(1/N), shuffling, worst case", None, shuffle),
            Row.of(f"{quoted.name}: ε(1/N), Poisson", None, epsilon),
        ]
        table.add(
            dataset=quoted.name,
            records=quoted.records,
            rounds=rounds,
            sigma=sigma,
            theorem_6_1=bound,
            separation_isolated=isolated,
            separation_poisson=poisson,
            epsilon_shuffle=shuffle,
            epsilon_poisson=epsilon,
        )
    return Outcome(rows, data=(table.data,))


def _margins() -> tuple[float, int, float]:
    """(smallest x'/bound over many M, the M where it is, largest level 1/sqrt(4 pi ln M))."""
    counts = [*range(2, EVERY_ROUND_UP_TO + 1), *(round(count) for count in np.geomspace(3e4, 1e10, 60))]
    ratios = []
    for count in counts:
        sigma = noise_threshold(count)
        ratios.append(tractable_point(sigma, count).separation / shuffle_separation_lower(sigma, count))
    least = int(np.argmin(ratios))
    return ratios[least], counts[least], 1.0 / math.sqrt(4.0 * math.pi * math.log(2.0))


def dichotomies(progress: Progress) -> Outcome:
    """Theorems 6.1 and 6.3 at the threshold, beside the separation that they bound."""
    rows, table = [], Table()
    for rounds in watched(ROUNDS, progress):
        sigma, found = noise_threshold(rounds), leaks(epoch(rounds))
        bounds = shuffle_separation_lower(sigma, rounds), poisson_separation_lower(sigma, rounds)
        isolated, poisson = found.isolated.separation(), found.poisson.separation()
        worst = found.shuffle.separation()
        rows += [
            Row.of(f"M = {rounds:,}: κ, isolated", f">= {bounds[0]:.4f}", isolated),
            Row.of(f"M = {rounds:,}: κ, Poisson", f">= {bounds[1]:.4f}", poisson),
            Row.of(f"M = {rounds:,}: κ, shuffling in the worst case", None, worst),
        ]
        table.add(
            rounds=rounds,
            sigma=sigma,
            theorem_6_1=bounds[0],
            theorem_6_3=bounds[1],
            x_prime=tractable_point(sigma, rounds).separation,
            kappa_sub=max_test_separation(sigma, rounds),
            isolated=isolated,
            poisson=poisson,
            worst=worst,
        )
    margin, where, level = _margins()
    checked = f"every M up to {EVERY_ROUND_UP_TO:,} and 60 up to 1e10; least at M = {where:.0e}; it tends to 1"
    rows += [
        Row.of("x'/(bound of Theorem 6.1), least", ">= 1", margin, "estimate", checked),
        Row.of("1/√(4π ln M), largest for M ≥ 2", published.PROOF_LARGEST_LEVEL, level, "closed form"),
    ]

    return Outcome(rows, data=(table.data,), picture=Picture.on_axes((7.6, 4.8), drawing.draw_dichotomies, table))


def _separation(name: str, rounds: int, noise_multiplier: float) -> Bracket:
    found: Bracket = getattr(leaks(epoch(rounds, noise_multiplier)), name).separation()
    return found


def forced(progress: Progress) -> Outcome:
    """How much noise one epoch needs for a small separation, from both sides."""
    rows, table = [], Table()
    for rounds, target in watched(itertools.product(FORCED_ROUNDS, FORCED_SEPARATIONS), progress):
        threshold = noise_threshold(rounds)
        poisson = forced_noise(partial(_separation, "poisson", rounds), target, 2.0 * threshold, 2.0)
        # Both samplers need about the same noise, and Poisson sampling is measured faster.
        isolated = forced_noise(partial(_separation, "isolated", rounds), target, 1.01 * poisson[1], 1.03)
        for sampler, jaws in (("isolated", isolated), ("Poisson", poisson)):
            rows.append(Row.of(f"M = {rounds:,}, κ = {target:g}: σ, {sampler}", f">= {threshold:.4f}", jaws))
        table.add(rounds=rounds, separation=target, threshold=threshold, isolated=isolated, poisson=poisson)
    return Outcome(rows, data=(table.data,))
