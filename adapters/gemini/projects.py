"""The folders of Gemini's store, and the project of each."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from agentsdir.adapters.protocol import Paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentsdir.adapters.protocol import Host, SessionSpec


# The client's registry of projects, and the marks in their folders.
#
# A client since 0.29 names a project's folder by a slug, which ``projects.json`` registers and a
# ``.project_root`` in the folder claims. The mark decides: a client registers a marked folder.
# Older clients name the folder by the SHA-256 of the project's path.

TMP = "tmp"
CHATS = "chats"
OUTPUTS = "tool-outputs"
HISTORY = "history"
MARK = ".project_root"
REGISTRY = "projects.json"
_IS_SLUG = re.compile(r"[a-z0-9-]+").fullmatch
_IS_HASH = re.compile(r"[0-9a-f]{64}").fullmatch
_MAX_REGISTRY = 16 * 1024 * 1024
_MAX_MARK = 16 * 1024
_UNKNOWN_OWNER = "?"


class Projects:
    """The projects of one store, by its files as they are now. Nothing is written."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._registered = _registry(storage / REGISTRY)

    def folder(self, cwd: str) -> str:
        """Return the name of the folder in which a client looks for the sessions of `cwd`.

        The folder of an older client counts while the newer one is empty: a newer client then
        copies the older folder's files.

        Args:
            cwd: the real path of the working directory.
        """
        name = self._registered.get(cwd)
        if name is None or not self._is_free_for(name, cwd):
            name = next((name for name, root in self._marked() if root == cwd), None)
        old = hashed(cwd)
        if (self._storage / TMP / old).is_dir() and (name is None or self._is_empty(name)):
            return old
        return name if name is not None else next(self.free_slugs(cwd))

    def free_slugs(self, cwd: str) -> Iterator[str]:
        """Yield the slugs that a client would claim for `cwd`, the first one first."""
        taken = set(self._registered.values())
        wanted = slug(Path(cwd).name)
        number = 0
        while True:
            name = f"{wanted}-{number}" if number else wanted
            number += 1
            if name not in taken and self._is_free_for(name, cwd):
                yield name

    def root(self, name: str) -> str:
        """Return the project of a folder's sessions; empty where it is unknown."""
        marked = mark_of(self._storage / TMP / name)
        if marked not in ("", _UNKNOWN_OWNER):
            return marked
        for path, registered in self._registered.items():
            if registered == name:
                return path
        if _IS_HASH(name):
            known = [*self._registered, *(root for _, root in self._marked())]
            return next((path for path in known if hashed(path) == name), "")
        return ""

    def _is_free_for(self, name: str, cwd: str) -> bool:
        """Tell whether no other project has marked a folder of that name."""
        marks = (mark_of(self._storage / base / name) for base in (TMP, HISTORY))
        return all(mark in ("", cwd) for mark in marks)

    def _is_empty(self, name: str) -> bool:
        try:
            return all(path.name == MARK for path in (self._storage / TMP / name).iterdir())
        except OSError:
            return True

    def _marked(self) -> Iterator[tuple[str, str]]:
        for base in (TMP, HISTORY):
            try:
                folders = sorted((self._storage / base).iterdir())
            except OSError:
                continue
            for folder in folders:
                if root := mark_of(folder):
                    yield folder.name, root


def hashed(cwd: str) -> str:
    """Return the name of a project's folder in clients before 0.29."""
    return sha256(os.fsencode(cwd)).hexdigest()


def slug(name: str) -> str:
    """Return the folder name that the client gives a project, if it is free."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "project"


def _registry(path: Path) -> dict[str, str]:
    """Return the slugs by project; a client treats a file of another form as empty."""
    try:
        value = orjson.loads(_read(path, _MAX_REGISTRY))
        projects = value["projects"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not isinstance(projects, dict):
        return {}
    return {
        path: name for path, name in projects.items() if isinstance(name, str) and _IS_SLUG(name)
    }


def mark_of(folder: Path) -> str:
    """Return the project in a folder's mark; empty for none, `_UNKNOWN_OWNER` for a bad one."""
    try:
        said = os.fsdecode(_read(folder / MARK, _MAX_MARK)).strip()
        return os.path.normpath(said) if said else _UNKNOWN_OWNER
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return _UNKNOWN_OWNER


def _read(path: Path, limit: int) -> bytes:
    # O_NONBLOCK: a FIFO in its place must not block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(limit)


# The client's folder for one user, and the folder of a project in it.

FOLDER = ".gemini"


def client_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's folder and the folder of `cwd`'s sessions, whether they exist or not."""
    storage = Path(env.get("GEMINI_CLI_HOME") or home) / FOLDER
    name = Projects(storage).folder(str(cwd))
    return Paths(storage=storage, transcripts=storage / TMP / name / CHATS)


def storage_in(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of a client that runs in an environment; None without a home."""
    home = environment.get("GEMINI_CLI_HOME") or environment.get("HOME")
    return Path(home) / FOLDER if home else None


def host_storage(host: Host) -> Path:
    """Return the folder of a client that runs on `host`, in the home of its settings."""
    return storage_in({**host.variables, **host.environment}) or host.home / FOLDER


def project_folder(spec: SessionSpec, *, by_hash: bool = False) -> Path:
    """Return the project folder in which a session's client looks for the session.

    Args:
        spec: the session.
        by_hash: for a client before 0.29, which names a project's folder by a hash.
    """
    storage, cwd = host_storage(spec.host), real_cwd(spec.cwd)
    return storage / TMP / (hashed(cwd) if by_hash else Projects(storage).folder(cwd))


def real_cwd(cwd: str) -> str:
    """Return a working directory as a client that runs in it names it."""
    return os.path.realpath(cwd)
