"""An agent on its way to another place (docs/moving.md, "Bundles").

What leaves is what the log knows, and nothing else: no lock, no leftover, no file of the client's
own store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.formats.directory import derived, transcripts, workspace
from agentsdir.formats.directory.agent import open_agent, read_agent
from agentsdir.formats.directory.derived import encode_document
from agentsdir.formats.directory.layout import FORMAT, VERSION
from agentsdir.formats.directory.log import read_log
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.spool import Pieces
from agentsdir.formats.times import from_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.findings import Finding


class Exported(NamedTuple):
    """Files by their paths, the time that all bear (epoch seconds), and what was wrong."""

    files: dict[str, Source]
    moment: int
    findings: tuple[Finding, ...]


def export_transcripts(paths: AgentPaths) -> Exported:
    """Return the provider's own transcripts, to the byte, under their native paths.

    Raises `AgentsdirError` (kind ``nothing-to-export``) when there are none, and `Invalid` when one
    is damaged.
    """
    state, moment, findings = _read(paths)
    files = transcripts.load_recorded(paths, state.transcripts)
    if not files:
        raise AgentsdirError(f"agent {paths.id} has no transcript yet", kind="nothing-to-export")
    return Exported(files, moment, findings)


def export_bundle(paths: AgentPaths) -> Exported:
    """Return the whole agent as an agents directory of one.

    Raises `Invalid` when a transcript or a captured file is damaged.
    """
    state, moment, findings = _read(paths)
    folder = f"agents/{paths.id}"
    head = encode_document({"format": FORMAT, "version": VERSION, "features": []})
    files = {"agentsdir.json": Source("agentsdir.json", data=head)}
    for name, document in derived.derived_documents(state).items():
        files[f"{folder}/{name}"] = Source(name, data=document)
    log, size = paths.log, state.position.size
    files[f"{folder}/{log.name}"] = transcripts.beginning(log, size, log.name)
    history = Pieces(_history(paths, size))
    files[f"{folder}/{paths.history.name}"] = Source.from_stream(paths.history.name, history)
    for name, source in transcripts.load_recorded(paths, state.transcripts, streams=True).items():
        files[f"{folder}/transcripts/{name}"] = source
    for name, source in workspace.stored_files(paths).items():
        files[f"{folder}/workspace/{name}"] = source
    return Exported(files, moment, findings)


def _read(paths: AgentPaths) -> tuple[AgentState, int, tuple[Finding, ...]]:
    last = ""

    def follow(_state: AgentState, record: Record | None) -> None:
        nonlocal last
        last = record.ts if record else last

    reading = read_agent(paths, whole=True, follow=follow)
    try:
        moment = max(0, int(from_text(last).timestamp()))
    except (OverflowError, ValueError):  # of a foreign writer, whose time says nothing
        moment = 0
    # What follows the last whole record is not exported.
    findings = tuple(finding for finding in reading.findings if finding.id != "torn-tail")
    return reading.state, moment, findings


def _history(paths: AgentPaths, size: int) -> Iterator[bytes]:
    with open_agent(paths) as stream:
        for line in read_log(stream, str(paths.log)):
            if line.after.size > size:
                return
            if line.record is not None and (entry := derived.history_line(line.record)):
                yield entry
