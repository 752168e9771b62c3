"""`calipers train`: DP-SGD on a dataset, ending with the measurement of the run that was executed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.kinds import COUNT, REAL, word
from calipers.cli.options import DEFAULT_TOLERANCE, json_option, question_options, show, tolerance_option
from calipers.cli.report_option import report_option, write_when_asked
from calipers.errors import InputError
from calipers.run import ADJACENCIES, LAST_BATCHES, NEEDED, NORMALIZATIONS, RESHUFFLES, Run
from calipers.schemes import SAMPLERS, scheme_of

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.reports.report import Report
    from calipers.samplers import Sampler
    from calipers.training.datasets import Dataset
    from calipers.training.loop import Trained
    from calipers.training.plan import Plan

_FILE = click.Path(path_type=Path, dir_okay=False)
_UNCOVERED = "the frequent words of the training texts, chosen without noise; no number here covers that choice"


@click.command("train", short_help="Train with DP-SGD and measure what was executed.")
@click.option("--data", required=True, metavar="NAME", help="mnist, fashion-mnist, cifar10, ag-news, or FILE.npz.")
@click.option("--data-dir", metavar="DIR", help="Folder with the dataset's files; nothing is downloaded.")
@click.option("--records", type=COUNT, metavar="N", help="Train on the first N records only.")
@click.option("--model", required=True, metavar="NAME", help="cnn, resnet18, vit-tiny, transformer-tiny, ...")
@click.option("--sampler", type=word(SAMPLERS), default="poisson", show_default=True)
@click.option(
    "--last-batch",
    type=word(LAST_BATCHES),
    default="drop",
    show_default=True,
    help="Records that do not fill a batch: drop them (shuffle: hides better), or keep them as a short last batch.",
)
@click.option("--reshuffle", type=word(RESHUFFLES), default="every-epoch", help="A new order, or bins, or one.")
@click.option("--max-batch-size", type=COUNT, metavar="B", help="truncated-poisson: the largest batch.")
@click.option("--cycle", type=COUNT, metavar="K", help="cyclic-poisson: groups of records that take turns.")
@click.option("--participations", type=COUNT, metavar="K", help="random-allocation: steps that use each record.")
@click.option("--batch-size", type=COUNT, required=True, metavar="B", help="Records per batch (expected, if random).")
@click.option("--epochs", type=COUNT, metavar="E", help="Passes over the data, each floor(N/B) steps; or give --steps.")
@click.option("--steps", type=COUNT, metavar="T", help="Noisy gradients released in total; or give --epochs.")
@click.option("--noise-multiplier", type=REAL, metavar="S", help="Deviation of the noise / clipping norm; 0 for none.")
@click.option("--target-epsilon", type=REAL, metavar="E", help="Find the noise for this epsilon at the first --delta.")
@click.option("--max-grad-norm", type=REAL, metavar="C", help="Clipping norm. [default: 1; none without noise]")
@click.option("--normalization", type=word(NORMALIZATIONS), default="constant", show_default=True)
@click.option("--adjacency", type=word(ADJACENCIES), default="add-remove", show_default=True)
@click.option("--learning-rate", type=REAL, default=0.25, show_default=True)
@click.option("--optimizer", type=word(("sgd", "adam")), default="sgd", show_default=True)
@click.option("--momentum", type=REAL, default=0.0, show_default=True, help="adam: its first beta, 0 for 0.9.")
@click.option("--schedule", type=word(("constant", "cosine")), default="constant", show_default=True)
@click.option("--vocabulary", type=word(("hashed", "frequent")), default="hashed", help="Text: see below.")
@click.option("--seed", type=COUNT, help="Repeatable and guessable. [default: the system's entropy]")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option(
    "--micro-batch",
    type=COUNT,
    metavar="K",
    help="Records whose gradients are held at once. [default: what fits]",
)
@click.option("--checkpoint", type=_FILE, help="Write the run's state here, and go on from it if it is there.")
@click.option("--checkpoint-every", type=COUNT, default=100, show_default=True, metavar="K", help="Steps in between.")
@click.option("--output", type=_FILE, help="Write the trained weights here.")
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

    --vocabulary hashed looks at no data. --vocabulary frequent takes the commonest words of the
    training texts, which no measurement covers.

    \b
    Examples:
      calipers train --data mnist --data-dir data --model cnn --batch-size 256 --epochs 5 --noise-multiplier 1
      calipers train --data mine.npz --model cnn --batch-size 64 --steps 500 --target-epsilon 3 --delta 1e-5
      calipers train --data cifar10 --data-dir data --model resnet18 --sampler balls-and-bins --batch-size 512
        --epochs 10 --noise-multiplier 0.8 --checkpoint run.checkpoint --device cuda
    """
    from calipers.training.checkpoint import check_writable
    from calipers.training.datasets import load_dataset
    from calipers.training.loop import train
    from calipers.training.models import build_model, parameter_count
    from calipers.training.plan import sampler_of
    from calipers.training.torch_library import chosen_device

    _check_target(chosen)
    data = load_dataset(chosen["data"], chosen["data_dir"], vocabulary=chosen["vocabulary"])
    data = data if chosen["records"] is None else data.first(chosen["records"])
    sampler = sampler_of(
        chosen["sampler"],
        dataset_size=data.size,
        batch_size=chosen["batch_size"],
        epochs=chosen["epochs"],
        steps=chosen["steps"],
        last_batch=chosen["last_batch"],
        reshuffle=chosen["reshuffle"],
        **{name: chosen[name] for name in NEEDED},
    )
    model = build_model(chosen["model"], data, seed=chosen["seed"])
    chosen_device(chosen["device"])  # a device that is not there is refused before noise is looked for
    dimension = parameter_count(model)
    plan = _plan(sampler, dimension, questions.deltas[0], chosen)
    if report_path is not None and plan.noise_multiplier == 0:
        raise InputError("--report states privacy, and without noise there is none; leave it out or add noise.")
    if output is not None:
        check_writable(output)  # now, not after hours
    with _bar(plan.steps) as bar:
        trained = train(
            plan,
            model,
            data.records,
            data.labels,
            prepare=data.prepare,
            device=chosen["device"],
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            identity={"model": chosen["model"]},
            progress=_heard(bar, checkpoint),
        )
    if output is not None:
        _write_weights(trained, output)
    _report(trained, data, {**chosen, "checkpoint": checkpoint}, questions, tolerance, as_json, report_path)


