"""Telling a session again without repeating what was told (SPEC.md, "Following")."""

from __future__ import annotations

from typing import Any

from agentsdir.formats.reading import stream
from agentsdir.formats.reading.book import BlockBook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent

_SUPERSEDED = "superseded"


class Retelling:
    """Passes events on, and remembers what they leave.

    When a file has to be read again, the events of that reading are gathered (`again`), and only
    the difference to what was told is passed on (`settle`).
    """

    def __init__(self) -> None:
        self._told = BlockBook()
        self._said: dict[str, dict[str, Any]] = {}
        self._fresh: BlockBook | None = None
        self._fresh_said: dict[str, dict[str, Any]] = {}

    def again(self) -> None:
        """Begin to gather: what follows tells the session from its start."""
        self._fresh = BlockBook()
        self._fresh_said = {}

    def tell(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """Take events; yield those that are to be told now."""
        for event in events:
            if self._fresh is not None:
                self._note(event, self._fresh, self._fresh_said)
            else:
                self._note(event, self._told, self._said)
                yield event

    def settle(self) -> Iterator[StreamEvent]:
        """Yield how what was gathered differs from what was told; nothing if nothing was."""
        fresh, told = self._fresh, self._told
        if fresh is None:
            return
        self._fresh, self._told = None, fresh
        for key in fresh:
            conversation, handle = key
            block = fresh[key]
            if key not in told:
                yield stream.block_complete(handle, block)
                continue
            changes = _changes(told[key], block)
            if changes is None:
                yield stream.block_complete(handle, block)
            elif changes:
                yield stream.block_update(handle, changes, conversation)
        for key in told:
            if key in fresh:
                continue
            block = told[key]
            if not block.get(_SUPERSEDED):
                yield stream.block_update(key[1], {_SUPERSEDED: True}, key[0])
            # It may come back: some clients cut the end off and write it again.
            fresh.put(key, {**block, _SUPERSEDED: True})
        for conversation, metadata in self._fresh_said.items():
            known = self._said.setdefault(conversation, {})
            news = {name: value for name, value in metadata.items() if known.get(name) != value}
            if news:
                known.update(news)
                yield stream.metadata_update(news, conversation)

    def _note(self, event: StreamEvent, book: BlockBook, said: dict[str, dict[str, Any]]) -> None:
        if event["type"] == "metadata_update":
            said.setdefault(event["conversationId"], {}).update(event["metadata"])
        else:
            book.apply(event)


def _changes(old: Block, new: Block) -> dict[str, Any] | None:
    """Return the fields that make `new` of `old`; None where one must go, which no update says."""
    if not old.keys() - {_SUPERSEDED} <= new.keys():
        return None
    changes = {name: value for name, value in new.items() if old.get(name) != value}
    if old.get(_SUPERSEDED) and _SUPERSEDED not in new:
        changes[_SUPERSEDED] = False
    return changes
