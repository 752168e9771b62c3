"""How the command says no: one sentence on standard error, an exit status, never a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import click

from calipers.errors import CalipersError, CertificationError
from calipers.provenance import typed
from calipers.synonyms import advice_on_key, key_named

INTERRUPTED = 130
DEBUG = "calipers.debug"
"""Where the program notes in its context that tracebacks are wanted."""
_LONGEST = 300
BY_OPTIONS = "calipers.by_options"
"""Where a command notes in its context which keys of the run were given as options."""


class RefusedInput(click.ClickException):
    """Bad input: one line for standard error, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class NotCertified(RefusedInput):
    """The input is sound, but a bound could not be certified: exit status 1."""

    exit_code = 1


class Defect(RefusedInput):
    """Something that nobody foresaw: exit status 70, and how to report it."""

    exit_code = 70

    def __init__(self, error: BaseException) -> None:
        what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
        what = what if len(what) <= _LONGEST else what[: _LONGEST - 1] + "…"
        super().__init__(
            f"Calipers failed ({what}). This is a defect of Calipers, not of what you asked; please report it with "
            "what `calipers --debug COMMAND ...` prints (CONTRIBUTING.md says how)."
        )


class SpeakingGroup(click.Group):
    """A group that turns what Calipers refuses, and files it cannot write, into refusals."""

    def main(self, args: Sequence[str] | None = None, *arguments: Any, **options: Any) -> Any:
        """Run the command, unless there is nowhere to print to; every document says which command wrote it."""
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # stays open until the process ends
        if sys.stdout is None:
            # A file opened now would become standard output, and be overwritten by what is printed.
            click.echo("Error: Standard output is closed; there is nowhere to print the result to.", err=True)
            sys.exit(RefusedInput.exit_code)
        given = list(sys.argv[1:] if args is None else args)
        with typed(given):
            return super().main(given, *arguments, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words before the command."""
        if not args:  # which prints the help, as a refusal of click's own
            return super().parse_args(ctx, args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _in_one_line(error) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a broken pipe is left to click, which ends quietly."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            if ctx.meta.get(DEBUG) and not isinstance(error, click.ClickException):
                click.echo(traceback.format_exc(), err=True, nl=False)
            raise self._refusal(ctx, error) from error

    def _refusal(self, ctx: click.Context, error: Exception) -> click.ClickException:
        """The sentence and the exit status of whatever a command raised."""
        if isinstance(error, click.UsageError):
            return _in_one_line(_with_names(error) if isinstance(error, click.NoSuchOption) else error)
        if isinstance(error, click.ClickException):
            return error
        if isinstance(error, CertificationError):
            return NotCertified(self._named(ctx, str(error)))
        if isinstance(error, CalipersError):
            return RefusedInput(self._named(ctx, str(error)))
        if isinstance(error, OSError):
            where = f" {error.filename}" if error.filename else ""
            return RefusedInput(f"Cannot read or write{where}: {error.strerror or error}.")
        if isinstance(error, MemoryError):
            return NotCertified("There is not enough memory for this; free some, or ask for less.")
        return Defect(error)

    def _named(self, ctx: click.Context, message: str) -> str:
        """The message with the options that were typed, where it names keys."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        others = [p.name for p in command.params if isinstance(p, click.Option) and p.name] if command else []
        from calipers.run import KEYS

        # Keys may also come from a run file; a command that reads none has them from its options alone.
        reads = command is not None and any(p.name in ("run_file", "run_path", "files") for p in command.params)
        own = [name for name in others if not reads or name not in KEYS]
        return naming_options(message, dict.fromkeys((*ctx.meta.get(BY_OPTIONS, ()), *own)))


def naming_options(message: str, keys: Iterable[str]) -> str:
    """The message with --noise-multiplier for noise_multiplier; an ordinary word only where it is a key."""
    keys = tuple(keys)
    for key in (*keys, *keys):  # twice: in a list a word is a key where the one before it is
        option = f"--{key.replace('_', '-')}"
        message = re.sub(rf"(?<![\w-]){key}='([^']+)'", rf"{option} \1", message)
        message = re.sub(rf"(?<![\w-]){key} = '([^']+)'", rf"{option} \1", message)
        message = re.sub(rf"(?<![\w-]){key} = (?=\d[\d.]*(?![\w/]))", f"{option} ", message) if "_" in key else message
        message = re.sub(rf"(?<![\w-]){key}=(?=\S)", f"{option} ", message)
        if "_" in key:
            message = re.sub(rf"(?<![\w-]){key}\b", option, message)
        else:
            message = re.sub(rf"\b{key}(?= or epochs| and epochs contradict)", option, message)
            before = r"\b(?:Expected|[Ll]eave out|give|add|or|and|needs|one of)|--[\w-]+,"
            after = r" in | to be | or | and | contradict| for it|[.;,:]|$"
            message = re.sub(rf"({before}) {key}(?={after})", rf"\1 {option}", message)
    return message


def _in_one_line(error: click.UsageError) -> click.UsageError:
    """The refusal without the usage above it, and where there is more to read."""
    command = error.ctx.command_path if error.ctx is not None else "calipers"
    message = error.format_message()
    extra = re.fullmatch(r"Got unexpected extra argument \((\S+\.toml)\)\.?", message)
    if extra and error.ctx is not None and any("--run" in option.opts for option in error.ctx.command.params):
        message = f"{message.rstrip('.')}. Did you mean --run {extra[1]}?"
    ended = message.endswith((".", "?", "?)"))
    return click.UsageError(f"{message}{'' if ended else '.'} Try '{command} --help'.")


def _with_names(error: click.NoSuchOption) -> click.UsageError:
    """The same refusal, naming the option that is meant by another name, or that begins with what was typed."""
    options = error.ctx.command.params if error.ctx is not None else []
    known = [name for option in options for name in option.opts]
    typed = error.option_name.lstrip("-").lower().replace("_", "-")
    refused = f"No such option {error.option_name!r}."
    meant = f"--{(key_named(typed) or typed).replace('_', '-')}"
    advice = naming_options(advice_on_key(typed), [name.lstrip("-").replace("-", "_") for name in known])
    # Elsewhere --epsilon asks for the delta at an epsilon.
    is_target = error.ctx is not None and error.ctx.info_name in ("calibrate", "check")
    if advice and (meant not in known or (typed == "target-epsilon" and not is_target)):
        return click.UsageError(f"{refused} {advice}", error.ctx)
    longer = [name for name in known if name == meant]
    longer = longer or [name for name in known if name.startswith(error.option_name) and name.startswith("--")]
    if not longer:
        return error
    return click.UsageError(f"{refused} Did you mean {' or '.join(longer)}?", error.ctx)
