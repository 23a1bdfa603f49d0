"""`validate` in derived files: compared with the log while it is folded (decision D4)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.engine.validate.findings import (
    NOTHING,
    JSONText,
    breaches,
    decode,
    difference,
    from_refusal,
)
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import LINE_CAP, read_lines
from agentsdir.formats.store import derived, locks
from agentsdir.formats.store.agent import read_agent, without_live_tail
from agentsdir.formats.store.derived import MANIFEST
from agentsdir.formats.store.layout import open_plain, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

# A derived file may be older than the log. Then it must be what the log gave at that time.

LOG_WENT_ON = "the log has gone on since"
REMADE = "`agentsdir restore` makes it again (of an archived agent after `archive --undo`)"
SAME_VALUE = "the values are those of the log, the bytes are not"
CUT = "the last line is cut"

TRIES = 3


class FileStatus(NamedTuple):
    """A derived file compared with the log: same, stale, differs, missing or unreadable.

    `pointer` leads to the first difference in the value, where there is one.
    """

    status: str
    reason: str | None = None
    pointer: str | None = None


def read_document(path: Path, name: str, findings: list[Finding]) -> JSONText | None:
    """Return a document's bytes, or None with the reason among `findings`.

    Raises `FileNotFoundError`.
    """
    try:
        data = read_bytes(path, LINE_CAP + 1)
    except (Invalid, NotRecorded) as error:
        findings.append(from_refusal(error, name))
        return None
    if len(data) > LINE_CAP:
        findings.append(Finding("oversize", name, f"the document has over {LINE_CAP} bytes"))
        return None
    return JSONText(name, 1, 0, data)


class DocumentCheck:
    """One derived document: its schema, and its comparison with the log.

    Args:
        make: returns the document that belongs to a state.
        events: the events after which a writer replaces the file.
        reads: False does not open the file: a folder on the way to it is a link.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        kind: str,
        make: Callable[[AgentState], dict[str, Any]],
        events: tuple[str, ...] = (),
        *,
        reads: bool = True,
    ) -> None:
        self.findings: list[Finding] = []
        self._make = make
        self._events = events
        self._wanted: dict[str, Any] | None = None
        self._was_right = False
        self.value: Any = NOTHING
        self.exists = True
        self.piece: JSONText | None = None
        try:
            self.piece = read_document(path, name, self.findings) if reads else None
        except FileNotFoundError:
            self.exists = False
        if self.piece is not None:
            self.value = decode(self.piece, self.findings, document=True)
            if self.value is not NOTHING:
                self.findings += breaches(kind, self.value, self.piece)

    def on_record(self, event: str, state: AgentState) -> None:
        """Update what the file must be after a record; `state` is the fold up to it."""
        if event in self._events and self.value is not NOTHING:
            if self._wanted is not None and difference(self._wanted, self.value) is None:
                self._was_right = True
            self._wanted = self._make(state)

    def compare(self) -> Iterator[Finding]:
        """Yield a finding if the file differs from the end of the log."""
        # A breach of the schema is reported already.
        if self._wanted is None or self.piece is None or self.findings:
            return
        found = difference(self._wanted, self.value)
        if found is None:
            return
        if self._was_right:
            yield Finding("derived-stale", self.piece.file, LOG_WENT_ON)
            return
        pointer, reason = found
        yield self.piece.finding("derived-differs", reason, pointer)

    def outcome(self, state: AgentState) -> FileStatus:
        """Return the status of the file; `state` is the fold of the log. Bytes are compared."""
        if not self.exists:
            return FileStatus("missing", REMADE)
        if self.piece is None or self.value is NOTHING:
            why = self.findings[0].message if self.findings else "a link leads to it"
            return FileStatus("unreadable", why)
        wanted = self._make(state)
        if self.piece.data == derived.encode_document(wanted):
            return FileStatus("same")
        found = difference(wanted, self.value)
        if found is None:
            return FileStatus("differs", SAME_VALUE)
        return FileStatus("stale", LOG_WENT_ON) if self._was_right else _differs(found)


def _differs(found: tuple[str, str], where: str = "") -> FileStatus:
    return FileStatus("differs", where + found[1], found[0])


