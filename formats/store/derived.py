"""The derived files, byte for byte (decision D4; SPEC.md, "Derived files").

Each is a function of the log alone, so that one appended to and one rebuilt are the same file.
"""

from __future__ import annotations

import base64
from types import NoneType
from typing import TYPE_CHECKING, Any

from agentsdir.formats import jsontext
from agentsdir.formats.blocks import COUNTED
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.log import Position
from agentsdir.formats.store.state import COUNTERS, AgentState, Session, SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.store.log import Record


MANIFEST = "transcripts/manifest.json"


def session_document(session: Session) -> dict[str, Any]:
    """Return session.json, with the seed's keys in the seed's order."""
    return {
        "id": session.id,
        "state": session.state.value,
        "provider_name": session.provider_name,
        "model": session.model,
        "created_at": session.created_at,
        "suspended_at": session.suspended_at,
        "provider_state": _in_base64(session.provider_state),
    }


def _in_base64(blob: bytes) -> str:
    if not blob:
        return ""
    return base64.b64encode(blob).decode("ascii")


def derived_documents(state: AgentState) -> dict[str, bytes]:
    """Return every derived JSON document by its path within the agent's folder."""
    made = {name: make(state) for name, make in _MAKERS.items()}
    if not state.transcripts:
        del made[MANIFEST]
    return made


def derived_document(state: AgentState, name: str) -> bytes:
    """Return one of them."""
    return _MAKERS[name](state)


def _state_bytes(state: AgentState) -> bytes:
    """Return `state_document` as bytes, each field encoded once."""
    said = encode_document(_state_fields(state))
    return said.removesuffix(b"\n}\n") + _digest_line(said)


def _digest_line(said: bytes) -> bytes:
    return b',\n  "digest": "%s"\n}\n' % short_hash(said).encode()


_MAKERS: dict[str, Callable[[AgentState], bytes]] = {
    "descriptor.json": lambda state: encode_document(state.descriptor),
    "session.json": lambda state: encode_document(session_document(state.session)),
    "state.json": _state_bytes,
    MANIFEST: lambda state: encode_document(manifest_document(state)),
}


def state_document(state: AgentState) -> dict[str, Any]:
    """Return state.json: the list row, what a writer needs to go on, and the log position.

    `digest` covers the rest: what a writer goes on from must not be taken from damaged bytes.
    """
    document = _state_fields(state)
    document["digest"] = short_hash(encode_document(document))
    return document


def _state_fields(state: AgentState) -> dict[str, Any]:
    session = state.session
    return {
        "sessionId": session.id,
        "type": state.architecture,
        "agentProfileReference": state.profile,
        "createdAt": session.created_at,
        "lastActivity": state.last_activity,
        "lastInput": state.last_input,
        "agentId": state.agent_id,
        "name": state.name,
        "title": state.title,
        "tags": state.tags,
        "state": session.state.value,
        "suspendedAt": session.suspended_at,
        "provider": session.provider_name,
        "model": session.model,
        "cwd": state.cwd,
        "native": state.native,
        "descriptor": state.descriptor,
        "limits": state.limits,
        "fallbacks": state.fallbacks,
        "ephemeral": state.ephemeral,
        "counters": state.counters,
        "usage": state.usage,
        "costUsd": state.cost,
        "pending": state.pending,
        "openTurn": state.open_turn,
        "children": state.children,
        "undelivered": state.undelivered,
        "missed": state.missed,
        **({"imported": True} if state.imported else {}),
        **({"unsent": state.unsent} if state.unsent else {}),
        "transcripts": state.transcripts,
        "historySize": state.history_size,
        "logSize": state.position.size,
        "lastSeq": state.position.last_seq,
        "lastHash": state.position.last_hash,
        "unreadable": state.position.unreadable,
        "logLines": state.position.lines,
    }


def state_from_bytes(data: bytes) -> AgentState:
    """Return what state.json was made of, less the provider blob, which session.json has.

    Raises `KeyError`, `TypeError` or `ValueError` for bytes that are none of ours, or damaged; the
    caller then folds the log from its start.
    """
    said = data[: -len(_digest_line(b""))] + b"\n}\n"
    if not data.endswith(_digest_line(said)):
        raise ValueError("digest")
    document = jsontext.decode(data)
    _check_shape(document)
    position = Position(
        document["logSize"],
        document["lastSeq"],
        document["lastHash"],
        document["unreadable"],
        document["logLines"],
    )
    session = Session(
        id=document["sessionId"],
        state=SessionState(document["state"]),
        provider_name=document["provider"],
        model=document["model"],
        created_at=document["createdAt"],
        suspended_at=document["suspendedAt"],
    )
    return AgentState(
        agent_id=document["agentId"],
        session=session,
        architecture=document["type"],
        descriptor=document["descriptor"],
        native=document["native"],
        name=document["name"],
        profile=document["agentProfileReference"],
        cwd=document["cwd"],
        title=document["title"],
        last_activity=document["lastActivity"],
        pending=document["pending"],
        open_turn=document["openTurn"],
        transcripts=document["transcripts"],
        counters=document["counters"],
        usage=document["usage"],
        cost=document["costUsd"],
        last_input=document["lastInput"],
        children=document["children"],
        undelivered=document["undelivered"],
        tags=document["tags"],
        limits=document["limits"],
        fallbacks=document["fallbacks"],
        ephemeral=document["ephemeral"],
        missed=document["missed"],
        imported="imported" in document,
        unsent=document.get("unsent", {}),
        position=position,
        history_size=document["historySize"],
    )


