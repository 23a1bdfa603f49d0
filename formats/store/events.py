"""The events of a log: what each one needs, does, and may follow (SPEC.md, "Events").

Pure: no clock, no random, no file. An `AgentState` can be written to state.json, read back, and
folded on from there, and is then the same as one folded from the start (decision D4).
"""

from __future__ import annotations

import base64
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BELIEVABLE, COUNTED, add_usage
from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.store.state import AgentState, SessionRecord, SessionState, check_transition
from agentsdir.formats.store.transcripts import STREAM, chunk_of, of_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.formats.store.log import Record

    Step: TypeAlias = Callable[[AgentState, dict[str, Any], "Origin"], None]

TITLE_LENGTH = 120
# What the fold raises for data that does not hold what its event needs.
BROKEN = (KeyError, TypeError, ValueError, AttributeError)
_LEVEL = 5  # how deep in state.json the data of a record stands at most
FALLBACK = "fallback"
"""The reason of a change to the native session of a provider that stands in, and of that back."""
IMPORT = "import"
"""The reason of the settings that an import makes."""
MESSAGE_FLAGS = ("sync", "spawn", "notice")
SET_TEXTS = {"system_prompt": "systemPrompt", "permission_mode": "permissionMode"}
"""Values of `agent.set` that stand for those of `session.created`, and their keys in the state."""
SCOPES = {"com": "com_state", "data": "data_cache"}
"""Scopes of `data.set`, and the attributes of the state that hold their values."""
BUDGET = ("tokens", "turns", "seconds", "cost")
"""What a budget can limit; `cost` is US dollars in a day of the machine's time zone."""
TURN_ENDS = ("turn.complete", "turn.error", "turn.aborted")


class AfterClose(Enum):
    """Whether an event may follow the end of its session (decision D15)."""

    NEVER = auto()
    BY_OPEN_TURN = auto()
    """Only from the turn that was open when the session was closed, until that turn ends."""
    ALWAYS = auto()
    """It delivers or keeps something, and changes nothing about the end."""


class Origin(NamedTuple):
    """Where what a step takes in comes from: the record's time, and the byte its line begins at."""

    ts: str
    offset: int


class Event(NamedTuple):
    """One row of `EVENTS`.

    `step` is what a record does to the state; None changes nothing. `needs` are the fields of
    `data` without which, or with another type, a record is `bad-data`.
    """

    step: Step | None = None
    needs: Mapping[str, type] = {}
    after_close: AfterClose = AfterClose.NEVER


# The names of types in the message of a `bad-data` finding.
_TYPE_NAMES: dict[type, str] = {
    str: "text",
    int: "integer",
    dict: "object",
    list: "list",
}


def begin(record: Record) -> AgentState:
    """Return the state after a `session.created` record. Raises one of `BROKEN`."""
    data = jsontext.clean(record.data, set(), _LEVEL)
    _check_needs(data, EVENTS["session.created"].needs)
    native, descriptor = data["native"], data["descriptor"]
    _texts(native[name] for name in ("architecture", "id"))
    _text(descriptor["type"])
    return AgentState(
        agent_id=data["agent_id"],
        session=SessionRecord(
            id=record.session_id,
            provider_name=data["provider"],
            model=data["model"],
            created_at=record.ts,
        ),
        architecture=native["architecture"],
        descriptor=descriptor,
        native=native,
        name=None if data.get("name") is None else _text(data["name"]),
        profile=data["profile"],
        cwd=data["cwd"],
        title=title if isinstance(title := data.get("title"), str) else None,
        limits=_table(data.get("limits", {})),
        fallbacks=_texts(_list(data.get("fallbacks", []))),
        ephemeral=data.get("ephemeral") is True,
        imported=isinstance(data.get("imported_from"), dict),
        has_all_synced=True,
    )


