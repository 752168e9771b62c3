"""How fast the game of an audit is played: built-in targets beside the loop one would write first.

The mechanism is one round of Poisson batches, N = 5 others, the noisy sum divided by N q, in 20,000 dimensions,
scored by the exact likelihood ratio. The plain loop draws the batch, the noise vector and the score run by run, with
numpy alone.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

DIMENSION, OTHERS, RATE, NOISE = 20_000, 5, 0.5, 10.0


def plain_loop(trials: int) -> None:
    """Both hypotheses, one run after the other; the score is the likelihood ratio, mixed over the batches' sizes."""
    rng = np.random.default_rng(0)
    sizes = np.arange(OTHERS + 1)
    choose = np.cumprod([1.0, *((OTHERS - k) / (k + 1) for k in range(OTHERS))])
    log_size = np.log(choose * RATE**sizes * (1 - RATE) ** (OTHERS - sizes))
    for present in (False, True):
        divisor = (OTHERS + present) * RATE
        for _ in range(trials):
            total = -float((rng.random(OTHERS) < RATE).sum()) + (present and rng.random() < RATE)
            output = rng.normal(scale=NOISE, size=DIMENSION)
            output[0] += total
            output /= divisor
            # Not output @ output: for one vector, starting the threads of a BLAS costs more than the product.
            squared = float(np.square(output).sum())
            logs = []
            for other, bits in ((OTHERS * RATE, (0.0,)), ((OTHERS + 1) * RATE, (0.0, 1.0))):
                square = other**2 * squared
                means = np.add.outer(-sizes.astype(float), bits)
                exponent = (2 * other * output[0] * means - means**2 - square) / (2 * NOISE**2)
                exponent += log_size[:, None] + DIMENSION * np.log(other) - np.log(len(bits))
                logs.append(np.logaddexp.reduce(exponent.ravel()))
            _ = logs[1] - logs[0]


def built_in(vectors: bool) -> Callable[[int], None]:
    """The same game by `play`."""
    from calipers.auditing.builtin import NoisySums
    from calipers.auditing.distinguishers import LikelihoodRatio
    from calipers.auditing.game import play

    target = NoisySums(
        others=OTHERS,
        sample_rate=RATE,
        noise_multiplier=NOISE,
        dimension=DIMENSION,
        normalization="expected",
        gradient=-1,
        vectors=vectors,
    )

    def game(trials: int) -> None:
        play(target, LikelihoodRatio(target), trials=trials, seed=0)

    return game


def rate(call: Callable[[int], None], trials: int, repeats: int) -> float:
    """Trials (runs of both hypotheses) per CPU second, the best of a few calls."""
    best = 0.0
    for _ in range(repeats):
        began = time.process_time()
        call(trials)
        best = max(best, trials / (time.process_time() - began))
    return best


def peak(call: Callable[[int], None], trials: int) -> float:
    """MiB allocated at the peak of one call."""
    tracemalloc.start()
    call(trials)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 2**20


def compare(console: Console, repeats: int) -> None:
    """One table: trials per second, and the peak of memory at two lengths of the game."""
    table = Table(title=f"Auditing: trials per second, n={DIMENSION:,}, N={OTHERS}", title_justify="left")
    table.add_column("game")
    for heading in ("trials/s", "x plain loop", "peak, 400 trials", "peak, 4,000 trials"):
        table.add_column(heading, justify="right")
    plain = rate(plain_loop, 400, repeats)
    table.add_row("plain numpy loop", f"{plain:,.0f}", "1.0", "-", "-")
    for label, call, trials in (
        ("built-in, full vectors", built_in(True), 800),
        ("built-in, sufficient statistic", built_in(False), 20_000),
    ):
        call(10)
        found = rate(call, trials, repeats)
        peaks = (f"{peak(call, size):.1f} MiB" for size in (400, 4000))
        table.add_row(label, f"{found:,.0f}", f"{found / plain:,.1f}", *peaks)
    console.print(table)
