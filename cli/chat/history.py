"""What was typed in earlier conversations: a file of JSON Lines that only its user can read."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from prompt_toolkit.history import History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_ENTRIES = 5000
"""Of a longer file the newest entries are kept."""
MAX_BYTES = 16 * 1024 * 1024
"""Of a longer file nothing is read from before its last bytes."""


def state_folder(variables: Mapping[str, str], home: Path) -> Path:
    """Return the folder of what the program keeps for its user, which may not exist."""
    configured = Path(variables.get("XDG_STATE_HOME", ""))
    base = configured if configured.is_absolute() else home / ".local" / "state"
    return base / "agentsdir"


class KeptHistory(History):
    """The lines that were typed, in `chat-history.jsonl`, one JSON string a line, newest last.

    Nothing that is wrong with the file ends the conversation: what cannot be read is set aside
    under another name, and what cannot be written is kept in memory only.

    Args:
        notify: called with a sentence about what is wrong.
    """

    def __init__(self, folder: Path, notify: Callable[[str], None]) -> None:
        super().__init__()
        self._path = folder / "chat-history.jsonl"
        self._notify = notify
        self._is_writable = True

    def load_history_strings(self) -> Iterable[str]:
        """Return the entries, the newest first."""
        try:
            data, is_whole = _read(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._give_up(error)
            return []
        entries, is_damaged = _entries(data)
        if is_damaged:
            self._set_aside(entries)
        elif len(entries) > MAX_ENTRIES or not is_whole:
            with suppress(OSError):
                self._rewrite(entries[-MAX_ENTRIES:])
        return entries[: -MAX_ENTRIES - 1 : -1]

    def store_string(self, string: str) -> None:
        """Append an entry, unless the file cannot be written."""
        if not self._is_writable:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            try:
                _check(descriptor, self._path)
                os.write(descriptor, _encoded([string]))
            finally:
                os.close(descriptor)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._is_writable = False
        reason = error.strerror or error
        self._notify(f"{self._path}: {reason}; what is typed now is not kept")

    def _set_aside(self, sound: list[str]) -> None:
        """Keep a damaged file under another name, and what is sound of it under its own."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        try:
            self._path.rename(aside)
            self._rewrite(sound)
        except OSError as error:
            self._give_up(error)
            return
        self._notify(
            f"{self._path} was damaged: it is {aside.name} now, and what was sound goes on"
        )

    def _rewrite(self, entries: list[str]) -> None:
        new = self._path.with_name(f"{self._path.name}.new-{os.getpid()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123, a descriptor
            stream.write(_encoded(entries))
        new.replace(self._path)


def _encoded(entries: list[str]) -> bytes:
    clean = [entry.encode(errors="replace").decode() for entry in entries]
    return b"".join(orjson.dumps(entry) + b"\n" for entry in clean)


def _read(path: Path) -> tuple[bytes, bool]:
    """Return a file, or the whole lines at its end if it is long, and whether that is all of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123, a descriptor
        size = _check(descriptor, path)
        if size <= MAX_BYTES:
            return stream.read(MAX_BYTES), True
        stream.seek(size - MAX_BYTES)
        return stream.read(MAX_BYTES).partition(b"\n")[2], False


def _check(descriptor: int, path: Path) -> int:
    """Return a file's size. Raises `OSError` for what is no regular file of this user alone."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is no regular file", str(path))
    if status.st_uid != os.geteuid():
        raise OSError(0, "it belongs to another user", str(path))
    if status.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)
    return status.st_size


def _entries(data: bytes) -> tuple[list[str], bool]:
    """Return the sound entries of a file, and whether there is anything else in it."""
    entries = []
    is_damaged = bool(data) and not data.endswith(b"\n")
    for line in data.splitlines():
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            entry = None
        if isinstance(entry, str):
            entries.append(entry)
        else:
            is_damaged = True
    return entries, is_damaged
