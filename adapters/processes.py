"""Programs of clients: starting them, their lines and marks, ending all their processes."""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agentsdir.adapters.protocol import Process
from agentsdir.formats import signals
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.rows import LINE_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from agentsdir.adapters.protocol import Host


# Processes that have the marks of a turn: finding them, and ending them (decision D14).
#
# The system reuses process ids. So a process is identified by its start time too, and one that has
# to be ended by the variables that it was given.

_PROC = Path("/proc")
GRACE = 2.0
"""Seconds that a program has between being asked to end and being killed."""
_PATIENCE = 10.0  # seconds; a process that is left by then hangs in the kernel
_LOOK_EVERY = 0.01
_LOOKS = 2


def find(pid: int) -> Process | None:
    """Return a running process by its id; None for none, or without /proc."""
    found = _stat(pid)
    return Process(pid, found[1]) if found else None


def _stat(pid: int) -> tuple[int, int] | None:
    """Return a running process's parent and start time."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def is_alive(process: Process) -> bool:
    """Tell whether a process still runs; a later process with the same id is another."""
    return find(process.pid) == process


def marked(marks: Mapping[str, str]) -> Iterator[Process]:
    """Yield the processes that have all of `marks` in their environment.

    This process and its ancestors are left out: a turn's own command may run agentsdir.
    """
    wanted = {os.fsencode(f"{name}={value}") for name, value in marks.items()}
    excluded = _ancestry(os.getpid())
    for pid in _pids() if wanted else ():
        if pid not in excluded and _has_marks(pid, wanted) and (found := find(pid)):
            yield found


def option_values(options: Collection[str]) -> Iterator[tuple[str, Process, dict[str, str]]]:
    """Yield values that this user's processes were given for some options, and the processes.

    Beside a process stands its environment, which is empty where it cannot be read. Without /proc,
    nothing is yielded.
    """
    names = [os.fsencode(option) for option in options]
    for pid in _pids():
        with suppress(OSError):  # the process has ended
            if (_PROC / str(pid)).stat().st_uid != os.geteuid():
                continue
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            values = [after for word, after in pairwise(words) if word in names]
            for word in words:
                name, equals, value = word.partition(b"=")
                if equals and name in names:
                    values.append(value)
            if values and (found := find(pid)):
                environment = _environment(pid)
                for value in values:
                    yield os.fsdecode(value), found, environment


def _environment(pid: int) -> dict[str, str]:
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def _ancestry(pid: int) -> set[int]:
    """Return the ids of a process and its ancestors."""
    line: set[int] = set()
    while pid not in line:
        line.add(pid)
        found = _stat(pid)
        pid = found[0] if found else pid
    return line


def _pids() -> list[int]:
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _has_marks(pid: int, wanted: set[bytes]) -> bool:
    with suppress(OSError):  # another user's process, or one that has ended
        return wanted <= set((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    return False


def end(
    marks: Mapping[str, str], also: Sequence[Process] = (), *, grace: float = GRACE
) -> list[Process]:
    """End every process that has all of `marks`, and its descendants.

    Each gets SIGTERM, and SIGKILL if it still runs after `grace`. Descendants of a process that
    ends meanwhile are ended too. Returns all when they have ended.

    Args:
        marks: variables and their values; no process is found by an empty mapping.
        also: other processes to end, if they still run.
        grace: seconds between the two signals.

    Raises `ProviderError` (kind ``process-left``) for one that stays.
    """
    ended: dict[Process, None] = {}
    began = time.monotonic()
    unseen = 0
    # One look is not enough: a process may start another, and end before it is found.
    while unseen < _LOOKS:
        found = with_descendants([*marked(marks), *also, *ended])
        unseen = 0 if found else unseen + 1
        late = time.monotonic() > began + grace
        for process in found if late else [one for one in found if one not in ended]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL if late else signal.SIGTERM)
        ended |= dict.fromkeys(found)
        if found and time.monotonic() > began + grace + _PATIENCE:
            raise ProviderError(
                f"the process {found[0].pid} of a turn that is over cannot be ended",
                hint="end it by hand, then try again",
                kind="process-left",
            )
        select.select((), (), (), _LOOK_EVERY)
    return list(ended)


def with_descendants(roots: Sequence[Process]) -> list[Process]:
    """Return those of some processes that still run, and all their descendants.

    This process and its ancestors are left out.
    """
    if not roots:
        return []
    stats = {pid: found for pid in _pids() if (found := _stat(pid))}
    # The id of a process that has ended may belong to another.
    known = {pid for pid, started in roots if stats.get(pid, (0, -1))[1] == started}
    grown = True
    while grown:
        below = {pid for pid, (parent, _) in stats.items() if parent in known} - known
        known |= below
        grown = bool(below)
    excluded = _ancestry(os.getpid())
    return [Process(pid, stats[pid][1]) for pid in sorted(known - excluded) if pid in stats]


# A running program: lines in and out, its standard error, its end (decision D14).

_CHUNK = 256 * 1024
_ERRORS = 64 * 1024
_PIPE = 1024 * 1024
"""Bytes that a pipe holds: output that is not lost when a program ends before it is read."""
_GRACE = 5.0
"""Seconds that a program has between being asked to end and being ended."""
_PR_SET_PDEATHSIG = 1


class Program:
    """One running program, in a session of its own, so that it gets no signals of the terminal.

    On Linux it gets SIGTERM when this process dies.

    Args:
        command: the program and its arguments.
        cwd: its working directory.
        environment: all of its environment.

    Raises `ProviderError`: kind ``no-client`` when there is no such program, ``no-folder`` when the
    working directory is gone.
    """

    def __init__(self, command: Sequence[str], *, cwd: str, environment: Mapping[str, str]) -> None:
        if not os.path.isdir(cwd):  # noqa: PTH112, what Popen says of it names the program
            raise ProviderError(
                f"the working directory {cwd} is gone",
                hint="`agentsdir set AGENT cwd=DIR` gives the agent another one",
                kind="no-folder",
            )
        try:
            self._popen = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )
        except (OSError, ValueError) as error:
            raise not_started(command[0], error) from error
        self.process = find(self._popen.pid) or Process(self._popen.pid, 0)
        self._outgoing = bytearray()
        self._closing = False
        self._errors = bytearray()
        self._partial = bytearray()
        self._searched = 0  # so far there is no LF in it
        self._over = False
        _widen(self._popen.stdout)
        self._selector = selectors.DefaultSelector()
        for pipe in (self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)
        assert self._popen.stdin is not None
        os.set_blocking(self._popen.stdin.fileno(), False)

    @property
    def errors(self) -> str:
        """The end of its standard error so far."""
        assert self._popen.stderr is not None
        with suppress(BlockingIOError):
            while piece := os.read(self._popen.stderr.fileno(), _CHUNK):
                self._keep_error(piece)
        return self._errors.decode(errors="replace").strip()

    def write(self, line: bytes) -> None:
        """Queue a line, LF included; it is written while `lines` reads."""
        self._outgoing += line
        self._watch_input()

    def close_input(self) -> None:
        """Close its standard input once everything queued is written."""
        self._closing = True
        self._watch_input()

    def _watch_input(self) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        if pipe.closed:
            return
        with suppress(KeyError):
            self._selector.unregister(pipe)
        if self._outgoing:
            self._selector.register(pipe, selectors.EVENT_WRITE)
        elif self._closing:
            pipe.close()

    def lines(self, timeout: float | None = None) -> Iterator[bytes]:
        """Yield each line of its output, the last one even without LF, until it ends.

        A line that is longer than `LINE_CAP` is cut there. Another call reads on.

        Args:
            timeout: stop after this many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._over:
            end = self._partial.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._partial[: end + 1])
                del self._partial[: end + 1]
                self._searched = 0
                yield line
                continue
            self._searched = len(self._partial)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._exchange(left)
        if self._partial:
            line = bytes(self._partial)
            self._partial.clear()
            yield line

    def _exchange(self, timeout: float | None) -> None:
        """Read what is there and write what can be written; wait a while until there is any."""
        signals.check()
        for key, _ in self._selector.select(signals.until_check(timeout)):
            if key.fileobj is self._popen.stdin:
                self._flush()
            elif key.fileobj is self._popen.stderr:
                piece = os.read(key.fd, _CHUNK)
                self._keep_error(piece)
                if not piece:
                    self._selector.unregister(key.fileobj)
            else:
                self._read(key.fd)

    def _keep_error(self, piece: bytes) -> None:
        self._errors += piece
        del self._errors[:-_ERRORS]

    def _read(self, descriptor: int) -> None:
        piece = os.read(descriptor, _CHUNK)
        if not piece:
            self._over = True
        elif len(self._partial) < LINE_CAP:
            self._partial += piece
        elif b"\n" in piece:
            self._partial += piece[piece.index(b"\n") :]

    def _flush(self) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        try:
            written = os.write(pipe.fileno(), self._outgoing[:_CHUNK])
            del self._outgoing[:written]
        except BlockingIOError:
            return
        except OSError:  # it no longer reads; its output and exit code say why
            self._outgoing.clear()
            self._closing = True
        self._watch_input()

    @property
    def is_over(self) -> bool:
        """Whether its output has ended."""
        return self._over

    def wait(self, timeout: float) -> int | None:
        """Return its exit code, negative for a signal; None if it still runs after `timeout`."""
        return wait_for_end(self._popen, timeout)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def end(self, marks: Mapping[str, str]) -> None:
        """End it and all its descendants, and close its pipes; a second call does nothing.

        Raises `ProviderError` (kind ``process-left``) for a process that nothing ends.
        """
        started = with_descendants([self.process])
        with suppress(subprocess.TimeoutExpired):
            if self._popen.poll() is None:
                self._popen.terminate()  # it may end its own commands, and write its files
                self._popen.wait(_GRACE)
        self._popen.kill()
        end(marks, started)
        self._popen.wait()
        self._over = True
        self._selector.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()


