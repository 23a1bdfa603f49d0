"""`system`, `attachment` and `progress` rows: what happens around the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude import kinds, stdout
from agentsdir.adapters.claude.classify import NOTIFICATION, PEER, command_text
from agentsdir.adapters.claude.emit import HIDDEN, label
from agentsdir.adapters.claude.notices import teammate_notices
from agentsdir.adapters.claude.shapes import all_text, mapping, text
from agentsdir.adapters.claude.tree import PLAIN
from agentsdir.adapters.claude.user import say

if TYPE_CHECKING:
    from agentsdir.adapters.claude.emit import Place
    from agentsdir.adapters.claude.reading import Reading


class Note(NamedTuple):
    """How a row shows: the system block's subtype, its event, and a text if the row has none."""

    subtype: str
    event: str
    message: str = ""


# Subtypes of `system` rows, on disk and on stdout, that show. All others are logged, hidden.
_SYSTEM = {
    "compact_boundary": Note("status", "compaction", "Conversation compacted"),
    "microcompact_boundary": Note("status", "compaction", "Tool results compacted"),
    "local_command": Note("status", "local_command_output"),
    "local_command_output": Note("status", "local_command_output"),
    "api_error": Note("error", "api_error", "API error"),
    "api_retry": Note("error", "api_retry", "API error; trying again"),
    "informational": Note("status", "informational"),
    "permission_denied": Note("status", "permission_denied", "Permission denied"),
    "model_refusal_fallback": Note("status", "model_refusal", "The model refused"),
    "model_refusal_no_fallback": Note("status", "model_refusal", "The model refused"),
    "away_summary": Note("status", "away_summary"),
    "scheduled_task_fire": Note("status", "scheduled_task", "A scheduled task runs"),
    "memory_saved": Note("status", "memory_saved", "Memory saved"),
    "agents_killed": Note("status", "agents_killed", "Background agents killed"),
    "session_writes_lost": Note("error", "session_writes_lost", "Transcript rows were lost"),
    "mirror_error": Note("error", "mirror_error", "Mirroring the transcript failed"),
}
_HOOK_SUBTYPES = frozenset({"hook_response", "stop_hook_summary"})
# Attachments worth showing. A prompt typed mid-turn is one, too: `queued_command`.
_ATTACHMENTS = {
    "max_turns_reached": Note("status", "max_turns_reached", "Maximum number of turns reached"),
    "task_status": Note("status", "task_status", "Background task"),
    "edited_text_file": Note("status", "edited_text_file", "A file was changed outside"),
    "hook_blocking_error": Note("hook_response", "hook_error", "A hook blocked"),
    "hook_error_during_execution": Note("hook_response", "hook_error", "A hook failed"),
    "hook_non_blocking_error": Note("hook_response", "hook_error", "A hook failed"),
    "hook_system_message": Note("hook_response", "hook_message", "A hook says"),
    "hook_stopped_continuation": Note("hook_response", "hook_error", "A hook stopped the turn"),
}
# Why a row of a known kind is hidden, by what the kind is a kind of.
_HIDDEN_AS = {"subtype": "system", "attachment": "attachment", "progress": "progress"}
# What every row carries, and what the block itself says: no part of its metadata.
_ENVELOPE = frozenset(
    [
        "type",
        "subtype",
        "uuid",
        "parentUuid",
        "timestamp",
        "sessionId",
        "session_id",
        "cwd",
        "version",
        "gitBranch",
        "userType",
        "isSidechain",
        "agentId",
        "entrypoint",
        "slug",
        "isMeta",
        "content",
        "level",
        "logicalParentUuid",
        "parentToolUseID",
        "promptId",
        "teamName",
        "agentName",
        "sessionKind",
        "attachment",
    ]
)


