"""`send` without options, which is understood without the library that reads them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from agentsdir.cli import command_line, invocation

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

LINES: list[tuple[str, ...]] = [
    ("AGENT", "hello"),
    ("AGENT", "-"),
    ("AGENT",),
    ("nobody", "hello"),
    ("AGENT", ""),
    ("", "hello"),
    ("hello", "AGENT"),
    ("AGENT", "two", "prompts"),
    ("AGENT", "é ü"),
    ("-",),
]


def said(shell: Shell, agent: str, words: tuple[str, ...]) -> tuple[int, str, str]:
    """Return what a line comes to, with the agent's id in place."""
    done = shell("send", *(agent if word == "AGENT" else word for word in words), stdin=b"piped")
    return done.code, done.out.replace(agent, "ID"), re.sub(r"[a-z0-9]{24}", "ID", done.err)


@pytest.mark.parametrize("words", LINES)
def test_a_plain_line_is_understood_as_the_library_does(
    shell: Shell, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers, errors and exit codes are the same."""
    plain = said(shell, shell.new(), words)
    read: list[Any] = []

    def by_library(arguments: list[str], env: Any) -> int:
        read.append(arguments)
        return command_line.invoke(arguments, env)

    monkeypatch.setattr(invocation, "_invoke", by_library)
    assert said(shell, shell.new(), words) == plain
    assert read


@pytest.mark.parametrize(
    "arguments",
    [[], ["send"], ["send", "--json", "a", "b"], ["send", "a", "-x"], ["send", "a", "--"],
     ["queue", "a", "b"], ["--root", "r", "send", "a", "b"], ["send", "a", "b", "-h"]],
)  # fmt: skip
def test_whatever_has_options_is_left_to_the_library(arguments: list[str]) -> None:
    """And every other command."""
    assert invocation._plain_send(arguments) is None
