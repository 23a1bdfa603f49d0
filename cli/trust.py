"""Which agents directories may start providers (decision D33).

Nothing that executes comes from a root. A root that was found by search may have come with a cloned
project, and the root of another user was written by that user. Neither starts a provider before the
user has put it on the list of trusted roots, which is in the user's configuration.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsdir.cli.environment import resolved
from agentsdir.cli.output import note
from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, UsageError
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.derived import encode_document
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import ROOT_NAME, read_json

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def check_trust(env: Environment) -> None:
    """Raise `ProviderError` (kind ``untrusted-root``) if the root in use may start no provider."""
    found = env.find_root()
    reason = ""
    if found.searched:
        reason = "was found in or above the working directory, and not named"
    try:
        owner = found.folder.stat().st_uid
    except FileNotFoundError:
        owner = env.uid
    if owner != env.uid:
        reason = "belongs to another user"
    if reason:
        _check_listed(env, reason)


def _check_listed(env: Environment, reason: str) -> None:
    """Raise `ProviderError` (kind ``untrusted-root``) unless the root in use is on the list.

    A damaged list trusts nothing, and the message says so.

    Args:
        reason: why the root has to be on the list.
    """
    root = real_path(env.find_root().folder)
    damage = ""
    try:
        if root in trusted_roots(env):
            return
    except Invalid as error:
        damage = f"; and {error.message}, so no root is trusted"
    raise ProviderError(
        f"{root} starts no provider: it {reason}{damage}",
        hint=f"if you know where it comes from: `agentsdir trust {shlex.quote(root)}`",
        kind="untrusted-root",
    )


_MAX_SIZE = 1024 * 1024
"""The most bytes that the list may have."""
_SETTINGS_FOLDERS = (
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"
)  # fmt: skip


def is_private(env: Environment, path: Path) -> bool:
    """Tell whether a path is where programs keep their settings, or in an agents directory.

    That is: below the home folder under a first name with a dot, below a folder that one of
    `_SETTINGS_FOLDERS` names, or below a folder that holds an agentsdir.json.
    """
    real, home = path.resolve(), env.home.resolve()
    if real.is_relative_to(home) and real != home:
        first = real.relative_to(home).parts[0]
        if first.startswith("."):
            return True
    named = [env.variables.get(name, "") for name in _SETTINGS_FOLDERS]
    if any(one and real.is_relative_to(Path(one).resolve()) for one in named):
        return True
    return any((folder / "agentsdir.json").is_file() for folder in (real, *real.parents))


def real_path(folder: Path) -> str:
    """Return the path under which a root is listed. Raises `UsageError` if it is not UTF-8."""
    try:
        path = str(folder.resolve())
        path.encode()
    except (ValueError, RuntimeError) as error:  # a NUL, half a character, a loop of links
        raise UsageError(f"{str(folder)!r} cannot be listed: {error}") from error
    return path


def list_path(env: Environment) -> Path:
    """Return the path of the list."""
    return env.config_folder / "trusted.json"


def trusted_roots(env: Environment) -> list[str]:
    """Return the trusted roots in the order in which they were added. Raises `Invalid`."""
    roots: list[str] = _read(env)["roots"]
    return roots


def _read(env: Environment) -> dict[str, Any]:
    path = list_path(env)
    try:
        document = read_json(path, _MAX_SIZE)
    except FileNotFoundError:
        return {"roots": []}
    roots = document.get("roots")
    if not isinstance(roots, list) or not all(
        isinstance(root, str) and root.startswith("/") for root in roots
    ):
        raise Invalid(
            f"{path} is no list of trusted roots",
            hint='mend or remove it; it reads {"roots": ["/a/path"]}',
            kind="bad-trust",
        )
    return document


def trust(env: Environment, root: str) -> None:
    """Put a root at the end of the list.

    Raises `Invalid` for a damaged list, which is left as it is; `NotRecorded` and `Uncertain`.
    """
    _change(env, root, listed=True)


def trust_made(env: Environment) -> None:
    """Put the root in use on the list, because this command has made it.

    ~/.agentsdir is trusted without. If the list cannot be written, that is noted on stderr.
    """
    root = env.find_root().folder
    own = env.home / ROOT_NAME
    if root.name != ROOT_NAME or resolved(root) == resolved(own) or root.stat().st_uid != env.uid:
        return
    try:
        trust(env, real_path(root))
    except AgentsdirError as error:
        note(env, f"{root} is not listed as trusted: {error.message}")


def distrust(env: Environment, root: str) -> None:
    """Take a root off the list. Raises `AgentsdirError` if it is not there, and as `trust`."""
    _change(env, root, listed=False)


def _change(env: Environment, root: str, *, listed: bool) -> None:
    path = list_path(env)
    disk = Disk()
    files.make_folder(path.parent, disk)
    env.count_waits()
    with locks.hold(path.with_name(".lock"), brief=True, what=str(path)):
        document = _read(env)
        if not listed and root not in document["roots"]:
            raise AgentsdirError(
                f"{root} is not on the list of trusted roots",
                hint="`agentsdir trust --list` shows it",
                kind="not-trusted",
            )
        others = [one for one in document["roots"] if one != root]
        document["roots"] = [*others, root] if listed else others
        files.replace_file(path, encode_document(document), disk)
