"""Transcripts in, blocks and a report out (design section 6; SPEC.md, "Reading transcripts")."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.contract import Architecture, SessionFiles, TranscriptReader
from agentsdir.formats.errors import NotATranscript, UsageError
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import Tally
from agentsdir.formats.reading.sink import ParseSink, View
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.usage import add_usage, no_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SUFFIXES = (".jsonl", ".json")


class Found(NamedTuple):
    """One session and the architecture that claimed it."""

    architecture: Architecture
    files: SessionFiles


def find_sessions(
    sources: Iterable[Source], adapter: str, reject: Callable[[NotATranscript], None]
) -> list[Found]:
    """Sort `sources` by architecture and group them into sessions, in the order given.

    Args:
        sources: every file handed in, or every candidate of a folder.
        adapter: an adapter's name, or "auto" to go by content.
        reject: is told of each file that no adapter recognises; it may raise.
    """
    names = registry.BUILT_IN if adapter == "auto" else (adapter,)
    claimed: dict[str, list[Source]] = {}
    for source in sources:
        try:
            owner = _owner(source, names, forced=adapter != "auto")
        except NotATranscript as error:
            reject(error)
        else:
            claimed.setdefault(owner, []).append(source)
    found = []
    for name in names:
        if name in claimed:
            architecture = registry.get(name)
            files = _reader(architecture).discover(claimed[name])
            found += [Found(architecture, session) for session in files]
    return found


def _owner(source: Source, names: Iterable[str], *, forced: bool) -> str:
    """Name the architecture that takes the file; those after it are not even imported."""
    head = source.head()
    if not head:
        message = f"{source.name} is empty: no session is stored in it"
        raise NotATranscript(message, file=source.name, kind="empty-file")
    for name in names:
        if forced or _reader(registry.get(name)).detect(head, source.name):
            return name
    raise NotATranscript(
        f"{source.name} is no transcript that any adapter knows",
        file=source.name,
        hint="`agentsdir adapters` lists them; --adapter NAME forces one",
    )


def _reader(architecture: Architecture) -> TranscriptReader:
    if architecture.reader is None:
        raise UsageError(f"the adapter {architecture.name!r} reads no transcripts")
    return architecture.reader


def walk(folder: Path, name: str) -> Iterator[Source]:
    """Yield every candidate file below `folder`, sorted, following links but no loops.

    Args:
        folder: where to look.
        name: how the folder was named; the sources are named accordingly.
    """
    status = folder.stat()
    seen: set[tuple[int, int]] = {(status.st_dev, status.st_ino)}
    for where, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for child in list(folders):
            status = Path(where, child).stat()
            if (status.st_dev, status.st_ino) in seen:
                folders.remove(child)
            seen.add((status.st_dev, status.st_ino))
        for child in sorted(names):
            path = Path(where, child)
            if child.endswith(SUFFIXES) and path.is_file():
                yield Source(str(Path(name) / path.relative_to(folder)), path=path)


class ParseReport:
    """The one JSON document of `parse --report`, over any number of sessions."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.findings: list[Finding] = []
        self._sessions: list[tuple[Architecture, ParseSink, str]] = []
        self._view: View = "live"

    def remark(self, finding: Finding) -> None:
        """Record a finding that belongs to no session."""
        self.findings.append(finding)

    def add(self, architecture: Architecture, sink: ParseSink, session_name: str) -> None:
        """Take over what one parsed session says."""
        self.tally.add(sink.tally)
        self.findings += sink.findings
        self._sessions.append((architecture, sink, session_name))

    @property
    def damaged(self) -> bool:
        """Whether some input was damaged, so that the command exits 3."""
        return any(finding.is_damage for finding in self.findings)

    def as_json(self, view: View) -> dict[str, Any]:
        """Return the report. Conversations of several sessions are told apart by session name."""
        adapters = sorted({architecture.name for architecture, _, _ in self._sessions})
        versions = sorted({s.client_version for _, s, _ in self._sessions if s.client_version})
        blocks: dict[str, int] = {}
        conversations: dict[str, Any] = {}
        total = no_usage()
        for _, sink, session_name in self._sessions:
            counts = sink.counts(view)
            for (_, kind), count in counts.items():
                blocks[kind] = blocks.get(kind, 0) + count
            for name, thread in sink.conversations.items():
                key = name if len(self._sessions) == 1 else f"{session_name}/{name}"
                conversations[key] = {
                    "blocks": sum(n for (owner, _), n in counts.items() if owner == name),
                    "usage": thread.usage,
                    "parent": thread.parent,
                    "link": thread.link._asdict() if thread.link else None,
                }
            total = add_usage(total, sink.usage())
        return {
            "adapter": adapters[0] if len(adapters) == 1 else ("mixed" if adapters else None),
            "clientVersion": ", ".join(versions) or None,
            **self.tally.as_json(),
            "blocks": blocks,
            "conversations": conversations,
            "usage": total,
            "findings": [finding.as_json() for finding in self.findings],
        }


def parse_session(found: Found, *, hidden: bool) -> ParseSink:
    """Read one session completely. Raises `AgentsdirError` only for what the system refuses."""
    sink = ParseSink(hidden=hidden)
    _reader(found.architecture).parse_transcripts(found.files, sink)
    return sink


def session_name(found: Found) -> str:
    """Name a session in a report: its first file."""
    return found.files.transcripts[0].source.name


def parse_all(
    found: Iterable[Found], report: ParseReport, *, view: View, hidden: bool
) -> Iterator[bytes]:
    """Yield every block of every session as a line of JSON, filling `report` on the way."""
    for one in found:
        sink = parse_session(one, hidden=hidden)
        yield from sink.lines(view)
        report.add(one.architecture, sink, session_name(one))
