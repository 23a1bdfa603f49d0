"""One agent's folder: read without locks, appended to under `.lock` (decisions D3, D4, D10).

`read_agent` is what every read verb uses. `AgentWriter` is the only thing that writes into an
agent's folder once `publish_agent` has put it there.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.formats.directory import closed, creation, derived, documents, fold, journal, locks
from agentsdir.formats.directory import transcripts as raw
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.layout import MAX_DOCUMENT, open_plain, read_bytes
from agentsdir.formats.directory.log import Position, ends_at, flaw, open_log, read_log
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import (
    Invalid,
    NoSuchAgent,
    NotRecorded,
    Uncertain,
    UnsafePath,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.log import LogLine
    from agentsdir.formats.directory.points import Point
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source


_SMALL = 64 * 1024
"""Bytes of a state.json that is written after each record."""


class Reading(NamedTuple):
    """An agent as its log says now, and what was wrong with the part that was read.

    `torn` is whether the log ends in an unterminated line: a writer at work, or one that died.
    `rebuilt` is the creation where it was made up from descriptor.json, and no log has it.
    """

    state: AgentState
    findings: tuple[Finding, ...]
    torn: bool
    rebuilt: Record | None = None


def read_agent(
    paths: AgentPaths,
    *,
    whole: bool = False,
    known: AgentState | None = None,
    until: Point | None = None,
    follow: Callable[[AgentState, Record | None], None] | None = None,
) -> Reading:
    """Return an agent's state, from state.json and the tail of the log that it has not seen.

    Args:
        whole: fold the log from its first byte, so that all of it is checked.
        known: a state folded earlier in this process, to go on from instead of state.json.
        until: where in the log to stop, its end if not given; an earlier point needs `whole`.
        follow: called with the state after each complete line, and the line's record if it has one.

    Raises `NoSuchAgent` when the agent was removed meanwhile, `Invalid` when its log is missing or
    does not begin with who the agent is, and `UsageError` when there was no agent yet at `until`.
    """
    earlier = known or _cached(paths)
    state = None if whole else earlier
    findings: list[Finding] = []
    rebuilt: Record | None = None
    torn = False
    with open_agent(paths) as stream:
        if state is not None and not ends_at(stream, state.position):
            state = None
        start = state.position if state else Position()
        stream.seek(start.size)
        for line in read_log(stream, str(paths.log), start):
            if until is not None and until.is_passed_by(line):
                earlier = None  # what state.json remembers is beyond the point
                if state is None:
                    raise UsageError(f"agent {paths.id} was not there yet", hint=_first(line))
                break
            findings += line.findings
            if line.after.size == line.offset:
                torn = True
                continue
            if line.record is not None:
                if state is None and line.record.event != "session.created":
                    state, rebuilt = _begin_without(paths, line.record, findings)
                state = _take(state, line.record, findings, paths, line)
            start = line.after
            if state is not None:
                state.position = start
                if follow is not None:
                    follow(state, line.record)
            if until is not None and until.is_reached_by(line):
                earlier = None
                break
    if state is None:
        state, rebuilt = _begin_without(paths, None, findings)
        state.position = start
    lost = earlier.position.last_seq - state.position.last_seq if earlier else 0
    if earlier is not None and earlier.position.size > state.position.size and lost > 0:
        # state.json remembers more of the log than there is.
        message = f"acknowledged records lost at the end, which were read before: {lost}"
        findings.append(flaw("log-shorter", str(paths.log), None, None, None, message))
    return Reading(state, tuple(findings), torn, rebuilt)


def open_agent(paths: AgentPaths) -> BinaryIO:
    """Open an agent's log for reading. Raises `NoSuchAgent`, or `Invalid` when it is missing."""
    try:
        return open_log(paths.log)
    except FileNotFoundError:
        if not paths.folder.exists():
            raise NoSuchAgent(f"{paths.folder} is gone") from None
        raise Invalid(f"{paths.log} is missing; the agent cannot be known without it") from None


def _first(line: LogLine) -> str | None:
    return f"its log begins at {line.record.ts}" if line.record else None


def _begin_without(
    paths: AgentPaths, first: Record | None, findings: list[Finding]
) -> tuple[AgentState, Record | None]:
    """Begin the fold of a log whose session.created cannot be read."""
    found = creation.lost_creation(paths, first)
    message = "who the agent is was taken from descriptor.json; its options are lost"
    if found.logged:
        message = "who the agent is stands further down in the log"
    findings.append(flaw("creation-lost", str(paths.log), 1, 0, None, message))
    try:
        return fold.begin(found.record), None if found.logged else found.record
    except fold.BROKEN as error:
        raise Invalid(f"{paths.log} says nothing usable about who the agent is: {error}") from error


