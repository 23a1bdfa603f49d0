"""What fault tests need of the machine, found out by trying it.

Where it is missing a test skips and says why. `REQUIRE_FAULTS=1` says that nothing may be missing:
then it fails instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from mounted import Ext4, overlay, tmpfs


def need(*names: str) -> None:
    """Go on only where the machine has all of these; else skip, or fail if nothing may be skipped.

    Args:
        names: `linux`, `root`, `tmpfs`, `ext4`, `strace`, or a program's name.
    """
    for name in names:
        if reason := _lack(name):
            lacking(f"{name}: {reason}")


def lacking(reason: str) -> NoReturn:
    """Skip a test for something that this machine does not have; fail if nothing may be skipped."""
    if os.environ.get("REQUIRE_FAULTS") == "1":
        pytest.fail(f"REQUIRE_FAULTS is set, and this machine lacks {reason}")
    pytest.skip(f"needs {reason}")


def inject(what: str) -> tuple[str, ...]:
    """Return a command that runs another and lets its system calls fail, as strace's `inject` says.

    Calls are counted by name. What is not tampered with runs at full speed.
    """
    return _strace(what, "--seccomp-bpf")


def interrupt(what: str) -> tuple[str, ...]:
    """Return a command that runs another and sends it a signal at a system call.

    Slower than `inject`, for strace forgets the signal where the kernel filters calls for it.
    """
    return _strace(what)


def _strace(what: str, *options: str) -> tuple[str, ...]:
    call = what.split(":")[0]
    quiet = ("strace", "-f", *options, "-qq", "-o", os.devnull)
    return (*quiet, "-e", f"trace={call}", "-e", f"inject={what}")


@cache
def _lack(name: str) -> str:
    """Return why something cannot be had; empty when it can."""
    if sys.platform != "linux":
        return "this is no Linux"
    if name == "linux":
        return ""
    if name in ("root", "tmpfs", "ext4", "overlay") and os.geteuid() != 0:
        return "this is not root"
    probe = {"tmpfs": _try_tmpfs, "ext4": _try_ext4, "overlay": _try_overlay, "strace": _try_strace}
    if name == "root":
        return ""
    try:
        if name in probe:
            probe[name]()
        elif shutil.which(name) is None:
            return "there is no such program"
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _try_tmpfs() -> None:
    with tempfile.TemporaryDirectory() as folder, tmpfs(Path(folder) / "disk", 64 * 1024):
        pass


def _try_overlay() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "lower").mkdir()
        with overlay(Path(folder)):
            pass


def _try_ext4() -> None:
    with tempfile.TemporaryDirectory() as folder, Ext4(Path(folder)) as disk:
        disk.cut()


def _try_strace() -> None:
    # A container may have the program and not the right to trace.
    command = [*inject("fsync:error=EIO"), "true"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
