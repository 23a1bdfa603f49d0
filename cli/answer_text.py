"""What an agent answers, taken piece by piece from the stream events of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.formats.blocks import MAIN

if TYPE_CHECKING:
    from agentsdir.formats.blocks import StreamEvent


class AnswerPiece(NamedTuple):
    """The next piece of a block of the answer.

    `begins` and `ends` say that it is the first, or the last one, of its block.
    """

    text: str
    begins: bool = False
    ends: bool = False


class AnswerText:
    """Takes from stream events what the agent answers in the main conversation."""

    def __init__(self) -> None:
        self._written: dict[str, list[str]] = {}

    def take(self, event: StreamEvent) -> AnswerPiece | None:
        """Return what an event adds to the answer, as it came; None for nothing."""
        if event["conversationId"] != MAIN or "blockId" not in event:
            return None
        handle = event["blockId"]
        if event["type"] == "text_delta":
            return self._more(handle, event["delta"]) if handle in self._written else None
        block = event.get("block", {})
        if block.get("type") != "assistant_text":
            return None
        written = "".join(self._written.setdefault(handle, []))
        # The client's deltas may lack a part of the block.
        if event["type"] == "block_complete" and block["content"].startswith(written):
            rest = block["content"][len(written) :]
            more = self._more(handle, rest) or AnswerPiece("")
            return more._replace(ends=True)
        return None

    def _more(self, handle: str, text: str) -> AnswerPiece | None:
        if not text:
            return None
        pieces = self._written[handle]
        pieces.append(text)
        return AnswerPiece(text, begins=len(pieces) == 1)