def without_live_tail(paths: AgentPaths, findings: tuple[Finding, ...]) -> list[Finding]:
    """Return `findings` less a torn tail that a living writer is in the middle of.

    For readers, who hold no lock. The tail is looked at again after the locks: a writer that let
    go of them in between has completed it.
    """
    return [f for f in findings if f.id != "torn-tail" or not _is_live(paths, f)]


def _is_live(paths: AgentPaths, tail: Finding) -> bool:
    if locks.is_held(paths.lock) or locks.is_held(paths.turn):
        return True
    end = (tail.offset or 0) + (tail.length or 0)
    with open_log(paths.log, end - 1) as stream:
        return os.fstat(stream.fileno()).st_size != end or stream.read(1) == b"\n"


def _cached(paths: AgentPaths) -> AgentState | None:
    try:
        return derived.state_from_bytes(read_bytes(paths.state, MAX_DOCUMENT))
    except (FileNotFoundError, Invalid, *fold.BROKEN):
        return None


def _take(
    state: AgentState | None,
    record: Record,
    findings: list[Finding],
    paths: AgentPaths,
    line: LogLine,
) -> AgentState | None:
    try:
        if state is None:
            if record.event != "session.created":
                return None
            state = fold.begin(record)
        else:
            fold.apply(state, record)
        state.history_size += len(derived.history_line(record))
    except fold.BROKEN as error:
        message = f"a {record.event} record lacks or mistypes {error}"
        findings.append(
            flaw("bad-data", str(paths.log), line.number, line.offset, line.length, message)
        )
    return state


@contextmanager
def write_agent(
    paths: AgentPaths,
    *,
    disk: Disk | None = None,
    whole: bool = False,
    known: AgentState | None = None,
    patient: bool = False,
) -> Iterator[AgentWriter]:
    """Hold an agent's `.lock` and hand out its writer; the state is read anew under the lock.

    Args:
        disk: how this command makes its writes durable; every event by default.
        patient: wait for `.lock` for ever, as for what would be lost otherwise.

    Raises `Busy` where another process keeps `.lock` for long (docs/behaviour.md, "Waiting"), what
    `read_agent` raises (`whole` and `known` are its arguments), `Uncertain` once the
    disk would not confirm this agent, and `Invalid` (kind ``log-shorter``) when acknowledged
    records are gone: to write on would hide it. `restore`, which folds the whole log, says what is
    lost and goes on.
    """
    disk = disk or Disk()
    disk.check(paths.folder)
    with locks.hold_undisturbed(
        paths.lock, what=f"the log of agent {paths.id}", patient=patient
    ) as held:
        try:
            reading = read_agent(paths, whole=whole, known=known)
            ended = reading.torn and journal.end_whole_tail(paths.log, reading.state.position, disk)
            if ended:
                reading = read_agent(paths, whole=whole, known=known)
            if not whole:
                _refuse_lossy(paths, reading)
            yield AgentWriter(paths, reading, held, disk, ended_tail=ended)
        except Uncertain as error:
            disk.doubt(paths.folder, error)
            raise


def _refuse_lossy(paths: AgentPaths, reading: Reading) -> None:
    """Leave to `restore` what has to be said in the log before anything else is."""
    for found in reading.findings:
        if found.id == "log-shorter":
            raise Invalid(
                f"{paths.log}: {found.message}",
                hint=f"put the log back from a copy, or `agentsdir restore {paths.id}` goes on",
                kind="log-shorter",
            )
    if reading.rebuilt is not None:
        raise Invalid(
            f"{paths.log} does not begin with a readable session.created record",
            hint=f"`agentsdir restore {paths.id}` makes it again from descriptor.json",
            kind="creation-lost",
        )


