"""Prompts from arguments, standard input and files."""

from __future__ import annotations

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from agentsdir.cli.environment import Environment


def read_prompt(env: Environment, argument: str) -> list[dict[str, Any]]:
    """Return the prompt as content parts; `-` reads standard input to its end.

    Raises `UsageError` for an empty prompt, one that is no text, or a terminal at `-`.
    """
    text = argument
    if argument == "-":
        if env.stdin.isatty():
            raise UsageError("no prompt: give one, or pipe it in")
        try:
            text = env.stdin.read().decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the prompt on standard input is not UTF-8: {error}") from error
        text = text.removesuffix("\n")
    else:
        check_text(text)
    if not text.strip():
        raise UsageError("the prompt is empty", hint="first the AGENT, then the prompt")
    return [{"type": "text", "text": text}]


def check_text(text: str, what: str = "prompt") -> None:
    """Raise `UsageError` for an argument that is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {what} is not UTF-8") from None


def read_messages(env: Environment, path: Path) -> list[dict[str, Any]]:
    """Return the content parts of a JSON prompt; the file `-` is standard input.

    It is a string, a list of text and image parts, or `{"content": …}` of either.
    Raises `UsageError` naming the file and what is wrong.
    """
    try:
        data = env.stdin.read() if str(path) == "-" else (env.cwd / path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        value = jsontext.decode_exactly(data)
    except jsontext.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except Invalid as error:
        raise UsageError(f"{path} cannot be kept as it is: {error.message}") from error
    if isinstance(value, dict) and set(value) <= {"role", "content"}:
        value = value.get("content")
    if isinstance(value, str):
        value = [{"type": "text", "text": value}] if value.strip() else None
    if not isinstance(value, list) or not value:
        raise UsageError(f"{path} holds no prompt: a string, or a list of parts")
    for number, part in enumerate(value):
        if reason := _flaw(part):
            raise UsageError(f"{path}: part {number}: {reason}")
    return value


def _flaw(part: Any) -> str | None:
    if not isinstance(part, dict):
        return "no object"
    if part.get("type") == "text":
        good = isinstance(part.get("text"), str) and set(part) == {"type", "text"}
        return None if good else "a text part has type and text"
    if part.get("type") != "image":
        return f"type {part.get('type')!r} is neither text nor image"
    source = part.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url"):
        return "an image part has a source of type base64 or url"
    if not isinstance(source.get("data"), str):
        return "an image source has data: base64 text, or the url"
    return None
