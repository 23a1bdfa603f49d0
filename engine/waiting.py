"""Waiting for turns and messages that other processes run, by reading their logs."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.lookup import descendants, parent_id
from agentsdir.engine.result import Ending
from agentsdir.formats import ids
from agentsdir.formats.errors import (
    AgentsdirError,
    NoSuchAgent,
    ProviderError,
    SessionStateError,
    TurnTimeout,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import open_agent, read_agent
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import Position, read_log, read_records
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

START_PATIENCE = 10.0
"""Seconds in which a process has to begin with a message that waits in an inbox."""
_SHORTEST, _LONGEST = 0.02, 0.25
"""Seconds between two looks; they grow from the first to the second."""
_CHUNK = 4 * 1024 * 1024
_ENDS = ("success", "error")
_OF_CHILDREN = ("message.enqueued", "spawn.requested", "agent.spawned", "spawn.dropped")


class Ended(NamedTuple):
    """A turn or a message that has ended: `error` is why it failed, None for a completed turn."""

    agent_id: str
    message_id: str | None
    turn_id: str | None
    error: AgentsdirError | None

    def as_json(self) -> dict[str, Any]:
        """Return the row that `wait --json` prints."""
        error = self.error
        said = None if error is None else {"kind": error.kind, "message": error.message}
        return {
            "type": "ended",
            "agentId": self.agent_id,
            "messageId": self.message_id,
            "turnId": self.turn_id,
            "outcome": "completed" if error is None else "failed",
            "error": said,
        }


class _Child:
    """A subagent that is waited for, until its end is logged and its answer, if one comes, waits.

    The answer comes after the end, from the process that still holds the subagent's `.turn`.
    """

    def __init__(self, paths: AgentPaths, *, has_ended: bool) -> None:
        self.paths = paths
        self.has_ended = has_ended


class Watch:
    """Reads an agent's log until a turn, messages, or subagents have ended in it.

    The log stays open, so that the end of an agent that is removed at once is seen.

    Args:
        turn_id: the turn that runs, if it is waited for.
        messages: the ids of messages that are waited for.
        start: where the log has none of their ends yet.
        children: the ids of subagents that have not ended; with None, those that the turn spawns
            are not waited for, either.
        answering: the ids of subagents that have, and whose answers may still come.
    """

    def __init__(
        self,
        paths: AgentPaths,
        turn_id: str | None,
        messages: Iterable[str],
        start: Position = Position(),  # noqa: B008, it is immutable
        children: Iterable[str] | None = None,
        answering: Iterable[str] = (),
    ) -> None:
        self.paths = paths
        self._follows_children = children is not None
        self._children: dict[str, _Child] = {}
        for child_id in children or ():
            self._add_child(child_id)
        for child_id in answering:
            self._add_child(child_id, has_ended=True)
        self.ended: list[Ended] = []
        self._turns: dict[str, str | None] = {} if turn_id is None else {turn_id: None}
        self._messages = dict.fromkeys(messages)
        self._position = start
        self._later = False
        self._stream = open_agent(paths)

    @classmethod
    def of_agent(cls, paths: AgentPaths, *, pending: bool = True) -> Watch | None:
        """Return a watch of what an agent has to do; None for nothing.

        Args:
            pending: with the turn that runs, the messages that wait, and the subagents that have
                not ended, or not answered.
        """
        at_work = _children_at_work(paths) if pending else frozenset()  # before the log is read
        state = read_agent(paths).state
        turn = state.open_turn
        runs = turn is not None and not turn["ended"] and locks.is_held(paths.turn)
        messages = [one["messageId"] for one in state.pending] if pending else []
        is_closed = state.session.state is SessionState.TERMINATED
        children = (() if is_closed else state.children) if pending else None
        answering = () if is_closed else _answering(paths, state, at_work)
        if not (runs or messages or children or answering):
            return None
        turn_id = turn["turnId"] if runs and turn else None
        return cls(paths, turn_id, messages, state.position, children, answering)

    @property
    def _is_open(self) -> bool:
        """Whether the log has not said the end of something."""
        return bool(self._turns or self._messages or self._children)

    @property
    def waits(self) -> bool:
        """Whether something is not over. At the end `.turn` is free, or the next turn runs."""
        if self._is_open:
            return True
        return not self._later and locks.is_held(self.paths.turn)

    @property
    def has_turn(self) -> bool:
        """Whether a turn is waited for that has begun."""
        return bool(self._turns)

    def is_held(self) -> bool:
        """Tell whether a process runs a turn of the agent, or of a subagent that is waited for."""
        locked = (self.paths.turn, *(child.paths.turn for child in self._children.values()))
        return any(map(locks.is_held, locked))

    def poll(self) -> None:
        """Read what the log has more. Raises `NoSuchAgent` for an agent that is gone before."""
        left = [  # as it is before the log is read, which then has their answers
            child_id
            for child_id, child in self._children.items()
            if child.has_ended and not locks.is_held(child.paths.turn)
        ]
        self._read()
        for child_id in left:
            self._children.pop(child_id, None)
        if not self._is_open or self.paths.log.exists():
            return
        self._read()  # the last records may have come just before it went
        if self._is_open:
            raise NoSuchAgent(f"{self.paths.folder} is gone, and its log says no end")

    def _read(self) -> None:
        if os.fstat(self._stream.fileno()).st_size <= self._position.size:
            return
        self._stream.seek(self._position.size)
        for line in read_log(self._stream, str(self.paths.log), self._position):
            if line.after.size == line.offset:
                return  # a writer is at work
            self._position = line.after
            if line.record is not None:
                self._take(line.record)

    def _add_child(self, child_id: str, *, has_ended: bool = False) -> None:
        if ids.is_agent_id(child_id):
            paths = AgentPaths(self.paths.folder.parent / child_id, child_id)
            self._children.setdefault(child_id, _Child(paths, has_ended=has_ended))

    def _take_of_child(self, record: Record) -> None:
        """Take what a record says of a subagent: that there is one, its end, its answer."""
        data = record.data
        if record.event == "message.enqueued":
            if (child := self._children.get(str(data.get("sender")))) is not None:
                self._messages[data["message_id"]] = None
                if child.has_ended:
                    del self._children[child.paths.id]
            return
        child_id = str(data.get("child"))
        has_ended = record.event == "agent.spawned" and data.get("status") in _ENDS
        if record.event == "spawn.dropped":
            self._children.pop(child_id, None)
        elif not has_ended:
            self._add_child(child_id)
        elif (child := self._children.get(child_id)) is not None:
            child.has_ended = True

    def _take(self, record: Record) -> None:
        data = record.data
        if record.event in _OF_CHILDREN:
            if self._follows_children:
                self._take_of_child(record)
        elif record.event == "session.state" and data.get("to") == "terminated":
            self._children.clear()  # they are closed with it, and its log gets no more of them
        elif record.event == "turn.start":
            begun = [one for one in data.get("message_ids", ()) if one in self._messages]
            for message_id in begun:
                del self._messages[message_id]
                self._turns[data["turn_id"]] = message_id
            self._later = not begun
        elif record.event == "message.delivered" and data.get("message_id") in self._messages:
            del self._messages[data["message_id"]]
            why = "the agent was closed before the message was looked at"
            error = SessionStateError(why, kind="closed")
            self.ended.append(Ended(self.paths.id, data["message_id"], None, error))
        elif (turn_id := data.get("turn_id")) in self._turns:
            ending = Ending.of_record(record.event, data)
            if ending is not None:
                message_id = self._turns.pop(str(turn_id))
                found = Ended(self.paths.id, message_id, turn_id, ending.as_error())
                self.ended.append(found)

    def give_up(self, error: Callable[[str], AgentsdirError]) -> None:
        """End what is not over with an error, which is made of what it is about."""
        for turn_id, message_id in self._turns.items():
            why = error(f"turn {turn_id} of agent {self.paths.id}")
            self.ended.append(Ended(self.paths.id, message_id, turn_id, why))
        for child_id in self._children:
            why = error(f"subagent {child_id} of agent {self.paths.id}")
            self.ended.append(Ended(child_id, None, None, why))
        for message_id in self._messages:
            why = error(f"message {message_id} of agent {self.paths.id}")
            self.ended.append(Ended(self.paths.id, message_id, None, why))
        self._turns.clear()
        self._messages.clear()
        self._children.clear()
        self._later = True

    def close(self) -> None:
        """Close the log."""
        self._stream.close()


def _children_at_work(paths: AgentPaths) -> frozenset[str]:
    """Return the ids of an agent's subagents whose `.turn` a process holds between turns."""
    below = descendants(Layout(paths.folder.parent.parent), paths.id)
    return frozenset(
        one.paths.id
        for one in below
        if one.document is not None
        and parent_id(one.document) == paths.id
        and locks.is_held(one.paths.turn)
        and ((turn := one.document["openTurn"]) is None or turn["ended"])
    )


