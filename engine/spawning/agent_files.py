"""Agent files: what a subagent is to be, in TOML, with props (docs/behaviour.md, "Spawning").

A placeholder ``{{name}}`` in any text of the file stands for the prop of that name. What a prop
says is never looked through for placeholders.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import tomltext
from agentsdir.formats.errors import Invalid, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_SIZE = 256 * 1024
"""Bytes that an agent file may have."""
_TEXTS = ("provider", "model", "system", "prompt", "profile")
_KEYS = (*_TEXTS, "max_ticks", "props")
_PLACEHOLDER = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_-]*)[ \t]*\}\}")


class AgentFile(NamedTuple):
    """What an agent file says, its placeholders filled in; empty for what it leaves open."""

    provider: str = ""
    model: str = ""
    system: str = ""
    prompt: str = ""
    profile: str = ""
    max_ticks: int | None = None


def read_agent_file(path: Path, given: Mapping[str, str]) -> AgentFile:
    """Read an agent file and fill in its props.

    Args:
        path: the file, or a pipe.
        given: props that go before those of the file.

    Raises `Invalid` (kind ``bad-agent-file``) naming file and reason; `UsageError` for a file that
    cannot be read, a prop that is missing (kind ``missing-prop``), and one that nothing asks for.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SIZE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        said = tomltext.decode(data, MAX_SIZE)
    except ValueError as error:
        raise _bad(path, str(error)) from error
    if unknown := sorted(said.keys() - set(_KEYS)):
        raise _bad(path, f"has {unknown[0]!r}, which is none of {', '.join(_KEYS)}")
    for key in _TEXTS:
        if not isinstance(said.get(key, ""), str):
            raise _bad(path, f"says {key} = {said[key]!r}, which is no text")
    ticks = said.get("max_ticks")
    if ticks is not None and (type(ticks) is not int or ticks < 1):
        raise _bad(path, f"says max_ticks = {ticks!r}, which is no number above 0")
    props = {**_own_props(path, said.get("props", {})), **given}
    texts = {key: said[key] for key in _TEXTS if key in said}
    wanted = {name for text in texts.values() for name in _PLACEHOLDER.findall(text)}
    if missing := sorted(wanted - props.keys()):
        raise UsageError(
            f"{path} asks for the prop {missing[0]!r}",
            hint=f"give it by --prop {missing[0]}=TEXT",
            kind="missing-prop",
        )
    if idle := sorted(given.keys() - wanted - said.get("props", {}).keys()):
        raise UsageError(f"{path} asks for no prop {idle[0]!r}")
    filled = {
        key: _PLACEHOLDER.sub(lambda found: props[found[1]], text) for key, text in texts.items()
    }
    return AgentFile(**filled, max_ticks=ticks)


def _own_props(path: Path, said: Any) -> dict[str, str]:
    if not isinstance(said, dict):
        raise _bad(path, "has props that are no table")
    props = {}
    for name, value in said.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str | int | float):
            raise _bad(path, f"says {name} = {value!r}, which is neither text nor number")
        props[name] = str(value)
    return props


def _bad(path: Path, reason: str) -> Invalid:
    return Invalid(
        f"{path} {reason}", hint="`agentsdir spawn --help` shows one", kind="bad-agent-file"
    )
