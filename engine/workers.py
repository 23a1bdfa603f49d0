"""Items dealt to processes: what was done with each comes back in the order of the items.

The processes are forked, so they have what this one has. A process writes what its items give into
unlinked files, one for some items, and hands over their descriptors: so it never waits for this
process, little is in memory, and what it gave is there when it dies. Only bytes come back.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import tempfile
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.signals import undisturbed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

Item = TypeVar("Item")

WORTH = 8 * 1024 * 1024
"""Bytes of items for which processes are started; fewer are done before those would be there."""
CHUNK = 4 * 1024 * 1024
"""Bytes of items that are given to a process at once; fewer where there is little in all."""
LEAST = 256 * 1024
MOST = 64
"""How many processes are started at most."""
AHEAD = 4
"""How many chunks may be begun after the one whose results are taken, for each process."""
WAITING = 2  # chunks that one process has: the one that it does, and the next
FRAME = 256 * 1024


class Result(NamedTuple, Generic[Item]):
    """What one item gave: a note, and pieces of bytes, to be read before the next result is taken.

    With an error there is neither. Pieces may be joined, never split.
    """

    item: Item
    note: bytes
    pieces: Iterable[bytes]
    error: AgentsdirError | None = None


def available_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def deal(
    items: Sequence[Item],
    work: Callable[[Item], tuple[bytes, Iterable[bytes]]],
    *,
    size: Callable[[Item], int],
    jobs: int,
) -> Generator[Result[Item], None, None]:
    """Do `work` for each item; yield the results in the order of the items.

    What `work` raises of `AgentsdirError`, and a lack of memory, is the error of a result. All else
    is raised, as it is without processes. An item during which its process ends, killed or crashed,
    has the error ``process-lost``; all others are done.

    No thread may run in this process. When the generator is closed, its processes have ended.

    Args:
        items: what is to be done.
        work: does one, and returns its note and its pieces.
        size: returns about how many bytes an item has, by which items are dealt.
        jobs: how many processes do it. One is this process, as for few bytes.
    """
    sizes = [size(item) for item in items] if jobs > 1 else []
    chunks = _chunks(sizes, jobs) if sum(sizes) >= WORTH else []
    if len(chunks) < 2:
        for item in items:
            yield _do(item, work)
        return
    pool = _Pool(items, work, chunks)
    try:
        yield from pool.results(min(jobs, len(chunks), MOST))
    finally:
        pool.close()


def _do(item: Item, work: Callable[[Item], tuple[bytes, Iterable[bytes]]]) -> Result[Item]:
    try:
        note, pieces = work(item)
    except AgentsdirError as error:
        return Result(item, b"", (), error)
    except MemoryError:
        message = "there is not enough memory for this"
        return Result(item, b"", (), AgentsdirError(message, kind="out-of-memory"))
    return Result(item, note, pieces)


def _chunks(sizes: Sequence[int], jobs: int) -> list[range]:
    """Return runs of items of about equal size, so many that the processes end at one time."""
    wanted = max(LEAST, min(CHUNK, sum(sizes) // (8 * jobs)))
    chunks: list[range] = []
    begin = total = 0
    for at, size in enumerate(sizes, 1):
        total += size
        if total >= wanted or at == len(sizes):
            chunks.append(range(begin, at))
            begin, total = at, 0
    return chunks


# Between the processes: an order is the run of items of a chunk. A process answers with the
# descriptor of a new file, and then, for each item, with the place where its bytes end.

_ORDER = struct.Struct("=qq")
_NUMBER = struct.Struct("=q")
_FILE = b"f"
# In place of an end: the process could not do the item, or ended.
_REFUSED, _LOST = -1, -2


def _serve(line: socket.socket, items: Sequence[Item], work: Callable[[Item], Any]) -> None:
    """Do the chunks that are ordered, until the other end is closed."""
    while order := line.recv(_ORDER.size):
        start, stop = _ORDER.unpack(order)
        try:
            scratch = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, closed below
        except OSError:
            for _ in range(start, stop):
                line.send(_NUMBER.pack(_REFUSED))
            continue
        with scratch:
            _send_descriptor(line, scratch.fileno())
            end = 0
            for item in items[start:stop]:
                try:
                    end = _write_result(scratch.fileno(), end, *work(item))
                except Exception:  # noqa: BLE001, the other process does the item, and raises it
                    line.send(_NUMBER.pack(_REFUSED))
                else:
                    line.send(_NUMBER.pack(end))


def _send_descriptor(line: socket.socket, descriptor: int) -> None:
    import socket

    socket.send_fds(line, [_FILE], [descriptor])


def _write_result(descriptor: int, at: int, note: bytes, pieces: Iterable[bytes]) -> int:
    """Write the note and the pieces, each after its length; return where they end."""
    at = _write_frame(descriptor, at, [note])
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > FRAME:
            at = _write_frame(descriptor, at, held)
            held, size = [], 0
    return _write_frame(descriptor, at, held) if held else at


def _write_frame(descriptor: int, at: int, pieces: list[bytes]) -> int:
    data = b"".join((_NUMBER.pack(sum(map(len, pieces))), *pieces))
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        at, rest = at + written, rest[written:]
    return at


class _Chunk:
    """A run of items that one process does: its file, and where each item's bytes end."""

    def __init__(self, number: int, start: int, stop: int) -> None:
        self.number = number
        self.start = start
        self.stop = stop
        self.ends: list[int] = []
        self.descriptor = -1
        self.why_lost = ""

    @property
    def next(self) -> int:
        """The first item without a result."""
        return self.start + len(self.ends)

    def frames(self, at: int, end: int) -> Iterator[bytes]:
        """Yield what was written between two places."""
        while at < end:
            (length,) = _NUMBER.unpack(self._read(at, _NUMBER.size))
            yield self._read(at + _NUMBER.size, length)
            at += _NUMBER.size + length

    def _read(self, at: int, length: int) -> bytes:
        data = os.pread(self.descriptor, length, at)
        while len(data) < length:
            data += os.pread(self.descriptor, length - len(data), at + len(data))
        return data

    def close(self) -> None:
        """Close the file, which is then gone."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Worker:
    """A process, the line to it, and the chunks that it was given, in order."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self.line = line
        self.chunks: deque[_Chunk] = deque()

    def end(self) -> int:
        """End the process; return how it ended, as an exit code."""
        self.line.close()
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


