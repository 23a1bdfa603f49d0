"""`echo`: the embedded provider that needs no key and answers with the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.protocol import Architecture
from agentsdir.adapters.recorded import (
    RecordedProvider,
    RecordedReader,
    RecordedSession,
    saved_transcript,
)
from agentsdir.formats import blocks
from agentsdir.formats.blocks import usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.adapters.protocol import Content, ModelRequest, SessionSpec
    from agentsdir.formats.blocks import StreamEvent


class EchoProvider(RecordedProvider):
    """Opens echo sessions: one word of the prompt is one token and one delta."""

    option_names: tuple[str, ...] = ()
    default_model = "echo-1"

    def create(self, spec: SessionSpec) -> EchoSession:
        return EchoSession(spec, None)

    def restore(self, spec: SessionSpec, state: bytes) -> EchoSession:
        """Reopen a session; the transcript has the number of turns, so no blob is needed."""
        del state
        return EchoSession(spec, saved_transcript(spec))


class EchoSession(RecordedSession):
    """One session that answers each prompt with the prompt."""

    def call_model(self, request: ModelRequest) -> Iterator[StreamEvent]:
        """Stream the prompt back, word by word."""
        spec, transcript = self._spec, self._transcript
        text = text_of(request.content)
        block = transcript.block("assistant_text", "answer", spec.now(), content="")
        block["model"] = spec.model
        handle = block["id"]
        yield transcript.record(blocks.block_start(handle, dict(block)))
        for word in words_of(text):
            yield transcript.record(blocks.text_delta(handle, word, block["conversationId"]))
        words = len(text.split())
        block["content"] = text
        block["usage"] = usage(words, words)
        yield transcript.record(blocks.block_complete(handle, block))
        metadata: dict[str, Any] = {"usage": block["usage"], "stopReason": "end_turn"}
        yield transcript.record(blocks.metadata_update(metadata, block["conversationId"]))


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text, each with the space after it; space before the first by itself."""
    begin = end = 0
    for word in text.split():
        at = text.index(word, end)
        if at > begin:
            yield text[begin:at]
        begin, end = at, at + len(word)
    if begin < len(text):
        yield text[begin:]


def text_of(content: Content) -> str:
    """Return a prompt as text, with a marker for each part without text."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") or f"[{part.get('type')}]" for part in content]
    return "\n".join(parts)


ARCHITECTURE = Architecture(
    name="echo",
    architecture="echo",
    summary="answers every prompt with itself; offline and deterministic",
    reader=RecordedReader(),
    provider=EchoProvider(),
)
