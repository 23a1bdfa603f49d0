"""Real runs of the program in a small world whose every byte is known.

A run is a forked child on real descriptors: a process with its own umask, limits, terminal and
audit hooks, without the start of an interpreter.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import resource
import select
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import tty as terminals
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from agentsdir.cli.command_line import COMMANDS, command_of, run
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.main import main
from agentsdir.schemas import check
from agentsdir.schemas.catalogue import kinds

# A forked child finds loaded what a process of its own would import.
for _package in ("cli", "cli.commands", "engine", "engine.validate", "schemas"):
    for _module in iter_modules(import_module(f"agentsdir.{_package}").__path__):
        import_module(f"agentsdir.{_package}.{_module.name}")
for _module_name in ("adapters.script", "adapters.echo", "adapters.claude", "adapters.gemini"):
    import_module(f"agentsdir.{_module_name}")
for _command in COMMANDS:  # to build a command takes longer than to run one
    command_of(_command)
for _kind in kinds():
    check(_kind, {})  # compiles the schemas, and loads what explains a breach

_NO_RETURN = b"Traceback: it did not come back"
PATIENCE = 60  # seconds after which a run hangs; a guard, which nothing is measured by
DOCUMENTED = {int(code) for code in Exit}


@dataclass(frozen=True)
class Ran:
    """What one run left: exit code, both streams, what its audit hook noted, and a `look` after."""

    arguments: tuple[str, ...]
    code: int
    raw_out: bytes
    raw_err: bytes
    notes: list[list[str]]
    seen: list[str] = field(default_factory=list)

    @property
    def out(self) -> str:
        """Stdout as text."""
        return self.raw_out.decode(errors="surrogateescape")

    @property
    def err(self) -> str:
        """Stderr as text."""
        return self.raw_err.decode(errors="surrogateescape")

    @property
    def rows(self) -> list[Any]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.raw_out.split(b"\n") if line]

    def tidy(self) -> Ran:
        """Return itself, having ended by itself, with a documented code and no traceback."""
        short = (self.arguments, self.code, self.raw_out[-500:], self.raw_err[-1500:])
        assert self.code in DOCUMENTED, short
        assert b"Traceback" not in self.raw_err, short
        return self


@dataclass
class Arena:
    """Home, working directory, agents directory, and an `outside` that no command may touch."""

    base: Path
    variables: dict[str, str] = field(default_factory=dict)
    patience: float = PATIENCE

    @classmethod
    def make(cls, base: Path) -> Arena:
        """Make the folders."""
        for name in ("home", "work", "outside"):
            (base / name).mkdir()
        (base / "outside" / "secret.jsonl").write_bytes(b'{"secret": "canary"}\n')
        (base / "outside" / "folder").mkdir()
        (base / "outside" / "folder" / "manifest.json").write_bytes(b'{"files": "canary"}\n')
        return cls(base)

    @property
    def home(self) -> Path:
        """Where the user lives."""
        return self.base / "home"

    @property
    def work(self) -> Path:
        """Where the user stands."""
        return self.base / "work"

    @property
    def outside(self) -> Path:
        """A folder that no command line names."""
        return self.base / "outside"

    @property
    def root(self) -> Path:
        """The agents directory."""
        return self.base / "root"

    def folder(self, agent: str) -> Path:
        """Return an agent's folder."""
        return self.root / "agents" / agent

    def environment(self) -> dict[str, str]:
        """Return the variables of a run."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        own = {
            "HOME": str(self.home),
            "AGENTSDIR_ROOT": str(self.root),
            "AGENTSDIR_PROVIDER": "echo",
            "USER": "me",
        }
        return {**kept, **own, **self.variables}

    def run(self, *arguments: str, **options: Any) -> Ran:
        """Run one command line; see `run_forked`."""
        options.setdefault("cwd", self.work)
        return run_forked(arguments, self.environment(), **options)

    def run_all(self, lines: Iterable[list[str]]) -> list[Ran]:
        """Run command lines one after the other, all watched; see `run_many`."""
        return run_many(
            list(lines), self.environment(), cwd=self.work, watch=self.base, patience=self.patience
        )

    def ok(self, *arguments: str, **options: Any) -> str:
        """Run one command line that must succeed in silence; return its output, stripped."""
        ran = self.run(*arguments, **options)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.out.strip()

    def script(self, name: str, *lines: dict[str, Any] | bytes) -> str:
        """Write a script; return the options that play it."""
        path = self.work / name
        encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in encoded))
        return f"--option=file={path}"

    def tree(self, *folders: Path) -> dict[str, Any]:
        """Return what stands where, without times: type, mode, and bytes or target."""
        return {
            str(path.relative_to(self.base)): _entry(path)
            for folder in folders or (self.base,)
            for path in sorted([folder, *folder.rglob("*")])
        }


def _entry(path: Path) -> tuple[str, str, bytes]:
    status = path.lstat()
    content = b""
    if stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))  # noqa: PTH115, as bytes
    return stat.filemode(status.st_mode)[0], f"{stat.S_IMODE(status.st_mode):04o}", content


@dataclass
class Mould:
    """One agents directory with two agents that have lived, copied for a test that spoils one."""

    arena: Arena
    victim: str = ""
    other: str = ""

    def __post_init__(self) -> None:
        """Let both agents have a turn and a suspension."""
        self.victim = self.arena.ok("new", "--name", "victim")
        self.other = self.arena.ok("new", "--name", "other")
        for agent in (self.victim, self.other):
            self.arena.ok("send", agent, "hello")
            self.arena.ok("suspend", agent)
            self.arena.ok("send", agent, "again")

    def copy(self, base: Path) -> Arena:
        """Return the same world at another place, which exists already."""
        shutil.copytree(self.arena.base, base, dirs_exist_ok=True, symlinks=True)
        return Arena(base)

    @property
    def transcript(self) -> str:
        """The native path of the victim's transcript."""
        folder = self.arena.folder(self.victim) / "transcripts"
        (path,) = folder.glob("*.jsonl")
        return path.name


