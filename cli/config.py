"""config.toml: how this user runs the programs behind providers (docs/configuration.md).

The file is the user's, and no other user may write it. A root names no program, no argument and no
permission (decision D33).
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.registry import CLIENTS, WITHOUT_CLIENT
from agentsdir.formats import toml
from agentsdir.formats.errors import Invalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment

PROVIDER_VARIABLE = "AGENTSDIR_PROVIDER"
MAX_SIZE = 64 * 1024
"""The most bytes that config.toml may have."""
_HINT = "mend or remove it"


class ProviderConfig(NamedTuple):
    """What config.toml says of one provider; each field may be left out.

    `command` is the program with its first arguments; `()` is the provider's name, looked up in
    `$PATH`. `environment` is added to the program's environment.
    """

    command: tuple[str, ...] = ()
    permission_mode: str = ""
    model: str = ""
    environment: dict[str, str] = {}  # noqa: RUF012, a default of a tuple, never changed


class Config(NamedTuple):
    """What config.toml says: the provider of agents made without one, and how each is run."""

    provider: str = ""
    providers: dict[str, ProviderConfig] = {}  # noqa: RUF012, a default of a tuple, never changed


def read_config(env: Environment) -> Config:
    """Return what config.toml says, or the defaults where there is none.

    Raises `Invalid` (kind ``bad-config``) for a file that is damaged, has an unknown key or a value
    of another type, or that another user could have written.
    """
    path = config_path(env)
    try:
        data = read_own(path, env.uid)
    except FileNotFoundError:
        return Config()
    return decode_config(path, data)


def config_path(env: Environment) -> Path:
    """Return the path of config.toml."""
    return env.config_folder / "config.toml"


def decode_config(path: Path, data: bytes) -> Config:
    """Return what the bytes of a config.toml say. Raises what `read_config` raises."""
    try:
        found = toml.decode(data, MAX_SIZE)
    except ValueError as error:
        raise _refused(path, str(error)) from error
    _check_keys(path, found, ("provider", "providers"), "")
    provider = found.get("provider", "")
    if not isinstance(provider, str):
        raise _refused(path, f"says provider = {provider!r}, which is no string")
    providers = _table(path, found, "providers", "providers")
    return Config(provider, {name: _provider(path, providers, name) for name in providers})


def provider_config(env: Environment, provider: str) -> ProviderConfig:
    """Return what config.toml says of a provider. Raises what `read_config` raises."""
    return read_config(env).providers.get(provider, ProviderConfig())


def default_provider(env: Environment) -> str:
    """Return the provider of an agent that is made without one, where the root names none.

    It is that of config.toml, or else the one client whose program is on the search path. Where
    none is, it is `echo`, and a note says so.

    Raises `UsageError` if several clients are there, and what `read_config` raises.
    """
    config = read_config(env)
    if config.provider:
        return config.provider
    found = [name for name in CLIENTS if _is_installed(env, name, config)]
    if len(found) > 1:
        raise UsageError(
            f"{' and '.join(found)} are both on your search path; name the new agent's provider",
            hint=f"--provider NAME, or for good `agentsdir config --user provider={found[0]}`",
            kind="which-provider",
        )
    if not found:
        env.notify(
            f"{' and '.join(CLIENTS)} are not on your search path: the new agent is of the provider"
            f" {WITHOUT_CLIENT}, which answers with what it is sent"
        )
    return found[0] if found else WITHOUT_CLIENT


def _is_installed(env: Environment, name: str, config: Config) -> bool:
    from agentsdir.adapters.processes import find_program  # for this alone

    said = config.providers.get(name, ProviderConfig())
    environment = {**env.variables, **said.environment}
    return find_program((said.command or (name,))[0], environment) is not None


def read_own(path: Path, uid: int) -> bytes:
    """Read a file that only this user can write. It may be a link, as dotfiles often are.

    Raises `Invalid` (kind ``bad-config``), and `FileNotFoundError`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as stream:
        if flaw := ownership_flaw(os.fstat(descriptor), uid):
            raise _refused(path, flaw)
        return stream.read(MAX_SIZE + 1)


def ownership_flaw(status: os.stat_result, uid: int) -> str:
    """Return why a file is not this user's alone, or an empty text."""
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    if status.st_uid != uid:
        return "belongs to another user"
    if status.st_mode & 0o022:
        return f"can be written by others: its mode is {stat.S_IMODE(status.st_mode):04o}"
    return ""


_TEXTS = ("permission_mode", "model")
_KEYS = ("command", "args", *_TEXTS, "env")


def _provider(path: Path, providers: dict[str, Any], name: str) -> ProviderConfig:
    where = f"providers.{name}"
    table = _table(path, providers, name, where)
    _check_keys(path, table, _KEYS, f"{where}.")
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise _refused(path, f"says {where}.{key} = {table[key]!r}, which is no string")
    command = table.get("command", [])
    if isinstance(command, str):
        command = [command] if command else []
    arguments = table.get("args", [])
    for key, value in (("command", command), ("args", arguments)):
        if not isinstance(value, list) or not all(_is_text(text) for text in value):
            raise _refused(path, f"says {where}.{key} = {value!r}, which is no list of strings")
    environment = _table(path, table, "env", f"{where}.env")
    for key, value in environment.items():
        if not _is_text(value) or not key or "=" in key or "\0" in key:
            raise _refused(path, f"says {where}.env.{key} = {value!r}, which is no variable")
    whole = [*(command or [name]), *arguments] if command or arguments else []
    return ProviderConfig(
        tuple(whole), table.get("permission_mode", ""), table.get("model", ""), environment
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _table(path: Path, table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise _refused(path, f"says {where} = {value!r}, which is no table")
    return value


def _check_keys(path: Path, table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise _refused(path, f"sets an unknown key {where}{key} (known: {', '.join(known)})")


def _refused(path: Path, reason: str) -> Invalid:
    return Invalid(f"{path} {reason}", hint=_HINT, kind="bad-config")
