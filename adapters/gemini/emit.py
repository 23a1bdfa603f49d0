"""Messages, calls and outputs of Gemini CLI to blocks."""

from __future__ import annotations

import os
import re
import stat
from array import array
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.adapters.gemini.fold import NotAvailableYet
from agentsdir.adapters.gemini.projects import CHATS, OUTPUTS
from agentsdir.adapters.gemini.shapes import (
    CALL_STATUSES,
    MASKED,
    answer_parts,
    as_text,
    asked_of,
    bare_call_id,
    content_id,
    content_of,
    dict_of,
    entries_of,
    is_error_response,
    lone_answer,
    own_result,
    part_at,
    part_kind,
    parts_of,
    plain_text,
    prompt_drafts,
    response_output,
    result_output,
    split_thought,
    text_of,
    thought_text,
)
from agentsdir.formats import times
from agentsdir.formats.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from agentsdir.adapters.gemini.fold import Fold, RowCache
    from agentsdir.adapters.gemini.shapes import BlockDraft, ChatMessage, FoldedCall, RowRef
    from agentsdir.formats.blocks import Block, BlockSource, Usage
    from agentsdir.formats.sink import BlockSink


# Outputs that the client put into files of their own.
#
# The text that points to such a file is not trusted. Only the last name in it counts, and only in
# the session's own folders beside its chats; no link is followed (docs/clients/gemini.md,
# "Outputs").

# The beginnings of outputs that are cut or masked; elsewhere they may be quoted.
_CUT = (
    MASKED,
    "Output too large. Showing first ",
    "Tool output was too large and has been truncated.",
    "[Message Normalized: Tool output exceeded size limit]",
)
_POINTER = re.compile(
    r"(?:For full output see|The full output has been saved to|Full output saved to"
    r"|Full output available at|Full string saved to): ([^\n]+?)\]?(?:\n|$)"
)
# The text before a pointer to a whole response; the others point to one text of it.
_RESPONSE = "Full output available at"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
# The bytes of an output that replaces a masked one; for a longer one the block has no output.
_LONGEST_OUTPUT = 64 * 1024 * 1024
_PIECE = 1024 * 1024


class FullOutput(NamedTuple):
    """The file of one output: its `overflow` in a block, and the output itself if it was masked."""

    overflow: dict[str, Any]
    output: Any = None


class _NotOwnFile(Exception):
    """The file that a text names is not one of the session's own."""