def wait_for_end(process: subprocess.Popen[bytes], timeout: float | None) -> int | None:
    """Wait until a process ends; return its exit code, None after `timeout` seconds.

    Raises what breaks off the work of this thread (`signals.check`).
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(signals.until_check(left))
        if left is not None and left <= signals.PAUSE:
            return None
        signals.check()


def not_started(program: str, error: OSError | ValueError) -> ProviderError:
    """Return the error (kind ``no-client``) for a program that the system did not start.

    `ValueError` is for an argument that no program can have: one with a NUL, as a log may hold.
    """
    reason = error.strerror if isinstance(error, OSError) else f"{error} in what it is given"
    return ProviderError(f"cannot start {program!r}: {reason}", kind="no-client")


def _widen(pipe: IO[bytes] | None) -> None:
    """Enlarge a pipe, if the system can: a client may exit before its output is read."""
    widen = getattr(fcntl, "F_SETPIPE_SZ", None)
    if pipe is not None and widen is not None:
        with suppress(OSError):  # the user has too many such pipes
            fcntl.fcntl(pipe, widen, _PIPE)


def dying_with_parent() -> Callable[[], None] | None:
    """Return a function for `preexec_fn`: the child gets SIGTERM when this process dies.

    None where that cannot be: outside Linux, and in a process with threads. There Python code must
    not run between fork and exec, as it may wait for a lock that another thread had; and the signal
    would come when the thread ends that started the child. What a dead process leaves is ended by
    the next holder of `.turn` (D14).
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return None
    import ctypes  # slow to load, and only needed to start a program

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def run() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)

    return run


