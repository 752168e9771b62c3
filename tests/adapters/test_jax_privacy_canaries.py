"""The same canaries' scores, judged by Calipers and by the auditor of the installed JAX-Privacy."""

from __future__ import annotations

import numpy as np
import pytest

from calipers.auditing.one_run import one_run_audit
from calipers.auditing.one_run_curve import one_run_curve_audit

auditing = pytest.importorskip("jax_privacy.auditing", reason="JAX-Privacy comes with the extra jax-privacy")
pytestmark = pytest.mark.jax_privacy

DELTA, CONFIDENCE = 1e-5, 0.95


@pytest.mark.parametrize("mu", [0.0, 1.0, 2.0])
def test_one_run_bounds_beside_those_of_jax_privacy(mu: float) -> None:
    """(epsilon, delta): the exact worst case rejects at least what the term in m delta does. f-DP: within 3 %."""
    rng = np.random.default_rng(3)
    included = rng.random(400) < 0.5
    scores = mu * included + rng.normal(size=400)
    theirs = auditing.CanaryScoreAuditor(scores[included], scores[~included])
    order = np.sort(scores)[::-1]
    threshold = auditing.Explicit((order[39] + order[40]) / 2.0)
    epsilon = theirs.epsilon_one_run(1 - CONFIDENCE, DELTA, one_sided=True, threshold_strategy=threshold)
    ours = one_run_audit(scores, included, guesses=[(40, 0)], delta=DELTA, confidence=CONFIDENCE).epsilon_lower
    assert epsilon - 1e-5 <= ours <= epsilon + 0.1
    whole = theirs.epsilon_one_run_fdp(1 - CONFIDENCE, DELTA, threshold_strategy=threshold)
    curve = one_run_curve_audit(scores, included, guesses=[(40, 0)], confidence=CONFIDENCE)
    assert 0.97 * whole <= curve.gaussian_epsilon(DELTA) <= 1.1 * whole + 1e-9
    assert (curve.gaussian_epsilon(DELTA) > ours) == (mu > 0.5)
