"""One agent's folder: read without locks, appended to under `.lock`, moved in one rename."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

from agentsdir.formats import ids
from agentsdir.formats.errors import (
    AgentsdirError,
    Invalid,
    NoSuchAgent,
    NotRecorded,
    Uncertain,
    UnsafePath,
    UsageError,
)
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import derived, files, locks, log, stamps, transcripts
from agentsdir.formats.store.events import (
    BROKEN,
    apply,
    begin,
    check_event,
    is_creation,
    message_of,
)
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import (
    DIRECTORY_MODE,
    FILE_MODE,
    MAX_DOCUMENT,
    TEMPORARY,
    AgentPaths,
    open_plain,
    open_sized,
    read_bytes,
    read_json,
)
from agentsdir.formats.store.log import (
    OpenLog,
    Position,
    Record,
    end_whole_tail,
    ends_at,
    line_hash,
    open_log,
    read_log,
    read_records,
)
from agentsdir.formats.store.state import SessionState, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.formats.source import Source
    from agentsdir.formats.store.layout import Layout
    from agentsdir.formats.store.log import Cursor, LogLine
    from agentsdir.formats.store.state import AgentState, Run


# Reading without locks, appending under `.lock` (decisions D3, D4, D10). Only `AgentWriter` writes
# into an agent's folder once `create_agent_folder` has put it there.

_SMALL = 64 * 1024
"""Bytes of a state.json that is written at each opportunity."""
_TAIL = 4 * 1024
"""Bytes at the end of a log, as most records fit in."""
_DOCUMENTS_OF = {
    "session.state": ("session.json", "state.json"),
    "transcript.synced": (derived.MANIFEST,),
}
"""The documents that are written at once after an event of a kind."""


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
    until: Cursor | None = None,
    follow: Callable[[AgentState, Record | None], None] | None = None,
    history: Callable[[bytes], None] | None = None,
) -> Reading:
    """Return an agent's state, from state.json and the tail of the log that it has not seen.

    Args:
        whole: fold the log from its first byte, so that all of it is checked.
        known: a state folded earlier in this process, to go on from instead of state.json.
        until: where in the log to stop, its end if not given; an earlier point needs `whole`.
        follow: called with the state after each complete line, and the line's record if it has one.
        history: called with each line that the records read add to history.jsonl.

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
                entry = derived.history_line(line.record)
                if history is not None and entry:
                    history(entry)
                state = _take(state, line.record, len(entry), findings, paths, line)
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
        findings.append(Finding("log-shorter", str(paths.log), message))
    return Reading(state, tuple(findings), torn, rebuilt)


def all_synced(paths: AgentPaths, state: AgentState) -> dict[str, dict[str, Any]]:
    """Return the entries of all stored transcripts that the log names, of every native session.

    They stand in manifest.json, of which no state.json is ahead; where that is missing or of
    another agent, the log is folded from its start. Raises what `read_agent` raises.
    """
    if not state.has_all_synced:
        try:
            data = read_bytes(place_of(paths, derived.MANIFEST), MAX_DOCUMENT)
            known = derived.synced_from_manifest(data, state)
        except (FileNotFoundError, Invalid):
            known = None
        if known is None:
            known = read_agent(paths, whole=True).state.synced
        state.synced = {**known, **state.synced}
        state.has_all_synced = True
    return state.synced


def load_sound(paths: AgentPaths, state: AgentState) -> dict[str, Source]:
    """Return what `transcripts.load_sound` does, of the agent's present native session."""
    return transcripts.load_sound(
        paths, state.transcripts, state.native["id"], partial(all_synced, paths, state)
    )


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
    found = lost_creation(paths, first)
    message = "who the agent is was taken from descriptor.json; its options are lost"
    if found.logged:
        message = "who the agent is stands further down in the log"
    findings.append(Finding("creation-lost", str(paths.log), message, 1, 0))
    try:
        return begin(found.record), None if found.logged else found.record
    except BROKEN as error:
        raise Invalid(f"{paths.log} says nothing usable about who the agent is: {error}") from error


