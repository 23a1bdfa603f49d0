"""Finding agents by id, name, key or strategy, and the rows that list and inspect show (D27).

See docs/behaviour.md, "Naming an agent", "Strategies", "Lineage" and "Routes".
"""

from __future__ import annotations

import hashlib
import math
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentsdir.formats import ids, times
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    Invalid,
    NoSuchAgent,
    NotRecorded,
    SessionStateError,
    Uncertain,
    UnsafePath,
    UsageError,
)
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.agent import (
    all_synced,
    current_document,
    read_agent,
    recorded_creation,
    without_live_tail,
)
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.index import (
    Identity,
    IndexWriter,
    by_name,
    by_name_prefix,
    by_parent,
    by_prefix,
    by_session,
    read_index,
)
from agentsdir.formats.store.layout import AgentPaths, Layout, read_json
from agentsdir.formats.store.locks import read_note
from agentsdir.formats.store.state import SessionState, pending_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.agent import Reading
    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.state import AgentState

_FEW = 5

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
    "cwd",
    "descriptor",
    "counters",
    "usage",
    "costUsd",
)
FOREGROUND = "most-recent-foreground"
STRATEGIES = {FOREGROUND: "user", "heartbeat": "heartbeat"}
"""Strategy → the kind of agents among which it chooses. Only users are foreground."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DEPTH = 10
"""Levels below an agent without a parent."""
Key: TypeAlias = "dict[str, Any]"
"""Fields that only one live agent may have: those of a descriptor, or a name among siblings."""
SUFFIX = ".json"
_FIELDS = {"user": ("connector", "userId", "channelId"), "cron": ("id",), "heartbeat": ()}


class ListedAgent(NamedTuple):
    """An agent, and what its state.json says or, where that is stale, would say.

    `findings` are damage of the log, as far as it was read. An agent that cannot be read has an
    `error`, and no document.
    """

    paths: AgentPaths
    document: dict[str, Any] | None
    findings: tuple[Finding, ...]
    error: Invalid | None

    @property
    def is_live(self) -> bool:
        """Whether it can be read and is not closed."""
        return self.document is not None and self.document["state"] != SessionState.TERMINATED


def each_agent(layout: Layout, *, archived: bool = False) -> Iterator[ListedAgent]:
    """Yield every agent, sorted by id. One that cannot be read does not hide the others.

    Args:
        archived: the archived agents, and no other.
    """
    folder = layout.folder(archived=archived)
    for agent_id in layout.agent_ids(archived=archived):
        listed = _listed(AgentPaths(f"{folder}/{agent_id}", agent_id))
        if listed is not None:
            yield listed


def listed_agent(paths: AgentPaths) -> ListedAgent:
    """Return an agent as `each_agent` yields it. Raises `NoSuchAgent` for one that is gone."""
    listed = _listed(paths)
    if listed is None:
        raise NoSuchAgent(f"{paths.folder} is gone")
    return listed


def _listed(paths: AgentPaths) -> ListedAgent | None:
    try:
        document = current_document(paths)
        if document is not None:
            return ListedAgent(paths, document, (), None)
        reading = read_agent(paths)
        findings = tuple(without_live_tail(paths, reading.findings))
        return ListedAgent(paths, reading.state.to_json(), findings, None)
    except (NoSuchAgent, FileNotFoundError):  # removed while we looked
        return None
    except (Invalid, OSError, MemoryError) as error:
        return ListedAgent(paths, None, (), _as_invalid(paths.folder, error))


def each_of(layout: Layout, agent_ids: Iterable[str]) -> Iterator[ListedAgent]:
    """Yield some agents as `each_agent` does, in the order of their ids."""
    for agent_id in agent_ids:
        with suppress(NoSuchAgent, UnsafePath):
            yield listed_agent(layout.agent(agent_id))


@contextmanager
def hold_create_lock(layout: Layout) -> Iterator[IndexWriter]:
    """Hold the create lock, and bring the index level with what was done when the block is over.

    The block names the agents that it adds. Raises what `locks.hold` does.
    """
    with locks.hold(layout.create_lock, brief=True, what="the agents directory"):
        index = IndexWriter(layout)
        yield index
        with suppress(NotRecorded, Invalid, OSError):
            if index.is_stale:
                index.rebuild(map(_identity, each_agent(layout)))
            else:
                index.append(map(_identity, each_of(layout, index.added)))


def make_index(layout: Layout) -> None:
    """Make the index where it does not count; nothing where it cannot be made."""
    if read_index(layout) is None and layout.agents.is_dir():
        with suppress(Busy, NotRecorded, UnsafePath), hold_create_lock(layout):
            pass


def not_in_index(layout: Layout) -> list[str]:
    """Return the ids of the agents that an index which counts does not say as they are.

    A lookup may miss them. None if there is no such index, or if it has changed meanwhile.
    """
    index = read_index(layout)
    if index is None:
        return []
    found = index.lacks(_identity(one) for one in each_agent(layout) if one.document is not None)
    now = read_index(layout) if found else None
    return found if now is not None and now.data == index.data else []


def _identity(listed: ListedAgent) -> Identity:
    said = listed.document
    if said is None:
        return Identity(listed.paths.id)
    return Identity(listed.paths.id, said["sessionId"], parent_id(said), said["name"])


def _as_invalid(path: Path, error: Invalid | OSError | MemoryError) -> Invalid:
    """Return why the agent in a folder cannot be read; of the system's errors make ours."""
    if isinstance(error, Invalid):
        return error
    reason = error.strerror if isinstance(error, OSError) else "not enough memory"
    return Invalid(f"cannot read {path}: {reason or error}", kind="unreadable")


