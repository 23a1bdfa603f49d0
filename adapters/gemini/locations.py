"""Where Gemini CLI keeps its things for one user and project directory."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

import orjson

from agentsdir.adapters.contract import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Host


def client_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's folder and the folder of `cwd`'s sessions, whether they exist or not.

    A project's folder is named by the slug that ``projects.json`` registers; by the SHA-256 of
    the path in older clients; and else by the slug that a new client would try first.
    """
    storage = Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini"
    project = str(cwd)
    old = sha256(project.encode(errors="surrogateescape")).hexdigest()
    registered = _registered(storage / "projects.json", project)
    if registered is not None:
        name = registered
    elif (storage / "tmp" / old).is_dir():
        name = old
    else:
        name = slug(cwd.name)
    return Paths(storage=storage, transcripts=storage / "tmp" / name / "chats")


def host_paths(host: Host, cwd: str) -> Paths:
    """Return the same for a client that runs on `host`, in whatever home its settings give it."""
    variables = {**host.variables, **host.environment}
    home = Path(variables.get("HOME") or host.home)
    return client_paths(home, Path(os.path.realpath(cwd)), variables)


def slug(name: str) -> str:
    """Return a folder name for a project as the client makes it, if nobody else has it yet."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-") or "project"


def _registered(registry: Path, project: str) -> str | None:
    try:
        value = orjson.loads(registry.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    projects = value.get("projects") if isinstance(value, dict) else None
    name = projects.get(project) if isinstance(projects, dict) else None
    safe = isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")
    return name if safe else None
