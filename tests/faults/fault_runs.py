"""Command lines under the shim, in a process that has imported everything, and forks for faults."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fault_shim import Call, Control, Fault

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment

PATIENCE = 60
"""Seconds after which a child that hangs is killed by SIGALRM, which a test then reports."""

Tree = dict[str, tuple[int, int, bytes]]


class Done(NamedTuple):
    """What one command left: an exit code and its output, or the signal that killed it."""

    code: int | None
    out: str = ""
    err: str = ""
    signal: int = 0

    @property
    def rows(self) -> list[Any]:
        """Return stdout as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        """Return stdout as one JSON document."""
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"exit {self.code}, signal {self.signal}, stdout {self.out!r}, stderr {self.err!r}"


class Runner:
    """Runs commands on one root after the other; `control` is the shim's in this process."""

    def __init__(self, control: Control, home: Path) -> None:
        self._control = control
        self._home = home

    def faulty(
        self, root: Path, arguments: Sequence[str], fault: Fault, patch: Callable[[], None]
    ) -> tuple[Done, list[Call]]:
        """Run one command under a fault; return what it left and which calls it made."""

        def work() -> Done:
            patch()
            self._control.arm(root, fault)
            try:
                return self._command(root, arguments)
            finally:
                self._control.disarm()

        done = _forked(work)
        self._control.disarm()
        return done if isinstance(done, Done) else Done(None, signal=done), self._control.calls()

    def sound(self, root: Path, steps: Sequence[Sequence[str]]) -> list[Any]:
        """Run commands without a fault in this very process; `["tree"]` takes a picture.

        Here, because a fork costs more than most commands do.
        """
        self._control.arm(root, Fault())
        try:
            return [
                tree_of(root) if step == ["tree"] else self._command(root, step) for step in steps
            ]
        finally:
            self._control.disarm()

    def must(self, root: Path, *arguments: str) -> Done:
        """Run one command that prepares a case."""
        (done,) = self.sound(root, [arguments])
        assert done.code == 0, f"{arguments}: {done}"
        return done

    def _command(self, root: Path, arguments: Sequence[str]) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        variables = {"AGENTSDIR_ROOT": str(root), "AGENTSDIR_PROVIDER": "echo"}
        variables["HOME"] = str(self._home)
        env = Environment(io.BytesIO(), out, err, variables, self._home, self._home, login="me")
        try:
            code = int(run(list(arguments), env))
        except BaseException:  # noqa: BLE001, the rules want to see whatever it is
            err.write(traceback.format_exc())
            code = 1
        return Done(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _forked(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a child, or the number of the signal that killed it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            signal.alarm(PATIENCE)
            with os.fdopen(write, "wb") as stream:
                stream.write(pickle.dumps(work()))
            code = 0
        except BaseException:  # noqa: BLE001, a child must never run on into its parent's work
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        return -status
    if status:
        raise RuntimeError("a child failed; stderr says why")
    return pickle.loads(data)


def tree_of(root: Path) -> Tree:
    """Return time of change, mode and bytes of whatever stands below `root`."""
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in (".", *files):
            path = os.path.join(folder, name)  # noqa: PTH118, thousands of them
            status = os.lstat(path)
            data = b""
            if name != ".":
                with open(path, "rb") as stream:  # noqa: PTH123
                    data = stream.read()
            below = os.path.normpath(os.path.relpath(path, root))
            found[below] = (status.st_mtime_ns, status.st_mode, data)
        folders.sort()
    return found