def find_agent(
    layout: Layout, reference: str, *, archived: bool = False, whole_name: bool = False
) -> AgentPaths:
    """Return the one agent that `reference` names.

    In this order: an agent id; a session id, hex or dashed; a name; a prefix of at least four
    characters of any of these. A prefix of a name that an archived agent has as its whole name
    names neither.

    Args:
        archived: search archived agents only.
        whole_name: take no prefix of a name, for what destroys: the same command again, when the
            agent is gone, would mean another one.

    Raises `NoSuchAgent`, or `UsageError` (kind ``ambiguous``) with the candidates.
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
        raise UsageError(
            f"{reference!r} cannot name an agent",
            hint=f"a name has {ids.NAME_RULE}",
            kind="bad-id",
        )
    bare = reference.replace("-", "")
    found = _Matches([])
    if not archived and (known := read_index(layout)) is not None:
        parts = [by_name(reference), by_session(session)]
        if len(reference) >= ids.MIN_PREFIX:
            parts += [by_prefix(reference), by_name_prefix(reference)]
        if len(bare) >= ids.MIN_PREFIX:
            parts.append(by_session(bare))
        found = _matching(each_of(layout, known.find(*parts)), reference, session, bare)
    if found.begun or not found.agents:  # the index may lack the agent that has the whole name
        found = _matching(each_agent(layout, archived=archived), reference, session, bare)
    agents = found.agents
    if found.begun and (whole_name or (not archived and _archived_as(layout, reference))):
        agents = [paths for paths in agents if paths not in found.begun]
    if not agents:
        raise _not_found(layout, reference, archived=archived)
    if len(agents) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {first_few([paths.id for paths in agents])}",
            hint="give the whole id",
            kind="ambiguous",
        )
    return agents[0]


class _Matches(NamedTuple):
    """The agents that a reference names: more than one where it is ambiguous.

    `begun` are those of them of which it is only the beginning of a name.
    """

    agents: list[AgentPaths]
    begun: Sequence[AgentPaths] = ()


def _matching(agents: Iterable[ListedAgent], reference: str, session: str, bare: str) -> _Matches:
    """Return the agents that a reference names.

    Args:
        agents: those that may be meant, sorted by id.
        session: the reference as a session id.
        bare: the reference as a prefix of one.
    """
    live: list[AgentPaths] = []
    named: list[AgentPaths] = []
    prefixed: list[AgentPaths] = []
    begun: list[AgentPaths] = []
    for listed in agents:
        paths, document = listed.paths, listed.document
        if document and document["sessionId"] == session:
            return _Matches([paths])
        if document and document["name"] == reference:
            (live if listed.is_live else named).append(paths)
        elif _has_prefix(paths.id, reference) or (
            document and _has_prefix(document["sessionId"], bare)
        ):
            prefixed.append(paths)
        elif document and _has_prefix(document["name"] or "", reference):
            begun.append(paths)
    return _Matches(live or named) if live or named else _Matches(prefixed + begun, begun)


def _has_prefix(text: str, prefix: str) -> bool:
    return len(prefix) >= ids.MIN_PREFIX and text.startswith(prefix)


def first_few(candidates: list[str]) -> str:
    """Return the first ids of a list and the number of the others, as one line."""
    shown, others = candidates[:_FEW], len(candidates) - _FEW
    return ", ".join(shown) + (f" and {others} others" if others > 0 else "")


def _not_found(layout: Layout, reference: str, *, archived: bool) -> NoSuchAgent:
    if archived:
        message = f"no archived agent {reference!r} in {layout.root}"
        return NoSuchAgent(message, hint="`agentsdir archive --list` shows them")
    hint = "`agentsdir list` shows them"
    if agent_id := _archived_as(layout, reference):
        hint = f"it is archived; `agentsdir archive --undo {agent_id}` brings it back"
    return NoSuchAgent(f"no agent {reference!r} in {layout.root}", hint=hint)


def _archived_as(layout: Layout, reference: str) -> str | None:
    """Return the id of an archived agent that has this id, session id or name."""
    with suppress(AgentsdirError):
        for listed in each_agent(layout, archived=True):
            document, agent_id = listed.document, listed.paths.id
            names = (document["name"], document["sessionId"]) if document else ()
            if reference == agent_id or reference in names or ids.undashed(reference) in names:
                return agent_id
    return None


def find_readable(layout: Layout, agent_id: str) -> tuple[AgentPaths, AgentState] | None:
    """Return the agent that has an id, and its state; None where it is gone or cannot be read."""
    try:
        paths = layout.agent(agent_id)
        return paths, read_agent(paths).state
    except (NoSuchAgent, Invalid, UsageError, OSError, MemoryError):
        return None


def find_agents(
    layout: Layout, references: Sequence[str], *, archived: bool = False
) -> list[AgentPaths]:
    """Return the agents that ids and whole names name, each once (errors of `find_agent`)."""
    found = [
        find_agent(layout, reference, archived=archived, whole_name=True)
        for reference in references
    ]
    return list({paths.id: paths for paths in found}.values())


def list_row(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the row of an agent that `list` shows."""
    return document_row(paths, state.to_json())