class _Pool(Generic[Item]):
    """The processes, the chunks that wait for one, and all chunks whose results are not taken."""

    def __init__(
        self,
        items: Sequence[Item],
        work: Callable[[Item], tuple[bytes, Iterable[bytes]]],
        chunks: list[range],
    ) -> None:
        self._items = items
        self._work = work
        self._order = deque(_Chunk(at, run.start, run.stop) for at, run in enumerate(chunks))
        self._waiting = self._order.copy()
        self._ahead = 0
        self._workers: dict[int, _Worker] = {}
        self._poll = select.poll()

    def results(self, jobs: int) -> Iterator[Result[Item]]:
        """Start so many processes, and yield the results in order."""
        self._ahead = AHEAD * (jobs + 1)
        for _ in range(jobs):
            self._start()
        while self._order:
            chunk = self._order[0]
            at = 0
            for number in range(chunk.stop - chunk.start):
                self._deal()
                self._receive(0)
                while len(chunk.ends) <= number:
                    if not self._workers:  # none could be started: this process does it
                        chunk.ends.append(_REFUSED)
                        break
                    self._receive(None)
                    self._deal()
                yield self._result(chunk, number, at)
                if chunk.ends[number] == _LOST:
                    break  # what else there was is a chunk of its own now
                at = max(at, chunk.ends[number])
            chunk.close()
            self._order.popleft()

    def _result(self, chunk: _Chunk, number: int, at: int) -> Result[Item]:
        item, end = self._items[chunk.start + number], chunk.ends[number]
        if end == _LOST:
            message = f"the process that had it was lost ({chunk.why_lost})"
            return Result(item, b"", (), AgentsdirError(message, kind="process-lost"))
        if end == _REFUSED or chunk.descriptor < 0:
            return _do(item, self._work)
        frames = chunk.frames(at, end)
        return Result(item, next(frames), frames)

    def _deal(self) -> None:
        """Give chunks to the processes that have few, none of them far ahead."""
        for worker in [*self._workers.values()]:
            while (
                self._waiting
                and len(worker.chunks) < WAITING
                and self._waiting[0].number < self._order[0].number + self._ahead
            ):
                chunk = self._waiting.popleft()
                worker.chunks.append(chunk)
                try:
                    worker.line.send(_ORDER.pack(chunk.start, chunk.stop))
                except OSError:  # it has ended, which `_receive` sees, too
                    break

    def _receive(self, timeout: int | None) -> None:
        """Take the messages that are there, or wait for some."""
        for descriptor, _ in self._poll.poll(timeout):
            self._take_message(self._workers[descriptor])

    def _take_message(self, worker: _Worker) -> None:
        import socket

        try:
            message, descriptors, _, _ = socket.recv_fds(worker.line, _NUMBER.size, 1)
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._lose(worker)
            return
        chunk = worker.chunks[0]
        if message == _FILE:
            # Without a descriptor there are too many open files: this process does the items.
            chunk.descriptor = descriptors[0] if descriptors else -1
            return
        (end,) = _NUMBER.unpack(message)
        chunk.ends.append(end)
        if chunk.next == chunk.stop:
            worker.chunks.popleft()

    def _lose(self, worker: _Worker) -> None:
        """Replace a process that has ended: the item that it did is lost, the others are dealt."""
        del self._workers[worker.line.fileno()]
        self._poll.unregister(worker.line)
        code = worker.end()
        if code == -signal.SIGINT:  # as this process, which may not have noticed yet
            raise KeyboardInterrupt
        if worker.chunks:
            chunk = worker.chunks.popleft()
            self._waiting.extendleft(reversed(worker.chunks))
            rest = _Chunk(chunk.number, chunk.next + 1, chunk.stop)
            chunk.ends.append(_LOST)
            chunk.why_lost = f"signal {-code}" if code < 0 else f"exit code {code}"
            if rest.start < rest.stop:
                self._order.insert(self._order.index(chunk) + 1, rest)
                self._waiting.appendleft(rest)
        if self._waiting:
            self._start()

    def _start(self) -> None:
        """Start a process, unless the system refuses."""
        import socket

        with undisturbed():
            try:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            except OSError:
                return
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                theirs.close()
                return
            if pid:
                theirs.close()
                self._workers[ours.fileno()] = _Worker(pid, ours)
                self._poll.register(ours, select.POLLIN)
            else:
                _take_defaults()
        if not pid:
            ours.close()
            self._be_worker(theirs)

    def _be_worker(self, line: socket.socket) -> NoReturn:
        """Serve in the new process, which must never return to what its parent does."""
        try:
            for other in self._workers.values():
                other.line.close()  # so that the others see when the parent has ended
            for chunk in self._order:
                chunk.close()
            _serve(line, self._items, self._work)
        finally:
            os._exit(0)

    def close(self) -> None:
        """End all processes, and close all files."""
        while self._workers:
            _, worker = self._workers.popitem()
            worker.end()
        for chunk in self._order:
            chunk.close()


def _take_defaults() -> None:
    """Let signals end this process as they end any, and leave standard input and output alone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    os.close(null)
