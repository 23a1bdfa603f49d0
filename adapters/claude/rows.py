"""Rows of a transcript of Claude Code turned into blocks; every line is settled once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude import shapes, stdout
from agentsdir.adapters.claude.emit import (
    FOLDED,
    HIDDEN,
    LATER,
    PARSED,
    BlockEmitter,
    RowContext,
    label,
)
from agentsdir.adapters.claude.prompts import Queue, add_prompt, read_user
from agentsdir.adapters.claude.shapes import (
    SYNTHETIC,
    agent_id,
    all_text,
    identifier,
    is_row,
    mapping,
    part_text,
    parts,
    text,
)
from agentsdir.adapters.claude.speakers import (
    NOTIFICATION,
    PEER,
    command_text,
    divide_speech,
    teammate_notices,
)
from agentsdir.adapters.claude.subagents import TOOLS
from agentsdir.adapters.claude.tokens import FileUsage, compare
from agentsdir.adapters.claude.tree import ANSWER, FILLER, NOTED, PLAIN, PROMPT, Tree
from agentsdir.formats import times
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import short_hash, stand_in
from agentsdir.formats.rows import BEGINNING, LinePosition, end_of, read_rows
from agentsdir.formats.sink import DROPPED, ParseSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.adapters.claude.emit import OpenCalls
    from agentsdir.adapters.claude.subagents import Subagents
    from agentsdir.formats.blocks import BlockSource
    from agentsdir.formats.rows import Row
    from agentsdir.formats.sink import BlockSink
    from agentsdir.formats.source import Source

    RowReader = Callable[["TranscriptParser", dict[str, Any], RowContext], int]


# `assistant` rows: one block for each content part of a model message.

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILLING = "No response requested."
CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_COMMAND_FIELDS = ("contextUsage", "commandRun")
_ERROR_FIELDS = ("error", "apiError", "apiErrorStatus", "apiErrorType", "errorDetails")


def read_assistant(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Turn an `assistant` row into blocks; return its outcome."""
    message = value.get("message")
    if type(message) is not dict:
        message = {}
    content = message.get("content")
    if message.get("model") == SYNTHETIC or value.get("isApiErrorMessage") is True:
        return _synthetic(parser, value, context, content)
    parser.mark = ANSWER
    common: dict[str, Any] = {}
    message_id = message.get("id")
    if isinstance(message_id, str) and message_id:
        common["messageId"] = message_id
    pieces = content if type(content) is list else parts(content)
    if len(pieces) == 1:
        last = _part(parser, value, context, 0, pieces[0], message, common)
    else:
        last = _several(parser, value, context, pieces, message, common)
    hidden = last == DROPPED
    if hidden:
        if not pieces:
            parser.reason = "empty"
            parser.emitter.log(context, 0, value)
        last = parser.emitter.first  # a hidden one, if those are wanted: tokens stand somewhere
    parser.tokens.note(context.conversation, value, message, last, visible=not hidden)
    return HIDDEN if hidden else PARSED


def _several(
    parser: TranscriptParser,
    value: dict[str, Any],
    context: RowContext,
    pieces: list[Any],
    message: dict[str, Any],
    common: dict[str, Any],
) -> int:
    """Add the blocks of content parts; return the last handle, `DROPPED` if all are hidden."""
    last = DROPPED
    is_uuid = _UUID.fullmatch(context.base)
    for index, part in enumerate(pieces):
        if is_uuid:
            # As on stdout, where each part is a line of its own.
            named = context._replace(base=f"{context.base[:24]}{index:012x}")
            handle = _part(parser, value, named, 0, part, message, common)
        else:
            handle = _part(parser, value, context, index, part, message, common)
        if handle != DROPPED:
            last = handle
    return last


