"""The ledger: finished chunks of a game, kept in one SQLite file so that nothing has to be played twice.

- **A chunk is there whole or not at all.** Each is one transaction in a write-ahead log, flushed before the next is
  accepted. Killing the process at any moment leaves every recorded chunk readable; what was in flight is lost.
- **A ledger belongs to one game.** It holds the game's fingerprint: the digest of what the target, the distinguisher,
  the seed, the number of trials and the chunk size are, and of every module of the user's (`calipers.user_code`). A
  ledger with another fingerprint is refused, and the message says what differs; of modules, those count that are loaded
  both times. The number of trials is part of it on purpose: playing on because the first result was not yet
  significant would spoil the confidence level.
- **Nothing is overwritten.** A file that exists is opened only when the caller asks to resume, and only if it is a
  ledger: its first hundred bytes say whether it is an SQLite database of ours, before SQLite gets to see it. A new
  ledger is written next to its place and moved there when it is complete.
- **One writer.** The file is locked while a game is played; a second game is refused.
- **Damage is noticed.** Every chunk carries the digest of its numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calipers.errors import InputError
from calipers.numerics.types import FloatArray
from calipers.user_code import changed_modules

FORMAT = 2
MODULES = "modules"
# "CALI" in ASCII, at bytes 68-71 of the file: SQLite's own place for whose database it is.
APPLICATION = 0x43414C49
HEADER = b"SQLite format 3\x00"
LOCK_SECONDS = 1.0

_SCHEMA = (
    "CREATE TABLE game (fingerprint TEXT NOT NULL, description TEXT NOT NULL)",
    "CREATE TABLE chunk (number INTEGER PRIMARY KEY, shape TEXT NOT NULL, absent BLOB NOT NULL, present BLOB NOT NULL,"
    " digest TEXT NOT NULL)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)


class LedgerError(InputError):
    """A ledger is damaged, in use, or belongs to another game. It is left as it is."""


@dataclass(frozen=True)
class PlayedChunk:
    """The scores of one chunk, and the shape of one run's output."""

    number: int
    absent: FloatArray
    present: FloatArray
    shape: tuple[int, ...]


def fingerprint(description: dict[str, object]) -> str:
    """SHA-256 of the description as canonical JSON."""
    return hashlib.sha256(_canonical(description).encode()).hexdigest()


class Ledger(AbstractContextManager["Ledger"]):
    """An open ledger. `open_ledger` makes one; use it in a `with` block."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def record(self, chunk: PlayedChunk) -> None:
        """Keep a chunk, in one transaction. Afterwards it survives the end of this process."""
        absent, present = _packed(chunk.absent), _packed(chunk.present)
        shape = json.dumps(list(chunk.shape))
        row = (chunk.number, shape, absent, present, _digest(chunk.number, shape, absent, present))
        with _speaking(self.path), self._connection:
            self._connection.execute("INSERT INTO chunk VALUES (?, ?, ?, ?, ?)", row)

    def chunks(self) -> dict[int, PlayedChunk]:
        """Every recorded chunk, its digest checked."""
        found = {}
        with _speaking(self.path):
            rows = self._connection.execute("SELECT number, shape, absent, present, digest FROM chunk").fetchall()
        for number, shape, absent, present, digest in rows:
            if digest != _digest(number, shape, absent, present):
                raise LedgerError(f"The ledger {self.path} is damaged: chunk {number} does not match its digest.")
            found[number] = PlayedChunk(number, _unpacked(absent), _unpacked(present), tuple(json.loads(shape)))
        return found

    def __exit__(self, *_: object) -> None:
        """Fold the log into the file and let go of it."""
        with _speaking(self.path):
            self._connection.close()


def open_ledger(path: Path, description: dict[str, object], *, resume: bool) -> Ledger:
    """The ledger of the described game at `path`: a new one, or with `resume` the one that is there.

    Raises `LedgerError` for a file that is there without `resume`, is no ledger, is damaged, is in use, or belongs to
    another game; the file is never changed then.
    """
    path = Path(path)
    if path.is_symlink() and not path.exists():
        raise LedgerError(f"{path} is a link to {os.readlink(path)}, which is not there; name another file.")
    if path.exists():
        if not resume:
            raise LedgerError(
                f"The ledger {path} exists already; add resume (--resume) to go on with it, or name another file."
            )
        _refuse_foreign(path)
    else:
        _create(path, description)
    with _speaking(path):
        connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level="IMMEDIATE")
        try:
            _take(connection)
            _compare(path, connection, description)
        except BaseException:
            connection.close()
            raise
    return Ledger(path, connection)


def _take(connection: sqlite3.Connection) -> None:
    """Lock the file for this process. An exclusive lock also spares the log its shared-memory file."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict))


