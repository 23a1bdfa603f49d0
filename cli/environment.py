"""What a command uses of its process: streams, environment variables, folders, the user.

The layers below `cli` are passed what they need; tests pass their own.
"""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO

from agentsdir.cli.output import note
from agentsdir.formats import times
from agentsdir.formats.errors import SessionStateError, UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.layout import ROOT_NAME, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from agentsdir.cli.questions import Ask
    from agentsdir.cli.status_line import StatusLine

ROOT_VARIABLE = "AGENTSDIR_ROOT"
CONFIG_VARIABLE = "XDG_CONFIG_HOME"
HOOK_OF = "AGENTSDIR_HOOK"
"""The variable with the ids of the agents whose turns wait for the hook of this process."""
HOOKED = "AGENTSDIR_HOOKED"
"""The variable with the ids of the agents whose hooks led to this process, whether they wait for it
or not, and `session-create` for that hook of any agent."""


class FoundRoot(NamedTuple):
    """Where agents are kept, and whether that was found by search instead of being named."""

    folder: Path
    searched: bool


class EnclosingTurn(NamedTuple):
    """The turn in which this command runs, as a tool call of the turn's agent."""

    agent_id: str
    turn_id: str


def working_directory() -> Path:
    """Return the working directory; `/` where it is gone, so that a root that is named works."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


class Environment:
    """Everything that one invocation takes from its process.

    `root` is the value of `--root`, or empty; `uid` the user that files should belong to;
    `terminal` where questions are asked; `ask` asks whether a tool may run, where that is not at
    the terminal; `arguments` the words of the command line. `overrides` has fields of `Services`
    that replace the real ones: a clock, ids, how turns are started. `status_line` is what a running
    turn redraws at the terminal; `on_asked` is called with the id of a call and the seconds that a
    question about it waited. `frame` is given where another process reads stdout and stderr and
    has to tell JSON from text: each JSON value begins with it, and a turn's events come with its
    result (docs/protocol.md). No text can hold it, as only the two processes know it.
    """

    arguments: tuple[str, ...] = ()
    terminal = Path("/dev/tty")
    ask: Ask | None = None
    status_line: StatusLine | None = None
    on_asked: Callable[[str, float], None] | None = None
    frame = ""
    overrides: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        stdin: BinaryIO,
        stdout: TextIO,
        stderr: TextIO,
        variables: Mapping[str, str],
        cwd: Path,
        home: Path,
        root: str = "",
        login: str = "",
        uid: int | None = None,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.variables = variables
        self.cwd = cwd
        self.home = home
        self.root = root
        self._login = login
        self.uid = os.geteuid() if uid is None else uid
        self._found: FoundRoot | None = None
        self._layout: Layout | None = None
        self.warned_of_settings = False

    @classmethod
    def of_process(cls) -> Environment:
        """Return the environment of this process."""
        variables = os.environ
        home = Path(variables.get("HOME") or "~")
        with suppress(RuntimeError):  # there is no such user; what needs no home still works
            home = home.expanduser()
        _open_closed_streams()
        if isinstance(sys.stdout.buffer, RawIOBase):
            # PYTHONUNBUFFERED: a raw stream drops the rest of a write that the system cut short.
            buffered = BufferedWriter(sys.stdout.detach())
            sys.stdout = TextIOWrapper(buffered, "utf-8", "backslashreplace")
        for stream in (sys.stdout, sys.stderr):
            # JSON is UTF-8 whatever the locale says.
            assert isinstance(stream, TextIOWrapper)
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        return cls(sys.stdin.buffer, sys.stdout, sys.stderr, variables, working_directory(), home)

    def without_status(self) -> AbstractContextManager[None]:
        """Return a context in which no status is drawn at the terminal, and none stands there."""
        return nullcontext() if self.status_line is None else self.status_line.paused()

    @property
    def login(self) -> str:
        """The user's login name."""
        named = self._login or self.variables.get("USER") or self.variables.get("LOGNAME")
        return named or _login()

    def now(self) -> datetime:
        """Return the time."""
        clock = self.overrides.get("now")
        return times.from_text(clock()) if clock else datetime.now(UTC)

    @property
    def config_folder(self) -> Path:
        """The folder of the user's configuration, which may not exist."""
        configured = Path(self.variables.get(CONFIG_VARIABLE, ""))
        home = configured if configured.is_absolute() else self.home / ".config"
        return home / "agentsdir"

    def find_root(self) -> FoundRoot:
        """Return `--root`, `$AGENTSDIR_ROOT`, the nearest `.agentsdir` upwards, or that at home.

        The first result is kept, so that a root which is made meanwhile does not replace it.
        """
        if self._found is None:
            self._found = self._find_root()
        return self._found

    def _find_root(self) -> FoundRoot:
        named = self.root or self.variables.get(ROOT_VARIABLE, "")
        if named:
            if "\0" in named:
                raise UsageError("the root's path holds a NUL")
            return FoundRoot(self.cwd / named, searched=False)
        own = self.home / ROOT_NAME
        for folder in (self.cwd, *self.cwd.parents):
            found = folder / ROOT_NAME
            if (found / "agentsdir.json").is_file():
                return FoundRoot(found, searched=found != own and resolved(found) != resolved(own))
        return FoundRoot(own, searched=False)

    @property
    def layout(self) -> Layout:
        """The agents directory that `find_root` finds, with links resolved."""
        if self._layout is None:
            self._layout = Layout(resolved(self.find_root().folder))
        return self._layout

    @property
    def turn(self) -> EnclosingTurn | None:
        """The turn of this root that the process belongs to, by its environment variables."""
        given = [self.variables.get(f"AGENTSDIR_{name}", "") for name in ("ROOT", "AGENT", "TURN")]
        if not all(given):
            return None
        if Path(given[0]) != self.layout.root.resolve():
            try:
                # By device and inode: a bind mount or a link names the same root by another path.
                if not os.path.samestat(Path(given[0]).stat(), self.layout.root.stat()):
                    return None
            except (OSError, ValueError):
                return None
        return EnclosingTurn(given[1], given[2])

    def check_outside_turn(self, what: str) -> None:
        """Raise `SessionStateError` (kind ``in-turn``) in a tool call of an agent, of any root.

        Args:
            what: what a turn cannot change.
        """
        if self.variables.get("AGENTSDIR_TURN"):
            raise SessionStateError(
                f"a turn cannot change {what}",
                hint="an agent must not grant itself anything; do it in a shell of your own",
                kind="in-turn",
            )

    @property
    def hook_of(self) -> list[str]:
        """The ids of the agents whose turns wait for the hook that started this process."""
        return self.variables.get(HOOK_OF, "").split()

    @property
    def hooked(self) -> frozenset[str]:
        """The value of `AGENTSDIR_HOOKED`, in words."""
        return frozenset(self.variables.get(HOOKED, "").split())

    def count_waits(self, limit: float | None = None) -> None:
        """Add up how long this command waits for locks, and note on stderr each wait of a second.

        Args:
            limit: seconds that the waits may take together (`--wait`); None for the default.
        """
        waits = locks.waits()
        if waits.tell != self.notify:  # of no command, or of another one
            locks.count_on(waits := locks.Waits(self.notify))
        if limit is not None:
            waits.limit = limit

    def notify(self, text: str) -> None:
        """Print a note on stderr."""
        note(self, text)


def resolved(path: Path) -> Path:
    """Return a path with its links resolved. Raises `UsageError` if they form a loop."""
    try:
        return path.resolve()
    except RuntimeError as error:  # until Python 3.13
        raise UsageError(f"{path} cannot be used: its links form a loop") from error


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container often knows its user by number only
        return str(os.getuid())


def _open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the caller closed (``>&-``).

    Otherwise the next file that is opened, a log perhaps, would become standard output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115, open until the process ends
