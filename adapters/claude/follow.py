"""Tailing a session of Claude Code (docs/reading.md, "Following").

The main transcript and the files of subagents, which appear beside it, are one session: their rows
share calls and links. So when one file has to be read again, all files are.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude import store
from agentsdir.adapters.claude.discover import FirstRows, is_child, is_child_of
from agentsdir.adapters.claude.sessions import SessionParser, own_session, sidecar, thread_name
from agentsdir.adapters.claude.shapes import is_row
from agentsdir.formats.block_lines import BlockStore
from agentsdir.formats.diff import EmittedDiff
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.rows import LineFeed
from agentsdir.formats.sink import LiveSink
from agentsdir.formats.source import HEAD, Source, heads
from agentsdir.formats.tail import Look, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.adapters.claude.rows import TranscriptParser
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding

# How many rows are read before their events are yielded, so that a long file is not collected.
_BATCH = 64


class _ClaudeTail:
    """One transcript that is tailed, and the parser of its rows."""

    def __init__(self, path: Path, *, is_main: bool) -> None:
        self.name = str(path)
        self.tail = Tail(path)
        self.is_main = is_main
        self.parser: TranscriptParser | None = None
        self.feed: LineFeed | None = None
        # What the beginning of the file says: its session and its thread.
        self.head = b""
        self.opening: tuple[str, str | None] = ("", None)
        self.meta: dict[str, Any] = {}
        self._sidecar: tuple[int, int, int] | None = None

    def look_at_head(self) -> bool:
        """Read the beginning; return whether it says something else now."""
        if len(self.head) == HEAD and self.opening[0]:
            return False
        self.head = self.tail.head(HEAD)
        rows = FirstRows(self.tail.head)
        session = own_session(rows, self.name)
        # A subagent's file can also be followed by itself.
        child = not self.is_main or is_child(Source(self.name, path=self.tail.path))
        opening = session, thread_name(rows, self.name) if child else None
        changed, self.opening = opening != self.opening, opening
        return changed

    def look_at_sidecar(self) -> bool:
        """Read the sidecar, which may come late and change; return whether it is another now."""
        path = self.tail.path.with_suffix(".meta.json")
        try:
            status = path.stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if self.is_main or stamp == self._sidecar:
                return False
            self._sidecar = stamp
            meta = sidecar(Source(str(path), path=path))
        except (OSError, AgentsdirError):  # not there yet, or no more
            return False
        changed, self.meta = meta != self.meta, meta
        return changed

    def begin(self, parser: SessionParser, sink: LiveSink) -> None:
        """Read the file from its start."""
        session, thread = self.opening
        self.parser = parser.open(self.name, thread=thread, session=session, meta=self.meta)
        self.feed = LineFeed(self.name, sink.tally, sink.finding, is_record=is_row)
        self.tail.rewind()


class ClaudeFollower:
    """Follows a session (`StoreReader.follow`).

    Args:
        main: the main transcript, which need not exist yet.
        hidden: also yield blocks marked `hidden`.
        alone: follow this file only, without subagents' files beside it.
    """

    def __init__(self, main: Path, *, hidden: bool, alone: bool = False) -> None:
        self._main = _ClaudeTail(main, is_main=True)
        self._files = [self._main]
        self._hidden = hidden
        self._alone = alone
        self.blocks = BlockStore()
        self._emitted = EmittedDiff(self.blocks)
        self._sink = LiveSink(hidden=hidden)
        self._session = SessionParser(self._sink)
        # The names of the session, and files beside it whose beginnings say that they are not its
        # own, with the size of those beginnings.
        self._names: set[str] = set()
        self._strangers: dict[Path, int] = {}

    @property
    def findings(self) -> Sequence[Finding]:
        return [*self._sink.findings, *self._sink.drifts.findings()]

    def poll(self) -> Iterator[StreamEvent]:
        looks = {file: file.tail.look() for file in self._files}
        if looks[self._main] is Look.ABSENT and self._main.tail.find(self._folders_to_search()):
            looks[self._main] = self._main.tail.look()
        for file in self._new_children(complete=False):
            self._files.append(file)
            looks[file] = Look.GREW
        grown = [file for file, look in looks.items() if look is Look.GREW]
        # Every head is read, also when one has changed already.
        news = [file for file in grown if file.look_at_head() and file.parser is not None]
        described = [file for file in self._files if file.look_at_sidecar()]
        if (news or Look.CHANGED in looks.values()) and looks[self._main] is not Look.ABSENT:
            self._begin_again()
            grown = [file for file in self._files if file.tail.look() is Look.GREW]
        yield from self._read(grown)
        yield from self._read_in_order()
        for file in described:
            if file.parser is not None:
                file.parser.describe(file.meta)
        if grown or described:
            self._session.settle()
            yield from self._emitted.emit(*self._sink.drain_lines())
        yield from self._emitted.finish_again()

    def end(self) -> Iterator[StreamEvent]:
        late = list(self._new_children(complete=True))
        for file in late:
            file.look_at_head()
            file.look_at_sidecar()
        self._files += late
        yield from self._read(late)
        yield from self._read_in_order()
        for file in self._files:
            rest = file.tail.rest()
            if rest and file.parser is not None:
                yield from self._read_lines(file, (rest,))
        self._session.finish()
        yield from self._emitted.emit(*self._sink.drain_lines())
        yield from self._emitted.finish_again()

    def _read(self, files: Sequence[_ClaudeTail]) -> Iterator[StreamEvent]:
        for file in files:
            if file.parser is None:
                file.begin(self._session, self._sink)
            yield from self._read_lines(file, file.tail.lines())

    def _read_lines(self, file: _ClaudeTail, lines: Iterable[bytes | int]) -> Iterator[StreamEvent]:
        """Read lines of a file; of one that is too long, there is the length."""
        assert file.parser is not None
        assert file.feed is not None
        rows = file.feed.rows_of(lines)
        while file.parser.take_all(islice(rows, _BATCH)) == _BATCH:
            yield from self._emitted.emit(*self._sink.drain_lines())

    def _read_in_order(self) -> Iterator[StreamEvent]:
        """Read all files again if a subagent's file had rows before the main transcript did."""
        if self._session.is_out_of_order:
            self._begin_again()
            yield from self._read(self._files)

    def _begin_again(self) -> None:
        """Read the whole session again; what was emitted is kept to compare with."""
        self._emitted.start_again()
        self._sink = LiveSink(hidden=self._hidden)
        self._session = SessionParser(self._sink)
        for file in self._files:
            file.parser = None
            file.head = b""
            file.tail.rewind()
            if file.tail.look() is not Look.ABSENT:
                file.look_at_head()

    def _folders_to_search(self) -> Iterator[Path]:
        """Yield the folders where a moved main transcript may be: its project's, then the others.

        People move sessions to another project, and rename the folder of a project.
        """
        folder = self._main.tail.path.parent
        yield folder
        try:
            others = sorted(folder.parent.iterdir())
        except OSError:
            return
        yield from others

    def _new_children(self, *, complete: bool) -> Iterator[_ClaudeTail]:
        """Yield the new files of subagents, and update the paths of files that moved.

        A file whose first line has no end yet is left for the next call, unless `complete`.
        """
        if self._alone:
            return
        main = self._main.tail.path
        names = {main.stem, self._main.opening[0]} - {""}
        if names != self._names:  # another session may own the files that were refused
            self._names, self._strangers = names, {}
        known = {file.tail.path for file in self._files}
        for path in store.beside(main, names):
            if path in known:
                continue
            try:
                status = path.stat()
                if self._strangers.get(path) == min(status.st_size, HEAD):
                    continue
                source = Source(str(path), path=path)
                is_begun = complete or any(b"\n" in head for head in heads(source.head))
            except (OSError, AgentsdirError):  # gone since it was listed
                continue
            inode = status.st_dev, status.st_ino
            moved = next((file for file in self._files if file.tail.inode == inode), None)
            if moved is not None:
                moved.tail.path = path
            elif is_begun:
                if is_child_of(main.parent, names, source):
                    yield _ClaudeTail(path, is_main=False)
                else:
                    self._strangers[path] = min(status.st_size, HEAD)
