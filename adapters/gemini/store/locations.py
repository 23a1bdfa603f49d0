"""Where Gemini CLI keeps its things for one user and project directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import Paths
from agentsdir.adapters.gemini.store.projects import CHATS, TMP, Projects, hashed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Host, SessionSpec

FOLDER = ".gemini"


def client_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's folder and the folder of `cwd`'s sessions, whether they exist or not."""
    storage = Path(env.get("GEMINI_CLI_HOME") or home) / FOLDER
    name = Projects(storage).folder(str(cwd))
    return Paths(storage=storage, transcripts=storage / TMP / name / CHATS)


def storage_in(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of a client that runs in an environment; None where it has no home."""
    home = environment.get("GEMINI_CLI_HOME") or environment.get("HOME")
    return Path(home) / FOLDER if home else None


def host_storage(host: Host) -> Path:
    """Return the folder of a client that runs on `host`, in whatever home its settings give it."""
    return storage_in({**host.variables, **host.environment}) or host.home / FOLDER


def project_folder(spec: SessionSpec, *, by_hash: bool = False) -> Path:
    """Return the folder of the project in which a session's client looks for it, and for no other.

    Args:
        spec: of the session.
        by_hash: for a client before 0.29, which names a project's folder by a hash.
    """
    storage, cwd = host_storage(spec.host), real_cwd(spec.cwd)
    return storage / TMP / (hashed(cwd) if by_hash else Projects(storage).folder(cwd))


def real_cwd(cwd: str) -> str:
    """Return a working directory as the client, which is started in it, names it."""
    return os.path.realpath(cwd)
