"""What an agent is: its state, computed from its log alone (decision D4; SPEC.md, "Events")."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from agentsdir.formats import ids, jsontext
from agentsdir.formats.blocks import BELIEVABLE, add_usage, no_usage
from agentsdir.formats.errors import Invalid, SessionStateError
from agentsdir.formats.store.layout import read_json
from agentsdir.formats.store.log import Position, Record, open_log, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.store.layout import AgentPaths


# The session record and its state machine (seed session-model).
#
# created → active → suspended → active …; active, suspended and created may be terminated. The
# last start is ours: a session that never ran can be given up too.

COUNTERS = ("turns", "failedTurns", "messages", "blocks")


class SessionState(StrEnum):
    """The durable state of a session."""

    CREATED = "created"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINATED = "terminated"


TRANSITIONS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.CREATED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.ACTIVE: (SessionState.SUSPENDED, SessionState.TERMINATED),
    SessionState.SUSPENDED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.TERMINATED: (),
}


def check_transition(old: SessionState, new: SessionState, agent: str = "") -> None:
    """Raise `SessionStateError`, naming both states, unless `old` may become `new`."""
    if new not in TRANSITIONS[old]:
        whose = f"agent {agent}: " if agent else ""
        hint = "it was closed for good" if old is SessionState.TERMINATED else None
        raise SessionStateError(
            f"{whose}the session is {old}, and cannot become {new}"
            if old is not new
            else f"{whose}the session is {old} already",
            hint=hint,
        )


class Changing:
    """What changes as a log is read; compared and copied by its fields."""

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **changes)
        return copy

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({said})"


class Session(Changing):
    """One provider instance of one agent, as session.json holds it.

    `id` is a uuid in 32 hex digits; times are RFC 3339. `provider_state` is the blob of the last
    suspension, and empty unless the session is suspended: a blob older than the last turn would
    be wrong, and it is only ever a short cut (decision D23).
    """

    def __init__(
        self,
        id: str,  # noqa: A002, the field's name
        state: SessionState = SessionState.CREATED,
        provider_name: str = "",
        model: str = "",
        created_at: str = "",
        suspended_at: str | None = None,
        provider_state: bytes = b"",
    ) -> None:
        self.id = id
        self.state = state
        self.provider_name = provider_name
        self.model = model
        self.created_at = created_at
        self.suspended_at = suspended_at
        self.provider_state = provider_state


class AgentState(Changing):
    """One agent as of `position` in its log.

    `pending` are messages no turn has taken yet, in log order; `open_turn` is a turn without an
    end, or with messages whose delivery is not yet recorded. `transcripts` are entries by path;
    each belongs to the native session that was in force when it was synced. `cost` is the sum in
    US dollars of what clients said, None where none said anything. `last_input` is when the last
    message came that was no notice; `children` are spawned agents that have not ended, by id;
    `undelivered` are the ids of outgoing texts that no connector has taken. `missed` is whether the
    native session in force may not have been told of turns that another one ran. `imported` is
    whether what the log says comes from a bundle, in part at least. `unsent` are messages that
    could not be put into another agent's inbox, by id: `to` whom, and what its `message` says.
    """

    def __init__(
        self,
        *,
        agent_id: str,
        session: Session,
        architecture: str,
        descriptor: dict[str, Any],
        native: dict[str, Any],
        name: str | None = None,
        profile: str = "",
        cwd: str = "",
        title: str | None = None,
        last_activity: str | None = None,
        pending: list[dict[str, Any]] | None = None,
        open_turn: dict[str, Any] | None = None,
        transcripts: dict[str, dict[str, Any]] | None = None,
        counters: dict[str, int] | None = None,
        usage: dict[str, Any] | None = None,
        cost: float | None = None,
        last_input: str | None = None,
        children: dict[str, dict[str, Any]] | None = None,
        undelivered: list[str] | None = None,
        tags: list[str] | None = None,
        limits: dict[str, Any] | None = None,
        fallbacks: list[str] | None = None,
        ephemeral: bool = False,
        missed: bool = False,
        imported: bool = False,
        unsent: dict[str, dict[str, Any]] | None = None,
        position: Position | None = None,
        history_size: int = 0,
    ) -> None:
        self.agent_id = agent_id
        self.session = session
        self.architecture = architecture
        self.descriptor = descriptor
        self.native = native
        self.name = name
        self.profile = profile
        self.cwd = cwd
        self.title = title
        self.last_activity = last_activity
        self.pending = [] if pending is None else pending
        self.open_turn = open_turn
        self.transcripts = {} if transcripts is None else transcripts
        self.counters = dict.fromkeys(COUNTERS, 0) if counters is None else counters
        self.usage = no_usage() if usage is None else usage
        self.cost = cost
        self.last_input = last_input
        self.children = {} if children is None else children
        self.undelivered = [] if undelivered is None else undelivered
        self.tags = [] if tags is None else tags
        self.limits = {} if limits is None else limits
        self.fallbacks = [] if fallbacks is None else fallbacks
        self.ephemeral = ephemeral
        self.missed = missed
        self.imported = imported
        self.unsent = {} if unsent is None else unsent
        self.position = Position() if position is None else position
        self.history_size = history_size

    @property
    def parent(self) -> str | None:
        """The parent agent of a subagent."""
        parent = self.descriptor.get("parentAgentId")
        return parent if isinstance(parent, str) else None


# The fold: what an agent is, computed from its log alone (decision D4; SPEC.md, "Derived files").
#
# Pure: no clock, no random, no file. An `AgentState` can be written to state.json, read back, and
# folded on from there, and is then the same as one folded from the start.

TITLE_LENGTH = 120
# What data raises in the fold that does not hold what its event needs.
BROKEN = (KeyError, TypeError, ValueError, AttributeError)
_LEVEL = 5  # how deep in state.json the data of a record stands at most
FALLBACK = "fallback"
"""The reason of a change to the native session of a provider that stands in, and of that back."""
IMPORT = "import"
"""The reason of the settings that an import makes."""
MESSAGE_FLAGS = ("sync", "spawn", "notice")


def begin(record: Record) -> AgentState:
    """Return the state after a `session.created` record."""
    data = jsontext.clean(record.data, set(), _LEVEL)
    return AgentState(
        agent_id=_text(data["agent_id"]),
        session=Session(
            id=record.session_id,
            provider_name=_text(data["provider"]),
            model=_text(data["model"]),
            created_at=record.ts,
        ),
        architecture=_text(data["native"]["architecture"]),
        descriptor=_with_texts(data["descriptor"], "type"),
        native=_with_texts(data["native"], "id"),
        name=None if data.get("name") is None else _text(data["name"]),
        profile=_text(data["profile"]),
        cwd=_text(data["cwd"]),
        title=title if isinstance(title := data.get("title"), str) else None,
        limits=_table(data.get("limits", {})),
        fallbacks=_texts(data.get("fallbacks", [])),
        ephemeral=data.get("ephemeral") is True,
        imported="imported_from" in data,
    )


def apply(state: AgentState, record: Record) -> None:
    """Take one more record into `state`; kinds this program does not know change nothing.

    Raises one of `BROKEN`, and leaves `state` as it was, for data that lacks what its event needs.
    What a foreign writer put into a record may be more than state.json can hold: it is cleaned.
    """
    step = _STEPS.get(record.event)
    if step is not None:
        data = record.data
        step(state, data if step is _block else jsontext.clean(data, set(), _LEVEL), record.ts)


def _state(state: AgentState, data: dict[str, Any], ts: str) -> None:
    # The log is history: what it says happened, also where a rule has changed since.
    new, blob = SessionState(data["to"]), b""
    suspended = new is SessionState.SUSPENDED
    if suspended and (encoded := data.get("provider_state", "")) != "":
        blob = base64.b64decode(encoded, validate=True)
    session = state.session
    session.state, session.provider_state = new, blob
    session.suspended_at = ts if suspended else None


def _enqueued(state: AgentState, data: dict[str, Any], ts: str) -> None:
    waiting = waiting_message(data, ts)
    state.counters["messages"] += 1
    state.pending.append(waiting)
    if data.get("notice") is not True:
        state.last_input = ts
    if state.title is None and data["kind"] == "user":
        state.title = title_of(data["content"])


def waiting_message(data: dict[str, Any], ts: str) -> dict[str, Any]:
    """Return what the inbox holds of a message, from the data of its `message.enqueued`.

    Raises one of `BROKEN`.
    """
    content = data["content"]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise TypeError("content, which is no list of parts")
    return {
        "messageId": _text(data["message_id"]),
        "sender": _text(data["sender"]),
        "kind": _text(data["kind"]),
        "content": content,
        "replyTo": data.get("reply_to"),
        "enqueuedAt": ts,
        **{flag: True for flag in MESSAGE_FLAGS if data.get(flag) is True},
        **(
            {"permissionMode": mode} if isinstance(mode := data.get("permission_mode"), str) else {}
        ),
    }


def title_of(content: list[dict[str, Any]]) -> str | None:
    """Return the first line of text in a prompt, shortened, or None."""
    for part in content:
        text = part.get("text")
        if isinstance(text, str) and text.strip():
            return text.strip().splitlines()[0].strip()[:TITLE_LENGTH]
    return None


def _started(state: AgentState, data: dict[str, Any], ts: str) -> None:
    taken = set(_texts(data["message_ids"]))
    turn = {
        "turnId": _text(data["turn_id"]),
        "messageIds": data["message_ids"],
        "attempt": data["attempt"],
        "startedAt": ts,
        "ended": None,
        "aborted": False,
        "deferred": [],
    }
    state.pending = [m for m in state.pending if m["messageId"] not in taken]
    state.open_turn = turn
    state.last_activity = ts
    state.counters["turns"] += 1


def _completed(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    _spent(state, data)
    _ended(state, "completed")
    state.missed = False


def _spent(state: AgentState, data: dict[str, Any]) -> None:
    if data.get("usage"):
        state.usage = add_usage(state.usage, data["usage"])
    cost = data.get("cost_usd")
    is_number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if cost is not None and is_number and 0 <= cost <= BELIEVABLE:
        state.cost = (state.cost or 0) + cost


def _failed(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    _spent(state, data)
    state.counters["failedTurns"] += 1
    _ended(state, "failed")


def _aborted(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    outcome = "failed" if data["reason"] == "crash" else "aborted"
    _spent(state, data)
    state.counters["failedTurns"] += 1
    _ended(state, outcome)


def _ended(state: AgentState, outcome: str) -> None:
    # The turn stays open until its messages are settled: a crash in between must be seen.
    turn = state.open_turn
    if turn is not None:
        turn["ended"] = outcome
        if not turn["messageIds"]:
            state.open_turn = None


def _delivered(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    message = data["message_id"]
    state.pending = [m for m in state.pending if m["messageId"] != message]
    turn = state.open_turn
    if turn is not None and message in turn["messageIds"]:
        turn["messageIds"] = [m for m in turn["messageIds"] if m != message]
        if not turn["messageIds"] and turn["ended"]:
            state.open_turn = None


def _aborting(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    if (turn := _turn_of(state, data)) is not None:
        turn["aborted"] = True


def _abort_cleared(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    if (turn := _turn_of(state, data)) is not None:
        turn["aborted"] = False


def _turn_of(state: AgentState, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the open turn if it is the one that a record names."""
    turn = state.open_turn
    return turn if turn is not None and turn["turnId"] == data["turn_id"] else None


