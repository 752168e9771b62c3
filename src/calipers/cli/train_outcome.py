"""What `calipers train` says and writes at the end: accuracy, the bracket of the executed run, weights, a report."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.options import show, wrote
from calipers.cli.outlet import write_when_asked

if TYPE_CHECKING:
    from calipers.reports.answers import Questions
    from calipers.training.audited import Audited
    from calipers.training.datasets import Dataset
    from calipers.training.loop import Trained

_UNCOVERED = "the frequent words of the training texts, chosen without noise; no number here covers that choice"


def write_weights(trained: Trained, output: Path) -> None:
    """The trained weights as PyTorch saves them, whole or not at all; a note inside says whose the file is."""
    from calipers.reports.files import WEIGHTS
    from calipers.training.checkpoint import write_whole
    from calipers.training.torch_library import torch_module

    packed = io.BytesIO()
    torch_module().save(trained.model.state_dict(), packed)
    with zipfile.ZipFile(packed, "a") as archive:
        # Next to PyTorch's own entries, which share their folder's name; those who read them pass over others.
        folder = archive.namelist()[0].split("/")[0]
        archive.writestr(f"{folder}/calipers", WEIGHTS)
    write_whole(output, packed.getbuffer(), mode=0o666)
    wrote(output)


def report_outcome(
    trained: Trained,
    data: Dataset,
    chosen: dict[str, Any],
    questions: Questions,
    tolerance: float,
    as_json: bool,
    report_path: Path | None,
) -> None:
    """Evaluate, measure, and print; or write where a file was asked for."""
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
        from calipers.reports.report import report_training

        run = trained.run(adjacency=chosen["adjacency"] or "")
        measurement = measure(run, tolerance=tolerance)
        answers = answer(measurement, questions, with_relations=True)
        facts = [("data", data.name), ("model", str(chosen["model"])), ("accuracy", f"{found:.4f}")]
        facts += [("vocabulary", _UNCOVERED)] if uncovered else []
        write_when_asked(report_path, lambda: report_training(measurement, questions, facts))
    audit = _audit(trained, data, chosen, questions, tolerance)
    if as_json:
        _document(trained, data, chosen, found, answers, audit)
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
    if audit is not None:
        click.echo(f"\nAudit of this run: {audit.in_full()}")


def _audit(
    trained: Trained, data: Dataset, chosen: dict[str, Any], questions: Questions, tolerance: float
) -> Audited | None:
    if chosen["planted"] is None:
        return None
    from calipers.training.audited import audit_of

    asked: dict[str, Any] = {"delta": questions.deltas[0], "tolerance": tolerance, "prepare": data.prepare}
    return audit_of(trained, chosen["planted"], **asked, device=chosen["device"])


def _document(
    trained: Trained, data: Dataset, chosen: dict[str, Any], found: float, answers: Any, audit: Audited | None
) -> None:
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
        "precision": trained.precision,
        "processes": chosen["processes"],
    } | ({"vocabulary": chosen["vocabulary"]} if data.kind == "text" else {})
    measured = None if answers is None else measurement_record(answers)
    said: dict[str, object] = {"training": training, "measurement": measured}
    if audit is not None:
        said["audit"] = audit.to_dict() | {"curve": audit.curve().to_dict(audit.delta)}
    click.echo(to_document(said, run_of_record({"measurement": measured})))