class StateCheck(DocumentCheck):
    """state.json, which names the byte of the log up to which it was computed."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, "state", derived.state_document)
        size = self.value.get("logSize") if isinstance(self.value, dict) else None
        self.log_size = size if type(size) is int else None
        self._found: tuple[str, str] | None = None
        self._seen = False

    def compare_with(self, state: AgentState) -> None:
        """Compare the file with the log folded up to the byte that the file names."""
        self._seen = True
        # Most are right, and comparing bytes is faster than comparing values.
        if self.piece is None or self.piece.data != derived.derived_document(state, "state.json"):
            self._found = difference(derived.state_document(state), self.value)
        self._was_right = self._found is None

    def compare_at(self, end: int) -> Iterator[Finding]:
        """Yield a finding if the file differs; the last complete line of the log ends at `end`."""
        if self.piece is None or self.log_size is None or self.findings:
            return
        if not self._seen and self.log_size < end:
            reason = f"no record of the log ends at byte {self.log_size}"
            yield self.piece.finding("derived-differs", reason, "/logSize")
        elif self._found is not None:
            yield self.piece.finding("derived-differs", self._found[1], self._found[0])
        elif self._seen and self.log_size < end:
            yield Finding("derived-stale", self.piece.file, LOG_WENT_ON)

    def outcome(self, state: AgentState) -> FileStatus:
        """Return the status of the file; if it names a byte, compared with the log up to it."""
        said = super().outcome(state)
        if said.status != "differs" or self.log_size is None:
            return said
        if not self._seen:
            return _differs(("/logSize", f"no line of the log ends at byte {self.log_size}"))
        return said if self._found is None else _differs(self._found)


class HistoryCheck:
    """history.jsonl, compared line by line with the log."""

    def __init__(self, path: Path, name: str) -> None:
        self.findings: list[Finding] = []
        self.exists = True
        self.outcome = FileStatus("same")
        self._name = name
        self._compares = True
        self._stream: BinaryIO | None = None
        self._lines: Iterator[JSONText] = iter(())
        self._cut = b""
        try:
            self._stream = os.fdopen(open_plain(path), "rb")
        except FileNotFoundError:
            self.exists = False
            self.outcome = FileStatus("missing", REMADE)
        except (Invalid, NotRecorded) as error:
            self.findings.append(from_refusal(error, name))
            self.outcome = FileStatus("unreadable", error.message)
        if self._stream is not None:
            self._lines = self._read(self._stream)

    def _read(self, stream: BinaryIO) -> Iterator[JSONText]:
        # Up to the present end: a writer may append meanwhile.
        size = os.fstat(stream.fileno()).st_size
        for number, offset, length, data in read_lines(stream):
            if offset + length > size:
                return
            if data is None:
                reason = f"the line has {length} bytes, the limit is {LINE_CAP}"
                self.findings.append(Finding("oversize", self._name, reason, number, offset))
            elif not data.endswith(b"\n"):
                # Appended without fsync: the next writer repairs a cut line.
                self.findings.append(Finding("derived-stale", self._name, CUT, number, offset))
                self._cut = data
            else:
                yield JSONText(self._name, number, offset, data)

    def on_record(self, record: Record, wanted: bytes, findings: list[Finding]) -> None:
        """Compare the next line with what a record adds to history."""
        if not self._compares or self._stream is None:
            return
        piece = next(self._lines, None)
        if piece is None:
            self._compares = False
            reason = f"it ends before event {record.seq}"
            self.findings.append(Finding("derived-stale", self._name, reason))
            begins = wanted.startswith(self._cut)
            self._keep_first(FileStatus("stale", reason) if begins else FileStatus("differs", CUT))
        elif piece.data != wanted:
            findings += self._differs(piece, wanted, record.seq)

    def _keep_first(self, outcome: FileStatus) -> None:
        """Keep the first outcome."""
        if self.outcome.status == "same":
            self.outcome = outcome

    def _differs(self, piece: JSONText, wanted: bytes, seq: int) -> Iterator[Finding]:
        findings: list[Finding] = []
        value = _check_line(piece, findings)
        yield from findings
        where = f"line {piece.line}, event {seq}: "
        if value is NOTHING:
            self._compares = False
            self._keep_first(FileStatus("differs", where + findings[0].message))
            return
        right = decode(JSONText("", 1, 0, wanted), [], document=False)
        if found := difference(right, value):
            self._compares = False
            self._keep_first(_differs(found, where))
            if not findings:
                reason = f"event {seq}: it {found[1]}"
                yield piece.finding("derived-differs", reason, found[0])
        else:
            self._keep_first(FileStatus("differs", where + SAME_VALUE))

    def finish(self, *, sound: bool) -> Iterator[Finding]:
        """Check the lines after the last compared one."""
        reason = "the log has nothing that this line could come from"
        for piece in self._lines:
            if sound and self._compares:
                yield piece.finding("derived-differs", reason)
                self._compares = False
            self._keep_first(FileStatus("differs", f"line {piece.line}: {reason}"))
            findings: list[Finding] = []
            _check_line(piece, findings)
            yield from findings
        if self._cut:
            self._keep_first(FileStatus("differs", f"{CUT}: {reason}"))
        yield from self.findings

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def _check_line(piece: JSONText, findings: list[Finding]) -> Any:
    value = decode(piece, findings, document=False)
    if value is not NOTHING:
        findings += breaches("history-entry", value, piece)
    return value


class DerivedFiles:
    """The derived files of one agent, compared with its log while that is folded.

    Args:
        called: returns the name of a file in findings.
    """

    def __init__(self, paths: AgentPaths, called: Callable[[str], str]) -> None:
        self.descriptor = DocumentCheck(
            paths.descriptor, called("descriptor.json"), "descriptor", lambda s: s.descriptor
        )
        self.session = DocumentCheck(
            paths.session,
            called("session.json"),
            "session",
            lambda state: state.session.to_json(),
            ("session.created", "session.state", "agent.set"),
        )
        self.state = StateCheck(paths.state, called("state.json"))
        self.manifest = DocumentCheck(
            paths.manifest,
            called(derived.MANIFEST),
            "manifest",
            derived.manifest_document,
            ("transcript.synced",),
            reads=not paths.transcripts.is_symlink(),
        )
        self.history = HistoryCheck(paths.history, called("history.jsonl"))

    @property
    def documents(self) -> tuple[DocumentCheck, ...]:
        """All but history.jsonl."""
        return (self.descriptor, self.session, self.state, self.manifest)

    def on_record(
        self, record: Record, state: AgentState, added: bytes, findings: list[Finding]
    ) -> None:
        """Compare after a record of the log.

        Args:
            state: the fold up to it.
            added: what the record adds to history.jsonl.
            findings: gets what is wrong.
        """
        if added:
            self.history.on_record(record, added, findings)
        self.session.on_record(record.event, state)
        self.manifest.on_record(record.event, state)
        self.on_position(state)

    def on_position(self, state: AgentState) -> None:
        """Compare after a line of the log, a record or not."""
        if state.position.size == self.state.log_size:
            self.state.compare_with(state)

    def outcomes(self, state: AgentState) -> dict[str, FileStatus]:
        """Return the status of each file that belongs to the agent, by path."""
        found = {
            "descriptor.json": self.descriptor.outcome(state),
            "session.json": self.session.outcome(state),
            "state.json": self.state.outcome(state),
            "history.jsonl": self.history.outcome,
            derived.MANIFEST: self.manifest.outcome(state),
        }
        if not state.synced:
            del found[derived.MANIFEST]
        return found

    def close(self) -> None:
        """Close the files."""
        self.history.close()


# `replay --check`.


class Compared(NamedTuple):
    """The status of one derived file, by its path in the agent's folder."""

    file: str
    outcome: FileStatus

    @property
    def fails(self) -> bool:
        """Whether the file is not what a writer could have left there."""
        return self.outcome.status not in ("same", "stale")

    def as_json(self) -> dict[str, Any]:
        """Return one line of `replay --check --json`."""
        return {
            "type": "derived",
            "file": self.file,
            "status": self.outcome.status,
            "pointer": self.outcome.pointer,
            "reason": self.outcome.reason,
        }

    def __str__(self) -> str:
        """Render as a line for people."""
        status, reason, pointer = self.outcome
        place = f" at {pointer}" if pointer else ""
        return f"{self.file}: {status}" + (f": {reason}{place}" if reason else "")


