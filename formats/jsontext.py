"""JSON as this format allows it: plain values that every reader gets back unchanged.

orjson writes NaN as null and reads 2^64 as a float without a word, so what we write is
checked first (`encode`) and what others wrote is cleaned and marked (`clean`).
"""

from __future__ import annotations

import json
from array import array
from base64 import b64decode, b64encode
from json import JSONDecodeError as JSONDecodeError
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_DEPTH = 128  # jq 1.6 stops at 256, orjson writes at most 254
MAX_INT = 2**53 - 1  # what a double holds exactly

CONTAINERS = frozenset({dict, list})

decode = orjson.loads


def decode_exactly(data: bytes) -> Any:
    """Return the value of a JSON text that this program is given to keep.

    Raises `JSONDecodeError`, and `Invalid` (kind ``value-refused``) for what `decode` would take
    and change without a word: integers beyond 2^53, keys that stand twice. And for depth over 128.
    """
    value = decode(data)
    if deeper_than(value, MAX_DEPTH):
        raise Invalid(f"nests deeper than {MAX_DEPTH} levels", kind="value-refused")
    # Slower, but it shows what it decodes.
    json.loads(data, parse_int=_exact, object_pairs_hook=_without_twins)
    return value


def _exact(digits: str) -> None:
    # Longer ones are not converted: Python refuses thousands of digits.
    if len(digits) > 17 or not -MAX_INT <= int(digits) <= MAX_INT:
        raise Invalid(f"the integer {digits:.40} is beyond 2^53 - 1", kind="value-refused")


def _without_twins(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twin = next(key for key in keys if keys.count(key) > 1)
        raise Invalid(f"the key {twin!r:.40} stands twice in an object", kind="value-refused")


def encode(value: Any) -> bytes:
    """Return `value` as one line of JSON, without the newline.

    Raises `Invalid` (kind ``value-refused``) for what would not round-trip: NaN, infinities,
    integers beyond 2^53, lone surrogates, keys that are no strings, depth over 128.
    """
    check(value)
    return _dumps(value, None)


def encode_line(value: Any) -> bytes:
    """Return `value` as one line of JSON, with the newline (same checks)."""
    check(value)
    return _dumps(value, _LINE)


def encode_document(value: Any) -> bytes:
    """Return `value` as an indented JSON document ending in a newline (same checks)."""
    check(value)
    return _dumps(value, _INDENTED)


def encode_as_is(value: Any) -> bytes:
    """Return `value` as one line of JSON, also where what is read back is not the same.

    Raises `TypeError` for lone surrogates, foreign types, and what nests too deep to be written.
    """
    return orjson.dumps(value)


_LINE = orjson.OPT_APPEND_NEWLINE
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def _dumps(value: Any, option: int | None) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:  # lone surrogates and foreign types
        raise _refused(str(error)) from error


def _refused(reason: str) -> Invalid:
    return Invalid(f"a value cannot be written exactly: {reason}", kind="value-refused")


def check(value: Any) -> None:
    """Raise `Invalid` for what cannot be written exactly, as far as orjson does not."""
    if type(value) in CONTAINERS:
        _check_inside(value, 1)
    else:
        _check_inside([value], 0)


def _check_inside(container: dict[str, Any] | list[Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _refused(f"nesting deeper than {MAX_DEPTH}")
    values: Iterable[Any] = container.values() if type(container) is dict else container
    for value in values:
        kind = type(value)
        if kind is str or value is None or kind is bool:
            continue
        if kind is dict or kind is list:
            _check_inside(value, depth + 1)
        elif kind is int:
            if not -MAX_INT <= value <= MAX_INT:
                raise _refused("an integer beyond 2^53")
        elif kind is not float:
            raise _refused(f"a {kind.__name__} is no plain JSON type")
        elif value - value != 0:
            raise _refused(f"{value} is no JSON number")


class LongText(NamedTuple):
    """A text in a document that is printed, too long to be held: `pieces` returns it anew."""

    pieces: Callable[[], Iterable[str]]


class LongList(NamedTuple):
    """A list of that kind; `lines` returns its items, each as a line of JSON."""

    lines: Callable[[], Iterable[bytes]]


def deeper_than(value: Any, limit: int) -> bool:
    """Tell whether lists and objects in `value` nest more than `limit` levels."""
    if type(value) not in CONTAINERS:
        return False
    if CONTAINERS.isdisjoint(map(type, value.values() if type(value) is dict else value)):
        return limit < 1  # as most are
    level = [value]
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) in CONTAINERS
        ]
    return bool(level)


def cleaned(block: dict[str, Any], depth: int = 1) -> dict[str, Any]:
    """Return a block made writable, with its `lossy` saying why it is not what it was.

    Args:
        depth: the level at which the block itself will stand, from 1.
    """
    reasons: set[str] = set(block.get("lossy", ()))
    made: dict[str, Any] = clean(block, reasons, depth)
    made["lossy"] = sorted(reasons)
    return made


def is_exact(value: Any, depth: int = 1) -> bool:
    """Tell whether `clean` would return a list or an object as it is, without making a copy."""
    if depth > MAX_DEPTH:
        return False
    if type(value) is dict:
        for key in value:
            if type(key) is not str or not (key.isascii() or _is_text(key)):
                return False
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str:
            if not (item.isascii() or _is_text(item)):
                return False
        elif kind is int:
            if not -MAX_INT <= item <= MAX_INT:
                return False
        elif kind is dict or kind is list:
            if not is_exact(item, depth + 1):
                return False
        elif kind is float:
            if item - item != 0:
                return False
        elif kind is not bool and item is not None:
            return False
    return True


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(value: Any, reasons: set[str], depth: int = 1) -> Any:
    """Return `value` with everything that cannot round-trip replaced, naming each in `reasons`.

    Lone surrogates become U+FFFD, integers beyond 2^53 their decimal string, non-finite
    numbers null, anything nested deeper than `MAX_DEPTH` its JSON text (decision D6).
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            reasons.add("lone-surrogate")
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if not -MAX_INT <= value <= MAX_INT:
            reasons.add("big-integer")
            return str(value)
        return value
    if isinstance(value, float):
        if value - value != 0:
            reasons.add("non-finite")
            return None
        return value
    if depth > MAX_DEPTH:
        reasons.add("too-deep")
        return "[nested deeper than 128 levels; the transcript holds it]"
    if isinstance(value, dict):
        return {
            clean(str(key), reasons): clean(item, reasons, depth + 1) for key, item in value.items()
        }
    return [clean(item, reasons, depth + 1) for item in value]


def copied(value: Any, depth: int = 1) -> Any:
    """Return a copy of a list or an object that can be written, changed only as `clean` does.

    Args:
        depth: the level at which it will stand, from 1.
    """
    return decode(encode_as_is(value)) if is_exact(value, depth) else clean(value, set(), depth)


# Many numbers as one text: a reader gets them back faster than from a list.


def packed(typecode: str, numbers: Iterable[int]) -> str:
    """Return numbers as text, of the size and in the byte order of this machine.

    Args:
        typecode: of an `array`.
    """
    return b64encode(array(typecode, numbers)).decode()


def unpacked(typecode: str, text: str) -> array[int]:
    """Return the numbers of `packed`. Raises `ValueError` for another text."""
    return array(typecode, b64decode(text, validate=True))