def without_live_tail(paths: AgentPaths, findings: tuple[Finding, ...]) -> list[Finding]:
    """Return `findings` less a torn tail that a living writer is in the middle of.

    For readers, which hold no lock. The tail is looked at again after the locks: a writer that
    released them in between has completed it.
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
        data = read_bytes(paths.state, MAX_DOCUMENT)
        return derived.state_from_bytes(data, partial(_read_run, paths))
    except (FileNotFoundError, Invalid, *BROKEN):
        return None


def _read_run(paths: AgentPaths, run: Run) -> Iterator[Waiting]:
    """Yield the messages of a run, as far as the log has them (errors of `open_agent`)."""
    number = run.first
    with open_agent(paths) as stream:
        stream.seek(run.offset)
        for line in read_log(stream, str(paths.log), Position(run.offset)):
            if number == run.first + run.messages:
                return
            if line.record is not None and (message := message_of(line.record)) is not None:
                yield Waiting(message, number, line.offset)
                number += 1


def current_document(paths: AgentPaths) -> dict[str, Any] | None:
    """Return what state.json says where it is level with the log; None where that must be folded.

    It equals ``read_agent(paths).state.to_json()`` with its digest, and there are no findings. The
    digest is checked, and that the log has its size and its last line. Raises `MemoryError`.
    """
    # Thousands of agents are listed: no `Path` and no buffered stream for each of their files.
    folder = paths.place
    try:
        document = derived.document_from_bytes(read_bytes(f"{folder}/state.json", MAX_DOCUMENT))
        return document if _is_level(f"{folder}/events.jsonl", document) else None
    except (FileNotFoundError, Invalid, OSError, *BROKEN):
        return None


def _is_level(path: str, document: dict[str, Any]) -> bool:
    """Tell whether a log ends with the line that a state.json speaks of."""
    descriptor, size = open_sized(path)
    try:
        if size != document["logSize"]:
            return False
        tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    finally:
        os.close(descriptor)
    # A longer line, and one of another form, are left to the fold.
    line = tail[tail.rfind(b"\n", 0, -1) + 1 :]
    start = b'{"seq":%d,' % document["lastSeq"]
    return line.startswith(start) and line[-1:] == b"\n" and line_hash(line) == document["lastHash"]


def _take(
    state: AgentState | None,
    record: Record,
    history_size: int,
    findings: list[Finding],
    paths: AgentPaths,
    line: LogLine,
) -> AgentState | None:
    """Fold a record into the state; `history_size` bytes are what it adds to history.jsonl."""
    try:
        if state is None:
            if record.event != "session.created":
                return None
            state = begin(record)
        else:
            apply(state, record, line.offset)
        state.history_size += history_size
    except BROKEN as error:
        message = f"a {record.event} record lacks or mistypes {error}"
        findings.append(
            Finding("bad-data", str(paths.log), message, line.number, line.offset, line.length)
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
            ended = reading.torn and end_whole_tail(paths.log, reading.state.position, disk)
            if ended:
                reading = read_agent(paths, whole=whole, known=known)
            if not whole:
                _refuse_lost_records(paths, reading)
            writer = AgentWriter(paths, reading, held, disk, ended_tail=ended)
            try:
                yield writer
            except (NotRecorded, Uncertain):
                raise  # where the disk refuses, nothing more is written
            except BaseException:
                writer.leave()
                raise
            else:
                writer.leave()
            finally:
                writer.close()
        except Uncertain as error:
            disk.doubt(paths.folder, error)
            raise


def _refuse_lost_records(paths: AgentPaths, reading: Reading) -> None:
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
        self._behind: dict[str, None] = {}
        self._began_at = self.state.position.size
        self._log: OpenLog | None = None
        self._was_in_order = False
        self._history: int | None = None

    def append(self, event: str, data: dict[str, Any], ts: str) -> Record:
        """Append one event; when this returns, it is durable and the derived files follow it.

        Raises what `log.append_record` and `events.check_event` raise, and `Busy` when the lock
        file was removed. A derived file that cannot be written is stale, which readers see.
        """
        self._held.check()
        if event == "session.state" or self.state.session.state is SessionState.TERMINATED:
            check_event(self.state, event, data)
        state = self.state
        if self._log is None:
            # What other processes append meanwhile is folded, or their own command keeps it.
            began = self._disk.afterwards(self.paths.folder)
            self._was_in_order = began is not None or stamps.is_untouched(self.paths)
            self._log = OpenLog(self.paths.log, self._disk)
        record, offset, position = self._log.append(
            state.position, event, data, ts, state.session.id
        )
        history_before = state.history_size
        line = derived.history_line(record)
        apply(state, record, offset)
        state.position = position
        state.history_size += len(line)
        self._behind["state.json"] = None
        try:
            if line:
                self._extend_history(line, history_before)
            if event in _DOCUMENTS_OF:
                self._follow(_DOCUMENTS_OF[event])
            elif event == "agent.set" and "model" in data["values"]:
                self._follow(("session.json",))
        except NotRecorded:
            pass  # it stays behind the log
        return record

    def close(self) -> None:
        """Close the files that appending has opened."""
        if self._log is not None:
            self._log.close()
        if self._history is not None:
            os.close(self._history)

    def store(
        self, native: str, role: str, source: Source, *, rewrite: bool = False
    ) -> transcripts.Synced | None:
        """Bring a stored transcript up to date (arguments and errors of `transcripts.store`).

        One whose role in its session has changed is stored anew.
        """
        self._held.check()
        known = self.state.transcripts.get(native)
        known = known if known and known["role"] == role else None
        return transcripts.store(
            self.paths, native, role, source, known, self._disk, rewrite=rewrite
        )

    def finish_rewrites(self) -> list[str]:
        """Put rewritten transcripts in their places; return their names. Errors of the disk."""
        self._held.check()
        synced = all_synced(self.paths, self.state)
        if not transcripts.unfinished_rewrites(self.paths, synced):
            return []
        with open_log(self.paths.log) as log:
            # Else a power cut could leave a copy that the log does not know.
            self._disk.sync(log.fileno(), self.paths.log)
        return transcripts.finish_rewrites(self.paths, synced, self._disk)

    def _follow(self, names: Iterable[str]) -> None:
        """Bring the documents up to date that the event changes which was just appended."""
        for name in names:
            self._behind[name] = None
            if not self._disk.waits:
                self.replace(name, self._disk if name == "session.json" else None)

    def leave(self) -> None:
        """Write the documents that are behind the log, now or when the command ends."""
        if self._log is None:  # nothing was appended
            return
        if not self._disk.is_in_command:
            with suppress(NotRecorded):
                self.write_documents(self._behind, self._began_at, in_order=self._was_in_order)
            return
        kept = self._disk.afterwards(self.paths.folder)
        if not isinstance(kept, _Behind):
            kept = _Behind(self.paths, self.state, self._began_at, in_order=self._was_in_order)
            self._disk.call_afterwards(self.paths.folder, kept)
        kept.state = self.state
        kept.names.update(self._behind)

    def write_documents(self, names: Iterable[str], since: int, *, in_order: bool) -> None:
        """Write derived documents, the state last. Raises as `replace_file` does.

        Args:
            names: of the documents that are behind the log.
            since: the size in bytes that the log had when the first of them fell behind.
            in_order: whether the agent was left in order before that. Damage in a part of the log
                that this command has not read must not become hidden.
        """
        is_level = True
        for name in sorted(names, key=lambda name: name == "state.json"):
            if name == "state.json" and not self._is_due(since):
                is_level = False
            else:
                self.replace(name, None)
        if in_order and is_level:
            self.leave_stamp()

    def leave_stamp(self) -> None:
        """Keep how the files look: each is what the log says (`stamps.is_untouched`)."""
        stamps.leave(self.paths, self.state.position.size, self.state.history_size)

    def _is_due(self, since: int) -> bool:
        """Tell whether state.json is to be written; a large one is not at each opportunity.

        Long messages and many children make it large: it is written once in a quarter as many bytes
        of log as it has. So readers fold few records after it, and each record costs a bounded
        writing.
        """
        try:
            size = self.paths.state.lstat().st_size
        except OSError:
            return True
        if size <= _SMALL:
            return True
        step = 1 << (size.bit_length() - 2)
        return since // step != self.state.position.size // step

    def replace(self, name: str, disk: Disk | None) -> None:
        """Write a derived document as the state says it is. Raises as `replace_file` does.

        No state.json is ahead of manifest.json, which has the entries that it leaves out.
        """
        if name == "state.json" and self.state.is_unlisted:
            self._list_transcripts()
        if name == derived.MANIFEST:
            all_synced(self.paths, self.state)
        path = place_of(self.paths, name)
        files.make_folder(path.parent, self._disk)
        files.replace_file(path, derived.derived_document(self.state, name), disk)
        self._behind.pop(name, None)
        if name == derived.MANIFEST:
            self.state.is_unlisted = False

    def _list_transcripts(self) -> None:
        """Write manifest.json where another writer, or this one, has not."""
        all_synced(self.paths, self.state)
        wanted = derived.derived_document(self.state, derived.MANIFEST)
        try:
            listed = read_bytes(place_of(self.paths, derived.MANIFEST), len(wanted) + 1) == wanted
        except (FileNotFoundError, Invalid):
            listed = False
        if not listed:
            self.replace(derived.MANIFEST, None)
        self.state.is_unlisted = False

    def _extend_history(self, line: bytes, size_before: int) -> None:
        try:
            if self._history is None:
                self._history = open_plain(self.paths.history, os.O_WRONLY | os.O_APPEND)
            if os.lseek(self._history, 0, os.SEEK_END) == size_before:
                with suppress(OSError):
                    if os.write(self._history, line) == len(line):
                        return
        except FileNotFoundError:
            pass
        self._rebuild_history()

    def _rebuild_history(self) -> None:
        files.replace_pieces(self.paths.history, history_pieces(self.paths), None)
        if self._history is not None:  # of the file that was replaced
            os.close(self._history)
            self._history = None

    def rebuild(self, name: str) -> None:
        """Write one derived file anew; the state must come from a whole fold, as in `restore`."""
        self._held.check()
        path = place_of(self.paths, name)
        files.make_folder(path.parent, self._disk)
        if name == self.paths.history.name:
            files.replace_pieces(path, history_pieces(self.paths), self._disk)
        else:
            files.replace_file(path, derived.derived_document(self.state, name), self._disk)

    def remove(self, leftover: Path) -> None:
        """Remove what a dead writer left in the folder. Raises `NotRecorded`."""
        self._held.check()
        files.remove(leftover)


class _Behind:
    """The derived documents of one agent that are behind its log until the command ends.

    Args:
        state: of the last writer, and so what is known of the log.
        since: the size in bytes that the log had when the first of them fell behind.
        in_order: whether the agent was left in order before that.
    """

    def __init__(self, paths: AgentPaths, state: AgentState, since: int, *, in_order: bool) -> None:
        self._paths = paths
        self._since = since
        self._in_order = in_order
        self.state = state
        self.names: dict[str, None] = {}

    def __call__(self) -> None:
        """Write them. The events stand anyway: one that cannot be written stays behind."""
        with (
            suppress(AgentsdirError, OSError),
            write_agent(self._paths, known=self.state) as writer,
        ):
            writer.write_documents(self.names, self._since, in_order=self._in_order)


def place_of(paths: AgentPaths, name: str) -> Path:
    """Return where a derived file stands. Raises `UnsafePath` for a link on the way to it."""
    path = paths.folder / name
    if path.parent != paths.folder and path.parent.is_symlink():
        raise UnsafePath(f"{path.parent} is a link, which could lead out of the agent's folder")
    return path


def history_pieces(paths: AgentPaths, end: int | None = None) -> Iterator[bytes]:
    """Yield history.jsonl as the log says it must be, in pieces of about a MiB.

    Args:
        end: the byte of the log up to which it is read; all by default.
    """
    held: list[bytes] = []
    size = 0
    for record in read_records(paths.log, end=end):
        held.append(derived.history_line(record))
        size += len(held[-1])
        if size >= transcripts.CHUNK:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


# Who an agent is, when its first record can tell (SPEC.md, "Creation lost") and when it cannot.
#
# A damaged first record is rebuilt from descriptor.json, and from what session.json and state.json
# still hold; `restore` puts the result into the log. Without descriptor.json nothing is guessed
# (decision D4).


class Creation(NamedTuple):
    """The record an agent begins with. `logged` tells whether the log holds it somewhere."""

    record: Record
    logged: bool


def recorded_creation(paths: AgentPaths) -> Record | None:
    """Return the creation as the log has it: its own record, or the one `restore` put there."""
    return next(filter(None, map(creation_of, read_records(paths.log))), None)


def creation_of(record: Record) -> Record | None:
    """Return the creation that a record is, or that it holds as `restore` put it there; or None."""
    if is_creation(record):
        return record
    made = record.data.get("created") if record.event == "restore" else None
    if not isinstance(made, dict) or not isinstance(made.get("data"), dict):
        return None
    created_at = str(made.get("created_at"))
    return record._replace(event="session.created", data=made["data"], ts=created_at)


def lost_creation(paths: AgentPaths, first: Record | None) -> Creation:
    """Return the creation of an agent whose log does not begin with it.

    Args:
        first: the first readable record, if there is any.

    Raises `Invalid` when descriptor.json is gone too, or nothing names the session.
    """
    logged = recorded_creation(paths)
    if logged is not None:
        return Creation(logged, logged=True)
    descriptor = _document(paths, "descriptor.json")
    session, state = _document(paths, "session.json"), _document(paths, "state.json")
    session_id = first.session_id if first else session.get("id") or state.get("sessionId")
    if not isinstance(descriptor.get("type"), str) or not ids.is_session_id(str(session_id)):
        raise Invalid(
            f"{paths.log} does not begin with a readable session.created record, and "
            "descriptor.json cannot stand in for it",
            hint="`agentsdir validate` shows what stands there; put either back from a copy",
        )
    session_id = str(session_id)
    provider = _string(session, "provider_name") or _string(state, "provider")
    native = {
        "architecture": _string(state, "type") or provider,
        "id": ids.dashed(session_id),
        "cwd": _string(state, "cwd"),
    }
    data: dict[str, Any] = {
        "agent_id": paths.id,
        "descriptor": descriptor,
        "provider": provider,
        "model": _string(session, "model") or _string(state, "model"),
        "system_prompt": "",
        "profile": _string(state, "agentProfileReference"),
        "cwd": _string(state, "cwd"),
        "permission_mode": None,
        "limits": {},
        "options": {},
        "native": native,
    }
    if name := _string(descriptor, "name") or _string(state, "name"):
        data["name"] = name
    if parent := _string(descriptor, "parentAgentId"):
        data["parentAgentId"] = parent
    created_at = _string(session, "created_at") or _string(state, "createdAt")
    ts = created_at or (first.ts if first else "")
    return Creation(Record(1, ts, "session.created", session_id, data, ""), logged=False)


def _document(paths: AgentPaths, name: str) -> dict[str, Any]:
    try:
        return read_json(paths.folder / name)
    except (FileNotFoundError, Invalid):
        return {}


def _string(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


# An agent's folder appears, moves and goes whole, in one rename (SPEC.md, "Locks and durability").
#
# The caller that moves or withdraws one holds the create lock, its `.turn` and its `.lock`.

ON_ANOTHER_LAYER = "on-another-layer"
"""The kind of a refusal by overlayfs: it renames no folder that the lower layer has."""


class UnpublishedAgent:
    """An agent that is being made: it has no name that readers look for, and is not durable yet.

    Valid inside `making_agent`.
    """

    def __init__(self, paths: AgentPaths, session_id: str, disk: Disk) -> None:
        self.paths = paths
        self._session_id = session_id
        self._disk = disk
        self._state: AgentState | None = None
        self._position = Position()
        self._log = _Batch(paths.log)
        self._history = _Batch(paths.history)

    def append(self, event: str, data: dict[str, Any], ts: str) -> None:
        """Append one event; the first is `session.created`.

        Raises `Invalid` for data that would not round-trip, or that no reader would take back.
        """
        before = self._position
        record = Record(before.next_seq, ts, event, self._session_id, data, before.last_hash)
        line = log.encode_line(record)
        if self._state is None:
            self._state = begin(record)
        else:
            apply(self._state, record, before.size)
        self._log.write(line)
        self._position = Position(
            before.size + len(line), record.seq, line_hash(line), 0, before.lines + 1
        )
        history = derived.history_line(record)
        self._history.write(history)
        self._state.history_size += len(history)

    def take_log(self, paths: AgentPaths, state: AgentState, *, has_history: bool) -> None:
        """Take over the log of another agent's folder as it stands, to the byte.

        Args:
            state: the fold of that whole log, less a line that is cut.
            has_history: its history.jsonl is what the log says, and is taken over, too.
        """
        with open_log(paths.log) as stream:
            for piece in transcripts.pieces(stream, state.position.size):
                self._log.write(piece)
        if has_history:
            with open_log(paths.history) as stream:
                for piece in transcripts.pieces(stream, state.history_size):
                    self._history.write(piece)
        else:
            for piece in history_pieces(paths):
                self._history.write(piece)
        all_synced(paths, state)
        self._state, self._position = state, state.position

    def store(self, native: str, role: str, source: Source) -> transcripts.Synced:
        """Store a transcript durably (errors of `transcripts.store`)."""
        synced = transcripts.store(self.paths, native, role, source, None, self._disk)
        assert synced is not None
        return synced

    def finish(self) -> None:
        """Make everything durable. Raises `OSError`, and `Uncertain` for a failed fsync."""
        state = self._state
        assert state is not None
        state.position = self._position
        for stream, path in ((self._log, self.paths.log), (self._history, self.paths.history)):
            stream.flush()
            self._disk.sync(stream.fileno(), path)
        for name, document in derived.derived_documents(state).items():
            files.write_new(self.paths.folder / name, document, self._disk)
        stamps.leave(self.paths, state.position.size, state.history_size)
        self._disk.sync_folder(self.paths.folder)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._history.close()


class _Batch:
    """A new file that is written in large pieces, and not at all once the disk has refused one."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, FILE_MODE)
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take more bytes."""
        self._held.append(data)
        self._size += len(data)
        if self._size > transcripts.CHUNK:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        view = memoryview(b"".join(self._held))
        self._held.clear()
        self._size = 0
        while view:
            view = view[os.write(self._descriptor, view) :]

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; what was not flushed is dropped."""
        os.close(self._descriptor)


