"""Agent profiles: what a root has for the working directories of its agents.

See docs/configuration.md, "Profiles".

Nothing of a profile is executed by us, and nothing that a client would execute unasked is taken
from one: settings, hooks and MCP servers are refused by name (decision D33).
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.contract import Profile
from agentsdir.adapters.sides import ProgramProvider
from agentsdir.formats.directory import documents
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.bundles import checked_name
from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.errors import AgentsdirError, Invalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.sides import Provider
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

MAX_FILES = 1000
MAX_SIZE = 16 * 1024 * 1024
_INSTRUCTIONS = "instructions.md"
_FOLDERS = ("skills", "agents")
_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch
_REFUSED = re.compile(r"(\.?mcp|hooks?|settings)([.-].*)?", re.IGNORECASE)
# What a client would run or connect to when it merely reads such a file; and a key whose name is
# written in escapes, which may be any of them.
_REFUSED_KEY = re.compile(
    rb"""(^|[\s{,?])["']?(hooks|mcp_?servers|permissionMode|agent_card_(url|json))["']?\s*:"""
    rb"""|"[^"\n]*\\[^\n]*"\s*:""",
    re.IGNORECASE | re.MULTILINE,
)


def load_profile(layout: Layout, name: str) -> Profile:
    """Return a profile of this root.

    Raises `UsageError` (kind ``no-such-profile``) when there is none of that name, and `Invalid`
    (kind ``bad-profile``) for one that holds a link, too much, or what no profile may hold.
    """
    top = layout.root / "profiles" / name
    if not _is_name(name) or not top.is_dir() or top.is_symlink() or top.parent.is_symlink():
        raise UsageError(
            f"there is no profile {name!r} in {layout.root / 'profiles'}",
            hint=f"a profile is a folder there, with {_INSTRUCTIONS}, skills/ and agents/",
            kind="no-such-profile",
        )
    files: dict[str, bytes] = {}
    left = MAX_SIZE
    for entry in documents.entries(top):
        path = Path(entry.path)
        inner = path.relative_to(top).as_posix()
        _check_place(top, inner, is_folder=entry.is_dir(follow_symlinks=False))
        if entry.is_dir(follow_symlinks=False):
            continue
        with os.fdopen(open_plain(path), "rb") as stream:
            data = stream.read(left + 1)
        left -= len(data)
        if left < 0 or len(files) == MAX_FILES:
            raise _bad(top, f"it has more than {MAX_FILES} files, or {MAX_SIZE} bytes")
        if _REFUSED_KEY.search(_front(data)):
            raise _bad(top, f"{inner} brings hooks, MCP servers or permissions")
        files[inner] = data
    return Profile(
        instructions=files.pop(_INSTRUCTIONS, b"").decode(errors="replace"),
        skills=_below(files, "skills"),
        agents=_below(files, "agents"),
    )


def _check_place(top: Path, inner: str, *, is_folder: bool) -> None:
    parts = PurePosixPath(inner).parts
    known = parts[0] in _FOLDERS and (is_folder or len(parts) > 1)
    if not known and (inner != _INSTRUCTIONS or is_folder):
        raise _bad(top, f"{inner} is none of {_INSTRUCTIONS}, skills/ and agents/")
    if any(_REFUSED.fullmatch(part) for part in parts):
        raise _bad(top, f"{inner} is named like settings, hooks or MCP servers")
    checked_name(inner)


def _front(data: bytes) -> bytes:
    """Return the front matter of a Markdown file, or nothing."""
    data = data.replace(b"\r", b"\n").lstrip(b"\xef\xbb\xbf \t\n")
    if not data.startswith(b"---"):
        return b""
    end = data.find(b"\n---", 3)
    return data[: end if end >= 0 else len(data)]


def _below(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    start = f"{folder}/"
    return {name[len(start) :]: data for name, data in files.items() if name.startswith(start)}


def _bad(top: Path, reason: str) -> Invalid:
    return Invalid(f"the profile {top} is not used: {reason}", kind="bad-profile")


class _Applied(NamedTuple):
    written: list[dict[str, str]]
    skipped: list[str]


def apply_profile(
    world: World,
    paths: AgentPaths,
    state: AgentState,
    provider: Provider,
    *,
    anew: bool = False,
) -> None:
    """Write the agent's profile into its working directory, before each turn until one succeeded.

    Only what is missing is written; the event says what, and what was in the way is told.

    Args:
        anew: write it in any case; the provider may be another than ran the turns before.

    Raises what `load_profile` raises, and `AgentsdirError` when the system refuses, or (kind
    ``no-folder``) when the working directory is gone, and `Invalid` (kind ``private-folder``) when
    a file would stand where programs keep settings.
    """
    done_before = state.counters["turns"] > state.counters["failedTurns"] and not anew
    if not state.profile or done_before or not isinstance(provider, ProgramProvider):
        return
    wanted = provider.workspace_files(load_profile(world.layout, state.profile))
    folder = Path(state.cwd)
    if not folder.is_dir():
        raise AgentsdirError(
            f"the working directory {folder} is gone", hint="make it again", kind="no-folder"
        )
    for name in sorted(wanted):
        if world.is_private(folder / checked_name(name)):
            raise Invalid(
                f"the profile {state.profile} is not used: {folder / name} is where settings are "
                "kept, or in an agents directory",
                hint=f"`agentsdir set {paths.id} cwd=DIR` gives the agent another folder",
                kind="private-folder",
            )
    done = _write(folder, wanted)
    if done.written or done.skipped:
        data = {
            "profile": state.profile,
            "cwd": state.cwd,
            "files": done.written,
            "skipped": done.skipped,
        }
        with write_agent(paths, disk=world.disk, known=state) as writer:
            writer.append("profile.applied", data, world.now())
    for name in done.skipped:
        world.tell(f"{folder / name} is not of the profile {state.profile}; it was left")


def _write(folder: Path, wanted: Mapping[str, bytes]) -> _Applied:
    done = _Applied([], [])
    for name, data in sorted(wanted.items()):
        path = folder / checked_name(name)
        try:
            if _is_in_the_way(folder, path, data):
                done.skipped.append(name)
            elif not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _create(path, data)
                done.written.append({"path": name, "sha256": sha256(data).hexdigest()})
        except OSError as error:
            raise AgentsdirError(f"cannot write {path}: {error.strerror}") from error
    return done


def _is_in_the_way(folder: Path, path: Path, data: bytes) -> bool:
    """Tell whether something else stands there; a link is, wherever it leads."""
    for above in path.relative_to(folder).parents[:-1]:
        place = folder / above
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return True
    try:
        with os.fdopen(open_plain(path), "rb") as stream:
            return stream.read(len(data) + 1) != data
    except FileNotFoundError:
        return path.is_symlink()
    except AgentsdirError:
        return True


def _create(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as stream:
        stream.write(data)
