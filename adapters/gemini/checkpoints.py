"""Saved chats and prompt logs: what `/chat save`, `/restore` and logs.json keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini.documents import ListDocument
from agentsdir.adapters.gemini.shapes import (
    Names,
    answer_parts,
    bare_call_id,
    content_id,
    dict_of,
    doubtful,
    is_error_response,
    part_kind,
    parts_of,
    plain_text,
    prompt_drafts,
    result_output,
    split_thought,
    text_of,
    unknown_part,
)
from agentsdir.adapters.gemini.speakers import (
    COMMAND,
    GIVEN_ANSWER,
    is_client,
    names_command,
    speaker_of,
)
from agentsdir.formats import times
from agentsdir.formats.blocks import MAIN, make_block, usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import Row, Tally
from agentsdir.formats.sink import DROPPED

if TYPE_CHECKING:
    from agentsdir.adapters.gemini.shapes import Part
    from agentsdir.adapters.protocol import Transcript
    from agentsdir.formats.sink import ParseSink


# Turns of parts, as the model's API takes them.
#
# Chat checkpoints hold such turns alone; Qwen Code puts them into rows of its own. They are written
# once and never restated, so there is nothing to fold.


class ApiTurn(NamedTuple):
    """One turn: the beginning of its blocks' ids, its row, and its parts.

    `display` is what the client showed of the result in it.
    """

    key: str
    row: Row
    parts: list[Part]
    timestamp: str | None = None
    model: str | None = None
    display: Any = None


@dataclass(frozen=True, slots=True)
class _OpenCall:
    """A call that waits for its result: its block, its id and tool, and the turn that made it."""

    handle: int
    id: str
    name: str
    turn: str


class ApiTurnWriter:
    """Writes turns into a sink, and pairs calls with their results.

    Args:
        sink: takes the blocks.
        file: the file's name in blocks.
        session: the native session's id, where there is one.
    """

    def __init__(self, sink: ParseSink, file: str, session: str) -> None:
        self.session = session
        self._sink = sink
        self._file = file
        self.names = Names()
        # Calls without a result by their bare id, in order: some providers use an id again, in a
        # later turn and within one.
        self._open: dict[str, list[_OpenCall]] = {}
        self._answered: set[str] = set()
        self._last = DROPPED
        self.visible = False
        # Of all blocks so far, in order.
        self.handles: list[int] = []
        # Why the first hidden block of the current turn is hidden; empty if none is.
        self.reason = ""
        # The client's version, if rows have it.
        self.version: str | None = None

    def user(self, turn: ApiTurn) -> int:
        """Write a prompt, the client's own texts, results; return the last visible block."""
        self._last = DROPPED
        for draft in prompt_drafts({"content": turn.parts}):
            self.reason = self.reason or draft.reason
            self._add(draft.kind, draft.key, turn, **draft.fields)
        row = turn.row
        kinds = [part_kind(part) for part in turn.parts]
        answers = "response" in kinds
        for part, kind in zip(turn.parts, kinds, strict=True):
            why = speaker_of(part["text"], beside_result=answers).doubt if kind == "text" else ""
            if why:
                finding = doubtful(self._file, row.line, row.offset, row.length, why)
                self._sink.finding(finding)
        for at, part in enumerate(turn.parts):
            kind = part_kind(part)
            if kind == "response":
                self._answer(turn, at)
            elif kind in ("call", "other"):
                self._log_part(turn, part, "prompt part")
        return self._last

    def model(self, turn: ApiTurn) -> int:
        """Write what the model said, thought and called; return the last visible block."""
        self._last = DROPPED
        model: dict[str, Any] = {} if turn.model is None else {"model": turn.model}
        own = {"messageId": turn.key}
        thoughts = 0
        for part in turn.parts:
            if part_kind(part) == "thought":
                subject, description = split_thought(part["text"])
                summary = {"summary": subject} if subject else {}
                self._add("thinking", f"t{thoughts}", turn, content=description, **summary, **own)
                thoughts += 1
        text = plain_text(turn.parts)
        if text:
            self._add("assistant_text", "x", turn, content=text, **model, **own)
        for part in turn.parts:
            kind = part_kind(part)
            if kind == "call":
                self._call(turn, part["functionCall"], own)
            elif kind in ("response", "media", "other"):
                self._log_part(turn, part, "answer part")
        return self._last

    def client_text(self, turn: ApiTurn, text: str, *, hidden: str = "") -> int:
        """Write a text of the client in the user's turn; return the last visible block.

        Args:
            turn: the turn.
            text: the text.
            hidden: why it is hidden, in kebab-case; empty if it is not.
        """
        self._last = DROPPED
        fields: dict[str, Any] = {"hidden": True} if hidden else {}
        self.reason = self.reason or hidden
        self._add("system", "s", turn, subtype="status", message=text, **fields)
        return self._last

    def command(self, turn: ApiTurn, text: str) -> None:
        """Write a command that a person gave to the client."""
        self._add("system", "p", turn, subtype="status", message=text, metadata={"event": COMMAND})

    def use(self, turn: ApiTurn, call_id: str, name: str, given: Any, **fields: Any) -> int:
        """Write one call whose own row has its outcome."""
        return self._add(
            "tool_use", f"c{call_id.replace(':', '%3A')}", turn, toolName=name, toolUseId=call_id,
            input=given, **fields,
        )  # fmt: skip

    def result(self, turn: ApiTurn, call_id: str, output: Any, *, failed: bool) -> int:
        """Write the result of such a call."""
        return self._add(
            "tool_result", f"r{call_id.replace(':', '%3A')}", turn, toolUseId=call_id,
            output=output, isError=failed,
        )  # fmt: skip

    def drift(self, turn: ApiTurn, what: str, name: Any) -> None:
        """Count something of an unknown kind."""
        named = text_of(name) or "without type"
        self._sink.drifts.note(what, named, turn.row.source(self._file), self.version)

    def unknown(self, turn: ApiTurn, value: Any, what: str, name: Any) -> None:
        """Keep something of an unknown kind as a hidden block, and count it."""
        self.drift(turn, what, name)
        self.log(turn, value, text_of(name) or None, reason="unknown")

    def _log_part(self, turn: ApiTurn, part: Part, what: str) -> None:
        name = unknown_part(part)
        if name:
            self.drift(turn, what, name)
        self.log(turn, part, reason="unknown" if name else "bookkeeping")

    def log(
        self, turn: ApiTurn, value: Any, kind: str | None = None, *, reason: str = "bookkeeping"
    ) -> None:
        """Keep what is no part of the conversation as a hidden block."""
        self.reason = self.reason or reason
        metadata = {"rowType": kind, "row": value}
        self._add(
            "system", "l", turn, subtype="log", message=f"{kind or 'unknown'} row", hidden=True,
            metadata=metadata,
        )  # fmt: skip

    def end(self) -> None:
        """State that every call without a result is pending."""
        for calls in self._open.values():
            for call in calls:
                self._sink.amend(call.handle, status="pending")
        self._open.clear()

    def _call(self, turn: ApiTurn, call: dict[str, Any], own: dict[str, str]) -> None:
        name = text_of(call.get("name"))
        call_id = text_of(call.get("id")) or self.names.unique(f"{name}.")
        bare = bare_call_id(call_id, name)
        waiting = self._open.setdefault(bare, [])
        if waiting and waiting[0].turn != turn.key:  # the results that follow are this turn's
            for before in waiting:
                self._sink.amend(before.handle, status="pending")
            waiting.clear()
        self._answered.discard(bare)
        handle = self._add(
            "tool_use", f"c{call_id.replace(':', '%3A')}", turn, toolName=name, toolUseId=call_id,
            input=call.get("args"), **own,
        )  # fmt: skip
        waiting.append(_OpenCall(handle, call_id, name, turn.key))

    def _answer(self, turn: ApiTurn, at: int) -> None:
        result = answer_parts(turn.parts, at)
        response = dict_of(result[0].get("functionResponse"))
        name, call_id = text_of(response.get("name")), text_of(response.get("id"))
        bare = bare_call_id(call_id, name)
        if not call_id:
            bare = next((key for key, calls in self._open.items() if calls[0].name == name), "")
        if bare and bare in self._answered:
            self.log(turn, result[0], reason="repeated")
            return
        failed = is_error_response(result)
        waiting = self._open.get(bare, [])
        call = waiting.pop(0) if waiting else None
        if call is not None:
            if not waiting:
                del self._open[bare]
                self._answered.add(bare)
            self._sink.amend(call.handle, status="error" if failed else "success")
            call_id = call.id
        output = result_output(result)
        shown = {} if turn.display in (None, "", output) else {"display": turn.display}
        self._add(
            "tool_result", f"r{call_id.replace(':', '%3A')}", turn, toolUseId=call_id,
            output=output, isError=failed, **shown,
        )  # fmt: skip
        if call is None:
            row = turn.row
            why = f"no call has the id {call_id!r}"
            self._sink.finding(
                Finding("orphan-result", self._file, why, row.line, row.offset, row.length)
            )

    def _add(self, kind: str, key: str, turn: ApiTurn, **fields: Any) -> int:
        hidden = bool(fields.get("hidden"))
        self.visible = self.visible or not hidden
        row = turn.row
        if row.lossy:
            fields["lossy"] = list(row.lossy)
        source = row.source(self._file)
        block_id = self.names.unique(f"{turn.key}:{key}")
        handle = self._sink.add(
            make_block(kind, block_id, MAIN, self.session, turn.timestamp, source, **fields)
        )
        self.handles.append(handle)
        if not hidden:
            self._last = handle
        return handle


