"""The derived files, byte for byte (decision D4; SPEC.md, "Derived files").

Each is a function of the log alone, so that one appended to and one rebuilt are the same file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats import jsontext
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.events import BROKEN, is_creation
from agentsdir.formats.store.state import AgentState, check_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import Run, Waiting


MANIFEST = "transcripts/manifest.json"


def derived_documents(state: AgentState) -> dict[str, bytes]:
    """Return every derived JSON document by its path within the agent's folder.

    Args:
        state: with the entries of all transcripts, as from a fold of the whole log.
    """
    made = {name: make(state) for name, make in _MAKERS.items()}
    if not state.synced:
        del made[MANIFEST]
    return made


def derived_document(state: AgentState, name: str) -> bytes:
    """Return one of them."""
    return _MAKERS[name](state)


def _state_bytes(state: AgentState) -> bytes:
    """Return `state_document` as bytes, each field encoded once."""
    said = encode_document(state.to_json())
    return said.removesuffix(b"\n}\n") + _digest_line(said)


def _digest_line(said: bytes) -> bytes:
    return b',\n  "digest": "%s"\n}\n' % short_hash(said).encode()


_DIGEST_LENGTH = len(_digest_line(b""))


_MAKERS: dict[str, Callable[[AgentState], bytes]] = {
    "descriptor.json": lambda state: encode_document(state.descriptor),
    "session.json": lambda state: encode_document(state.session.to_json()),
    "state.json": _state_bytes,
    MANIFEST: lambda state: encode_document(manifest_document(state)),
}


def state_document(state: AgentState) -> dict[str, Any]:
    """Return state.json: the list row, what a writer needs to go on, and the log position.

    `digest` covers the rest: what a writer goes on from must not be taken from damaged bytes.
    """
    document = state.to_json()
    document["digest"] = short_hash(encode_document(document))
    return document


def state_from_bytes(data: bytes, read: Callable[[Run], Iterable[Waiting]]) -> AgentState:
    """Return what state.json was made of, less the provider blob, which session.json has.

    Args:
        read: gives messages of the inbox that state.json does not hold.

    Raises `KeyError`, `TypeError`, `ValueError` or `Invalid` for bytes that no writer makes, or
    damaged ones; the caller then folds the log from its start.
    """
    document = unchecked_document(data)
    jsontext.check(document)  # what could not be written again would stop the next writer
    return AgentState.from_json(document, read)


def document_from_bytes(data: bytes) -> dict[str, Any]:
    """Return what a state.json says, with the shape that a writer gives it, to be shown.

    Raises as `state_from_bytes` does.
    """
    document: dict[str, Any] = unchecked_document(data)
    check_shape(document)
    return document


def unchecked_document(data: bytes) -> Any:
    """Return what a state.json says whose digest is right. Raises `ValueError` for another one.

    Only for one that is known to be ours: a digest can be made for any document.
    """
    said = data[:-_DIGEST_LENGTH] + b"\n}\n"
    if not data.endswith(_digest_line(said)):
        raise ValueError("digest")
    return jsontext.decode(data)


def manifest_document(state: AgentState) -> dict[str, Any]:
    """Return transcripts/manifest.json: what each raw transcript was when it was last synced."""
    return {"files": [{"path": path, **entry} for path, entry in sorted(state.synced.items())]}


def synced_from_manifest(data: bytes, state: AgentState) -> dict[str, dict[str, Any]] | None:
    """Return the entries of a manifest.json, by path; None for one that is not this agent's.

    Args:
        state: as state.json had it, and what came after that.
    """
    try:
        files = jsontext.decode(data)["files"]
        found = {entry["path"]: {**entry} for entry in files}
        for entry in found.values():
            texts = (entry.pop("path"), entry["role"], entry["sha256"], entry["native"])
            if type(entry["size"]) is not int or not all(type(text) is str for text in texts):
                return None
    except (*BROKEN, jsontext.JSONDecodeError):
        return None
    listed = all(found.get(p) == e for p, e in state.transcripts.items() if p not in state.synced)
    return found if listed else None


def history_line(record: Record) -> bytes:
    """Return what one record adds to history.jsonl: a marker, a block, or nothing.

    A `session.created` that no fold can begin with adds nothing, wherever it stands.
    """
    entry: Any
    if record.event == "session.created":
        if not is_creation(record):
            return b""
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
