"""Derived files, compared with the log while it is folded (decision D4).

A derived file may be older than the log: then it must be what the log said at that time.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from agentsdir.engine.validation.problems import Problem, from_refusal
from agentsdir.engine.validation.values import NOTHING, Piece, breaches, decode, difference
from agentsdir.formats.directory import derived
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.reading.lines import LINE_CAP, read_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.directory.records import Record


def read_document(path: Path, name: str, problems: list[Problem]) -> Piece | None:
    """Return a document's bytes, or None with the reason among `problems`.

    Raises `FileNotFoundError`.
    """
    try:
        with os.fdopen(open_plain(path), "rb") as stream:
            data = stream.read(LINE_CAP + 1)
    except (Invalid, NotRecorded) as error:
        problems.append(from_refusal(error, name))
        return None
    if len(data) > LINE_CAP:
        problems.append(Problem("oversize", name, f"the document has over {LINE_CAP} bytes"))
        return None
    return Piece(name, 1, 0, data)


class DocumentCheck:
    """One derived document: its own schema, and what the log says of it.

    Args:
        make: returns the document that the log wants.
        events: the events after which a writer replaces the file.
        reads: False leaves the file alone: a link stands in place of a folder on the way to it.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        kind: str,
        make: Callable[[AgentState], dict[str, Any]],
        events: tuple[str, ...],
        *,
        reads: bool = True,
    ) -> None:
        self.problems: list[Problem] = []
        self._make = make
        self._events = events
        self._wanted: dict[str, Any] | None = None
        self._before: dict[str, Any] | None = None
        self.value: Any = NOTHING
        self.exists = True
        self.piece: Piece | None = None
        try:
            self.piece = read_document(path, name, self.problems) if reads else None
        except FileNotFoundError:
            self.exists = False
        if self.piece is not None:
            self.value = decode(self.piece, self.problems, document=True)
            if self.value is not NOTHING:
                self.problems += breaches(kind, self.value, self.piece)

    def follow(self, record: Record, state: AgentState) -> None:
        """Take note of what the file must be after a record."""
        if record.event in self._events:
            self._before, self._wanted = self._wanted, self._make(state)

    def compare(self) -> Iterator[Problem]:
        """Yield how the file differs from the log, at its end."""
        # A breach of the schema is said already, and is more to the point than a difference.
        if self._wanted is None or self.piece is None or self.problems:
            return
        found = difference(self._wanted, self.value)
        if found is None:
            return
        if self._before is not None and difference(self._before, self.value) is None:
            yield Problem("derived-stale", self.piece.file, "the log has gone on since")
            return
        pointer, reason = found
        yield self.piece.problem("derived-differs", reason, pointer)


class StateCheck(DocumentCheck):
    """state.json, which says itself up to which byte of the log it speaks."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path, name, "state", derived.state_document, ())
        size = self.value.get("logSize") if isinstance(self.value, dict) else None
        self.log_size = size if type(size) is int else None
        self._found: tuple[str, str] | None = None
        self._seen = False

    def follow(self, record: Record, state: AgentState) -> None:
        """Compare where the file says that it stands."""
        del record
        if state.position.size == self.log_size:
            self._seen = True
            self._found = difference(derived.state_document(state), self.value)

    def compare_at(self, end: int) -> Iterator[Problem]:
        """Yield how the file differs from the log, whose last complete line ends at byte `end`."""
        if self.piece is None or self.log_size is None or self.problems:
            return
        if not self._seen and self.log_size < end:
            reason = f"no record of the log ends at byte {self.log_size}"
            yield self.piece.problem("derived-differs", reason, "/logSize")
        elif self._found is not None:
            yield self.piece.problem("derived-differs", self._found[1], self._found[0])
        elif self._seen and self.log_size < end:
            yield Problem("derived-stale", self.piece.file, "the log has gone on since")


class HistoryCheck:
    """history.jsonl, read line by line beside the log that it is made of."""

    def __init__(self, path: Path, name: str) -> None:
        self.problems: list[Problem] = []
        self.exists = True
        self._name = name
        self._compares = True
        self._stream: BinaryIO | None = None
        self._lines: Iterator[Piece] = iter(())
        try:
            self._stream = os.fdopen(open_plain(path), "rb")
        except FileNotFoundError:
            self.exists = False
        except (Invalid, NotRecorded) as error:
            self.problems.append(from_refusal(error, name))
        if self._stream is not None:
            self._lines = self._read(self._stream)

    def _read(self, stream: BinaryIO) -> Iterator[Piece]:
        # Up to where it ended when we came: a living writer may go on appending.
        size = os.fstat(stream.fileno()).st_size
        for number, offset, length, data in read_lines(stream):
            if offset + length > size:
                return
            if data is None:
                reason = f"the line has {length} bytes, the limit is {LINE_CAP}"
                self.problems.append(Problem("oversize", self._name, reason, number, offset))
            elif not data.endswith(b"\n"):
                # Appended without fsync: a cut here is what the next writer mends.
                self.problems.append(
                    Problem("derived-stale", self._name, "the last line is cut", number, offset)
                )
            else:
                yield Piece(self._name, number, offset, data)

    def follow(self, record: Record) -> Iterator[Problem]:
        """Compare the next line with what a record adds to history."""
        wanted = derived.history_line(record)
        if not wanted or not self._compares or self._stream is None:
            return
        piece = next(self._lines, None)
        if piece is None:
            self._compares = False
            self.problems.append(
                Problem("derived-stale", self._name, f"it ends before event {record.seq}")
            )
        elif piece.data != wanted:
            yield from self._differs(piece, wanted, record.seq)

    def _differs(self, piece: Piece, wanted: bytes, seq: int) -> Iterator[Problem]:
        problems: list[Problem] = []
        value = _check_line(piece, problems)
        yield from problems
        if value is NOTHING:
            self._compares = False
            return
        right = decode(Piece("", 1, 0, wanted), [], document=False)
        if found := difference(right, value):
            self._compares = False
            if not problems:
                reason = f"event {seq}: it {found[1]}"
                yield piece.problem("derived-differs", reason, found[0])

    def finish(self, *, sound: bool) -> Iterator[Problem]:
        """Check the lines that nothing was compared with."""
        for piece in self._lines:
            if sound and self._compares:
                reason = "the log has nothing that this line could come from"
                yield piece.problem("derived-differs", reason)
                self._compares = False
            problems: list[Problem] = []
            _check_line(piece, problems)
            yield from problems
        yield from self.problems

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def _check_line(piece: Piece, problems: list[Problem]) -> Any:
    value = decode(piece, problems, document=False)
    if value is not NOTHING:
        problems += breaches("history-entry", value, piece)
    return value