def _compare(path: Path, connection: sqlite3.Connection, description: dict[str, object]) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT:
        raise LedgerError(f"The ledger {path} has format {version}; this version of Calipers reads format {FORMAT}.")
    row = connection.execute("SELECT fingerprint, description FROM game").fetchone()
    if row is None or fingerprint(json.loads(row[1])) != row[0]:
        raise LedgerError(f"The ledger {path} is damaged: it does not say which game it belongs to.")
    begun, now = json.loads(row[1]), json.loads(_canonical(description))
    if not isinstance(begun, dict) or not isinstance(begun.get(MODULES, {}), dict):
        raise LedgerError(f"The ledger {path} is damaged: it does not say with which code it was begun.")
    if changed := changed_modules(begun.pop(MODULES, {}), now.pop(MODULES, {})):
        raise LedgerError(
            f"The ledger {path} was begun with other code: {', '.join(changed[:4])} changed since. Put back what was "
            "there, or name another file."
        )
    if begun != now:
        there, here = _flat(begun), _flat(now)
        keys = sorted(key for key in there.keys() | here.keys() if there.get(key) != here.get(key))
        shown = "; ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in keys[:4])
        raise LedgerError(f"The ledger {path} belongs to another game: {shown}. Name another file.")


def _create(path: Path, description: dict[str, object]) -> None:
    """A complete, empty ledger, moved to its place in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    game = fingerprint(description), _canonical(description)
    try:
        with _speaking(path):
            draft.unlink(missing_ok=True)
            with closing(sqlite3.connect(draft)) as connection, connection:
                for line in _SCHEMA:
                    connection.execute(line)
                connection.execute("INSERT INTO game VALUES (?, ?)", game)
        _move_new(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _move_new(draft: Path, path: Path) -> None:
    """Give the draft its name, unless somebody else has just taken it."""
    try:
        os.link(draft, path)
    except FileExistsError as error:
        raise LedgerError(f"The ledger {path} was created by another process just now; name another file.") from error
    except OSError:  # a file system without hard links
        os.rename(draft, path)


def _refuse_foreign(path: Path) -> None:
    """Read the header without SQLite, which would touch a database of somebody else's."""
    if not path.is_file():
        raise LedgerError(f"{path} is not a file; name a file for the ledger.")
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(HEADER):
        raise LedgerError(f"{path} is not a ledger of Calipers (no SQLite database); it is left as it is.")
    if int.from_bytes(head[68:72], "big") != APPLICATION:
        raise LedgerError(f"{path} is an SQLite database, but no ledger of Calipers; it is left as it is.")


@contextmanager
def _speaking(path: Path) -> Iterator[None]:
    """Turn what SQLite or the system says into a sentence."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        if "locked" in str(error):
            raise LedgerError(
                f"The ledger {path} is in use by another game; wait for it, or name another file."
            ) from error
        reason = error.strerror if isinstance(error, OSError) else error
        raise LedgerError(f"The ledger {path} cannot be used: {reason}. Name another file.") from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise LedgerError(f"The ledger {path} is damaged: {error}. It is left as it is.") from error


def _packed(scores: FloatArray) -> bytes:
    return np.ascontiguousarray(scores, dtype="<f8").tobytes()


def _unpacked(blob: bytes) -> FloatArray:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)


def _digest(number: int, shape: str, absent: bytes, present: bytes) -> str:
    total = hashlib.sha256(f"{number} {shape} {len(absent)} ".encode())
    total.update(absent)
    total.update(present)
    return total.hexdigest()


def _canonical(description: dict[str, object]) -> str:
    try:
        return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"An identity must be JSON (plain numbers, strings, lists, dicts): {error}.") from error


def _flat(record: object, prefix: str = "") -> dict[str, object]:
    """Nested keys joined by dots, for messages."""
    if not isinstance(record, dict):
        return {prefix: record}
    found: dict[str, object] = {}
    for key, value in record.items():
        found |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found
