"""One events.jsonl, read once: lines, order, schemas, identity, transitions; folded on the way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agentsdir.engine.validation.loose_ends import LooseEnds
from agentsdir.engine.validation.problems import Problem, from_finding, from_refusal
from agentsdir.engine.validation.turns import TurnCheck
from agentsdir.engine.validation.values import Piece, breaches, decode
from agentsdir.formats.directory import closed, derived, fold
from agentsdir.formats.directory.log import Position, open_log, read_log
from agentsdir.formats.directory.states import TRANSITIONS, SessionState
from agentsdir.formats.errors import Invalid, NotRecorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.directory.log import LogLine
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState


class LogCheck:
    """Checks one log. When `run` is through, `state` is the fold of its readable records.

    `sound` is False from the first line on that cannot be read, or is not in order: what the fold
    says after that is not what a writer knew, so nothing is compared with it.

    Args:
        name: what problems call the file.
        held: tells whether a living writer may be in the middle of the last line.
        follow: called after each line that has a record, with the record, while all is sound.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        held: Callable[[], bool],
        follow: Callable[[Record, LogCheck], Iterator[Problem]] | None = None,
    ) -> None:
        self._path = path
        self._name = name
        self._held = held
        self._follow = follow
        self.state: AgentState | None = None
        self.position = Position()
        self.records = 0
        self.sound = True
        self._turns = TurnCheck()
        self._loose_ends = LooseEnds()

    def run(self) -> Iterator[Problem]:
        """Yield the problems of the log, in its order. Raises `FileNotFoundError`."""
        try:
            stream = open_log(self._path)
        except (Invalid, NotRecorded) as error:
            self.sound = False
            yield from_refusal(error, self._name)
            return
        with stream:
            for line in read_log(stream, self._name):
                yield from self._line(line, stream.fileno())
        if self.records == 0:
            self.sound = False
            yield Problem("first-event", self._name, "the log holds no readable record")

    def _line(self, line: LogLine, descriptor: int) -> Iterator[Problem]:
        for finding in line.findings:
            if finding.id == "torn-tail":
                if not self._held():
                    yield from_finding(finding)
                return
            self.sound = False
            yield from_finding(finding)
        self.position = line.after
        if line.record is None:
            return
        self.records += 1
        broken = False
        if not line.findings or not _is_damaged(line):
            data = os.pread(descriptor, line.length, line.offset)
            piece = Piece(self._name, line.number, line.offset, data)
            problems: list[Problem] = []
            value = decode(piece, problems, document=False)
            problems += breaches("event", value, piece)
            broken = bool(problems)
            yield from problems
            yield from self._meaning(line.record, piece)
        yield from self._fold(line, broken=broken)

    def _meaning(self, record: Record, piece: Piece) -> Iterator[Problem]:
        """Check what a schema cannot say: the record among those before it."""
        state = self.state
        if state is None:
            if record.event != "session.created" and self.records == 1:
                reason = f"the log begins with {record.event}, not with session.created"
                yield piece.problem("first-event", reason, "/event")
            return
        if record.event == "session.created":
            yield piece.problem("first-event", "a second session.created", "/event")
        if record.session_id != state.session.id:
            reason = f"the first event names session {state.session.id}"
            yield piece.problem("session-id-differs", reason, "/session_id")
        if record.event == "session.state":
            yield from self._transition(record.data, state.session.state, piece)
        if not self.sound:
            return  # after a loss the records that are left cannot follow each other
        if breach := self._turns.breach(record):
            yield piece.problem("turn-order", *breach)
        if loose := self._loose_ends.breach(record):
            yield piece.problem(*loose)
        if late := closed.breach(state, record.event, record.data):
            yield piece.problem("after-close", late, "/event")

    def _transition(
        self, data: dict[str, Any], now: SessionState, piece: Piece
    ) -> Iterator[Problem]:
        try:
            wanted = SessionState(data["to"])
        except (KeyError, ValueError):
            return  # the schema has said so
        if data.get("from") != now.value:
            yield piece.problem("illegal-transition", f"the session was {now}", "/data/from")
        if wanted not in TRANSITIONS[now]:
            reason = f"a session cannot go {now} → {wanted}"
            yield piece.problem("illegal-transition", reason, "/data/to")

    def _fold(self, line: LogLine, *, broken: bool) -> Iterator[Problem]:
        record = line.record
        assert record is not None
        try:
            if self.state is not None:
                fold.apply(self.state, record)
            elif record.event == "session.created":
                self.state = fold.begin(record)
            else:
                self.sound = False
            if self.state is not None:
                self.state.position = line.after
                self.state.history_size += len(derived.history_line(record))
        except fold.BROKEN as error:
            self.sound = False
            if not broken:
                reason = f"a {record.event} record lacks or mistypes {error}"
                yield Problem("bad-data", self._name, reason, line.number, line.offset)
        if self.state is not None and self.sound and self._follow is not None:
            yield from self._follow(record, self)


def _is_damaged(line: LogLine) -> bool:
    """Tell whether a line's record had to be taken out of other bytes."""
    return any(finding.id not in ("seq-gap", "chain-break") for finding in line.findings)
