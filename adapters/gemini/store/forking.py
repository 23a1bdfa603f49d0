"""A session's transcripts as those of a new one, which goes on from there.

This client forks nothing itself. Every byte stays but the session's id, where a file says whose it
is, and in its name; a stub or an older twin, of which the session needs nothing, is left behind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import NativeFile
from agentsdir.adapters.gemini.store.contents import safe_part
from agentsdir.adapters.gemini.store.own_files import own_files
from agentsdir.adapters.gemini.store.projects import TMP
from agentsdir.adapters.gemini.transcripts.detection import LOG, family_of
from agentsdir.formats.reading.rows import Tally, read_rows
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.spool import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.gemini.store.own_files import Own
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.rows import Row

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*("(?:[^"\\]|\\.)*")')
_KEY = b'"sessionId"'
_SHORT = 8


def fork(
    transcripts: Mapping[str, Source],
    old_id: str,
    new_id: str,
    report: Callable[[Finding], None],
) -> Iterator[NativeFile]:
    """Yield the session's transcript, its subagents' and its outputs, under the new id.

    Paths in the text that lead to the old one's files are left as they are. `report` is told of
    each damaged line of a log; records that can be read on it are taken.
    """
    for own in own_files(transcripts, old_id):
        if own.role == "sidecar":
            continue
        path = f"{TMP}/{own.project}/{'/'.join(_new_inner(own, old_id, new_id))}"
        source = own.source
        if own.role in ("main", "subagent"):
            new = b'"%s"' % new_id.encode()
            # A subagent in its own folder has an id of its own.
            old = b'"%s"' % old_id.encode()
            log = family_of(source.head()) == LOG
            pieces = _rows(source, old, new, report) if log else _document(source, old, new)
            source = Source.from_stream(path, Pieces(pieces))
        yield NativeFile(path, own.role, source)


def _new_inner(own: Own, old_id: str, new_id: str) -> tuple[str, ...]:
    """Return where a file of the new session belongs; its name has 8 characters of the id."""
    old, new = safe_part(old_id), safe_part(new_id)
    if len(own.inner) > 2:
        top, folder, name = own.inner
        return top, folder.removesuffix(old) + new, name
    stem, dot, suffix = own.inner[-1].rpartition(".")
    stem = stem.removesuffix(f"-{old[:_SHORT]}")
    return own.inner[0], f"{stem}-{new[:_SHORT]}{dot}{suffix}"


def _rows(
    source: Source, old: bytes, new: bytes, report: Callable[[Finding], None]
) -> Iterator[bytes]:
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), report):
            line = _renamed_row(row, old, new)
            yield line if line.endswith(b"\n") else line + b"\n"


def _renamed_row(row: Row, old: bytes, new: bytes) -> bytes:
    """Return a row's bytes with another session id in its header, or in a change of it."""
    if "id" in row.value or _KEY not in row.raw:
        return row.raw
    return _renamed(row.raw, old, new, 2 if "$set" in row.value else 1)


def _document(source: Source, old: bytes, new: bytes) -> Iterator[bytes]:
    yield _renamed(source.read(), old, new, 1)


def _renamed(data: bytes, old: bytes, new: bytes, deep: int) -> bytes:
    """Replace the session ids that stand so deep, and are the old one."""
    depth, at, made = 0, 0, bytearray()
    for token in _TOKEN.finditer(data):
        word = token.group()
        if word in b"{[":
            depth += 1
        elif word in b"}]":
            depth -= 1
        elif depth == deep and word == _KEY and (value := _VALUE.match(data, token.end())):
            if value[1] == old:
                made += data[at : value.start(1)] + new
                at = value.end(1)
            if deep == 1:
                break  # a header says it once, and first
    return bytes(made + data[at:])
