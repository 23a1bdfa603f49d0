"""A session's transcripts as those of a new one, made as ``claude --fork-session`` makes them.

Rows keep their uuids and every byte but the session id; what belongs to one process of the client
(its queue, its requests, its costs) is not taken along.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.adapters.claude.placing import inner_path, role_of
from agentsdir.adapters.contract import NativeFile
from agentsdir.formats.reading.rows import Tally, read_rows
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.spool import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.rows import Row

_OWN = frozenset(
    [
        "queue-operation",
        "api-request",
        "api-request-shape",
        "api-request-blob",
        "atis-latch",
        "cost-state",
    ]
)
_ID = re.compile(rb'(?<!\\)"sessionId"\s*:\s*("(?:[^"\\]|\\.)*")')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def fork(
    transcripts: Mapping[str, Source],
    old_id: str,
    new_id: str,
    report: Callable[[Finding], None],
) -> Iterator[NativeFile]:
    """Yield the session's transcript, and what stands in its side folder, under the new id.

    Old subagents' files stand beside the transcript, under names that say no session: they go
    into the side folder. Paths in the text that lead to the old one's files are left as they are.
    `report` is told of each damaged line; records that can be read on it are taken.
    """
    for path, source in sorted(transcripts.items()):
        inner = inner_path(path, old_id)
        if not inner:
            continue
        project = path.split("/")[1]
        role = role_of(inner)
        name = f"projects/{project}/{_new_name(inner, role, new_id)}"
        if role in ("main", "subagent"):
            source = Source.from_stream(name, Pieces(_rows(source, new_id, report)))
        yield NativeFile(name, role, source)


def _new_name(inner: tuple[str, ...], role: str, new_id: str) -> str:
    if role == "main":
        return f"{new_id}.jsonl"
    rest = inner[1:] or ("subagents", inner[0])
    return "/".join((new_id, *rest))


def _rows(source: Source, new_id: str, report: Callable[[Finding], None]) -> Iterator[bytes]:
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), report):
            if row.value.get("type") not in _OWN:
                line = _renamed(row, b'"%s"' % new_id.encode())
                yield line if line.endswith(b"\n") else line + b"\n"


def _renamed(row: Row, new: bytes) -> bytes:
    """Return a row's bytes with another session id at its top, and there alone."""
    if not isinstance(row.value.get("sessionId"), str):
        return row.raw
    places = [match.span(1) for match in _ID.finditer(row.raw)]
    if len(places) > 1:
        top = _depths(row.raw)
        places = [place for place in places if top.get(place[0]) == 1]
    line, at = bytearray(), 0
    for begin, end in places:
        line += row.raw[at:begin] + new
        at = end
    return bytes(line + row.raw[at:])


def _depths(raw: bytes) -> dict[int, int]:
    """Return how deep each string of a row stands, by its offset."""
    depth, found = 0, {}
    for token in _TOKEN.finditer(raw):
        character = token.group()[:1]
        if character == b'"':
            found[token.start()] = depth
        else:
            depth += 1 if character in b"{[" else -1
    return found
