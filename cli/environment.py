"""What a command may touch of the world outside: streams, variables, folders, the clock, chance.

Everything below `cli` is handed what it needs from here; tests hand in their own.
"""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import suppress
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TextIO

from agentsdir.cli.output import note
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.layout import ROOT_NAME, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.formats.store.locks import Waits

ROOT_VARIABLE = "AGENTSDIR_ROOT"
HOOK_OF = "AGENTSDIR_HOOK"
"""The variable that names the agents whose turns wait for the hook of this process."""


class FoundRoot(NamedTuple):
    """Where agents are kept, and whether that was found by search instead of being named."""

    folder: Path
    searched: bool


class TurnPlace(NamedTuple):
    """The turn whose program this process is, or was started by."""

    agent_id: str
    turn_id: str


class Environment:
    """One invocation's surroundings.

    `root` is what `--root` said, or empty; `uid` is the user that files should belong to.
    `terminal` is where questions are asked, `arguments` are the command line's words. `instead` has
    fields of `Services` that take the place of the real ones: a clock, ids, how turns are started.
    """

    arguments: tuple[str, ...] = ()
    terminal = Path("/dev/tty")
    instead: Mapping[str, Any] = MappingProxyType({})

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
        self._waits: Waits | None = None
        self._found: FoundRoot | None = None
        self._layout: Layout | None = None
        self.named_settings = False

    @classmethod
    def of_process(cls) -> Environment:
        """Return this process's own."""
        variables = os.environ
        home = Path(variables.get("HOME") or "~")
        with suppress(RuntimeError):  # nobody has that name; what needs no home still works
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
        try:
            cwd = Path.cwd()
        except FileNotFoundError:
            cwd = Path("/")  # the folder is gone; commands that name their root still work
        return cls(sys.stdin.buffer, sys.stdout, sys.stderr, variables, cwd, home)

    @property
    def login(self) -> str:
        """What the user is called on this machine."""
        named = self._login or self.variables.get("USER") or self.variables.get("LOGNAME")
        return named or _login()

    def find_root(self) -> FoundRoot:
        """Return `--root`, `$AGENTSDIR_ROOT`, the nearest `.agentsdir` upwards, or that at home.

        What was found first is kept: a root that is made meanwhile is not the one in force.
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
        """The agents directory that `find_root` finds; the way to it may lead through links."""
        if self._layout is None:
            self._layout = Layout(resolved(self.find_root().folder))
        return self._layout

    @property
    def turn(self) -> TurnPlace | None:
        """The turn of this root's that this process belongs to, as its marks say; None for none."""
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
        return TurnPlace(given[1], given[2])

    @property
    def hook_of(self) -> list[str]:
        """The agents whose turns wait for the hook that this process was started by."""
        return self.variables.get(HOOK_OF, "").split()

    def count_waits(self, limit: float | None = None) -> None:
        """Count what this command waits for locks, and say on stderr when a wait gets long.

        Args:
            limit: seconds that its waits may take together (`--wait`), if one was given.
        """
        if self._waits is None:
            self._waits = locks.Waits(self.tell)
        if limit is not None:
            self._waits.limit = limit
        locks.count_on(self._waits)

    def tell(self, text: str) -> None:
        """Say something to the person at the terminal."""
        note(self, text)


def resolved(path: Path) -> Path:
    """Return a path without links. Raises `UsageError` where they go round."""
    try:
        return path.resolve()
    except RuntimeError as error:  # until Python 3.13
        raise UsageError(f"{path} leads nowhere: its links go round") from error


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container often knows its user by number only
        return str(os.getuid())


def _open_closed_streams() -> None:
    """Put nothing in place of standard streams that the caller closed (``>&-``).

    Otherwise the next file that is opened, a log perhaps, would become standard output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115, lives with us
