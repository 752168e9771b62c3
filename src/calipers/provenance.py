"""Where a document comes from: the version, the date, the command, and a hash.

A number on paper is worth what can be said about its origin. Every JSON object, report and receipt that Calipers writes
carries the same few facts, made here and nowhere else:

    calipers    the version that computed it
    date        when it was written, UTC; `SOURCE_DATE_EPOCH` sets the clock, so that a build can be repeated
    command     the command line, or "python SCRIPT" where Calipers was called from Python
    run_sha256  the hash of the run in its exact form: equal in every document about the same run
    sha256      the hash of the document itself, without this key

A hash shows damage and tells documents apart. It is no signature: whoever alters a file on purpose can compute it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from calipers._version import __version__
from calipers.errors import InputError

_COMMAND: ContextVar[str | None] = ContextVar("calipers_command", default=None)


@contextmanager
def typed(arguments: Sequence[str]) -> Iterator[None]:
    """Within the block, documents come from the command line with these arguments."""
    token = _COMMAND.set(shlex.join(["calipers", *arguments]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command() -> str:
    """The command line, or the script that called."""
    typed = _COMMAND.get()
    if typed is not None:
        return typed
    script = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-", "-c") else "interactively"
    return f"python {script}"


def date() -> str:
    """Now, in UTC to the second; `SOURCE_DATE_EPOCH`, seconds since 1970, stands in for now where it is set."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        moment = datetime.now(UTC) if fixed is None else datetime.fromtimestamp(int(fixed), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"Expected SOURCE_DATE_EPOCH to be a number of seconds, got {fixed!r}.") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def digest(record: object) -> str:
    """SHA-256 of a strict JSON value, written in one fixed way; doubles by the shortest digits that give them back."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def origin(run: Mapping[str, object] | None = None) -> dict[str, object]:
    """The facts about a document, but for its own hash; `run` is the record of the run it is about, if it has one."""
    about: dict[str, object] = {"calipers": __version__, "date": date(), "command": command()}
    return about if run is None else about | {"run_sha256": digest(run)}


def sealed(record: Mapping[str, object], run: Mapping[str, object] | None = None) -> dict[str, object]:
    """A strict JSON object with its origin under the key "provenance", its own hash included."""
    about = origin(run)
    return {**record, "provenance": {**about, "sha256": digest({**record, "provenance": about})}}


def is_intact(record: Mapping[str, object]) -> bool:
    """Whether a sealed object has the hash that it carries."""
    about = record.get("provenance")
    if not isinstance(about, Mapping):
        return False
    rest = {key: value for key, value in about.items() if key != "sha256"}
    try:
        return digest({**record, "provenance": rest}) == about.get("sha256")
    except (TypeError, ValueError, RecursionError):
        return False