def _heard(bar: Any, checkpoint: Path | None) -> Callable[[int, int], None]:
    """What hears of every step: the bar; and, where a checkpoint is taken up again, a line that says so and where."""
    resuming = checkpoint is not None and checkpoint.exists()

    def hear(done: int, steps: int) -> None:
        nonlocal resuming
        if resuming:
            left = f"{steps - done:,} steps are left" if done < steps else "nothing is left to train"
            click.echo(f"Resuming {checkpoint} after step {done:,} of {steps:,}: {left}.", err=True)
            resuming = False
        bar.update(done - bar.pos)

    return hear


def _check_target(chosen: dict[str, Any]) -> None:
    noise, target = chosen["noise_multiplier"], chosen["target_epsilon"]
    if target is not None and noise is not None:
        if noise == 0:
            raise InputError("--noise-multiplier 0 adds no noise and meets no --target-epsilon; leave one of them out.")
        raise InputError("--noise-multiplier and --target-epsilon contradict each other: both set the noise; give one.")
    if target is None and noise is None:
        raise InputError("Nothing says how much noise to add; give --noise-multiplier or --target-epsilon.")


def _plan(sampler: Sampler, dimension: int, delta: float, chosen: dict[str, Any]) -> Plan:
    """The plan, with the noise found if a target was given. What cannot be measured is refused now, not hours later."""
    from calipers.training.plan import Plan, run_of

    noise, norm = chosen["noise_multiplier"], chosen["max_grad_norm"]
    if noise is None or noise > 0:
        described = run_of(
            sampler,
            noise_multiplier=1.0 if noise is None else noise,
            normalization=chosen["normalization"],
            dimension=dimension,
            adjacency=chosen["adjacency"],
        )
        noise = _checked_noise(described, chosen["target_epsilon"], delta)
        norm = 1.0 if norm is None else norm
    settings = ("normalization", "learning_rate", "optimizer", "momentum", "schedule", "micro_batch", "seed")
    return Plan(
        sampler=sampler, noise_multiplier=noise, max_grad_norm=norm, **{name: chosen[name] for name in settings}
    )