def _answering(paths: AgentPaths, state: AgentState, at_work: frozenset[str]) -> set[str]:
    """Return those whose end the log has, but after it neither an answer nor another beginning."""
    found: set[str] = set()
    records = (
        read_records(paths.log, end=state.position.size) if at_work - {*state.children} else ()
    )
    for record in records:
        data = record.data
        if record.event == "agent.spawned" and data.get("child") in at_work:
            if data.get("status") in _ENDS:
                found.add(data["child"])
            else:
                found.discard(data["child"])
        elif record.event == "message.enqueued":
            found.discard(str(data.get("sender")))
    return found


def find_message(layout: Layout, message_id: str) -> Watch | None:
    """Return a watch of a message, wherever it is; None where no log has it.

    All logs are searched for its id.
    """
    wanted = f'"{message_id}"'.encode()
    for agent_id in layout.agent_ids():
        with suppress(AgentsdirError, OSError):
            paths = layout.agent(agent_id)
            if _holds(paths, wanted) and _has_message(paths, message_id):
                return Watch(paths, None, [message_id])
    return None


def _holds(paths: AgentPaths, wanted: bytes) -> bool:
    before = b""
    with open_agent(paths) as stream:
        while piece := stream.read(_CHUNK):
            if wanted in before + piece:
                return True
            before = piece[-len(wanted) :]
    return False


