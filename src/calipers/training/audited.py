"""A training that ends with three numbers: certified above, certified for the adversary below, observed in this run.

    audited = train_audited(plan, model, records, labels, canaries=2000, delta=1e-5)
    print(audited.sentence())

The plan's sampler draws from the records and the canaries (`calipers.training.canaries`): its dataset_size is their
number together. The upper and the lower number are the bracket of the run that was executed. The third is what one
attack showed of this one training, with its confidence: it is at most the truth with that confidence, never a proof of
privacy, and ordinarily far below the bracket, because one run has one look at every canary. The same guesses are held
against whole profiles by `curve()` (`calipers.auditing.one_run_curve`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from calipers.auditing.one_run_curve import CurveBound, one_run_curve_audit
from calipers.auditing.one_run_game import CanaryScores, audit_one_run, default_guesses
from calipers.auditing.pairs import ThreeNumbers, audit_pairs
from calipers.domains import PROBABILITY
from calipers.errors import InputError
from calipers.measure import measure
from calipers.numerics.decimals import floor_digits
from calipers.training.canaries import Canaries, CanaryPairs
from calipers.training.handling import Handling, HowToTrain, TrainingOptions
from calipers.training.loop import Trained, train
from calipers.training.plan import Plan
from calipers.training.torch_library import as_used, chosen_device, torch_module


@dataclass(frozen=True)
class Audited(ThreeNumbers):
    """A training, the bracket of its run, and what its canaries showed."""

    trained: Trained
    canaries: CanaryScores

    def in_full(self) -> str:
        """The three numbers, and what the same guesses say of whole profiles (f-DP)."""
        found = self.curve()
        if found.mu_lower <= 0.0:
            return f"{self.sentence()} Held against whole Gaussian profiles, the guesses rule out none."
        named = f"whose epsilon at this delta is {floor_digits(found.gaussian_epsilon(self.delta))}"
        return (
            f"{self.sentence()} Held against whole Gaussian profiles, the guesses rule out mu-GDP for mu up to "
            f"{floor_digits(found.mu_lower)}, {named}."
        )

    def curve(self) -> CurveBound:
        """The same guesses against whole Gaussian profiles; takes some seconds."""
        return one_run_curve_audit(
            self.canaries.scores,
            self.canaries.included,
            guesses=default_guesses(self.canaries.scores.size),
            confidence=self.observed.confidence,
        )


def train_audited(
    plan: Plan,
    model: Any,
    records: Any,
    labels: Any,
    *,
    canaries: Canaries | CanaryPairs | int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    tolerance: float = 1e-2,
    **settings: Unpack[TrainingOptions],
) -> Audited:
    """Train with canaries, a number of gradients or examples of one's own, and audit that one run.

    Records and labels are arrays. Other settings: see `calipers.training.train`.
    """
    planted = Canaries(canaries) if isinstance(canaries, int) else canaries
    PROBABILITY.check("delta", delta)
    size = len(records) + planted.count
    if plan.sampler.dataset_size != size:
        raise InputError(
            f"The sampler draws from {plan.sampler.dataset_size} records; with {planted.count} canaries there are "
            f"{size}."
        )
    trained = train(plan, model, *planted.added_to(records, labels), canaries=planted, **settings)
    how: Any = {name: value for name, value in settings.items() if name in HowToTrain.__annotations__}
    return audit_of(trained, planted, delta=delta, confidence=confidence, tolerance=tolerance, **how)


def audit_of(
    trained: Trained,
    planted: Canaries | CanaryPairs,
    *,
    delta: float,
    confidence: float = 0.95,
    tolerance: float = 1e-2,
    **how: Unpack[HowToTrain],
) -> Audited:
    """The three numbers of a finished training; `how` it was trained, if not as usual."""
    measurement = measure(trained.run(adjacency=planted.adjacency(trained.plan)), tolerance=tolerance)
    found = planted.scores(lambda examples, answers: _losses(trained.model, examples, answers, Handling(**how)))
    if isinstance(planted, CanaryPairs):
        three = audit_pairs(found, measurement, delta=delta, confidence=confidence)
        return Audited(three.certified, three.observed, delta, trained, found)
    observed = audit_one_run(found, deltas=(delta,), confidence=confidence, upper=measurement)
    return Audited(measurement.epsilon(delta=delta), observed, delta, trained, found)


def _losses(model: Any, records: Any, labels: Any, how: Handling) -> list[float]:
    """The loss of every record, of the model as it is used."""
    torch, device = torch_module(), chosen_device(how.device)
    prepare = how.prepare or (lambda rows: rows)
    with as_used(model):
        rows, answers = prepare(torch.as_tensor(records).to(device)), torch.as_tensor(labels).to(device)
        return [float(how.loss(model(rows[i : i + 1]), answers[i : i + 1])) for i in range(len(answers))]
