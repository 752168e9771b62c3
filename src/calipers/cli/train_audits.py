"""`calipers train` that is audited: canaries in the one training, or shadow models for one record.

Canaries of examples and pairs are the last training records with a label that is not theirs (the next class): nobody
else teaches it, so that a model that knows it has seen the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.kinds import COUNT, option, picked, refuse, with_options, word
from calipers.cli.patience import counting
from calipers.domains import Domain
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.cli.train_plan import Planned
    from calipers.training.datasets import Dataset
    from calipers.training.shadows import Lira

KINDS = ("gradients", "examples", "pairs")
SHADOWS, TRIALS = 64, 500

audit_options = with_options(
    option("--canaries", COUNT, "Audit the run by M canaries; see above.", metavar="M"),
    option(
        "--canary-kind",
        word(KINDS),
        "Gradients in coordinates next to the model's (white-box), mislabeled examples, or pairs of them (black-box).",
        default="gradients",
    ),
    option(
        "--lira",
        COUNT,
        "Membership inference on record I with shadow models. Trains many times; described above.",
        metavar="I",
    ),
    option("--wrong-label", bool, "lira: give the record the next label."),
    option("--white-box", bool, "lira: the adversary sees every noisy sum, not the model alone."),
    option("--shadows", COUNT, f"lira: trainings each way to fit to. [default: {SHADOWS}]"),
    option("--trials", COUNT, f"lira: further trainings each way. [default: {TRIALS}]"),
    option("--jobs", COUNT, "lira: processes; -1 for all processors. [default: 1]"),
    option("--ledger", None, "lira: keep every training in FILE and FILE.shadows.", metavar="FILE"),
    option("--resume", bool, "lira: go on with the ledgers where they end."),
)
_ABOUT_LIRA = ("wrong_label", "white_box", "shadows", "trials", "jobs", "ledger", "resume")


def check_audit(chosen: dict[str, Any], others: Mapping[str, object]) -> None:
    """Refuse options that do not go together; `others`: what belongs to one training."""
    if chosen["lira"] is None:
        named = picked(chosen, *_ABOUT_LIRA)
        refuse("needs --lira.", **{name: value is not None and value is not False for name, value in named.items()})
        if chosen["canaries"] is None and chosen["canary_kind"] != KINDS[0]:
            raise InputError("--canary-kind says what canaries are; say how many with --canaries M.")
        return
    why = "is about one training, and --lira trains many; leave one of them out."
    refuse(why, canaries=chosen["canaries"], **others)


def played_lira(job: Planned, chosen: dict[str, Any], delta: float, tolerance: float) -> Lira:
    """Train with and without the record, as often as asked."""
    from calipers.training.shadows import ShadowTraining, lira

    data, number = job.data, chosen["lira"]
    Domain(0, data.size - 1, integer=True).check_int("lira", number, f"{data.name} has {data.size} records.")
    others = [row for row in range(data.size) if row != number]
    label = (data.labels[number] + 1) % data.classes if chosen["wrong_label"] else data.labels[number]
    target = ShadowTraining(
        job.plan,
        partial(_built, chosen["model"], data),
        data.records[others],
        data.labels[others],
        record=data.records[number],
        label=label,
        white_box=chosen["white_box"],
        prepare=data.prepare,
        device=chosen["device"],
    )
    with counting("trainings with and without the record") as progress:
        return lira(
            target,
            shadows=chosen["shadows"] or SHADOWS,
            trials=chosen["trials"] or TRIALS,
            seed=chosen["seed"] or 0,
            delta=delta,
            tolerance=tolerance,
            ledger=chosen["ledger"],
            resume=chosen["resume"],
            jobs=chosen["jobs"] or 1,
            progress=progress,
        )


def _built(model: str, data: Dataset, seed: int) -> Any:
    from calipers.training.models import build_model

    return build_model(model, data, seed=seed)


def show_lira(found: Lira, job: Planned, chosen: dict[str, Any], as_json: bool) -> None:
    """Print the three numbers, or all of it as JSON."""
    subject = f"Record {chosen['lira']} of {job.data.name}" + (", mislabeled" if chosen["wrong_label"] else "")
    if not as_json:
        click.echo(f"{subject}; {chosen['model']}, {job.plan.steps:,} steps: {found.sentence()}")
        return
    from calipers.reports.records import to_document
    from calipers.training.canaries import adjacency_of

    run = job.plan.run(dimension=None, adjacency=adjacency_of(job.plan)).to_dict()
    said = {"data": job.data.name, "record": chosen["lira"], "model": chosen["model"], "steps": job.plan.steps}
    click.echo(to_document({"training": {**said, "wrong_label": chosen["wrong_label"]}, "audit": found.to_dict()}, run))
