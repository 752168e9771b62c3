"""LiRA: is this record in the training set? Shadow models tell what a model looks like with it and without.

    target = ShadowTraining(plan, build, records, labels, record=x, label=y)
    found = lira(target, shadows=64, trials=500, seed=0, delta=1e-5, ledger="lira.ledger", resume=True)
    print(found.sentence())

`plan`'s sampler draws from the records and this one together; if it is out, it adds nothing when it is drawn, as
canaries do (`calipers.training.canaries`). A run shows one number:

- *black-box* log(p / (1 - p)), p what the finished model gives the record's label;
- *white-box* the log likelihood ratio of all noisy sums. As for the adversary of the lower bound, everything about the
  other records is known, their draws included, and subtracted: what is left of a sum is noise, and the record's clipped
  gradient if it is in and drawn. That is so where every record is drawn by its own coin (Poisson). Who knows the
  batches of all others of a shuffled epoch knows the record's own, which is more than the accounting allows him:
  there nothing is subtracted, and the sums are held against the record's gradients as they are.

`shadows` trainings with and without the record fit a Gaussian to each (Carlini et al. 2022), and their likelihood ratio
is the score by which `trials` further ones are judged: no run is used for both. All are kept in ledgers, the shadows in
one next to, so that killed it goes on where it was. It ends as every audit of a training: certified above, certified
for the adversary below, observed with its confidence. Small models only: every run is a training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from calipers.auditing.audit import AuditResult, audit
from calipers.auditing.distinguishers import Plain
from calipers.auditing.fitted import PILOT, Fitted
from calipers.auditing.game import HowToPlay, play
from calipers.auditing.pairs import certified_words
from calipers.bracket import Bracket
from calipers.domains import PROBABILITY
from calipers.errors import InputError
from calipers.measure import measure
from calipers.numerics.decimals import floor_digits, setting
from calipers.numerics.types import FloatArray, IntArray
from calipers.samplers import scheme_named
from calipers.training.canaries import Planted, adjacency_of
from calipers.training.distributed import Ranks
from calipers.training.fingerprint import fingerprint
from calipers.training.gradients import GradientSum
from calipers.training.loop import train
from calipers.training.plan import Plan
from calipers.training.torch_library import as_used, chosen_device, torch_module

# Shadows are trained from another seed than the runs that are judged.
_SHADOWS = 2**61


class ShadowTraining:
    """Trainings with and without one record, as a target of `calipers.auditing`.

    `build(seed)` makes the model with its first weights; records and labels are arrays, and `prepare` turns rows into
    the model's inputs. `white_box`: see the module.
    """

    chunk = 4

    def __init__(
        self,
        plan: Plan,
        build: Callable[[int], Any],
        records: Any,
        labels: Any,
        *,
        record: Any,
        label: Any,
        white_box: bool = False,
        prepare: Callable[[Any], Any] | None = None,
        device: str = "cpu",
    ) -> None:
        if plan.sampler.dataset_size != len(records) + 1:
            raise InputError(
                f"The sampler draws from {plan.sampler.dataset_size} records; with the one in question there are "
                f"{len(records) + 1}."
            )
        if plan.normalization not in ("constant", "none") or plan.noise_multiplier == 0:
            raise InputError("Shadow models need noise and a public divisor; take normalization='constant'.")
        self.plan, self._build, self._white_box, self._device = plan, build, white_box, device
        self._prepare = prepare or (lambda rows: rows)
        self._records = np.concatenate([records, np.asarray(record)[None]])
        self._labels = np.concatenate([labels, np.asarray(label)[None]])
        self.name = f"shadow models, {'white' if white_box else 'black'}-box"

    def identity(self) -> dict[str, object]:
        """The plan without its seed, the data, the model's code, and what is seen."""
        plan = {field.name: repr(getattr(self.plan, field.name)) for field in dataclasses.fields(self.plan)}
        data = hashlib.sha256(self._records.tobytes() + self._labels.tobytes()).hexdigest()
        code = {"build": str(fingerprint(self._build)), "prepare": str(fingerprint(self._prepare))}
        return {"target": self.name, "plan": plan | {"seed": ""}, "data": data, **code}

    def outputs(self, present: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """One number for every training."""
        return np.array([[self._one(present, int(rng.integers(2**53)))] for _ in range(count)])

    def _one(self, present: bool, seed: int) -> float:
        torch, model, device = torch_module(), self._build(seed), chosen_device(self._device)
        row, label = (torch.from_numpy(part[-1:]).to(device) for part in (self._records, self._labels))
        watched = _OneRecord(present, model, len(self._records) - 1, (self._prepare(row), label), self._white_box)
        plan = dataclasses.replace(self.plan, seed=seed)
        settings: dict[str, Any] = {"prepare": self._prepare, "device": self._device}
        # One training of its own, also where several processes share these out.
        train(plan, model, self._records, self._labels, canaries=watched, ranks=Ranks.alone(), **settings)
        if self._white_box:
            return watched.evidence
        with as_used(model):
            logits = model(self._prepare(row)).double()[0]
        right = int(label)
        others = torch.cat((logits[:right], logits[right + 1 :]))
        return float(logits[right] - torch.logsumexp(others, dim=0))


class _OneRecord(Planted):
    """The last record, in or out, in the place of canaries; white-box, what every noisy sum says about it."""

    count = 1

    def __init__(self, present: bool, model: Any, number: int, record: tuple[Any, Any], white_box: bool) -> None:
        self._present, self._number, self._record, self.evidence = present, number, record, 0.0
        self._model, self._white_box = model, white_box
        self._sum: Any = None
        self._others: Any = None

    def begin(self, plan: Plan, dimension: int) -> None:
        """The training begins."""
        assert plan.max_grad_norm is not None  # a plan with noise has one
        law = plan.sampler.law()
        self._deviation = plan.noise_multiplier * plan.max_grad_norm
        self._rate = law.mean_batch_size / plan.sampler.dataset_size
        self._by_coin = scheme_named(law.sampler).independent
        self._sum = GradientSum(self._model, max_grad_norm=plan.max_grad_norm) if self._white_box else None

    def kept(self, rows: IntArray) -> IntArray:
        """All records, or all but this one."""
        return rows if self._present else rows[rows != self._number]

    def widened(self, update: Any, batch: IntArray) -> Any:
        """Nothing stands next to the model's coordinates; what the others give is kept in mind."""
        if self._sum is not None:
            own = self._own = self._sum(*self._record).double()
            drawn = self._present and bool((batch == self._number).any())
            self._others = update.double() - own if drawn else update.double()
        return update

    def seen(self, noisy: Any, step: int) -> Any:
        """Add the log likelihood ratio of a step; the weights are still those of the gradients."""
        if self._sum is not None:
            left = noisy.double() - self._others if self._by_coin else noisy.double()
            ratio = float(self._own @ left - self._own @ self._own / 2.0) / self._deviation**2
            out = math.log1p(-self._rate) if self._rate < 1.0 else -math.inf
            self.evidence += np.logaddexp(out, math.log(self._rate) + ratio) if self._by_coin else ratio
        return noisy


@dataclass(frozen=True)
class Lira:
    """Certified above and below, and what shadow models let the adversary see."""

    certified: Bracket
    observed: AuditResult
    delta: float
    shadows: int
    attack: str

    def sentence(self) -> str:
        """The three numbers, in words."""
        bound = self.observed.epsilon[0]
        return (
            f"{certified_words(self.certified, self.delta)}; LiRA with {self.shadows} "
            f"shadow models each way saw at least {floor_digits(bound.value)} in {self.observed.trials} trainings each "
            f"way, with confidence {setting(self.observed.confidence)} ({self.attack})."
        )

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        bracket = {"delta": self.delta, "lower": self.certified.lower, "upper": self.certified.upper}
        return {"certified": bracket, "observed": self.observed.to_dict(), "shadows": self.shadows}


def lira(
    target: ShadowTraining,
    *,
    shadows: int,
    trials: int,
    seed: int,
    delta: float = 1e-5,
    confidence: float = 0.95,
    tolerance: float = 1e-2,
    **how: Unpack[HowToPlay],
) -> Lira:
    """Train `shadows` and then `trials` models with the record and as many without, and bound epsilon from below.

    `how`: see `calipers.auditing.game.HowToPlay`. With `ledger` every training is kept, those of the shadows in the
    file `ledger`.shadows.
    """
    PROBABILITY.check("delta", delta)
    PILOT.check_int("shadows", shadows, "Too few fit nothing.")
    run = target.plan.run(dimension=None, adjacency=adjacency_of(target.plan))
    measurement = measure(run, tolerance=tolerance)  # refused now, not after hours
    ledger = how.get("ledger")
    beside: HowToPlay = {**how, "ledger": None if ledger is None else Path(f"{ledger}.shadows")}
    found = play(target, Plain(), trials=shadows, seed=seed + _SHADOWS, **beside)
    score = Fitted(found.absent[:, None], found.present[:, None])
    asked: dict[str, Any] = {"confidence": confidence, "deltas": (delta,), "upper": measurement}
    observed = audit(target, score, trials=trials, seed=seed, **asked, **how)
    return Lira(measurement.epsilon(delta=delta), observed, delta, shadows, target.name)
