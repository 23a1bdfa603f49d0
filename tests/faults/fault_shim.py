"""The Python side of shim.c: building it, telling it what to do, reading what it saw."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")
HEAD = struct.Struct("=8i480s")
SIZE = HEAD.size + (1 << 20)
CONTROL = "FAULT_CONTROL"


class Mode(IntEnum):
    """What becomes of call number `at`."""

    RECORD = 0
    KILL = 1
    FAIL_ONCE = 2
    FAIL_FROM = 3
    SHORT_THEN_FAIL = 4
    SHORT_THEN_KILL = 5


class Flag(IntFlag):
    """Lies that hold for all calls; each but the first is a negative control."""

    SKIP_SYNC = 1
    """fsync says yes and does nothing: quick, and no difference to a process that is killed."""
    FREE_LOCKS = 2
    REFUSE_TRUNCATE = 4
    LOSE_TRUNCATE = 8


class Fault(NamedTuple):
    """What the shim is to do; `at` counts from 1."""

    mode: Mode = Mode.RECORD
    at: int = 0
    error: int = 0
    flags: Flag = Flag.SKIP_SYNC


class Call(NamedTuple):
    """One counted call.

    `result` is None where the process died in it; `forced` says that the shim refused it or cut
    it short, and not the system.
    """

    index: int
    name: str
    path: str
    other: str
    detail: int
    result: int | None
    error: int
    forced: bool

    @property
    def target(self) -> str:
        """Return the path that it changes: of a rename, the new name."""
        return self.other or self.path

    def __str__(self) -> str:
        names = self.path + (f" -> {self.other}" if self.other else "")
        result = "?" if self.result is None else self.result
        why = f" {os.strerror(self.error)}" if self.error else ""
        return f"{self.index} {self.name} {names} ({self.detail}) = {result}{why}"


def build(folder: Path) -> Path:
    """Compile the shim into `folder`."""
    library = folder / "shim.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE, "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return library


class Control:
    """The file that the shim in another process maps, or in this one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), SIZE)

    def arm(self, root: Path, fault: Fault) -> None:
        """Forget the trace, and begin to count what happens below `root`."""
        head = (0, fault.mode, fault.at, fault.error, fault.flags, 0, 0, 0, os.fsencode(root))
        self._map[: HEAD.size] = HEAD.pack(*head)
        self._map[:4] = struct.pack("=i", 1)

    def disarm(self) -> None:
        """Let every call pass uncounted; the trace stays."""
        self._map[:4] = struct.pack("=i", 0)

    def calls(self) -> list[Call]:
        """Return the trace, with paths below the root."""
        head = HEAD.unpack(self._map[: HEAD.size])
        used, root = head[7], os.fsdecode(head[8].rstrip(b"\0"))
        text = os.fsdecode(self._map[HEAD.size : HEAD.size + used])
        return [_call(line, root) for line in text.splitlines()]


def _call(line: str, root: str) -> Call:
    index, name, path, other, detail, *after = line.split("\t")
    below = [p.removeprefix(root).removeprefix("/") for p in (path, other)]
    result, error, forced = map(int, after) if after else (None, 0, 0)
    return Call(int(index), name, below[0], below[1], int(detail), result, error, bool(forced))


def preloaded(library: Path, control: Control) -> dict[str, str]:
    """Return the variables of a process that runs under the shim."""
    return {**os.environ, "LD_PRELOAD": str(library), CONTROL: str(control.path)}
