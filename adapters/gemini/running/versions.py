"""Which version a program of the client is, where that changes how it is to be run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentsdir.adapters.contract import Host

COMMAND = "gemini"
_PACKAGE = "@google/gemini-cli"
_TAKES_IDS = (0, 41)
_NAMES_BY_SLUG = (0, 29)
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_PATIENCE = 30
_LARGEST_PACKAGE = 1024 * 1024
"""Seconds that a program has to say its version."""


def takes_session_id(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether a new session can be given an id (``--session-id``)."""
    return version_of(command, environment) >= _TAKES_IDS


def names_by_hash(host: Host) -> bool:
    """Tell whether the client on a host names a project's folder by a hash.

    Nothing is started for it: only a package that says so makes a client so old.
    """
    program, *given = host.command or (COMMAND,)
    search = {**host.variables, **host.environment}.get("PATH", os.defpath)
    found = _packaged_version([shutil.which(program, path=search) or program, *given])
    return () < found < _NAMES_BY_SLUG


def version_of(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return a program's version; empty if nobody knows.

    What its package says is read, as starting the program takes seconds; only one without a
    package is asked.
    """
    if found := _packaged_version(command):
        return found
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


def _packaged_version(command: Sequence[str]) -> tuple[int, ...]:
    return next((_numbers(found) for word in command if (found := _packaged(Path(word)))), ())


def _packaged(program: Path) -> str:
    """Return the version in the package that a program's file belongs to."""
    try:
        folders = program.resolve(strict=True).parents[:3]
    except (OSError, RuntimeError):
        return ""
    for folder in folders:
        try:
            with (folder / "package.json").open("rb") as stream:
                said = orjson.loads(stream.read(_LARGEST_PACKAGE))
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(said, dict) and said.get("name") == _PACKAGE:
            return str(said.get("version"))
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    found = _NUMBERS.search(text)
    return tuple(map(int, found.groups())) if found else ()
