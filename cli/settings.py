"""What a user can set, and where: settings.toml of a root, the user's config.toml.

See docs/configuration.md, "Settings" and "config.toml". What else stands in a file that is changed,
comments too, stays.
"""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.cli.config import (
    PROVIDER_VARIABLE,
    config_path,
    decode_config,
    read_config,
    read_own,
)
from agentsdir.formats import toml
from agentsdir.formats.errors import Invalid, UsageError
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import read_bytes
from agentsdir.formats.store.settings import MAX_SIZE, decode_settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tomlkit import TOMLDocument

    from agentsdir.cli.config import ProviderConfig
    from agentsdir.cli.environment import Environment

ROOT_KEYS = {
    "provider": "who answers where `new` names no provider",
    "fallbacks": "who answers when an agent's provider does not",
    "durability": "what exit 0 promises: always, batch or never",
    "max_slots": "how many sessions are active at a time",
    "idle_timeout": "seconds without input until a session is suspended; 0: never",
    "max_children": "how many subagents of one agent may be at work",
}
USER_KEYS = {"provider": "who answers where neither `new` nor settings.toml says so"}
PROVIDER_KEYS = {
    "command": "the program, and its first arguments",
    "args": "more arguments",
    "permission_mode": "what the client may do without asking, in its own words",
    "model": "the model of agents that were given none",
    "env": "a variable of the program's environment",
}
_LISTS = ("fallbacks", "command", "args")
_NUMBERS = ("max_slots", "max_children", "idle_timeout")
_is_provider_key = re.compile(
    r"providers\.[A-Za-z0-9_-]+\.(command|args|permission_mode|model|env\.[A-Za-z0-9_-]+)"
).fullmatch


class Setting(NamedTuple):
    """One setting as it stands.

    Attributes:
        key: its name; that of a provider has dots.
        value: what counts; None for a value that is hidden, as it may be a password.
        source: `default`, `file`, or the environment variable that it comes from.
        file: the file in which it stands, or would.
        meaning: what it sets, in a line.
    """

    key: str
    value: Any
    source: str
    file: str
    meaning: str

    def as_json(self) -> dict[str, Any]:
        """Return the line of `config --json`."""
        return {"type": "setting", **self._asdict()}


def settings_of_root(env: Environment) -> list[Setting]:
    """Return the settings of the root in use. Raises `Invalid` for a damaged settings.toml."""
    said = read_settings(env.layout)._asdict()
    path = env.layout.settings
    written = toml.decode(_or_nothing(lambda: read_bytes(path, MAX_SIZE)), MAX_SIZE)
    found = []
    for key, meaning in ROOT_KEYS.items():
        value = list(said[key]) if key in _LISTS else said[key]
        source = "file" if key in written else "default"
        if key == "provider" and (named := env.variables.get(PROVIDER_VARIABLE)):
            value, source = named, f"${PROVIDER_VARIABLE}"
        found.append(Setting(key, value, source, str(path), meaning))
    return found


def settings_of_user(env: Environment) -> list[Setting]:
    """Return the settings of config.toml. Raises `Invalid` for a damaged one."""
    config, path = read_config(env), str(config_path(env))
    source = "file" if config.provider else "default"
    found = [Setting("provider", config.provider, source, path, USER_KEYS["provider"])]
    for name, said in config.providers.items():
        for key, value in _said_of(said):
            meaning = PROVIDER_KEYS[key.partition(".")[0]]
            found.append(Setting(f"providers.{name}.{key}", value, "file", path, meaning))
    return found


def _said_of(config: ProviderConfig) -> Iterator[tuple[str, Any]]:
    if config.command:
        yield "command", list(config.command)  # with `args`, which follow it
    if config.permission_mode:
        yield "permission_mode", config.permission_mode
    if config.model:
        yield "model", config.model
    for name, value in config.environment.items():
        yield f"env.{name}", value


