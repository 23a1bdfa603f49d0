"""Printing a turn while it runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.cli.output import print_json
from agentsdir.cli.terminal import inert

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.blocks import StreamEvent


class AnswerPrinter:
    """Prints stream events, or the text of the main conversation's answer.

    A reader that goes away, or a full disk behind stdout, does not end the turn: it is recorded to
    its end, and then the command says that its output failed.

    Args:
        events: print every event as a line of JSON.
        silent: print nothing.
    """

    def __init__(self, env: Environment, *, events: bool, silent: bool) -> None:
        self._env = env
        self._events = events
        self._silent = silent
        self._written: dict[str, list[str]] = {}
        self._printed = False
        # On a terminal, what is said on stderr meanwhile begins a line of its own.
        self._ends_lines = env.stdout.isatty()
        self._in_line = False
        self._failure: OSError | None = None

    def take(self, event: StreamEvent) -> None:
        """Print what one event adds."""
        if self._silent or self._failure:
            return
        try:
            if self._events:
                print_json(self._env, event)
            elif event["conversationId"] == "main" and "blockId" in event:
                self._text(event)
            self._env.stdout.flush()
        except OSError as error:
            self._failure = error

    def _text(self, event: StreamEvent) -> None:
        handle = event["blockId"]
        if event["type"] == "text_delta":
            if handle in self._written:
                self._write(handle, event["delta"])
            return
        block = event.get("block", {})
        if block.get("type") != "assistant_text":
            return
        written = "".join(self._written.setdefault(handle, []))
        # What a client's deltas left out is still part of the answer.
        if event["type"] == "block_complete" and block["content"].startswith(written):
            self._write(handle, block["content"][len(written) :])
            if self._ends_lines:
                self._end_line()

    def _write(self, handle: str, text: str) -> None:
        if not text:
            return
        if self._printed and not self._written[handle]:
            self._env.stdout.write("\n\n" if self._in_line else "\n")
        self._written[handle].append(text)
        self._printed = self._in_line = True
        self._env.stdout.write(self._for_reader(text))

    def _for_reader(self, text: str) -> str:
        if not self._env.stdout.isatty():
            return text
        return inert(text)

    def break_off(self) -> None:
        """End the line that a turn was cut off in."""
        if not self._failure:
            with suppress(OSError):
                self._end_line()
                self._env.stdout.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._env.stdout.write("\n")
            self._in_line = False

    def finish(self, response: str) -> None:
        """End the output. Raises the `OSError` that kept it from being written, if one did."""
        if self._failure is not None:
            raise self._failure
        if self._events:
            return
        if not self._printed:
            # Another process may have run the turn: then the answer comes from the log.
            self._env.stdout.write(self._for_reader(response))
            self._in_line = True
        self._end_line()
