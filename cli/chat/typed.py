"""What a person typed: a prompt, or a command that begins with a slash (docs/chat.md, "Commands").

Nothing here knows a terminal.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from agentsdir.formats.errors import UsageError

_COMMAND = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?", re.DOTALL)


class Prompt(NamedTuple):
    """Text for the agent."""

    text: str


class Slash(NamedTuple):
    """A command of the prompt, or a verb of agentsdir: `words` as a shell splits them.

    `rest` is what was typed behind the name, for commands that take a text as it is.
    """

    name: str
    words: tuple[str, ...] = ()
    rest: str = ""


def read_line(text: str) -> Prompt | Slash | None:
    """Return what a person typed before Enter; None for nothing.

    A slash and a word is a command. Two slashes begin a prompt that begins with one, and a path,
    such as ``/etc/hosts``, is a prompt.

    Raises `UsageError` for quotes that do not end.
    """
    stripped = text.strip()
    if not stripped:
        return None
    if stripped.startswith("//"):
        return Prompt(stripped[1:])
    found = _COMMAND.fullmatch(stripped)
    if found is None:
        return Prompt(text.strip("\r\n"))
    name, rest = found[1], (found[2] or "").strip()
    if name in _TEXTS:
        return Slash(name, (), rest)
    try:
        return Slash(name, tuple(shlex.split(rest)), rest)
    except ValueError as error:
        raise UsageError(f"/{name}: {str(error).lower()}") from error


_TEXTS = frozenset({"spawn"})
"""Commands whose words are a text, in which an apostrophe is no quote."""

_AGENT_FIRST = frozenset(
    ("archive", "clear-abort", "close", "export", "fork", "inspect", "interrupt", "last", "log",
     "open", "queue", "rename", "replay", "reset", "resume", "rm", "set",
     "snapshot", "suspend", "tag", "wait")
)  # fmt: skip
"""Verbs of agentsdir whose first word is AGENT."""


def with_agent(verb: str, words: tuple[str, ...], agent: str) -> tuple[str, ...]:
    """Return a verb's words with the agent of the conversation, where they name no agent."""
    if verb not in _AGENT_FIRST or not agent:
        return words
    first = words[0] if words else ""
    if verb == "rename":
        named = len([word for word in words if not word.startswith("-")]) > 1
    elif verb == "tag":
        named = bool(first) and first[0] not in "+-"
    elif verb == "set":
        named = bool(first) and "=" not in first and not first.startswith("-")
    else:
        named = bool(first) and not first.startswith("-")
    return words if named else (agent, *words)
