"""What a filter has spent, kept where neither a crash nor a second process can lose it.

A file is an SQLite database. Every step is written in a transaction of its own *before* it is taken, forced to the disk
(synchronous = FULL), under SQLite's lock: a process that is killed has spent what it wrote, and two processes that ask
at once are served one after the other. Costs and budget are written when the file is made and read from then on, so a
later version of Calipers cannot change what was fixed before the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from calipers.errors import InputError

FORMAT = 1
WAIT_SECONDS = 20.0
_TABLES = (
    "CREATE TABLE filter (format INTEGER NOT NULL, described TEXT NOT NULL, digest TEXT NOT NULL, rule TEXT NOT NULL)",
    "CREATE TABLE spent (number INTEGER PRIMARY KEY AUTOINCREMENT, step TEXT NOT NULL, times INTEGER NOT NULL)",
)
Counts = dict[str, int]


class MemoryState:
    """Counts that live as long as the process."""

    def __init__(self) -> None:
        self._counts: Counts = {}

    def counts(self) -> Counts:
        """Steps of each kind so far."""
        return dict(self._counts)

    def add(self, step: str, times: int, allowed: Callable[[Counts], bool]) -> bool:
        """Count the steps if they are allowed after what was spent."""
        counts = self.counts() | {step: self._counts.get(step, 0) + times}
        if not allowed(counts):
            return False
        self._counts = counts
        return True


class FileState:
    """Counts in a file that several processes may share."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def opened(self, described: Mapping[str, object], rule: Callable[[], Mapping[str, object]]) -> dict[str, object]:
        """The rule of the file that is there, or the one just made for a new file.

        Raises:
            InputError: the file is no filter, is damaged, or is that of another menu or target; it is left as it is.
        """
        text = json.dumps(described, sort_keys=True)
        if not self.path.exists():
            made = json.dumps(rule(), sort_keys=True)
            with self._transaction() as connection:
                if not connection.execute("SELECT name FROM sqlite_master").fetchall():
                    for table in _TABLES:
                        connection.execute(table)
                    row = (FORMAT, text, _digest(text, made), made)
                    connection.execute("INSERT INTO filter VALUES (?, ?, ?, ?)", row)
        with self._transaction() as connection:
            found = connection.execute("SELECT format, described, digest, rule FROM filter").fetchone()
        if found is None or found[0] != FORMAT or found[2] != _digest(found[1], found[3]):
            raise InputError(f"The filter {self.path} is damaged or of another version; it is left as it is.")
        if found[1] != text:
            raise InputError(
                f"The filter {self.path} was made for another menu or target. Menu, epsilon and delta are fixed before "
                "the run: give those of the file, or name another file for another run."
            )
        record: dict[str, object] = json.loads(found[3])
        return record

    def counts(self) -> Counts:
        """Steps of each kind so far, by all processes."""
        with self._transaction() as connection:
            return _counted(connection)

    def add(self, step: str, times: int, allowed: Callable[[Counts], bool]) -> bool:
        """Write the steps if they are allowed after what all processes have spent; True once that is on the disk."""
        with self._transaction() as connection:
            counts = _counted(connection)
            counts[step] = counts.get(step, 0) + times
            if not allowed(counts):
                return False
            connection.execute("INSERT INTO spent (step, times) VALUES (?, ?)", (step, times))
        return True

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction under the lock; a connection of its own, so that processes may fork."""
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise InputError(
                f"The filter {self.path} cannot be used now: {error}. Wait for the other process, or check the folder."
            ) from error
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} is no filter of Calipers: {error}. It is left as it is.") from error


def _counted(connection: sqlite3.Connection) -> Counts:
    rows = connection.execute("SELECT step, SUM(times) FROM spent GROUP BY step").fetchall()
    return {str(step): int(times) for step, times in rows}


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
