"""Snapshots of sessions in an SQLite database."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agentsdir.engine.app.session_store import (
    SessionIds,
    Snapshot,
    check_session_id,
    decode_kept,
    encode_kept,
    is_there,
)
from agentsdir.engine.snapshots import BAD_SNAPSHOT
from agentsdir.formats.errors import Busy, Invalid, NotRecorded
from agentsdir.formats.store import files
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import TEMPORARY

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from agentsdir.formats.errors import AgentsdirError

Rows: TypeAlias = list[Any]

_LOCKED = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_OF_THE_SYSTEM = (3, 8, 10, 13, 14)  # …_PERM, _READONLY, _IOERR, _FULL, _CANTOPEN
_MADE = """CREATE TABLE IF NOT EXISTS agentsdir_sessions (
    id TEXT PRIMARY KEY NOT NULL,
    kept BLOB NOT NULL
) WITHOUT ROWID"""
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'agentsdir_sessions'"


class SqliteSessionStore:
    """A table with a row for each session in a database, which may be the program's own.

    See `SessionStore`. Each call opens the database and closes it again, so that threads share no
    connection and a forked process inherits none. The journal mode is the one that the database
    has: SQLite's own default for a new one. A write-ahead log would gain nothing for transactions
    of one row, has two more files, and works on no network file system.

    Args:
        path: of the database, which is made with the first snapshot, private.
        timeout: how many seconds a call waits while another process writes.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        self._path = Path(path)
        self._timeout = timeout

    def save(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before. Raises `Busy` after the timeout, too."""
        kept = encode_kept(session_id, snapshot)
        self._make()
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(_MADE)
            database.execute(
                "INSERT INTO agentsdir_sessions VALUES (?, ?)"
                " ON CONFLICT (id) DO UPDATE SET kept = excluded.kept",
                (session_id, kept),
            )
            database.execute("COMMIT")

    def load(self, session_id: str) -> Snapshot | None:
        """Return the snapshot as it was saved; None without one."""
        rows = self._rows("SELECT kept FROM agentsdir_sessions WHERE id = ?", session_id)
        if not rows:
            return None
        kept = rows[0][0]
        where = f"the row of session {session_id!r:.80} in {self._path}"
        return decode_kept(kept if isinstance(kept, bytes) else b"", session_id, where)

    def delete(self, session_id: str) -> None:
        """Forget a session's snapshot."""
        if self.has(session_id):
            with self._opened() as database:
                database.execute("DELETE FROM agentsdir_sessions WHERE id = ?", (session_id,))

    def list(self) -> SessionIds:
        """Return the ids of the sessions, sorted."""
        found = [row[0] for row in self._rows("SELECT id FROM agentsdir_sessions")]
        if not all(isinstance(session_id, str) for session_id in found):
            raise self._damaged("an id in it is no text")
        return sorted(found)

    def has(self, session_id: str) -> bool:
        """Return whether a session has a row."""
        return bool(self._rows("SELECT 1 FROM agentsdir_sessions WHERE id = ?", session_id))

    def _rows(self, question: str, *session_id: str) -> Rows:
        values = [check_session_id(one) for one in session_id]
        if not is_there(self._path):
            return []
        with self._opened() as database:
            # Another process may have made the file, and not the table yet.
            if database.execute(_HAS_TABLE).fetchone() is None:
                return []
            return database.execute(question, values).fetchall()

    def _make(self) -> None:
        """Make a private empty file, which SQLite takes for a database.

        It must not be open when it gets its name: to close it would take away the locks that
        another thread holds by then.
        """
        if is_there(self._path):
            return
        files.make_folder(self._path.parent, Disk())
        temporary = self._path.with_name(f"{TEMPORARY}{self._path.name}-{os.urandom(6).hex()}")
        try:
            files.write_new(temporary, b"", None)
            with suppress(FileExistsError):
                os.link(temporary, self._path)
        except OSError as error:
            raise NotRecorded(f"cannot make {self._path}: {error.strerror}") from error
        finally:
            files.remove(temporary)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the database; what SQLite raises becomes an error of this program."""
        import sqlite3

        try:
            with closing(
                # Whole, since SQLite takes `:memory:`, and what begins with `file:`, for no path.
                sqlite3.connect(self._path.absolute(), timeout=self._timeout, isolation_level=None)
            ) as database:
                yield database
        except sqlite3.Error as error:
            raise self._refused(error) from error

    def _refused(self, error: sqlite3.Error) -> AgentsdirError:
        # The first byte is the code, those above it say more.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _LOCKED:
            return Busy(
                f"another process keeps {self._path} locked for over {self._timeout:g} seconds"
            )
        if code in _OF_THE_SYSTEM:
            return NotRecorded(f"cannot use {self._path}: {error}")
        return self._damaged(str(error))

    def _damaged(self, why: str) -> Invalid:
        return Invalid(
            f"{self._path} is no sound database of sessions: {why}",
            hint="put it back from a copy, or name another file: the log of a session has all of "
            "its conversation",
            kind=BAD_SNAPSHOT,
        )
