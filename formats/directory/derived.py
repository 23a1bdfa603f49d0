"""The derived files, byte for byte (decision D4; SPEC.md, "Derived files").

Each is a function of the log alone, so that one appended to and one rebuilt are the same file.
"""

from __future__ import annotations

import base64
from typing import Any

import orjson

from agentsdir.formats import jsontext
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.log import Position
from agentsdir.formats.directory.records import Record
from agentsdir.formats.directory.states import Session, SessionState


def session_document(session: Session) -> dict[str, Any]:
    """Return session.json, with the seed's keys in the seed's order."""
    return {
        "id": session.id,
        "state": session.state.value,
        "provider_name": session.provider_name,
        "model": session.model,
        "created_at": session.created_at,
        "suspended_at": session.suspended_at,
        "provider_state": base64.b64encode(session.provider_state).decode("ascii"),
    }


def state_document(state: AgentState) -> dict[str, Any]:
    """Return state.json: the list row, what a writer needs to go on, and the log position."""
    session = state.session
    return {
        "sessionId": session.id,
        "type": state.architecture,
        "agentProfileReference": state.profile,
        "createdAt": session.created_at,
        "lastActivity": state.last_activity,
        "agentId": state.agent_id,
        "name": state.name,
        "title": state.title,
        "state": session.state.value,
        "suspendedAt": session.suspended_at,
        "provider": session.provider_name,
        "model": session.model,
        "cwd": state.cwd,
        "native": state.native,
        "descriptor": state.descriptor,
        "counters": state.counters,
        "usage": state.usage,
        "pending": state.pending,
        "openTurn": state.open_turn,
        "transcripts": state.transcripts,
        "historySize": state.history_size,
        "logSize": state.position.size,
        "lastSeq": state.position.last_seq,
        "lastHash": state.position.last_hash,
        "unreadable": state.position.unreadable,
        "logLines": state.position.lines,
    }


def state_from_document(document: dict[str, Any]) -> AgentState:
    """Return what `state_document` was made of, less the provider blob, which session.json has.

    Raises `KeyError`, `TypeError` or `ValueError` for a document that is none of ours; the caller
    then folds the log from its start.
    """
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
        position=position,
        history_size=document["historySize"],
    )


def manifest_document(state: AgentState) -> dict[str, Any]:
    """Return transcripts/manifest.json: what each raw transcript was when it was last synced."""
    return {"files": [{"path": path, **entry} for path, entry in sorted(state.transcripts.items())]}


def history_line(record: Record) -> bytes:
    """Return what one record adds to history.jsonl: a marker, a block, or nothing."""
    entry: dict[str, Any]
    if record.event == "session.created":
        entry = {"type": "start", "at": record.ts, "seq": record.seq}
    elif record.event == "history.reset":
        entry = {"type": "reset", "at": record.ts, "seq": record.seq}
        if "message" in record.data:
            entry["message"] = record.data["message"]
    elif record.event == "block":
        entry = record.data["block"]
    else:
        return b""
    return orjson.dumps(entry) + b"\n"


def encode_document(document: dict[str, Any]) -> bytes:
    """Return the pinned byte format of every JSON document in an agents directory."""
    return jsontext.encode_document(document)