def is_creation(record: Record) -> bool:
    """Return whether a record is a `session.created` that `begin` takes."""
    try:
        return record.event == "session.created" and begin(record) is not None
    except BROKEN:
        return False


def apply(state: AgentState, record: Record, offset: int) -> None:
    """Take one more record into `state`; events that are not in `EVENTS` change nothing.

    Args:
        offset: the byte of the log at which the record's line begins.

    Raises one of `BROKEN`, and leaves `state` as it was, for data that lacks what its event needs.
    A foreign writer's record may hold more than state.json can: its data is cleaned.
    """
    event = EVENTS.get(record.event)
    if event is None or event.step is None:
        return
    # Of these nothing goes into the state.
    data = record.data if event.step in (_block, _unchanged) else _exact(record.data)
    _check_needs(data, event.needs)
    event.step(state, data, Origin(record.ts, offset))


def _exact(data: dict[str, Any]) -> dict[str, Any]:
    """Return data as state.json can hold it."""
    return data if jsontext.is_exact(data, _LEVEL) else jsontext.clean(data, set(), _LEVEL)


def _check_needs(data: dict[str, Any], needs: Mapping[str, type]) -> None:
    for name, kind in needs.items():
        if not isinstance(value := data[name], kind) or isinstance(value, bool):
            raise TypeError(_TYPE_NAMES[kind])


# The steps of the fold, one for each event that changes the state.


def _state(state: AgentState, data: dict[str, Any], origin: Origin) -> None:
    # The log is history: what it says happened, also where a rule has changed since.
    new, blob = SessionState(data["to"]), b""
    suspended = new is SessionState.SUSPENDED
    if suspended and (encoded := data.get("provider_state", "")) != "":
        blob = base64.b64decode(_text(encoded), validate=True)
    session = state.session
    session.state, session.provider_state = new, blob
    session.suspended_at = origin.ts if suspended else None


def _enqueued(state: AgentState, data: dict[str, Any], origin: Origin) -> None:
    waiting = _waiting(data, origin.ts)
    state.counters["messages"] += 1
    state.pending.append(waiting, state.counters["messages"], origin.offset)
    if data.get("notice") is not True:
        state.last_input = origin.ts
    if state.title is None and data["kind"] == "user":
        state.title = title_of(data["content"])


def message_of(record: Record) -> dict[str, Any] | None:
    """Return what the inbox holds of the message that a record enqueues; None if it does not."""
    try:
        if record.event == "message.enqueued":
            return waiting_message(_exact(record.data), record.ts)
    except BROKEN:
        pass
    return None


def waiting_message(data: dict[str, Any], ts: str) -> dict[str, Any]:
    """Return what the inbox holds of a message, from the data of its `message.enqueued`.

    Raises one of `BROKEN`.
    """
    _check_needs(data, EVENTS["message.enqueued"].needs)
    return _waiting(data, ts)


def _waiting(data: dict[str, Any], ts: str) -> dict[str, Any]:
    if not all(isinstance(part, dict) for part in data["content"]):
        raise TypeError("content, which is no list of parts")
    waiting = {
        "messageId": data["message_id"],
        "sender": data["sender"],
        "kind": data["kind"],
        "content": data["content"],
        "replyTo": answered if isinstance(answered := data.get("reply_to"), str) else None,
        "enqueuedAt": ts,
    }
    for flag in MESSAGE_FLAGS:
        if data.get(flag) is True:
            waiting[flag] = True
    if isinstance(mode := data.get("permission_mode"), str):
        waiting["permissionMode"] = mode
    return waiting


def title_of(content: list[dict[str, Any]]) -> str | None:
    """Return the first line of text in a prompt, cut at `TITLE_LENGTH` characters, or None."""
    for part in content:
        text = part.get("text")
        if isinstance(text, str) and text.strip():
            return text.strip().splitlines()[0].strip()[:TITLE_LENGTH]
    return None


