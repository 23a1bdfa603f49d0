"""Items dealt to processes: what was done with each comes back in the order of the items.

The processes are those of `concurrent.futures`, forked, so they have what this one has. What items
give stands in unlinked scratch files, which both have open: it may be larger than memory.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import tempfile
from array import array
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.signals import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor
    from io import FileIO

Item = TypeVar("Item")

WORTH = 8 * 1024 * 1024
"""Bytes of items for which processes are started; fewer are done before those would be there."""
CHUNK = 4 * 1024 * 1024
"""Bytes of items that are given to a process at once; fewer where there is little in all."""
LEAST = 256 * 1024
MOST = 32
"""How many processes are started at most."""
AHEAD = 4
"""How many chunks may be begun after the one whose results are taken, for each process."""


class Result(NamedTuple, Generic[Item]):
    """What one item gave: a note, and pieces of bytes, to be read before the next result is taken.

    With an error there is neither.
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
    is raised, as it is without processes. Items that a process had when it was killed, or crashed,
    are done again, each by itself; one during which this happens twice has the error
    ``process-lost``.

    A process with threads does all by itself: to fork it is not safe. Until the generator is closed
    this process may not fork either: the executor has threads. Then its processes have ended.

    Args:
        items: what is to be done.
        work: does one, and returns its note and its pieces.
        size: returns about how many bytes an item has, by which items are dealt.
        jobs: how many processes do it. One is this process, as for few bytes.
    """
    jobs = 1 if _has_threads() else jobs
    sizes = [size(item) for item in items] if jobs > 1 else []
    chunks = _chunks(sizes, jobs) if sum(sizes) >= WORTH else []
    if len(chunks) < 2:
        yield from (_do(item, work) for item in items)
    else:
        yield from _deal(items, work, deque(chunks), min(jobs, len(chunks), MOST))


def _has_threads() -> bool:
    threading = sys.modules.get("threading")
    return threading is not None and threading.active_count() > 1


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


def _deal(
    items: Sequence[Item],
    work: Callable[[Item], tuple[bytes, Iterable[bytes]]],
    chunks: deque[range],
    jobs: int,
) -> Iterator[Result[Item]]:
    while chunks:
        yield from _by_processes(items, work, chunks, jobs)
        if not chunks:
            return
        # A process was lost, and the executor does not say which one, nor what it was at.
        chunk = chunks.popleft()
        if jobs > 1:
            yield from _deal(items, work, deque(range(at, at + 1) for at in chunk), 1)
        else:
            message = "the process that had it was lost, and so was another one"
            error = AgentsdirError(message, kind="process-lost")
            yield Result(items[chunk.start], b"", (), error)


def _by_processes(
    items: Sequence[Item],
    work: Callable[[Item], tuple[bytes, Iterable[bytes]]],
    chunks: deque[range],
    jobs: int,
) -> Iterator[Result[Item]]:
    """Yield the results of chunks, and drop each of which all are taken.

    It ends where none is left, or where a process was lost that had one of them.
    """
    from concurrent.futures import BrokenExecutor

    ahead = AHEAD * (jobs + 1) if jobs > 1 else 1
    with ExitStack() as stack:
        try:
            files = [stack.enter_context(tempfile.TemporaryFile(buffering=0)) for _ in range(ahead)]
            executor = stack.enter_context(_executor(items, work, jobs))
        except (OSError, ImportError, NotImplementedError):  # no room, no processes, no semaphores
            while chunks:
                yield from (_do(items[at], work) for at in chunks.popleft())
            return
        begun: deque[tuple[FileIO, Future[int]]] = deque()
        while chunks:
            try:
                while files and len(begun) < len(chunks):
                    file = files.pop()
                    future = executor.submit(_do_chunk, file.fileno(), chunks[len(begun)])
                    begun.append((file, future))
                file, future = begun.popleft()
                end = future.result()
            except BrokenExecutor:
                return
            yield from _read_results(file.fileno(), end, [items[at] for at in chunks[0]], work)
            chunks.popleft()
            files.append(file)


@contextmanager
def _executor(
    items: Sequence[Item], work: Callable[[Item], Any], jobs: int
) -> Iterator[ProcessPoolExecutor]:
    """Give the block an executor, whose processes are there, and have ended after it."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(jobs, context, _become_worker, (items, work))
    try:
        # The first call starts all processes, and threads, which leave signals to this one.
        with undisturbed():
            executor.submit(os.getpid)
        yield executor
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        executor.shutdown()


# In a process that works. Its items and what it does with them, which a fork leaves there:
_given: tuple[Sequence[Any], Callable[[Any], tuple[bytes, Iterable[bytes]]]]

_LENGTH = struct.Struct("=q")
_BUFFER = 1024 * 1024


def _become_worker(*given: Any) -> None:
    global _given
    _given = given
    import threading

    # Ctrl-C reaches all processes of a terminal; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    os.close(null)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do_chunk(descriptor: int, chunk: range) -> int:
    """Write what items give into a file, then where that of each ends; return where this begins.

    -1 where there is no room, or after another error of the system. The end of an item that raises
    an error is not positive: the process that takes the results does it, and raises the error.
    """
    items, work = _given
    ends = array("q")
    with suppress(OSError), open(descriptor, "wb", _BUFFER, closefd=False) as file:
        file.seek(0)
        file.truncate()
        for at in chunk:
            try:
                note, pieces = work(items[at])
                for piece in chain((note,), pieces):
                    file.write(_LENGTH.pack(len(piece)))
                    file.write(piece)
            except OSError:
                raise
            except Exception:  # noqa: BLE001, see above
                ends.append(-file.tell())
            else:
                ends.append(file.tell())
        end = file.tell()
        file.write(ends)
        file.flush()
        return end
    return -1


# In the process that takes the results.


def _read_results(
    descriptor: int, end: int, items: list[Item], work: Callable[[Item], Any]
) -> Iterator[Result[Item]]:
    size = _LENGTH.size * len(items)
    ends = array("q", bytes(size) if end < 0 else os.pread(descriptor, size, end))
    for item, begin, end in zip(items, chain((0,), ends), ends, strict=False):
        if end <= 0:
            yield _do(item, work)
        else:
            pieces = _read_pieces(descriptor, abs(begin), end)
            yield Result(item, next(pieces), pieces)


def _read_pieces(descriptor: int, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        (length,) = _LENGTH.unpack(os.pread(descriptor, _LENGTH.size, at))
        at += _LENGTH.size
        yield os.pread(descriptor, length, at)
        at += length
