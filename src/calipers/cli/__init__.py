"""The command `calipers`.

Every command builds its objects, computes, renders, and only then prints: a command that fails
leaves standard output empty. Heavy libraries are imported inside the commands, so that `--help`
answers at once.
"""

from __future__ import annotations

import click

from calipers._version import __version__
from calipers.cli.audit import audit_command
from calipers.cli.calibrate import calibrate_command
from calipers.cli.certify import certify_command, verify_command
from calipers.cli.check import check_command
from calipers.cli.compare import compare_command
from calipers.cli.curve import curve_command
from calipers.cli.explore import explore_command
from calipers.cli.export import export_command
from calipers.cli.failures import SpeakingGroup
from calipers.cli.measure import measure_command
from calipers.cli.probe import probe_command
from calipers.cli.receipt import receipt_command, verify_receipt_command
from calipers.cli.reproduce import reproduce_command
from calipers.cli.theorem import theorem_command
from calipers.cli.train import train_command

__all__ = ["main"]


@click.group(
    cls=SpeakingGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="calipers")
def main() -> None:
    """Measure the privacy of the DP-SGD run that was actually executed, from both sides.

    The upper jaw is a proof: the run leaks no more than this. The lower jaw is an attack: an
    explicit adversary provably gets this much. Every number is one of the two and says what
    licenses it.

    \b
    Examples:
      calipers measure --dataset-size 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1
      calipers measure --run run.toml --delta 1e-6 --json
      calipers calibrate --sample-rate 0.01 --steps 1000 --epsilon 3 --delta 1e-5
      calipers compare poisson.toml shuffle.toml
      calipers check run.toml --epsilon 3 --delta 1e-5
      calipers certify run.toml --delta 1e-5 -o run.cert.json
      calipers audit mine:target --claim 1,1e-5
      calipers probe opacus --dataset-size 1000 --batch-size 100

    A run file is TOML with the names of the options and underscores for hyphens:

    \b
      dataset_size = 60000
      batch_size = 256
      epochs = 60
      noise_multiplier = 1.1
      sampler = "shuffle"

    Phases that differ in some keys follow one another as [[phase]] tables.

    Exit status: 0 on success, 2 on bad input, 1 when a bound could not be certified. On failure one
    sentence goes to standard error and nothing to standard output. `check` and --fail-on print what
    they found and end with 3 (not proven, open) or 4 (an attack shows more).
    """


for command in (
    measure_command,
    calibrate_command,
    curve_command,
    compare_command,
    check_command,
    certify_command,
    verify_command,
    receipt_command,
    verify_receipt_command,
    export_command,
    audit_command,
    probe_command,
    train_command,
    theorem_command,
    reproduce_command,
    explore_command,
):
    main.add_command(command)