def _or_nothing(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except FileNotFoundError:
        return b""


def change_settings(env: Environment, given: dict[str, str | None], *, of_user: bool) -> list[Path]:
    """Set settings, or take them out of their files; all of them or none. Return those files.

    Args:
        given: by key, the value as it was typed; None takes the setting out.
        of_user: `provider` is that of config.toml, not that of the root.

    Raises `UsageError` for an unknown key, or a value that it cannot have, `Invalid` for a file
    that is damaged already, `NotRecorded` and `Uncertain`.
    """
    root = {key: value for key, value in given.items() if key in ROOT_KEYS and not of_user}
    user = {key: value for key, value in given.items() if key not in root}
    for key in user:
        if key not in USER_KEYS and not _is_provider_key(key):
            known = ", ".join([*ROOT_KEYS, *(f"providers.NAME.{one}" for one in PROVIDER_KEYS)])
            raise UsageError(f"there is no setting {key!r}", hint=f"known: {known}")
    if root and not env.layout.check_version(writing=True):
        raise UsageError(
            f"there is no agents directory {env.layout.root}",
            hint="`agentsdir new` makes one; `agentsdir config --user provider=…` needs none",
        )
    disk, layout, own = Disk(), env.layout, config_path(env)
    env.count_waits()
    new: dict[Path, bytes] = {}
    with ExitStack() as held:
        if root:
            held.enter_context(locks.hold(layout.create_lock, brief=True, what=str(layout.root)))
            old = _or_nothing(lambda: read_bytes(layout.settings, MAX_SIZE + 1))
            new[layout.settings] = changed_file(
                old, root, lambda data: decode_settings(layout, data)
            )
        if user:
            files.make_folder(own.parent, disk)
            held.enter_context(locks.hold(own.with_name(".lock"), brief=True, what=str(own)))
            old = _or_nothing(lambda: read_own(own, env.uid))
            new[own.resolve()] = changed_file(old, user, partial(decode_config, own))
        for path, data in new.items():
            if data or path.exists():
                files.replace_file(path, data, disk)
    return list(new)


def changed_file(
    old: bytes, given: dict[str, str | None], check: Callable[[bytes], object]
) -> bytes:
    """Return the bytes of a file with other settings.

    Args:
        old: the file as it is.
        given: as for `change_settings`.
        check: raises `Invalid` for bytes that the file's reader would refuse.

    Raises `Invalid` if that refuses the file as it is, and `UsageError` if it refuses it as it
    would become.
    """
    import tomlkit  # for this alone
    from tomlkit.exceptions import TOMLKitError

    check(old)
    try:
        document = tomlkit.parse(old.decode())
        for key, typed in given.items():
            _put(document, key, None if typed is None else _value(key, typed))
        data = tomlkit.dumps(document).encode()
        check(data)
    except Invalid as error:
        raise UsageError(f"not set: {error.message}") from error
    except (TOMLKitError, ValueError, TypeError, RecursionError) as error:
        # What is in the file in a form that cannot be changed, or half a character in a value.
        raise UsageError(f"not set: {error}", hint="change the file with an editor") from error
    return data


def _put(document: TOMLDocument, key: str, value: Any) -> None:
    """Set a key, or take it out (None) with tables that are empty then."""
    import tomlkit

    *above, name = key.split(".")
    tables: list[Any] = [document]
    for part in above:
        if part not in tables[-1]:
            if value is None:
                return
            is_inline = isinstance(tables[-1], tomlkit.items.InlineTable)
            table = tomlkit.inline_table() if is_inline else tomlkit.table(part == "providers")
            tables[-1][part] = table
        tables.append(tables[-1][part])
    if value is not None:
        tables[-1][name] = value
        return
    tables[-1].pop(name, None)
    for outer, part, inner in reversed([*zip(tables, above, tables[1:], strict=False)]):
        if not inner:
            outer.pop(part)


def _value(key: str, typed: str) -> Any:
    name = key.rpartition(".")[2]
    if ".env." in key:
        return typed
    try:
        if name in _LISTS:
            # Commas between the names of providers, blanks between the words of a command line.
            return typed.replace(",", " ").split() if name == "fallbacks" else shlex.split(typed)
        if name in _NUMBERS and typed.replace(".", "", 1).isdecimal() and typed.isascii():
            return float(typed) if "." in typed else int(typed)
    except ValueError as error:
        raise UsageError(f"{key}={typed} cannot be read: {error}") from error
    return typed
