"""The prompt, from arguments, standard input or a file (docs/behaviour.md, "The prompt")."""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING, Any, BinaryIO

from agentsdir.engine.inbox import as_content
from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment


PROMPT_LIMIT = 10 * 1024 * 1024
"""Bytes of text on standard input. Escaped as JSON, they still fit into one record of a log."""
MESSAGES_LIMIT = 64 * 1024 * 1024
"""Bytes of a JSON prompt, which may hold images."""
FIRST_BYTE_TIMEOUT = 3.0
"""Seconds to wait for the first byte of a pipe, which may never come."""
_PIECE = 64 * 1024


def read_prompt(
    env: Environment, argument: str, *, no_stdin: bool = False, add_stdin: bool = False
) -> list[dict[str, Any]]:
    """Return the prompt as content parts.

    Args:
        argument: the prompt, or `-` for standard input.
        no_stdin: never read standard input.
        add_stdin: append what a pipe or a file on standard input holds to `argument`.

    Raises `UsageError` for a prompt that is empty, not UTF-8 or over the limit, and where `-` would
    read a terminal.
    """
    if argument == "-":
        if no_stdin:
            raise UsageError("no prompt: none is given, and --no-stdin does not read one")
        if env.stdin.isatty():
            raise UsageError("no prompt: give one, or pipe it in")
        text = _text(_read(env.stdin, PROMPT_LIMIT))
    else:
        check_text(argument)
        text = argument
    if not text.strip():
        raise UsageError("the prompt is empty", hint="it is the last argument, or standard input")
    if argument != "-" and add_stdin and not no_stdin:
        text = with_stdin(env, text)
    return [{"type": "text", "text": text}]


def text_or_file(env: Environment, said: str) -> str:
    """Return a text of the command line; after an `@`, what the file says that it names.

    Raises `UsageError` for a file that cannot be read, is not UTF-8 or over the limit.
    """
    if not said.startswith("@"):
        return said
    try:
        with (env.cwd / said[1:]).open("rb") as stream:
            return _text(_read(stream, PROMPT_LIMIT))
    except OSError as error:
        raise UsageError(f"cannot read {said[1:]}: {error.strerror}") from error


def with_stdin(env: Environment, text: str) -> str:
    """Return a prompt with standard input after it, separated by a blank line.

    Raises `UsageError` for input that is not UTF-8 or over the limit.
    """
    piped = _piped(env)
    return f"{text}\n\n{piped}" if piped.strip() else text


def _piped(env: Environment) -> str:
    """Return what a pipe or a file on standard input holds; empty if it is neither.

    The input of a hook is not read, nor is a file that another program has begun to read, as in
    `while read line; do ...; done < list`.
    """
    if env.hook_of:
        return ""
    try:
        descriptor = env.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):  # not a file descriptor
        return ""
    if stat.S_ISREG(mode):
        if os.lseek(descriptor, 0, os.SEEK_CUR):
            env.notify(
                "standard input is a file that another program has begun to read, so it is not"
                " added to the prompt (--no-stdin avoids this note)"
            )
            return ""
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # Node.js gives its children sockets
        if not _wait_for_input(descriptor, FIRST_BYTE_TIMEOUT):
            env.notify(
                f"nothing came on standard input for {FIRST_BYTE_TIMEOUT:g} s: going on without it"
                " (--no-stdin does not wait)"
            )
            return ""
    else:
        return ""
    return _text(_read(env.stdin, PROMPT_LIMIT))


def _wait_for_input(descriptor: int, wait: float | None) -> bool:
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
    """Return a stream's content. Raises `UsageError` if it has more than `limit` bytes."""
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
        except BlockingIOError:  # another process made the shared pipe non-blocking
            _wait_for_input(descriptor, None)


def check_text(text: str, what: str = "prompt") -> None:
    """Raise `UsageError` for an argument that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {what} is not UTF-8") from None


def read_messages(env: Environment, path: Path) -> list[dict[str, Any]]:
    """Return the content parts of a JSON prompt; the file `-` is standard input.

    It is a string, a list of text and image parts, or `{"content": …}` of either.
    Raises `UsageError` for any other content, and for a file that cannot be read.
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
    try:
        return as_content(value)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