def has_devices(folder: Path) -> bool:
    """Tell whether this user may make and open a device here."""
    device = folder / "device"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        device.read_bytes()
    except OSError:
        return False
    finally:
        device.unlink(missing_ok=True)
    return True


def rewritten(log: bytes, change: Callable[[int, dict[str, Any]], Any]) -> bytes:
    """Return a log with records changed, and each `prev` right again."""
    from agentsdir.formats.store.log import NO_LINE, line_hash

    lines: list[bytes] = []
    for number, line in enumerate(log.splitlines(keepends=True)):
        record = json.loads(line)
        change(number, record)
        record["prev"] = line_hash(lines[-1]) if lines else NO_LINE
        lines.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return b"".join(lines)


def run_forked(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    *,
    cwd: Path,
    stdin: bytes = b"",
    tty: bool = False,
    umask: int = 0o022,
    memory: int = 0,
    before: Callable[[], None] | None = None,
) -> Ran:
    """Run one command line in a child of this process.

    Args:
        tty: put a terminal of its own on stdout, and another on stderr.
        memory: bytes of address space the child may have, beyond what it has when it starts.
        before: called in the child first.
    """
    with _files(3) as (source, out, err):
        source.write(stdin)
        source.seek(0)
        screens = [_Screen(out), _Screen(err)] if tty else []
        outputs = [screen.slave for screen in screens] or [out.fileno(), err.fileno()]

        def program() -> None:
            _take_streams(source.fileno(), *outputs)
            os.umask(umask)
            sys.argv = ["agentsdir", *arguments]
            if memory:
                limit = _address_space() + memory
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            if before is not None:
                before()
            main()

        status = _wait(_fork(program, environment, cwd), screens, PATIENCE)
        for screen in screens:
            screen.close()
        return Ran(arguments, os.waitstatus_to_exitcode(status), _read(out), _read(err), [])


