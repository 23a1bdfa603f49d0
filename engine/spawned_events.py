"""Stream events of the agents that an agent spawns, from the logs, while its turns run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.conversation import LogTail
from agentsdir.engine.lookup import find_readable
from agentsdir.engine.notices import is_spawned_block
from agentsdir.engine.replay import recorded_event
from agentsdir.engine.session_data import thread_end, thread_start
from agentsdir.formats.blocks import MAIN, block_complete, block_start, block_update
from agentsdir.formats.errors import NoSuchAgent
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record


class SpawnedEvents:
    """What becomes of the agents that an agent spawns, from now on, as events of its stream.

    Each has a `block_start`, a `block_update` when it begins to run, and a `block_complete`.

    Args:
        children: yield also what is in their own logs: their blocks and the ends of their turns, in
            the conversation that has the id of the agent, as `inspect --runtime` shows it.

    Raises what `read_agent` raises.
    """

    def __init__(self, layout: Layout, paths: AgentPaths, *, children: bool) -> None:
        self._layout = layout
        self._own = paths.id
        self._children = children
        start = read_agent(paths).state.position
        self._tail = LogTail(layout, paths, lambda _: None, start)
        self._shown: dict[str, Block] = {}
        self._sessions: dict[str, Any] = {}

    def poll(self) -> Iterator[StreamEvent]:
        """Yield the events since the last call; none any more once the agent is removed."""
        try:
            for agent_id, record in self._tail.poll():
                yield from self._events(agent_id, record)
        except NoSuchAgent:
            return

    def _events(self, agent_id: str, record: Record) -> Iterator[StreamEvent]:
        event = recorded_event(record)
        if event is None:
            return
        if agent_id == self._own:
            if is_spawned_block(event.get("block", {})):
                yield from self._of_spawned(event["block"], record.ts)
        else:
            del event["timestamp"]
            if event["conversationId"] == MAIN:
                event["conversationId"] = agent_id
                if "block" in event:
                    own = {"conversationId": agent_id, "source": None}
                    event["block"] = {**event["block"], **own}
                yield event

    def _of_spawned(self, block: Block, at: str) -> Iterator[StreamEvent]:
        """Yield the events of a subagent's block, as it is logged now."""
        name, child = block["id"], str(block.get("subagentId"))
        before = self._shown.get(name)
        self._shown[name] = block
        bounded = {**block, "sessionId": self._sessions.setdefault(child, block.get("sessionId"))}
        end = thread_end(bounded, at)
        if before is None:
            yield block_start(name, block)
            if self._children:
                self._watch(child)
                yield _complete(thread_start(bounded))
        if end is not None:
            if self._children:
                yield from self._rest(child)
                yield _complete(end)
            yield block_complete(name, block)
        elif before is not None:
            changed = {key: value for key, value in block.items() if before.get(key) != value}
            if changed:
                yield block_update(name, changed, MAIN)

    def _watch(self, child: str) -> None:
        """Read the log of a spawned agent, too.

        A log from a bundle may name any agent: only one that has this parent is read.
        """
        found = find_readable(self._layout, child)
        if found is not None and found[1].parent == self._own:
            self._tail.read_also(found[0])

    def _rest(self, child: str) -> Iterator[StreamEvent]:
        """Yield what a spawned agent logged before its parent's log had its end."""
        try:
            for agent_id, record in list(self._tail.poll_one(child)):
                yield from self._events(agent_id, record)
        except (FileNotFoundError, KeyError):
            return


def _complete(block: Block) -> StreamEvent:
    return block_complete(block["id"], block)