@contextmanager
def making_agent(
    layout: Layout, agent_id: str, session_id: str, disk: Disk
) -> Iterator[UnpublishedAgent]:
    """Make an agent's folder whole, and let it appear in one rename when the block is over.

    The caller holds the create lock. However much the agent is given, it is made durable once.
    Raises `NotRecorded` when nothing appeared, `Uncertain` when only an fsync failed.
    """
    with new_agent_folder(layout, agent_id, disk) as paths:
        made = UnpublishedAgent(paths, session_id, disk)
        try:
            yield made
            made.finish()
        finally:
            made.close()


@contextmanager
def new_agent_folder(layout: Layout, agent_id: str, disk: Disk) -> Iterator[AgentPaths]:
    """Make a folder for an agent's files that becomes the agent's when the block is over.

    Raises as `making_agent` does.
    """
    files.make_folder(layout.agents, disk)
    temporary = layout.agents / f"{TEMPORARY}{agent_id}-{os.urandom(6).hex()}"
    folder = layout.agents / agent_id
    with _placing(temporary, folder, disk, f"make {folder}"):
        temporary.mkdir(mode=DIRECTORY_MODE)
        yield AgentPaths(temporary, agent_id)


def create_agent_folder(
    layout: Layout,
    agent_id: str,
    data: dict[str, Any],
    ts: str,
    session_id: str,
    disk: Disk | None = None,
) -> AgentPaths:
    """Make an agent that has nothing but its beginning.

    Args:
        data: the data of its `session.created` record.

    Raises as `making_agent` does, and `Invalid` for data that would not round-trip.
    """
    with making_agent(layout, agent_id, session_id, disk or Disk()) as made:
        made.append("session.created", data, ts)
    return AgentPaths(layout.agents / agent_id, agent_id)


