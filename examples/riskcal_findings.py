"""What the page on findings says of riskcal: its trade-off curve of ever finer PLDs, and what the same PLD proves.

    python examples/riskcal_findings.py

It needs riskcal 1.5.1 and dp-accounting 0.6.0, and nothing of Calipers.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from riskcal.analysis import get_beta_from_pld

FPR = 0.001


def main() -> None:
    """One line for each interval."""
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("riskcal", "dp-accounting")))
    for interval in (1e-3, 1e-4, 2e-5):
        one = from_gaussian_mechanism(
            1.0, sampling_prob=0.01, value_discretization_interval=interval, use_connect_dots=True
        )
        pld = one.self_compose(1000)
        epsilons = np.linspace(0.0, 5.0, 2001)
        implied = np.min(np.exp(epsilons) * FPR + np.array(pld.get_delta_for_epsilon(epsilons)))
        curve = 1.0 - float(np.asarray(get_beta_from_pld(pld, alpha=FPR)))
        print(
            f"interval {interval:g}: true positive rate at most {curve:.7f} by riskcal, {implied:.7f} by delta(epsilon)"
        )


if __name__ == "__main__":
    main()
