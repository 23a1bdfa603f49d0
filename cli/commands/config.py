"""`agentsdir config`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from agentsdir.cli import options
from agentsdir.cli.agents import Refusals
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import one_line, print_json, print_text, wants_json
from agentsdir.cli.settings import (
    ROOT_KEYS,
    Setting,
    change_settings,
    settings_of_root,
    settings_of_user,
)
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY | KEY=VALUE...]",
            help="The setting to show, or those to set; without any, all are shown",
        ),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Take the KEYs out of their file")] = False,
    user: Annotated[
        bool,
        typer.Option(
            "--user",
            help="provider is that of all your agents directories, not of this one",
        ),
    ] = False,
    as_json: options.JsonLines = False,
) -> int:
    """Show, explain and change your settings.

    \b
    Examples:
      agentsdir config
      agentsdir config max_slots=8 fallbacks=gemini
      agentsdir config --user provider=claude
      agentsdir config providers.claude.model=opus
      agentsdir config --unset max_slots

    Settings of one agents directory are in its settings.toml. What you set for all of yours, and
    how the programs behind providers are run, is in your config.toml. Comments there stay. The list
    leaves out the values of environment variables; `agentsdir config KEY` prints one.
    """
    env: Environment = ctx.obj
    given = words or []
    if unset or any("=" in word for word in given):
        _change(env, given, unset=unset, user=user, as_json=as_json)
        return 0
    if len(given) > 1:
        raise UsageError("one KEY is shown at a time", hint="KEY=VALUE sets one")
    if given:
        _show_one(env, given[0], user=user, as_json=as_json)
        return 0
    return _show_all(env, as_json=as_json)


def _change(env: Environment, words: list[str], *, unset: bool, user: bool, as_json: bool) -> None:
    env.check_outside_turn("settings")
    given: dict[str, str | None] = {}
    if unset:
        if not words or any("=" in word for word in words):
            raise UsageError("--unset takes KEYs")
        given.update(dict.fromkeys(words))
    else:
        given.update(options.read_pairs("config", words))
    for path in change_settings(env, given, of_user=user):
        if not as_json:
            print_text(env, f"{path}\n")
    if as_json:
        for key in given:
            for setting in _find(env, key, user=user):
                print_json(env, setting.as_json())


def _show_one(env: Environment, key: str, *, user: bool, as_json: bool) -> None:
    found = _find(env, key, user=user)
    if not found:
        raise UsageError(f"{key} is not set", hint="`agentsdir config` shows what can be set")
    if as_json:
        print_json(env, found[0].as_json())
    else:
        value = found[0].value
        print_text(env, f"{value if isinstance(value, str) else _text(value)}\n")


def _find(env: Environment, key: str, *, user: bool) -> list[Setting]:
    of_root = key in ROOT_KEYS and not user
    settings = settings_of_root(env) if of_root else settings_of_user(env)
    return [setting for setting in settings if setting.key == key]


def _show_all(env: Environment, *, as_json: bool) -> int:
    """Show the settings of both files. One that is damaged does not hide the other."""
    refusals = Refusals(env, as_json=as_json)
    parts: tuple[tuple[str, Callable[[Environment], list[Setting]]], ...] = (
        ("Settings of this agents directory", settings_of_root),
        ("Settings of yours", settings_of_user),
    )
    for title, read in parts:
        with refusals.noted():
            found = [_without_secret(setting) for setting in read(env)]
            if wants_json(env, as_json):
                for setting in found:
                    print_json(env, setting.as_json())
            else:
                _print_page(env, title, found)
    return int(refusals.code)


def _without_secret(setting: Setting) -> Setting:
    return setting._replace(value=None) if ".env." in setting.key else setting


def _print_page(env: Environment, title: str, found: list[Setting]) -> None:
    width = max(len(setting.key) for setting in found)
    lines = [f"{title}: {found[0].file}\n"]
    for setting in found:
        source = "" if setting.source == "file" else f"   ({setting.source})"
        value = "(hidden)" if setting.value is None else _text(setting.value)
        lines.append(f"  {setting.key.ljust(width)}  {value}{source}\n")
        lines.append(f"  {''.ljust(width)}  {setting.meaning}\n")
    print_text(env, "".join(lines) + "\n")


def _text(value: Any) -> str:
    text = value if isinstance(value, str) and value else orjson.dumps(value).decode()
    return one_line(text)