def withdraw_agent(layout: Layout, paths: AgentPaths, disk: Disk) -> Path:
    """Let an agent's folder disappear in one rename; return where it lies until it is removed.

    Where the system renames no such folder, the files go first, the log after all others and
    before the locks, which the caller holds: until then the agent is there, and can be removed
    again.

    Raises what `move_folder` raises.
    """
    temporary = layout.agents / f"{TEMPORARY}removed-{paths.id}-{os.urandom(6).hex()}"
    try:
        move_folder(paths.folder, temporary, disk)
    except NotRecorded as error:
        if error.kind != ON_ANOTHER_LAYER:
            raise
        _empty(paths, disk)
        return paths.folder
    return temporary


def _empty(paths: AgentPaths, disk: Disk) -> None:
    kept = (paths.log, paths.lock, paths.turn)
    for path in paths.folder.iterdir():
        if path not in kept:
            files.remove(path)
    files.remove(paths.log)
    disk.sync_folder(paths.folder)


def move_agent(paths: AgentPaths, new: Path, disk: Disk) -> None:
    """Move an agent's folder, whose locks the caller holds, to another place in its root.

    Where the system renames no such folder, a copy appears there whole, and the old one goes.

    Raises what `move_folder` raises.
    """
    try:
        move_folder(paths.folder, new, disk)
    except NotRecorded as error:
        if error.kind != ON_ANOTHER_LAYER:
            raise
        _copy(paths.folder, new, disk)
        _empty(paths, disk)
        files.remove(paths.folder)


