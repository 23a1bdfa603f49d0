"""What a saved file is to its session, and where it belongs below a project's folder.

Where it stands tells it of subagents and outputs; of the chats themselves, which bear 8 characters
of the id in their names, their content does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.gemini.store.contents import ID, PREFIX, SUFFIXES, safe_part
from agentsdir.adapters.gemini.store.projects import CHATS, OUTPUTS, TMP
from agentsdir.adapters.gemini.transcripts.heads import look_at, read_ends
from agentsdir.adapters.store_files import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.formats.reading.source import Source

_CHAT = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{1,200}}\.jsonl?")
_CHILD = re.compile(r"[A-Za-z0-9_-]{1,200}\.jsonl?")
_DEEP = 3


class Own(NamedTuple):
    """A file of a session: its path below the project's folder, and its role.

    `role` is one of `NativeFile`'s. `project` is the name of the folder it was saved below, `talks`
    whether anybody but the client says anything in a chat of the session.
    """

    project: str
    inner: tuple[str, ...]
    role: str
    source: Source
    talks: bool = False


def own_files(saved: Mapping[str, Source], native_id: str) -> list[Own]:
    """Return the files of one session, the main transcript first; none where there is no main one.

    Args:
        saved: files by their paths relative to the storage. What a bundle says of them may be
            anything: only what is the session's own, and of a name that a client gives, has a
            place. A session that was placed in several folders in its life may be saved under
            each: of two files of one place, the larger one is the later.
        native_id: of the session.
    """
    found: dict[tuple[str, ...], Own] = {}
    for path, source in sorted(saved.items()):
        own = _own(path, source, native_id)
        if own is None:
            continue
        other = found.get(own.inner)
        if other is None or size_of(other.source) < size_of(source):
            found[own.inner] = own
    mains = [own for own in found.values() if own.role == "main"]
    if not mains:
        return []
    logs = {own.inner[-1] for own in mains if own.talks and own.inner[-1].endswith("l")}

    def rank(own: Own) -> tuple[bool, bool, int, str]:
        name = own.inner[-1]
        return own.talks, f"{name}l" not in logs, size_of(own.source), name

    main = max(mains, key=rank)
    rest = [
        own._replace(role="sidecar") if own.role == "main" else own
        for own in found.values()
        if own is not main
    ]
    return [main, *rest]


def _own(path: str, source: Source, native_id: str) -> Own | None:
    """Return a saved file as the session's own; None if it is not."""
    parts = tuple(path.split("/"))
    if len(parts) < _DEEP + 1 or parts[0] != TMP or not ID.fullmatch(native_id):
        return None
    if any(not part or part.startswith(".") or not part.isprintable() for part in parts):
        return None
    project, inner = parts[1], parts[2:]
    name = inner[-1]
    if len(inner) == _DEEP:
        if inner[:2] == (OUTPUTS, f"{PREFIX}{safe_part(native_id)}"):
            return Own(project, inner, "output", source)
        if inner[:2] == (CHATS, safe_part(native_id)) and _CHILD.fullmatch(name):
            return Own(project, inner, "subagent", source)
    elif inner[0] == CHATS and len(inner) == _DEEP - 1 and _CHAT.fullmatch(name):
        head = look_at(read_ends(source))
        if head.session_id == native_id:
            role = "subagent" if head.kind == "subagent" else "main"
            return Own(project, inner, role, source, head.talks)
    return None


def is_chat_name(name: str) -> bool:
    """Tell whether a client takes a file of that name for a session's."""
    return _CHAT.fullmatch(name) is not None


def chat_name(native_id: str, started: str, suffix: str) -> str:
    """Return the name that a client would give a session's file.

    Args:
        native_id: of the session.
        started: when it began, in RFC 3339; the name has the minute.
        suffix: ``.json`` or ``.jsonl``.
    """
    assert suffix in SUFFIXES
    stamp = re.sub("[^A-Za-z0-9]+", "-", started[:10] + "T" + started[11:16])
    return f"{PREFIX}{stamp}-{safe_part(native_id)[:8]}{suffix}"
