"""Providers whose model is called from this process: by a function of the program around it.

docs/adapters.md, "A model in your program".
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agentsdir.adapters.protocol import (
    Architecture,
    ModelRequest,
    ProviderSettings,
    ToolCall,
    ToolResult,
)
from agentsdir.adapters.recorded import (
    RecordedProvider,
    RecordedReader,
    RecordedSession,
    event_flaw,
    saved_transcript,
)
from agentsdir.formats import blocks, signals
from agentsdir.formats.blocks import EVENT_TYPES, MAIN, Deltas, add_usage, as_usage
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from agentsdir.adapters.protocol import Content, SessionSpec
    from agentsdir.formats.blocks import Block, StreamEvent, Usage
    from agentsdir.formats.source import Source

    Piece: TypeAlias = str | ToolCall | ToolResult | StreamEvent
    Answer: TypeAlias = str | Iterable[Piece] | Awaitable[str | Iterable[Piece]]
    CallModel: TypeAlias = Callable[[ModelRequest], Answer]


def model_provider(
    name: str, call: CallModel, *, default_model: str = "", summary: str = ""
) -> Architecture:
    """Return the architecture of a model that a function calls, for `registry.register`.

    Args:
        name: of the provider.
        call: called for each model call, in the thread of the turn. Returns the answer as text, or
            yields its pieces: texts, which are streamed, `ToolCall`s, `ToolResult`s of calls that
            it carries out itself, and stream events, whose ids need be distinct within the call
            alone. Usage in a `metadata_update` is that of the call. A coroutine function may return
            the same. What it raises fails the turn.
        default_model: of agents that are made without one.
        summary: one line, for a list of adapters.
    """
    return Architecture(
        name,
        name,
        summary or "a model in this program",
        RecordedReader(),
        ModelProvider(call, default_model),
    )


class ModelProvider(RecordedProvider):
    """Opens sessions of a model that `call` calls (see `model_provider`)."""

    option_names: tuple[str, ...] = ()
    settings = ProviderSettings(modes={})

    def __init__(self, call: CallModel, default_model: str) -> None:
        self._call = call
        self.default_model = default_model

    def create(self, spec: SessionSpec) -> InProcessSession:
        return InProcessSession(spec, None, self._call)

    def restore(self, spec: SessionSpec, state: bytes) -> InProcessSession:
        """Reopen a session: the model gets the conversation from the log."""
        del state
        return InProcessSession(spec, saved_transcript(spec), self._call)


class InProcessSession(RecordedSession):
    """One session of a model in this process."""

    def __init__(self, spec: SessionSpec, saved: Source | None, call: CallModel) -> None:
        super().__init__(spec, saved)
        self._call = call
        self._usage: Usage | None = None
        self.call_ids: set[str] = set()

    @property
    def turn(self) -> int:
        """The number of the turn, which tells its calls from those of others."""
        return self._spec.turn

    def prompt(self, content: Content) -> StreamEvent:
        self._usage = None
        self.call_ids.clear()
        return super().prompt(content)

    def call_model(self, request: ModelRequest) -> Iterator[StreamEvent]:
        """Call the model. Raises `ProviderError` (kind ``bad-answer``) for what is no answer."""
        answer: Any = self._call(request)
        if inspect.isawaitable(answer):
            answer = _run(answer)
        message = _AnswerBlocks(self, request)
        for piece in [answer] if isinstance(answer, str) else _pieces(answer):
            if piece == "":  # without end, it may be
                signals.check()
            for event in message.take(piece):
                yield self._transcript.record(self._summed(event))
            if isinstance(piece, ToolResult):
                call = message.call_of(piece)
                yield from self.result_events(call, piece.output, is_error=piece.is_error)
        for event in message.end():
            yield self._transcript.record(event)

    def _summed(self, event: StreamEvent) -> StreamEvent:
        """Return an event; if it has the usage of a call, with that of the turn."""
        metadata = event.get("metadata")
        if metadata is None or event["conversationId"] != MAIN:
            return event
        used = as_usage(metadata.get("usage"))
        if not used:
            return event
        self._usage = used if self._usage is None else add_usage(self._usage, used)
        return {**event, "metadata": {**metadata, "usage": self._usage}}

    def block(self, kind: str, part: str, **fields: Any) -> Block:
        """Make a block of the turn."""
        return self._transcript.block(kind, part, self._spec.now(), **fields)


class _Text(NamedTuple):
    block: Block
    pieces: list[str]
    deltas: Deltas


class _AnswerBlocks:
    """One answer of the model, as its pieces come."""

    def __init__(self, session: InProcessSession, request: ModelRequest) -> None:
        self._session = session
        self._part = f"{request.tick}-"
        self._common = {"messageId": f"message-{session.turn}-{request.tick}"}
        self._model = {"model": request.model} if request.model else {}
        self._made = 0
        self._text: _Text | None = None
        self._calls: dict[str, Block] = {}

    def take(self, piece: Any) -> Iterator[StreamEvent]:
        """Yield the events of one piece."""
        if isinstance(piece, str):
            yield from self._add(piece)
            return
        yield from self.end()
        if isinstance(piece, ToolCall):
            part = self._next()
            call_id = piece.id or f"call-{self._session.turn}-{part}"
            if call_id in self._session.call_ids:
                raise _bad(
                    f"two calls of the turn have the id {call_id!r:.60}; leave it out to get one"
                )
            self._session.call_ids.add(call_id)
            call = {
                "toolName": piece.name,
                "toolUseId": call_id,
                "input": piece.input,
                "status": "pending",
            }
            block = self._session.block("tool_use", part, **call, **self._common)
            self._calls[block["toolUseId"]] = block
            yield blocks.block_complete(block["id"], block)
        elif not isinstance(piece, ToolResult):
            yield self._own(piece)

    def call_of(self, result: ToolResult) -> Block:
        """Return the call of a result. Raises `ProviderError` (kind ``bad-answer``) for none."""
        call = self._calls.pop(result.id, None)
        if call is None:
            raise _bad(f"there is no call {result.id!r:.60} for its result")
        return call

    def end(self) -> Iterator[StreamEvent]:
        """Complete the text that is open, if one is."""
        if self._text is not None:
            block, pieces, deltas = self._text
            if rest := deltas.rest():
                pieces.append(rest)
                yield blocks.text_delta(block["id"], rest, MAIN)
            self._text = None
            yield blocks.block_complete(block["id"], {**block, "content": "".join(pieces)})

    def _next(self) -> str:
        self._made += 1
        return f"{self._part}{self._made}"

    def _add(self, piece: str) -> Iterator[StreamEvent]:
        if self._text is None:
            fields = {"content": "", **self._model, **self._common}
            block = self._session.block("assistant_text", self._next(), **fields)
            self._text = _Text(block, [], Deltas())
            yield blocks.block_start(block["id"], dict(block))
        block, pieces, deltas = self._text
        if whole := deltas.more(piece):
            pieces.append(whole)
            yield blocks.text_delta(block["id"], whole, MAIN)

    def _own(self, event: Any) -> StreamEvent:
        if not isinstance(event, dict) or event.get("type") not in EVENT_TYPES:
            raise _bad(f"{event!r:.60} is no text, ToolCall, ToolResult or stream event")
        if flaw := event_flaw(event):
            raise _bad(flaw)
        own = {**event}
        if "blockId" in own:
            own["blockId"] = self._part + own["blockId"]
        if "block" in own:
            own["block"] = {**self._common, **own["block"], "id": self._part + own["block"]["id"]}
        return self._session.as_own(own)


def _pieces(answer: Any) -> Iterator[Any]:
    if isinstance(answer, dict | ToolCall | ToolResult) or not hasattr(answer, "__iter__"):
        raise _bad(f"a {type(answer).__name__} is neither a text nor an iterable of pieces")
    yield from answer


def _run(answer: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await answer

    return asyncio.run(wait())


def _bad(why: str) -> ProviderError:
    return ProviderError(f"the model's answer cannot be used: {why}", kind="bad-answer")