def _copy(old: Path, new: Path, disk: Disk) -> None:
    temporary = new.with_name(f"{TEMPORARY}{new.name}-{os.urandom(6).hex()}")
    with _placing(temporary, new, disk, f"copy {old} to {new}"):
        shutil.copytree(old, temporary, symlinks=True)
        for entry in files.entries(temporary):
            if entry.is_dir(follow_symlinks=False):
                disk.sync_folder(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                with Path(entry.path).open("rb") as stream:
                    disk.sync(stream.fileno(), Path(entry.path))
        disk.sync_folder(temporary)


@contextmanager
def _placing(temporary: Path, folder: Path, disk: Disk, doing: str) -> Iterator[None]:
    """Let a folder be filled under another name, and give it its own, or remove it again."""
    try:
        yield
        temporary.rename(folder)
    except OSError as error:
        _discard(temporary)
        raise NotRecorded(f"cannot {doing}: {error.strerror or error}") from error
    except BaseException:
        _discard(temporary)
        raise
    disk.sync_folder(folder.parent)


def move_folder(old: Path, new: Path, disk: Disk) -> None:
    """Rename a folder durably.

    Raises `NotRecorded` when it stands where it stood (kind `ON_ANOTHER_LAYER` for a folder that
    can be removed, but not renamed), `Uncertain` when only an fsync failed, now or earlier.
    """
    parents = tuple(dict.fromkeys((new.parent, old.parent)))
    for parent in parents:
        disk.check(parent)
    try:
        old.rename(new)
    except OSError as error:
        kind = ON_ANOTHER_LAYER if error.errno == errno.EXDEV else None
        raise NotRecorded(f"cannot move {old} to {new}: {error.strerror}", kind=kind) from error
    # The new name first: a folder may be seen twice after a crash, but never be lost.
    for parent in parents:
        try:
            disk.sync_folder(parent)
        except Uncertain as error:
            disk.doubt(parent, error)
            raise


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


# Comparing an agent's derived files with what its whole log says (SPEC.md, "Derived files").


def wrong_files(
    paths: AgentPaths, state: AgentState, history: HistoryComparison | None = None
) -> list[str]:
    """Return the derived files that are missing, unreadable, or not what the whole log says.

    Args:
        history: has taken the whole log already; without it the log is read.
    """
    wrong = []
    for name, data in derived.derived_documents(state).items():
        try:
            current = read_bytes(place_of(paths, name), len(data) + 1)
        except FileNotFoundError:
            current = None
        except Invalid as error:
            if error.kind != "unreadable":
                raise
            current = None
        if current != data:
            wrong.append(name)
    with history or HistoryComparison.of_log(paths) as compared:
        return [*wrong, paths.history.name] if compared.differs() else wrong


class HistoryComparison:
    """Compares history.jsonl with what the log says, line by line, and holds neither."""

    def __init__(self, paths: AgentPaths) -> None:
        self._differs = False
        self._stream: BinaryIO | None = None
        self._refused: Invalid | None = None
        try:
            self._stream = os.fdopen(open_plain(paths.history), "rb")
        except FileNotFoundError:
            self._differs = True
        except Invalid as error:
            self._differs = True
            if error.kind != "unreadable":
                self._refused = error

    @classmethod
    def of_log(cls, paths: AgentPaths) -> Self:
        """Return the comparison with a whole log."""
        compared = cls(paths)
        for record in read_records(paths.log):
            compared.take(derived.history_line(record))
        return compared

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def take(self, line: bytes) -> None:
        """Compare what the next record of the log adds."""
        if not self._differs and self._stream is not None:
            self._differs = self._stream.read(len(line)) != line

    def differs(self) -> bool:
        """Return whether the file is missing, unreadable, or anything else than the log says.

        Raises `UnsafePath` for what is no regular file.
        """
        if self._refused is not None:
            raise self._refused
        if not self._differs and self._stream is not None:
            self._differs = self._stream.read(1) != b""
        return self._differs