def document_row(paths: AgentPaths, document: dict[str, Any]) -> dict[str, Any]:
    """Return the row of an agent that `list` shows, from what its state.json says."""
    row = {name: document[name] for name in _LIST_FIELDS}
    row["agentId"] = paths.id  # an edited log may hold another id
    row["status"], row["question"] = _status_of(paths, document)
    row["pendingCount"] = pending_count(document)
    return row


def _status_of(paths: AgentPaths, document: dict[str, Any]) -> tuple[str, dict[str, str] | None]:
    """Return `running`, `closed` or `idle`, and the question that a running turn waits for.

    They are computed on reading and never stored (D26).
    """
    if document["state"] == SessionState.TERMINATED:
        return "closed", None
    if not locks.is_held(f"{paths.place}/.turn"):
        return "idle", None
    note = read_note(paths)
    question = note.question if note else None
    return "running", {"toolName": question.tool_name, "at": question.at} if question else None


def unreadable_row(listed: ListedAgent) -> dict[str, Any]:
    """Return the row of an agent that cannot be read."""
    error: AgentsdirError = listed.error or Invalid("unreadable")
    return {"agentId": listed.paths.id, "error": {"kind": error.kind, "message": error.message}}


# Strategies name an agent by its kind. The order is total, so that two readers never choose
# different agents: time of the last turn, then of the creation, then the id (D26).


class Resolved(NamedTuple):
    """The agent that a strategy chose, and the agents that could not be read."""

    paths: AgentPaths
    unreadable: list[ListedAgent]


