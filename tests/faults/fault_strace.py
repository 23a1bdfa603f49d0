"""What strace saw of a command, in the words of the shim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Those with an effect, as far as this machine has them, and kernel locks.
CALLS = (
    "open openat creat write pwrite64 writev pwritev pwritev2 sendfile copy_file_range splice "
    "rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat link linkat symlink symlinkat "
    "truncate ftruncate fallocate fsync fdatasync sync_file_range chmod fchmod fchmodat fchmodat2 "
    "chown fchown lchown fchownat utimensat mknod mknodat setxattr fsetxattr flock fcntl"
)
WORDS = {
    "openat": "open",
    "creat": "open",
    "pwrite64": "pwrite",
    "pwritev2": "pwritev",
    "renameat": "rename",
    "renameat2": "rename",
    "unlinkat": "unlink",
    "mkdirat": "mkdir",
    "linkat": "link",
    "symlinkat": "symlink",
    "ftruncate": "truncate",
    "fdatasync": "fsync",
    "fchmod": "chmod",
    "fchmodat": "chmod",
    "fchmodat2": "chmod",
}
LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
# A path that is named, or the one that strace knows behind a descriptor.
PATHS = re.compile(r'"((?:[^"\\]|\\.)*)"|<(/[^>]*)>')


class Seen(NamedTuple):
    """One system call: its name in the shim's words, its arguments, the paths below the root."""

    name: str
    arguments: str
    paths: tuple[str, ...]

    @property
    def writes(self) -> bool:
        """Whether it is more than a look: all but opening to read, and asking for a share."""
        if self.name in ("open", "open-folder"):
            return re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC)", self.arguments) is not None
        if self.name == "flock":
            return not re.search(r"LOCK_SH|LOCK_UN", self.arguments)
        return True


def strace(
    root: Path, report: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> tuple[list[Seen], subprocess.CompletedProcess[str]]:
    """Run one command under strace; return what it did below `root`, and how it ended.

    Args:
        variables: what its environment has besides ours.
    """
    trace = ",".join(f"?{name}" for name in CALLS.split())
    extra = [f"-E{name}={value}" for name, value in (variables or {}).items()]
    command = [sys.executable, "-m", "agentsdir.cli.main", *arguments]
    done = subprocess.run(
        [
            *("strace", "-f", "-y", "-qq", "-s", "256", f"-etrace={trace}", "-o", report),
            *extra,
            *command,
        ],
        env={**os.environ, "AGENTSDIR_ROOT": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = (_seen(line, str(root)) for line in report.read_text(errors="replace").splitlines())
    return [seen for seen in found if seen is not None], done


def _seen(line: str, root: str) -> Seen | None:
    match = LINE.match(line)
    if match is None:
        return None
    name, arguments = match[1], match[2]
    # What is written may hold anything, paths too; only the descriptor counts.
    head = arguments.split(",")[0] if name in ("write", "pwrite64", "writev") else arguments
    paths = [named or behind for named, behind in PATHS.findall(head)]
    if name.endswith("at") and len(paths) > 1 and not paths[1].startswith("/"):
        paths = [f"{paths[0]}/{paths[1]}", *paths[2:]]
    below = [path[len(root) :].strip("/") for path in paths if _below(path, root)]
    if not below or (name == "fcntl" and "LK" not in arguments):
        return None
    name = "rmdir" if "AT_REMOVEDIR" in arguments else WORDS.get(name, name)
    if name == "open" and "O_DIRECTORY" in arguments:
        name = "open-folder"
    return Seen(name, arguments, tuple(below))


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