# The program that a session starts, and its environment (decision D33).


def environment_of(host: Host, not_inherited: AbstractSet[str]) -> dict[str, str]:
    """Return a program's environment: this process's, the configured variables, and the marks.

    Args:
        host: the user's settings.
        not_inherited: variables of a client that runs agentsdir, which are left out.
    """
    inherited = {k: v for k, v in host.variables.items() if k not in not_inherited}
    environment = {"HOME": str(host.home), **inherited, **host.environment, **host.marks}
    # A client that is a script has its interpreter looked up, in the agent's folder.
    return {**environment, "PATH": search_path(environment)}


def search_path(environment: Mapping[str, str]) -> str:
    """Return the folders of a `$PATH` in which programs are looked up.

    Empty and relative entries mean another folder for each process, such as that of a project which
    comes from a stranger, so they are left out. Without any folder it is the system's default.
    """
    folders = environment.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(filter(os.path.isabs, folders)) or os.defpath


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the absolute path of the program that a name means; None where there is none.

    A name with a slash is a path, from the current folder; others are looked up in `search_path`.
    """
    found = shutil.which(name, path=search_path(environment))
    return found and os.path.abspath(found)  # noqa: PTH100, links stay as they are


def command_of(
    host: Host, provider: str, product: str, environment: Mapping[str, str]
) -> list[str]:
    """Return the program, found on the search path, and its first arguments.

    Args:
        provider: its name in config.toml, which is the program's own name, too.
        product: its name for people.

    Raises `ProviderError` (kind ``no-client``).
    """
    program, *given = host.command or (provider,)
    found = find_program(program, environment)
    if found is None:
        raise ProviderError(
            f"there is no program {program!r} to run",
            hint=f"install {product}, or name it in config.toml: [providers.{provider}] command",
            kind="no-client",
        )
    return [found, *given]
