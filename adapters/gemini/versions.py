"""Which version a program of the client is, where that changes how it is to be run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import orjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE = "@google/gemini-cli"
_TAKES_IDS = (0, 41)
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_PATIENCE = 30
"""Seconds that a program has to say its version."""


def takes_session_id(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether a new session can be given an id (``--session-id``)."""
    return version_of(command, environment) >= _TAKES_IDS


def version_of(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return a program's version; empty if nobody knows.

    What its package says is read, as starting the program takes seconds; only one without a
    package is asked.
    """
    for word in command:
        found = _packaged(Path(word))
        if found:
            return _numbers(found)
    try:
        asked = subprocess.run(
            [*command, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return _numbers(asked.stdout.decode(errors="replace"))


def _packaged(program: Path) -> str:
    """Return the version in the package that a program's file belongs to."""
    try:
        folders = program.resolve(strict=True).parents[:3]
    except (OSError, RuntimeError):
        return ""
    for folder in folders:
        try:
            said = orjson.loads((folder / "package.json").read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(said, dict) and said.get("name") == _PACKAGE:
            return str(said.get("version"))
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    found = _NUMBERS.search(text)
    return tuple(map(int, found.groups())) if found else ()