def _sent(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    if (turn := _turn_of(state, data)) is not None:
        sent = {"to": _text(data["to"]), "messageId": _text(data["message_id"])}
        turn["deferred"].append(sent)


def _unsent(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    message = _table(data["message"])
    waiting_message({**message, "sender": state.agent_id, "kind": "system"}, "")  # as it will be
    entry = {"to": _text(data["to"]), "message": message}
    state.unsent = {**state.unsent, _text(message["message_id"]): entry}


def _resent(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    sent = data["message_id"]
    state.unsent = {one: entry for one, entry in state.unsent.items() if one != sent}


def _spawn_requested(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    child, name = _text(data["child"]), _text(data["name"])
    turn = _turn_of(state, data)
    state.children[child] = {"name": name, "status": "pending"}
    if turn is not None:
        turn["deferred"].append({"child": child, "name": name})


def _spawned(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    child, name, status = (_text(data[field]) for field in ("child", "name", "status"))
    if status in ("success", "error"):
        state.children.pop(child, None)
    else:
        state.children[child] = {"name": name, "status": status}


def _spawn_dropped(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    state.children.pop(data["child"], None)


def _outgoing(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    state.undelivered.append(_text(data["message_id"]))


def _handed_out(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    handed = data["message_id"]
    state.undelivered = [one for one in state.undelivered if one != handed]


def _renamed(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    state.name = _text(data["name"])


def _tagged(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    state.tags = _texts(data["tags"])


def _set(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    values = _table(data["values"])
    if "cwd" in values:
        state.cwd = _text(values["cwd"])
        state.native = {**state.native, "cwd": state.cwd}
    if data.get("reason") == IMPORT:
        state.imported = True
        state.unsent = {}  # a bundle tells nobody here anything


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("object")
    return value


def _with_texts(value: Any, *fields: str) -> dict[str, Any]:
    table = _table(value)
    for field_name in fields:
        _text(table[field_name])
    return table


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]


def _block(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    if not data["block"].get("superseded"):
        state.counters["blocks"] += 1


def _native(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    native = _with_texts(data["native"], "id", "cwd", "architecture")
    state.cwd, state.architecture = native["cwd"], native["architecture"]
    state.native = native
    if data.get("reason") == FALLBACK:
        state.missed = True


def _reset(state: AgentState, _data: dict[str, Any], _ts: str) -> None:
    state.missed = False


def _synced(state: AgentState, data: dict[str, Any], _ts: str) -> None:
    synced: dict[str, dict[str, Any]] = {}
    for entry in data["files"]:
        size = entry["size"]
        texts = (entry["path"], entry["role"], entry["sha256"])
        if type(size) is not int or size < 0 or not all(isinstance(text, str) for text in texts):
            raise TypeError("files, which are no transcripts")
        synced[entry["path"]] = {
            "role": entry["role"],
            "size": size,
            "sha256": entry["sha256"],
            "native": state.native["id"],
        }
    state.transcripts.update(synced)


_STEPS = {
    "session.state": _state,
    "message.enqueued": _enqueued,
    "turn.start": _started,
    "turn.complete": _completed,
    "turn.error": _failed,
    "turn.aborted": _aborted,
    "message.delivered": _delivered,
    "message.sent": _sent,
    "message.unsent": _unsent,
    "message.resent": _resent,
    "abort.requested": _aborting,
    "abort.cleared": _abort_cleared,
    "spawn.requested": _spawn_requested,
    "agent.spawned": _spawned,
    "spawn.dropped": _spawn_dropped,
    "outgoing": _outgoing,
    "outgoing.delivered": _handed_out,
    "agent.renamed": _renamed,
    "agent.tagged": _tagged,
    "agent.set": _set,
    "block": _block,
    "history.reset": _reset,
    "native.changed": _native,
    "transcript.synced": _synced,
}


# What a log may still hold once its session is terminated.
#
# See decision D15; docs/behaviour.md, "Closing".

# What is settled, kept or said afterwards; it changes nothing about the end.
ALWAYS = frozenset(
    {
        "message.delivered",
        "message.resent",
        "message.unsent",
        "outgoing.delivered",
        "restore",
        "session.state",  # the state machine has its own words for it
        "transcript.synced",
        "workspace.captured",
    }
)
# What a turn writes that was running when its session was closed, until it is over.
UNWINDING = frozenset(
    {"turn.complete", "turn.error", "turn.aborted", "block", "native.changed", "hook.failed"}
)


def breach_after_close(state: AgentState, event: str, data: dict[str, Any]) -> str | None:
    """Return what is wrong with one more event in the log of an agent, if it is closed."""
    if state.session.state is not SessionState.TERMINATED or event in ALWAYS:
        return None
    turn = state.open_turn
    if turn is None:
        return f"{event} after the session was terminated"
    if event in UNWINDING and data.get("turn_id", turn["turnId"]) == turn["turnId"]:
        return None
    return f"{event} after the session was terminated, which is not of the turn that was open"


def check_event(state: AgentState, event: str, data: dict[str, Any]) -> None:
    """Raise `SessionStateError` for an event that a writer must not append any more.

    An agent can be closed whatever else is done with it, so this is asked under `.lock`: what was
    true when the work began need not be true now.
    """
    if event == "session.state":
        check_transition(state.session.state, SessionState(data["to"]), state.agent_id)
    elif breach_after_close(state, event, data):
        raise SessionStateError(
            f"agent {state.agent_id} is closed: it takes no {event} any more", kind="closed"
        )


# Who an agent is, when its first record can tell (SPEC.md, "Creation lost") and when it cannot.
#
# A damaged first record is rebuilt from descriptor.json, and from what session.json and state.json
# still hold; `restore` puts the result into the log. Without descriptor.json nothing is guessed
# (decision D4).


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
        begin(record)
    except BROKEN:
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