def resolve(layout: Layout, strategy: str, *, but: str = "") -> Resolved:
    """Return the most recent live agent of the strategy's kind.

    Args:
        but: the id of an agent to leave out.

    Raises `UsageError` for another strategy, `NoSuchAgent` when there is none.
    """
    kind = STRATEGIES.get(strategy)
    if kind is None:
        known = ", ".join(STRATEGIES)
        raise UsageError(f"there is no strategy {strategy!r}", hint=f"one of {known}")

    def is_wanted(listed: ListedAgent, document: dict[str, Any]) -> bool:
        return listed.paths.id != but and _is_of_kind(document, kind)

    missing = NoSuchAgent(
        f"no live {kind} agent in {layout.root}", hint=f"`agentsdir new --type {kind}` makes one"
    )
    return _most_recent(layout, is_wanted, missing)


def last_agent(layout: Layout, folder: str, provider: str = "") -> Resolved:
    """Return the most recent live foreground agent of a working directory.

    Args:
        folder: the real path of the working directory.
        provider: the name of the agent's provider; any, if it is empty.

    Raises `NoSuchAgent` when there is none; it names an agent whose folder may be this one now.
    """
    elsewhere: dict[str, str] = {}

    def is_wanted(listed: ListedAgent, document: dict[str, Any]) -> bool:
        is_meant = _is_of_kind(document, STRATEGIES[FOREGROUND]) and provider in (
            "",
            document["provider"],
        )
        if is_meant and document["cwd"] != folder:
            elsewhere[document["cwd"]] = document["name"] or listed.paths.id
        return is_meant and document["cwd"] == folder

    whose = f"{provider} agent" if provider else "agent"
    missing = NoSuchAgent(
        f"no live {whose} of {folder} in {layout.root}",
        hint="`agentsdir list` shows all agents, and `agentsdir new` makes one",
    )
    try:
        return _most_recent(layout, is_wanted, missing)
    except NoSuchAgent:
        for gone, name in elsewhere.items():
            if not Path(gone).is_dir():
                missing.hint = (
                    f"{name} is of {gone}, which is gone; if that was moved here, "
                    f"`agentsdir set {name} cwd=.`"
                )
                break
        raise


def _most_recent(
    layout: Layout, is_wanted: Callable[[ListedAgent, dict[str, Any]], bool], missing: NoSuchAgent
) -> Resolved:
    layout.check_version(writing=False)
    unreadable: list[ListedAgent] = []
    found: list[tuple[tuple[float, float, str], AgentPaths]] = []
    for listed in each_agent(layout):
        if listed.document is None:
            unreadable.append(listed)
        elif listed.is_live and is_wanted(listed, listed.document):
            found.append((recency(listed.paths.id, listed.document), listed.paths))
    if not found:
        raise missing
    return Resolved(min(found, key=lambda one: one[0])[1], unreadable)


def passed_over(listed: ListedAgent) -> str:
    """Return a sentence about an agent that could not be read."""
    why = listed.error.message if listed.error else "it cannot be read"
    return f"passed over {listed.paths.id}: {why}"


def _is_of_kind(document: dict[str, Any], kind: str) -> bool:
    return not document["ephemeral"] and document["descriptor"].get("type") == kind


def recency(agent_id: str, document: dict[str, Any]) -> tuple[float, float, str]:
    """Return the sort key: most recent turn first, agents without a turn last."""
    turn, creation = document["lastActivity"], document["createdAt"]
    return _newest_first(turn), _newest_first(creation), agent_id


