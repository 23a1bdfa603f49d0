"""The timeline of a session, as a program reads and edits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from agentsdir.engine.services import Services
    from agentsdir.engine.timeline import Timeline
    from agentsdir.formats.blocks import Block


class SessionTimeline:
    """What the model of a session is given: blocks, in their order.

    Edits are recorded and rewrite nothing: `history` has all that was said. What is returned are
    copies.

    Args:
        timeline: of the session's agent.
        services: makes what an edit needs of this machine.
    """

    def __init__(self, timeline: Timeline, services: Callable[[], Services]) -> None:
        self._timeline = timeline
        self._services = services

    @property
    def entries(self) -> list[Block]:
        """The blocks of the timeline."""
        return self._timeline.entries()

    @property
    def history(self) -> list[Block]:
        """The blocks of the main conversation since the last reset, whatever was edited."""
        return self._timeline.conversation_history()

    def __call__(
        self,
        *,
        limit: int | None = None,
        max_tokens: int | None = None,
        roles: Collection[str] = (),
    ) -> list[Block]:
        """Return the newest blocks of the timeline (`engine.timeline.select`)."""
        return self._timeline.select(limit, max_tokens, roles)

    def set(self, entries: Sequence[Block]) -> list[Block]:
        """Put blocks in the place of the timeline, and return it.

        Raises what `Timeline.replace` raises.
        """
        return self._timeline.replace(self._services(), lambda _: entries)

    def update(self, change: Callable[[list[Block]], Sequence[Block]]) -> list[Block]:
        """Put what `change` makes of the timeline in its place, and return it.

        `change` is called again where a turn has gone on meanwhile. Raises what `set` raises.
        """
        return self._timeline.replace(self._services(), change)
