"""Numbers quoted in the text: the noise thresholds, the dichotomies they belong to, and what small separation costs.

Theorem 6.1 says: σ >= 1/sqrt(2 ln M), or the separation is at least (1 - 1/sqrt(4 pi ln M))/sqrt 8. It can be
checked, because the separation itself can be measured: at the threshold it must not be below the bound, and below the
threshold it is larger still. And it can be sharpened: for any separation one wants, `forced_noise` brackets the noise
that it really takes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from calipers.bracket import Bracket
from calipers.measure import Measurement
from calipers.papers.ertan2026 import published
from calipers.papers.ertan2026.settings import epoch, forced_noise, isolated, poisson, shuffle
from calipers.papers.items import ItemProgress, watched
from calipers.papers.sheets import Computed, Sheet
from calipers.run import Run
from calipers.theorems import separation as theorem

ROUNDS = (2, 4, 12, 48, 390, 1_000, 10_000, 100_000, 1_000_000)
EVERY_ROUND_UP_TO = 20_000
FORCED_ROUNDS = (48, 390)
"""CIFAR-10 in batches of 1024 and of 128."""
FORCED_SEPARATIONS = (0.1, 0.03, 0.01)


def thresholds(progress: ItemProgress) -> Computed:
    """The number of rounds and the noise quoted for ImageNet and LAION, and what such an epoch leaks."""
    table = Sheet()
    for quoted in watched(published.THRESHOLDS, progress):
        rounds, delta = quoted.records // published.QUOTED_BATCH_SIZE, 1.0 / quoted.records
        sigma, run = theorem.noise_threshold(rounds), epoch(rounds)
        table.add(
            dataset=quoted.name,
            records=quoted.records,
            rounds=rounds,
            sigma=sigma,
            theorem_6_1=theorem.shuffle_separation_lower(sigma, rounds),
            separation_isolated=isolated(run).separation(),
            separation_poisson=poisson(run).separation(),
            epsilon_shuffle=shuffle(run).epsilon(delta),
            epsilon_poisson=poisson(run).epsilon(delta),
        ).unlisted(quoted=quoted)
    return Computed([table])


def _margins() -> tuple[float, int, float]:
    """(smallest x'/bound over many M, the M where it is, largest level 1/sqrt(4 pi ln M))."""
    counts = [*range(2, EVERY_ROUND_UP_TO + 1), *(round(count) for count in np.geomspace(3e4, 1e10, 60))]
    ratios = []
    for count in counts:
        sigma = theorem.noise_threshold(count)
        ratios.append(theorem.tractable_point(sigma, count).separation / theorem.shuffle_separation_lower(sigma, count))
    least = int(np.argmin(ratios))
    return ratios[least], counts[least], 1.0 / math.sqrt(4.0 * math.pi * math.log(2.0))


def dichotomies(progress: ItemProgress) -> Computed:
    """Theorems 6.1 and 6.3 at the threshold, next to the separation that they bound."""
    table = Sheet()
    for rounds in watched(ROUNDS, progress):
        sigma, run = theorem.noise_threshold(rounds), epoch(rounds)
        table.add(
            rounds=rounds,
            sigma=sigma,
            theorem_6_1=theorem.shuffle_separation_lower(sigma, rounds),
            theorem_6_3=theorem.poisson_separation_lower(sigma, rounds),
            x_prime=theorem.tractable_point(sigma, rounds).separation,
            kappa_sub=theorem.max_test_separation(sigma, rounds),
            isolated=isolated(run).separation(),
            poisson=poisson(run).separation(),
            worst=shuffle(run).separation(),
        )
    margin, where, level = _margins()
    table.unlisted(margin=margin, where=where, level=level, checked=EVERY_ROUND_UP_TO)
    return Computed([table])


def _separation(of: Callable[[Run], Measurement], rounds: int) -> Callable[[float], Bracket]:
    return lambda noise_multiplier: of(epoch(rounds, noise_multiplier)).separation()


def forced(progress: ItemProgress) -> Computed:
    """How much noise one epoch needs for a small separation, from both sides."""
    table = Sheet()
    for rounds, target in watched(itertools.product(FORCED_ROUNDS, FORCED_SEPARATIONS), progress):
        threshold = theorem.noise_threshold(rounds)
        drawn = forced_noise(_separation(poisson, rounds), target, 2.0 * threshold, 2.0)
        # Both samplers need about the same noise, and Poisson sampling is measured faster.
        allocated = forced_noise(_separation(isolated, rounds), target, 1.01 * drawn[1], 1.03)
        table.add(rounds=rounds, separation=target, threshold=threshold, isolated=allocated, poisson=drawn)
    return Computed([table])
