"""Random runs of every sampler, unit and noise: no bracket crosses, no two answers contradict, nothing is raised.

Every run is drawn from its own seed, so that many processes share the work; the name picks what is drawn::

    python tests/oracles/random_runs.py --name unit --seed 1 --count 500 --log unit.jsonl

prints what is wrong and writes a line for every run: what was asked, what came out, seconds of the processor. The
package must be importable (an installed one, or PYTHONPATH=src); numpy and scipy are enough. tests/RANDOM.md lists the
names and says what is checked of each.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calipers.errors import InputError
from calipers.guarantee import Guarantee
from calipers.measure import CorrelatedNoise, JointRelease, Measurement, Selection, measure
from calipers.mechanisms import NoiseMatrix, Patterns, TreeNoise
from calipers.mechanisms.selection import Trials
from calipers.numerics.normal import gaussian_epsilon
from calipers.run import Run

ADJACENCIES = ("add-remove", "zero-out", "substitute")
LAWS = (("geometric", None), ("logarithmic", None), ("poisson", None), ("negative-binomial", -0.5))


@dataclass(frozen=True)
class Asked:
    """What is measured; what may not leak more than it; its largest mu if everything was known; its exact delta."""

    what: object
    quieter: object | None = None
    ceiling: float = math.inf
    attained: Callable[[float], float] | None = None

    def wrong(self, rng: np.random.Generator) -> tuple[str | None, dict[str, object]]:
        """Why the answers are wrong, or None, and what they are."""
        delta = float(10 ** rng.uniform(-8, -3))
        measured = measure(self.what)  # type: ignore[call-overload]
        found = measured.epsilon(delta)
        seen: dict[str, object] = {"delta": delta, "epsilon": [found.lower, found.upper]}
        if not 0.0 <= found.lower <= found.upper:
            return "epsilon crosses", seen
        known = math.inf if self.ceiling == math.inf else gaussian_epsilon(self.ceiling, delta)
        if found.upper > known * (1.0 + 1e-9) + 1e-12:
            return "above what known batches prove", seen
        problem, profile = _contradiction(measured, delta, found.lower, found.upper)
        seen |= profile
        if problem is None and self.quieter is not None:
            less = measure(self.quieter).epsilon(delta)  # type: ignore[call-overload]
            seen["quieter"] = [less.lower, less.upper]
            problem = "what leaks less shows more than is proven" if less.lower > found.upper else None
        if problem is None and self.attained is not None:
            at = float(rng.uniform(0.0, 4.0))
            attained, above = self.attained(at), measured.delta(at).upper
            seen["attained"] = [at, attained, above]
            problem = "an attack exceeds the upper bound" if attained > above * (1.0 + 1e-9) + 1e-12 else None
        return problem, seen


def _contradiction(
    measured: Measurement, delta: float, lower: float, upper: float
) -> tuple[str | None, dict[str, object]]:
    """Both questions are answered from both sides: no answer to one may deny an answer to the other."""
    seen: dict[str, object] = {}
    if math.isfinite(upper) and upper < 500.0:
        low = measured.delta(upper)
        seen["delta at the upper bound"] = [low.lower, low.upper]
        if low.lower > delta:
            return "epsilon is proven, and delta there is shown to be larger", seen
    if 0.0 < lower < 500.0:
        high = measured.delta(lower * (1.0 - 1e-12))
        seen["delta at the lower bound"] = [high.lower, high.upper]
        if high.upper < delta * (1.0 - 1e-9):
            return "epsilon is shown, and delta there is proven to be smaller", seen
    return None, seen


def sampled(kind: str, rng: np.random.Generator) -> Asked:
    """A run of the sampler, of any size that one would use."""
    size = int(10 ** rng.uniform(1.2, 5))
    batch = max(1, min(size // 2, int(size * 10 ** rng.uniform(-3, -0.5))))
    steps = int(10 ** rng.uniform(0, 5))
    adjacency = str(rng.choice(ADJACENCIES))
    keys: dict[str, object] = {
        "noise_multiplier": float(np.round(10 ** rng.uniform(-0.2, 1), 3)),
        "adjacency": adjacency,
        "dataset_size": size,
        "batch_size": batch,
        "steps": steps,
        "sampler": kind,
    }
    epochs = int(rng.integers(1, 20))
    if kind == "truncated-poisson":
        keys["max_batch_size"] = max(1, int(batch * rng.uniform(0.7, 2.0)))
    elif kind == "cyclic-poisson":
        keys["cycle"] = int(rng.integers(1, max(2, size // batch)))
    elif kind == "random-allocation":
        del keys["batch_size"]
        keys["participations"] = int(rng.integers(1, max(2, min(steps, 30))))
    elif kind in ("balls-and-bins", "shuffle"):
        del keys["steps"]
        keys |= {"epochs": epochs, "reshuffle": "once"}
        keys["adjacency"] = "substitute" if adjacency == "substitute" else "zero-out"
    run = Run(**keys)  # type: ignore[arg-type]
    times = run.participations if run.participations is not None else run.total_steps
    # A record moves the sum of a known batch by 2 at most, unless it is drawn with replacement and fills all places.
    ceiling = math.inf if kind == "with-replacement" else 2.0 * math.sqrt(times) / run.noise_multiplier
    return Asked(run, run.replace(noise_multiplier=1.25 * run.noise_multiplier), ceiling)


def unit(rng: np.random.Generator) -> Asked:
    """A unit of several records: by coins, in fixed batches, and by group privacy; never below one of fewer records."""
    kind = str(rng.choice(["poisson", "without-replacement", "deterministic", "shuffle", "balls-and-bins"]))
    if kind in ("poisson", "without-replacement"):
        run = sampled(kind, rng).what
        assert isinstance(run, Run)
    else:
        size = int(10 ** rng.uniform(1.5, 4))
        run = Run(
            dataset_size=size,
            batch_size=max(1, size // int(rng.integers(2, 40))),
            noise_multiplier=float(rng.uniform(0.8, 10.0)),
            epochs=int(rng.integers(1, 10)),
            sampler=kind,
            adjacency=str(rng.choice(["zero-out", "substitute"])),
        )
    records = min(run.dataset_size or 1, int(rng.integers(2, 6 if kind in ("shuffle", "balls-and-bins") else 30)))
    whole = run.replace(unit="user", records_per_unit=records)
    return Asked(whole, run.replace(unit="user", records_per_unit=records - 1))


def correlated(rng: np.random.Generator) -> Asked:
    """Banded, tree or dense noise, with known times or groups that take turns."""
    steps, bands = int(rng.integers(20, 400)), int(rng.integers(1, 6))
    cyclic, form = bool(rng.random() < 0.5), int(rng.integers(3))
    if form == 0 and not cyclic:
        matrix, bands = TreeNoise(steps), 1
    elif form == 1:
        steps = min(steps, 60)
        dense = np.tril(rng.uniform(0.2, 1.0, (steps, steps))) * (np.tri(steps) - np.tri(steps, k=-bands))
        matrix = NoiseMatrix.of(dense)
    else:
        matrix = NoiseMatrix.of_toeplitz(np.sort(rng.uniform(0.05, 1.0, bands))[::-1], steps)
    noise = float(rng.uniform(0.8, 8.0))
    rate = float(rng.uniform(0.005, 0.5)) if cyclic else None
    patterns = Patterns(int(rng.integers(bands if cyclic else 1, steps)))
    first = CorrelatedNoise(matrix, noise, patterns, rate, str(rng.choice(ADJACENCIES)))
    return Asked(first, first.replace(noise_multiplier=1.2 * noise))


def beside(rng: np.random.Generator) -> Asked:
    """A run that releases one to three noisy sums beside the gradient: never below the run alone."""
    run = Run(
        sample_rate=float(rng.uniform(0.005, 0.9)),
        steps=int(rng.integers(1, 200)),
        noise_multiplier=float(rng.uniform(0.7, 6.0)),
        adjacency=str(rng.choice(ADJACENCIES)),
    )
    noises = tuple(float(noise) for noise in rng.uniform(1.0, 30.0, int(rng.integers(1, 4))))
    known = math.sqrt(run.total_steps * sum(noise**-2 for noise in (run.noise_multiplier, *noises)))
    return Asked(JointRelease(run, noises), run, 2.0 * known)


def ordered_delta(mu: float, trials: Trials, epsilon: float) -> float:
    """delta of selecting by the likelihood ratio among Gaussians, from tests on a fine grid of thresholds."""
    z = np.linspace(-9.0, 12.0, 20_001)
    cdf = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2.0)))
    under_p, under_q = (1.0 - trials.missed(1.0 - one) for one in (cdf(z - mu), cdf(z)))
    # Of 20,000 cells the rounding of every one would count where it happens to be positive.
    rounding = 16.0 * 2.0**-53 * (1.0 + math.exp(epsilon))
    gain = np.diff(under_p) - math.exp(epsilon) * np.diff(under_q) - rounding
    return float(np.sum(np.maximum(gain, 0.0)))


def selection(rng: np.random.Generator) -> Asked:
    """The best of a random number of Gaussian trials, or of runs."""
    kind, shape = LAWS[int(rng.integers(4))]
    mean = float(np.exp(rng.uniform(0.05, 4.0)))
    if rng.random() < 0.2:
        run = Run(
            sample_rate=float(10 ** rng.uniform(-3, -0.5)),
            steps=int(10 ** rng.uniform(0, 3)),
            noise_multiplier=float(rng.uniform(0.8, 6.0)),
        )
        return Asked(Selection(run, mean, kind, shape))
    mu = float(rng.uniform(0.05, 2.0))
    what = Selection(Guarantee(mu=mu), mean, kind, shape)
    return Asked(what, attained=lambda at: ordered_delta(mu, Trials.of(kind, mean, shape), at))


def guarantee(rng: np.random.Generator) -> Asked:
    """A guarantee of any form, and a tighter one."""
    form, scale = int(rng.integers(4)), float(10 ** rng.uniform(-2, 1))
    delta = float(10 ** rng.uniform(-12, -0.5))

    def stated(scale: float) -> Guarantee:
        if form == 0:
            return Guarantee(epsilon=scale, delta=delta)
        return (Guarantee(mu=scale), Guarantee(rho=scale), Guarantee(epsilon=scale))[form - 1]

    return Asked(stated(1.1 * scale), stated(scale))


NAMES: dict[str, Callable[[np.random.Generator], Asked]] = {
    kind: (lambda rng, kind=kind: sampled(kind, rng))
    for kind in (
        "without-replacement",
        "with-replacement",
        "truncated-poisson",
        "cyclic-poisson",
        "random-allocation",
        "balls-and-bins",
        "shuffle",
    )
} | {
    "unit": unit,
    "correlated": correlated,
    "beside": beside,
    "selection": selection,
    "guarantee": guarantee,
}


def drawn(name: str, seed: int, number: int) -> tuple[Asked, np.random.Generator]:
    """Run `number` of a seed; descriptions that do not fit together are drawn again."""
    rng = np.random.default_rng((seed, number))
    while True:
        try:
            return NAMES[name](rng), rng
        except InputError:
            continue


def answered(name: str, seed: int, numbers: range) -> Iterator[dict[str, object]]:
    """A record for every run; the key `wrong` is None where all is well."""
    for number in numbers:
        asked, rng = drawn(name, seed, number)
        before = time.process_time()
        try:
            wrong, seen = asked.wrong(rng)
        except Exception as error:  # whatever is raised is what we look for
            wrong, seen = f"{type(error).__name__}: {error}", {}
        seconds = time.process_time() - before
        words = f"{asked.what.stated.words}" if isinstance(asked.what, CorrelatedNoise) else f"{asked.what}"
        yield {"name": name, "seed": seed, "number": number, "run": words, "wrong": wrong, **seen, "seconds": seconds}


def main() -> int:
    """Ask many, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", choices=NAMES, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run, to share a seed's runs out")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    runs, bad, slowest = 0, 0, 0.0
    with options.log.open("w") as log:
        for seen in answered(options.name, options.seed, range(options.first, options.first + options.count)):
            runs += 1
            slowest = max(slowest, float(str(seen["seconds"])))
            print(json.dumps(seen), file=log, flush=True)
            if seen["wrong"] is not None:
                bad += 1
                print(json.dumps(seen), flush=True)
    print(f"{options.name}: {runs} runs, {bad} of them wrong, the slowest took {slowest:.1f} s of the processor")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