def _part(
    parser: TranscriptParser,
    value: dict[str, Any],
    context: RowContext,
    index: int,
    part: Any,
    message: dict[str, Any],
    common: dict[str, Any],
) -> int:
    """Add the block of one content part; return its handle, `DROPPED` for a hidden one."""
    emit = parser.emitter.emit
    if type(part) is str:
        part = {"type": "text", "text": part}
    if type(part) is dict:
        kind = part.get("type")
        if kind == "text":
            fields = {"content": text(part.get("text")), **common}
            model = message.get("model")
            if isinstance(model, str):
                fields["model"] = model
            return emit("assistant_text", context, index, fields)
        if kind == "thinking":
            fields = {"content": text(part.get("thinking")), **common}
            signature = part.get("signature")
            if isinstance(signature, str):
                fields["signature"] = signature
            return emit("thinking", context, index, fields)
        if kind == "redacted_thinking":
            data = text(part.get("data"))
            fields = {"content": "", **common, "signature": data, "redacted": True}
            return emit("thinking", context, index, fields)
        if isinstance(kind, str) and kind in CALLS:
            return _call(parser, context, index, part, common)
        if isinstance(kind, str) and kind.endswith("_tool_result"):
            return _server_result(parser, context, index, part, common)
    parser.hide_part(context, index, value, part)
    return DROPPED


def _call(
    parser: TranscriptParser,
    context: RowContext,
    index: int,
    part: dict[str, Any],
    common: dict[str, Any],
) -> int:
    tool_use_id = text(part.get("id"))
    name = text(part.get("name"))
    given = part.get("input")
    if name in TOOLS and part["type"] == "tool_use":
        call = parser.subagents.opened(context, tool_use_id, mapping(given))
        fields = {"input": call.prompt, "toolUseId": tool_use_id, **common}
        if call.name:
            fields["name"] = call.name
        if call.description:
            fields["description"] = call.description
        call.handle = parser.emitter.emit("subagent", context, index, fields)
        return call.handle
    fields = {
        "toolName": name,
        "toolUseId": tool_use_id,
        "input": {} if given is None else given,
        **common,
    }
    handle = parser.emitter.emit("tool_use", context, index, fields)
    parser.calls.opened(context.conversation, tool_use_id, handle)
    return handle


def _server_result(
    parser: TranscriptParser,
    context: RowContext,
    index: int,
    part: dict[str, Any],
    common: dict[str, Any],
) -> int:
    """Add the result of a tool that ran at the model's side, which is a part of the message."""
    output = part.get("content")
    error = part.get("is_error") is True or text(mapping(output).get("type")).endswith("_error")
    tool_use_id = text(part.get("tool_use_id"))
    fields = {
        "toolUseId": tool_use_id,
        "output": "" if output is None else output,
        "isError": error,
        **common,
    }
    handle = parser.emitter.emit("tool_result", context, index, fields)
    parser.calls.answered(tool_use_id, "error" if error else "success", context)
    return handle


def _synthetic(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, content: Any
) -> int:
    """Add what the client wrote as the model: an error, a notice, a text that an Esc cut off."""
    words = all_text(content)
    if value.get("isApiErrorMessage") is not True and value.get("error") is None:
        if words == _FILLING or not words:
            parser.mark = FILLER
            parser.reason = "filler"
            return parser.emitter.log(context, 0, value)
        if value.get("isApiErrorMessage") is False and "parentUuid" in value:
            # The model's text before an Esc; the message is that of the rows above.
            parser.mark = ANSWER
            parser.emitter.emit("assistant_text", context, 0, {"content": words})
            return PARSED
        event = "client_notice"
        if "local_command_source" in value:  # the output of a command, on stdout
            event = "local_command_output"
        details = {name: value[name] for name in _COMMAND_FIELDS if name in value}
        return parser.emitter.add_system(context, "status", words, {"event": event, **details})
    parser.tokens.note_error()
    metadata: dict[str, Any] = {"event": "api_error"}
    for name in _ERROR_FIELDS:
        if value.get(name) is not None:
            metadata[name] = value[name]
    request = identifier(value.get("requestId"))
    if request:
        metadata["requestId"] = request
    return parser.emitter.add_system(context, "error", words or "API error", metadata)


# `system`, `attachment` and `progress` rows: events around the conversation.


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


