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

from calipers.training.audited import Audited as Audited
from calipers.training.audited import train_audited as train_audited
from calipers.training.canaries import Canaries as Canaries
from calipers.training.canaries import CanaryPairs as CanaryPairs
from calipers.training.datasets import DATASETS as DATASETS
from calipers.training.datasets import Dataset as Dataset
from calipers.training.datasets import load_dataset as load_dataset
from calipers.training.distributed import RankError as RankError
from calipers.training.distributed import Ranks as Ranks
from calipers.training.distributed import joined_ranks as joined_ranks
from calipers.training.evaluation import accuracy as accuracy
from calipers.training.loop import Trained as Trained
from calipers.training.loop import Trainer as Trainer
from calipers.training.loop import train as train
from calipers.training.lora import with_lora as with_lora
from calipers.training.losses import cross_entropy as cross_entropy
from calipers.training.losses import own_loss as own_loss
from calipers.training.models import MODELS as MODELS
from calipers.training.models import build_model as build_model
from calipers.training.plan import Plan as Plan
from calipers.training.plan import run_of as run_of
