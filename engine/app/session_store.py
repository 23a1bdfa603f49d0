"""Stores of snapshots: what `App` saves sessions in, beside their logs (docs/library.md)."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import unquote

from agentsdir.engine.snapshots import BAD_SNAPSHOT
from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, NotRecorded, UsageError
from agentsdir.formats.store import files
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import MAX_DOCUMENT, read_limited

if TYPE_CHECKING:
    import os

Snapshot: TypeAlias = dict[str, Any]
SessionIds: TypeAlias = list[str]

MAX_ID = 512
"""The most characters of a session's id."""


@runtime_checkable
class SessionStore(Protocol):
    """Keeps the last snapshot of each session, under the id that the program knows it by.

    Any number of threads and processes may use one store at once: a call takes effect whole, or
    raises and changes nothing. tests/engine/app/store_conformance.py tests what is said here.
    """

    def save(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before.

        Raises `UsageError` (kind ``bad-id``) for an id that is empty, longer than `MAX_ID` or no
        text, `Invalid` for a snapshot that is no object of JSON (kind ``value-refused``) or too
        large (``too-large``), and `NotRecorded` or `Uncertain` where the disk refuses.
        """

    def load(self, session_id: str) -> Snapshot | None:
        """Return the snapshot as it was saved; None for a session that has none.

        Raises `UsageError` as `save` does, and `Invalid` (kind ``bad-snapshot``) for a damaged one.
        """

    def delete(self, session_id: str) -> None:
        """Forget a session's snapshot, also a damaged one; nothing happens without one.

        Raises `UsageError` and `NotRecorded` as `save` does.
        """

    def list(self) -> SessionIds:
        """Return the ids of the sessions that have a snapshot, sorted."""

    def has(self, session_id: str) -> bool:
        """Return whether a session has a snapshot, which may be damaged."""


def check_session_id(session_id: Any) -> str:
    """Return an id that a store takes. Raises `UsageError` (kind ``bad-id``) for another one."""
    if type(session_id) is not str or not 0 < len(session_id) <= MAX_ID:
        raise UsageError(f"a session's id is a text of 1 to {MAX_ID} characters", kind="bad-id")
    try:
        session_id.encode()
    except UnicodeEncodeError:
        raise UsageError("a session's id has half a character", kind="bad-id") from None
    return session_id


def encode_kept(session_id: str, snapshot: Any) -> bytes:
    """Return what the stores of this program keep of a session: a line of JSON.

    Raises `UsageError` and `Invalid` as `SessionStore.save` does.
    """
    check_session_id(session_id)
    if type(snapshot) is not dict:
        raise Invalid("a snapshot is an object", kind="value-refused")
    data = jsontext.encode_line({"id": session_id, "snapshot": snapshot})
    if len(data) > MAX_DOCUMENT:
        raise Invalid(
            f"the snapshot of session {session_id!r:.80} has {len(data)} bytes; the most is "
            f"{MAX_DOCUMENT}",
            kind="too-large",
        )
    return data


def decode_kept(data: bytes, session_id: str, where: str) -> Snapshot:
    """Return the snapshot of a session from what `encode_kept` made.

    Args:
        where: it is kept, for the message.

    Raises `Invalid` (kind ``bad-snapshot``).
    """
    try:
        kept = jsontext.decode(data)
    except jsontext.JSONDecodeError as error:
        raise _damaged(where, f"not JSON: {error}") from None
    if not isinstance(kept, dict) or type(kept.get("snapshot")) is not dict:
        raise _damaged(where, "it holds no snapshot")
    if kept.get("id") != session_id:
        raise _damaged(where, f"it is of another session, {kept.get('id')!r:.80}")
    snapshot: Snapshot = kept["snapshot"]
    return snapshot


def _damaged(where: str, why: str) -> Invalid:
    return Invalid(
        f"{where} is damaged: {why}",
        hint="put it back from a copy, or delete the session from the store: its log has all of "
        "its conversation",
        kind=BAD_SNAPSHOT,
    )


def is_there(path: Path) -> bool:
    """Return whether something stands at a path, links followed.

    Raises `Invalid` (kind ``unreadable``) where the system does not say: a session must not look as
    if it had no snapshot.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}", kind="unreadable") from error
    return True


SUFFIX = ".json"
_OTHERS = re.compile(r"[^a-z0-9_-]")
_NAME = re.compile(r"[a-z0-9_%~-]+\.json")
_LONGEST = 200
"""Bytes of a file's name, less the suffix, from which on it ends in a digest."""


class FileSessionStore:
    """A folder with a file for each session: ``{"id": …, "snapshot": …}`` (see `SessionStore`).

    Files are private, and replaced in one step. A file is named by the id, with `%xx` for each byte
    that is no small letter, digit, `-` or `_`; a name that is too long ends in `~` and a digest.

    Args:
        folder: made with the first snapshot, private too.
        durable: whether `save` waits until the disk has confirmed the snapshot. If not, a power cut
            can bring back an older one, or damage it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._folder = Path(folder)
        self._durability = Durability.ALWAYS if durable else Durability.NEVER

    def save(self, session_id: str, snapshot: Snapshot) -> None:
        """Keep a snapshot in place of the one before."""
        data = encode_kept(session_id, snapshot)
        disk = Disk(self._durability)
        files.make_folder(self._folder, disk)
        files.replace_file(self._path(session_id), data, disk)

    def load(self, session_id: str) -> Snapshot | None:
        """Return the snapshot as it was saved; None without one."""
        path = self._path(session_id)
        try:
            return decode_kept(read_limited(path, MAX_DOCUMENT), session_id, str(path))
        except FileNotFoundError:
            return None

    def delete(self, session_id: str) -> None:
        """Forget a session's snapshot."""
        path = self._path(session_id)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise NotRecorded(f"cannot remove {path}: {error.strerror}") from error

    def list(self) -> SessionIds:
        """Return the ids of the sessions, sorted.

        Raises `Invalid` for a folder that cannot be read, and (kind ``bad-snapshot``) for a damaged
        file whose name does not say the id.
        """
        try:
            names = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            message = f"cannot read {self._folder}: {error.strerror}"
            raise Invalid(message, kind="unreadable") from error
        found = (self._id_of(name) for name in names if _NAME.fullmatch(name))
        return sorted(session_id for session_id in found if session_id is not None)

    def has(self, session_id: str) -> bool:
        """Return whether a session has a file."""
        path = self._path(session_id)
        return is_there(path) and path.is_file()

    def _path(self, session_id: str) -> Path:
        quoted = _OTHERS.sub(_quoted, check_session_id(session_id))
        if len(quoted) > _LONGEST:
            digest = sha256(session_id.encode()).hexdigest()[:32]
            quoted = f"{quoted[: _LONGEST // 2]}~{digest}"
        return self._folder / f"{quoted}{SUFFIX}"

    def _id_of(self, name: str) -> str | None:
        """Return the id of the session of a file; None for one that is not the store's, or went."""
        if "~" not in name:
            session_id = unquote(name.removesuffix(SUFFIX))
            return session_id if self._path(session_id).name == name else None
        path = self._folder / name
        try:
            kept = jsontext.decode(read_limited(path, MAX_DOCUMENT))
            session_id = check_session_id(kept["id"])
        except FileNotFoundError:
            return None
        except (jsontext.JSONDecodeError, KeyError, TypeError, UsageError):
            raise _damaged(str(path), "it does not say of which session it is") from None
        return session_id


def _quoted(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found[0].encode())