def compare_derived(paths: AgentPaths) -> tuple[list[Compared], list[Finding]]:
    """Compare each derived file with the log; return the results and the findings of the log.

    Damaged lines are left out, as `restore` does. No lock is taken: a file that a running writer
    has yet to write is not missing. Raises what `read_agent` raises.
    """
    for _ in range(TRIES):
        size = _log_size(paths)
        compared, findings = _compare(paths)
        # A file may have been opened before the event that created it.
        if not any(one.fails for one in compared) or _log_size(paths) == size:
            break
    if locks.is_held(paths.turn):
        compared = [one if one != NO_MANIFEST else AWAITED for one in compared]
    return compared, findings


def _compare(paths: AgentPaths) -> tuple[list[Compared], list[Finding]]:
    files = DerivedFiles(paths, str)

    def on_record(state: AgentState, record: Record | None) -> None:
        if record is None:
            files.on_position(state)
        else:
            # Only `validate` reports what is found.
            files.on_record(record, state, derived.history_line(record), [])

    try:
        reading = read_agent(paths, whole=True, follow=on_record)
        for _finding in files.history.finish(sound=True):
            pass
        outcomes = files.outcomes(reading.state)
    finally:
        files.close()
    compared = [Compared(file, outcome) for file, outcome in outcomes.items()]
    return compared, without_live_tail(paths, reading.findings)


def _log_size(paths: AgentPaths) -> int:
    try:
        return paths.log.lstat().st_size
    except OSError:  # the reader of the log reports it
        return 0


NO_MANIFEST = Compared(MANIFEST, FileStatus("missing", REMADE))
AWAITED = Compared(MANIFEST, FileStatus("stale", "a living writer has yet to make it"))
