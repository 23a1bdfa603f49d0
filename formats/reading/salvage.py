"""Records out of a damaged line: glued rows, a stub before a row, NUL runs, bad UTF-8.

Only lines that orjson refuses come here. What the text holds whole is returned, with the
byte range of each value; what it does not hold is never guessed.
"""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# A hostile line may offer millions of places where a record could begin.
MAX_STARTS = 512
MAX_VALUES = 100_000  # no client welds that many records; a hostile line could hold millions
MAX_WORK = 2**28  # characters looked at again, over all starts of one line
_NULS = re.compile("\0+")
_SPACE = re.compile(r"[ \t\r\n]*")


class Salvage(NamedTuple):
    """What one line gave: values with byte start and length, the finding id, lossy reasons.

    `finding` is None when the line is whole and only its values are unusual.
    """

    values: list[tuple[Any, int, int]]
    finding: str | None
    message: str
    lossy: tuple[str, ...]


def salvage(data: bytes, is_record: Callable[[Any], bool] | None = None) -> Salvage:
    """Recover what a refused line holds. `data` may end in LF.

    `is_record` knows a record of the format for sure: such a one is taken even from the middle of
    another, where else an object might be a part of what is damaged.
    """
    try:
        return _salvage(data, is_record)
    except RecursionError:
        return Salvage([], "too-deep", "nesting deeper than the parser allows", ())


def _salvage(data: bytes, is_record: Callable[[Any], bool] | None) -> Salvage:
    body = data.removesuffix(b"\n")
    lossy: list[str] = []
    finding, message = None, ""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        finding, message = "bad-utf8", f"invalid UTF-8 at byte {error.start} of the line"
        lossy.append("bad-utf8")
        # One character for each bad byte keeps character and byte positions convertible.
        text = body.decode(errors="surrogateescape")
    nonfinite: list[str] = []

    def finite(digits: str) -> float | None:
        number = float(digits)
        if math.isfinite(number):
            return number
        nonfinite.append(digits)
        return None

    decoder = json.JSONDecoder(
        strict=False, parse_float=finite, parse_constant=lambda name: nonfinite.append(name)
    )

    if "\0" in text:
        finding = finding or "nul-run"
        message = message or f"{text.count(chr(0))} NUL bytes"
    values: list[tuple[Any, int, int]] = []
    clean = True
    start = 0
    for nuls in chain(_NULS.finditer(text), [None]):
        end = len(text) if nuls is None else nuls.start()
        found, whole = _piece(decoder, text, start, end, is_record)
        values += found
        clean = clean and whole
        start = end if nuls is None else nuls.end()
        if len(values) >= MAX_VALUES:
            clean = False
            break
    if finding is None and (not clean or len(values) > 1):
        if values:
            finding, message = "splice", f"whole records on a damaged line: {len(values)}"
        else:
            finding, message = "bad-json", _why(text)
    if nonfinite:
        lossy.append("non-finite")
    in_bytes = []
    at = done = 0
    for value, begin, end in values:  # each character is measured once, however many values
        at += len(_bytes(text[done:begin]))
        length = len(_bytes(text[begin:end]))
        in_bytes.append((_scrub(value) if lossy else value, at, length))
        at, done = at + length, end
    return Salvage(in_bytes, finding, message, tuple(lossy))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _scrub(value: Any) -> Any:
    """Turn surrogate-escaped bytes into U+FFFD; real lone surrogates are left for `clean`."""
    if isinstance(value, str):
        return re.sub("[\udc80-\udcff]", "\ufffd", value) if not value.isascii() else value
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    return value


def _why(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return (
            "not JSON" if not isinstance(error, json.JSONDecodeError) else f"not JSON: {error.msg}"
        )
    return "not JSON"


def _piece(
    decoder: json.JSONDecoder,
    text: str,
    start: int,
    end: int,
    is_record: Callable[[Any], bool] | None,
) -> tuple[list[tuple[Any, int, int]], bool]:
    """Decode value by value; return them and whether the piece held nothing else."""
    piece = text[start:end]
    found: list[tuple[Any, int, int]] = []
    whole = True
    at = _skip(piece, 0)
    if piece.startswith("\ufeff", at):
        at = _skip(piece, at + 1)
    starts = min(MAX_STARTS, MAX_WORK // (len(piece) + 1) + 1)
    while at < len(piece) and len(found) < MAX_VALUES:
        decoded = _value_at(decoder, piece, at, bool(found) or not whole, is_record)
        if decoded is not None:
            value, stop = decoded
            found.append((value, start + at, start + stop))
            at = _skip(piece, stop)
            continue
        whole = False
        at = piece.find('{"', at + 1)
        starts -= 1
        if at < 0 or starts < 0:
            break
    return found, whole


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value_at(
    decoder: json.JSONDecoder,
    text: str,
    at: int,
    after_damage: bool,
    is_record: Callable[[Any], bool] | None,
) -> tuple[Any, int] | None:
    try:
        value, stop = decoder.raw_decode(text, at)
    except ValueError:
        return None
    if not after_damage and not isinstance(value, dict):
        # `123` or `null` as a whole line is a row; `1{…` is the tail of a stub.
        return (value, stop) if _skip(text, stop) == len(text) else None
    if after_damage and not isinstance(value, dict):
        return None
    # An object nested in a stub also decodes; a record is followed by its end or another one.
    rest = _skip(text, stop)
    if rest == len(text) or text[rest] == "{" or not after_damage:
        return value, stop
    return (value, stop) if is_record is not None and is_record(value) else None