def run_many(
    lines: list[list[str]],
    environment: dict[str, str],
    *,
    cwd: Path,
    watch: Path,
    patience: float,
    look: Callable[[], list[str]] = list,
) -> list[Ran]:
    """Run command lines one after the other in one child: a table of them takes a second.

    Args:
        watch: where to note every path that Python opens, lists, makes or removes; of the
            processes that it starts or signals, all are noted.
        patience: seconds after which all together hang.
        look: called in the child after each line; what it returns is kept with the run.
    """
    with _files(4) as (out, err, notes, results):

        def program() -> None:
            sys.addaudithook(_Watcher(notes, str(watch)))
            for arguments in lines:
                for stream in (out, err, notes):
                    os.ftruncate(stream.fileno(), os.lseek(stream.fileno(), 0, os.SEEK_SET))
                _take_streams(os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno())
                try:
                    code = int(run(arguments, Environment.of_process()))
                except BaseException:  # noqa: BLE001, shown as what it would be to a person
                    code = 99
                    os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
                sys.stdout.flush()
                sys.stderr.flush()
                pickle.dump((code, _read(out), _read(err), _read(notes), look()), results)
                results.flush()

        _wait(_fork(program, environment, cwd), [], patience)
        results.seek(0)
        done = []
        for arguments in lines:
            try:
                code, said, complained, noted, seen = pickle.load(results)
            except EOFError:  # it hangs, or has ended the process
                code, said, complained, noted, seen = 99, b"", _NO_RETURN, b"", []
            events = [json.loads(line) for line in noted.splitlines()]
            done.append(Ran(tuple(arguments), code, said, complained, events, seen))
        return done


@contextmanager
def _files(count: int) -> Iterator[list[Any]]:
    with ExitStack() as stack:
        yield [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]


def _read(stream: Any) -> bytes:
    descriptor = stream.fileno()
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


class _Screen:
    """One terminal, whose output is kept."""

    def __init__(self, kept: Any) -> None:
        self.master, self.slave = os.openpty()
        terminals.setraw(self.slave)  # no CR before LF: what is read is what was written
        self._kept = kept

    def drain(self) -> bool:
        """Keep what has come; tell whether there was anything."""
        ready, _, _ = select.select([self.master], [], [], 0)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as error:
            if error.errno != errno.EIO:  # which says that the last writer has closed it
                raise
            return False
        self._kept.write(data)
        return bool(data)

    def close(self) -> None:
        """Keep the rest."""
        while self.drain():
            pass
        self._kept.flush()
        os.close(self.slave)
        os.close(self.master)


def _wait(child: int, screens: list[_Screen], patience: float) -> int:
    end = time.monotonic() + patience
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        for screen in screens:
            screen.drain()
        if ended:
            return status
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.001)


def _fork(program: Callable[[], None], environment: dict[str, str], cwd: Path) -> int:
    """Start a child that runs `program` and ends with it; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        gc.freeze()  # what the tests hold is nothing that a child should look through
        gc.set_threshold(100_000)
        sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        # Durability is tested elsewhere; here, waiting for the disk would take most of the time.
        os.fsync = os.fdatasync = lambda descriptor: None
        program()
    except SystemExit as done:
        os._exit(done.code if isinstance(done.code, int) else 1)
    except BaseException:  # noqa: BLE001, a child of a test must not go on as one
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
        os._exit(99)
    finally:
        os._exit(0)


def _take_streams(*descriptors: int) -> None:
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate(("r", "w", "w"))
    )


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


class _Watcher:
    """Notes what an audit hook sees of files."""

    EVENTS = frozenset(
        {
            "open", "os.chmod", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename",
            "os.rmdir", "os.scandir", "os.symlink", "os.truncate",
        }
    )  # fmt: skip
    PROCESSES = ("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill")

    def __init__(self, kept: Any, base: str) -> None:
        self._kept = kept
        self._base = base

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note one event."""
        if event.startswith(self.PROCESSES):
            os.write(self._kept.fileno(), json.dumps([event, repr(arguments)]).encode() + b"\n")
        if event not in self.EVENTS:
            return
        words = [os.fsdecode(a) for a in arguments if isinstance(a, (str, bytes, os.PathLike))]
        if any(word.startswith(self._base) for word in words):
            os.write(self._kept.fileno(), json.dumps([event, *words]).encode() + b"\n")


def touched(ran: Ran, folder: Path) -> Iterator[str]:
    """Yield the noted events that name something in `folder`, or lead there by a link."""
    real = os.path.realpath(folder)
    for event, *words in ran.notes:
        for word in words[:2]:
            if Path(word).is_absolute() and _below(word, real):
                yield f"{event} {word}"


def _below(path: str, folder: str) -> bool:
    # The last part is not resolved: to open a link itself without following it is no harm.
    given = Path(os.path.normpath(path))
    real = given.parent.resolve() / given.name
    return real.is_relative_to(folder)
