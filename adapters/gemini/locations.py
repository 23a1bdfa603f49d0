"""Where Gemini CLI keeps its things for one user and project directory."""

from __future__ import annotations

import os
from pathlib import Path

from agentsdir.adapters.contract import Paths
from agentsdir.adapters.gemini.projects import CHATS, TMP, Projects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Host


def client_paths(home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
    """Return the client's folder and the folder of `cwd`'s sessions, whether they exist or not."""
    storage = Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini"
    name = Projects(storage).folder(str(cwd))
    return Paths(storage=storage, transcripts=storage / TMP / name / CHATS)


def host_storage(host: Host) -> Path:
    """Return the folder of a client that runs on `host`, in whatever home its settings give it."""
    variables = {**host.variables, **host.environment}
    home = variables.get("GEMINI_CLI_HOME") or variables.get("HOME") or host.home
    return Path(home) / ".gemini"


def real_cwd(cwd: str) -> str:
    """Return a working directory as the client, which is started in it, names it."""
    return os.path.realpath(cwd)
