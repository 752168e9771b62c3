"""Training with differential privacy, measured by the sampler that drew the batches.

    from calipers.measure import measure
    from calipers.samplers import Poisson
    from calipers.training import Plan, train

    sampler = Poisson(dataset_size=len(records), batch_size=256, steps=1000)
    plan = Plan(sampler=sampler, noise_multiplier=1.0, max_grad_norm=1.0, learning_rate=0.5)
    trained = train(plan, model, records, labels, checkpoint=Path("run.checkpoint"))
    measure(trained.run()).epsilon(delta=1e-5)

Under `torchrun`, `with joined_ranks():` makes it one training of all processes (`calipers.training.distributed`).
PyTorch is imported when training begins, not before.
"""

from __future__ import annotations

from calipers.training.audited import Audited, train_audited
from calipers.training.canaries import Canaries, CanaryPairs
from calipers.training.datasets import DATASETS, Dataset, load_dataset
from calipers.training.distributed import RankError, Ranks, joined_ranks
from calipers.training.evaluation import accuracy
from calipers.training.loop import Trained, Trainer, train
from calipers.training.lora import with_lora
from calipers.training.losses import cross_entropy, own_loss
from calipers.training.models import MODELS, build_model
from calipers.training.plan import Plan, run_of

__all__ = [
    "DATASETS",
    "MODELS",
    "Audited",
    "Canaries",
    "CanaryPairs",
    "Dataset",
    "Plan",
    "RankError",
    "Ranks",
    "Trained",
    "Trainer",
    "accuracy",
    "build_model",
    "cross_entropy",
    "joined_ranks",
    "load_dataset",
    "own_loss",
    "run_of",
    "train",
    "train_audited",
    "with_lora",
]