def read_system(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Turn a `system` row into a block; return what became of it."""
    subtype = text(value.get("subtype"))
    if subtype == "init":
        return _start(reading, value, place)
    if subtype.startswith("task_"):
        return _task(reading, value, place, subtype)
    words = all_text(value.get("content"))
    note = _SYSTEM.get(subtype)
    if subtype in _HOOK_SUBTYPES and _hook_failed(value):
        note = Note("hook_response", "hook_error", "A hook failed")
    elif not subtype and words:
        note = Note("status", "notice")
    if note is None:
        _hide(reading, place, "subtype", subtype, kinds.SUBTYPES)
        return reading.emitter.log(place, 0, value)
    if note.event == "local_command_output":
        words = command_text(words)
    if subtype == "compact_boundary":
        reading.tokens.set_aside()
    message = words or _error_text(value) or text(value.get("message")) or note.message
    if not message:
        reading.reason = "empty"
        return reading.emitter.log(place, 0, value)
    metadata = {"event": note.event, **_details(value)}
    return reading.emitter.say(place, note.subtype, message, metadata)


def _hide(reading: Reading, place: Place, what: str, name: str, known: frozenset[str]) -> None:
    """Say why a row is hidden: it is of a kind that shows nothing, or of an unknown one."""
    if name in known:
        reading.reason = _HIDDEN_AS[what]
    else:
        reading.unknown(what, name, place.source)


def _details(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in _ENVELOPE}


def _error_text(value: dict[str, Any]) -> str:
    error = value.get("error")
    if isinstance(error, dict):
        inner = mapping(mapping(error.get("error")).get("error"))
        return (
            text(error.get("formatted")) or text(error.get("message")) or text(inner.get("message"))
        )
    return text(error)


def _hook_failed(value: dict[str, Any]) -> bool:
    return bool(
        value.get("hookErrors")
        or value.get("preventedContinuation")
        or value.get("outcome") == "error"
    )


def _start(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Show the first `init`; the client repeats it for every turn."""
    version = value.get("claude_code_version")
    if isinstance(version, str):
        reading.written_by(version)
    reading.tokens.begun()
    if reading.started:
        reading.reason = "repeated"
        return reading.emitter.log(place, 0, value)
    reading.started = True
    metadata = {"event": "init", **_details(value)}
    return reading.emitter.say(place, "session_start", "Session started", metadata)


def _task(reading: Reading, value: dict[str, Any], place: Place, subtype: str) -> int:
    """Take what stdout says about background tasks and subagents."""
    if subtype == "task_started":
        stdout.task_started(reading, value)
    elif subtype == "task_updated":
        stdout.task_updated(reading, value)
    if subtype != "task_notification":
        _hide(reading, place, "subtype", subtype, kinds.SUBTYPES)
        return reading.emitter.log(place, 0, value)
    notice = stdout.task_notice(value)
    reading.subagents.notified(notice)
    metadata = {"event": NOTIFICATION.event, **_details(value)}
    return reading.emitter.say(place, "status", notice.summary or "Background task ended", metadata)


def read_attachment(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Turn an `attachment` row into a block; return what became of it."""
    attachment = mapping(value.get("attachment"))
    kind = attachment.get("type")
    if kind == "queued_command":
        return _queued(reading, value, place, attachment)
    note = _ATTACHMENTS.get(kind) if isinstance(kind, str) else None
    if kind == "teammate_mailbox":
        return _mail(reading, value, place, attachment)
    if note is None:
        _hide(reading, place, "attachment", text(kind), kinds.ATTACHMENTS)
        return reading.emitter.log(place, 0, value)
    detail = next(
        (
            found
            for name in ("message", "summary", "filename", "description", "stderr")
            if (found := text(attachment.get(name)))
        ),
        "",
    )
    if not detail and note.subtype == "hook_response":
        blocked = mapping(attachment.get("blockingError"))
        detail = text(blocked.get("blockingError")) or all_text(attachment.get("content"))
    message = f"{note.message}: {detail}" if detail else note.message
    metadata = {"event": note.event, "attachment": attachment}
    return reading.emitter.say(place, note.subtype, message, metadata)


def _mail(reading: Reading, value: dict[str, Any], place: Place, attachment: dict[str, Any]) -> int:
    """Show what teammates reported while a turn ran; what their clients say in JSON is hidden."""
    letters = attachment.get("messages")
    said = [
        f'<teammate-message teammate_id="{text(mapping(letter).get("from"))}">\n{words}\n'
        "</teammate-message>"
        for letter in (letters if isinstance(letters, list) else [])
        if (words := text(mapping(letter).get("text")).strip()) and not words.startswith("{")
    ]
    if not said:
        reading.reason = "attachment"
        return reading.emitter.log(place, 0, value)
    message = "\n\n".join(said)
    for notice in teammate_notices(message):
        reading.subagents.notified(notice)
    return reading.emitter.say(place, PEER.subtype, message, {"event": PEER.event})


def _queued(
    reading: Reading, value: dict[str, Any], place: Place, attachment: dict[str, Any]
) -> int:
    """Show what was typed while a turn ran: the transcript has it nowhere else."""
    prompt = attachment.get("prompt")
    if attachment.get("commandMode") == "task-notification":
        value = {**value, "origin": {"kind": "task-notification"}}
    elif attachment.get("isMeta") is True:
        value = {**value, "isMeta": True, "origin": attachment.get("origin")}
    elif isinstance(attachment.get("origin"), dict):
        value = {**value, "origin": attachment["origin"], "promptSource": "queued"}
    elif attachment.get("commandMode") == "prompt":
        value = {**value, "promptSource": "queued"}
    outcome = say(reading, value, place, prompt)
    reading.mark = PLAIN  # it stands within a turn, so it opens no branch
    return outcome


def read_progress(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Hide a progress row, but note which agent it shows at work."""
    data = mapping(value.get("data"))
    name = text(data.get("type"))
    if name == "agent_progress":
        reading.subagents.names("progress", value.get("parentToolUseID"), data.get("agentId"))
    _hide(reading, place, "progress", name, kinds.PROGRESS)
    if reading.emitter.sink.wants_hidden:
        return reading.emitter.log(place, 0, value, f"{label(value)}/{name}" if name else "")
    return HIDDEN
