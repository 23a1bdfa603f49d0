"""What a command may touch of the world outside: streams, variables, folders, the clock.

Everything below `cli` is handed what it needs from here; tests hand in their own.
"""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass, field
from io import BufferedWriter, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

from agentsdir.formats.directory.layout import Layout
from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.engine.world import Client, World
    from agentsdir.formats.directory.fold import AgentState

ROOT_VARIABLE = "AGENTSDIR_ROOT"
ROOT_NAME = ".agentsdir"


class FoundRoot(NamedTuple):
    """Where agents are kept, and whether that was found by search instead of being named."""

    folder: Path
    searched: bool


class TurnPlace(NamedTuple):
    """The turn whose program this process is, or was started by."""

    agent_id: str
    turn_id: str


@dataclass
class Environment:
    """One invocation's surroundings.

    `root` is what `--root` said, or empty; `uid` is the user that files should belong to.
    """

    stdin: BinaryIO
    stdout: TextIO
    stderr: TextIO
    variables: Mapping[str, str]
    cwd: Path
    home: Path
    root: str = ""
    login: str = field(default="")
    uid: int = field(default_factory=os.geteuid)

    @classmethod
    def of_process(cls) -> Environment:
        """Return this process's own."""
        variables = os.environ
        home = Path(variables.get("HOME") or "~").expanduser()
        login = variables.get("USER") or variables.get("LOGNAME") or _login()
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
        return cls(sys.stdin.buffer, sys.stdout, sys.stderr, variables, cwd, home, login=login)

    def find_root(self) -> FoundRoot:
        """Return `--root`, `$AGENTSDIR_ROOT`, the nearest `.agentsdir` upwards, or that at home."""
        named = self.root or self.variables.get(ROOT_VARIABLE, "")
        if named:
            if "\0" in named:
                raise UsageError("the root's path holds a NUL")
            return FoundRoot(self.cwd / named, searched=False)
        own = self.home / ROOT_NAME
        for folder in (self.cwd, *self.cwd.parents):
            found = folder / ROOT_NAME
            if (found / "agentsdir.json").is_file():
                return FoundRoot(found, searched=found.resolve() != own.resolve())
        return FoundRoot(own, searched=False)

    @property
    def layout(self) -> Layout:
        """The agents directory that `find_root` finds; the way to it may lead through links."""
        return Layout(self.find_root().folder.resolve())

    @property
    def turn(self) -> TurnPlace | None:
        """The turn of this root's that this process belongs to, as its marks say; None for none."""
        given = [self.variables.get(f"AGENTSDIR_{name}", "") for name in ("ROOT", "AGENT", "TURN")]
        if not all(given) or Path(given[0]) != self.layout.root.resolve():
            return None
        return TurnPlace(given[1], given[2])

    @property
    def world(self) -> World:
        """The engine's surroundings, with the real clock and real fresh ids."""
        import time

        from agentsdir.cli.fresh import FreshIds, now
        from agentsdir.cli.output import note
        from agentsdir.cli.starting import Starting
        from agentsdir.cli.trust import check_trust
        from agentsdir.engine.world import World
        from agentsdir.formats.directory.durability import Disk
        from agentsdir.formats.directory.settings import read_settings

        layout = self.layout
        settings = read_settings(layout)
        return World(
            layout,
            now,
            time.sleep,
            FreshIds(),
            Disk(settings.durability),
            lambda: check_trust(self),
            self.client,
            lambda text: note(self, text),
            settings,
            Starting(self, layout.root),
            self.hand_out,
        )

    def hand_out(self, document: dict[str, Any]) -> bool:
        """Give an outgoing text to the user's hook; tell whether there is one."""
        from agentsdir.cli.connectors import hand_out

        return hand_out(self, document)

    def client(self, state: AgentState) -> Client:
        """Return how this user runs the program behind an agent's provider (config.toml)."""
        from agentsdir.adapters.contract import Host
        from agentsdir.cli.config import provider_config
        from agentsdir.cli.confirmation import Confirmation
        from agentsdir.engine.world import Client

        said = provider_config(self, state.session.provider_name)
        host = Host(
            home=self.home,
            variables=self.variables,
            command=said.command,
            environment=said.environment,
            permission_mode=said.permission_mode,
            confirm=Confirmation(self, state),
        )
        return Client(host, said.model)


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
