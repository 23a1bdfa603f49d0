"""Messages to blocks, each from its richest version, in the order of the fold."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.calls import CallRecord
from agentsdir.adapters.gemini.transcripts.prompts import prompt_pieces
from agentsdir.adapters.gemini.transcripts.shapes import (
    answer_parts,
    content_id,
    content_of,
    dict_of,
    entries_of,
    is_error_response,
    part_at,
    part_kind,
    parts_of,
    plain_text,
    result_output,
    split_thought,
    text_of,
    thought_text,
)
from agentsdir.adapters.gemini.transcripts.shelf import Later
from agentsdir.formats import times
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.usage import add_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentsdir.adapters.gemini.transcripts.fold import Fold
    from agentsdir.adapters.gemini.transcripts.messages import Call, Message, Place
    from agentsdir.adapters.gemini.transcripts.outputs import Outputs
    from agentsdir.adapters.gemini.transcripts.prompts import Piece
    from agentsdir.adapters.gemini.transcripts.shelf import Shelf
    from agentsdir.formats.reading.block_sink import BlockSink
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.usage import Usage


def in_order(fold: Fold) -> Iterable[Message]:
    """Return all messages so that the live ones stand as a resume loads them.

    What is no longer live keeps its place behind the message that it followed.
    """
    messages = fold.index.messages
    live = {one: None for one in fold.live if one not in fold.summaries}
    numbers = [messages[message_id].number for message_id in live]
    if numbers == sorted(numbers):
        return messages.values()
    followers: dict[str | None, list[Message]] = {}
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


class Emitter:
    """Writes the blocks of one transcript's messages into a sink.

    Args:
        fold: what the rows say, as far as they were read.
        shelf: the way back to its rows.
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
        shelf: Shelf,
        sink: BlockSink,
        conversation: str,
        children: Mapping[tuple[str, str], tuple[str, int | None]] | None,
        outputs: Outputs,
        *,
        settled: bool = True,
    ) -> None:
        self._fold = fold
        self._lossy = fold.index.lossy
        self._shelf = shelf
        self._sink = sink
        self.conversation = conversation
        self.children = children
        self.outputs = outputs
        self._settled = settled
        # The message's blocks, those of them that are replaced, and the last that is neither
        # replaced nor hidden.
        self._blocks: list[Block] = []
        self._replaced: list[int] = []
        self._last: Block = {}
        # The message's timestamp, as it stands and as we write it: most of its blocks have it.
        self._time: tuple[Any, str | None] = (None, None)
        # The numbers of the rows that gave a block, inverted where it is a hidden one.
        self.marks = array("q")
        # Why the first hidden block of a row is hidden.
        self.reasons: dict[int, str] = {}

    @property
    def visible(self) -> bool:
        """Whether any block so far is one to be seen."""
        return any(mark >= 0 for mark in self.marks)

    def message(self, message: Message) -> None:
        """Add all blocks of a message, say which are replaced, and count its tokens."""
        handles = self.write(message)
        if not self._fold.is_live(message):
            for handle in handles:
                self._sink.supersede(handle, self._fold.left_by(message))
        if message.usage is not None:
            self._sink.use(self.conversation, message.usage)
            self.note_copy(message, message.usage)

    def write(self, message: Message) -> list[int]:
        """Add all blocks of a message; return their handles.

        Raises `Later` where the shelf, the children or the outputs are not there yet.
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
            self._log(own, message, message.place, self._shelf.entry(message.place))
        for place, field, at in message.extras.values() if message.extras else ():
            value = self._shelf.message(place)
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

    def _spend_unseen(self, message: Message) -> None:
        """Find a hidden block for the tokens of an answer that says nothing, or make one."""
        if not self._blocks:
            fields = {"subtype": "log", "message": "an answer without content", "hidden": True}
            self._add(
                "system", f"{message.id}:l", message.place, message.timestamp, fields,
                reason="empty-answer",
            )  # fmt: skip
        if self._blocks:
            self._last = self._blocks[-1]

    def note_copy(self, message: Message, used: Usage) -> None:
        """Keep apart what another session counted: twins and copies have the same messages."""
        counted = self._sink.counted
        if counted is not None:
            key = hash((message.id, used["totalTokens"], used["inputTokens"]))
            if key in counted:
                self._sink.repeated = add_usage(self._sink.repeated, used)
            counted.add(key)

    def _add(
        self,
        kind: str,
        block_id: str,
        place: Place,
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
        given, moment = self._time
        # Spelled out, for this runs once per block: `make_block` would copy `fields` twice.
        block = {
            "type": kind,
            "id": block_id,
            "conversationId": self.conversation,
            "sessionId": self._fold.session_id,
            "timestamp": moment if timestamp == given else times.native(timestamp),
            **fields,
            "source": self._shelf.source(place),
        }
        if replaced:
            self._replaced.append(len(self._blocks))
        elif not hidden:
            self._last = block
        self._blocks.append(block)

    def _log(self, block_id: str, message: Message, place: Place, value: Any) -> None:
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

    def _record(self, message: Message) -> None:
        """Write a row that gives no block but this one; its line is counted as folded."""
        value = dict_of(self._shelf.entry(message.place))
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

    def _user(self, message: Message) -> None:
        live = message.text
        for sign, (_, place) in message.texts.items():
            value = self._shelf.message(place)
            variant = "" if sign == live else "~" + content_id(content_of(value))[1:9]
            for piece in prompt_pieces(value, continues=message.continues):
                self._piece(message, piece, place, variant)
        for bare, (place, at) in (message.orphans or {}).items() if self._settled else ():
            result = answer_parts(content_of(self._shelf.message(place)), at)
            if result:
                self._orphan(message, bare, place, result)

    def _piece(self, message: Message, piece: Piece, place: Place, variant: str) -> None:
        self._add(
            piece.kind, f"{message.id}:{piece.key}{variant}", place, message.timestamp,
            piece.fields, replaced=bool(variant), reason=piece.reason,
        )  # fmt: skip

    def _orphan(self, message: Message, bare: str, place: Place, result: list[Any]) -> None:
        if self.children is None:
            raise Later  # the call may be in a file that is read later
        response = dict_of(result[0].get("functionResponse"))
        source = self._shelf.source(place)
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
                source["line"],
                source["offset"],
                source["length"],
                why,
            )
        )

    def _notice(self, message: Message) -> None:
        live = message.text
        for sign, (_, place) in message.texts.items():
            value = self._shelf.message(place)
            variant = "" if sign == live else "~" + content_id(content_of(value))[1:9]
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

    def _model(self, message: Message) -> None:
        alone = len(message.texts) + len(message.thoughts) == 1 and not message.calls
        if message.continues and alone:
            parts = parts_of(content_of(self._shelf.message(message.place)))
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
            place = message.texts[live][1]
            whole = plain_text(content_of(self._shelf.message(place)))
            fields: dict[str, Any] = {"content": whole}
            if message.model is not None:
                fields["model"] = message.model
            fields["messageId"] = message.id
            self._add("assistant_text", f"{message.id}:x", place, message.timestamp, fields)
        for sign, (_, place) in message.texts.items() if len(message.texts) > 1 else ():
            text = "" if sign == live else plain_text(content_of(self._shelf.message(place)))
            # A text that merely grew is no other text.
            if text and not whole.startswith(text.strip()):
                self._add(
                    "assistant_text", f"{message.id}:x~{content_id(text)[1:9]}", place,
                    message.timestamp, {"content": text, "messageId": message.id}, replaced=True,
                )  # fmt: skip
        for bare, call in message.calls.items():
            self._call(message, bare, call)

    def _thoughts(self, message: Message) -> None:
        found = []
        for place, field, at in message.thoughts.values():
            value = self._shelf.message(place)
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
        number = 0
        for at, (place, subject, description, timestamp) in enumerate(found):
            if at + 1 < len(found):
                text, after = thought_text(subject, description), thought_text(*found[at + 1][1:3])
                if after.startswith(text) and text != after:
                    continue  # some forks write a thought again and again as it grows
            fields = {"content": description}
            if subject:
                fields["summary"] = subject
            fields["messageId"] = message.id
            self._add("thinking", f"{message.id}:t{number}", place, timestamp, fields)
            number += 1

    def _call(self, message: Message, bare: str, call: Call) -> None:
        record = CallRecord(call, self._shelf)
        key = call_key(bare)
        if call.spawn is not None:
            if self.children is None:
                raise Later
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
            fields |= record.display_fields(answer)
            if took is not None:
                fields["durationMs"] = took
            link = self._link_of(child)
            if link is not None:
                fields["link"] = link
            place = record.answer_place or record.place
            fields["messageId"] = message.id
            self._add("subagent", f"{message.id}:c{key}", place, message.timestamp, fields)
            return
        fields = record.use_fields()
        fields["messageId"] = message.id
        self._add("tool_use", f"{message.id}:c{key}", record.place, message.timestamp, fields)
        if record.has_result:
            place = record.answer_place or record.place
            fields = record.result_fields(self.outputs, self._shelf)
            fields["messageId"] = message.id
            ended = record.ended or message.timestamp
            self._add("tool_result", f"{message.id}:r{key}", place, ended, fields)

    def _link_of(self, child: str | None) -> dict[str, str] | None:
        thread = self._sink.conversations.get(child) if child is not None else None
        return thread.link._asdict() if thread is not None and thread.link is not None else None


def call_key(call_id: str) -> str:
    """Return a bare call id for use in a block id, where a colon separates message and part."""
    return call_id.replace(":", "%3A")
