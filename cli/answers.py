"""Printing a turn while it runs."""

from __future__ import annotations

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_json
from agentsdir.cli.terminal import inert

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.formats.reading.stream import StreamEvent


class AnswerPrinter:
    """Prints stream events, or the text of the main conversation's answer.

    A reader that goes away does not end the turn: it is recorded to its end, and then the command
    says that its pipe was closed.

    Args:
        events: print every event as a line of JSON.
        silent: print nothing.
    """

    def __init__(self, env: Environment, *, events: bool, silent: bool) -> None:
        self._env = env
        self._events = events
        self._silent = silent
        self._written: dict[str, str] = {}
        self._printed = False
        self._closed = False

    def take(self, event: StreamEvent) -> None:
        """Print what one event adds."""
        if self._silent or self._closed:
            return
        try:
            if self._events:
                print_json(self._env, event)
            elif event["conversationId"] == "main" and "blockId" in event:
                self._text(event)
            self._env.stdout.flush()
        except BrokenPipeError:
            self._closed = True

    def _text(self, event: StreamEvent) -> None:
        handle = event["blockId"]
        if event["type"] == "text_delta":
            if handle in self._written:
                self._write(handle, event["delta"])
            return
        block = event.get("block", {})
        if block.get("type") != "assistant_text":
            return
        written = self._written.setdefault(handle, "")
        # What a client's deltas left out is still part of the answer.
        if event["type"] == "block_complete" and block["content"].startswith(written):
            self._write(handle, block["content"][len(written) :])

    def _write(self, handle: str, text: str) -> None:
        if not text:
            return
        if self._printed and not self._written[handle]:
            self._env.stdout.write("\n\n")
        self._written[handle] += text
        self._printed = True
        self._env.stdout.write(inert(text) if self._env.stdout.isatty() else text)

    def finish(self, response: str) -> None:
        """End the output. Raises `BrokenPipeError` when nobody read it to its end."""
        if self._closed:
            raise BrokenPipeError
        if not self._events:
            # Another process may have run the turn: then the answer comes from the log.
            self._env.stdout.write("\n" if self._printed else inert(response) + "\n")
