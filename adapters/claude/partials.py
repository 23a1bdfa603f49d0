"""Partial messages of stdout: the blocks of the message that streams, before they are whole.

A block is completed by the `assistant` line that brings it whole, never by its own end in the
stream: that comes later, and the client makes it up where a stream was cut. What no line brings
(the stream broke and the message was asked for anew, or the turn ended) is superseded: it was seen,
and the client does not go on with it. So are the whole blocks of a message that another one follows
before its end, unless the conversation went on from them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.assistant import CALLS
from agentsdir.adapters.claude.shapes import identifier, mapping, text
from agentsdir.adapters.claude.subagents import TOOLS
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, make_block
from agentsdir.formats.reading.deltas import Deltas
from agentsdir.formats.reading.sink import encodable

if TYPE_CHECKING:
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}
_MOST_BLOCKS = 10_000  # no message has that many


class _Partial:
    """One block that began."""

    __slots__ = ("block", "deltas", "gone", "handle", "pieces")

    def __init__(self, handle: str, block: Block) -> None:
        self.handle = handle
        self.block = block
        self.gone = False
        self.deltas = Deltas()
        self.pieces: list[str] = []  # of a call's input


class Partials:
    """The message that streams now. Only the main thread's ever does."""

    def __init__(self) -> None:
        self.message = ""
        # What its start says was spent; the end says only what changed.
        self.usage: dict[str, Any] = {}
        self._began: dict[int, _Partial] = {}
        # Its whole blocks, by index, while they may yet be replaced: their handles.
        self._whole: dict[int, str] = {}

    def take(self, value: dict[str, Any]) -> list[StreamEvent]:
        """Take a `stream_event` line."""
        if value.get("parent_tool_use_id") is not None:
            return []
        event = mapping(value.get("event"))
        kind = event.get("type")
        events: list[StreamEvent] = []
        if kind == "message_start":
            events = self._replaced()
            message = mapping(event.get("message"))
            self.message = identifier(message.get("id")) or ""
            self.usage = mapping(message.get("usage"))
            self._began.clear()
            self._whole.clear()
        elif kind in ("content_block_start", "content_block_delta"):
            index = event.get("index")
            if type(index) is int and 0 <= index < _MOST_BLOCKS and self.message:
                if kind == "content_block_start":
                    events = self._start(index, event, text(value.get("session_id")))
                elif index in self._began:
                    events = _more(self._began[index], mapping(event.get("delta")))
        cut = mapping(value.get("abandoned_blocks"))
        if cut and cut.get("api_message_id") == self.message:
            first = cut.get("from_block_index")
            events += self._replaced(first if type(first) is int else 0)
        if kind == "message_stop":
            self._whole.clear()
        return events

    def line_of(self, message_id: Any) -> list[StreamEvent]:
        """Note a whole line of a message: if it is another one, this one is not gone on with."""
        return [] if message_id == self.message else self._replaced()

    def answered(self) -> None:
        """Note that the conversation went on: what is whole of this message stays."""
        self._whole.clear()

    def claim(self, block: Block) -> str | None:
        """Return the handle under which a completed block began, if it did."""
        if block.get("messageId") != self.message or block["conversationId"] != MAIN:
            return None
        for index, partial in self._began.items():
            if all(block.get(name) == partial.block.get(name) for name in ("type", "toolUseId")):
                self._whole[index] = self._began.pop(index).handle
                return self._whole[index]
        return None

    def _replaced(self, first: int = 0) -> list[StreamEvent]:
        """Supersede all blocks from index `first` on, the whole ones, too."""
        gone = [index for index in self._whole if index >= first]
        events = [
            stream.block_update(self._whole.pop(index), {"superseded": True}, MAIN)
            for index in gone
        ]
        return events + self.abandon(first)

    def abandon(self, first: int = 0) -> list[StreamEvent]:
        """Supersede the blocks from index `first` on that are not whole.

        If one of them is brought after all, it is completed as if nothing had been said.
        """
        events: list[StreamEvent] = []
        for index, partial in self._began.items():
            if index >= first and not partial.gone:
                partial.gone = True
                updates: dict[str, Any] = {"superseded": True}
                if partial.pieces:
                    updates["input"] = _input(partial)
                events.append(stream.block_update(partial.handle, updates, MAIN))
        return events

    def _start(self, index: int, event: dict[str, Any], session: str) -> list[StreamEvent]:
        part = mapping(event.get("content_block"))
        kind, fields = _begun(part)
        if not kind:
            return []
        handle = f"{MAIN}/{self.message}/{index}"
        fields["messageId"] = self.message
        block = encodable(make_block(kind, handle, MAIN, session, None, None, **fields))
        self._began[index] = _Partial(handle, block)
        return [stream.block_start(handle, block)]


def _begun(part: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type and the own fields of the block that a part begins; no type for none."""
    kind = text(part.get("type"))
    if kind == "text":
        return "assistant_text", {"content": text(part.get("text"))}
    if kind == "thinking":
        return "thinking", {"content": text(part.get("thinking"))}
    if kind == "redacted_thinking":
        return "thinking", {"content": "", "redacted": True}
    if kind in CALLS:
        called = {"toolUseId": text(part.get("id")), "status": "pending"}
        name = text(part.get("name"))
        if kind == "tool_use" and name in TOOLS:
            return "subagent", {"subagentId": None, "input": "", **called}
        return "tool_use", {"toolName": name, "input": {}, **called}
    return "", {}


def _more(partial: _Partial, delta: dict[str, Any]) -> list[StreamEvent]:
    kind = text(delta.get("type"))
    if kind == "input_json_delta":
        partial.pieces.append(text(delta.get("partial_json")))
    if kind not in _DELTAS or "content" not in partial.block:
        return []
    more = partial.deltas.more(text(delta.get(_DELTAS[kind])))
    return [stream.text_delta(partial.handle, more, MAIN)] if more else []


def _input(partial: _Partial) -> Any:
    """Return what is there of a call's input: the prompt of an agent's is text in any case."""
    whole = "".join(partial.pieces)
    if partial.block["type"] == "subagent":
        return whole
    try:
        return json.loads(whole) if whole else {}
    except (ValueError, RecursionError):
        return whole