def read_system(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Turn a `system` row into a block; return its outcome."""
    subtype = text(value.get("subtype"))
    if subtype == "init":
        return _start(parser, value, context)
    if subtype.startswith("task_"):
        return _task(parser, value, context, subtype)
    words = all_text(value.get("content"))
    note = _SYSTEM.get(subtype)
    if subtype in _HOOK_SUBTYPES and _hook_failed(value):
        note = Note("hook_response", "hook_error", "A hook failed")
    elif not subtype and words:
        note = Note("status", "notice")
    if note is None:
        _hide(parser, context, "subtype", subtype, shapes.SUBTYPES)
        return parser.emitter.log(context, 0, value)
    if note.event == "local_command_output":
        words = command_text(words)
    if subtype == "compact_boundary":
        parser.tokens.note_unseen_request()
    message = words or _error_text(value) or text(value.get("message")) or note.message
    if not message:
        parser.reason = "empty"
        return parser.emitter.log(context, 0, value)
    metadata = {"event": note.event, **_details(value)}
    return parser.emitter.add_system(context, note.subtype, message, metadata)


def _hide(
    parser: TranscriptParser, context: RowContext, what: str, name: str, known: frozenset[str]
) -> None:
    """Note why a row is hidden: its kind shows nothing, or is unknown."""
    if name in known:
        parser.reason = _HIDDEN_AS[what]
    else:
        parser.unknown(what, name, context.source)


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


def _start(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Add the first `init` alone; the client repeats it for every turn."""
    version = value.get("claude_code_version")
    if isinstance(version, str):
        parser.written_by(version)
    parser.tokens.note_turn()
    if parser.started:
        parser.reason = "repeated"
        return parser.emitter.log(context, 0, value)
    parser.started = True
    metadata = {"event": "init", **_details(value)}
    return parser.emitter.add_system(context, "session_start", "Session started", metadata)


def _task(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, subtype: str
) -> int:
    """Take a line of stdout about background tasks and subagents."""
    if subtype == "task_started":
        stdout.task_started(parser, value)
    elif subtype == "task_updated":
        stdout.task_updated(parser, value)
    if subtype != "task_notification":
        _hide(parser, context, "subtype", subtype, shapes.SUBTYPES)
        return parser.emitter.log(context, 0, value)
    notice = stdout.task_notice(value)
    parser.subagents.notified(notice)
    metadata = {"event": NOTIFICATION.event, **_details(value)}
    return parser.emitter.add_system(
        context, "status", notice.summary or "Background task ended", metadata
    )


def read_attachment(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Turn an `attachment` row into a block; return its outcome."""
    attachment = mapping(value.get("attachment"))
    kind = attachment.get("type")
    if kind == "queued_command":
        return _queued(parser, value, context, attachment)
    note = _ATTACHMENTS.get(kind) if isinstance(kind, str) else None
    if kind == "teammate_mailbox":
        return _mail(parser, value, context, attachment)
    if note is None:
        _hide(parser, context, "attachment", text(kind), shapes.ATTACHMENTS)
        return parser.emitter.log(context, 0, value)
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
    return parser.emitter.add_system(context, note.subtype, message, metadata)


def _mail(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, attachment: dict[str, Any]
) -> int:
    """Add reports of teammates while a turn ran; JSON of their clients is hidden."""
    letters = attachment.get("messages")
    said = [
        f'<teammate-message teammate_id="{text(mapping(letter).get("from"))}">\n{words}\n'
        "</teammate-message>"
        for letter in (letters if isinstance(letters, list) else [])
        if (words := text(mapping(letter).get("text")).strip()) and not words.startswith("{")
    ]
    if not said:
        parser.reason = "attachment"
        return parser.emitter.log(context, 0, value)
    message = "\n\n".join(said)
    for notice in teammate_notices(message):
        parser.subagents.notified(notice)
    return parser.emitter.add_system(context, PEER.subtype, message, {"event": PEER.event})


def _queued(
    parser: TranscriptParser, value: dict[str, Any], context: RowContext, attachment: dict[str, Any]
) -> int:
    """Add a prompt typed while a turn ran: the transcript has it nowhere else."""
    prompt = attachment.get("prompt")
    if attachment.get("commandMode") == "task-notification":
        value = {**value, "origin": {"kind": "task-notification"}}
    elif attachment.get("isMeta") is True:
        value = {**value, "isMeta": True, "origin": attachment.get("origin")}
    elif isinstance(attachment.get("origin"), dict):
        value = {**value, "origin": attachment["origin"], "promptSource": "queued"}
    elif attachment.get("commandMode") == "prompt":
        value = {**value, "promptSource": "queued"}
    outcome = add_prompt(parser, value, context, prompt)
    parser.mark = PLAIN  # it is within a turn, so it opens no branch
    return outcome


def read_progress(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Hide a progress row, but note its agent."""
    data = mapping(value.get("data"))
    name = text(data.get("type"))
    if name == "agent_progress":
        parser.subagents.names("progress", value.get("parentToolUseID"), data.get("agentId"))
    _hide(parser, context, "progress", name, shapes.PROGRESS)
    if parser.emitter.sink.wants_hidden:
        return parser.emitter.log(context, 0, value, f"{label(value)}/{name}" if name else "")
    return HIDDEN


# One transcript file. It is read whole (`run`) or row by row (`take`). `branches` may be called at
# any time, `finish` once at the end.

# Rows in the chain of messages, and the stdout lines that correspond to them.
_CHAINED: dict[str, RowReader] = {
    "user": read_user,
    "assistant": read_assistant,
    "system": read_system,
    "attachment": read_attachment,
    "progress": read_progress,
}
_EVENTS: dict[str, RowReader] = {
    "result": stdout.read_result,
    "auth_status": stdout.read_auth_status,
    "rate_limit_event": stdout.read_rate_limit,
}
# Why a row is hidden or folded if its reader does not say.
_REASONS = {HIDDEN: "bookkeeping", FOLDED: "repeated"}
_REASON_OF_ROW = {"stream_event": "partial-message", **dict.fromkeys(shapes.CONTROL, "control")}
# Rows with text that the client got from a model, without another row for the request.
_MADE_BY_A_MODEL = frozenset({"ai-title", "summary"})


def _words(value: dict[str, Any], pieces: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the type and the text of each block of a row that has text."""
    for part in pieces:
        said = part_text(part)
        if said is not None and value.get("type") == "user":
            speaker, ((before, typed),) = divide_speech(value, [said])
            if speaker.is_person and not before:
                yield "user_message", typed
        elif said is not None:
            yield "assistant_text", said
        elif isinstance(part, dict) and part.get("type") == "thinking":
            yield "thinking", text(part.get("thinking"))


def _read_unknown(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Hide a row of an unknown type that is in the chain."""
    parser.unknown("row", value["type"], context.source)
    return parser.emitter.log(context, 0, value)


class TranscriptParser:
    """Parses the rows of one file of a session.

    Args:
        sink: takes the blocks of the whole session.
        calls: the open tool calls of the whole session.
        subagents: the agent calls and threads of the whole session.
        file: the file's name in blocks and findings.
        thread: the conversation of all rows; None where the rows name it.
        session: the session id for rows that come before any that names one.
        meta: the sidecar of a subagent's file.
        stand_in: returns the number that stands for an id.
    """

    def __init__(
        self,
        sink: BlockSink,
        calls: OpenCalls,
        subagents: Subagents,
        file: str,
        *,
        thread: str | None,
        session: str,
        meta: dict[str, Any],
        stand_in: Callable[[str], int] = stand_in,
    ) -> None:
        self.emitter = BlockEmitter(sink)
        self.calls = calls
        self.subagents = subagents
        self.tokens = FileUsage(stand_in)
        self.queue = Queue(self)
        self.tree = Tree(stand_in)
        self.version: str | None = None
        # What the row is to the tree; its reader sets it.
        self.mark = PLAIN
        # The last row that warns the model of the command in the row below it.
        self.caveat: str | None = None
        # From stdout lines: whether an init and answers came, and the agent of each call.
        self.started = False
        self.answers = False
        self.stdout_agents: dict[str, str] = {}
        tally = sink.tally
        # By outcome: PARSED, HIDDEN, FOLDED.
        self._settle_parsed = tally.settle_parsed
        self._settle_with_reason = {HIDDEN: tally.settle_hidden, FOLDED: tally.settle_folded}
        # Why the current row is hidden or folded; its reader sets it.
        self.reason = ""
        self._sink = sink
        self._stand_in = stand_in
        self._file = file
        self._thread = thread
        self._session = self._own = session
        # Uuids of rows outside the chain: blocks of other rows do not use them.
        self._aside: set[str] = set()
        # The session of the first message, and whether another session was reported.
        self._home = session or None
        self._mixed = False
        self._meta = meta
        self._occurrences: dict[str, int] = {}
        self._sidechains: dict[str, str] = {}
        self._last_sidechain: str | None = None
        self._superseded: dict[int, str] = {}
        if thread is None:
            subagents.main_rows = self.tree.numbers

    def run(self, source: Source, start: LinePosition = BEGINNING) -> LinePosition | None:
        """Read the file from `start` on; return where it ends, None in a line without an end."""
        sink = self._sink
        tally, before = sink.tally, sink.tally.lines
        if isinstance(sink, ParseSink):
            self.tokens.state_early(sink, self.calls.handles)
        with source.open() as stream:
            if start.offset:
                stream.seek(start.offset)
            rows = read_rows(stream, self._file, tally, sink.finding, is_record=is_row, start=start)
            self.take_all(rows)
            return end_of(stream, start.lines + tally.lines - before)

    def take(self, row: Row) -> None:
        """Read the next row."""
        self.settle(row, self._read(row))

    def take_all(self, rows: Iterable[Row]) -> int:
        """Read the next rows; return how many there were."""
        read, tally = self._read, self._sink.tally
        number = 0
        for number, row in enumerate(rows, 1):  # noqa: B007, counts them
            outcome = read(row)
            if outcome == PARSED and not row.salvaged:
                tally.parsed += 1  # by far the most, so without a call
            else:
                self.settle(row, outcome)
        return number

    def describe(self, meta: dict[str, Any]) -> None:
        """Take the sidecar of a subagent's file, also after its rows."""
        self._meta = meta
        thread = self.subagents.threads.get(self._thread or "")
        if thread is not None:
            thread.meta = meta
            self.subagents.changed = True

    def branches(self) -> None:
        """State which blocks are on a replaced branch, by the rows so far."""
        now: dict[int, str] = {}
        for handle, reason in self.tree.superseded():
            now.setdefault(handle, reason)
        for handle in sorted(now.keys() - self._superseded.keys()):
            self._sink.supersede(handle, now[handle])
        # Only while tailing: a conversation may continue from a branch that was replaced.
        for handle in sorted(self._superseded.keys() - now.keys()):
            self._sink.amend(handle, superseded=False)
        self._superseded = now

    def finish(self) -> None:
        """State what only the end of the file settles."""
        sink = self._sink
        self.queue.finish()
        self.branches()
        if self._thread is None:
            for finding in self.tree.findings(self._file):
                sink.finding(finding)
        self.tokens.state(sink, MAIN)
        self.subagents.close(self._file)
        if self.version is not None:
            sink.client_version = self.version

    @property
    def has_threads(self) -> bool:
        """Whether rows of subagents stand in this file: of a main transcript, in an old one."""
        return any(thread.file == self._file for thread in self.subagents.threads.values())

    def snapshot(self) -> dict[str, Any] | None:
        """Return as JSON what a main transcript's next rows need of these, before `finish`.

        None while prompts wait, and where rows of subagents stand in it: their threads end with it.
        """
        tokens = self.tokens.snapshot()
        if tokens is None or self.has_threads or not self.queue.is_idle:
            return None
        return {
            "version": self.version,
            "caveat": self.caveat,
            "started": self.started,
            "answers": self.answers,
            "stdoutAgents": self.stdout_agents,
            "own": self._own,
            "session": self._session,
            "home": self._home,
            "mixed": self._mixed,
            "aside": sorted(self._aside),
            "occurrences": self._occurrences,
            "owed": self.queue.owed,
            "tokens": tokens,
            "tree": self.tree.snapshot(),
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Continue after the rows of a snapshot.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none.
        """
        if self._own != snapshot["own"]:
            raise ValueError("the first rows name another session now")
        self.version, self.caveat = snapshot["version"], snapshot["caveat"]
        self.started, self.answers = snapshot["started"], snapshot["answers"]
        self.stdout_agents = snapshot["stdoutAgents"]
        self._session, self._home = snapshot["session"], snapshot["home"]
        self._mixed = snapshot["mixed"]
        self._aside.update(snapshot["aside"])
        self._occurrences = snapshot["occurrences"]
        self.queue.resume(snapshot["owed"])
        self.tokens.resume(snapshot["tokens"])
        self.tree.resume(snapshot["tree"])

    def compare(self) -> None:
        """Compare the client's own count with all files; stdout uses that count instead."""
        if not self.started:
            compare(self._sink, self._file)

    def written_by(self, version: str) -> None:
        """Note the client's version for the rows from here on; a file may span an upgrade."""
        self.version = version
        self.tokens.note_version(version)

    def settle(self, row: Row, outcome: int) -> None:
        """Count the line of `row`, unless its outcome is `LATER`."""
        if outcome == PARSED:
            self._settle_parsed(row)
        elif outcome != LATER:
            reason = self.reason or _REASONS[outcome]
            self._settle_with_reason[outcome](row, reason)

    def unknown(self, what: str, name: str, source: BlockSource) -> None:
        """Note something of a kind that no known client writes.

        Args:
            what: a row, a subtype, an attachment, a part, …
            name: its kind, as in the row.
            source: its place in the file.
        """
        self.reason = "unknown"
        self._sink.drifts.note(what, name or "without type", source, self.version)

    def hide_part(self, context: RowContext, index: int, value: dict[str, Any], part: Any) -> int:
        """Log a part of a row's content that shows nothing; return `HIDDEN`."""
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if isinstance(kind, str) and kind in shapes.PARTS:
            self.reason = "part"
        else:
            self.unknown("part", text(kind), context.source)
        return self.emitter.log_part(context, index, value, part)

    def _read(self, row: Row) -> int:
        value = row.value
        self.reason = ""
        if "session_id" in value and "sessionId" not in value:
            value = stdout.normalise(value)
        kind = value.get("type")
        if type(kind) is not str:
            return self._bookkeep(row, value, "")
        reader = _CHAINED.get(kind)
        if reader is None:
            if "parentUuid" not in value:
                return self._bookkeep(row, value, kind)
            reader = _read_unknown  # other rows may name it as their parent
        version = value.get("version")
        if version != self.version and type(version) is str:
            self.written_by(version)
        uuid = value.get("uuid")
        if type(uuid) is not str or len(uuid) != 36 or not uuid.isascii():
            uuid = identifier(uuid)
        key = None if uuid is None else self._stand_in(uuid)
        tree = self.tree
        thread = self._thread
        if key is not None and key in tree.numbers:
            number = tree.numbers[key]
            if thread is not None:
                tree.begin_again(number)
            self.emitter.log(self._context(row, value, None, thread or MAIN), 0, row.value)
            if self._reword(value, tree.blocks_of(number)):
                self.reason = "rewritten"
            return FOLDED
        if thread is not None:
            # A compaction's or a forked agent's file begins with rows of the thread that it reads.
            if key is not None and self.subagents.is_copy(key, self._file):
                self.reason = "copy"
                return FOLDED
        else:
            if self.subagents.rows and key in self.subagents.rows:
                self.subagents.copied_early = True
            if value.get("isSidechain") is True:
                thread = self._sidechain(value, uuid, row)
            elif "parentToolUseID" in value and kind != "progress":
                thread = stdout.conversation_of(self, value)
            else:
                thread = MAIN
        context = self._context(row, value, None if uuid in self._aside else uuid, thread)
        if context.session != self._home:
            self._note_session(row, context.session)
        emitter = self.emitter
        queue = self.queue
        if (queue.removed or queue.taken_in) and (thread is MAIN or self._thread is not None):
            queue.before(kind, value, context)
        if thread is not MAIN:
            self._open(thread, context, kind, value)
        emitter.first, emitter.count = DROPPED, 0
        self.mark = PLAIN
        outcome = reader(self, value, context)
        mark = self.mark
        if mark == PROMPT:
            self.tokens.note_prompt()
        elif mark == PLAIN and kind != "user":
            mark = NOTED
        if thread is MAIN:
            if outcome == PARSED and kind == "assistant":
                self.answers = True
            tree.add(key, row, mark, context.session, emitter.first, emitter.count)
        else:
            tree.add_aside(key, emitter.first, emitter.count)
        return outcome

    def _reword(self, value: dict[str, Any], handles: range) -> bool:
        """Give the blocks of a row the text of its repetition; return whether it differs.

        As in the client, a row keeps its place and has its last text. Calls and results stay as
        they are.
        """
        pieces = parts(mapping(value.get("message")).get("content"))
        words = list(_words(value, pieces))
        if not len(words) == len(pieces) == len(handles):
            return False
        changed = [
            self._sink.reword(handle, kind, said)
            for handle, (kind, said) in zip(handles, words, strict=True)
        ]
        return any(changed)

    def _bookkeep(self, row: Row, value: dict[str, Any], kind: str) -> int:
        """Take a row outside the chain: queue, titles, snapshots, and unknown rows."""
        if kind == "queue-operation":
            context = self._context(row, value, self._name_aside(value), self._thread or MAIN)
            self.reason = "queue"
            outcome = self.queue.take(row, value, context)
            operation = text(value.get("operation"))
            if operation not in shapes.QUEUE_OPERATIONS:
                self.unknown("queue operation", operation, context.source)
            # The blocks of an entry that is added later have the first ids of the row.
            index = 2 * max(1, len(parts(value.get("content")))) if outcome == LATER else 0
            self.emitter.log(context, index, row.value)
            return outcome
        event = _EVENTS.get(kind)
        if event is not None and isinstance(value.get("sessionId"), str):
            context = self._context(row, value, self._name_aside(value), MAIN)
            return event(self, row.value, context)
        if kind == "last-prompt":
            leaf = value.get("leafUuid")
            if isinstance(leaf, str):
                self.tree.name_leaf(leaf)
        elif kind == "summary" and isinstance(value.get("leafUuid"), str):
            if self.tree.number_of(value["leafUuid"]) is not None:  # else it is an older file's
                self.tree.name_leaf(value["leafUuid"])
            self.tokens.note_unseen_request()
        elif kind == "cost-state":
            self.tokens.note_cost(value.get("modelUsage"))
        elif kind in _MADE_BY_A_MODEL:
            self.tokens.note_unseen_request()
        elif kind in _REASON_OF_ROW:
            self.reason = _REASON_OF_ROW[kind]
        elif kind not in shapes.ROWS:
            source: BlockSource = {
                "file": self._file,
                "line": row.line,
                "offset": row.offset,
                "length": row.length,
            }
            self.unknown("row", kind or "without type", source)
        if self._sink.wants_hidden:
            context = self._context(row, value, None, self._thread or MAIN)
            self.emitter.log(context, 0, row.value)
        elif type(session := value.get("sessionId")) is str and session:
            self._session = session
        return HIDDEN

    def _name_aside(self, value: dict[str, Any]) -> str | None:
        """Return the uuid of a row outside the chain, unless blocks are named by it already."""
        uuid = identifier(value.get("uuid"))
        if uuid is None or uuid in self._aside or self.tree.number_of(uuid) is not None:
            return None
        self._aside.add(uuid)
        return uuid

    def _context(
        self, row: Row, value: dict[str, Any], uuid: str | None, conversation: str
    ) -> RowContext:
        session = value.get("sessionId")
        if type(session) is str and session:
            self._session = session
        else:
            session = self._session
        _, line, offset, length, _, _, lossy = row
        source = {"file": self._file, "line": line, "offset": offset, "length": length}
        base = self._hash(row) if uuid is None else uuid
        timestamp = times.native(value.get("timestamp"))
        # `RowContext(…)` without the call of Python code: this runs once per row.
        return tuple.__new__(RowContext, (base, conversation, session, timestamp, source, lossy))

    def _note_session(self, row: Row, session: str) -> None:
        """Report the first message of another session: two clients, or a copy, mixed them."""
        if self._home is None:
            self._home = session
        elif self._thread is None and not self._mixed:
            self._mixed = True
            message = f"a row of session {session} stands among those of {self._home}"
            finding = Finding(
                "mixed-sessions", self._file, message, row.line, row.offset, row.length
            )
            self._sink.finding(finding)

    def _hash(self, row: Row) -> str:
        """Return an id for a row without uuid, made of its bytes: other lines do not change it."""
        digest = short_hash(row.raw.removesuffix(b"\n"))
        occurrence = self._occurrences.get(digest, 0)
        self._occurrences[digest] = occurrence + 1
        return f"h{digest}:{occurrence}"

    def _sidechain(self, value: dict[str, Any], uuid: str | None, row: Row) -> str:
        """Return the thread of a subagent's row in the main file: by agent id, else by root."""
        thread = agent_id(value.get("agentId"))
        if thread is None:
            parent = value.get("parentUuid")
            known = self._sidechains.get(parent) if isinstance(parent, str) else None
            if known is None and parent is not None:
                known = self._last_sidechain
            thread = known or f"sidechain-{agent_id(uuid) or self._hash(row)}"
        if uuid is not None:
            self._sidechains[uuid] = thread
        self._last_sidechain = thread
        return thread

    def _open(self, name: str, context: RowContext, kind: str, value: dict[str, Any]) -> None:
        thread = self.subagents.open(name, context, self._file, self._meta)
        if thread.prompt is None and kind == "user":
            message = value.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            first = next((piece for piece in map(part_text, parts(content)) if piece), "")
            thread.prompt = text(first)
            self.subagents.changed = True
