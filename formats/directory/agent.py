"""One agent's folder: read without locks, appended to under `.lock` (decisions D3, D4, D10).

`read_agent` is what every read verb uses. `AgentWriter` is the only thing that writes into an
agent's folder once `publish_agent` has put it there.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from agentsdir.formats.directory import derived, documents, fold, journal, locks
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import (
    DIRECTORY_MODE,
    TEMPORARY,
    AgentPaths,
    Layout,
    open_plain,
    read_bytes,
    read_json,
)
from agentsdir.formats.directory.log import Position, ends_at, open_log, read_log
from agentsdir.formats.directory.records import Record
from agentsdir.formats.errors import Invalid, NotRecorded, Uncertain
from agentsdir.formats.reading.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST = "transcripts/manifest.json"
_BROKEN = (KeyError, TypeError, ValueError, AttributeError)


class Reading(NamedTuple):
    """An agent as its log says now, and what was wrong with the part that was read.

    `torn` is whether the log ends in an unterminated line: a writer at work, or one that died.
    """

    state: AgentState
    findings: tuple[Finding, ...]
    torn: bool


def read_agent(
    paths: AgentPaths, *, whole: bool = False, known: AgentState | None = None
) -> Reading:
    """Return an agent's state, from state.json and the tail of the log that it has not seen.

    Args:
        whole: fold the log from its first byte, so that all of it is checked.
        known: a state folded earlier in this process, to go on from instead of state.json.

    Raises `Invalid` when the log is missing or does not begin with who the agent is.
    """
    earlier = known or _cached(paths)
    state = None if whole else earlier
    findings: list[Finding] = []
    torn = False
    try:
        stream = open_log(paths.log)
    except FileNotFoundError:
        raise Invalid(f"{paths.log} is missing; the agent cannot be known without it") from None
    with stream:
        if state is not None and not ends_at(stream, state.position):
            state = None
        stream.seek(state.position.size if state else 0)
        for line in read_log(stream, str(paths.log), state.position if state else None):
            findings += line.findings
            if not line.length or line.after == (state.position if state else Position()):
                torn = True
                continue
            if line.record is not None:
                state = _take(state, line.record, findings, paths, line.number, line.offset)
            if state is not None:
                state.position = line.after
    if state is None:
        raise Invalid(
            f"{paths.log} does not begin with a readable session.created record",
            hint="`agentsdir validate` shows what stands there",
        )
    lost = earlier.position.last_seq - state.position.last_seq if earlier else 0
    if earlier is not None and earlier.position.size > state.position.size and lost > 0:
        # state.json remembers more of the log than there is.
        message = f"acknowledged records lost at the end, which were read before: {lost}"
        findings.append(Finding("log-shorter", str(paths.log), None, None, None, message))
    return Reading(state, tuple(findings), torn)


def _cached(paths: AgentPaths) -> AgentState | None:
    try:
        return derived.state_from_document(read_json(paths.state))
    except (FileNotFoundError, Invalid, *_BROKEN):
        return None


def _take(
    state: AgentState | None,
    record: Record,
    findings: list[Finding],
    paths: AgentPaths,
    number: int,
    offset: int,
) -> AgentState | None:
    try:
        if state is None:
            if record.event != "session.created":
                return None
            state = fold.begin(record)
        else:
            fold.apply(state, record)
        state.history_size += len(derived.history_line(record))
    except _BROKEN as error:
        message = f"a {record.event} record lacks or mistypes {error}"
        findings.append(Finding("bad-data", str(paths.log), number, offset, None, message))
    return state


def publish_agent(
    layout: Layout, agent_id: str, data: dict[str, Any], ts: str, session_id: str
) -> AgentPaths:
    """Make an agent's folder whole and let it appear in one rename.

    Args:
        data: the data of its `session.created` record.

    Raises `NotRecorded` when nothing appeared, `Invalid` for data that would not round-trip.
    """
    documents.make_folder(layout.agents)
    temporary = layout.agents / f"{TEMPORARY}{agent_id}-{os.urandom(6).hex()}"
    paths = AgentPaths(layout.agents / agent_id, agent_id)
    try:
        temporary.mkdir(mode=DIRECTORY_MODE)
        _fill(AgentPaths(temporary, agent_id), data, ts, session_id)
        documents.sync_folder(temporary)
        temporary.rename(paths.folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise NotRecorded(f"cannot make {paths.folder}: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    documents.sync_folder(layout.agents)
    return paths


def _fill(paths: AgentPaths, data: dict[str, Any], ts: str, session_id: str) -> None:
    documents.write_new(paths.log, b"", durable=False)
    record, position = journal.append_record(
        paths.log, Position(), "session.created", data, ts, session_id
    )
    state = fold.begin(record)
    history = derived.history_line(record)
    state.position, state.history_size = position, len(history)
    documents.write_new(paths.history, history, durable=True)
    for path, document in _documents(paths, state).items():
        documents.write_new(paths.folder / path, document, durable=True)


def _documents(paths: AgentPaths, state: AgentState) -> dict[str, bytes]:
    made = {
        paths.descriptor.name: derived.encode_document(state.descriptor),
        paths.session.name: derived.encode_document(derived.session_document(state.session)),
        paths.state.name: derived.encode_document(derived.state_document(state)),
    }
    if state.transcripts:
        made[MANIFEST] = derived.encode_document(derived.manifest_document(state))
    return made


@contextmanager
def write_agent(
    paths: AgentPaths, *, whole: bool = False, known: AgentState | None = None
) -> Iterator[AgentWriter]:
    """Hold an agent's `.lock` and hand out its writer; the state is read anew under the lock.

    Raises what `read_agent` raises (`whole` and `known` are its arguments), and `Invalid` (kind
    ``log-shorter``) when acknowledged records are gone: to write on would hide it. `restore`,
    which folds the whole log, says what is lost and goes on.
    """
    with locks.hold_undisturbed(paths.lock, what=f"agent {paths.id}"):
        reading = read_agent(paths, whole=whole, known=known)
        if reading.torn and journal.end_whole_tail(paths.log, reading.state.position):
            reading = read_agent(paths, whole=whole, known=known)
        if not whole:
            _refuse_shortened(paths, reading)
        yield AgentWriter(paths, reading)


def _refuse_shortened(paths: AgentPaths, reading: Reading) -> None:
    for finding in reading.findings:
        if finding.id == "log-shorter":
            raise Invalid(
                f"{paths.log}: {finding.message}",
                hint=f"put the log back from a copy, or `agentsdir restore {paths.id}` goes on",
                kind="log-shorter",
            )


class AgentWriter:
    """Appends events to one agent's log and keeps its derived files; valid inside `write_agent`."""

    def __init__(self, paths: AgentPaths, reading: Reading) -> None:
        self.paths = paths
        self.state = reading.state
        self.findings = reading.findings
        self.torn = reading.torn

    def append(self, event: str, data: dict[str, Any], ts: str) -> Record:
        """Append one event; when this returns, it is durable and the derived files follow it.

        Raises what `journal.append_record` raises. A derived file that cannot be written does not
        undo the event: it is stale, which readers see, and the next writer catches up.
        """
        record, position = journal.append_record(
            self.paths.log, self.state.position, event, data, ts, self.state.session.id
        )
        history_before = self.state.history_size
        line = derived.history_line(record)
        fold.apply(self.state, record)
        self.state.position = position
        self.state.history_size += len(line)
        self.torn = False
        with suppress(NotRecorded, Uncertain):
            self._follow(event, line, history_before)
        return record

    def _follow(self, event: str, line: bytes, history_before: int) -> None:
        """Bring the derived files up to date with the event that was just appended."""
        if line:
            self._extend_history(line, history_before)
        if event == "session.state":
            self._replace(self.paths.session.name, durable=True)
        if event == "transcript.synced":
            self._replace(MANIFEST, durable=False)
        if event != "block":
            # Blocks come thick and fast; a reader folds them from the tail of the log.
            self._replace(self.paths.state.name, durable=False)

    def _replace(self, name: str, *, durable: bool) -> None:
        path = self.paths.folder / name
        documents.make_folder(path.parent)
        data = _documents(self.paths, self.state)[name]
        documents.replace_file(path, data, durable=durable)

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
        documents.replace_file(self.paths.history, history_bytes(self.paths), durable=False)

    def rebuild(self) -> list[str]:
        """Write every derived file that is not what the log says; return their names.

        The state must come from a whole fold: `restore` is who calls this.
        """
        wanted = _documents(self.paths, self.state)
        wanted[self.paths.history.name] = history_bytes(self.paths)
        written = []
        for name, data in wanted.items():
            path = self.paths.folder / name
            try:
                current = read_bytes(path)
            except FileNotFoundError:
                current = None
            if current != data:
                documents.make_folder(path.parent)
                documents.replace_file(path, data, durable=True)
                written.append(name)
        return written


def history_bytes(paths: AgentPaths) -> bytes:
    """Return history.jsonl as the log says it must be."""
    with open_log(paths.log) as stream:
        lines = read_log(stream, str(paths.log))
        return b"".join(_history(line.record) for line in lines if line.record is not None)


def _history(record: Record) -> bytes:
    try:
        return derived.history_line(record)
    except _BROKEN:
        return b""