def _newest_first(ts: str | None) -> float:
    """Return the negative time in microseconds; infinity for None and for an invalid time."""
    try:
        return -((times.from_text(ts or "") - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        return math.inf


# The tree of agents. The link is in the descriptor of the child only. Missing parents and cycles
# raise errors.


def parent_of(layout: Layout, state: AgentState) -> AgentPaths | None:
    """Return the parent's paths, or None for an agent that has none.

    Raises `NoSuchAgent` (kind ``missing-parent``) for a parent that is not there.
    """
    if state.parent is None:
        return None
    try:
        return layout.agent(state.parent)
    except (NoSuchAgent, UsageError):
        raise NoSuchAgent(
            f"agent {state.agent_id} has the parent {state.parent}, which is not in {layout.root}",
            hint="an archived parent can be brought back by `agentsdir archive --undo`",
            kind="missing-parent",
        ) from None


def ancestors(layout: Layout, state: AgentState) -> list[AgentPaths]:
    """Return an agent's parent, that one's parent, and so on to the one that has none.

    Raises `NoSuchAgent` (kind ``missing-parent``), `Invalid` (kind ``parent-cycle``) naming the
    agents on the way round, and what `read_agent` raises for a parent.
    """
    chain: list[AgentPaths] = []
    names = [state.agent_id]
    while (parent := parent_of(layout, state)) is not None:
        if parent.id in names:
            way = " → ".join((*names[names.index(parent.id) :], parent.id))
            raise Invalid(f"the parents of agent {names[0]} go round: {way}", kind="parent-cycle")
        chain.append(parent)
        names.append(parent.id)
        state = read_agent(parent).state
    return chain


def depth_of(layout: Layout, state: AgentState) -> int:
    """Return how many levels an agent stands below its root (errors of `ancestors`)."""
    return len(ancestors(layout, state))


def check_depth(layout: Layout, state: AgentState) -> None:
    """Raise `SessionStateError` (kind ``spawn-depth``) where an agent may have no children."""
    depth = depth_of(layout, state)
    if depth >= MAX_DEPTH:
        raise SessionStateError(
            f"agent {state.agent_id} stands {depth} levels below its root: "
            f"Maximum spawn depth ({MAX_DEPTH}) exceeded",
            kind="spawn-depth",
        )


def descendants(layout: Layout, agent_id: str) -> list[ListedAgent]:
    """Return an agent's children, and theirs, each once and after its parent; closed ones too.

    The list is complete only under the create lock. Agents that cannot be read are left out.
    """
    known = read_index(layout)
    everyone = _by_parent(each_agent(layout)) if known is None else {}
    found: list[ListedAgent] = []
    seen, waiting = {agent_id}, [agent_id]
    for above in waiting:
        some = _by_parent(each_of(layout, known.find(by_parent(above)))) if known else everyone
        for child in some.get(above, ()):
            if child.paths.id not in seen:
                seen.add(child.paths.id)
                waiting.append(child.paths.id)
                found.append(child)
    return found


def _by_parent(agents: Iterable[ListedAgent]) -> dict[str, list[ListedAgent]]:
    children: dict[str, list[ListedAgent]] = {}
    for listed in agents:
        if listed.document is not None and (parent := parent_id(listed.document)) is not None:
            children.setdefault(parent, []).append(listed)
    return children


def parent_id(document: dict[str, Any]) -> str | None:
    """Return the id of the parent that a state.json names."""
    parent = document["descriptor"].get("parentAgentId")
    return parent if isinstance(parent, str) else None


def inspection(
    paths: AgentPaths, reading: Reading, budget: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return everything `inspect` shows: the row, the inbox, the open turn, the log.

    Args:
        budget: what it shows of the agent's budget; None without one.
    """
    state = reading.state
    findings = without_live_tail(paths, reading.findings)
    created = recorded_creation(paths)
    data = created.data if created else {}
    mode = state.settings.get("permissionMode", data.get("permission_mode"))
    prompt = state.settings.get("systemPrompt", data.get("system_prompt"))
    note = read_note(paths) if locks.is_held(paths.turn) else None
    return {
        **list_row(paths, state),
        "limits": state.limits,
        "fallbacks": state.fallbacks,
        "ephemeral": state.ephemeral,
        "cwd": state.cwd,
        "native": state.native,
        "permissionMode": mode if isinstance(mode, str) and mode else None,
        "systemPrompt": prompt if isinstance(prompt, str) else "",
        "budget": budget,
        "process": note.process._asdict() if note else None,
        "parent": state.parent,
        "depth": _depth(paths, state),
        "children": [{"agentId": child, **said} for child, said in state.children.items()],
        "isAborted": bool(state.open_turn and state.open_turn["aborted"]),
        "pending": list(state.pending),
        "undelivered": state.undelivered,
        "openTurn": state.open_turn,
        "transcripts": {**all_synced(paths, state), **state.transcripts},
        "log": {
            "path": str(paths.log),
            "size": state.position.size,
            "lastSeq": state.position.last_seq,
        },
        "findings": [finding.as_json() for finding in findings],
    }


def _depth(paths: AgentPaths, state: AgentState) -> int | None:
    """Return the depth of an agent; None if its ancestors cannot be read."""
    try:
        return depth_of(Layout(paths.folder.parent.parent), state)
    except AgentsdirError:
        return None


# Keys, and the index of keys in routes/. A route is an unverified cache: the log of the agent that
# it names must have the key. Without a valid route all agents are searched.


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
    """Return whether a key is a name, not fields of a descriptor."""
    return "type" not in key


def describe_key(key: Key) -> str:
    """Return a phrase for a key, for error messages."""
    return f"named {key.get('name')!r}" if is_name(key) else f"this {key['type']} agent"


def has_key(document: dict[str, Any], key: Key) -> bool:
    """Return whether an agent is live and has a key, as its state.json says."""
    if document["state"] == SessionState.TERMINATED:
        return False
    if is_name(key):
        names = (document["name"], parent_id(document))
        return names == (key.get("name"), key.get("parentAgentId"))
    return _has_fields(document["descriptor"], key)


def _has_fields(descriptor: dict[str, Any], key: Key) -> bool:
    return all(descriptor.get(field) == value for field, value in key.items())


def route_path(layout: Layout, key: Key) -> Path:
    """Return the path of the route of a key, which may not exist."""
    ordered = dict(sorted(key.items()))
    return layout.routes / (hashlib.sha256(encode_document(ordered)).hexdigest()[:32] + SUFFIX)


def find_by_route(layout: Layout, key: Key) -> AgentPaths | None:
    """Return the agent that the route of a key names, if its log confirms the key."""
    # A uid in the grammar is the agent's id, and needs no index.
    uid = str(key.get("id")) if key.get("type") == "cron" else ""
    own = uid if ids.is_agent_id(uid) else None
    named = (own, _routed(layout, key))
    for agent_id in named:
        with suppress(AgentsdirError):
            if agent_id is not None:
                listed = listed_agent(layout.agent(agent_id))
                if listed.document is not None and has_key(listed.document, key):
                    return listed.paths
    return None


def _routed(layout: Layout, key: Key) -> str | None:
    if layout.routes.is_symlink():
        return None
    try:
        agent_id = read_json(route_path(layout, key)).get("agentId")
    except (FileNotFoundError, Invalid):
        return None
    return agent_id if isinstance(agent_id, str) else None


def find_by_key(layout: Layout, keys: Sequence[Key]) -> tuple[ListedAgent, Key] | None:
    """Search all agents; return the first one that has one of the keys, and that key.

    To create an agent afterwards, hold the create lock. Raises `Invalid` if none has a key, but the
    descriptor.json of an agent that cannot be read has.
    """
    unreadable: list[ListedAgent] = []
    for listed in each_agent(layout):
        if listed.document is None:
            unreadable.append(listed)
            continue
        for key in keys:
            if has_key(listed.document, key):
                return listed, key
    for listed in unreadable:
        for key in keys:
            if _claims(listed.paths, key):
                raise Invalid(
                    f"agent {listed.paths.id}, which cannot be read, says that it is "
                    f"{describe_key(key)}",
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
    return _has_fields(descriptor, key)


def write_route(layout: Layout, key: Key, agent_id: str, disk: Disk) -> None:
    """Write the route of a key; errors of the disk are ignored.

    It is not synced to the disk: a route is verified whenever it is read.
    """
    if layout.routes.is_symlink():
        return
    with suppress(NotRecorded, Uncertain):
        files.make_folder(layout.routes, disk)
        document = encode_document({"agentId": agent_id, "key": key})
        files.replace_file(route_path(layout, key), document, None)
