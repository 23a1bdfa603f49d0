"""Results to stdout, words for people to stderr (design section 6)."""

from __future__ import annotations

from typing import Any

import orjson

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import code_of
from agentsdir.cli.terminal import inert
from agentsdir.formats.errors import AgentsdirError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def wants_json(environment: Environment, asked: bool) -> bool:
    """Tell whether to print JSON: asked for, or no person is looking."""
    return asked or not environment.stdout.isatty()


def print_json(environment: Environment, value: Any) -> None:
    """Print one JSON value on one line."""
    text = orjson.dumps(value).decode()
    # orjson leaves DEL, C1 and bidirectional controls as they are; JSON may escape them.
    if environment.stdout.isatty():
        text = "".join(f"\\u{ord(c):04x}" if inert(c) != c and c != "\n" else c for c in text)
    environment.stdout.write(text + "\n")


def print_document(environment: Environment, value: Any) -> None:
    """Print one JSON document, indented."""
    environment.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def print_lines(environment: Environment, lines: Iterable[bytes]) -> None:
    """Print lines of JSON that are encoded already."""
    if environment.stdout.isatty():
        for line in lines:
            print_json(environment, orjson.loads(line))
        return
    environment.stdout.flush()
    environment.stdout.buffer.writelines(lines)


def print_text(environment: Environment, text: str) -> None:
    """Print text for people, made inert."""
    environment.stdout.write(inert(text))


def note(environment: Environment, text: str) -> None:
    """Say something to the person at the terminal."""
    environment.stderr.write(f"agentsdir: {inert(text)}\n")


def print_error(environment: Environment, error: AgentsdirError, *, as_json: bool) -> None:
    """Say what went wrong: one line, or one JSON object for machines."""
    if as_json:
        document = {
            "type": "error",
            "kind": error.kind,
            "message": error.message,
            "hint": error.hint,
            "exitCode": int(code_of(error)),
        }
        environment.stderr.write(orjson.dumps(document).decode() + "\n")
        return
    hint = f" ({error.hint})" if error.hint else ""
    text = inert(f"{error.message}{hint}").replace("\n", " ")
    environment.stderr.write(f"agentsdir: {text}\n")
