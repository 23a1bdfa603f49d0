"""Which agent a name means, and what each agent is (D27; docs/behaviour.md, "Naming an agent")."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats.directory import derived, ids, locks
from agentsdir.formats.directory.agent import read_agent, without_live_tail
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, Invalid, NoSuchAgent, UsageError

_FEW = 5

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.directory.agent import Reading
    from agentsdir.formats.directory.layout import Layout
    from agentsdir.formats.directory.states import AgentState


class Listed(NamedTuple):
    """An agent that could be read, or why it could not."""

    paths: AgentPaths
    reading: Reading | None
    error: Invalid | None


def each_agent(layout: Layout, *, archived: bool = False) -> Iterator[Listed]:
    """Yield every agent, sorted by id. One that cannot be read does not hide the others.

    Args:
        archived: the archived agents, and no other.
    """
    for agent_id in layout.agent_ids(archived=archived):
        try:
            paths = layout.agent(agent_id, archived=archived)
            reading = read_agent(paths)
            findings = tuple(without_live_tail(paths, reading.findings))
            yield Listed(paths, reading._replace(findings=findings), None)
        except (NoSuchAgent, FileNotFoundError):  # removed while we looked
            continue
        except Invalid as error:
            folder = layout.folder(archived=archived) / agent_id
            yield Listed(AgentPaths(folder, agent_id), None, error)


def find_agent(layout: Layout, reference: str, *, archived: bool = False) -> AgentPaths:
    """Return the one agent that `reference` names.

    In this order: an agent id; a session id, hex or dashed; a name; a prefix of at least four
    characters of either id. Archived agents are looked for when `archived` says so, and only they
    are. Raises `NoSuchAgent`, or `UsageError` (kind ``ambiguous``) with the
    candidates.
    """
    layout.check_version(writing=False)
    if ids.is_agent_id(reference):
        try:
            return layout.agent(reference, archived=archived)
        except NoSuchAgent:
            pass  # 24 lower-case letters can also be a name
    session = ids.undashed(reference)
    # Only what could be an id or a name is looked for; nothing else reaches the disk.
    if not (ids.is_session_id(session) or ids.may_be_name(reference)):
        raise UsageError(f"{reference!r} cannot name an agent", kind="bad-id")
    bare = reference.replace("-", "")
    live: list[AgentPaths] = []
    named: list[AgentPaths] = []
    prefixed: list[AgentPaths] = []
    for paths, reading, _ in each_agent(layout, archived=archived):
        state = reading.state if reading else None
        if state and state.session.id == session:
            return paths
        if state and state.name == reference:
            (named if state.session.state is SessionState.TERMINATED else live).append(paths)
        elif len(bare) >= ids.MIN_PREFIX and (
            paths.id.startswith(reference) or (state and state.session.id.startswith(bare))
        ):
            prefixed.append(paths)
    found = live or named or prefixed
    if not found:
        raise _nobody(layout, reference, archived=archived)
    if len(found) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {few([paths.id for paths in found])}",
            hint="give the whole id",
            kind="ambiguous",
        )
    return found[0]


def few(candidates: list[str]) -> str:
    """Return the first few of some ids, and how many others there are, for one line."""
    shown, others = candidates[:_FEW], len(candidates) - _FEW
    return ", ".join(shown) + (f" and {others} others" if others > 0 else "")


def _nobody(layout: Layout, reference: str, *, archived: bool) -> NoSuchAgent:
    if archived:
        message = f"no archived agent {reference!r} in {layout.root}"
        return NoSuchAgent(message, hint="`agentsdir archive --list` shows them")
    hint = "`agentsdir list` shows them"
    with suppress(AgentsdirError):
        for paths, reading, _ in each_agent(layout, archived=True):
            state = reading.state if reading else None
            names = (state.name, state.session.id) if state else ()
            if reference == paths.id or reference in names or ids.undashed(reference) in names:
                hint = f"it is archived; `agentsdir archive --undo {paths.id}` brings it back"
                break
    return NoSuchAgent(f"no agent {reference!r} in {layout.root}", hint=hint)


def find_readable(layout: Layout, agent_id: str) -> tuple[AgentPaths, AgentState] | None:
    """Return the agent that has an id, and its state; None where it is gone or cannot be read."""
    try:
        paths = layout.agent(agent_id)
        return paths, read_agent(paths).state
    except (NoSuchAgent, Invalid, UsageError):
        return None


def find_agents(
    layout: Layout, references: list[str], *, archived: bool = False
) -> list[AgentPaths]:
    """Return the agents that `references` name, each once (errors of `find_agent`)."""
    found = [find_agent(layout, reference, archived=archived) for reference in references]
    return list({paths.id: paths for paths in found}.values())


def status_of(paths: AgentPaths, state: AgentState) -> str:
    """Return `running`, `closed` or `idle`, computed on reading and never stored (D26)."""
    if state.session.state is SessionState.TERMINATED:
        return "closed"
    return "running" if locks.is_held(paths.turn) else "idle"


def list_row(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return SessionListData (seed session-type-system) and what else a list shows."""
    document = derived.state_document(state)
    row = {name: document[name] for name in _LIST_FIELDS}
    row["agentId"] = paths.id  # what an edited log calls itself names nobody
    row["status"] = status_of(paths, state)
    row["pendingCount"] = len(state.pending)
    return row


_LIST_FIELDS = (
    "sessionId",
    "type",
    "agentProfileReference",
    "createdAt",
    "lastActivity",
    "lastInput",
    "agentId",
    "name",
    "title",
    "tags",
    "state",
    "suspendedAt",
    "provider",
    "model",
    "descriptor",
    "counters",
    "usage",
    "costUsd",
)


def unreadable_row(listed: Listed) -> dict[str, Any]:
    """Return the row of an agent that cannot be read."""
    error: AgentsdirError = listed.error or Invalid("unreadable")
    return {"agentId": listed.paths.id, "error": {"kind": error.kind, "message": error.message}}
