"""Where everything stands in an agents directory (SPEC.md, "Layout").

Paths are made here and nowhere else, and opened through `open_plain`, which follows no link and
takes regular files only.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsdir.formats import ids, jsontext
from agentsdir.formats.errors import (
    Invalid,
    NoSuchAgent,
    NotRecorded,
    ProviderError,
    UnknownVersion,
    UnsafePath,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


FORMAT = "agentsdir"
VERSION = 1
ROOT_NAME = ".agentsdir"
"""What an agents directory is called that is found by search."""
DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
TEMPORARY = ".tmp-"
MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes that a JSON document may have, as a line of a log may."""


class AgentPaths:
    """The files of one agent's folder, whose path is `place`."""

    def __init__(self, folder: Path | str, agent_id: str) -> None:
        self.place = str(folder)
        self.id = agent_id

    @cached_property
    def folder(self) -> Path:
        """The folder. Thousands of agents are listed, which needs no `Path` of each."""
        return Path(self.place)

    @cached_property
    def descriptor(self) -> Path:
        """Who it is; written once."""
        return self.folder / "descriptor.json"

    @cached_property
    def session(self) -> Path:
        """The session record."""
        return self.folder / "session.json"

    @cached_property
    def state(self) -> Path:
        """The list row and the fold's position; derived."""
        return self.folder / "state.json"

    @cached_property
    def history(self) -> Path:
        """Markers and blocks; derived."""
        return self.folder / "history.jsonl"

    @cached_property
    def log(self) -> Path:
        """Everything that happened; the truth."""
        return self.folder / "events.jsonl"

    @cached_property
    def transcripts(self) -> Path:
        """Raw provider transcripts under their native relative paths."""
        return self.folder / "transcripts"

    @cached_property
    def manifest(self) -> Path:
        """What the transcripts were when they were last synced; derived."""
        return self.transcripts / "manifest.json"

    @cached_property
    def stamps(self) -> Path:
        """How these files looked when this machine last wrote them; derived."""
        return self.folder / "stamps.json"

    @cached_property
    def checkpoint(self) -> Path:
        """Where the last reading of the client's transcript ended; derived."""
        return self.folder / "checkpoint.json"

    @cached_property
    def workspace(self) -> Path:
        """Captured files of the working directory."""
        return self.folder / "workspace"

    @cached_property
    def lock(self) -> Path:
        """Held for one append (decision D10)."""
        return self.folder / ".lock"

    @cached_property
    def turn(self) -> Path:
        """Held for a whole turn (decision D10)."""
        return self.folder / ".turn"


