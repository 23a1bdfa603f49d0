"""Results to stdout, notes and errors to stderr, all of it safe for a terminal."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from agentsdir.cli.exits import code_of
from agentsdir.formats import jsontext
from agentsdir.formats.jsontext import LongList, LongText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.errors import AgentsdirError
    from agentsdir.formats.findings import Finding


# C0 but LF and TAB, DEL, C1, bidirectional controls, line and paragraph separators, tags.
# Compiled when it is first used, which takes longer than any other pattern of a start.
_CONTROL = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f"
    "\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


def escape_controls(text: str) -> str:
    """Return `text` with each control character as its escape, such as ``\\x1b``.

    The output of an agent must not control the reader's terminal.
    """
    return re.sub(_CONTROL, _escape, text)


def one_line(text: str) -> str:
    """Return `text` on one line, so that no text can imitate a line of this program."""
    return escape_controls(text).replace("\n", " ")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


CHUNK = 256 * 1024


def frame_of(environment: Environment) -> str:
    """Return what stands before each JSON value on standard output; empty for nothing."""
    return "" if environment.stdout.isatty() else environment.frame


def wants_json(environment: Environment, asked: bool) -> bool:
    """Tell whether to print JSON: on request, and where standard output is not a terminal."""
    return asked or not environment.stdout.isatty()


def json_text(value: Any, stream: TextIO | None, option: int = 0) -> str:
    """Return a value as JSON for `stream`; for a terminal, with control characters as escapes."""
    return _for_stream(_encode(value, option).decode(), stream)


def _encode(value: Any, option: int) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError:  # half of a surrogate pair, in a delta that a client cut there
        return orjson.dumps(jsontext.clean(value, set()), option=option)


def _for_stream(text: str, stream: TextIO | None) -> str:
    if stream is None or not stream.isatty():
        return text
    # orjson leaves DEL, C1, bidirectional controls and tags as they are; JSON may escape them.
    return "".join(_escaped(c) if escape_controls(c) != c else c for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_json(environment: Environment, value: Any) -> None:
    """Print one JSON value on one line."""
    text = json_text(value, environment.stdout)
    environment.stdout.write(f"{frame_of(environment)}{text}\n")


def print_document(environment: Environment, value: Any) -> None:
    """Print one JSON document, indented. It may hold `LongText` and `LongList`."""
    frame = frame_of(environment)
    environment.stdout.write(frame)
    for piece in document_pieces(value, b"" if frame else b"\n"):
        environment.stdout.write(_for_stream(piece.decode(), environment.stdout))
    environment.stdout.write("\n")


def document_pieces(value: Any, margin: bytes = b"\n") -> Iterator[bytes]:
    """Yield an indented JSON document, which may hold `LongText` and `LongList`, in pieces.

    Args:
        margin: LF and the indentation of the line on which the value stands; empty for a document
            on one line.
    """
    inner = margin + b"  " if margin else b""
    if isinstance(value, LongText):
        yield b'"'
        for piece in value.pieces():
            yield _encode(piece, 0)[1:-1]
        yield b'"'
    elif isinstance(value, LongList):
        yield from _bracketed(
            b"[]", ((_indented(orjson.loads(line), inner),) for line in value.lines()), margin
        )
    elif not _is_long(value):
        yield _indented(value, margin)
    elif isinstance(value, list):
        yield from _bracketed(b"[]", (document_pieces(item, inner) for item in value), margin)
    else:
        yield from _bracketed(
            b"{}",
            (
                chain([_encode(key, 0) + b": "], document_pieces(item, inner))
                for key, item in value.items()
            ),
            margin,
        )


def _bracketed(brackets: bytes, items: Iterable[Iterable[bytes]], margin: bytes) -> Iterator[bytes]:
    before = brackets[:1]
    for item in items:
        yield before + margin + b"  "
        yield from item
        before = b","
    yield brackets if before != b"," else margin + brackets[1:]


def _indented(value: Any, margin: bytes) -> bytes:
    if not margin:
        return _encode(value, 0)
    # No JSON text has an LF within a value that is no list or object.
    return _encode(value, orjson.OPT_INDENT_2).replace(b"\n", margin)


def _is_long(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_long, value.values()))
    if isinstance(value, list):
        return any(map(_is_long, value))
    return isinstance(value, LongText | LongList)


def print_lines(environment: Environment, pieces: Iterable[bytes]) -> None:
    """Print encoded lines of JSON; each piece is one or more of them."""
    if environment.stdout.isatty():
        for piece in pieces:
            for line in piece.splitlines():
                print_json(environment, jsontext.decode(line))
        return
    if frame := frame_of(environment).encode():
        pieces = (_framed(piece, frame) for piece in pieces)
    environment.stdout.flush()
    write = environment.stdout.buffer.write
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > CHUNK:
            write(b"".join(held))
            held.clear()
            size = 0
    write(b"".join(held))


def _framed(lines: bytes, frame: bytes) -> bytes:
    return frame + lines[:-1].replace(b"\n", b"\n" + frame) + lines[-1:]


def print_text(environment: Environment, text: str) -> None:
    """Print text for people, with control characters as escapes."""
    environment.stdout.write(escape_controls(text))


SCREEN_WIDTH = 80
_WIDEST = 500
"""Columns; a terminal that says it has more, or none, is not believed."""


def screen_width(environment: Environment) -> int:
    """Return how many columns the terminal of standard output has; `$COLUMNS` goes before it."""
    with suppress(ValueError):
        if (said := int(environment.variables.get("COLUMNS", ""))) > 0:
            return min(said, _WIDEST)
    with suppress(OSError):
        if columns := os.get_terminal_size(environment.stdout.fileno()).columns:
            return min(columns, _WIDEST)
    return SCREEN_WIDTH


def note(environment: Environment, text: str) -> None:
    """Print a note for people on stderr."""
    with environment.without_status(), suppress(OSError):  # stderr is closed; the exit code says it
        environment.stderr.write(f"agentsdir: {one_line(text)}\n")


def note_drifts(environment: Environment, findings: Iterable[Finding]) -> None:
    """Name on one line the kinds of rows and parts that no reader knows, if there are any."""
    kinds = [finding.message for finding in findings if finding.id == "drift"]
    if kinds:
        note(environment, f"{'; '.join(kinds)} (--hidden shows them)")


def print_error(environment: Environment, error: AgentsdirError, *, as_json: bool) -> None:
    """Print an error on stderr: one line, or one JSON object."""
    if as_json:
        text = json_text(error_document(error), environment.stderr)
        _write_error(environment, environment.frame + text)
        return
    hint = f" ({error.hint})" if error.hint else ""
    _write_error(environment, f"agentsdir: {one_line(error.message + hint)}")


def error_document(error: AgentsdirError) -> dict[str, Any]:
    """Return an error as a JSON object."""
    return {
        "type": "error",
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
        "exitCode": int(code_of(error)),
    }


def _write_error(environment: Environment, text: str) -> None:
    with suppress(OSError):  # stderr is closed; the exit code says it, too
        environment.stderr.write(text + "\n")