def _checked_noise(run: Run, target: float | None, delta: float) -> float:
    """The run's own noise, if it can be measured, or the smallest that meets the target."""
    if target is None:
        from calipers.measure import measure

        measure(run)  # refuses divisors and adjacencies that no theorem covers
        allowed = scheme_of(run).noise_range(run)
        return allowed.check("noise_multiplier", run.noise_multiplier, "Other noise cannot be measured.")
    from calipers.calibrate import solve

    return solve(run, epsilon=target, delta=delta).noise_multiplier


def _bar(steps: int) -> Any:
    return click.progressbar(length=steps, label="Training", file=sys.stderr)


def _write_weights(trained: Trained, output: Path) -> None:
    from calipers.training.checkpoint import write_whole
    from calipers.training.torch_library import torch_module

    packed = io.BytesIO()
    torch_module().save(trained.model.state_dict(), packed)
    write_whole(output, packed.getbuffer(), mode=0o666)


def _report(
    trained: Trained,
    data: Dataset,
    chosen: dict[str, Any],
    questions: Questions,
    tolerance: float,
    as_json: bool,
    report_path: Path | None,
) -> None:
    from calipers.training.evaluation import accuracy
    from calipers.training.torch_library import chosen_device

    device = chosen_device(chosen["device"])
    found = accuracy(trained.model, data.test_records, data.test_labels, prepare=data.prepare, device=device)
    # The frequent words are read off the training texts without noise.
    uncovered = data.kind == "text" and chosen["vocabulary"] == "frequent"
    answers = None
    if trained.plan.noise_multiplier > 0:
        from calipers.measure import measure
        from calipers.reports.answers import answer

        run = trained.run(adjacency=chosen["adjacency"])
        measurement = measure(run, tolerance=tolerance)
        answers = answer(measurement, questions)
        facts = [("data", data.name), ("model", str(chosen["model"])), ("accuracy", f"{found:.4f}")]
        facts += [("vocabulary", _UNCOVERED)] if uncovered else []

        def report() -> Report:
            from calipers.reports.report import report_training

            return report_training(measurement, questions, facts)

        write_when_asked(report_path, report)
    if as_json:
        from calipers.reports.records import measurement_record, run_of_record, to_document

        training = {
            "data": data.name,
            "model": chosen["model"],
            "parameters": trained.dimension,
            "records": data.size,
            "steps": trained.plan.steps,
            "noise_multiplier": trained.plan.noise_multiplier,
            "max_grad_norm": trained.plan.max_grad_norm,
            "accuracy": found,
            "seconds": trained.seconds,
            "resumed_at": trained.resumed_at,
        } | ({"vocabulary": chosen["vocabulary"]} if data.kind == "text" else {})
        measured = None if answers is None else measurement_record(answers)
        click.echo(
            to_document({"training": training, "measurement": measured}, run_of_record({"measurement": measured}))
        )
        return
    resumed = f" (resumed after step {trained.resumed_at:,} from {chosen['checkpoint']})" if trained.resumed_at else ""
    click.echo(
        f"{chosen['model']} ({trained.dimension:,} parameters) on {data.name}: accuracy {found:.4f} on "
        f"{len(data.test_labels):,} test records after {trained.plan.steps:,} steps{resumed}."
    )
    if answers is None:
        click.echo("No noise was added: there is no privacy to measure.")
        return
    from calipers.reports.report import brief_measurement

    click.echo()
    show(brief_measurement(answers, tolerance))
    if uncovered:
        click.echo(f"\nVocabulary: {_UNCOVERED}.")
