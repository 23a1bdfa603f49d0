"""The client's own store: which files in it are transcripts, and which session is where.

Nothing here trusts an index that a client may keep, or the name of a project's folder: what a
session is stands in its file. Only files whose name is an id are sessions.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.claude import cards
from agentsdir.adapters.claude.detection import first_rows
from agentsdir.adapters.claude.discovery import SIDE_FOLDER, discover
from agentsdir.adapters.claude.sessions import own_session
from agentsdir.adapters.contract import MIN_NATIVE_PREFIX
from agentsdir.adapters.store_folders import ignore, names_in
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.adapters.contract import NativeSession, Refuse, SessionFiles

PROJECTS = "projects"
SUFFIX = ".jsonl"
_SESSION = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_BEGINNING = re.compile(r"[0-9A-Fa-f-]+")
# What stands beside `projects` in a root that a client has used, in any generation.
_ROOT_MARKS = (
    ".claude.json",
    ".credentials.json",
    "backups",
    "history.jsonl",
    "sessions",
    "settings.json",
    "shell-snapshots",
    "statsig",
    "todos",
)


def is_storage(folder: Path) -> bool:
    """Tell whether a folder is a client's root, where settings and secrets stand, too."""
    if not (folder / PROJECTS).is_dir():
        return False
    return folder.name == ".claude" or any((folder / mark).exists() for mark in _ROOT_MARKS)


def transcripts(storage: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield all transcripts with content: of each project the sessions, then their children."""
    for folder in _projects(storage, refuse):
        found = names_in(folder, refuse)
        for name in found:
            path = folder / name
            if (_is_session(name) or _is_child_file(name)) and _is_filled(path):
                yield path
        for name in found:
            if _SESSION.fullmatch(name):
                yield from _children(folder / name, refuse)


def sessions(storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
    """Yield what a list shows of each session, the one written last first.

    The order costs no reading, so the first row is there at once. Left out are sessions that begin
    as a subagent's, or in which nothing was said.
    """
    dated: list[tuple[int, Path]] = []
    for folder in _projects(storage, refuse):
        for name in names_in(folder, refuse):
            if _is_session(name):
                try:
                    dated.append(((folder / name).stat().st_mtime_ns, folder / name))
                except OSError as error:
                    refuse(error)
    for _, path in sorted(dated, reverse=True):
        try:
            card = cards.read_card(path)
        except OSError as error:
            refuse(error)
        else:
            if card is not None:
                yield card


def locate(storage: Path, native_id: str) -> list[Path]:
    """Return the files of one id, or of the ids that begin so, the one written last first.

    An empty file says that a session is not here (some clients leave one when they resume).
    """
    whole = _SESSION.fullmatch(native_id) is not None
    if not whole and (len(native_id) < MIN_NATIVE_PREFIX or not _BEGINNING.fullmatch(native_id)):
        return []
    found: list[tuple[int, Path]] = []
    for folder in _projects(storage, ignore):
        names = [native_id + SUFFIX] if whole else names_in(folder, ignore)
        for name in names:
            path = folder / name
            if name.startswith(native_id) and _is_session(name) and _is_filled(path):
                with suppress(OSError):  # the client may be taking it away
                    found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found, reverse=True)]


def files(main: Path) -> SessionFiles:
    """Return a session as it stands: its main transcript, and the children that belong to it."""
    main_source = Source(str(main), path=main)
    named = own_session(first_rows(main_source.head), main_source.name)
    near = beside(main, {main.stem, named} - {""})
    sources = [Source(str(path), path=path) for path in near]
    for session in discover([main_source, *sources]):
        if session.transcripts[0].source is main_source:
            return session
    raise AssertionError("a main transcript is always of some session")


def beside(main: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the files that may be children of `main`: in its side folder, or flat beside it.

    `names` are those under which the side folder may stand: the file's, and the session's own.
    """
    for name in sorted(names):
        if _SESSION.fullmatch(name) or name == main.stem:
            yield from _children(main.with_name(name), ignore)
    for name in names_in(main.parent, ignore):
        path = main.parent / name
        if _is_child_file(name) and path != main and _is_filled(path):
            yield path


def beside_files(main: Path) -> Iterator[Path]:
    """Yield every file of a session but `main`: all of its side folder, and flat children.

    Links are not followed: what is taken along is the session's own.
    """
    for folder, folders, names in os.walk(main.with_suffix("")):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                yield path
    for child in files(main).transcripts[1:]:
        flat = child.source.path
        if flat is not None and flat.parent == main.parent:
            yield flat


def _projects(storage: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield the folders that may hold sessions, each once, however often links lead to it.

    One level deep and no deeper. `storage` may also be the folder of all projects, or one of them.
    """
    top = storage / PROJECTS
    if not top.is_dir():
        top = storage
    seen: set[tuple[int, int]] = set()
    for folder in (top, *(top / name for name in names_in(top, refuse))):
        try:
            status = folder.stat()
        except OSError:  # a dangling link
            continue
        if folder.is_dir() and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield folder


def _children(side: Path, refuse: Refuse) -> Iterator[Path]:
    """Yield the subagents' files in a session's side folder, however deep a workflow put them."""
    pending = [side / SIDE_FOLDER]
    seen: set[tuple[int, int]] = set()
    while pending:
        folder = pending.pop()
        try:
            status = folder.stat()
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        inner = []
        for name in names_in(folder, refuse):
            path = folder / name
            if path.is_dir():
                inner.append(path)
            elif _is_child_file(name) and _is_filled(path):
                yield path
        pending += reversed(inner)


def _is_session(name: str) -> bool:
    return name.endswith(SUFFIX) and _SESSION.fullmatch(name.removesuffix(SUFFIX)) is not None


def _is_child_file(name: str) -> bool:
    return name.startswith("agent-") and name.endswith(SUFFIX)


def _is_filled(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
