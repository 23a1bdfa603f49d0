"""Sessions in the real clients' own stores: listing them, and finding one by its id.

docs/reading.md, "Native sessions".
"""

from __future__ import annotations

import heapq
import re
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.contract import MIN_NATIVE_PREFIX
from agentsdir.adapters.sides import StoreReader
from agentsdir.adapters.store_folders import ignore
from agentsdir.engine.agents import few
from agentsdir.engine.parsing import Found
from agentsdir.formats.errors import NoSuchAgent, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.contract import Architecture, NativeSession, Refuse

_REFERENCE = re.compile(f"[0-9A-Za-z_-]{{{MIN_NATIVE_PREFIX},128}}")


class Store(NamedTuple):
    """One client's storage folder, and who reads it."""

    architecture: Architecture
    reader: StoreReader
    folder: Path


class Located(NamedTuple):
    """A session's main transcript in a client's store."""

    store: Store
    main: Path

    @property
    def found(self) -> Found:
        """The session as it stands, with its children."""
        return Found(self.store.architecture, self.store.reader.files(self.main))


def stores_of(home: Path, cwd: Path, variables: Mapping[str, str]) -> list[Store]:
    """Return the stores that this user's clients have, as their own variables place them."""
    return [
        Store(architecture, reader, cwd / reader.paths(home, cwd, variables).storage)
        for architecture, reader in _readers()
    ]


def stores_at(folder: Path) -> list[Store]:
    """Return a folder as a store of each client that keeps one."""
    return [Store(architecture, reader, folder) for architecture, reader in _readers()]


def _readers() -> Iterator[tuple[Architecture, StoreReader]]:
    for architecture in registry.built_in():
        if isinstance(architecture.reader, StoreReader):
            yield architecture, architecture.reader


def list_native(
    stores: Iterable[Store], refuse: Refuse
) -> Iterator[tuple[Architecture, NativeSession]]:
    """Yield the sessions of all stores, the one written last first. A missing store has none."""

    def of(store: Store) -> Iterator[tuple[Architecture, NativeSession]]:
        for session in store.reader.sessions(store.folder, refuse):
            yield store.architecture, session

    there = [of(store) for store in stores if _is_there(store, refuse)]
    return heapq.merge(*there, key=lambda row: row[1].modified, reverse=True)


def _is_there(store: Store, refuse: Refuse) -> bool:
    """Tell whether a store's folder is there; `refuse` gets what keeps it from being looked at."""
    try:
        return stat.S_ISDIR(store.folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        refuse(error)
        return False


def main_in(stores: Iterable[Store], reader: StoreReader, native_id: str) -> Path | None:
    """Return the main transcript that a client's store has of a session; None for none."""
    for store in stores:
        if store.reader is reader and store.folder.is_dir():
            for main in reader.locate(store.folder, native_id):
                if reader.native_id(main) == native_id:  # and not one that merely begins so
                    return main
    return None


def native_row(architecture: Architecture, session: NativeSession) -> dict[str, Any]:
    """Return the row that a list shows of a session."""
    return {
        "type": "native-session",
        "adapter": architecture.name,
        "id": session.id,
        "file": str(session.file),
        "cwd": session.cwd,
        "title": session.title,
        "branch": session.branch,
        "createdAt": session.created,
        "modifiedAt": session.modified,
        "size": session.size,
    }


def may_be_native(reference: str) -> bool:
    """Tell whether a word could be a native session's id, or the beginning of one."""
    return _REFERENCE.fullmatch(reference) is not None


def find_native(stores: Iterable[Store], reference: str) -> Located:
    """Return the one session that has this id, or whose id alone begins so.

    Where several files have the id, it is the one that its reader names first. Raises
    `NoSuchAgent` (kind ``no-such-session``), or `UsageError` (kind ``ambiguous``) with the
    candidates.
    """
    asked = list(stores)
    located = [
        Located(store, main)
        for store in asked
        if _is_there(store, ignore)
        for main in store.reader.locate(store.folder, reference)
    ]
    if not located:
        places = ", ".join(str(store.folder) for store in asked)
        raise NoSuchAgent(
            f"no file {reference}, and no session of that id in {places}",
            hint="`agentsdir list --native` shows them",
            kind="no-such-session",
        )
    candidates = sorted({one.store.reader.native_id(one.main) for one in located})
    if len(candidates) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {few(candidates)}",
            hint="give the whole id",
            kind="ambiguous",
        )
    return located[0]
