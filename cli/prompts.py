"""Prompts from arguments, standard input and files."""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING, Any, BinaryIO

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment


PROMPT_LIMIT = 10 * 1024 * 1024
"""Bytes of text on standard input: whatever its characters are, a line of a log has room for it."""
MESSAGES_LIMIT = 64 * 1024 * 1024
"""Bytes of a JSON prompt, which may have images in it."""
FIRST_BYTE = 3.0
"""Seconds to wait for the first byte of a pipe that may have nothing to say."""
_PIECE = 64 * 1024


def read_prompt(
    env: Environment, argument: str, *, no_stdin: bool = False, add_stdin: bool = False
) -> list[dict[str, Any]]:
    """Return the prompt as content parts (docs/behaviour.md, "The prompt").

    Args:
        argument: the prompt, or `-` for what stands on standard input.
        no_stdin: never read standard input.
        add_stdin: add what a pipe or a file on standard input brings to a prompt in words.

    Raises `UsageError` for an empty prompt, one that is no text or over the limit, or a terminal
    at `-`.
    """
    if argument == "-":
        if no_stdin:
            raise UsageError("no prompt: none is given, and --no-stdin keeps from reading one")
        if env.stdin.isatty():
            raise UsageError("no prompt: give one, or pipe it in")
        text = _text(_read(env.stdin, PROMPT_LIMIT))
    else:
        check_text(argument)
        text = argument
    if not text.strip():
        raise UsageError("the prompt is empty", hint="first the AGENT, then the prompt")
    if argument != "-" and add_stdin and not no_stdin:
        text = with_stdin(env, text)
    return [{"type": "text", "text": text}]


def with_stdin(env: Environment, text: str) -> str:
    """Return a prompt in words with what was piped in: the words, a blank line, the rest.

    Raises `UsageError` for input that is no text or over the limit.
    """
    piped = _piped(env)
    return f"{text}\n\n{piped}" if piped.strip() else text


def _piped(env: Environment) -> str:
    """Return what a pipe or a file on standard input brings; empty where there is neither.

    Left alone is the input of a hook, and a file that another program has begun to read, as the
    shell has in `while read line; do ...; done < list`.
    """
    if env.hook_of:
        return ""
    try:
        descriptor = env.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # no stream of the system
        return ""
    if stat.S_ISREG(mode):
        if os.lseek(descriptor, 0, os.SEEK_CUR):
            env.tell(
                "standard input is a file that another program has begun to read: it is left to it"
                " (--no-stdin says nothing of it)"
            )
            return ""
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # Node.js gives its children sockets
        if not _comes(descriptor, FIRST_BYTE):
            env.tell(
                f"nothing came on standard input for {FIRST_BYTE:g} s: going on without it"
                " (--no-stdin does not wait)"
            )
            return ""
    else:
        return ""
    return _text(_read(env.stdin, PROMPT_LIMIT))


def _comes(descriptor: int, wait: float | None) -> bool:
    """Wait until there is something to read, or the end of input."""
    return bool(select.select([descriptor], [], [], wait)[0])


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8: {error}", hint="a prompt is text; --no-stdin reads none"
        ) from error
    return text.removesuffix("\n")


def _read(stream: BinaryIO, limit: int, what: str = "standard input") -> bytes:
    """Return all that a stream has, if it is not over `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := _read_piece(stream):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise UsageError(
                    f"{what} is over the limit of {limit} bytes for a prompt",
                    hint="put it into a file, and name the file in the prompt",
                )
    except OSError as error:
        raise UsageError(f"cannot read {what}: {error.strerror or error}") from error
    return b"".join(pieces)


def _read_piece(stream: BinaryIO) -> bytes:
    try:
        descriptor = stream.fileno()
    except OSError:  # a stream in memory
        return stream.read(_PIECE)
    while True:
        try:
            return os.read(descriptor, _PIECE)
        except BlockingIOError:  # whoever shares the pipe made it so
            _comes(descriptor, None)


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
    if str(path) == "-":
        data = _read(env.stdin, MESSAGES_LIMIT)
    else:
        try:
            with (env.cwd / path).open("rb") as stream:
                data = _read(stream, MESSAGES_LIMIT, str(path))
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