class AgentWriter:
    """Appends events to one agent's log and keeps its derived files; valid inside `write_agent`.

    `ended_tail` tells whether a record that lacked nothing but its LF was given it on the way in.
    """

    def __init__(
        self,
        paths: AgentPaths,
        reading: Reading,
        held: locks.Held,
        disk: Disk,
        *,
        ended_tail: bool = False,
    ) -> None:
        self.paths = paths
        self.reading = reading
        self.state = reading.state
        self.ended_tail = ended_tail
        self._held = held
        self._disk = disk

    def append(self, event: str, data: dict[str, Any], ts: str) -> Record:
        """Append one event; when this returns, it is durable and the derived files follow it.

        Raises what `journal.append_record` and `closed.check_event` raise, and `Busy` when the lock
        file was removed. A derived file that cannot be written is stale, which readers see.
        """
        self._held.check()
        if event == "session.state" or self.state.session.state is SessionState.TERMINATED:
            closed.check_event(self.state, event, data)
        record, position = journal.append_record(
            self.paths.log, self.state.position, event, data, ts, self.state.session.id, self._disk
        )
        history_before, log_before = self.state.history_size, self.state.position.size
        line = derived.history_line(record)
        fold.apply(self.state, record)
        self.state.position = position
        self.state.history_size += len(line)
        with suppress(NotRecorded):
            self._follow(event, line, history_before)
            # Blocks come thick and fast; a reader folds them from the tail of the log.
            if event != "block" and self._is_due(log_before):
                self._follow_with("state.json")
        return record

    def store(
        self, native: str, role: str, source: Source, *, rewrite: bool = False
    ) -> raw.Synced | None:
        """Bring a stored transcript up to date (arguments and errors of `transcripts.store`).

        One that has become something else to its session is told again.
        """
        self._held.check()
        known = self.state.transcripts.get(native)
        recorded = known["size"] if known and known["role"] == role else None
        return raw.store(self.paths, native, role, source, recorded, self._disk, rewrite=rewrite)

    def finish_rewrites(self) -> list[str]:
        """Put rewritten transcripts in their places; return their names. Errors of the disk."""
        self._held.check()
        if not raw.unfinished_rewrites(self.paths, self.state.transcripts):
            return []
        with open_log(self.paths.log) as log:
            # Else a power cut could leave a copy that the log does not know.
            self._disk.sync(log.fileno(), self.paths.log)
        return raw.finish_rewrites(self.paths, self.state.transcripts, self._disk)

    def _follow(self, event: str, line: bytes, history_before: int) -> None:
        """Bring the derived files up to date with the event that was just appended."""
        if line:
            self._extend_history(line, history_before)
        if event == "session.state":
            self._follow_with("session.json")
        if event == "transcript.synced":
            self._follow_with(derived.MANIFEST)

    def _is_due(self, log_before: int) -> bool:
        """Tell whether state.json is written after a record; a large one is not after each.

        Many waiting messages make it large: it is written once in as many bytes of log as it has.
        """
        try:
            size = self.paths.state.lstat().st_size
        except OSError:
            return True
        if size <= _SMALL:
            return True
        step = 1 << size.bit_length()
        return log_before // step != self.state.position.size // step

    def _follow_with(self, name: str) -> None:
        if self._disk.waits:
            # What is derived must not outlive, in a power cut, the events that it tells of.
            self._disk.afterwards(self.paths.folder, name, partial(_catch_up, self.paths))
        else:
            self.replace(name, self._disk if name == "session.json" else None)

    def replace(self, name: str, disk: Disk | None) -> None:
        """Write a derived document as the state says it is. Raises as `replace_file` does."""
        path = place_of(self.paths, name)
        documents.make_folder(path.parent, self._disk)
        documents.replace_file(path, derived.derived_document(self.state, name), disk)

    def _extend_history(self, line: bytes, size_before: int) -> None:
        try:
            descriptor = open_plain(self.paths.history, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            self._rebuild_history()
            return
        with os.fdopen(descriptor, "ab", buffering=0) as stream, suppress(OSError):
            if os.fstat(descriptor).st_size == size_before and stream.write(line) == len(line):
                return
        self._rebuild_history()

    def _rebuild_history(self) -> None:
        documents.replace_file(self.paths.history, history_bytes(self.paths), None)

    def rebuild(self, name: str) -> None:
        """Write one derived file anew; the state must come from a whole fold, as in `restore`."""
        self._held.check()
        path = place_of(self.paths, name)
        documents.make_folder(path.parent, self._disk)
        history = name == self.paths.history.name
        made = derived.derived_documents(self.state)
        data = history_bytes(self.paths) if history else made[name]
        documents.replace_file(path, data, self._disk)

    def remove(self, leftover: Path) -> None:
        """Remove what a dead writer left in the folder. Raises `NotRecorded`."""
        self._held.check()
        documents.remove(leftover)


def _catch_up(paths: AgentPaths, names: list[str]) -> None:
    """Write derived documents of events that have become durable; the events stand anyway."""
    with suppress(NotRecorded), write_agent(paths) as writer:
        for name in names:
            writer.replace(name, None)


def place_of(paths: AgentPaths, name: str) -> Path:
    """Return where a derived file stands. Raises `UnsafePath` for a link on the way to it."""
    path = paths.folder / name
    if path.parent != paths.folder and path.parent.is_symlink():
        raise UnsafePath(f"{path.parent} is a link, which could lead out of the agent's folder")
    return path


def history_bytes(paths: AgentPaths) -> bytes:
    """Return history.jsonl as the log says it must be."""
    with open_log(paths.log) as stream:
        lines = read_log(stream, str(paths.log))
        return b"".join(derived.history_line(line.record) for line in lines if line.record)
