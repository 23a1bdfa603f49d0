"""Standard output of a run of Claude Code as stream events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.rows import CALLS
from agentsdir.adapters.claude.sessions import SessionParser
from agentsdir.adapters.claude.shapes import SYNTHETIC, identifier, is_row, mapping, text
from agentsdir.adapters.claude.subagents import TOOLS
from agentsdir.adapters.claude.tokens import (
    RunUsage,
    context_window,
    message_usage,
    parse_result,
    total_cost,
)
from agentsdir.formats import blocks
from agentsdir.formats.block_lines import encodable
from agentsdir.formats.blocks import MAIN, Deltas, make_block
from agentsdir.formats.rows import LineFeed
from agentsdir.formats.sink import StdoutSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.adapters.claude.tokens import ClaudeResult
    from agentsdir.formats.blocks import Block, StreamEvent, Usage
    from agentsdir.formats.findings import Finding


# Partial messages of stdout: the blocks of the message that streams, before they are complete.
#
# The `assistant` line with the whole block completes it. Its end in the stream does not: that comes
# later, and the client makes it up where a stream was cut. A block without such a line (the stream
# broke and the client asked again, or the turn ended) is superseded. So are the complete blocks of
# a message that another one follows before its end, unless the conversation continued from them.

_DELTAS = {"text_delta": "text", "thinking_delta": "thinking"}
_MOST_BLOCKS = 10_000  # no message has that many


class _PartialBlock:
    """One block that has begun and is not complete."""

    __slots__ = ("block", "deltas", "gone", "handle", "pieces")

    def __init__(self, handle: str, block: Block) -> None:
        self.handle = handle
        self.block = block
        self.gone = False
        self.deltas = Deltas()
        self.pieces: list[str] = []  # of a call's input


class PartialMessage:
    """The message that streams now, which is always one of the main thread."""

    def __init__(self) -> None:
        self.message = ""
        # The usage at its start; its end has only the counts that changed.
        self.usage: dict[str, Any] = {}
        self._began: dict[int, _PartialBlock] = {}
        # The handles of its complete blocks, by index, while they may still be replaced.
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
        """Note a complete line of a message; a line of another message replaces this one."""
        return [] if message_id == self.message else self._replaced()

    def answered(self) -> None:
        """Note that the conversation continued, so that the complete blocks stay."""
        self._whole.clear()

    def claim(self, block: Block) -> str | None:
        """Return the handle under which a completed block began; None if it did not."""
        if block.get("messageId") != self.message or block["conversationId"] != MAIN:
            return None
        for index, partial in self._began.items():
            if all(block.get(name) == partial.block.get(name) for name in ("type", "toolUseId")):
                self._whole[index] = self._began.pop(index).handle
                return self._whole[index]
        return None

    def _replaced(self, first: int = 0) -> list[StreamEvent]:
        """Supersede all blocks from index `first` on, the complete ones included."""
        gone = [index for index in self._whole if index >= first]
        events = [
            blocks.block_update(self._whole.pop(index), {"superseded": True}, MAIN)
            for index in gone
        ]
        return events + self.abandon(first)

    def abandon(self, first: int = 0) -> list[StreamEvent]:
        """Supersede the incomplete blocks from index `first` on.

        A line that still brings one of them completes it as usual.
        """
        events: list[StreamEvent] = []
        for index, partial in self._began.items():
            if index >= first and not partial.gone:
                partial.gone = True
                updates: dict[str, Any] = {"superseded": True}
                if partial.pieces:
                    updates["input"] = _input(partial)
                events.append(blocks.block_update(partial.handle, updates, MAIN))
        return events

    def _start(self, index: int, event: dict[str, Any], session: str) -> list[StreamEvent]:
        part = mapping(event.get("content_block"))
        kind, fields = _begun(part)
        if not kind:
            return []
        handle = f"{MAIN}/{self.message}/{index}"
        fields["messageId"] = self.message
        block = encodable(make_block(kind, handle, MAIN, session, None, None, **fields))
        self._began[index] = _PartialBlock(handle, block)
        return [blocks.block_start(handle, block)]


def _begun(part: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type and the own fields of the block that a part begins; no type for no block."""
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


def _more(partial: _PartialBlock, delta: dict[str, Any]) -> list[StreamEvent]:
    kind = text(delta.get("type"))
    if kind == "input_json_delta":
        partial.pieces.append(text(delta.get("partial_json")))
    if kind not in _DELTAS or "content" not in partial.block:
        return []
    more = partial.deltas.more(text(delta.get(_DELTAS[kind])))
    return [blocks.text_delta(partial.handle, more, MAIN)] if more else []


def _input(partial: _PartialBlock) -> Any:
    """Return the input of a call so far; an agent's prompt is always text."""
    whole = "".join(partial.pieces)
    if partial.block["type"] == "subagent":
        return whole
    try:
        return json.loads(whole) if whole else {}
    except (ValueError, RecursionError):
        return whole


