"""Counting the model calls of a turn (decision D28; docs/behaviour.md, "Limits")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats.blocks import BLOCKS, MAIN

if TYPE_CHECKING:
    from agentsdir.formats.blocks import StreamEvent

DEFAULT_MAX_TICKS = 10
"""The limit for providers that call the model in this process; programs have their own."""
MODEL_BLOCKS = frozenset(kind for kind, row in BLOCKS.items() if row.speaker == "model")
_INPUT_BLOCKS = frozenset(kind for kind, row in BLOCKS.items() if row.speaker in ("user", "tool"))


def limit_of(limits: dict[str, Any], *, runs_program: bool) -> int | None:
    """Return the most model calls of a turn; None for no limit.

    Args:
        limits: of the agent.
    """
    return configured_limit(limits) or (None if runs_program else DEFAULT_MAX_TICKS)


def configured_limit(limits: dict[str, Any]) -> int | None:
    """Return the `max_ticks` of an agent's limits; None for none."""
    asked = limits.get("max_ticks")
    return asked if type(asked) is int and asked > 0 else None  # a log may hold any value


class TickCounter:
    """Counts ticks: calls of the model in the main conversation.

    A call begins with a block of the model whose message differs from that of the block before. If
    the blocks name no message, it begins with the first block after a prompt or a result.
    """

    def __init__(self, limit: int | None) -> None:
        self.count = 0
        self.limit = limit
        self._seen: set[str] = set()
        self._message: str | None = None
        self._in_call = False

    def is_beyond(self, event: StreamEvent) -> bool:
        """Count one event; return whether it belongs to a call beyond the limit."""
        block = event.get("block")
        if block is None or event["conversationId"] != MAIN:
            return False
        if block["type"] in _INPUT_BLOCKS:
            self._in_call = False
        elif block["type"] in MODEL_BLOCKS and self._is_new(event["blockId"], block["id"]):
            self.count += self._begins_call(block.get("messageId"))
            self._in_call = True
        return self.limit is not None and self.count > self.limit

    def _is_new(self, *names: str) -> bool:
        new = self._seen.isdisjoint(names)
        self._seen.update(names)
        return new

    def _begins_call(self, message: str | None) -> bool:
        before, self._message = self._message, message
        return message != before if message and before else not self._in_call
