"""JSON for commands that see little of it, without what loading orjson costs them.

orjson brings a score of modules along, and takes half as long to load as such a command in all.
So the first values of a process are read and written by what the standard library has in C, but
only where that gives exactly what orjson would; all else, and all the rest, goes to orjson, which
also says what is wrong (decision D37).
"""

from __future__ import annotations

import sys

from agentsdir.formats.undisturbed import undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    make_scanner: Callable[[Any], Callable[[str, int], tuple[Any, int]]] | None
    encode_basestring: Callable[[str], str]
else:
    try:
        # `json` itself compiles its patterns first, and takes longer than all that is read by it.
        from _json import encode_basestring, make_scanner
    except ImportError:  # another Python
        make_scanner = None

ENOUGH = 256 * 1024
"""Bytes after which loading orjson pays."""
_DEPTH = 200  # containers at least begun; the standard library stops at some thousand
_DIGITS = 15  # what both read as the same integer
_WORDS = {True: "true", False: "false", None: "null"}


class NotAlike(Exception):
    """The two libraries may differ here, or both refuse."""


class _Reading:
    """How `make_scanner` is to read."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None

    @staticmethod
    def parse_int(digits: str) -> int:
        """Return a whole number, if it is none that orjson reads as a float."""
        if len(digits) > _DIGITS:
            raise NotAlike
        return int(digits)

    @staticmethod
    def parse_float(text: str) -> float:
        """Return a number, if there is one that large."""
        value = float(text)
        if value - value != 0:
            raise NotAlike
        return value

    @staticmethod
    def parse_constant(_name: str) -> NoReturn:
        """Leave NaN to be refused."""
        raise NotAlike


_scan = make_scanner(_Reading()) if make_scanner else None
_seen = 0


def _is_small(size: int) -> bool:
    global _seen
    _seen += size
    return _scan is not None and _seen < ENOUGH and "orjson" not in sys.modules


def load_orjson() -> None:
    """Import orjson with signals held back: one that breaks that off can crash the interpreter."""
    if "orjson" in sys.modules:
        return
    with undisturbed():
        import orjson  # noqa: F401


def loads(data: bytes) -> Any:
    """Return what `orjson.loads` does. Raises `orjson.JSONDecodeError`, which is a `ValueError`."""
    if _is_small(len(data)):
        try:
            return read(data)
        except NotAlike:
            pass
    load_orjson()
    import orjson

    return orjson.loads(data)


def dumps(value: Any, *, plain: bool, indent: bool = False) -> bytes:
    """Return what `orjson.dumps` does. Raises the `TypeError` that it does.

    Args:
        plain: whether the value is one that `write` takes.
        indent: by two spaces, and with a newline at the end.
    """
    if plain and _is_small(0):
        try:
            data = write(value, indent=indent)
        except NotAlike:
            pass
        else:
            _is_small(len(data))
            return data
    load_orjson()
    import orjson

    return orjson.dumps(
        value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE if indent else None
    )


def read(data: bytes) -> Any:
    """Return what `orjson.loads` does, or raise `NotAlike`."""
    # An escape may be half of a surrogate pair.
    if _scan is None or b"\\u" in data or data.count(b"[") + data.count(b"{") > _DEPTH:
        raise NotAlike
    try:
        text = data.decode()
        value, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration, SystemError) as error:
        # SystemError: Python 3.11 takes the words for what is wrong from a module not loaded here.
        raise NotAlike from error
    if end < len(text) and text[end:] != "\n":
        raise NotAlike
    return value


def write(value: Any, *, indent: bool = False) -> bytes:
    """Return what `orjson.dumps` does, or raise `NotAlike` for half of a surrogate pair.

    Args:
        value: strings, whole numbers up to 2^53, true, false, null, lists, and objects of these,
            nested less than 200 deep.
        indent: as in `dumps`.
    """
    try:
        text = (_indented(value, "\n") + "\n") if indent else _compact(value)
        return text.encode()
    except (UnicodeEncodeError, RecursionError) as error:  # or a stack that is nearly full
        raise NotAlike from error


def _compact(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return encode_basestring(value)
    if kind is dict:
        pairs = [f"{encode_basestring(key)}:{_compact(item)}" for key, item in value.items()]
        return "{" + ",".join(pairs) + "}"
    if kind is list:
        return "[" + ",".join([_compact(item) for item in value]) + "]"
    return str(value) if kind is int else _WORDS[value]


def _indented(value: Any, begin: str) -> str:
    """Return a value over several lines, each of which but the first begins with `begin`."""
    inner = begin + "  "
    if value and type(value) is dict:
        pairs = [f"{encode_basestring(key)}: {_indented(v, inner)}" for key, v in value.items()]
        return "{" + inner + f",{inner}".join(pairs) + begin + "}"
    if value and type(value) is list:
        return "[" + inner + f",{inner}".join([_indented(v, inner) for v in value]) + begin + "]"
    return _compact(value)