_TEXT = (str,)
_TEXT_OR_NULL = (str, NoneType)
_SHAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("sessionId", "type", "agentProfileReference", "createdAt"), _TEXT),
    **dict.fromkeys(("agentId", "provider", "model", "cwd", "lastHash"), _TEXT),
    **dict.fromkeys(("lastActivity", "lastInput", "name", "title", "suspendedAt"), _TEXT_OR_NULL),
    **dict.fromkeys(("native", "descriptor", "counters", "usage", "transcripts"), (dict,)),
    **dict.fromkeys(("limits", "children"), (dict,)),
    **dict.fromkeys(("pending", "tags", "fallbacks", "undelivered"), (list,)),
    **dict.fromkeys(("ephemeral", "missed"), (bool,)),
    **dict.fromkeys(("historySize", "logSize", "lastSeq", "unreadable", "logLines"), (int,)),
    "costUsd": (int, float, NoneType),
    "openTurn": (dict, NoneType),
}


def _check_shape(document: dict[str, Any]) -> None:
    """Raise unless every field that the fold goes on from is what the fold makes."""
    for name, kinds in _SHAPE.items():
        value: Any = document[name]
        if not isinstance(value, kinds) or (isinstance(value, int) and value < 0):
            raise TypeError(name)
    counted = [document["counters"][name] for name in COUNTERS]
    counted += [document["usage"][name] for name in COUNTED]
    entries = [*document["pending"], *document["transcripts"].values()]
    if not all(type(count) is int for count in counted) or not all(
        isinstance(entry, dict) for entry in entries
    ):
        raise TypeError("counters, usage, pending or transcripts")
    _ = document["usage"]["exact"]
    _ = [entry["role"] for entry in document["transcripts"].values()]
    texts = [document["native"]["id"], document["descriptor"]["type"]]
    texts += [*document["tags"], *document["fallbacks"], *document["undelivered"]]
    for message in document["pending"]:
        texts += message["messageId"], message["sender"], message["kind"]
        if not all(isinstance(part, dict) for part in _list(message["content"])):
            raise TypeError("content")
    for one in document.get("unsent", {}).values():
        texts += one["to"], one["message"]["message_id"]
        if not all(isinstance(part, dict) for part in _list(one["message"]["content"])):
            raise TypeError("content")
    for child in document["children"].values():
        texts += child["name"], child["status"]
    if (turn := document["openTurn"]) is not None:
        texts += [turn["turnId"], *_list(turn["messageIds"])]
        _ = turn["ended"], turn["aborted"]
        for one in _list(turn["deferred"]):
            texts += [one[name] for name in (_CHILD if "child" in one else _SENT)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("text")


_CHILD = ("child", "name")
_SENT = ("to", "messageId")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("list")
    return value


def manifest_document(state: AgentState) -> dict[str, Any]:
    """Return transcripts/manifest.json: what each raw transcript was when it was last synced."""
    return {"files": [{"path": path, **entry} for path, entry in sorted(state.transcripts.items())]}


def history_line(record: Record) -> bytes:
    """Return what one record adds to history.jsonl: a marker, a block, or nothing."""
    entry: Any
    if record.event == "session.created":
        entry = {"type": "start", "at": record.ts, "seq": record.seq}
    elif record.event == "history.reset":
        entry = {"type": "reset", "at": record.ts, "seq": record.seq}
        if "message" in record.data:
            entry["message"] = record.data["message"]
    elif record.event == "block":
        entry = record.data.get("block")
    else:
        return b""
    if not isinstance(entry, dict):
        return b""
    try:
        return jsontext.encode_as_is(entry) + b"\n"
    except TypeError:  # it nests deeper than any writer of this format writes
        return b""


def encode_document(document: dict[str, Any]) -> bytes:
    """Return the pinned byte format of every JSON document in an agents directory."""
    return jsontext.encode_document(document)
