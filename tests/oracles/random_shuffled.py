"""Random shuffled runs of every kind: no bracket crosses, none lies above fixed batches, nothing is raised.

A *draw* is a way of running: noise 0.3 to 8, 2 to 100,000 records in batches of any size (one draw in ten: noise up to
20, up to 1e6 batches), records left over or not, last batches kept or dropped, one order or many, records added, zeroed
out or replaced, two phases at times. Of every draw some *runs* are measured, which differ in their number of epochs, 1
to 60 (or 1000), and in delta; the laws of an epoch are shared between them, so thousands of runs take two hours of a
core, not days. Draw `number` of a seed is the same whoever draws it, so many processes share the work::

    python tests/oracles/random_shuffled.py --first 0 --draws 150 --each 4 --seed 1 --log runs.jsonl

Single epochs are also compared with evaluations that share no code: of a zeroed-out record with a remainder and at most
300 batches with the dynamic program of `shuffled_quadrature`, of at most three records with all adaptive adversaries of
`shuffled_adversary`.

It prints what is wrong, and writes a line for every run: what was asked, what came out, seconds of the processor and
the largest memory of the process so far. It needs numpy and scipy only.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from calipers.measure import measure
from calipers.numerics.normal import gaussian_delta, gaussian_epsilon
from calipers.pld.allocation.shuffle_attack import ShuffleAttack
from calipers.pld.allocation.shuffled_epoch import ShuffledEpoch
from calipers.pld.composition.direction import BoundsWithTest
from calipers.pld.composition.one_sided import AttackProduct, ProofProduct
from calipers.run import Run
from oracles.shuffled_adversary import Shuffled, line
from oracles.shuffled_quadrature import divergence_by_quadrature

_KINDS = ("left over", "nothing left over", "kept", "once", "small share", "phases")
_SHARES = (0.35, 0.25, 0.15, 0.05, 0.1, 0.1)
_WIDE = 0.1
_MOST_BATCHES, _MOST_RECORDS = 300, 3
"""Single epochs that are evaluated anew: by dynamic programming, and by trying all adversaries."""
_ESTIMATED, _DENSITY = 2e-4, 8.0
"""To within so much of its value the dynamic program is an estimate, with so many sums."""


@dataclass(frozen=True)
class Draw:
    """A way of running, by the number of epochs: words, (lower, upper) at a question, and mu of fixed batches."""

    words: str
    epsilon: Callable[[int, float], tuple[float, float]]
    delta: Callable[[int, float], tuple[float, float]]
    fixed: Callable[[int], float]
    most_epochs: int = 60
    exact: Callable[[float], tuple[float, float]] | None = None
    """(least, most) that the divergence of one epoch at epsilon can be, by an evaluation that shares no code."""

    def wrong(self, epochs: int, delta: float) -> tuple[str | None, dict[str, object]]:
        """Why the brackets of one run are wrong, or None, and what they are."""
        lower, upper = self.epsilon(epochs, delta)
        mu = self.fixed(epochs)
        seen: dict[str, object] = {"epochs": epochs, "delta": delta, "epsilon": [lower, upper]}
        if not 0.0 <= lower <= upper <= gaussian_epsilon(mu, delta) * (1.0 + 1e-9) + 1e-12:
            return "epsilon", seen
        at = upper if math.isfinite(upper) and upper < 500.0 else 1.0
        low, high = self.delta(epochs, at)
        seen["profile"] = [at, low, high]
        if not 0.0 <= low <= high <= float(gaussian_delta(mu, at)) * (1.0 + 1e-9) + 1e-300:
            return "delta", seen
        # Both questions are answered from above: what is proven at epsilon may not be contradicted from below.
        if at == upper and low > delta:
            return "epsilon and delta contradict each other", seen
        if epochs == 1 and self.exact is not None:
            least, most = self.exact(at)
            seen["exact"] = [least, most]
            if not (low <= most and least <= high):
                return "an independent evaluation contradicts delta", seen
        return None, seen


def drawn(rng: np.random.Generator) -> Draw:
    """A random way of running."""
    kind, wide = str(rng.choice(_KINDS, p=_SHARES)), bool(rng.random() < _WIDE)
    sigma = float(np.exp(rng.uniform(math.log(0.3), math.log(20.0 if wide else 8.0))))
    adjacency = str(rng.choice(["zero-out", "substitute", "add-remove"], p=[0.55, 0.3, 0.15]))
    size = round(10 ** rng.uniform(0.2, 7.0 if wide else 5.0))
    batch = max(1, int(size ** rng.uniform(0.0, 1.0) / 2.0))
    if kind == "small share":
        return _small_share(sigma, size // batch, float(10 ** rng.uniform(-3.0, 0.0)), adjacency == "substitute")
    if kind == "nothing left over":
        size -= size % batch
    elif size % batch == 0 and batch > 1:
        size += int(rng.integers(1, batch))
    both = 2 <= size % batch < batch - 1 and kind != "phases"  # else adding or removing shows in the number of batches
    run = Run(
        sampler="shuffle",
        noise_multiplier=sigma,
        dataset_size=size,
        batch_size=batch,
        epochs=1,
        adjacency=adjacency if both or adjacency != "add-remove" else "zero-out",
        last_batch="keep" if kind == "kept" else "drop",
        reshuffle="once" if kind == "once" else "every-epoch",
    )
    draw = _public(kind, run, _second_phase(run, rng) if kind == "phases" else None)
    return replace(draw, most_epochs=1000 if wide else 60)


def _exactly(run: Run) -> Callable[[float], tuple[float, float]] | None:
    """Of one epoch, where that is quick."""
    size, batch = run.dataset_size or 0, int(run.batch_size or 1)
    batches, rest = divmod(size, batch)
    if run.adjacency == "add-remove" or (run.last_batch == "keep" and rest) or run.noise_multiplier < 0.4:
        return None
    if size <= _MOST_RECORDS and (batches < 3 or run.adjacency == "zero-out"):
        tiny = Shuffled(size, batch, batches, run.noise_multiplier, run.adjacency == "substitute", width=0.5)
        return lambda at: (max(tiny.divergence(math.exp(at), line(3), way) for way in (False, True)), 1.0)
    if run.adjacency == "zero-out" and rest and batches <= _MOST_BATCHES:
        sizes = run.noise_multiplier, batches

        def estimate(at: float) -> tuple[float, float]:
            share = batches * batch / size
            value = max(divergence_by_quadrature(*sizes, at, share, way, _DENSITY) for way in (False, True))
            return value * (1.0 - _ESTIMATED), value * (1.0 + _ESTIMATED)

        return estimate
    return None


def _second_phase(run: Run, rng: np.random.Generator) -> Run:
    """More epochs with other noise: shuffled again, in known batches, thrown into bins or sampled by Poisson."""
    sampler = str(rng.choice(["shuffle", "deterministic", "balls-and-bins", "poisson"]))
    noise = run.noise_multiplier * float(np.exp(rng.uniform(-0.5, 0.5)))
    noise = max(noise, 0.3)
    steps = run.steps_per_epoch if sampler == "poisson" else None
    return run.replace(sampler=sampler, noise_multiplier=noise, epochs=None if steps else 1, steps=steps)


def _public(kind: str, run: Run, second: Run | None) -> Draw:
    """Through `measure`, as people ask."""

    def measured(epochs: int):  # type: ignore[no-untyped-def]
        first = run.replace(epochs=epochs)
        return measure(first if second is None else [first, second])

    def epsilon(epochs: int, delta: float) -> tuple[float, float]:
        found = measured(epochs).epsilon(delta)
        return found.lower, found.upper

    def delta(epochs: int, at: float) -> tuple[float, float]:
        found = measured(epochs).delta(at)
        return found.lower, found.upper

    # Added or removed, a record moves two batches that are known: another's place, and the last one where it is kept.
    double = {"zero-out": 1.0, "substitute": 2.0, "add-remove": math.sqrt(5.0)}[run.adjacency]
    more = 0.0
    if second is not None:
        releases = second.steps if second.sampler == "poisson" else 1
        more = (releases or 1) * (double / second.noise_multiplier) ** 2
    return Draw(
        f"{kind}: {run}" + ("" if second is None else f" then {second}"),
        epsilon,
        delta,
        lambda epochs: math.sqrt(epochs * (double / run.noise_multiplier) ** 2 + more),
        exact=_exactly(run) if second is None else None,
    )


def _small_share(sigma: float, rounds: int, share: float, replaced: bool) -> Draw:
    """Records of which an epoch keeps a small share only, which no choice of N and B gives: the laws themselves."""
    epoch = ShuffledEpoch(sigma, rounds, share, replaced)
    attack = ShuffleAttack(sigma, rounds, share)  # zeroing out is a way of replacing: it attacks both

    def both(lower: float, upper: float) -> tuple[float, float]:
        return BoundsWithTest(lower, upper, 0.0, False).lower, upper

    def epsilon(epochs: int, delta: float) -> tuple[float, float]:
        known = gaussian_epsilon(math.sqrt(epochs) * epoch.shift, delta) * (1.0 + 1e-10)
        upper = epoch.epsilon(delta) if epochs == 1 else ProofProduct([(epoch, epochs)]).epsilon(delta)
        lower = attack.best_epsilon(delta)[0] if epochs == 1 else AttackProduct([(attack, epochs)]).epsilon(delta).value
        return both(lower, min(upper, known))

    def delta(epochs: int, at: float) -> tuple[float, float]:
        known = float(gaussian_delta(math.sqrt(epochs) * epoch.shift, at)) * (1.0 + 1e-10)
        upper = epoch.delta(at) if epochs == 1 else ProofProduct([(epoch, epochs)]).delta(at)
        lower = attack.best_test(at).delta if epochs == 1 else AttackProduct([(attack, epochs)]).delta(at).value
        return both(lower, min(upper, known))

    return Draw(f"small share: {epoch}", epsilon, delta, lambda epochs: math.sqrt(epochs) * epoch.shift)


def asked(numbers: range, each: int, seed: int) -> Iterator[dict[str, object]]:
    """A record for every run; the key `wrong` is None where all is well."""
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        draw, decade = drawn(rng), rng.uniform(-9.5, -2.5)
        for question in range(each):
            epochs = 1 if question == 0 else int(draw.most_epochs ** rng.uniform(0.0, 1.0))
            delta = float(10 ** (decade + rng.uniform(-0.5, 0.5)))
            before = time.process_time()
            try:
                wrong, seen = draw.wrong(epochs, delta)
            except Exception as error:  # whatever is raised is what we look for
                wrong, seen = f"{type(error).__name__}: {error}", {"epochs": epochs, "delta": delta}
            seconds = time.process_time() - before
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
            yield {"draw": number, "run": draw.words, "wrong": wrong, **seen, "seconds": seconds, "megabytes": memory}


def main() -> int:
    """Ask many, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw, to share a seed's draws out")
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    runs, bad = 0, 0
    with options.log.open("w") as log:
        for seen in asked(range(options.first, options.first + options.draws), options.each, options.seed):
            runs += 1
            print(json.dumps(seen), file=log, flush=True)
            if seen["wrong"] is not None:
                bad += 1
                print(json.dumps(seen), flush=True)
    print(f"{runs} runs, {bad} of them wrong")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
