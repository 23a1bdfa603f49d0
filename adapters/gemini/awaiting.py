"""Following a session whose chat file the client has yet to make, under a name of its choice."""

from __future__ import annotations

from agentsdir.adapters.gemini import store
from agentsdir.adapters.gemini.follow import SessionFollower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent


class AwaitedFollower:
    """Follows the session of an id once its file is there.

    Args:
        storage: the client's folder.
        native_id: returns the session's id, which only the client may know at first.
    """

    def __init__(self, storage: Path, native_id: Callable[[], str]) -> None:
        self._storage = storage
        self._native_id = native_id
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

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what was written since the last look."""
        if self._found is None:
            mains = store.locate(self._storage, self._native_id())
            if not mains:
                return
            self._found = SessionFollower(mains[0], hidden=False)
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
