"""`calipers train`: DP-SGD on a dataset, ending with the measurement of the run that was executed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.kinds import COUNT, REAL, option, word
from calipers.cli.options import (
    DEFAULT_TOLERANCE,
    json_option,
    keyed_options,
    may_overwrite,
    question_options,
    tolerance_option,
)
from calipers.cli.outlet import report_option
from calipers.cli.patience import ShownProgress, counting, leave
from calipers.cli.train_audits import audit_options, check_audit, played_lira, show_lira
from calipers.cli.train_ranks import together
from calipers.errors import InputError
from calipers.samplers import ASSUMED

if TYPE_CHECKING:
    from calipers.cli.train_plan import Planned
    from calipers.reports.answers import Questions
    from calipers.training.distributed import Ranks
    from calipers.training.loop import Trained

_FILE = click.Path(path_type=Path, dir_okay=False)
_SAMPLING = ("sampler", "last_batch", "reshuffle", "max_batch_size", "cycle", "participations")


@click.command("train", short_help="Train with DP-SGD and measure what was executed.")
@option("--data", None, "mnist, fashion-mnist, cifar10, ag-news, or FILE.npz.", required=True, metavar="NAME")
@option("--data-dir", None, "Folder with the dataset's files; nothing is downloaded.", metavar="DIR")
@option("--records", COUNT, "Train on the first N records only.", metavar="N")
@option("--model", None, "cnn, resnet18, vit-tiny, transformer-tiny, ...", required=True, metavar="NAME")
@keyed_options(*_SAMPLING, sampler=ASSUMED, last_batch="drop", reshuffle="every-epoch")
@option("--batch-size", COUNT, "Records per batch (expected, if random).", required=True, metavar="B")
@option("--epochs", COUNT, "Passes over the data, each floor(N/B) steps; or give --steps.", metavar="E")
@option("--steps", COUNT, "Noisy gradients released in total; or give --epochs.", metavar="T")
@option("--noise-multiplier", REAL, "Deviation of the noise / clipping norm; 0 for none.", metavar="S")
@option("--target-epsilon", REAL, "Find the noise for this epsilon at the first --delta.", metavar="E")
@option("--max-grad-norm", REAL, "Clipping norm. [default: 1; none without noise]", metavar="C")
@keyed_options("normalization", "adjacency", normalization="constant")
@click.option("--learning-rate", type=REAL, default=0.25, show_default=True)
@click.option("--optimizer", type=word(("sgd", "adam")), default="sgd", show_default=True)
@option("--momentum", REAL, "adam: its first beta, 0 for 0.9.", default=0.0)
@click.option("--schedule", type=word(("constant", "cosine")), default="constant", show_default=True)
@option("--vocabulary", word(("hashed", "frequent")), "Text: see above.", show_default=False, default="hashed")
@option("--seed", COUNT, "Makes the run repeatable, and its noise guessable. [default: the system's entropy]")
@option("--device", None, "auto, cpu or cuda.", default="auto")
@option("--micro-batch", COUNT, "Records whose gradients are held at once. [default: what fits]", metavar="K")
@option("--precision", word(("full", "bf16")), "Of matrix products.", default="full")
@option("--rank-timeout", REAL, "torchrun: seconds to wait for a rank.", default=600.0)
@audit_options
@option("--checkpoint", _FILE, "Write the run's state here, and go on from it if it is there.")
@option("--checkpoint-every", COUNT, "Steps between two of them.", default=100, metavar="K")
@option("--output", _FILE, "Write the trained weights here.")
@question_options
@tolerance_option(DEFAULT_TOLERANCE)
@json_option
@report_option
def train_command(
    questions: Questions,
    tolerance: float,
    as_json: bool,
    report_path: Path | None,
    output: Path | None,
    checkpoint: Path | None,
    checkpoint_every: int,
    **chosen: Any,
) -> None:
    """Train a model with DP-SGD, evaluate it, and measure the run that was executed.

    The measured run is made from the sampler that drew the batches. Printed are the accuracy on the
    test records and the bracket; nothing computed from the training records without noise.

    Without --seed, batches and noise come from the operating system's entropy. With --checkpoint the
    training can be killed at any moment and started again by the same command: batches and noise go on
    where they were, and the measurement is the same. It says where it goes on; another model, dataset,
    plan, loss or preparation of the records is refused, and so is a second training on the same file.
    The file holds the run's secrets.

    Under torchrun the processes do one training: each sums a share of every batch, rank 0 adds the noise, reads and
    writes the files and prints. If one dies, all end with a sentence, and the same command goes on.

    --canaries M adds M canaries, each in or out by a fair coin, whose gradients have the clipping norm and lie in
    coordinates of their own. What an adversary who sees all noisy sums learns of them is printed after the
    bracket, with confidence 0.95, at the first delta and for whole profiles. --canary-kind examples takes the last M
    training records instead, with the next label, and looks at the losses of the finished model; pairs takes the last
    2 M and lets one of each pair in, so that the dataset keeps its size, and measures the run for substitution.

    --lira I is membership inference on record I with shadow models: --shadows trainings with it and without fit two
    Gaussians, and --trials further ones are judged by their likelihood ratio. No model is kept.
    --ledger keeps the score of every training, and --resume goes on. For small models only.

    --vocabulary hashed looks at no data. --vocabulary frequent takes the commonest words of the
    training texts, which no measurement covers.

    \b
    Examples:
      calipers train --data mnist --data-dir data --model cnn --batch-size 256 --epochs 5 --noise-multiplier 1
      calipers train --data mine.npz --model cnn --batch-size 64 --steps 500 --target-epsilon 3 --delta 1e-5
      calipers train --data cifar10 --data-dir data --model resnet18 --sampler balls-and-bins --batch-size 512
        --epochs 10 --noise-multiplier 0.8 --checkpoint run.checkpoint --device cuda
      torchrun --nproc-per-node 2 -m calipers train --data mine.npz --model cnn --batch-size 64 --steps 500
        --noise-multiplier 1 --checkpoint run.checkpoint
      calipers train --data mine.npz --model cnn --batch-size 64 --steps 500 --noise-multiplier 0.6 --canaries 2000
      calipers train --data mine.npz --model cnn --records 200 --batch-size 50 --steps 20 --noise-multiplier 0.5
        --lira 7 --wrong-label --white-box --shadows 50 --trials 200 --ledger lira.ledger --resume --jobs -1
    """
    from calipers.cli.train_outcome import report_outcome, write_weights
    from calipers.cli.train_plan import planned

    once = {"checkpoint": checkpoint, "output": output, "report": report_path}
    check_audit(chosen, once)
    with together(chosen["device"], chosen.pop("rank_timeout")) as ranks:
        with ranks.together():
            job = planned(chosen, questions.deltas[0])
            if report_path is not None and job.plan.noise_multiplier == 0:
                raise InputError("--report states privacy, and without noise there is none; leave it out or add noise.")
            _check_places(output if ranks.leads else None)
        if chosen["lira"] is not None:
            if ranks.size > 1:
                raise InputError("--lira shares its trainings out by --jobs, not by torchrun; start it as one process.")
            show_lira(played_lira(job, chosen, questions.deltas[0], tolerance), job, chosen, as_json)
            return
        trained = _trained(job, chosen, checkpoint, checkpoint_every, ranks)
        if ranks.leads:
            if output is not None:
                write_weights(trained, output)
            chosen |= {"checkpoint": checkpoint, "processes": ranks.size, "planted": job.canaries}
            report_outcome(trained, job.data, chosen, questions, tolerance, as_json, report_path)


def _check_places(output: Path | None) -> None:
    """Refuse now, not after hours, a place where nothing can be written, and a file that something else wrote."""
    from calipers.reports.files import refuse_foreign
    from calipers.training.checkpoint import check_writable

    if output is not None:
        check_writable(output)
        refuse_foreign(output, overwrite=may_overwrite())


def _trained(
    job: Planned,
    chosen: dict[str, Any],
    checkpoint: Path | None,
    every: int,
    ranks: Ranks,
) -> Trained:
    from calipers.training.loop import train

    records, labels = job.rows

    with counting("training", shown=ranks.leads) as progress:
        return train(
            job.plan,
            job.model,
            records,
            labels,
            prepare=job.data.prepare,
            device=chosen["device"],
            precision=chosen["precision"],
            checkpoint=checkpoint,
            checkpoint_every=every,
            identity={"model": chosen["model"]},
            progress=_heard(progress, checkpoint if ranks.leads else None),
            canaries=job.canaries,
            ranks=ranks,
        )


def _heard(progress: ShownProgress, checkpoint: Path | None) -> ShownProgress:
    """What hears of every step; where a checkpoint is taken up again, the first time with a line that says where."""
    resuming = checkpoint is not None and checkpoint.exists()

    def hear(done: int, steps: int) -> None:
        nonlocal resuming
        if resuming:
            left = f"{steps - done:,} steps are left" if done < steps else "nothing is left to train"
            leave(f"Resuming {checkpoint} after step {done:,} of {steps:,}: {left}.")
            resuming = False
        progress(done, steps)

    return hear