# Saved chats: ``/chat save`` and ``/restore`` keep what the model would be sent.
#
# They have no times, ids, tokens or models, so they are read only for sessions without another
# file.

# The keys of the turns, the richest first: /restore, /chat save, and its oldest form.
LISTS = ("clientHistory", "history", "")
_BETWEEN = "########"
# The client's own answers to the context that it sends first.
_GIVEN = ("Got it. Thanks for the context!", GIVEN_ANSWER)


def read_checkpoint(transcript: Transcript, sink: ParseSink) -> None:
    """Read a saved chat; ids come from what the turns say.

    See docs/clients/gemini.md, "Last resorts".
    """
    source, tally = transcript.source, sink.tally
    document = ListDocument(source.document())
    session = session_of(document.around)
    writer = ApiTurnWriter(sink, source.name, session)
    if document.around:
        tally.lines += 1
        tally.hide("header")
        around = Row(document.around, 1, 0, len(document.data), b"", salvaged=False, lossy=())
        writer.log(ApiTurn(content_id(document.around), around, []), document.around, "checkpoint")
    setting_up = False
    for row in document.rows(LISTS, source.name, tally, sink.finding):
        role, parts = turn_of(row.value)
        turn = ApiTurn(writer.names.unique(content_id(row.value)), row, parts)
        last, writer.reason = DROPPED, ""
        if role == "user":
            last = writer.user(turn)
            setting_up = last == DROPPED and is_client(plain_text(parts))
        elif role == "model" and setting_up and plain_text(parts).strip() in _GIVEN:
            writer.log(turn, row.value, "model", reason="session-context")
        elif role == "model":
            last = writer.model(turn)
        else:
            value = row.value if isinstance(row.value, dict) else {"role": type(row.value).__name__}
            writer.unknown(turn, row.value, "turn", value.get("role", value.get("type")))
        if last == DROPPED:
            tally.settle_hidden(row, writer.reason or "empty")
        else:
            tally.settle_parsed(row)
    writer.end()
    message = "a saved chat: without times, tokens, models and the ids of its messages"
    sink.finding(Finding("last-resort", source.name, message))
    if not writer.visible:
        message = "the transcript holds no conversation"
        sink.finding(Finding("no-messages", source.name, message))
    sink.use(MAIN, usage(0, 0, exact=False))


