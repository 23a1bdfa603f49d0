"""A conversation by turns: of an agent's log, or of a client's session."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.parse import parse_session
from agentsdir.engine.replay import Settled, recorded_event
from agentsdir.formats import blocks, jsontext
from agentsdir.formats.blocks import MAIN, block_key
from agentsdir.formats.errors import Invalid, NoSuchAgent, UnsafePath, UsageError
from agentsdir.formats.store.agent import open_agent, without_live_tail
from agentsdir.formats.store.log import Position, open_log, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.engine.parse import FoundSession
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record


class TurnStart(NamedTuple):
    """Where a turn begins: its number, from 1, its first event, and when it began."""

    number: int
    place: int
    at: str | None


class ConversationTurns:
    """The events of a conversation, by turns: each block once, at its first place, as it is last.

    A turn begins where the log begins one. In a client's session, and for what an agent's log has
    from the client alone, a turn begins with each prompt. What stands before the first turn is a
    part of it.
    """

    def __init__(self) -> None:
        self.turns: list[TurnStart] = []
        self._events = Settled()

    def begin(self, at: str | None) -> TurnStart:
        """Begin a turn."""
        place = len(self._events) if self.turns else 0
        self.turns.append(TurnStart(len(self.turns) + 1, place, at))
        return self.turns[-1]

    def add(self, event: StreamEvent) -> None:
        """Add an event to the last turn."""
        key = hash(block_key(event["block"])) if "block" in event else None
        self._events.add(_encoded(event), key)

    def add_record(self, record: Record) -> TurnStart | None:
        """Add what a record of an agent's log says; return the turn that it begins, if any."""
        begun = None
        if record.event == "turn.start":
            return self.begin(record.ts)
        event = recorded_event(record)
        if event is None:
            return None
        if "block" in event and record.data.get("turn_id") is None:
            begun = self._begin_of_client(event["block"])
        self.add(event)
        return begun

    def _begin_of_client(self, block: dict[str, Any]) -> TurnStart | None:
        if not _is_prompt(block) or self._events.has(hash(block_key(block))):
            return None
        return self.begin(block.get("timestamp"))

    def add_session(self, found: FoundSession) -> list[Finding]:
        """Add the blocks of a client's session; return what is wrong with its files."""
        sink = parse_session(found, hidden=False)
        for block in sink.blocks("live"):
            if _is_prompt(block):
                self.begin(block.get("timestamp"))
            self.add({**blocks.block_complete(block["id"], block), "timestamp": block["timestamp"]})
        return list(sink.findings)

    def events(self, first: int = 1, last: int | None = None) -> Iterator[StreamEvent]:
        """Yield the events from the turn `first` to the turn `last`; to the end by default."""
        begin = self.turns[first - 1].place if first > 1 else 0
        ends = last is not None and last < len(self.turns)
        end = self.turns[last].place if ends and last is not None else len(self._events)
        for piece in self._events.pieces(begin, end):
            yield from map(jsontext.decode, io.BytesIO(piece))

    def by_turn(
        self, first: int = 1, last: int | None = None
    ) -> Iterator[tuple[TurnStart | None, Iterator[StreamEvent]]]:
        """Yield each turn with its events; where no turn has begun, all events without one."""
        if not self.turns:
            yield None, self.events()
            return
        for turn in self.turns[first - 1 : last]:
            yield turn, self.events(turn.number, turn.number)


def read_conversation(paths: AgentPaths, report: Callable[[Finding], None]) -> ConversationTurns:
    """Return the conversation of an agent's log; damage is reported and passed over.

    Raises what `open_agent` raises.
    """
    conversation = ConversationTurns()
    with open_agent(paths) as opened:
        for line in read_log(opened, str(paths.log)):
            for finding in without_live_tail(paths, line.findings):
                report(finding)
            if line.record is not None:
                conversation.add_record(line.record)
    return conversation


def _encoded(event: StreamEvent) -> bytes:
    try:
        return jsontext.encode(event) + b"\n"
    except Invalid:  # values that do not come back as they are
        return jsontext.encode(jsontext.clean(event, set())) + b"\n"


def _is_prompt(block: dict[str, Any]) -> bool:
    return (
        block.get("type") == "user_message"
        and block.get("conversationId") == MAIN
        and not (block.get("hidden") or block.get("superseded"))
    )


class LogTail:
    """Reads records as they are appended to an agent's log, and to those of others that it watches.

    Args:
        layout: has the spawned agents.
        report: called with each finding in the agent's own log.
        start: where to begin in that log.
    """

    def __init__(
        self,
        layout: Layout,
        paths: AgentPaths,
        report: Callable[[Finding], None],
        start: Position | None = None,
    ) -> None:
        self._layout = layout
        self._report = report
        self._own = paths
        self._read: dict[str, tuple[AgentPaths, Position]] = {
            paths.id: (paths, start or Position())
        }
        self._expected: dict[str, None] = {}

    def poll(self) -> Iterator[tuple[str, Record]]:
        """Yield the ids of agents and the new records of their logs.

        Raises `NoSuchAgent` when the agent itself is gone; a spawned one may be removed.
        """
        for child in list(self._expected):
            try:
                self._read[child] = self._layout.agent(child), Position()
            except NoSuchAgent:
                continue  # it is asked for before it is made
            except (UsageError, UnsafePath):
                pass  # a log may name what is no agent
            del self._expected[child]
        for agent_id in list(self._read):
            try:
                yield from self.poll_one(agent_id)
            except FileNotFoundError:
                if agent_id == self._own.id:
                    raise NoSuchAgent(f"{self._own.folder} is gone") from None
                del self._read[agent_id]

    def poll_one(self, agent_id: str) -> Iterator[tuple[str, Record]]:
        """Yield the new records of one of the logs. Raises `FileNotFoundError` if it is gone."""
        paths, position = self._read[agent_id]
        if paths.log.stat().st_size <= position.size:
            return
        with open_log(paths.log, position.size) as stream:
            for line in read_log(stream, str(paths.log), position):
                if line.after.size == line.offset:
                    return  # a writer is at work
                self._read[agent_id] = paths, line.after
                if agent_id == self._own.id:
                    for finding in without_live_tail(paths, line.findings):
                        self._report(finding)
                if line.record is not None:
                    yield agent_id, line.record

    def watch(self, record: Record) -> str | None:
        """Read also the log of the agent that a record spawns; return its id, None for none."""
        child = record.data.get("child")
        is_spawn = record.event in ("spawn.requested", "agent.spawned")
        if not is_spawn or not isinstance(child, str):
            return None
        if child not in self._read:
            self._expected[child] = None
        return child

    def read_also(self, paths: AgentPaths) -> None:
        """Read also the log of another agent, from its beginning."""
        self._read.setdefault(paths.id, (paths, Position()))

    @property
    def agents(self) -> list[AgentPaths]:
        """The agents whose logs are read."""
        return [paths for paths, _ in self._read.values()]
