"""A session as it grows: what a reader adds and amends becomes stream events, at once.

The counterpart of `ParseSink`: nothing is kept but where each block stands and what was told of it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.drift import Drifts
from agentsdir.formats.reading.rows import Tally
from agentsdir.formats.reading.sink import DROPPED, Conversation, encodable
from agentsdir.formats.reading.usage import no_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.sink import Link
    from agentsdir.formats.reading.stream import StreamEvent
    from agentsdir.formats.reading.usage import Usage

# What a block must say from the start although a reader learns it later.
_UNTIL_TOLD: dict[str, dict[str, Any]] = {
    "tool_use": {"status": "pending"},
    "subagent": {"subagentId": None, "status": "pending"},
    "system": {"message": ""},
}
_NEVER = object()


class LiveSink:
    """Turns what a reader says of one session into events, in the order in which it says it.

    A fact that was told is not told again, so a reader may state all it knows as often as it
    likes. The handle of a block in events is its durable id, unless it began as another.

    Args:
        hidden: tell blocks marked `hidden`; otherwise `add` drops them.
        begun_as: returns the handle under which a block that is now complete began, if it did.
    """

    def __init__(
        self, *, hidden: bool = False, begun_as: Callable[[Block], str | None] = lambda _block: None
    ) -> None:
        self.wants_hidden = hidden
        self.tally = Tally()
        self.findings: list[Finding] = []
        self.drifts = Drifts()
        self.conversations: dict[str, Conversation] = {}
        self.client_version: str | None = None
        self._begun_as = begun_as
        # What a `ParseSink` makes its sums of; a stream tells each conversation's.
        self.counted: set[int] | None = None
        self.repeated = no_usage()
        self.own_count: Usage | None = None
        self.uncounted = False
        self._events: list[StreamEvent] = []
        # By the reader's handle: the stream's handle and conversation, and what came late.
        self._places: list[tuple[str, str]] = []
        self._late: dict[int, dict[str, Any]] = {}
        # The type and the hash of the words of each block that has any.
        self._words: dict[int, tuple[str, int]] = {}
        # By conversation: the blocks in order, without those that were moved, which follow by
        # position and rank.
        self._unmoved: dict[str, array[int]] = {}
        self._moved: dict[str, list[tuple[int, int, int]]] = {}

    def __len__(self) -> int:
        """Return how many blocks were added, which is the handle of the next one."""
        return len(self._places)

    def drain(self) -> list[StreamEvent]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def tell(self, event: StreamEvent) -> None:
        """Add an event that is not a reader's."""
        self._events.append(event)

    def add(self, block: Block) -> int:
        """Complete a block; return its handle for `amend`, `DROPPED` for an unwanted hidden one."""
        if "hidden" in block and block["hidden"] and not self.wants_hidden:
            return DROPPED
        block = encodable(block)
        late: dict[str, Any] = {}
        for name, value in _UNTIL_TOLD.get(block["type"], {}).items():
            if name not in block:
                block[name] = late[name] = value
        number = len(self._places)
        self._late[number] = late
        if isinstance(block.get("content"), str):
            self._words[number] = block["type"], hash(block["content"])
        conversation = block["conversationId"]
        self.conversation(conversation)
        handle = self._begun_as(block) or block["id"]
        self._places.append((handle, conversation))
        self._unmoved.setdefault(conversation, array("l")).append(number)
        self._events.append(stream.block_complete(handle, block))
        return number

    def amend(self, handle: int, **late: Any) -> None:
        """Update what is new among the fields of a block that was added before."""
        if handle == DROPPED:
            return
        told = self._late[handle]
        news = {name: value for name, value in late.items() if told.get(name, _NEVER) != value}
        if news:
            told.update(news)
            self._events.append(stream.block_update(*self._update(handle, news)))

    def _update(self, handle: int, news: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
        name, conversation = self._places[handle]
        cleaned = encodable({"type": "system", **news})
        del cleaned["type"]
        return name, cleaned, conversation

    def move(self, handle: int, position: int, rank: int) -> None:
        """Show the block that was added last before the one whose handle is `position`."""
        if handle == DROPPED:
            return
        name, conversation = self._places[handle]
        moved = self._moved.setdefault(conversation, [])
        unmoved = self._unmoved[conversation]
        del unmoved[bisect_left(unmoved, handle)]
        here = bisect_left(moved, (position, rank, handle))
        at = bisect_left(unmoved, position)
        following = unmoved[at] if at < len(unmoved) else None
        if here < len(moved) and (following is None or moved[here][0] <= following):
            following = moved[here][2]
        moved.insert(here, (position, rank, handle))
        if following is not None:
            event = next(e for e in reversed(self._events) if e.get("blockId") == name)
            event["before"] = self._places[following][0]

    def supersede(self, handle: int, reason: str) -> None:
        """Mark a block as replaced. A stream does not say why."""
        self.amend(handle, superseded=True)

    def reword(self, handle: int, kind: str, content: str) -> bool:
        """Give a block of type `kind` other words; return False if it is none or has them."""
        known, words = self._words.get(handle, ("", 0))
        if known != kind or words == hash(content):
            return False
        self._words[handle] = kind, hash(content)
        self.amend(handle, content=content)
        return True

    def finding(self, finding: Finding) -> None:
        """Record a remark about the input."""
        self.findings.append(finding)

    def conversation(
        self, name: str, *, parent: str | None = None, link: Link | None = None
    ) -> Conversation:
        """Return (and if need be open) a conversation, telling what is new about it."""
        thread = self.conversations.setdefault(name, Conversation())
        news: dict[str, Any] = {}
        if parent is not None and parent != thread.parent:
            news["parent"] = thread.parent = parent
        if link is not None and link != thread.link:
            thread.link = link
            news["link"] = link._asdict()
        if news:
            self._events.append(stream.metadata_update(news, name))
        return thread

    def use(self, conversation: str, usage: Usage) -> None:
        """Tell what a conversation spent, when a reader knows it."""
        thread = self.conversation(conversation)
        if usage != thread.usage:
            thread.usage = usage
            self._events.append(stream.metadata_update({"usage": usage}, conversation))

    def open_main(self) -> Conversation:
        """Return the main conversation, so that even an empty session has one."""
        return self.conversation(MAIN)


class StdoutSink(LiveSink):
    """Events of lines that stand in no file."""

    def add(self, block: Block) -> int:
        """Complete a block."""
        return super().add({**block, "source": None})