def _has_message(paths: AgentPaths, message_id: str) -> bool:
    with open_agent(paths) as stream:
        return any(
            line.record is not None
            and line.record.event == "message.enqueued"
            and line.record.data.get("message_id") == message_id
            for line in read_log(stream, str(paths.log))
        )


def running(layout: Layout, *, without: str | None = None) -> Iterator[Watch]:
    """Yield a watch of each turn that runs. An agent that cannot be read is passed over.

    Args:
        without: the id of an agent that is not waited for.
    """
    for agent_id in layout.agent_ids():
        watch = None
        with suppress(AgentsdirError, OSError):
            paths = layout.agent(agent_id)
            if agent_id != without and locks.is_held(paths.turn):
                watch = Watch.of_agent(paths, pending=False)
        if watch is not None:
            yield watch


def wait_for(
    watches: Sequence[Watch], sleep: Callable[[float], None], *, timeout: float = 0
) -> Iterator[Ended]:
    """Yield what has ended, as it ends, until nothing is waited for.

    A turn whose process died has failed (``turn-aborted``). Without a timeout a message with which
    no process begins is given up after `START_PATIENCE` (``not-running``).

    Args:
        timeout: seconds after which what is not over is given up (``wait-timeout``); 0 for never.
    """
    begun = time.monotonic()
    seen_running = dict.fromkeys(watches, begun)
    pause = _SHORTEST
    waiting = list(watches)
    while waiting:
        now = time.monotonic()
        for watch in list(waiting):
            held, busy = locks.is_held(watch.paths.turn), watch.is_held()
            _poll(watch)
            if busy:
                seen_running[watch] = now
            if watch.waits and not held:
                _give_up_if_lost(watch, now - seen_running[watch], timeout)
            if timeout and now - begun >= timeout:
                watch.give_up(_too_late(timeout))
            yield from watch.ended
            watch.ended.clear()
            if not watch.waits:
                waiting.remove(watch)
        if waiting:
            left = timeout - (time.monotonic() - begun) if timeout else pause
            sleep(max(min(pause, left), 0))
            pause = min(pause * 1.5, _LONGEST)


def _poll(watch: Watch) -> None:
    try:
        watch.poll()
    except NoSuchAgent as error:
        gone = error.message
        watch.give_up(lambda what: NoSuchAgent(f"{what}: {gone}"))


def _give_up_if_lost(watch: Watch, unheld: float, timeout: float) -> None:
    """Give up what no process runs; its log was read after `.turn` was seen to be free."""
    hint = f"`agentsdir restore {watch.paths.id}` ends the turn"
    if watch.has_turn:
        watch.give_up(
            lambda what: ProviderError(f"{what}: its process died", hint=hint, kind="turn-aborted")
        )
    elif not timeout and unheld >= START_PATIENCE:
        run = f"`agentsdir send {watch.paths.id} --no-message` runs what waits"
        watch.give_up(
            lambda what: SessionStateError(
                f"{what} waits, and no process runs it", hint=run, kind="not-running"
            )
        )


def _too_late(timeout: float) -> Callable[[str], AgentsdirError]:
    return lambda what: TurnTimeout(
        f"{what} has not ended after {timeout:g} s", kind="wait-timeout"
    )
