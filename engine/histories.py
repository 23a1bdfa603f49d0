"""What a session's transcripts say, put into the log of an agent that is being made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.adapters import registry
from agentsdir.engine.parsing import Found, parse_session
from agentsdir.engine.syncing import log_block
from agentsdir.formats import jsontext
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.adapters.contract import Architecture, NativeFile
    from agentsdir.formats.directory.publishing import UnpublishedAgent
    from agentsdir.formats.reading.findings import Finding

_READ = ("main", "subagent")


def take_over(
    made: UnpublishedAgent, architecture: Architecture, files: Iterable[NativeFile], ts: str
) -> list[Finding]:
    """Store transcripts in an agent being made, and log the blocks that they hold.

    The blocks belong to no turn of ours, what was replaced is logged as superseded, and all bear
    one time. Returns what was wrong with the transcripts; memory does not grow with them.
    """
    stored, sources = [], []
    for file in files:
        stored.append(made.store(file.path, file.role, file.source).as_entry())
        if file.role in _READ:
            sources.append(Source(file.path, path=made.paths.transcripts / file.path))
    if stored:
        made.append("transcript.synced", {"files": stored}, ts)
    findings: list[Finding] = []
    with registry.adapter_errors(architecture):
        sessions = architecture.reader.discover(sources) if architecture.reader else []
    for session in sessions:
        sink = parse_session(Found(architecture, session), hidden=False)
        findings += sink.findings
        for line in sink.lines("all"):
            log_block(made, None, jsontext.decode(line), ts)
    return findings
