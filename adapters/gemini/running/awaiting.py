"""Following a session whose chat file the client has yet to make, under a name of its choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.following.follow import SessionFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent


class AwaitedFollower:
    """Follows a session once its file is there.

    Args:
        find: returns the session's chat file, None as long as there is none: only the client may
            know its id at first.
    """

    def __init__(self, find: Callable[[], Path | None]) -> None:
        self._find = find
        self._main: Path | None = None
        self._found: SessionFollower | None = None
        # What was there before: by conversation and handle.
        self._old: set[tuple[str, str]] = set()

    def pass_over(self) -> None:
        """Pass over what the files show by now; a block of that is never told as a new one.

        A client that begins another file for the session writes all of it there again, poorer.
        """
        for event in self.poll():
            if event["type"] == "block_complete":
                self._old.add((event["conversationId"], event["blockId"]))

    def look_again(self) -> None:
        """Find the session's file anew, should the client have copied it to another folder."""
        now = self._find()
        if self._main and now and now.parent != self._main.parent:
            self._found = None

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what was written since the last look."""
        if self._found is None:
            self._main = self._find()
            if self._main is None:
                return
            self._found = SessionFollower(self._main, hidden=False)
        yield from filter(self._is_new, self._found.poll())

    def end(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles."""
        yield from self.poll()
        if self._found is not None:
            yield from filter(self._is_new, self._found.end())

    def _is_new(self, event: StreamEvent) -> bool:
        return (
            event["type"] != "block_complete"
            or (event["conversationId"], event["blockId"]) not in self._old
        )

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the files so far."""
        return () if self._found is None else self._found.findings