def session_of(around: dict[str, Any]) -> str:
    """Return the session that a checkpoint of /restore names; empty for a saved chat."""
    session, mark, _ = text_of(around.get("messageId")).partition(_BETWEEN)
    return session if mark else ""


def turn_of(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return role and parts of a turn of the API, or of an item that the client showed."""
    if not isinstance(value, dict):
        return "", []
    if isinstance(value.get("role"), str):
        return value["role"], parts_of(value.get("parts"))
    kind, text = value.get("type"), value.get("text")
    if isinstance(text, str) and kind in ("user", "gemini", "gemini_content"):
        return "user" if kind == "user" else "model", [{"text": text}]
    return "", []


# ``logs.json``: the prompts typed at the client, of all sessions of a project.
#
# It has no answers. It is read only for sessions whose own file is gone.


def read_prompt_log(transcript: Transcript, sink: ParseSink) -> None:
    """Read all prompts but those that other files contain (`Transcript.skipped`).

    `skipped` has the ids of sessions, and the `content_id` of single entries. Prompts that a rewind
    removed from their session's file (`Transcript.rewound`) are superseded.

    Each block has its session's id (docs/clients/gemini.md, "Last resorts").
    """
    source, tally = transcript.source, sink.tally
    writer = ApiTurnWriter(sink, source.name, "")
    for row in ListDocument(source.document()).rows(("",), source.name, tally, sink.finding):
        value = row.value
        entry = content_id(value)
        if not is_prompt(value):
            kind = "object" if isinstance(value, dict) else type(value).__name__
            writer.unknown(ApiTurn(entry, row, []), value, "entry", kind)
            tally.settle_hidden(row, "unknown")
        elif entry in transcript.skipped:
            tally.settle_folded(row, "told-elsewhere")
        elif str(value["sessionId"]) in transcript.skipped and entry not in transcript.rewound:
            tally.settle_folded(row, "not-in-session")
        else:
            writer.session = str(value["sessionId"])
            key = writer.names.unique(entry_of(value))
            timestamp = times.native(value.get("timestamp"))
            turn = ApiTurn(key, row, [{"text": value["message"]}], timestamp)
            if value.get("type", "user") != "user":
                writer.drift(turn, "entry", value["type"])
            if names_command(value["message"]):
                writer.command(turn, value["message"])
            else:
                first = len(sink)
                writer.user(turn)
                for handle in range(first, len(sink)) if entry in transcript.rewound else ():
                    sink.supersede(handle, "rewind")
            tally.settle_parsed(row)
    message = "prompts alone; no answers are kept here"
    sink.finding(Finding("last-resort", source.name, message))
    sink.use(MAIN, usage(0, 0, exact=False))


def is_prompt(value: Any) -> bool:
    """Tell whether an entry of a list is a prompt of ``logs.json``.

    The first clients used the time of their start, a number, as the session's id.
    """
    return (
        isinstance(value, dict)
        and type(value.get("sessionId")) in (str, int)
        and type(value.get("messageId")) is int
        and isinstance(value.get("message"), str)
    )


def entry_of(value: dict[str, Any]) -> str:
    """Return the id of an entry: its session and its number there."""
    return f"{value['sessionId']}/{value['messageId']}"


def prompts_in(data: bytes) -> list[dict[str, Any]]:
    """Return the prompts in the file."""
    rows = ListDocument(data).rows(("",), "", Tally(), lambda _finding: None)
    return [row.value for row in rows if is_prompt(row.value)]
