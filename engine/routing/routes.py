"""Which live agent has a key: an index that is never believed, and the search it saves (D27).

A route names an agent, and that agent's own log says whether it is so. A route that is missing,
stale, damaged or a link, or that names another agent, costs a look at every agent, and nothing
else (docs/behaviour.md, "Routes").
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from agentsdir.engine.agents import each_agent
from agentsdir.formats.directory import documents, ids
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.derived import encode_document
from agentsdir.formats.directory.layout import read_json
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded, Uncertain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentsdir.engine.agents import Listed
    from agentsdir.formats.directory.durability import Disk
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

Key: TypeAlias = "dict[str, Any]"
"""What one live agent at a time may be: the fields of a descriptor, or a name among siblings."""

SUFFIX = ".json"
_FIELDS = {"user": ("connector", "userId", "channelId"), "cron": ("id",), "heartbeat": ()}


def key_of(descriptor: dict[str, Any]) -> Key | None:
    """Return the key of an agent of this kind; None for one that has only its name."""
    kind = descriptor["type"]
    if kind == "subagent":
        return None
    names = _FIELDS.get(kind)
    if names is None:
        return descriptor
    return {"type": kind, **{name: descriptor.get(name) for name in names}}


def name_key(parent: str | None, name: str) -> Key:
    """Return the key that a name is among the children of `parent`."""
    return {"parentAgentId": parent, "name": name}


def is_name(key: Key) -> bool:
    """Tell a name's key from one that a descriptor has."""
    return "type" not in key


def says(key: Key) -> str:
    """Return what an agent with this key is, for messages."""
    return f"named {key.get('name')!r}" if is_name(key) else f"this {key['type']} agent"


def holds(state: AgentState, key: Key) -> bool:
    """Tell whether an agent is live and has a key."""
    if state.session.state is SessionState.TERMINATED:
        return False
    if is_name(key):
        return (state.name, state.parent) == (key.get("name"), key.get("parentAgentId"))
    return _is_that(state.descriptor, key)


def _is_that(descriptor: dict[str, Any], key: Key) -> bool:
    return all(descriptor.get(field) == value for field, value in key.items())


def route_path(layout: Layout, key: Key) -> Path:
    """Return where the route of a key stands, whether there is one or not."""
    ordered = dict(sorted(key.items()))
    return layout.routes / (hashlib.sha256(encode_document(ordered)).hexdigest()[:32] + SUFFIX)


def look_up(layout: Layout, key: Key) -> AgentPaths | None:
    """Return the agent that the index has for a key, if that agent says so itself."""
    # A uid in the grammar is the agent's id, and needs no index.
    uid = str(key.get("id")) if key.get("type") == "cron" else ""
    own = uid if ids.is_agent_id(uid) else None
    named = (own, _named(layout, key))
    for agent_id in named:
        with suppress(AgentsdirError):
            if agent_id is not None and holds(
                read_agent(paths := layout.agent(agent_id)).state, key
            ):
                return paths
    return None


def _named(layout: Layout, key: Key) -> str | None:
    if layout.routes.is_symlink():
        return None
    try:
        agent_id = read_json(route_path(layout, key)).get("agentId")
    except (FileNotFoundError, Invalid):
        return None
    return agent_id if isinstance(agent_id, str) else None


def search(layout: Layout, keys: Sequence[Key]) -> tuple[Listed, Key] | None:
    """Return the first agent that has one of the keys, and which, from every agent's own log.

    Who makes an agent after this holds the create lock. Raises `Invalid` where nobody has a key,
    but an agent that cannot be read may have: its descriptor.json says so.
    """
    unreadable: list[Listed] = []
    for listed in each_agent(layout):
        if listed.reading is None:
            unreadable.append(listed)
            continue
        for key in keys:
            if holds(listed.reading.state, key):
                return listed, key
    for listed in unreadable:
        for key in keys:
            if _claims(listed.paths, key):
                raise Invalid(
                    f"agent {listed.paths.id}, which cannot be read, says that it is {says(key)}",
                    hint=f"`agentsdir validate` says why; `agentsdir archive {listed.paths.id}` "
                    "puts it away",
                    kind="already-exists",
                )
    return None


def _claims(paths: AgentPaths, key: Key) -> bool:
    try:
        descriptor = read_json(paths.descriptor)
    except (FileNotFoundError, Invalid):
        return False
    if is_name(key):
        names = (descriptor.get("name"), descriptor.get("parentAgentId"))
        return names == (key["name"], key["parentAgentId"])
    return _is_that(descriptor, key)


def put(layout: Layout, key: Key, agent_id: str, disk: Disk) -> None:
    """Let the index say who has a key; where the disk refuses, it says nothing.

    It is not made durable: what a power cut leaves of it is not believed either.
    """
    if layout.routes.is_symlink():
        return
    with suppress(NotRecorded, Uncertain):
        documents.make_folder(layout.routes, disk)
        document = encode_document({"agentId": agent_id, "key": key})
        documents.replace_file(route_path(layout, key), document, None)
