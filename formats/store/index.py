"""index.jsonl: which agent has which session id, parent and name (SPEC.md, "Indexes and captures").

It is derived, and says only which agents to look at: nothing is believed of an agent that its own
files do not say. It counts while its last line, the trailer, fits the lines before it and the
folder of agents. Then no agent is missing from it; without it every agent is looked at.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import ids, jsontext
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.store import files
from agentsdir.formats.store.layout import MAX_DOCUMENT, open_plain, read_limited

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import Layout

_SPARE = 64 * 1024
"""Bytes by which the index outgrows what it was when it was made before it is made anew."""


class Identity(NamedTuple):
    """Who an agent is. Without a session id it could not be read, and may be any agent."""

    agent_id: str
    session_id: str | None = None
    parent: str | None = None
    name: str | None = None


class Index:
    """A whole index that is level with the folder of agents.

    Each agent has a line with who it is, and may have older ones, with who it was.
    """

    def __init__(self, data: bytes, folder: str, made: int) -> None:
        self.data = data
        self.folder = folder
        """What the folder of agents looks like."""
        self.made = made
        """Bytes that it had when it was made from all agents."""
        self._lines: list[bytes] = []

    def find(self, *parts: bytes) -> list[str]:
        """Return the ids of the agents that have one of these parts in a line, sorted.

        Those that could not be read are among them.
        """
        found: set[str] = set()
        for part in (_UNKNOWN, *parts):
            if part in self.data:
                self._lines = self._lines or self.data.split(b"\n")
                found.update(_agent_id(line) for line in self._lines if part in line)
        return sorted(found - {""})

    def lacks(self, identities: Iterable[Identity]) -> list[str]:
        """Return the ids of the agents of which no line says who they are."""
        lines = set(self.data.split(b"\n"))
        return [who.agent_id for who in identities if _line(who)[:-1] not in lines]


_UNKNOWN = b'"session":null'


def by_name(name: str) -> bytes:
    """Return the part of a line that says this name."""
    return b'"name":%s}' % _text(name)


def by_name_prefix(prefix: str) -> bytes:
    """Return the part of a line that says a name with this prefix."""
    return b'"name":%s' % _text(prefix)[:-1]


def by_parent(agent_id: str) -> bytes:
    """Return the part of a line that says this parent."""
    return b'"parent":%s' % _text(agent_id)


def by_prefix(prefix: str) -> bytes:
    """Return the part of a line that says an agent id with this prefix."""
    return b'{"id":%s' % _text(prefix)[:-1]


def by_session(prefix: str) -> bytes:
    """Return the part of a line that says a session id with this prefix."""
    return b'"session":%s' % _text(prefix)[:-1]


def _text(value: str) -> bytes:
    # Half of a surrogate pair, from a command line, stands in no index.
    return jsontext.encode_as_is(value.encode(errors="replace").decode())


def _agent_id(line: bytes) -> str:
    """Return the agent id of a line; an empty text for a line that is none of ours."""
    try:
        agent_id: Any = jsontext.decode(line)["id"]
    except (jsontext.JSONDecodeError, KeyError, TypeError):
        return ""
    return agent_id if isinstance(agent_id, str) and ids.is_agent_id(agent_id) else ""


def read_index(layout: Layout) -> Index | None:
    """Return the index of an agents directory; None where every agent has to be looked at."""
    try:
        data = read_limited(layout.index, MAX_DOCUMENT)
    except (FileNotFoundError, Invalid, OSError):
        return None
    start = data.rfind(b"\n", 0, -1) + 1
    try:
        folder, made = _folder(layout), jsontext.decode(data[start:])["made"]
        is_level = type(made) is int and data[start:] == _trailer(folder, data[:start], made)
    except (jsontext.JSONDecodeError, KeyError, TypeError, OSError, Invalid):
        return None
    return Index(data, folder, made) if is_level else None


def _folder(layout: Layout) -> str:
    """Return what the folder of agents looks like: other, once an agent comes or goes."""
    status = layout.agents.lstat()
    return f"{status.st_ino} {status.st_mtime_ns} {status.st_nlink} {status.st_size}"


def _is_too_large(layout: Layout) -> bool:
    """Tell whether the index is one that is never read; to make it anew would not help."""
    try:
        return layout.index.lstat().st_size > MAX_DOCUMENT
    except OSError:
        return False


def _trailer(folder: str, lines: bytes, made: int) -> bytes:
    """Return the last line of an index, which makes it count."""
    trailer = {"folder": folder, "made": made, "digest": ids.short_hash(lines)}
    return jsontext.encode(trailer) + b"\n"


class IndexWriter:
    """Keeps the index level with what is done under the create lock, which the caller holds."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index = read_index(layout)
        self.added: list[str] = []
        """Ids of the agents that came while the lock was held."""

    @property
    def is_stale(self) -> bool:
        """Whether the index has to be made anew from all agents."""
        if self._index is None:
            return not _is_too_large(self._layout)
        most = min(2 * self._index.made + _SPARE, MAX_DOCUMENT - _SPARE)
        return len(self._index.data) > most

    def add(self, agent_id: str) -> None:
        """Note that an agent was made or brought here; `append` is to say who it is."""
        self.added.append(agent_id)

    def append(self, identities: Iterable[Identity]) -> None:
        """Append the lines of agents that came, where agents have come or gone.

        The index may not be `is_stale`. Raises `NotRecorded`, and what `open_plain` raises.
        """
        if self._index is not None and _folder(self._layout) != self._index.folder:
            self._append(self._index, identities, None)

    def rename(self, who: Identity, disk: Disk) -> None:
        """Append the line of an agent that is about to get another name, durably.

        The folder of agents will not show that an older index lacks it: where the line cannot be
        appended, the index is removed. Raises `NotRecorded` when it cannot be removed either, and
        `Uncertain`.
        """
        try:
            if self._index is not None:
                self._append(self._index, [who], disk)
                return
        except (OSError, Invalid, NotRecorded):
            self._index = None
        if not _is_too_large(self._layout):
            files.remove(self._layout.index)

    def _append(self, index: Index, identities: Iterable[Identity], disk: Disk | None) -> None:
        lines, folder = b"".join(map(_line, identities)), _folder(self._layout)
        lines += _trailer(folder, index.data + lines, index.made)
        descriptor = open_plain(self._layout.index, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(descriptor, lines) != len(lines):
                raise NotRecorded(f"cannot append to {self._layout.index}: the disk is full")
            if disk is not None:
                disk.sync(descriptor, self._layout.index)
        finally:
            os.close(descriptor)
        self._index = Index(index.data + lines, folder, index.made)

    def rebuild(self, identities: Iterable[Identity]) -> None:
        """Make the index anew. Raises `NotRecorded`."""
        lines = b"".join(map(_line, identities))
        with suppress(FileNotFoundError):  # no agents
            data = lines + _trailer(_folder(self._layout), lines, len(lines))
            files.replace_file(self._layout.index, data, None)


def _line(who: Identity) -> bytes:
    session, parent = who.session_id, who.parent
    said = {"id": who.agent_id, "session": session, "parent": parent, "name": who.name}
    return jsontext.encode(said) + b"\n"
