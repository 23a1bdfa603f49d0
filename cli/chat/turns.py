"""A turn at the prompt: lines for the scrollback, and rows of what is not complete yet.

Knows nothing of the terminal but its width and encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.cli.answer_text import AnswerPiece
from agentsdir.cli.cells import wrapped
from agentsdir.cli.chat.answers import AnswerBlocks
from agentsdir.cli.markdown import markdown
from agentsdir.cli.turn_view import TurnView
from agentsdir.formats.blocks import COUNTED, MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.cli.colour import Style
    from agentsdir.cli.turn_view import TurnLine
    from agentsdir.formats.blocks import StreamEvent

_KEY = " · Ctrl-C interrupts"
_LONGEST_REST = 32 * 1024
"""Characters of an incomplete piece of Markdown; a longer one is printed as it came."""


class Context:
    """How full the model's context is, as far as the client says it.

    Attributes:
        used: the tokens of the last call of the model, and of what it said.
        window: how many there may be.
    """

    def __init__(self) -> None:
        self.used = 0
        self.window = 0
        self._counted = 0

    def take(self, event: StreamEvent) -> None:
        """Take what an event says of it."""
        if event["type"] != "metadata_update" or event.get("conversationId", MAIN) != MAIN:
            return
        said = event["metadata"]
        if isinstance(usage := said.get("usage"), dict):
            # It counts the turn so far: what is new is of the last call.
            counted = sum(n for name in COUNTED if isinstance(n := usage.get(name), int))
            self.used = counted - self._counted or self.used
            self._counted = counted
        if isinstance(window := said.get("contextWindow"), int):
            self.window = window


class ShownTurn:
    """The turn that an agent runs.

    Attributes:
        request: the number of its request.
        context: how full the model's context is.
        prompt: what was asked.
        unprinted: lines that came while the agent was in the background.
        is_interrupted: whether the person has asked for its end.

    Args:
        now: a clock that counts seconds, as everywhere here.
    """

    def __init__(self, prompt: str, columns: int, encoding: str, style: Style, now: float) -> None:
        self.request = 0
        self.prompt = prompt
        self.unprinted: list[str] = []
        self.is_interrupted = False
        self.columns = columns
        self._style = style
        self._view = TurnView(columns, encoding, now)
        self._began = now
        self._answer = AnswerBlocks()
        self.context = Context()

    def take(self, event: StreamEvent, now: float) -> list[str]:
        """Return the lines that an event completes."""
        self._view.width = self.columns
        self.context.take(event)
        return self._lines(self._view.take(event, now))

    def end(self, now: float, usage: Any, cost: Any) -> list[str]:
        """Return the last lines of the turn."""
        self._view.width = self.columns
        return [
            *self._markdown(self._answer.end()),
            *self._lines(self._view.finish(now, usage, cost)),
        ]

    def _lines(self, pieces: Iterable[TurnLine | AnswerPiece]) -> list[str]:
        lines: list[str] = []
        for piece in pieces:
            if isinstance(piece, AnswerPiece):
                for block in self._answer.take(piece.text):
                    lines += self._markdown(block)
                if piece.ends or len(self._answer.rest) > _LONGEST_REST:
                    lines += self._markdown(self._answer.end())
            else:
                # A call in mid-answer: what was said before it comes before it.
                lines += self._markdown(self._answer.end())
                lines.append(self._styled(piece))
        return lines

    def _markdown(self, text: str) -> list[str]:
        if not text.strip():
            return []
        return ["", *markdown(text, self.columns, self._style).split("\n")]

    def _styled(self, line: TurnLine) -> str:
        return "".join(
            self._style(part.text, part.style) if part.style else part.text for part in line.parts
        )

    def live(self, rows: int, now: float) -> list[str]:
        """Return what is not complete: the end of the answer so far, and what happens now."""
        self._view.width = self.columns
        shown: list[str] = []
        for line in reversed(self._answer.rest[-rows * self.columns :].split("\n")):
            shown[:0] = wrapped(line, self.columns - 1)
            if len(shown) >= rows:
                break
        said = shown[-rows:] if self._answer.rest.strip() else []
        status = self._view.status(now)
        if not self.is_interrupted and len(status) + len(_KEY) < self.columns:
            status += _KEY
        return [*said, status]

    @property
    def calls(self) -> list[str]:
        """The keys of its tool calls, in order."""
        return list(self._view.calls)

    def unfolded(self, key: str) -> list[str]:
        """Return a call with its input and its result whole."""
        call = self._view.calls[key]
        title = self._style(f"{call.name or 'tool'}", "tool")
        return [title, *(self._styled(line) for line in self._view.unfold(key))]

    def summary(self, now: float) -> str:
        """Return in one line what the turn came to, for one who looks elsewhere."""
        return "".join(part.text for part in self._view.finish(now)[-1].parts)
