"""`queue-operation` rows: prompts on their way in.

Every prompt of a `-p` run passes the queue and then stands as a `user` row, so most of these
rows say nothing new. What was enqueued and never came out was still typed by somebody.
"""

from __future__ import annotations

from agentsdir.adapters.claude.emit import FOLDED, HIDDEN, LATER
from agentsdir.adapters.claude.shapes import all_text
from agentsdir.adapters.claude.user import say
from agentsdir.formats.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agentsdir.adapters.claude.emit import Place
    from agentsdir.adapters.claude.reading import Reading
    from agentsdir.formats.reading.rows import Row


class _Waiting(NamedTuple):
    row: Row
    place: Place
    text: str


class Queue:
    """The queue of one session file, first in, first out.

    Args:
        settle: counts a row's line; an enqueue is settled when its fate is known.
    """

    def __init__(self, settle: Callable[[Row, int], None]) -> None:
        self._settle = settle
        self._waiting: list[_Waiting] = []
        # Entries recognised as prompts before the row that takes them out was read.
        self._owed = 0

    def take(self, row: Row, value: dict[str, Any], place: Place) -> int:
        """Follow one operation; return what became of its row."""
        operation = value.get("operation")
        content = value.get("content")
        if operation == "enqueue":
            self._waiting.append(_Waiting(row, place, all_text(content)))
            return LATER
        if operation in ("dequeue", "remove"):
            if not self._recognise(all_text(content)):
                if self._owed:
                    self._owed -= 1
                elif self._waiting:
                    self._forget(0)
            return FOLDED
        if operation == "popAll":
            # Back in the input box: what is sent from there is enqueued anew.
            while self._waiting:
                self._forget(0)
            return FOLDED
        return HIDDEN

    def prompted(self, content: Any) -> None:
        """Note a prompt that stands in the transcript: it waits no longer."""
        if self._waiting and self._recognise(all_text(content)):
            self._owed += 1

    def _recognise(self, text: str) -> bool:
        for index, entry in enumerate(self._waiting):
            if text and entry.text == text:
                self._forget(index)
                return True
        return False

    def _forget(self, index: int) -> None:
        self._settle(self._waiting.pop(index).row, FOLDED)

    def finish(self, reading: Reading) -> None:
        """Show what still waits: a prompt that never came out was typed all the same."""
        waiting, self._waiting = self._waiting, []
        for row, place, text in waiting:
            value = row.value
            if text.startswith("<task-notification>"):
                value = {**value, "origin": {"kind": "task-notification"}}
            self._settle(row, say(reading, value, place, value.get("content")))