# Standard output of one run (docs/clients/claude.md, "Stream and file").
#
# `TranscriptParser` reads the lines as it reads a transcript. The partial messages among them give
# the blocks that are not complete yet.

_FILE = "stdout"


class _ClaudeStdoutSink(StdoutSink):
    """Events of a run, without usage updates for the main thread."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Emit the usage of a subagent; `ClaudeTranslator` emits that of the main thread."""
        if conversation != MAIN:
            super().use(conversation, usage)
        else:
            self.conversation(MAIN).usage = usage


class ClaudeTranslator:
    """Translates ``claude -p --output-format stream-json --verbose``, with any of its options.

    `results` has each `result` line. `error` is the client's word for the last failed answer.
    `has_tasks` is whether the client says that tasks run in the background; older clients only say
    that each begins and ends, and `tasks` has those that began and have not ended.

    Args:
        hidden: also emit lines that are no part of the conversation, as hidden blocks.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self.results: list[ClaudeResult] = []
        self.error = ""
        self.has_tasks = False
        self.tasks: set[str] = set()
        self._partial_message = PartialMessage()
        self._model = ""
        self._sink = _ClaudeStdoutSink(hidden=hidden, begun_as=self._partial_message.claim)
        self._session = SessionParser(self._sink)
        self._parser = self._session.open(_FILE)
        self._feed = LineFeed(_FILE, self._sink.tally, self._sink.finding, is_record=is_row)
        self._spent = RunUsage()
        self._cost = 0.0
        self._total = 0.0
        self._takers = {
            "stream_event": self._stream_event,
            "assistant": self._assistant,
            "user": self._user,
            "system": self._system,
        }

    @property
    def findings(self) -> Sequence[Finding]:
        return [*self._sink.findings, *self._sink.drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        for row in self._feed.rows(line):
            value = row.value
            kind = text(value.get("type"))
            if kind in self._takers:
                self._takers[kind](value)
            self._parser.take(row)
            if kind == "result":
                self._result(value)
        self._session.settle()
        return iter(self._sink.drain())

    def end(self) -> Iterator[StreamEvent]:
        """Yield the last events: blocks that will not be completed are superseded."""
        self._emit(self._partial_message.abandon())
        self._session.finish()
        if self._spent.unsettled:
            self._update(usage=self._spent.so_far())
        return iter(self._sink.drain())

    def _emit(self, events: list[StreamEvent]) -> None:
        for event in events:
            self._sink.emit(event)

    def _update(self, **metadata: Any) -> None:
        said = {name: value for name, value in metadata.items() if value not in (None, "")}
        if said:
            self._sink.emit(blocks.metadata_update(said, MAIN))

    def _stream_event(self, value: dict[str, Any]) -> None:
        self._emit(self._partial_message.take(value))
        event = mapping(value.get("event"))
        raw = event.get("usage")
        if event.get("type") == "message_delta" and isinstance(raw, dict):
            said = {name: count for name, count in raw.items() if count is not None}
            counts = message_usage({**self._partial_message.usage, **said}, final=True)
            self._spent.note(self._partial_message.message, counts)
            reason = text(mapping(event.get("delta")).get("stop_reason"))
            self._update(usage=self._spent.so_far(), stopReason=reason)

    def _assistant(self, value: dict[str, Any]) -> None:
        message = mapping(value.get("message"))
        if value.get("parent_tool_use_id") is not None:
            return
        self.error = text(value.get("error"))
        if message.get("model") == SYNTHETIC:
            # A text of the client, which may come beside the model's.
            self._emit(self._partial_message.abandon())
            return
        self._emit(self._partial_message.line_of(message.get("id")))
        raw = message.get("usage")
        if isinstance(raw, dict):
            final = message.get("stop_reason") is not None
            self._spent.note(text(message.get("id")), message_usage(raw, final=final))
        replaced = value.get("supersedes")
        if isinstance(replaced, list):
            self._parser.tree.replace(uuid for uuid in replaced if isinstance(uuid, str))

    def _user(self, value: dict[str, Any]) -> None:
        if value.get("parent_tool_use_id") is None:
            self._partial_message.answered()

    def _system(self, value: dict[str, Any]) -> None:
        subtype, task = value.get("subtype"), text(value.get("task_id"))
        if subtype == "init":
            self._model = text(value.get("model"))
            self._update(model=self._model)
        elif subtype == "background_tasks_changed":
            self.has_tasks = bool(value.get("tasks"))
        elif subtype == "task_started":
            self.tasks.add(task)
        elif subtype == "task_notification":
            self.tasks.discard(task)

    def _result(self, value: dict[str, Any]) -> None:
        self._emit(self._partial_message.abandon())
        result = parse_result(value, self._total)
        self.results.append(result)
        self._total = total_cost(value) or self._total
        self._cost += result.cost or 0.0
        self._spent.settle(result.usage)
        self._update(
            usage=self._spent.so_far(),
            costUSD=None if result.cost is None else self._cost,
            stopReason=result.stop_reason,
            terminalReason=result.terminal_reason,
            contextWindow=context_window(value, self._model),
        )
