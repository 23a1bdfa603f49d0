"""The fold: what an agent is, computed from its log alone (decision D4; SPEC.md, "Derived files").

Pure: no clock, no random, no file. An `AgentState` can be written to state.json, read back, and
folded on from there, and is then the same as one folded from the start.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from agentsdir.formats import jsontext
from agentsdir.formats.directory.states import AgentState, Session, SessionState
from agentsdir.formats.reading.usage import BELIEVABLE, add_usage

if TYPE_CHECKING:
    from agentsdir.formats.directory.records import Record

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
