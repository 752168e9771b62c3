"""How the command says no: one sentence on standard error, an exit status, never a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Any

import click

from calipers.errors import CalipersError, CertificationError
from calipers.provenance import typed

INTERRUPTED = 130


class Refusal(click.ClickException):
    """Bad input: one line for standard error, exit status 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class NotCertified(Refusal):
    """The input is sound, but a bound could not be certified: exit status 1."""

    exit_code = 1


class SpeakingGroup(click.Group):
    """A group that turns what Calipers refuses, and files it cannot write, into refusals."""

    def main(self, args: Sequence[str] | None = None, *arguments: Any, **options: Any) -> Any:
        """Remember what was typed: every document says which command wrote it."""
        given = list(sys.argv[1:] if args is None else args)
        with typed(given):
            return super().main(given, *arguments, **options)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a broken pipe is left to click, which ends quietly."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _with_beginnings(error) from None
        except CertificationError as error:
            raise NotCertified(str(error)) from error
        except CalipersError as error:
            raise Refusal(str(error)) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            where = f" {error.filename}" if error.filename else ""
            raise Refusal(f"Cannot read or write{where}: {error.strerror or error}.") from error


def _with_beginnings(error: click.NoSuchOption) -> click.UsageError:
    """The same refusal, naming the options that begin with what was typed (--noise: --noise-multiplier) if any do."""
    options = error.ctx.command.params if error.ctx is not None else []
    longer = [name for option in options for name in option.opts if name.startswith(error.option_name)]
    if not longer:
        return error
    return click.UsageError(f"No such option {error.option_name!r}. Did you mean {' or '.join(longer)}?", error.ctx)
