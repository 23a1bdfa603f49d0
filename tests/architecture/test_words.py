"""Roles have names: help and docstrings speak of agents, users and processes."""

from __future__ import annotations

import ast
import re
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentsdir.cli.command_line import COMMANDS, run
from agentsdir.cli.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGES = ("adapters", "cli", "engine", "formats", "schemas")
VAGUE = re.compile(r"\b(who(m)?ever|nobody|(some|any|every)body|told)\b", re.IGNORECASE)


def vague_words(text: str) -> list[str]:
    """Return the words in a text that stand for a role without naming it."""
    return [found[0].lower() for found in VAGUE.finditer(text)]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        # Below a constant, a string is its documentation.
        for child in getattr(node, "body", []) if isinstance(node, kinds) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                yield child.lineno, str(child.value.value)


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_names_roles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str | None
) -> None:
    """The help of each command, and of all."""
    env = Environment(BytesIO(), StringIO(), StringIO(), {}, tmp_path, tmp_path)
    assert run([*([command] if command else []), "--help"], env) == 0
    text = capsys.readouterr().out
    assert ("Options:" in text, vague_words(text)) == (True, [])


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_roles(package: str) -> None:
    """Docstrings of modules, classes, functions and constants."""
    found = {
        f"{path.relative_to(ROOT)}:{line}": words
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(path)
        if (words := vague_words(text))
    }
    assert found == {}


def test_vague_words_are_found() -> None:
    """The probe sees each of them."""
    text = "Whoever is told of it: nobody, somebody, anybody, everybody; but bodies toll."
    assert vague_words(text) == ["whoever", "told", "nobody", "somebody", "anybody", "everybody"]
