"""What a capture of a working directory passes over (docs/moving.md, "Workspace capture")."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.formats.directory.layout import read_limited
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

ALWAYS = (".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".agentsdir")

# What a client runs, or runs others by, when it is started beside it (decision D33).
_MOST = 1024 * 1024
_EXECUTING = (
    ".claude/hooks",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".gemini/settings.json",
    ".mcp.json",
)


def executes(name: str) -> bool:
    """Tell whether a file of a workspace is a client's settings, hooks or servers."""
    parts = f"/{name.lower()}/"
    return any(f"/{one}/" in parts for one in _EXECUTING)


def is_left_out(name: str) -> bool:
    """Tell whether no capture takes a file, so that none is put back: `ALWAYS`, and `executes`."""
    return executes(name) or any(part in ALWAYS for part in name.lower().split("/"))


class _Rule(NamedTuple):
    matches: re.Pattern[str]
    whole: bool
    folders: bool


class Ignored:
    """Names that are always passed over, and the plain patterns of a top-level .gitignore.

    `unknown` are the lines of it that are left out of account: with ``!`` or ``**``.
    """

    def __init__(self, lines: list[str]) -> None:
        self.unknown: list[str] = []
        self._rules: list[_Rule] = []
        for line in lines:
            pattern = line.rstrip()
            if not pattern or pattern.startswith("#"):
                continue
            if pattern.startswith("!") or "**" in pattern or "\\" in pattern:
                self.unknown.append(pattern)
                continue
            bare = pattern.rstrip("/")
            whole = "/" in bare
            matches = re.compile(translate(bare.lstrip("/")).replace(".*", "[^/]*"))
            self._rules.append(_Rule(matches, whole, pattern.endswith("/")))

    def covers(self, name: str, *, is_folder: bool) -> bool:
        """Tell whether the path `name`, relative to the top, is passed over."""
        last = name.rsplit("/", 1)[-1]
        if last in ALWAYS:
            return True
        return any(
            (is_folder or not rule.folders) and rule.matches.match(name if rule.whole else last)
            for rule in self._rules
        )


def read_ignored(folder: Path) -> Ignored:
    """Return what is passed over in a working directory; an odd .gitignore counts as none.

    Raises `Invalid` (kind ``too-large``) for one of over 1 MiB: what it names is not to be kept.
    """
    try:
        text = read_limited(folder / ".gitignore", _MOST).decode(errors="replace")
    except (FileNotFoundError, Invalid) as error:
        if isinstance(error, Invalid) and error.kind == "too-large":
            raise
        text = ""
    return Ignored(text.splitlines())