class Layout:
    """An agents directory at `root`, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def document(self) -> Path:
        """The file that says which format this is."""
        return self.root / "agentsdir.json"

    @cached_property
    def ignored(self) -> Path:
        """What keeps the directory out of git."""
        return self.root / ".gitignore"

    @property
    def is_hidden(self) -> bool:
        """Whether it has the name that is found by search, and stands in another folder."""
        return self.root.name == ROOT_NAME

    @cached_property
    def settings(self) -> Path:
        """Data settings, written by people (SPEC.md, "Layout")."""
        return self.root / "settings.toml"

    @cached_property
    def agents(self) -> Path:
        """The folder of agent folders."""
        return self.root / "agents"

    @cached_property
    def archive(self) -> Path:
        """The folder of agents that were put away."""
        return self.root / "archive"

    @cached_property
    def routes(self) -> Path:
        """The index from keys to agents; derived (SPEC.md, "Routes")."""
        return self.root / "routes"

    @cached_property
    def index(self) -> Path:
        """Which agent has which session id, parent and name; derived."""
        return self.root / "index.jsonl"

    @cached_property
    def create_lock(self) -> Path:
        """Held while an agent is made, so that unique keys stay unique."""
        return self.root / ".lock"

    @cached_property
    def slots(self) -> Path:
        """The folder of active sessions; derived."""
        return self.root / "slots"

    @cached_property
    def slots_lock(self) -> Path:
        """Held while a session becomes active (decision D12)."""
        return self.slots / ".lock"

    def folder(self, *, archived: bool) -> Path:
        """Return the folder of agent folders, or of the archived ones.

        Raises `UnsafePath` when a link stands in its place.
        """
        folder = self.archive if archived else self.agents
        if folder.is_symlink():
            raise UnsafePath(f"{folder} is a link")
        return folder

    def agent(self, agent_id: str, *, archived: bool = False) -> AgentPaths:
        """Return the paths of an agent that exists.

        Raises `UsageError` for an id outside the grammar, `NoSuchAgent`, and `UnsafePath` when a
        link or a file stands in the folder's place.
        """
        folder = self.folder(archived=archived) / ids.check_agent_id(agent_id)
        try:
            status = folder.lstat()
        except FileNotFoundError:
            which = "archived agent" if archived else "agent"
            raise NoSuchAgent(f"no {which} {agent_id} in {self.root}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise UnsafePath(f"{folder} is no folder; a link or file stands in its place")
        return AgentPaths(folder, agent_id)

    def is_taken(self, agent_id: str) -> bool:
        """Tell whether an id is an agent's or an archived one's; False for what is no id."""
        return ids.is_agent_id(agent_id) and any(
            os.path.lexists(self.folder(archived=archived) / agent_id) for archived in (False, True)
        )

    def agent_ids(self, *, archived: bool = False) -> Iterator[str]:
        """Yield the id of every agent folder, sorted; links and leftovers are not agents."""
        try:
            with os.scandir(self.folder(archived=archived)) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if ids.is_agent_id(entry.name) and entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return
        yield from sorted(found)

    def every_agent(self) -> list[AgentPaths]:
        """Return the paths of each agent, sorted by id; links and leftovers are not agents."""
        return [AgentPaths(self.agents / agent_id, agent_id) for agent_id in self.agent_ids()]

    def check_version(self, *, writing: bool) -> bool:
        """Check `agentsdir.json`; return whether there is one.

        Raises `UnknownVersion` for another format version, and, when `writing`, for a feature this
        program does not know: it could break what it does not understand; and `ProviderError`
        (kind ``foreign-root``) when the superuser would write in another user's directory.
        """
        self.folder(archived=False)
        if writing:
            self._check_owner()
        try:
            document = read_json(self.document)
        except FileNotFoundError:
            return False
        version = document.get("version")
        if document.get("format") != FORMAT or type(version) is not int or version != VERSION:
            raise UnknownVersion(
                f"{self.document} says format {document.get('format')!r} version {version!r}; "
                f"this program knows {FORMAT!r} version {VERSION}",
                hint="use the program that made it, or a newer agentsdir",
            )
        features = document.get("features", [])
        if writing and features:
            raise UnknownVersion(
                f"{self.document} needs features this program does not know: {features}",
                hint="reading works; to write, use a newer agentsdir",
            )
        return True

    def _check_owner(self) -> None:
        # What the superuser makes there, its owner can neither write nor remove.
        if os.geteuid() != 0:
            return
        try:
            owner = self.root.stat().st_uid
        except FileNotFoundError:
            return
        if owner != 0:
            raise ProviderError(
                f"{self.root} belongs to user {owner}, who cannot write what root makes there",
                hint="run this as that user; reading works",
                kind="foreign-root",
            )


# What `open` says of links (O_NOFOLLOW), folders, FIFOs without a reader, and devices.
_NO_REGULAR_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV)


def checked_name(name: str) -> str:
    """Return the relative name of a file, without a slash at its end.

    Raises `Invalid` (kind ``bad-name``) for one that could lead out of its folder.
    """
    parts = name.removesuffix("/").split("/")
    if (
        not name.isprintable()
        or "\\" in name
        or any(part in ("", ".", "..") for part in parts)
        or any(len(part.encode(errors="surrogatepass")) > 255 for part in parts)
        or len(parts) > 32
    ):
        raise Invalid(f"{name[:200]!r} cannot name a file below a folder", kind="bad-name")
    return "/".join(parts)


def open_plain(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file without following links; return the descriptor.

    Raises `FileNotFoundError`, `UnsafePath` for anything that is no regular file, and where the
    system refuses `Invalid` (kind ``unreadable``), or `NotRecorded` when it was to be written.
    """
    return open_sized(path, flags)[0]


def open_sized(path: Path | str, flags: int = os.O_RDONLY) -> tuple[int, int]:
    """Open a regular file as `open_plain` does; return the descriptor, and the size in bytes."""
    try:
        # O_NONBLOCK: opening a FIFO planted in place of a file must not hang.
        descriptor = os.open(
            path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode=FILE_MODE
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_REGULAR_FILE:
            raise UnsafePath(f"{path} is no regular file") from error
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise NotRecorded(f"cannot open {path}: {error.strerror}") from error
        raise Invalid(f"cannot read {path}: {error.strerror}", kind="unreadable") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnsafePath(f"{path} is no regular file")
    if status.st_nlink > 1 and flags & (os.O_WRONLY | os.O_RDWR):
        os.close(descriptor)
        # What is written here would be written there too, outside perhaps.
        raise UnsafePath(f"{path} is a hard link: the file has another name")
    return descriptor, status.st_size


def read_bytes(path: Path | str, most: int = -1) -> bytes:
    """Return a whole small file, or at most its first bytes (same errors as `open_plain`)."""
    descriptor, size = open_sized(path)
    try:
        return _read_up_to(descriptor, size if most < 0 else min(most, size))
    finally:
        os.close(descriptor)


def read_limited(path: Path | str, most: int) -> bytes:
    """Return a whole file of at most `most` bytes.

    Raises what `open_plain` raises, and `Invalid` (kind ``too-large``).
    """
    data = read_bytes(path, most + 1)
    if len(data) > most:
        raise Invalid(f"{path} has over {most} bytes", kind="too-large")
    return data


def _read_up_to(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def read_json(path: Path, most: int = MAX_DOCUMENT) -> dict[str, Any]:
    """Return a JSON object file of at most `most` bytes.

    Raises `FileNotFoundError`, or `Invalid` with the reason.
    """
    data = read_limited(path, most)
    try:
        value = jsontext.decode(data)
    except jsontext.JSONDecodeError as error:
        raise Invalid(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid(f"{path} holds no JSON object")
    return value
