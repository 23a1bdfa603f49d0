"""Files to sessions: a main chat with the threads of its subagents.

A session is a file, not a session id: stubs, `.json` and `.jsonl` twins and imports share ids,
and each is a session of its own. Only subagents join the file that called them.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.detection import DOCUMENT, LOG, family_of
from agentsdir.adapters.gemini.sharing import shared_ids
from agentsdir.formats.reading.source import HEAD, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ID = re.compile(rb'(?<!\\)"sessionId"\s*:\s*"([^"\\]*)"')
_KIND = re.compile(rb'(?<!\\)"kind"\s*:\s*"(main|subagent)"')
# In a document as clients write it, only the session's own keys stand this far left.
_DOCUMENT_KIND = re.compile(rb'\n  "kind": "(main|subagent)"')
# How the rendered prompt of the first agents began; their files say nothing else about it.
_RENDERED = re.compile(rb'"content"\s*:\s*(?:\[\s*\{\s*"text"\s*:\s*)?"Your task is to ')
_SIDECARS = re.compile(r"logs\.json|projects\.json|checkpoint-.*\.json|\.project_root")


class _File(NamedTuple):
    source: Source
    family: str | None
    session_id: str
    kind: str
    size: int
    rendered: bool

    @property
    def is_main(self) -> bool:
        """Whether it is a session's own file, as far as it says."""
        return self.family in (LOG, DOCUMENT) and self.kind != "subagent" and not self.rendered

    @property
    def folder(self) -> PurePath:
        return PurePath(self.source.name).parent


def group(sources: Sequence[Source]) -> list[SessionFiles]:
    """Return sessions in the order of their first files, each subagent behind its main file."""
    files = [_look_at(one) for one in sources if not _is_sidecar(one)]
    mains: dict[tuple[PurePath, str], list[_File]] = {}
    for file in files:
        if file.kind != "subagent":
            mains.setdefault((file.folder, file.session_id), []).append(file)
    remarks = shared_ids((one.source.name, one.session_id) for one in files if one.is_main)
    children: dict[int, list[_File]] = {}
    taken: set[int] = set()
    for file in files:
        owner = _owner(file, mains)
        if owner is not None:
            children.setdefault(id(owner), []).append(file)
            taken.add(id(file))
    return [
        SessionFiles(
            (
                Transcript(file.source, "subagent" if file.kind == "subagent" else "main"),
                *(Transcript(child.source, "subagent") for child in children.get(id(file), ())),
            ),
            remarks.get(file.source.name, ()),
        )
        for file in files
        if id(file) not in taken
    ]


def _is_sidecar(source: Source) -> bool:
    name = PurePath(source.name)
    return _SIDECARS.fullmatch(name.name) is not None or "tool-outputs" in name.parts


def _look_at(source: Source) -> _File:
    with source.open() as stream:
        head = stream.read(HEAD)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - HEAD))
        tail = stream.read()
    family = family_of(head)
    # A log says its kind in its first row, a document behind all messages.
    first = head[:4096] if family == DOCUMENT else head.partition(b"\n")[0]
    found = _ID.search(first)
    if family == DOCUMENT:
        kinds = (_DOCUMENT_KIND if b'\n  "' in head else _KIND).findall(tail)
    else:
        kinds = _KIND.findall(first)
    return _File(
        source,
        family,
        found[1].decode(errors="replace") if found else "",
        kinds[-1 if family == DOCUMENT else 0].decode() if kinds else "",
        size,
        family == DOCUMENT and _RENDERED.search(head[:8192]) is not None,
    )


def _owner(file: _File, mains: dict[tuple[PurePath, str], list[_File]]) -> _File | None:
    """Return the main file of a subagent's file: by folder, or by session id in the same folder.

    Of several with that id, the largest: the others are stubs, or older twins.
    """
    unmarked = file.rendered and not file.kind
    if file.family not in (LOG, DOCUMENT) or not (file.kind == "subagent" or unmarked):
        return None
    found: list[_File] = []
    if file.kind == "subagent":
        found = mains.get((file.folder.parent, file.folder.name), [])
    if not found and file.session_id:
        flat = mains.get((file.folder, file.session_id), [])
        found = [main for main in flat if main.kind or not main.rendered]
    return max(found, key=lambda main: main.size) if found else None