def _started(state: AgentState, data: dict[str, Any], origin: Origin) -> None:
    state.pending = state.pending.without(_texts(data["message_ids"]))
    state.open_turn = {
        "turnId": data["turn_id"],
        "messageIds": data["message_ids"],
        "attempt": data["attempt"],
        "startedAt": origin.ts,
        "ended": None,
        "aborted": False,
        "deferred": [],
    }
    state.last_activity = origin.ts
    state.counters["turns"] += 1
    _keep_own_transcripts(state)


def _completed(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    _spent(state, data)
    _ended(state, "completed")
    state.missed = False


def _spent(state: AgentState, data: dict[str, Any]) -> None:
    if (spent := data.get("usage")) is not None:
        thinking = [spent["thinkingTokens"]] if "thinkingTokens" in spent else []
        counts = [*(spent[name] for name in COUNTED), *thinking]
        if type(spent["exact"]) is not bool or not all(map(_is_count, counts)):
            raise TypeError("usage")
        state.usage = add_usage(state.usage, spent)
    if (cost := cost_of(data)) is not None:
        state.cost = min((state.cost or 0) + cost, jsontext.MAX_INT)


def cost_of(data: dict[str, Any]) -> float | None:
    """Return the US dollars that the end of a turn reports; None for no believable number."""
    cost = data.get("cost_usd")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= BELIEVABLE:
        return cost
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _failed(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    _spent(state, data)
    state.counters["failedTurns"] += 1
    _ended(state, "failed")


def _aborted(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    _spent(state, data)
    state.counters["failedTurns"] += 1
    _ended(state, "failed" if data["reason"] == "crash" else "aborted")


def _ended(state: AgentState, outcome: str) -> None:
    # The turn stays open until its messages are delivered: a crash in between must be seen.
    turn = state.open_turn
    if turn is not None:
        turn["ended"] = outcome
        if not turn["messageIds"]:
            state.open_turn = None


def _delivered(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    message = data["message_id"]
    state.pending = state.pending.without([message])
    turn = state.open_turn
    if turn is not None and message in turn["messageIds"]:
        turn["messageIds"] = [m for m in turn["messageIds"] if m != message]
        if not turn["messageIds"] and turn["ended"]:
            state.open_turn = None


def _abort_requested(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    if (turn := _turn_of(state, data)) is not None:
        turn["aborted"] = True


def _abort_cleared(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    if (turn := _turn_of(state, data)) is not None:
        turn["aborted"] = False


def _turn_of(state: AgentState, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return the open turn if it is the one that a record names."""
    turn = state.open_turn
    return turn if turn is not None and turn["turnId"] == data["turn_id"] else None


def _sent(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    if (turn := _turn_of(state, data)) is not None:
        turn["deferred"].append({"to": data["to"], "messageId": data["message_id"]})


def _unsent(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    message = data["message"]
    # The receiver will take it so; raises for what it could not.
    waiting_message({**message, "sender": state.agent_id, "kind": "system"}, "")
    state.unsent = {**state.unsent, message["message_id"]: {"to": data["to"], "message": message}}


def _resent(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    sent = data["message_id"]
    state.unsent = {one: entry for one, entry in state.unsent.items() if one != sent}


def _spawn_requested(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    child, name = data["child"], data["name"]
    state.children[child] = {"name": name, "status": "pending"}
    if (turn := _turn_of(state, data)) is not None:
        turn["deferred"].append({"child": child, "name": name})


def _spawned(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    child, status = data["child"], data["status"]
    if status in ("success", "error"):
        state.children.pop(child, None)
    else:
        state.children[child] = {"name": data["name"], "status": status}


def _spawn_dropped(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.children.pop(data["child"], None)


def _outgoing(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.undelivered.append(data["message_id"])


def _handed_out(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    handed = data["message_id"]
    state.undelivered = [one for one in state.undelivered if one != handed]


def _renamed(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.name = data["name"]


def _tagged(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.tags = _texts(data["tags"])


def _set(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    values = data["values"]
    cwd, model = _text(values.get("cwd", "")), _text(values.get("model", ""))
    fallbacks = _texts(_list(values.get("fallbacks", [])))
    settings = {key: _text(values[name]) for name, key in SET_TEXTS.items() if name in values}
    budget = _budget(values.get("budget", {}))
    if "cwd" in values:
        state.cwd = cwd
        state.native = {**state.native, "cwd": cwd}
    if "model" in values:
        state.session.model = model
    if "fallbacks" in values:
        state.fallbacks = fallbacks
    state.settings = {**state.settings, **settings}
    if "budget" in values:
        state.budget = budget
    if data.get("reason") == IMPORT:
        state.imported = True
        state.unsent = {}  # the agents that a bundle names are not those of this root


def _set_props(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.props = data["props"]


def _set_data(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    values = data["values"]
    scope = SCOPES.get(data["scope"])
    if scope is not None:
        setattr(state, scope, with_values(getattr(state, scope), values))


def with_values(held: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `data.set` makes of the values that are held: None removes one."""
    return {key: value for key, value in {**held, **values}.items() if value is not None}


def _runner(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    state.runner = data["name"]


def _unchanged(_state: AgentState, _data: dict[str, Any], _origin: Origin) -> None:
    """Change nothing, by a record that must hold what its event needs."""


def _budget(value: Any) -> dict[str, Any]:
    """Return a budget, in which every limit that this version knows is a number."""
    for name in BUDGET:
        limit = _table(value).get(name, 0)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 0:
            raise TypeError("budget")
    return _table(value)


def _block(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    if data["block"].get("superseded") is not True:
        state.counters["blocks"] += 1


def _native(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    native = data["native"]
    _texts(native[name] for name in ("id", "cwd", "architecture"))
    state.cwd, state.architecture = native["cwd"], native["architecture"]
    state.native = native
    if data.get("reason") == FALLBACK:
        state.missed = True
    else:
        _keep_own_transcripts(state)


def _keep_own_transcripts(state: AgentState) -> None:
    """Leave the transcripts of other sessions to the log and to manifest.json."""
    state.transcripts = of_session(state.transcripts, state.native["id"])


def _reset(state: AgentState, _data: dict[str, Any], _origin: Origin) -> None:
    state.missed = False


def _synced(state: AgentState, data: dict[str, Any], _origin: Origin) -> None:
    synced: dict[str, dict[str, Any]] = {}
    for entry in data["files"]:
        size = entry["size"]
        texts = (entry["path"], entry["role"], entry["sha256"])
        if type(size) is not int or size < 0 or not all(isinstance(text, str) for text in texts):
            raise TypeError("files, which are no transcripts")
        kept = {"role": entry["role"], "size": size, "sha256": entry["sha256"]}
        if chunk := chunk_of(entry):
            kept["chunk"] = chunk
        synced[entry["path"]] = {**kept, "native": state.native["id"]}
    state.synced.update(synced)
    state.is_unlisted = True
    for path, entry in synced.items():
        if entry["role"] == STREAM:
            state.transcripts.pop(path, None)
        else:
            state.transcripts[path] = entry


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("object")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text")
    return value


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]


_TURN = {"turn_id": str}
_MESSAGE = {"message_id": str}

# Every event that this program writes, in the order of event.schema.json. `data` of `agent.tagged`
# has the schema event-agent-tagged.schema.json, and so on.
EVENTS: Mapping[str, Event] = {
    "session.created": Event(
        needs={
            **dict.fromkeys(("agent_id", "provider", "model"), str),
            **dict.fromkeys(("native", "descriptor"), dict),
            **dict.fromkeys(("profile", "cwd"), str),
        }
    ),
    # What may follow what is the state machine's to say, after a close too.
    "session.state": Event(_state, {"to": str}, AfterClose.ALWAYS),
    "message.enqueued": Event(
        _enqueued, {"content": list, "message_id": str, "sender": str, "kind": str}
    ),
    "message.delivered": Event(_delivered, _MESSAGE, AfterClose.ALWAYS),
    "message.sent": Event(_sent, {**_TURN, "to": str, "message_id": str}),
    "message.unsent": Event(_unsent, {"message": dict, "to": str}, AfterClose.ALWAYS),
    "message.resent": Event(_resent, _MESSAGE, AfterClose.ALWAYS),
    "turn.start": Event(_started, {"message_ids": list, "turn_id": str, "attempt": int}),
    "block": Event(_block, {"block": dict}, AfterClose.BY_OPEN_TURN),
    "turn.complete": Event(_completed, after_close=AfterClose.BY_OPEN_TURN),
    "turn.error": Event(_failed, after_close=AfterClose.BY_OPEN_TURN),
    "turn.aborted": Event(_aborted, {"reason": str}, AfterClose.BY_OPEN_TURN),
    "abort.requested": Event(_abort_requested, _TURN),
    "abort.cleared": Event(_abort_cleared, _TURN),
    "outgoing": Event(_outgoing, {"message_id": str}),
    "outgoing.delivered": Event(_handed_out, _MESSAGE, AfterClose.ALWAYS),
    "spawn.requested": Event(_spawn_requested, {"child": str, "name": str, **_TURN}),
    "agent.spawned": Event(_spawned, {"child": str, "name": str, "status": str}),
    "spawn.dropped": Event(_spawn_dropped, {"child": str}),
    "history.reset": Event(_reset),
    "native.changed": Event(_native, {"native": dict}, AfterClose.BY_OPEN_TURN),
    "transcript.synced": Event(_synced, {"files": list}, AfterClose.ALWAYS),
    "workspace.captured": Event(after_close=AfterClose.ALWAYS),
    "profile.applied": Event(),
    "provider.fallback": Event(),
    "hook.failed": Event(after_close=AfterClose.BY_OPEN_TURN),
    "agent.renamed": Event(_renamed, {"name": str}),
    "agent.tagged": Event(_tagged, {"tags": list}),
    "agent.set": Event(_set, {"values": dict}),
    "props.set": Event(_set_props, {"props": dict}),
    "data.set": Event(_set_data, {"scope": str, "values": dict}),
    "timeline.set": Event(_unchanged, {"entries": list}),
    "runner.initialized": Event(_runner, {"name": str}),
    "runner.restored": Event(_unchanged, {"name": str}),
    "restore": Event(after_close=AfterClose.ALWAYS),
}
_UNKNOWN = Event()


# What may be appended (docs/behaviour.md, "Closing").


def breach_after_close(state: AgentState, event: str, data: dict[str, Any]) -> str | None:
    """Return why an event may not follow in the log of an agent, if the agent is closed."""
    if state.session.state is not SessionState.TERMINATED:
        return None
    allowed = EVENTS.get(event, _UNKNOWN).after_close
    if allowed is AfterClose.ALWAYS:
        return None
    turn = state.open_turn
    if turn is None:
        return f"{event} after the session was terminated"
    named = data.get("turn_id", turn["turnId"])
    if allowed is AfterClose.BY_OPEN_TURN and named == turn["turnId"]:
        return None
    return f"{event} after the session was terminated, which is not of the turn that was open"


def check_event(state: AgentState, event: str, data: dict[str, Any]) -> None:
    """Raise `SessionStateError` for an event that a writer may not append.

    Called under `.lock`, because another process may have closed the agent meanwhile.
    """
    if event == "session.state":
        check_transition(state.session.state, SessionState(data["to"]), state.agent_id)
    elif breach_after_close(state, event, data):
        raise SessionStateError(
            f"agent {state.agent_id} is closed: it takes no {event} any more", kind="closed"
        )
