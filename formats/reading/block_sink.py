"""What an adapter writes into, be it a whole session or one that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.drift import Drifts
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.rows import Tally
    from agentsdir.formats.reading.sink import Conversation, Link
    from agentsdir.formats.reading.usage import Usage


class BlockSink(Protocol):
    """What an adapter writes into: a `ParseSink` for a whole session, a `LiveSink` as it grows."""

    wants_hidden: bool
    tally: Tally
    drifts: Drifts
    conversations: dict[str, Conversation]
    client_version: str | None
    counted: set[int] | None
    repeated: Usage
    own_count: Usage | None
    uncounted: bool

    def add(self, block: Block) -> int:
        """Append a block; return its handle, `DROPPED` for an unwanted hidden one."""

    def __len__(self) -> int:
        """Return how many blocks were added, which is the handle of the next one."""

    def move(self, handle: int, position: int, rank: int) -> None:
        """Show the block that was added last before the one whose handle is `position`.

        Blocks that were moved to one position stand there by `rank`, and those of one rank as they
        came. Where no block of that handle or a higher one was added, they stand last.
        """

    def amend(self, handle: int, **late: Any) -> None:
        """State fields of a block that were unknown when it was added."""

    def supersede(self, handle: int, reason: str) -> None:
        """Mark a block as replaced, for a reason in kebab-case."""

    def reword(self, handle: int, kind: str, content: str) -> bool:
        """Give a block of type `kind` other words; return False if it is none or has them."""

    def finding(self, finding: Finding) -> None:
        """Record a remark about the input."""

    def conversation(
        self, name: str, *, parent: str | None = None, link: Link | None = None
    ) -> Conversation:
        """Return (and if need be open) a conversation, setting what is given."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Count one model message's tokens."""

    def open_main(self) -> Conversation:
        """Return the main conversation, so that even an empty session has one."""
