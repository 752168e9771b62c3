"""`calipers probe`: what an implementation of DP-SGD really does, found by running it."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.kinds import COUNT, GRADIENT_MODE, REAL, one_of, option, word
from calipers.cli.options import json_option, show
from calipers.errors import CalipersError, InputError

if TYPE_CHECKING:
    from calipers.probing.probe import ProbeReport
    from calipers.probing.protocol import Configure
    from calipers.reports.document import Document

_OPACUS_ONLY = ("loss_reduction", "grad_sample_mode", "poisson_sampling")


@click.command("probe", short_help="Find out what an implementation of DP-SGD really does.")
@click.argument("target", metavar="TARGET", shell_complete=one_of(lambda: ("opacus", "jax-privacy"), files=True))
@option("--dataset-size", COUNT, "Number of records.", required=True, metavar="N")
@option("--batch-size", COUNT, "Batch size given to the implementation.", required=True, metavar="B")
@option("--noise-multiplier", REAL, "Noise to ask for. [default: 1]", metavar="S")
@option("--max-grad-norm", REAL, "Clipping norm to ask for. [default: 1]", metavar="C")
@option("--loss-reduction", word(["mean", "sum"]), "Opacus: divide or not. [default: mean]")
@option("--grad-sample-mode", GRADIENT_MODE, "Opacus: how per-record gradients are computed. [default: hooks]")
@option(
    "--no-poisson",
    bool,
    "Opacus: keep the shuffled loader.",
    called="poisson_sampling",
    show_default=False,
    flag_value=False,
    default=None,
)
@option("--dimension", COUNT, "Parameters of your own model, for the run that is printed.", metavar="n")
@option("--epochs", COUNT, "Epochs to draw. [default: enough to tell 1/T from 1/(T-1)]", metavar="E")
@option("--seed", COUNT, "Seed of every random number.", default=0)
@option("--error-probability", REAL, "Probability that any of the findings is wrong by chance.", default=1e-3)
@json_option
def probe_command(
    target: str,
    dataset_size: int,
    batch_size: int,
    seed: int,
    error_probability: float,
    epochs: int | None,
    dimension: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Run an implementation as a black box and say what it does, and which run to measure.

    TARGET is opacus, jax-privacy (the installed versions), or module:function for a loop of your
    own. Found are the sampler, the rate it samples at and the rate it accounts for, the divisor of
    the noisy sum, the clipping, the noise, and what changes when the dataset has one record more.

    Your own function takes (dataset_size, batch_size) and returns an object with

    \b
      dimension, noise_multiplier, max_grad_norm, steps_per_epoch
      batches(epochs, rng)       the batches of one run, as arrays of indices
      update(gradients, rng)     (records, dimension) -> (dimension,), one noisy step
      accounted()                optional: (sample rate, noise multiplier) given to the accountant

    that takes all randomness from rng, a numpy.random.Generator. Two more attributes are used if
    there are any: layers (their sizes), directions (the gradients that can be planted). It may also
    return calipers.adapters.probe.TorchLoop(model, optimizer, loader, loss) or JaxLoop(step, ...):
    your real step, with gradients planted through the model's output or through the loss.

    \b
    Examples:
      calipers probe opacus --dataset-size 1000 --batch-size 100
      calipers probe opacus --dataset-size 1000 --batch-size 100 --loss-reduction sum --json
      calipers probe mine:Loop --dataset-size 1000 --batch-size 100
    """
    from calipers.probing.probe import probe

    given = {key: value for key, value in settings.items() if value is not None}
    name, configure = _configured(target, dataset_size, batch_size, given)
    with _own_mistakes_told(target):
        report = probe(
            configure,
            dataset_size=dataset_size,
            batch_size=batch_size,
            name=name,
            seed=seed,
            error_probability=error_probability,
            epochs=epochs,
            dimension=dimension,
        )
    if as_json:
        from calipers.reports.records import to_document

        click.echo(to_document(report.to_dict(), None if report.run is None else report.run.to_dict()))
        return
    show(probe_report(report))


@contextmanager
def _own_mistakes_told(target: str) -> Iterator[None]:
    """What goes wrong in the module of the target is given in one sentence, with its line; everything else is
    raised.
    """
    try:
        yield
    except CalipersError:
        raise
    except Exception as error:
        module = sys.modules.get(target.partition(":")[0])
        path = getattr(module, "__file__", None)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if path is None or not lines:
            raise
        said = f"{type(error).__name__}: {error}".rstrip(". ")
        raise InputError(f"{target} raised {said} (line {lines[-1]} of {path}).") from error


def _configured(target: str, dataset_size: int, batch_size: int, settings: dict[str, Any]) -> tuple[str, Configure]:
    """The name for the report, and how to set the target up."""
    if target == "opacus":
        from calipers.adapters.opacus_library import opacus_module
        from calipers.adapters.opacus_probe import OpacusConfiguration

        return f"Opacus {opacus_module().__version__}", functools.partial(OpacusConfiguration, **settings)
    foreign = [f"--{key.replace('_', '-')}" for key in _OPACUS_ONLY if key in settings]
    if foreign:
        raise InputError(f"{', '.join(foreign)}: an option of Opacus; leave it out with {target}.")
    if target == "jax-privacy":
        from calipers.adapters.jax_privacy import library_module
        from calipers.adapters.jax_privacy_probe import written_for

        version = library_module().__version__
        return f"JAX-Privacy {version}", written_for(dataset_size, batch_size, **settings)
    if settings:
        raise InputError(f"{target} chooses its own noise and clipping; leave --noise-multiplier and the like out.")
    from calipers.probing.protocol import load_configure

    return target, load_configure(target)


def probe_report(report: ProbeReport) -> Document:
    """What is wrong first, then all findings, the run, and what the probe leaves out."""
    from calipers.numerics.decimals import ceil_digits
    from calipers.reports.document import Badge, Code, Document, Items, Prose, Section, Table

    rows = []
    for finding in report.findings:
        chance = (
            f" (wrong with probability at most {ceil_digits(finding.error_probability, 2)})"
            if finding.error_probability
            else ""
        )
        subject = f"! {finding.subject}" if finding.alarm else finding.subject
        rows.append((subject, Badge(finding.verdict, "bad" if finding.alarm else ""), finding.evidence + chance))
    alarms = [f"{finding.subject}: {finding.verdict}" for finding in report.findings if finding.alarm]
    found = f"{len(alarms)} finding{'s' if len(alarms) > 1 else ''} to mend. {'; '.join(alarms)}."
    described = (
        Section("No run to measure", (Prose(report.reason or ""),))
        if report.run is None
        else Section("The run to measure (one epoch)", (Code(report.run.to_toml()),))
    )
    return Document(
        kind="probe",
        title="What a training step does",
        verdict=f"{report.name}, N = {report.dataset_size}, batch size {report.batch_size}: "
        + (found if alarms else "nothing to mend was found."),
        sections=(
            Section("Findings", (Table("Findings", ("subject", "found", "evidence"), tuple(rows), wide=True),)),
            described,
            *((Section("Notes", (Items(tuple(report.caveats)),)),) if report.caveats else ()),
            Section("What this probe cannot see", (Items(tuple(report.unseen)),)),
        ),
    )
