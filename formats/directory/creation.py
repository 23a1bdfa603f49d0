"""Who an agent is, when its first record can tell (SPEC.md, "Creation lost") and when it cannot.

A damaged first record is rebuilt from descriptor.json, and from what session.json and state.json
still hold; `restore` puts the result into the log. Without descriptor.json nothing is guessed
(decision D4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.formats.directory import fold, ids
from agentsdir.formats.directory.layout import read_json
from agentsdir.formats.directory.log import open_log, read_log
from agentsdir.formats.directory.records import Record
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.directory.layout import AgentPaths


class Creation(NamedTuple):
    """The record an agent begins with. `logged` tells whether the log holds it somewhere."""

    record: Record
    logged: bool


def recorded_creation(paths: AgentPaths) -> Record | None:
    """Return the creation as the log has it: its own record, or the one `restore` put there."""
    with open_log(paths.log) as stream:
        for record in _records(stream, paths):
            if record.event == "session.created" and _is_usable(record):
                return record
            made = record.data.get("created") if record.event == "restore" else None
            if isinstance(made, dict) and isinstance(made.get("data"), dict):
                created_at = str(made.get("created_at"))
                return record._replace(event="session.created", data=made["data"], ts=created_at)
    return None


def _is_usable(record: Record) -> bool:
    try:
        fold.begin(record)
    except fold.BROKEN:
        return False
    return True


def _records(stream: BinaryIO, paths: AgentPaths) -> Iterator[Record]:
    for line in read_log(stream, str(paths.log)):
        if line.record is not None:
            yield line.record


def lost_creation(paths: AgentPaths, first: Record | None) -> Creation:
    """Return the creation of an agent whose log does not begin with it.

    Args:
        first: the first readable record, if there is any.

    Raises `Invalid` when descriptor.json is gone too, or nothing names the session.
    """
    logged = recorded_creation(paths)
    if logged is not None:
        return Creation(logged, logged=True)
    descriptor = _document(paths, "descriptor.json")
    session, state = _document(paths, "session.json"), _document(paths, "state.json")
    session_id = first.session_id if first else session.get("id") or state.get("sessionId")
    if not isinstance(descriptor.get("type"), str) or not ids.is_session_id(str(session_id)):
        raise Invalid(
            f"{paths.log} does not begin with a readable session.created record, and "
            "descriptor.json cannot stand in for it",
            hint="`agentsdir validate` shows what stands there; put either back from a copy",
        )
    session_id = str(session_id)
    provider = _string(session, "provider_name") or _string(state, "provider")
    native = {
        "architecture": _string(state, "type") or provider,
        "id": ids.dashed(session_id),
        "cwd": _string(state, "cwd"),
    }
    data: dict[str, Any] = {
        "agent_id": paths.id,
        "descriptor": descriptor,
        "provider": provider,
        "model": _string(session, "model") or _string(state, "model"),
        "system_prompt": "",
        "profile": _string(state, "agentProfileReference"),
        "cwd": _string(state, "cwd"),
        "permission_mode": None,
        "limits": {},
        "options": {},
        "native": native,
    }
    if name := _string(descriptor, "name") or _string(state, "name"):
        data["name"] = name
    if parent := _string(descriptor, "parentAgentId"):
        data["parentAgentId"] = parent
    created_at = _string(session, "created_at") or _string(state, "createdAt")
    ts = created_at or (first.ts if first else "")
    return Creation(Record(1, ts, "session.created", session_id, data, ""), logged=False)


def _document(paths: AgentPaths, name: str) -> dict[str, Any]:
    try:
        return read_json(paths.folder / name)
    except (FileNotFoundError, Invalid):
        return {}


def _string(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""
