"""The command `calipers`.

Every command builds its objects, computes, renders, and only then prints: a command that fails
leaves standard output empty. A command's file is imported when it is asked for, and heavy libraries
inside the commands, so that the first verdict and `--help` come at once.
"""

from __future__ import annotations

from importlib import import_module

import click

from calipers._version import __version__
from calipers.cli.failures import DEBUG, SpeakingGroup

__all__ = ["main"]


_NAMES = "audit calibrate certify check compare curve explore export measure probe receipt reproduce theorem train"
_FILES = {name: name for name in _NAMES.split()} | {"verify": "certify", "verify-receipt": "receipt"}
"""Every command, and the file it is defined in."""


class _Commands(SpeakingGroup):
    """The commands, each imported when it is first asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing anything."""
        return list(_FILES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name: `measure_command` of `calipers.cli.measure`."""
        if cmd_name not in _FILES:
            return None
        file = import_module(f"calipers.cli.{_FILES[cmd_name]}")
        command: click.Command = getattr(file, f"{cmd_name.replace('-', '_')}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed; what is none is refused with the nearest one."""
        if args and not args[0].startswith("-") and args[0] not in _FILES:
            import difflib

            near = difflib.get_close_matches(args[0].lower(), _FILES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _remember_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[DEBUG] = value


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="calipers")
@click.option(
    "--debug",
    is_flag=True,
    envvar="CALIPERS_DEBUG",
    expose_value=False,
    callback=_remember_debug,
    help="Where a command fails or refuses, also show the traceback (or set CALIPERS_DEBUG=1).",
)
def main() -> None:
    """Measure the privacy of the DP-SGD run that was actually executed, from both sides.

    The upper bound is a proof: the run leaks no more than this. The lower bound is an attack: an
    explicit adversary provably gets this much. Every number is one of the two and names its
    proof or attack.

    \b
    Examples:
      calipers measure --dataset-size 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1
      calipers measure run.toml --delta 1e-6 --json
      calipers calibrate --sample-rate 0.01 --steps 1000 --epsilon 3 --delta 1e-5
      calipers compare poisson.toml shuffle.toml
      calipers check run.toml --epsilon 3 --delta 1e-5
      calipers certify run.toml --delta 1e-5 -o run.cert.json
      calipers audit mine:target --claim 1,1e-5
      calipers probe opacus --dataset-size 1000 --batch-size 100

    A run file (RUN; --run RUN is the same) is TOML with the names of the options and underscores for hyphens:

    \b
      dataset_size = 60000
      batch_size = 256
      epochs = 60
      noise_multiplier = 1.1
      sampler = "shuffle"

    Phases that differ in some keys follow one another as [[phase]] tables.

    \b
    Exit status:
      0    success
      1    a bound could not be certified, or a certificate is refused
      2    bad input, or nothing is proven about such a run (`check`: 1)
      3, 4 check, verify-receipt, --fail-on: see their --help
      70   a defect of Calipers; please report it with what
           `calipers --debug COMMAND ...` shows
      130  interrupted

    With 1, 2 and 70 one sentence goes to standard error and nothing to standard output. But `check` prints the outcome
    of every run to standard output, also with 1, and `reproduce` the items that did not fail.
    """