class OutputFiles:
    """The files with the whole outputs of one transcript.

    Args:
        transcript: the chat's path; None for standard input.
        session_id: its own id.
        report: called with a finding for each file that is not read.
    """

    def __init__(
        self, transcript: Path | None, session_id: str, report: Callable[[Finding], None]
    ) -> None:
        self._report = report
        self._project: Path | None = None
        self._sessions = {_folder_of(session_id)} if session_id else set()
        if transcript is not None:
            for above in transcript.absolute().parents[:2]:
                if above.name == CHATS:
                    self._project = above.parent
                    break
                self._sessions.add(_folder_of(above.name))

    def whole(self, output: str, source: BlockSource) -> FullOutput | None:
        """Return the file of an output that is cut or masked; None for none.

        A file that is not the session's own, or cannot be read, is reported.
        """
        found = _POINTER.search(output)
        if found is None:
            return None
        try:
            kept, digest, size = self._read(inner := self._inner(found[1]))
        except (OSError, _NotOwnFile) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            message = f"the whole of an output is not read from {found[1]!r:.300}: {why}"
            self._report(
                Finding(
                    "unread-output",
                    source["file"],
                    message,
                    source["line"],
                    source["offset"],
                    source["length"],
                )
            )
            return None
        overflow = {"file": inner.as_posix(), "length": size, "sha256": digest}
        if not output.startswith(MASKED) or kept is None:
            return FullOutput(overflow)
        text = kept.decode(errors="replace")
        return FullOutput(overflow, _masked_output(text) if _RESPONSE in found[0] else text)

    def _read(self, inner: PurePosixPath) -> tuple[bytes | None, str, int]:
        """Return a file's bytes (None for a very long one), their SHA-256, and their number."""
        if self._project is None:
            raise _NotOwnFile("the transcript stands in no project's folder of the client's")
        digest, size, pieces = sha256(), 0, []
        with os.fdopen(_open(self._project, inner), "rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
                size += len(piece)
                if size <= _LONGEST_OUTPUT:
                    pieces.append(piece)
        return b"".join(pieces) if size <= _LONGEST_OUTPUT else None, digest.hexdigest(), size

    def _inner(self, said: str) -> PurePosixPath:
        """Return the file's path in the project's folder. Raises `_NotOwnFile`."""
        parts = said.replace("\\", "/").split("/")
        if ".." in parts:
            raise _NotOwnFile("it leads out of a folder")
        name = parts[-1]
        if not name.isprintable() or name.startswith(".") or not name:
            raise _NotOwnFile("the client gives no such name")
        if parts[-2:-1] == [OUTPUTS]:
            return PurePosixPath(OUTPUTS, name)
        if parts[-3:-2] == [OUTPUTS]:
            if any(parts[-2] == own or parts[-2].startswith(own + "_") for own in self._sessions):
                return PurePosixPath(OUTPUTS, parts[-2], name)
            raise _NotOwnFile("it is another session's")
        if name.endswith(".output"):  # 0.11 put them beside the chats
            return PurePosixPath(name)
        raise _NotOwnFile("it is outside of the session's folders")


def _folder_of(session_id: str) -> str:
    return "session-" + _UNSAFE.sub("_", session_id)


def _open(project: Path, inner: PurePosixPath) -> int:
    """Open a regular file below the project's folder without following a link anywhere."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(project, flags | os.O_DIRECTORY)
    for part in inner.parts[:-1]:
        try:
            inner_folder = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
        finally:
            os.close(at)
        at = inner_folder
    try:
        descriptor = os.open(inner.name, flags | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _NotOwnFile("it is no plain file")
    return descriptor


def _masked_output(text: str) -> Any:
    """Return the output in a response that was masked whole."""
    try:
        value = orjson.loads(text)
    except ValueError:
        return text
    return response_output(value) if isinstance(value, dict) else text


# Tool calls: a tool_use and a tool_result block, or one subagent block for a call that ran one.

_FINAL = ("success", "error")
# Some ids contain the start of the call: …_1795815018065_0, …-1757000000000-3fa….
_STARTED = re.compile(r"[_-](\d{13})[_-][0-9a-f]+$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 24 * 60 * 60
_LONGEST_CALL = _DAY * 1000
_BODIES = ("originalContent", "newContent")
_BODY_LIMIT = 2048


class CallRecord:
    """One call with its richest result, from its rows."""

    def __init__(self, call: FoldedCall, row_cache: RowCache) -> None:
        place, (field, at) = call.place, call.spot
        message = row_cache.message(place)
        if field == "toolCalls":
            record = _recorded_call(message, at)
        else:
            record = dict_of(part_at(content_of(message), at).get("functionCall"))
        self.id = call.id
        self.record = record
        self.place = place
        self.answer_place = call.answer
        # When the call was complete, if its record has the time.
        self.ended = times.native(record.get("timestamp"))
        status = record.get("status")
        self.status = CALL_STATUSES.get(status, "pending") if type(status) is str else "pending"
        self.output: Any = None
        # Whether the result says that the call failed.
        self.failed = False
        if call.answer:
            if call.answer == place and call.answer_spot == call.spot and field == "toolCalls":
                result = _result_in(record, call)
            else:
                result = _result(call, row_cache)
            answer = lone_answer(result)
            if answer is None or "parts" in answer:
                self.output, self.failed = result_output(result), is_error_response(result)
            else:
                response = answer.get("response")
                self.output = response_output(response)
                self.failed = type(response) is dict and "error" in response
            if field != "toolCalls":
                self.status = "error" if self.failed else "success"

    def use_fields(self, message_id: str) -> dict[str, Any]:
        """Return the fields of a tool_use block."""
        get = self.record.get
        name, shown, description = get("name"), get("displayName"), get("description")
        fields = {
            "toolName": name if type(name) is str else "",
            "toolUseId": self.id,
            "input": get("args"),
            "status": self.status,
        }
        if type(shown) is str:
            fields["displayName"] = shown
        if type(description) is str:
            fields["description"] = description
        fields["messageId"] = message_id
        return fields

    def result_fields(
        self, message_id: str, outputs: OutputFiles, row_cache: RowCache
    ) -> dict[str, Any] | None:
        """Return the fields of a tool_result block; None if no result is known, even an empty one.

        Raises `NotAvailableYet` if the output is in a file that is not available yet.
        """
        if self.answer_place is None and self.status not in _FINAL:
            return None
        output = self.output
        whole = None
        if type(output) is str and output.startswith(_CUT):
            whole = outputs.whole(output, row_cache.source(self.answer_place or self.place))
            if whole is not None and whole.output is not None:
                output = whole.output
        fields: dict[str, Any] = {
            "toolUseId": self.id,
            "output": output,
            "isError": self.failed or self.status == "error",
        }
        took = None if self.ended is None else _duration(self.id, self.ended)
        if took is not None:
            fields["durationMs"] = took
        if whole is not None:
            fields["overflow"] = whole.overflow
        self.add_display(fields, output)
        fields["messageId"] = message_id
        return fields

    def add_display(self, fields: dict[str, Any], output: Any) -> None:
        """Set the `display` field, where the client showed anything but the output."""
        display = self.record.get("resultDisplay")
        if display is not None and display != "" and display != output:
            fields["display"] = elide_bodies(display)

    def task(self) -> str:
        """Return the task of a subagent."""
        args = self.record.get("args")
        asked = asked_of(args)
        return as_text(args) if asked is None else asked

    def answer(self) -> str | None:
        """Return the answer of a subagent."""
        return as_text(self.output) if self.answer_place else None


def _recorded_call(message: dict[str, Any], at: int) -> dict[str, Any]:
    entries = entries_of(message.get("toolCalls"))
    return dict_of(entries[at]) if at < len(entries) else {}


def _result(call: FoldedCall, row_cache: RowCache) -> Any:
    """Return the richest result of a call."""
    assert call.answer is not None
    field, at = call.answer_spot
    message = row_cache.message(call.answer)
    if field == "toolCalls":
        return _result_in(_recorded_call(message, at), call)
    return answer_parts(content_of(message), at) or None


def _result_in(record: dict[str, Any], call: FoldedCall) -> Any:
    result = record.get("result")
    if type(result) is not list or len(result) < 2:
        return result
    return own_result(result, bare_call_id(call.id, text_of(record.get("name"))))


def _duration(call_id: str, ended: str) -> int | None:
    """Return how long a call took, in milliseconds; None if its id has no start time."""
    # Where the last part of the id begins, behind the start of the call.
    last = max(call_id.rfind("_"), call_id.rfind("-"))
    started = _STARTED.match(call_id, last - 14) if last >= 14 else None
    if started is None:
        return None
    try:
        since = datetime.fromisoformat(ended) - _EPOCH
    except ValueError:  # a leap second
        return None
    seconds = since.days * _DAY + since.seconds
    took = seconds * 1000 + since.microseconds // 1000 - int(started[1])
    return took if 0 <= took < _LONGEST_CALL else None


def elide_bodies(display: Any) -> Any:
    """Return a display without the whole files of a FileDiff; the diff itself stays."""
    if not isinstance(display, dict) or "fileDiff" not in display:
        return display
    return {
        key: f"[elided: {len(value)} characters; the transcript holds them]"
        if key in _BODIES and isinstance(value, str) and len(value) > _BODY_LIMIT
        else value
        for key, value in display.items()
    }


# Messages: the blocks of each, from its richest version.


def in_order(fold: Fold) -> Iterable[ChatMessage]:
    """Return all messages, the live ones in the order of a resume.

    A message that is no longer live keeps its place behind the message that it followed.
    """
    messages = fold.index.messages
    live = {one: None for one in fold.live if one not in fold.summaries}
    numbers = [messages[message_id].number for message_id in live]
    if numbers == sorted(numbers):
        return messages.values()
    followers: dict[str | None, list[ChatMessage]] = {}
    last = None
    for message_id, message in messages.items():
        if message_id in live:
            last = message_id
        else:
            followers.setdefault(last, []).append(message)
    ordered = followers.pop(None, [])
    for message_id in live:
        ordered += [messages[message_id], *followers.get(message_id, ())]
    return ordered


class MessageWriter:
    """Writes the blocks of one transcript's messages into a sink.

    Args:
        fold: the fold of the rows so far.
        row_cache: its rows.
        sink: takes blocks, usage and findings.
        conversation: the thread's id.
        children: (message id, call id) → the child thread's id and how long it ran, where linked;
            None while that is unknown.
        outputs: the files that the client put long outputs into.
        settled: no row will follow, so a result without a call is an orphan.
    """

    def __init__(
        self,
        fold: Fold,
        row_cache: RowCache,
        sink: BlockSink,
        conversation: str,
        children: Mapping[tuple[str, str], tuple[str, int | None]] | None,
        outputs: OutputFiles,
        *,
        settled: bool = True,
    ) -> None:
        self._fold = fold
        self._lossy = fold.index.lossy
        self._row_cache = row_cache
        self._sink = sink
        self.conversation = conversation
        self.children = children
        self.outputs = outputs
        self._settled = settled
        # The message's blocks, the indexes of replaced ones, and the last block that is neither
        # replaced nor hidden.
        self._blocks: list[Block] = []
        self._replaced: list[int] = []
        self._last: Block = {}
        # The message's timestamp, as in the row and as in blocks: most of its blocks have it.
        self._time: tuple[Any, str | None] = (None, None)
        # The last row that a block was made from, and the source of all blocks made from it.
        self._sourced = -1
        self._source: BlockSource
        # The row number of each block, inverted for a hidden one.
        self.marks = array("q")
        # Why the first hidden block of a row is hidden.
        self.reasons: dict[int, str] = {}

    @property
    def visible(self) -> bool:
        """Whether any block so far is visible."""
        return any(mark >= 0 for mark in self.marks)

    def message(self, message: ChatMessage) -> None:
        """Add all blocks of a message, state which are replaced, and count its tokens."""
        handles = self.write(message)
        if not self._fold.is_live(message):
            for handle in handles:
                self._sink.supersede(handle, self._fold.left_by(message))
        if message.usage is not None:
            self._sink.use(self.conversation, message.usage)
            self.note_copy(message, message.usage)

    def write(self, message: ChatMessage) -> list[int]:
        """Add all blocks of a message; return their handles.

        Raises `NotAvailableYet` if a row, the children or the outputs are not available yet.
        """
        self._blocks.clear()
        self._replaced.clear()
        self._last = {}
        if message.timestamp != self._time[0]:
            self._time = message.timestamp, times.native(message.timestamp)
        if message.role == "model":
            self._model(message)
        elif message.role == "user":
            self._user(message)
        elif message.role == "notice":
            self._notice(message)
        elif message.role == "record":
            self._record(message)
        else:
            own = message.id if message.role == "unknown" else f"{message.id}:l"
            self._log(own, message, message.place, self._row_cache.entry(message.place))
        for place, field, at in message.extras.values():
            value = self._row_cache.message(place)
            entries = entries_of(value.get(field))
            part = part_at(content_of(value), at) if field == "content" else entries[at]
            self._log(f"{message.id}:l{content_id(part)[1:]}", message, place, part)
        if message.usage is not None:
            if not self._last:
                self._spend_unseen(message)
            self._last["usage"] = message.usage
        handles = list(map(self._sink.add, self._blocks))
        for at in self._replaced:
            self._sink.supersede(handles[at], "duplicate")
        return handles

    def _spend_unseen(self, message: ChatMessage) -> None:
        """Choose a hidden block for the tokens of an empty answer, or make one."""
        if not self._blocks:
            fields = {"subtype": "log", "message": "an answer without content", "hidden": True}
            self._add(
                "system", f"{message.id}:l", message.place, message.timestamp, fields,
                reason="empty-answer",
            )  # fmt: skip
        if self._blocks:
            self._last = self._blocks[-1]

    def note_copy(self, message: ChatMessage, used: Usage) -> None:
        """Note the usage of a message that another session may have, too: copies repeat it."""
        if self._sink.messages is not None:
            key = hash((message.id, used["totalTokens"], used["inputTokens"]))
            self._sink.messages.add(key, used)

    def _add(
        self,
        kind: str,
        block_id: str,
        place: RowRef,
        timestamp: Any,
        fields: dict[str, Any],
        *,
        replaced: bool = False,
        reason: str = "",
    ) -> None:
        number = place[0]
        hidden = "hidden" in fields
        self.marks.append(~number if hidden else number)
        if hidden:
            self.reasons.setdefault(number, reason)
        if hidden and not self._sink.wants_hidden:
            return
        if number in self._lossy:
            fields["lossy"] = list(self._lossy[number])
        if number != self._sourced:
            self._sourced, self._source = number, self._row_cache.source(place)
        given, moment = self._time
        # Without `make_block`, which would copy `fields` twice: this runs once per block.
        block = {
            "type": kind,
            "id": block_id,
            "conversationId": self.conversation,
            "sessionId": self._fold.session_id,
            "timestamp": moment if timestamp == given else times.native(timestamp),
            **fields,
            "source": self._source,
        }
        if replaced:
            self._replaced.append(len(self._blocks))
        elif not hidden:
            self._last = block
        self._blocks.append(block)

    def _log(self, block_id: str, message: ChatMessage, place: RowRef, value: Any) -> None:
        if not self._sink.wants_hidden:
            self.marks.append(~place[0])
            self.reasons.setdefault(place[0], "unknown")
            return
        kind = dict_of(value).get("type")
        metadata = {"rowType": kind if isinstance(kind, str) else None, "row": value}
        fields = {
            "subtype": "log",
            "message": f"{kind if isinstance(kind, str) else 'unknown'} row",
            "hidden": True,
            "metadata": metadata,
        }
        self._add("system", block_id, place, message.timestamp, fields, reason="unknown")

    def _record(self, message: ChatMessage) -> None:
        """Write a row of the session's data as a hidden block; its line is counted as folded."""
        value = dict_of(self._row_cache.entry(message.place))
        key = next((key for key in ("$set", "$rewindTo") if key in value), "header")
        kind = {"$set": "metadata", "$rewindTo": "rewind"}.get(key, key)
        fields = {
            "subtype": "log",
            "message": f"{kind} row",
            "hidden": True,
            "metadata": {"rowType": None, "row": value},
        }
        self._add("system", message.id, message.place, None, fields)
        self.marks.pop()

    def _user(self, message: ChatMessage) -> None:
        live = message.text
        for signature, (_, place) in message.texts.items():
            value = self._row_cache.message(place)
            variant = "" if signature == live else "~" + content_id(content_of(value))[1:9]
            for draft in prompt_drafts(value, continues=message.continues):
                self._draft(message, draft, place, variant)
        for bare, (place, at) in (message.orphans or {}).items() if self._settled else ():
            result = answer_parts(content_of(self._row_cache.message(place)), at)
            if result:
                self._orphan(message, bare, place, result)

    def _draft(self, message: ChatMessage, draft: BlockDraft, place: RowRef, variant: str) -> None:
        self._add(
            draft.kind, f"{message.id}:{draft.key}{variant}", place, message.timestamp,
            draft.fields, replaced=bool(variant), reason=draft.reason,
        )  # fmt: skip

    def _orphan(self, message: ChatMessage, bare: str, place: RowRef, result: list[Any]) -> None:
        if self.children is None:
            raise NotAvailableYet  # the call may be in a file that is read later
        response = dict_of(result[0].get("functionResponse"))
        source = self._row_cache.source(place)
        fields = {
            "toolUseId": text_of(response.get("id")),
            "output": result_output(result),
            "isError": is_error_response(result),
        }
        self._add(
            "tool_result", f"{message.id}:r{call_key(bare)}", place, message.timestamp, fields
        )
        why = f"no call has the id {text_of(response.get('id'))!r}"
        self._sink.finding(
            Finding(
                "orphan-result",
                source["file"],
                why,
                source["line"],
                source["offset"],
                source["length"],
            )
        )

    def _notice(self, message: ChatMessage) -> None:
        live = message.text
        for signature, (_, place) in message.texts.items():
            value = self._row_cache.message(place)
            variant = "" if signature == live else "~" + content_id(content_of(value))[1:9]
            text = plain_text(content_of(value))
            rest = [part for part in parts_of(content_of(value)) if part_kind(part) != "text"]
            fields: dict[str, Any] = {
                "subtype": "error" if value.get("type") == "error" else "status",
                "message": text,
            }
            if not text and not rest:
                fields["hidden"] = True
            fields["metadata"] = {"level": value.get("type")} | ({"parts": rest} if rest else {})
            self._add(
                "system", f"{message.id}:n{variant}", place, message.timestamp, fields,
                replaced=bool(variant), reason="empty-notice",
            )  # fmt: skip

    def _model(self, message: ChatMessage) -> None:
        texts = message.texts
        alone = len(texts) + len(message.thoughts) == 1 and not message.calls
        if message.continues and alone:
            parts = parts_of(content_of(self._row_cache.message(message.place)))
            said = "".join(text_of(part.get("text")) for part in parts)
            given: dict[str, Any] = {"subtype": "status", "message": said, "hidden": True}
            self._add(
                "system", f"{message.id}:s0", message.place, message.timestamp, given,
                reason="given-answer",
            )  # fmt: skip
            return
        if message.thoughts:
            self._thoughts(message)
        live = message.text
        whole = ""
        if live is not None:
            place = texts[live][1]
            whole = plain_text(content_of(self._row_cache.message(place)))
            fields: dict[str, Any] = {"content": whole}
            if message.model is not None:
                fields["model"] = message.model
            fields["messageId"] = message.id
            self._add("assistant_text", f"{message.id}:x", place, message.timestamp, fields)
        for signature, (_, place) in texts.items() if len(texts) > 1 else ():
            text = (
                "" if signature == live else plain_text(content_of(self._row_cache.message(place)))
            )
            # A beginning of the whole text is no other version.
            if text and not whole.startswith(text.strip()):
                self._add(
                    "assistant_text", f"{message.id}:x~{content_id(text)[1:9]}", place,
                    message.timestamp, {"content": text, "messageId": message.id}, replaced=True,
                )  # fmt: skip
        for bare, call in message.calls.items():
            self._call(message, bare, call)

    def _thoughts(self, message: ChatMessage) -> None:
        found = []
        for place, field, at in message.thoughts.values():
            value = self._row_cache.message(place)
            if field == "thoughts":
                entries = entries_of(value.get("thoughts"))
                entry = dict_of(entries[at]) if at < len(entries) else {}
                subject = text_of(entry.get("subject"))
                description = text_of(entry.get("description"))
                timestamp = entry.get("timestamp")
            else:
                part = part_at(content_of(value), at)
                subject, description = split_thought(text_of(part.get("text")))
                timestamp = message.timestamp
            found.append((place, subject, description, timestamp))
        texts = [thought_text(one[1], one[2]) for one in found] if len(found) > 1 else [""]
        number = 0
        for at, (place, subject, description, timestamp) in enumerate(found, 1):
            text = texts[at - 1]
            if at < len(found) and texts[at].startswith(text) and texts[at] != text:
                continue  # some forks repeat a thought while it grows
            fields = {"content": description}
            if subject:
                fields["summary"] = subject
            fields["messageId"] = message.id
            self._add("thinking", f"{message.id}:t{number}", place, timestamp, fields)
            number += 1

    def _call(self, message: ChatMessage, bare: str, call: FoldedCall) -> None:
        record = CallRecord(call, self._row_cache)
        key = call_key(bare)
        if call.spawn is not None:
            if self.children is None:
                raise NotAvailableYet
            child, took = self.children.get((message.id, bare), (call.spawn.agent_id, None))
            fields: dict[str, Any] = {
                "subagentId": child,
                "name": call.spawn.name,
                "input": record.task(),
                "status": record.status,
                "toolUseId": record.id,
            }
            answer = record.answer()
            if answer is not None:
                fields["output"] = answer
            record.add_display(fields, answer)
            if took is not None:
                fields["durationMs"] = took
            link = self._link_of(child)
            if link is not None:
                fields["link"] = link
            place = record.answer_place or record.place
            fields["messageId"] = message.id
            self._add("subagent", f"{message.id}:c{key}", place, message.timestamp, fields)
            return
        fields = record.use_fields(message.id)
        self._add("tool_use", f"{message.id}:c{key}", record.place, message.timestamp, fields)
        given = record.result_fields(message.id, self.outputs, self._row_cache)
        if given is not None:
            place = record.answer_place or record.place
            ended = record.ended or message.timestamp
            self._add("tool_result", f"{message.id}:r{key}", place, ended, given)

    def _link_of(self, child: str | None) -> dict[str, str] | None:
        thread = self._sink.conversations.get(child) if child is not None else None
        return thread.link._asdict() if thread is not None and thread.link is not None else None


def call_key(call_id: str) -> str:
    """Return a bare call id for use in a block id, where a colon separates message and part."""
    return call_id.replace(":", "%3A")
