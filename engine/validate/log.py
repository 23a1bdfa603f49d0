"""`validate` for one events.jsonl: lines, order, schemas, transitions, turns, spawns, texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.validate.findings import (
    JSONText,
    as_written,
    breaches,
    decode,
    from_refusal,
)
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import derived
from agentsdir.formats.store.events import BROKEN, TURN_ENDS, apply, begin, breach_after_close
from agentsdir.formats.store.log import Position, open_log, read_log
from agentsdir.formats.store.state import TRANSITIONS, SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.store.log import LogLine, Record
    from agentsdir.formats.store.state import AgentState

# Events of a turn before its end.
_WITHIN = (
    "abort.requested",
    "abort.cleared",
    "message.sent",
    "provider.fallback",
    "spawn.requested",
)

_SPAWNING = ("spawn.requested", "agent.spawned", "spawn.dropped")


class TurnOrder:
    """Checks the order of messages and turns: each starts, ends and is delivered once.

    See docs/behaviour.md, "Sessions and turns".
    """

    def __init__(self) -> None:
        self._messages: set[str] = set()
        self._waiting: set[str] = set()
        self._turn: str | None = None
        self._ended = False
        self._asked = False
        self._undelivered: set[str] = set()

    def breach(self, record: Record) -> tuple[str, str] | None:
        """Return the reason and a JSON pointer if a record may not follow those before it."""
        data, event = record.data, record.event
        if event == "message.enqueued":
            return self._enqueue(str(data.get("message_id")))
        if event == "turn.start":
            return self._start(data)
        if event in TURN_ENDS:
            return self._end(str(data.get("turn_id")))
        if event in _WITHIN:
            return self._go_on(event, str(data.get("turn_id")))
        if event == "message.delivered":
            return self._deliver(str(data.get("message_id")), data.get("outcome"))
        if event == "block" and data.get("turn_id") not in (None, self._turn):
            return "no such turn is open", "/data/turn_id"
        return None

    def _enqueue(self, message: str) -> tuple[str, str] | None:
        known = message in self._messages
        self._messages.add(message)
        self._waiting.add(message)
        return (f"message {message} is there already", "/data/message_id") if known else None

    def _start(self, data: dict[str, Any]) -> tuple[str, str] | None:
        before, self._turn, self._ended = self._turn, str(data.get("turn_id")), False
        named = data.get("message_ids")
        messages = {str(message) for message in named} if isinstance(named, list) else set()
        strange = messages - self._waiting
        self._waiting -= messages
        self._undelivered, self._asked = messages, False
        if before is not None:
            return f"turn {before} is not over", "/data/turn_id"
        if strange:
            return f"message {min(strange)} is not waiting", "/data/message_ids"
        return None

    def _end(self, turn: str) -> tuple[str, str] | None:
        if turn != self._turn or self._ended:
            return f"turn {turn} is not open", "/data/turn_id"
        self._ended = True
        if not self._undelivered:
            self._turn = None
        return None

    def _go_on(self, event: str, turn: str) -> tuple[str, str] | None:
        if turn != self._turn or self._ended:
            return f"turn {turn} does not run", "/data/turn_id"
        if event == "abort.cleared" and not self._asked:
            return f"turn {turn} was not asked to end", "/data/turn_id"
        if event.startswith("abort."):
            self._asked = event == "abort.requested"
        return None

    def _deliver(self, message: str, outcome: Any) -> tuple[str, str] | None:
        if message in self._waiting:  # dropped, or the agent was closed
            self._waiting.discard(message)
            reason = f"no turn has taken message {message}, and it is {outcome}"
            return None if outcome == "aborted" else (reason, "/data/outcome")
        if message not in self._undelivered or not self._ended:
            return f"message {message} is not at its turn's end", "/data/message_id"
        self._undelivered.discard(message)
        if not self._undelivered:
            self._turn = None
        return None


class SpawnOrder:
    """Checks the order of events of spawned agents and outgoing texts (SPEC.md, "Events")."""

    def __init__(self) -> None:
        self._children: dict[str, str] = {}
        self._handed_out: dict[str, bool] = {}

    def breach(self, record: Record) -> tuple[str, str, str] | None:
        """Return finding id, reason and pointer if a record may not follow those before it."""
        if record.event in _SPAWNING:
            child = str(record.data.get("child"))
            status = str(record.data.get("status", record.event))
            reason = self._spawn(child, status)
            return None if reason is None else ("spawn-order", reason, "/data/child")
        if record.event.startswith("outgoing"):
            message = str(record.data.get("message_id"))
            reason = self._outgoing(message, handed_out=record.event == "outgoing.delivered")
            return None if reason is None else ("outgoing-order", reason, "/data/message_id")
        return None

    def _spawn(self, child: str, status: str) -> str | None:
        before, self._children[child] = self._children.get(child), status
        if before in ("success", "error", "spawn.dropped"):
            return f"subagent {child} has ended before"
        if status == "spawn.requested" and before is not None:
            return f"subagent {child} was asked for before"
        if status == "running" and before == "running":
            return f"subagent {child} runs already"
        if status == "spawn.dropped" and before != "spawn.requested":
            return f"subagent {child} does not wait for a turn's end"
        return None

    def _outgoing(self, message: str, *, handed_out: bool) -> str | None:
        before = self._handed_out.get(message)
        self._handed_out[message] = handed_out
        if handed_out:
            return None if before is False else f"text {message} is not there to be delivered"
        return None if before is None else f"text {message} is there already"


class LogCheck:
    """Checks one log while it folds it. After `run`, `state` is the fold of its readable records.

    `sound` is False after the first line that cannot be read or is out of order. From there on the
    fold differs from what writers had, so nothing is compared with it.

    Args:
        name: of the file in findings.
        held: returns whether a writer may be in the middle of the last line.
        on_record: called after each record while the log is sound, with the state after it, what
            it adds to history.jsonl, and the list that findings go to.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        held: Callable[[], bool],
        on_record: Callable[[Record, AgentState, bytes, list[Finding]], None] | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._held = held
        self._on_record = on_record
        self.state: AgentState | None = None
        self.position = Position()
        self.records = 0
        self.opened = False
        self._creation_lost = False
        self.sound = True
        self._turns = TurnOrder()
        self._spawn_order = SpawnOrder()

    def run(self) -> Iterator[Finding]:
        """Yield the findings of the log, in its order. Raises `FileNotFoundError`."""
        try:
            stream = open_log(self._path)
        except (Invalid, NotRecorded) as error:
            self.sound = False
            yield from_refusal(error, self._name)
            return
        self.opened = True
        found: list[Finding] = []
        with stream:
            for line in read_log(stream, self._name):
                self._check_line(line, found)
                if found:
                    yield from found
                    found.clear()
        if self.records == 0:
            self.sound = False
            yield Finding("first-event", self._name, "the log holds no readable record")

    def _check_line(self, line: LogLine, found: list[Finding]) -> None:
        """Check a line and fold it; what is wrong with it goes to `found`."""
        for finding in line.findings:
            if finding.id == "torn-tail":
                if not self._held():
                    found.append(finding)
                return
            self.sound = False
            found.append(finding)
        self.position = line.after
        record = line.record
        if record is None:
            return
        self.records += 1
        broken = False
        if not line.findings or not _is_damaged(line):
            piece = JSONText(self._name, line.number, line.offset, line.data)
            before = len(found)
            value = as_written(record, line.data)
            if value is None:
                value = decode(piece, found, document=False)
            found += breaches("event", value, piece)
            broken = len(found) > before
            self._check_meaning(record, piece, found)
        self._fold(record, line, found, broken=broken)

    def _check_meaning(self, record: Record, piece: JSONText, found: list[Finding]) -> None:
        """Check a record against those before it, which a schema cannot."""
        state = self.state
        if state is None:
            if record.event != "session.created" and not self._creation_lost:
                self._creation_lost = True
                reason = f"the log begins with {record.event}, not with session.created"
                if self.records > 1:
                    reason = f"no usable session.created stands before {record.event}"
                found.append(piece.finding("first-event", reason, "/event"))
            return
        if record.event == "session.created":
            found.append(piece.finding("first-event", "a second session.created", "/event"))
        if record.session_id != state.session.id:
            reason = f"the first event names session {state.session.id}"
            found.append(piece.finding("session-id-differs", reason, "/session_id"))
        if record.event == "session.state":
            found += self._transition(record.data, state.session.state, piece)
        if not self.sound:
            return  # after a loss the order of the remaining records is not legal
        if breach := self._turns.breach(record):
            found.append(piece.finding("turn-order", *breach))
        if loose := self._spawn_order.breach(record):
            found.append(piece.finding(*loose))
        if late := breach_after_close(state, record.event, record.data):
            found.append(piece.finding("after-close", late, "/event"))

    def _transition(
        self, data: dict[str, Any], now: SessionState, piece: JSONText
    ) -> Iterator[Finding]:
        try:
            wanted = SessionState(data["to"])
        except (KeyError, ValueError):
            return  # a breach of the schema
        if data.get("from") != now.value:
            yield piece.finding("illegal-transition", f"the session was {now}", "/data/from")
        if wanted not in TRANSITIONS[now]:
            reason = f"a session cannot go {now} → {wanted}"
            yield piece.finding("illegal-transition", reason, "/data/to")

    def _fold(self, record: Record, line: LogLine, found: list[Finding], *, broken: bool) -> None:
        added = derived.history_line(record)
        try:
            if self.state is not None:
                apply(self.state, record, line.offset)
            elif record.event == "session.created":
                self.state = begin(record)
            else:
                self.sound = False
            if self.state is not None:
                self.state.position = line.after
                self.state.history_size += len(added)
        except BROKEN as error:
            self.sound = False
            if not broken:
                reason = f"a {record.event} record lacks or mistypes {error}"
                found.append(Finding("bad-data", self._name, reason, line.number, line.offset))
        if self.state is not None and self.sound and self._on_record is not None:
            self._on_record(record, self.state, added, found)


def _is_damaged(line: LogLine) -> bool:
    """Return whether the record of a line was salvaged from other bytes."""
    return any(finding.id not in ("seq-gap", "chain-break") for finding in line.findings)
