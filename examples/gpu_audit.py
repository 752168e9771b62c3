"""Audits on a GPU: the built-in mechanism with 1,485,217 coordinates, and the installed Opacus.

    python examples/gpu_audit.py --device cuda --trials 10000

Prints one line per audit: what was asked, the lower bound on delta(0) at 95 % confidence, what the plain sum claims,
seconds.
"""

from __future__ import annotations

import argparse
import time

from calipers.adapters.torch_sums import TorchSums
from calipers.auditing.audit import audit
from calipers.auditing.builtin import NoisySums
from calipers.auditing.distinguishers import Distinguisher, LikelihoodRatio, ScoreFunction
from calipers.auditing.targets import Target
from calipers.measure import measure
from calipers.run import Run


def shown(what: str, target: Target, distinguisher: Distinguisher, trials: int, run: Run) -> None:
    """Audit once and print the line."""
    claim = measure(run.replace(normalization="none")).claim.delta(0.0)
    began = time.perf_counter()
    result = audit(target, distinguisher, trials=trials, seed=0, epsilons=(0.0,))
    seconds = time.perf_counter() - began
    bound = result.delta[0].value
    print(f"{what}: delta(0) >= {bound:.4f}, claim {claim:.4f}, {seconds:.1f} s for 2 x {trials} runs", flush=True)


def main() -> None:
    """Run all audits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=1_485_217)
    options = parser.parse_args()
    for normalization in ("expected", "floor", "realized", "none"):
        # With 3 others and q = 1/2 the floor jumps from 1 to 2.
        size, rate = (4, 0.5) if normalization == "floor" else (5, 0.7 if normalization == "realized" else 0.05)
        run = Run(
            dataset_size=size,
            sample_rate=rate,
            steps=1,
            noise_multiplier=10,
            normalization=normalization,
            dimension=options.dimension,
        )
        sums = NoisySums.of_run(run)
        target = TorchSums(sums, options.device)
        shown(
            f"{normalization}, N={size - 1}, q={rate:g}, n={options.dimension}",
            target,
            LikelihoodRatio(sums),
            options.trials,
            run,
        )
    try:
        from calipers.adapters.opacus_target import OpacusTarget

        for reduction in ("mean", "sum"):
            opacus = OpacusTarget(loss_reduction=reduction, device=options.device)
            described = Run(dataset_size=4, sample_rate=0.5, steps=1, noise_multiplier=10, dimension=26_010)
            score = ScoreFunction(opacus.scores)
            shown(f"Opacus, loss_reduction={reduction!r}", opacus, score, options.trials, described)
    except ImportError as error:
        print(f"Opacus was not audited: {error}")


if __name__ == "__main__":
    main()
